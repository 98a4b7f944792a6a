// SPDX-License-Identifier: MIT
// The two ways to run a problem. run_on_cpu is compiled as C++ (cpu.cpp), for the sake of its
// vector instructions; run_on_gpu as CUDA.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "problem.h"
#include "progress.h"

namespace attend {

/// What several calls of one pass took.
struct Times {
  double median_ms = 0, least_ms = 0, most_ms = 0;
  int calls = 0;  ///< that were counted
};

/// How a problem was run.
struct Run {
  std::string family;           ///< which kernels
  bool three_products = false;  ///< whether they made three products of TF32 of each one
  Times forward;
  Times backward;         ///< all the kernels of the backward pass
  std::size_t bytes = 0;  ///< inputs, outputs and workspace
};

/// How often the passes are called, and when they say how far they are.
struct Pace {
  std::optional<int> repeat;       ///< as `times_of` takes it
  std::optional<double> progress;  ///< as Progress takes it
};

/// Empty when there is a GPU that can be used, else why there is not: no sentence, but a part of
/// one.
std::string why_no_gpu();

/// The names of the devices.
std::string cpu_name();
std::string gpu_name();

/// Runs the problem and leaves the outputs in `tensors`. Defined for float, __half and
/// __nv_bfloat16. Throws npy::Error, one sentence.
template <class T>
Run run_on_cpu(const Problem& problem, Tensors<T>& tensors, const Pace& pace);
template <class T>
Run run_on_gpu(const Problem& problem, Tensors<T>& tensors, const Pace& pace);

/// Times `time()`, which returns ms: `repeat` calls after one that is not counted. Where that is
/// not given, 9; but a call of more than a second is not repeated, and counts.
template <class Time>
Times times_of(const std::string& pass, const Pace& pace, const Time& time) {
  constexpr double kLong = 1000;
  Progress progress(pass, pace.progress);
  const int calls = pace.repeat.value_or(9);
  if (pace.repeat) progress.expect(1 + std::int64_t{calls});
  const double first = time();
  progress.advance();
  if (!pace.repeat && first > kLong) return {first, first, first, 1};
  progress.expect(1 + std::int64_t{calls});
  std::vector<double> ms(calls);
  for (double& x : ms) {
    x = time();
    progress.advance();
  }
  std::sort(ms.begin(), ms.end());
  return {ms[ms.size() / 2], ms.front(), ms.back(), calls};
}

}  // namespace attend
