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

/// Calls f(LSE, first element of O) for each part of one row, in the order of the parts.
/// Units    batch, row: as the tensors count them.
template <class Args, class F>
ATTILE_HOST_DEVICE void for_each_part(const Args& args, int batch, int head, int row, const F& f) {
  for (int i = 0; i < args.part_tensors; ++i) {
    const auto& part = args.parts[i];
    const float* lse = part.lse.row(batch, head, row);
    const auto* o = part.o.row(batch, head, row);
    ATTILE_UNROLL_BY(4)
    for (int n = 0; n < part.count; ++n) {
      f(*lse, o);
      lse += part.lse_stride;
      o += part.o_stride;
    }
  }
}

/// Holds N neighbouring elements of a row of the merged O, and its LSE.
template <int N>
struct MergedRow {
  Vec<float, N> o{};
  float lse;
};

/// Merges N elements of one row, from column `col` on.
///   m = max LSE_i,  w_i = e^(LSE_i - m),  l = sum w_i,  O = sum w_i O_i / l,  LSE = m + ln(l)
/// A sink counts as a part whose O is 0. The bits do not depend on N.
/// Units    load(p): N elements from p on.
/// Empty    what a part with LSE = -inf has as its O is not computed with: it may be NaN. A row
///          without other parts and without a sink has l = 0, and becomes O = 0, LSE = -inf.
template <int N, class Args, class Load>
ATTILE_HOST_DEVICE MergedRow<N> merge_row(const Args& args, int batch, int head, int row, int col,
                                          const Load& load) {
  using T = typename Args::PartType;
  const float sink = args.sink.logit(head);
  float m = sink;
  for_each_part(args, batch, head, row, [&](float lse, const T*) { m = arch::fmax(m, lse); });
  MergedRow<N> merged;
  float l = softmax_weight(sink, m, kLog2e);
  for_each_part(args, batch, head, row, [&](float lse, const T* o) {
    const Vec<T, N> part = load(o + col);
    const float weight = softmax_weight(lse, m, kLog2e);
    l += weight;
    ATTILE_UNROLL
    for (int e = 0; e < N; ++e) {
      const float x = lse == -kInf ? 0.0f : to_float(part[e]);
      merged.o[e] = arch::fma(x, weight, merged.o[e]);
    }
  });
  const float factor = l == 0.0f ? 0.0f : arch::reciprocal(l);
  ATTILE_UNROLL
  for (int e = 0; e < N; ++e) merged.o[e] *= factor;
  merged.lse = m + arch::log(l);
  return merged;
}

}  // namespace attile::tile
