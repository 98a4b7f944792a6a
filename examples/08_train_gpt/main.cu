// SPDX-License-Identifier: MIT
// A GPT trained in C++: attile for attention, cuBLAS for the products, small kernels for the rest.
// It is trained again with standard attention, from the same weights on the same batches, and the
// two loss curves have to be the same. `08_train_gpt --help` says how it is called.
//
// Read from here: train.cuh is the loop, model.cuh the two passes, kernels.cuh what lies between
// the products. The calls of attile are in attentions.cuh, and their arguments are made in
// model.cuh.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numbers>
#include <string>
#include <vector>

#include "attentions.cuh"
#include "curves.h"
#include "options.h"
#include "text.h"
#include "train.cuh"

namespace gpt {
namespace {

constexpr int kExitDone = 0, kExitFailed = 1, kExitUsage = 64;

/// The learning rate: it rises in the first tenth of the steps, since the first gradients are large
/// and AdamW's means are of few of them, and falls as a cosine to a tenth of the highest.
float learning_rate(const Options& options, int step) {
  const double highest = options.rate, rising = std::max(options.steps / 10, 1);
  if (step < rising) return static_cast<float>(highest * (step + 1) / rising);
  const double done = (step - rising) / std::max(options.steps - rising, 1.0);
  return static_cast<float>(highest * (0.55 + 0.45 * std::cos(std::numbers::pi * done)));
}

Training make_training(const Options& o, const std::string& text) {
  return {.shape = {.layers = o.layers,
                    .heads = o.heads,
                    .vocabulary = kVocabulary,
                    .batch = o.batch,
                    .len = o.len},
          .seed = static_cast<unsigned>(o.seed),
          .steps = o.steps,
          .batch = [=, &text](int step) { return draw(text, o.batch, o.len, o.seed, step); },
          .rate = [=](int step) { return learning_rate(o, step); }};
}

/// How a run went.
struct Outcome {
  Curve curve;
  double tokens_per_second = 0;  ///< since the first step, which loads kernels and is not counted
};

/// Trains once; prints how it goes on, unless `name` is null.
Outcome run(const char* name, const Options& options, const Training& training,
            Attention<Bf16>& attention) {
  using Clock = std::chrono::steady_clock;
  Outcome outcome;
  Clock::time_point first_step;
  const auto report = [&](int done, float loss) {
    if (done == 1) first_step = Clock::now();
    const std::chrono::duration<double> seconds = Clock::now() - first_step;
    if (done > 1) {
      outcome.tokens_per_second = (done - 1.0) * training.shape.rows() / seconds.count();
    }
    if (name == nullptr) return;
    std::printf("%-8s  step %5d  loss %.4f  %10.0f tokens/s\n", name, done, loss,
                outcome.tokens_per_second);
    std::fflush(stdout);
  };
  outcome.curve = train(training, attention, options.report_every, report);
  return outcome;
}

/// The curves of standard attention with other roundings.
std::vector<Curve> run_nudged(const Options& options, const Training& training) {
  std::printf("nudged    standard attention three times more, its roundings moved by chance\n");
  std::vector<Curve> curves;
  for (const std::uint32_t seed : {1000u, 100'000u, 10'000'000u}) {
    NudgedAttention attention(seed);
    curves.push_back(run(nullptr, options, training, attention).curve);
  }
  return curves;
}

void print_curves(const Options& options, const Curve& attile, const Curve& standard) {
  std::printf("\n%8s %10s %10s %12s\n", "step", "attile", "standard", "difference");
  for (int step = 1; step <= options.steps; ++step) {
    if (!is_reported(step, options.steps, options.report_every)) continue;
    const double a = attile[step - 1], b = standard[step - 1];
    std::printf("%8d %10.4f %10.4f %12.1e\n", step, a, b, a - b);
  }
}

/// Trains with attile and with standard attention. Returns whether the curves are the same, by the
/// bound of curves.h.
bool compare(const Options& options, const Training& training) {
  FlashAttention flash;
  const Outcome attile = run("attile", options, training, flash);
  StandardAttention whole;
  const Outcome standard = run("standard", options, training, whole);
  const std::vector<Curve> nudged = run_nudged(options, training);

  print_curves(options, attile.curve, standard.curve);
  const bool same = is_same(attile.curve, standard.curve, nudged);
  std::printf("\nattile trains %.2f times as fast.\n",
              attile.tokens_per_second / standard.tokens_per_second);
  std::printf("The curves are at most %.1e apart; standard attention with other roundings is at\n",
              largest_difference(attile.curve, standard.curve, attile.curve.size()));
  std::printf("most %.1e from itself. The curves %s.\n",
              spread(standard.curve, nudged, standard.curve.size()),
              same ? "are the same" : "differ by more than roundings");
  return same;
}

int run_program(const Options& options, const std::string& program) {
  if (options.help) {
    std::printf("%s", kHelp);
    return kExitDone;
  }
  const std::string text = read_text(options.text, program);
  if (text.size() <= static_cast<std::size_t>(options.len)) {
    throw TextError("a text of " + std::to_string(text.size()) + " bytes has no sequence of " +
                    std::to_string(options.len) + " tokens and the one behind.");
  }
  example::need_gpu();
  const Training training = make_training(options, text);
  const Shape& shape = training.shape;
  std::printf("GPT of %d layers, %d heads, width %d; %d tokens of %zu bytes of text at a step\n",
              shape.layers, shape.heads, shape.width(), shape.rows(), text.size());
  if (options.attention == "both") return compare(options, training) ? kExitDone : kExitFailed;
  if (options.attention == "attile") {
    FlashAttention attention;
    run("attile", options, training, attention);
  } else {
    StandardAttention attention;
    run("standard", options, training, attention);
  }
  return kExitDone;
}

}  // namespace
}  // namespace gpt

int main(int argc, char** argv) {
  try {
    return gpt::run_program(gpt::parse(std::vector<std::string>(argv + 1, argv + argc)), argv[0]);
  } catch (const gpt::UsageError& error) {
    std::fprintf(stderr, "08_train_gpt: %s\n", error.what());
    return gpt::kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "08_train_gpt: %s\n", error.what());
    return gpt::kExitFailed;
  }
}
