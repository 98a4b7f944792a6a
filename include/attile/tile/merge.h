// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/merge.h>
#include <attile/core/vec.h>
#include <attile/tile/online_softmax.h>

// The arithmetic of a merge of partial results, one row at a time.

namespace attile::tile {

/// Goes through the parts of one row, in their order.
/// Units    batch, row: as the tensors count them.
template <class Args>
class PartCursor {
 public:
  using T = typename Args::PartType;

  ATTILE_HOST_DEVICE PartCursor(const Args& args, int batch, int head, int row)
      : args_(args), batch_(batch), head_(head), row_(row) {
    enter();
  }

  /// Returns whether there is a part here; false behind the last one.
  ATTILE_HOST_DEVICE bool is_part() const { return tensor_ < args_.part_tensors; }
  ATTILE_HOST_DEVICE float lse() const { return *lse_; }
  /// Returns the first element of the part's row of O.
  ATTILE_HOST_DEVICE const T* o() const { return o_; }
  /// Goes on to the next part.
  ATTILE_HOST_DEVICE void advance() {
    lse_ += args_.parts[tensor_].lse_stride;
    o_ += args_.parts[tensor_].o_stride;
    if (++part_ < args_.parts[tensor_].count) return;
    ++tensor_;
    part_ = 0;
    enter();
  }

 private:
  /// Begins with the first part of a tensor.
  ATTILE_HOST_DEVICE void enter() {
    if (!is_part()) return;
    lse_ = args_.parts[tensor_].lse.row(batch_, head_, row_);
    o_ = args_.parts[tensor_].o.row(batch_, head_, row_);
  }

  const Args& args_;
  int batch_, head_, row_;
  int tensor_ = 0, part_ = 0;
  const float* lse_ = nullptr;
  const T* o_ = nullptr;
};

/// Holds N neighbouring elements of a row of the merged O, and its LSE.
template <int N>
struct MergedRow {
  Vec<float, N> o{};
  float lse;
};

/// Merges N elements of one row, from column `col` on. Parts are read four at a time, so that the
/// loads of four wait for memory together, and the state is rescaled once for these:
///   m' = max(m, LSE_i),  w_i = e^(LSE_i - m'),  l' = l e^(m - m') + sum w_i,
///   O' = O e^(m - m') + sum w_i O_i;  at last O / l and LSE = m + ln(l)
/// A sink is the first part, with O = 0. The bits do not depend on N.
/// Units    load(p): N elements from p on.
/// Empty    what a part with LSE = -inf has as its O is not computed with: it may be NaN. A row
///          without other parts and without a sink has l = 0, and becomes O = 0, LSE = -inf.
template <int N, class Args, class Load>
ATTILE_HOST_DEVICE MergedRow<N> merge_row(const Args& args, int batch, int head, int row, int col,
                                          const Load& load) {
  constexpr int kAtOnce = 4;
  float m = args.sink.logit(head);
  float l = m == -kInf ? 0.0f : 1.0f;
  MergedRow<N> merged;
  for (PartCursor<Args> part(args, batch, head, row); part.is_part();) {
    float lse[kAtOnce];
    Vec<typename Args::PartType, N> o[kAtOnce];
    ATTILE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      lse[i] = -kInf;
      if (!part.is_part()) continue;
      lse[i] = part.lse();
      o[i] = load(part.o() + col);
      part.advance();
    }
    float m_new = m;
    ATTILE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) m_new = arch::fmax(m_new, lse[i]);
    const float rescale = softmax_weight(m, m_new, kLog2e);
    m = m_new;
    ATTILE_UNROLL
    for (int e = 0; e < N; ++e) merged.o[e] *= rescale;
    float sum = 0.0f;
    ATTILE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (lse[i] == -kInf) continue;
      const float weight = softmax_weight(lse[i], m, kLog2e);
      sum += weight;
      ATTILE_UNROLL
      for (int e = 0; e < N; ++e) {
        merged.o[e] = arch::fma(to_float(o[i][e]), weight, merged.o[e]);
      }
    }
    l = arch::fma(l, rescale, sum);
  }
  const float factor = l == 0.0f ? 0.0f : arch::reciprocal(l);
  ATTILE_UNROLL
  for (int e = 0; e < N; ++e) merged.o[e] *= factor;
  merged.lse = m + arch::log(l);
  return merged;
}

}  // namespace attile::tile
