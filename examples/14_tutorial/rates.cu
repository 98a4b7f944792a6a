// SPDX-License-Identifier: MIT
// The rates of the tutorial's steps and of the own kernels of 12_own_kernels, beside the library's
// kernels, as a table: causal, D 128, 16 query heads and 4 of K and V. What the steps compute the
// library's plain kernels do, too; what is fair beside an own kernel is one with the same key bias.
//   rates [--seqlen 4096] [--batch 4]
// Contenders take turns in rounds, and each has the median of its rounds. FLOPs are 2 B H S^2 D.
#include <attile/attile.cuh>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "../12_own_kernels/hopper_kernel.cuh"
#include "../12_own_kernels/mma_kernel.cuh"
#include "step_1.cuh"
#include "step_2.cuh"
#include "step_3.cuh"
#include "step_4.cuh"
#include "step_5.cuh"
#include "step_6.cuh"
#include "step_7.cuh"

namespace {

constexpr int kRounds = 9, kCalls = 5;

struct Contender {
  std::string name;
  std::string of;         ///< the plain contender beside which it is held
  std::string of_biased;  ///< and the one with the same key bias
  std::function<attile::Check()> call;
  attile::Check check{};
  std::vector<double> milliseconds{};

  double median() {
    std::sort(milliseconds.begin(), milliseconds.end());
    return milliseconds[milliseconds.size() / 2];
  }
};

/// Times one round of calls.
double time_of(const Contender& contender) {
  cudaEvent_t begin, end;
  example::must(cudaEventCreate(&begin), "cudaEventCreate");
  example::must(cudaEventCreate(&end), "cudaEventCreate");
  example::must(contender.call().error, contender.name.c_str());
  example::must(cudaEventRecord(begin), "cudaEventRecord");
  for (int i = 0; i < kCalls; ++i) example::must(contender.call().error, contender.name.c_str());
  example::must(cudaEventRecord(end), "cudaEventRecord");
  example::must(cudaEventSynchronize(end), contender.name.c_str());
  float milliseconds = 0.0f;
  example::must(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  example::must(cudaEventDestroy(begin), "cudaEventDestroy");
  example::must(cudaEventDestroy(end), "cudaEventDestroy");
  return milliseconds / kCalls;
}

/// Describes a problem for the library's kernels.
template <class Args, class Problem>
Args library_args(const Problem& problem) {
  Args args;
  args.q = problem.q(), args.k = problem.k(), args.v = problem.v(), args.o = problem.o();
  args.batch = problem.sizes().batch;
  args.q_heads = problem.sizes().q_heads, args.kv_heads = problem.sizes().kv_heads;
  args.q_len = args.kv_len = problem.sizes().len;
  args.head_dim = own::kDim, args.scale = own::kScale;
  return args;
}

/// Returns the value of an option, a positive number.
int option(int argc, char** argv, const char* name, int value) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], name) == 0) value = std::atoi(argv[i + 1]);
  }
  if (value > 0) return value;
  std::fprintf(stderr, "rates: %s wants a number above 0\n", name);
  std::exit(64);
}

}  // namespace

int main(int argc, char** argv) {
  const int len = option(argc, argv, "--seqlen", 4096), batch = option(argc, argv, "--batch", 4);
  example::need_gpu();
  const own::Problem biased({.batch = batch, .q_heads = 16, .kv_heads = 4, .len = len});
  const tutorial::Problem<float> fp32({batch, 16, 4, len});
  const tutorial::Problem<own::T> bf16({batch, 16, 4, len});
  using Fp32Args = attile::ForwardArgs<float, attile::Causal>;
  using Args = attile::ForwardArgs<own::T, attile::Causal>;
  using BiasedArgs = attile::ForwardArgs<own::T, attile::Causal, own::KeyBias>;
  using BiasedSm80 = attile::sm80::DefaultForwardTraits<BiasedArgs, own::kDim, own::kDim, 227>;
  using Portable = attile::portable::DefaultForwardTraits<Fp32Args, own::kDim, own::kDim, 227>;
  using Sm80 = attile::sm80::DefaultForwardTraits<Args, own::kDim, own::kDim, 227>;
  const auto fp32_args = library_args<Fp32Args>(fp32);
  const auto args = library_args<Args>(bf16);
  auto biased_args = library_args<BiasedArgs>(biased);
  biased_args.score_mod = biased.bias();

  const auto library = [](auto call) { return [call] { return attile::Check{call()}; }; };
  std::vector<Contender> contenders{
      {"the library, portable, fp32", "", "",
       library([&] { return attile::forward<Portable>(fp32_args); })},
      {"the library, sm80", "", "", library([&] { return attile::forward<Sm80>(args); })},
      {"the library, sm80, with a key bias", "", "",
       library([&] { return attile::forward<BiasedSm80>(biased_args); })},
      {"the library", "", "", library([&] { return attile::forward<own::kDim>(args); })},
      {"the library, with a key bias", "", "",
       library([&] { return attile::forward<own::kDim>(biased_args); })},
      {"step 1: FMAs, fp32", "the library, portable, fp32", "",
       [&] { return tutorial::step_1::run(fp32); }},
      {"step 2: loads ahead", "the library, portable, fp32", "",
       [&] { return tutorial::step_2::run(fp32); }},
      {"step 3: mma.sync", "the library, sm80", "", [&] { return tutorial::step_3::run(bf16); }},
      {"step 4: loads beside products", "the library, sm80", "",
       [&] { return tutorial::step_4::run(bf16); }},
      {"step 5: wgmma and TMA", "the library", "", [&] { return tutorial::step_5::run(bf16); }},
      {"step 6: warps with roles", "the library", "", [&] { return tutorial::step_6::run(bf16); }},
      {"step 7: S beside P V", "the library", "", [&] { return tutorial::step_7::run(bf16); }},
      {"own kernel on mma.sync", "the library, sm80", "the library, sm80, with a key bias",
       [&] { return own::mma::launch(biased); }},
      {"own kernel on wgmma", "the library", "the library, with a key bias",
       [&] { return own::hopper::launch(biased); }},
  };
  for (Contender& c : contenders) {
    c.check = c.call();
    example::must(cudaDeviceSynchronize(), c.name.c_str());
  }
  for (int round = 0; round < kRounds; ++round) {
    for (Contender& c : contenders) {
      if (c.check) c.milliseconds.push_back(time_of(c));
    }
  }

  const double flops = 2.0 * batch * 16 * double(len) * len * own::kDim;
  std::printf("| B %d, S %d | ms | TFLOP/s | of the library's | of its with the key bias |\n",
              batch, len);
  std::printf("|---|---|---|---|---|\n");
  for (Contender& c : contenders) {
    if (!c.check) {
      std::printf("| %s | %s | | | |\n", c.name.c_str(), c.check.why);
      continue;
    }
    std::printf("| %s | %.3f | %.0f |", c.name.c_str(), c.median(), flops / c.median() * 1e-9);
    for (const std::string& name : {c.of, c.of_biased}) {
      const auto of = std::find_if(contenders.begin(), contenders.end(),
                                   [&](const Contender& other) { return other.name == name; });
      if (of != contenders.end() && of->check) std::printf(" %.2f", of->median() / c.median());
      std::printf(" |");
    }
    std::printf("\n");
  }
  return 0;
}
