// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/element.h>
#include <attile/core/fp8.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <vector>

namespace attile::reference {

/// Returns max |a - b| over the finite values of b; inf when a is not finite at one of them.
inline double max_error(const std::vector<double>& a, const std::vector<double>& b) {
  double error = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (!std::isfinite(b[i])) continue;
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(a[i] - b[i]));
  }
  return error;
}

/// Returns the largest absolute value of a tensor's finite elements.
inline double largest_finite(const std::vector<double>& tensor) {
  double largest = 0;
  for (const double x : tensor) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  return largest;
}

/// Returns one rounding of a tensor to T: half the spacing of T at the tensor's largest value, and
/// the whole spacing for float, in which the value was computed too.
template <Element T>
double rounding(const std::vector<double>& tensor) {
  constexpr int digits = std::same_as<T, float> ? 23 : std::same_as<T, __half> ? 11 : 8;
  constexpr int smallest = std::same_as<T, float> ? -149 : std::same_as<T, __half> ? -25 : -134;
  const double largest = largest_finite(tensor);
  if (largest == 0) return std::ldexp(1.0, smallest);
  return std::ldexp(1.0, std::max(std::ilogb(largest) - digits, smallest));
}

/// Returns the error that the contract allows a tensor, in max-norm: twice that of the plain
/// computation, and one rounding of the exact result to T (float for LSE).
template <Element T>
double tolerance(const std::vector<double>& exact, const std::vector<double>& plain) {
  return 2 * max_error(plain, exact) + rounding<T>(exact);
}

/// Returns what three products of TF32 for each one (Products::k3xTf32) add to the tolerance of O,
/// dQ, dK, dV or a modifier's gradient: 2^-21 of the largest sum of absolute values. A factor x =
/// big + rest is off by the bit of the rest that TF32 cuts off, 2^-23 |x|, and the rests, at most
/// 2^-11 |x| each, are not multiplied with each other, so that a product is off by up to (2^-23 +
/// 2^-23 + 2^-22) |x y|. dP, a sum of such products, is off by as much of sum |dO V|, and dS by P *
/// score_mod'(S) of that, however small dP - D is: for a row that sees one key dS = 0, and its
/// error is not one rounding of it.
inline double three_products_error(const std::vector<double>& magnitudes) {
  return std::ldexp(largest_finite(magnitudes), -21);
}

/// Returns what P in e4m3 (fp8_probability_log2) adds to the tolerance of O: 2 u r with u = 2^-4,
/// its rounding, and r the largest root of the sum of the squares of an element's terms P V. Such a
/// rounding is off by 0.42 u in r.m.s., so that these are about five standard deviations where
/// roundings are independent. Below 2^-14 of a row's largest P the spacing is that of 2^-17 (with
/// unpromoted sums 2^-12 and 2^-15), and what it makes is small beside that of the largest P,
/// unless its row of V is 0. `roots`: those of reference::forward_roots.
inline double fp8_probability_error(const std::vector<double>& roots) {
  return std::ldexp(largest_finite(roots), -3);
}

/// Returns what sums of products of fp8 add to the tolerance of O where matrix instructions keep
/// them in 14 bits: each instruction, of 32 keys, cuts off what is below 2^-13 of its sum. Fp32
/// takes over after at most 256 keys, or with Fp8Sums::kUnpromoted, of `keys` keys, never.
/// `magnitudes`: those of reference::forward_magnitudes.
inline double fp8_sum_error(const std::vector<double>& magnitudes, Fp8Sums sums, int keys) {
  const int instructions = ((sums == Fp8Sums::kPromoted ? std::min(keys, 256) : keys) + 31) / 32;
  return std::ldexp(instructions * largest_finite(magnitudes), -13);
}

/// Returns what scores from such sums add to the tolerance of O or LSE. An instruction adds 32
/// products to a sum, and cuts off each of these 33 below 2^-13 of the largest: D of them leave a
/// score off by at most 33 D / 32 times that, and in r.m.s. by its root, which 2^-11 of the sum of
/// the products' absolute values covers about five times. It is a statistical allowance.
/// `shifts`: what scores that are off by that sum make of each element, of
/// reference::forward_score_shifts.
inline double fp8_score_error(const std::vector<double>& shifts) {
  return std::ldexp(largest_finite(shifts), -11);
}

/// Returns what sums in any order add to the tolerance of a modifier's gradient, where several
/// scores add to an element: 2^-22 of the largest sum M of absolute values. The plain computation
/// goes row by row, and as dS' of a row adds up to its dLSE, its partial sums may be small where
/// those of others are not. An addition is off by 0.4 * 2^-24 of its partial sum s in r.m.s.; if
/// such errors are independent, n of them make 0.4 * 2^-24 sqrt(sum s^2). That is about 0.35 *
/// 2^-24 M for any n if s is a random walk itself, that is if terms of both signs come in random
/// order, which leaves a factor of eleven. Where all s are f M instead, r.m.s. errors stay below
/// 2^-22 M up to n = (10 / f)^2: a hundred terms for f = 1.
inline double any_order_error(const std::vector<double>& magnitudes) {
  return std::ldexp(largest_finite(magnitudes), -22);
}

/// Returns what is added to the tolerance of the sinks' gradient, which is few numbers, whose error
/// in one plain computation is luck: each is a sum over all rows of terms exp(sink - LSE) dO O,
/// with an O that was rounded to T. Such a rounding is off by 0.42 u in r.m.s., u = 2^-11 for fp16
/// and 2^-8 for bf16, and the roundings are independent: of the root r of the sum of the terms'
/// squares 2 u r are about five standard deviations. (O counts as the smallest normal number of T
/// where it is less, because its rounding is then that of this number, or less.) The fp32
/// arithmetic of some thousand rows adds less than 2^-20 r. What all rows have in common does not
/// average out: O and exp(sink - LSE) are exponentials of differences of two numbers, scores or
/// sinks, of which each has been multiplied by log2(e) in fp32, and so is off by up to 1.5 * 2^-24
/// of its size. Of a gradient 2^-22 times the size of the larger one covers both.
/// `roots`, `dsinks`, `exponents`: of each head; the last ones are those of `sink_exponents`.
template <Element T>
double sink_gradient_error(const std::vector<double>& roots, const std::vector<double>& dsinks,
                           const std::vector<double>& exponents) {
  constexpr double kUnit = std::same_as<T, float>    ? 0x1p-24
                           : std::same_as<T, __half> ? 0x1p-11
                                                     : 0x1p-8;
  double common = 0;
  for (std::size_t head = 0; head < dsinks.size(); ++head) {
    common = std::max(common, std::abs(dsinks[head]) * std::ldexp(exponents[head], -22));
  }
  return largest_finite(roots) * (2 * kUnit + 0x1p-20) + common;
}

/// Returns, for each query head, the largest finite |LSE| of its rows, or |sink|. `lse`: (batch,
/// q_heads, q_len).
template <class Args>
std::vector<double> sink_exponents(const Args& args, const std::vector<double>& lse) {
  std::vector<double> largest;
  for (int head = 0; head < args.q_heads; ++head) {
    largest.push_back(largest_finite({args.sink.logit(head)}));
  }
  for (std::size_t row = 0; row < lse.size(); ++row) {
    double& of_head = largest[row / args.q_len % args.q_heads];
    if (std::isfinite(lse[row])) of_head = std::max(of_head, std::abs(lse[row]));
  }
  return largest;
}

}  // namespace attile::reference
