// SPDX-License-Identifier: MIT
// Standard attention, FlashAttention-1 and FlashAttention-2 beside each other: what each costs in
// time, FLOPs, bytes moved and memory, and that they agree. `07_algorithms --help` says how it is
// called; docs/algorithm.md, "The algorithms side by side", what came out.
#include <attile/core/mask.h>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "options.h"
#include "report.h"
#include "result.h"

namespace algorithms {
namespace {

constexpr int kExitDone = 0, kExitFailed = 1, kExitUsage = 64, kExitSkipped = 77;

using attile::Causal;
using attile::NoMask;

/// A set of kernels that this program was built with: one file each.
struct Built {
  Type type;
  int dim;
  bool causal;
  Result (*compare)(const Problem&, const Options&);

  bool takes(const Problem& p) const {
    return p.type == type && p.dim == dim && p.causal == causal;
  }
};

constexpr Built kBuilt[] = {{Type::kFp32, 64, false, compare<float, 64, NoMask>},
                            {Type::kFp16, 64, false, compare<__half, 64, NoMask>},
                            {Type::kFp32, 128, false, compare<float, 128, NoMask>},
                            {Type::kFp16, 64, true, compare<__half, 64, Causal>}};

std::string described(Type type, int dim, bool causal) {
  return std::string(name(type)) + " D " + std::to_string(dim) + (causal ? " causal" : "");
}

std::string all_built() {
  std::string all;
  for (const Built& b : kBuilt) {
    all += (all.empty() ? "" : ", ") + described(b.type, b.dim, b.causal);
  }
  return all;
}

const Built& built_for(const Problem& problem) {
  const auto* const found = std::find_if(std::begin(kBuilt), std::end(kBuilt),
                                         [&](const Built& b) { return b.takes(problem); });
  if (found != std::end(kBuilt)) return *found;
  throw UsageError(described(problem.type, problem.dim, problem.causal) +
                   " is not built; there are " + all_built() +
                   " (another one takes a line of kBuilt in main.cpp, a file like fp16_64.cu, and "
                   "that file's name in examples/CMakeLists.txt).");
}

int run(const Options& options) {
  if (options.help) {
    std::printf("%s\nBuilt, by type, head_dim D and mask: %s.\n\n%s", kHelp, all_built().c_str(),
                kCaveats);
    return kExitDone;
  }
  for (const Problem& problem : options.problems) static_cast<void>(built_for(problem));
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device\n");
    return kExitSkipped;
  }
  bool within = true;
  std::vector<Result> results;
  for (const Problem& problem : options.problems) {
    results.push_back(built_for(problem).compare(problem, options));
    if (!options.json && !options.once) print_table(results.back());
    std::fflush(stdout);
    for (const PassResult& pass : results.back().passes) within = within && pass.within();
  }
  if (options.json) print_json(results);
  if (!options.json && !options.once) print_legend();
  if (!within) std::fprintf(stderr, "07_algorithms: an error is beyond its bound.\n");
  return within ? kExitDone : kExitFailed;
}

}  // namespace
}  // namespace algorithms

int main(int argc, char** argv) {
  try {
    return algorithms::run(algorithms::parse(std::vector<std::string>(argv + 1, argv + argc)));
  } catch (const algorithms::UsageError& error) {
    std::fprintf(stderr, "07_algorithms: %s\n", error.what());
    return algorithms::kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "07_algorithms: %s\n", error.what());
    return algorithms::kExitFailed;
  }
}
