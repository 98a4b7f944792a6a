// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/math.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/tile/online_softmax.h>

// Five algorithms for the softmax of one row. Each removes a weakness of the one before, and
// attention over tiles is built on the last.
//
//   algorithm    passes   loads   stores   exps     compared with the one before
//   naive        2        2       1        2        (overflows)
//   safe         3        3       2        1        never overflows
//   three_pass   3        3       1        2        stores the result alone
//   online       2        2       1        3        maximum and sum in one pass
//   blockwise    2        2       1        2 + 2/b  blocks are independent, and may run in parallel
//
// Loads, stores and exps are counted for each score, loads and stores in memory; b is the length of
// a block.
//
// All of them compute y_i = e^(x_i) / sum over j of e^(x_j) for n scores x in natural units, into
// which `scale_log2` / log2(e) turns those of the argument.
// Shapes   x, y: n contiguous floats, any n >= 0; y may be x, and may not overlap it otherwise.
// Units    `scale_log2` turns scores into log2 units, as in OnlineSoftmax: log2(e) for scores in
//          natural units.
// Scope    one thread, on its own.
// Empty    a hidden score is -inf and becomes 0; a row with only hidden scores becomes zeros (not
//          with `naive`).

namespace attile::tile {

namespace detail {

/// Returns 1 / l, and 0 for a row that saw nothing.
ATTILE_HOST_DEVICE float inverse_sum(float l) { return l == 0.0f ? 0.0f : 1.0f / l; }

/// Returns the largest score, -inf for n = 0.
ATTILE_HOST_DEVICE float row_max(const float* x, int n) {
  float m = -kInf;
  for (int i = 0; i < n; ++i) m = arch::fmax(m, x[i]);
  return m;
}

/// Returns l = sum of e^(x_i - m).
ATTILE_HOST_DEVICE float row_sum(const float* x, int n, float m, float scale_log2) {
  float l = 0.0f;
  for (int i = 0; i < n; ++i) l += softmax_weight(x[i], m, scale_log2);
  return l;
}

/// Sets y_i = e^(x_i - m) / l.
ATTILE_HOST_DEVICE void normalise_row(const float* x, float* y, int n, float m, float l,
                                      float scale_log2) {
  const float inverse = inverse_sum(l);
  for (int i = 0; i < n; ++i) y[i] = softmax_weight(x[i], m, scale_log2) * inverse;
}

/// Is the output of a state without one: rescaling it does nothing.
struct NoOutput {
  ATTILE_HOST_DEVICE void scale_row(int, float) const {}
};

}  // namespace detail

/// Computes the softmax by its definition: l = sum of e^(x_i), then y_i = e^(x_i) / l.
///                                                                     [arXiv 1805.02867, Alg. 1]
/// Passes   2; 2 loads, 1 store, 2 exps for each score.
/// Range    e^x is infinite above x = 88.7 and 0 below -103 (below -87.3 on the device). A row that
///          overflows becomes inf / inf, and one that underflows as a whole, or has only hidden
///          scores, becomes 0 / 0: NaN.
ATTILE_HOST_DEVICE void naive_softmax(const float* x, float* y, int n, float scale_log2 = kLog2e) {
  float l = 0.0f;
  for (int i = 0; i < n; ++i) l += arch::exp2(x[i] * scale_log2);
  for (int i = 0; i < n; ++i) y[i] = arch::exp2(x[i] * scale_log2) / l;
}

/// Computes the softmax as textbooks do: m = max x, then y_i = e^(x_i - m) and l = sum of y_i, then
/// y_i / l. With m subtracted no exponential is above 1, and l is at least 1.
/// Passes   3; 3 loads, 2 stores, 1 exp for each score: the numerators go through memory.
ATTILE_HOST_DEVICE void safe_softmax(const float* x, float* y, int n, float scale_log2 = kLog2e) {
  const float m = detail::row_max(x, n);
  float l = 0.0f;
  for (int i = 0; i < n; ++i) {
    y[i] = softmax_weight(x[i], m, scale_log2);
    l += y[i];
  }
  const float inverse = detail::inverse_sum(l);
  for (int i = 0; i < n; ++i) y[i] *= inverse;
}

/// Computes the softmax without the numerators in memory: m = max x, then l = sum of e^(x_i - m),
/// then y_i = e^(x_i - m) / l.                                         [arXiv 1805.02867, Alg. 2]
/// Passes   3; 3 loads, 1 store, 2 exps for each score.
ATTILE_HOST_DEVICE void three_pass_softmax(const float* x, float* y, int n,
                                           float scale_log2 = kLog2e) {
  const float m = detail::row_max(x, n);
  const float l = detail::row_sum(x, n, m, scale_log2);
  detail::normalise_row(x, y, n, m, l, scale_log2);
}

/// Computes the maximum and the sum in one pass: when the maximum rises, the sum is rescaled:
///   m' = max(m, x_i),  l' = l e^(m - m') + e^(x_i - m')               [arXiv 1805.02867, Alg. 3]
/// Passes   2; 2 loads, 1 store, 3 exps for each score. OnlineSoftmax::step does this for a tile of
///          scores at a time, with one rescaling for each tile.
ATTILE_HOST_DEVICE void online_softmax(const float* x, float* y, int n, float scale_log2 = kLog2e) {
  float m = -kInf, l = 0.0f;
  for (int i = 0; i < n; ++i) {
    const float m_new = arch::fmax(m, x[i]);
    l = l * softmax_weight(m, m_new, scale_log2) + softmax_weight(x[i], m_new, scale_log2);
    m = m_new;
  }
  detail::normalise_row(x, y, n, m, l, scale_log2);
}

/// Returns the state (m, l) of n scores, by the first two passes of `three_pass_softmax`.
ATTILE_HOST_DEVICE OnlineSoftmax<1> softmax_state(const float* x, int n,
                                                  float scale_log2 = kLog2e) {
  OnlineSoftmax<1> state;
  state.m[0] = detail::row_max(x, n);
  state.l[0] = detail::row_sum(x, n, state.m[0], scale_log2);
  return state;
}

/// Computes a state for each block of `block` scores, and merges the states:
///   m = max(m_a, m_b),  l = l_a e^(m_a - m) + l_b e^(m_b - m)
///              [arXiv 1805.02867, section 3.1; FlashAttention-1, section 3.1, m(x), l(x) of a row]
/// The merge is associative, so that blocks may be computed in any order, by other threads, or in
/// other kernels (split keys).
/// Passes   2; 2 loads, 1 store, 2 exps for each score and 2 for each block. A block is read twice
///          before the next: kept in registers or in the cache, it is loaded once.
/// Units    block: scores, at least 1.
ATTILE_HOST_DEVICE void blockwise_softmax(const float* x, float* y, int n, int block,
                                          float scale_log2 = kLog2e) {
  OnlineSoftmax<1> row;
  row.reset();
  const detail::NoOutput none;
  for (int begin = 0; begin < n; begin += block) {
    row.merge(softmax_state(x + begin, min(block, n - begin), scale_log2), none, none, scale_log2);
  }
  detail::normalise_row(x, y, n, row.m[0], row.l[0], scale_log2);
}

}  // namespace attile::tile
