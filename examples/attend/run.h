// SPDX-License-Identifier: MIT
// The two ways to run a problem. run_on_cpu is compiled as C++ (cpu.cpp), for the sake of its
// vector instructions; run_on_gpu as CUDA.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "problem.h"

namespace attend {

/// How a problem was run.
struct Run {
  std::string device;           ///< what it ran on
  std::string family;           ///< which kernels
  bool three_products = false;  ///< whether they made three products of TF32 of each one
  double forward_ms = 0;        ///< median
  double backward_ms = 0;       ///< median; all the kernels of the backward pass
  std::size_t bytes = 0;        ///< inputs, outputs and workspace
};

/// Empty when there is a GPU that can be used, else why there is not: no sentence, but a part of
/// one.
std::string why_no_gpu();

/// Runs the problem and leaves the outputs in `tensors`. Defined for float, __half and
/// __nv_bfloat16. Throws npy::Error, one sentence.
template <class T>
Run run_on_cpu(const Problem& problem, Tensors<T>& tensors);
template <class T>
Run run_on_gpu(const Problem& problem, Tensors<T>& tensors);

/// The median of `time()`, in ms, over 9 calls after one that is not counted. A call of more than a
/// second is not repeated.
template <class Time>
double median_ms(Time time) {
  constexpr double kLong = 1000;
  double first = time();
  if (first > kLong) return first;
  std::vector<double> ms(9);
  for (double& x : ms) x = time();
  std::nth_element(ms.begin(), ms.begin() + 4, ms.end());
  return ms[4];
}

}  // namespace attend
