// SPDX-License-Identifier: MIT
// A GPT trained in C++: attile for attention, cuBLAS for the products, small kernels for the rest.
// It is trained again with standard attention, from the same weights on the same batches, and the
// two loss curves have to be the same. `08_train_gpt --help` says how it is called.
//
// Read main.cu, then train.cuh (the loop), model.cuh (the passes), layers.cuh (the kernels). What
// is called of attile is in attentions.cuh.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numbers>
#include <string>
#include <utility>
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

/// Tokens per second since the first step, which loads kernels and is not counted.
class Speed {
 public:
  explicit Speed(int tokens_of_step) : tokens_of_step_(tokens_of_step) {}
  double after(int steps) {
    const auto now = std::chrono::steady_clock::now();
    if (steps == 1) begin_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    return steps == 1 ? 0 : (steps - 1.0) * tokens_of_step_ / seconds;
  }

 private:
  double tokens_of_step_;
  std::chrono::steady_clock::time_point begin_;
};

/// Trains once and prints how it goes on.
Curve run(const char* name, const Options& options, const Training& training,
          Attention<Bf16>& attention) {
  Speed speed(training.shape.rows());
  std::printf("%s\n", name);
  return train(training, attention, options.report_every, [&](int done, float loss) {
    std::printf("  step %5d  loss %.4f", done, loss);
    if (done > 1)
      std::printf("  %9.0f tokens/s", speed.after(done));
    else
      speed.after(done);
    std::printf("\n");
    std::fflush(stdout);
  });
}

void print_curves(const Options& options, const Curve& attile, const Curve& standard) {
  std::printf("%8s %10s %10s %11s\n", "step", "attile", "standard", "difference");
  for (std::size_t i = 0; i < attile.size(); ++i) {
    if (i != 0 && i + 1 != attile.size() && (i + 1) % options.report_every != 0) continue;
    std::printf("%8zu %10.4f %10.4f %11.1e\n", i + 1, attile[i], standard[i],
                attile[i] - standard[i]);
  }
}

/// Whether the curves are the same, by the bound of curves.h.
bool compare(const Options& options, const Training& training) {
  FlashAttention flash;
  const Curve attile = run("attile", options, training, flash);
  StandardAttention whole;
  const Curve standard = run("standard attention", options, training, whole);
  std::vector<Curve> nudged;
  for (const std::uint32_t seed : {1000u, 100'000u, 10'000'000u}) {
    NudgedAttention attention(seed);
    nudged.push_back(run("standard attention, Q, K and V nudged by their last bit", options,
                         training, attention));
  }
  print_curves(options, attile, standard);
  const bool same = is_same(attile, standard, nudged);
  std::printf("largest difference %.2e; of standard attention from itself, nudged, %.2e\n",
              largest_difference(attile, standard, attile.size()),
              spread(standard, nudged, standard.size()));
  std::printf(same ? "The curves are the same.\n" : "The curves differ by more than roundings.\n");
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
  if (options.attention == "both") return compare(options, training) ? kExitDone : kExitFailed;
  if (options.attention == "attile") {
    FlashAttention attention;
    run("attile", options, training, attention);
  } else {
    StandardAttention attention;
    run("standard attention", options, training, attention);
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
