// SPDX-License-Identifier: MIT
// What is found out about one problem.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "costs.h"
#include "options.h"

namespace algorithms {

/// FLOPs by the convention of the FlashAttention papers, whatever an algorithm does: forward
/// 2 B H S S (D + Dv), half of it under a causal mask, and backward 2.5 times that.
inline double nominal_flops(const Problem& p, Direction direction) {
  const double scores = 1.0 * p.batch * p.heads * p.len * p.len * (p.causal ? 0.5 : 1.0);
  return 2 * scores * (p.dim + p.dim) * (direction == Direction::kForward ? 1.0 : 2.5);
}

/// The larger one, a NaN above all.
inline double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// The largest error of one tensor, relative to its largest value; the bound holds `fp64`, and
/// twice the bound holds `flash2`.
struct Error {
  const char* tensor;
  double fp64;    ///< of a few rows of the last head, against fp64
  double flash2;  ///< of the whole tensor, against FlashAttention-2's
  double bound;

  bool within() const { return fp64 <= bound && flash2 <= 2 * bound; }
};

struct PassResult {
  Pass pass;
  std::string why_not{};     ///< why it was not run; empty: it was
  Cost cost;                 ///< by formula
  std::size_t memory = 0;    ///< tensors, statistics, P and workspace that the pass needs. Bytes
  std::vector<double> ms{};  ///< of each round
  std::vector<Error> errors{};

  double median_ms() const {
    std::vector<double> sorted = ms;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
  /// (the longest round - the shortest) / the median.
  double spread() const {
    const auto [least, most] = std::minmax_element(ms.begin(), ms.end());
    return ms.empty() ? 0 : (*most - *least) / median_ms();
  }
  /// Keeps the worse of what is known and what another call gave.
  void add_errors(const std::vector<Error>& found) {
    if (errors.empty()) errors = found;
    for (std::size_t i = 0; i < found.size(); ++i) {
      errors[i].fp64 = worse(errors[i].fp64, found[i].fp64);
      errors[i].flash2 = worse(errors[i].flash2, found[i].flash2);
    }
  }
  bool within() const {
    return std::all_of(errors.begin(), errors.end(), [](const Error& e) { return e.within(); });
  }
};

struct Result {
  Problem problem;
  std::vector<PassResult> passes;
};

/// Runs one problem with kernels for its D, type and mask. Ends the program where CUDA fails.
template <class T, int D, class Mask>
Result compare(const Problem& problem, const Options& options);

}  // namespace algorithms
