// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>
#include <attile/kernel/standard/rows.cuh>
#include <attile/tile/online_softmax.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace attile::standard {

/// Holds the one argument of softmax_kernel.
template <class Args>
struct SoftmaxParams {
  using T = typename Args::ElementType;

  const float* s;  ///< dense (batch, q_heads, q_len, kv_len): scale Q K^T; may be the memory of p
  T* p;            ///< the same shape
  T* dropped;      ///< the same shape: dropout(P); null without dropout
  float* lse;      ///< (batch, q_heads, q_len), or null
  int q_heads;
  Extent extent;
  bool vectors;  ///< rows of all three can be moved four elements at a time
  typename Args::MaskType mask;
  typename Args::ScoreModType score_mod;
  typename Args::DropoutType dropout;
  typename Args::SinkType sink;
};

/// Returns e^(s - m); 0 for a hidden score, also in a row that has no other.
ATTILE_DEVICE float exponential(float s, float m) { return tile::softmax_weight(s, m, kLog2e); }

/// Holds the largest score of a part of a row, and the sum of exp(score - m) over it.
struct RowState {
  float m, l;
};

/// Merges the states of two arbitrary parts of a row (arXiv 1805.02867, section 3.1).
struct Merge {
  ATTILE_DEVICE RowState operator()(const RowState& a, const RowState& b) const {
    const tile::CommonMaximum common = tile::common_maximum(a.m, b.m, kLog2e);
    return {common.m, a.l * common.weight_a + b.l * common.weight_b};
  }
};

using ShortRow = RowPart<128, 4>;   // all of a row of up to 2048 columns
using MediumRow = RowPart<256, 4>;  // all of a row of up to 4096 columns
using LongRow = RowPart<512, 8>;    // all of a row of up to 16384 columns
using PartOfRow = RowPart<512, 4>;

/// Is the number of blocks that a multiprocessor should hold: 1024 threads, and half of that where
/// policies need more than the 64 registers that this leaves a thread (LongRow would spill).
template <class Args, class Part>
inline constexpr int kSoftmaxBlocksPerSm = [] {
  constexpr bool kFastPath = std::is_empty_v<typename Args::MaskType> &&
                             kIsIdentity<typename Args::ScoreModType> &&
                             !Args::DropoutType::kEnabled;
  return (kFastPath ? 1024 : 512) / Part::kThreads;
}();

/// Is the size of the dynamic shared memory of softmax_kernel. Units: bytes.
template <class Part, bool kReread>
inline constexpr std::size_t kSoftmaxSharedBytes =
    kReread ? sizeof(ReduceShared<RowState, Part::kThreads>)
            : 2 * sizeof(ReduceShared<float, Part::kThreads>);

/// Computes P = softmax(S') of one row, S' = score_mod(S), -inf where hidden; LSE = m + ln(l). A
/// sink counts as one more score, which has no P.
///                                                        [arXiv 2205.14135, Algorithm 0, line 2]
/// A row that fits in the block's registers is read once: its maximum, then the exponentials and
/// their sum. A longer one is read twice: the 2-pass online softmax of arXiv 1805.02867, Algorithm
/// 3, with a state for each thread.
/// Scope    one block of Part::kThreads threads for each row; kSoftmaxSharedBytes of dynamic shared
///          memory. A thread reads no score that another one writes P over.
template <class Args, class Part, bool kReread>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Part::kThreads, (kSoftmaxBlocksPerSm<Args, Part>))
    softmax_kernel(const ATTILE_GRID_CONSTANT SoftmaxParams<Args> p) {
  const std::int64_t at = arch::block_index();
  const int batch_head = static_cast<int>(at / p.extent.q_len);
  const ScoreIndex first{batch_head / p.q_heads, batch_head % p.q_heads,
                         static_cast<int>(at % p.extent.q_len), 0};
  const int cols = p.extent.kv_len;
  const std::int64_t row = at * cols;

  const auto load_scores = [&](Part& part, int col0) {
    part.load(p.s + row, col0, cols, p.vectors, -kInf);
    part.for_each(col0, cols, [&](int col, float& s) {
      const ScoreIndex i{first.batch, first.head, first.row, col};
      if constexpr (!kIsIdentity<typename Args::ScoreModType>) {
        s = p.score_mod(s, i, p.extent).value;
      }
      if (!p.mask.visible(i, p.extent)) s = -kInf;
    });
  };

  Part part;
  RowState all;
  if constexpr (kReread) {
    RowState mine{-kInf, 0.0f};
    for (int col0 = 0; col0 < cols; col0 += Part::kCols) {
      load_scores(part, col0);
      float m = mine.m;
      part.for_each(col0, cols, [&](int, float s) { m = arch::fmax(m, s); });
      mine = {m, mine.l * tile::softmax_weight(mine.m, m, kLog2e)};
      part.for_each(col0, cols, [&](int, float s) { mine.l += exponential(s, m); });
    }
    all = reduce_block<Part::kThreads>(mine, Merge{});
    if constexpr (Args::SinkType::kEnabled) all = Merge{}(all, {p.sink.logit(first.head), 1.0f});
  } else {
    load_scores(part, 0);
    float m = -kInf, l = 0.0f;
    part.for_each(0, cols, [&](int, float s) { m = arch::fmax(m, s); });
    all.m = reduce_block<Part::kThreads>(m, Max{}, 0);
    if constexpr (Args::SinkType::kEnabled) all.m = arch::fmax(all.m, p.sink.logit(first.head));
    part.for_each(0, cols, [&](int, float& s) { l += s = exponential(s, all.m); });
    all.l = reduce_block<Part::kThreads>(l, Sum{}, 1);
    if constexpr (Args::SinkType::kEnabled) all.l += exponential(p.sink.logit(first.head), all.m);
  }
  if (p.lse != nullptr && arch::thread_index() == 0) p.lse[at] = all.m + arch::log(all.l);

  const float inverse = all.l == 0.0f ? 0.0f : 1.0f / all.l;
  const auto sampler = p.dropout.sampler(p.q_heads);
  for (int col0 = 0; col0 < cols; col0 += Part::kCols) {
    if constexpr (kReread) {
      load_scores(part, col0);
      part.for_each(col0, cols, [&](int, float& s) { s = exponential(s, all.m); });
    }
    part.store(p.p + row, col0, cols, p.vectors, inverse);
    if constexpr (Args::DropoutType::kEnabled) {
      part.for_each(col0, cols, [&](int col, float& x) {
        if (!sampler.keep({first.batch, first.head, first.row, col})) x = 0.0f;
      });
      part.store(p.dropped + row, col0, cols, p.vectors, inverse * sampler.keep_scale());
    }
    if constexpr (!kReread) break;
  }
}

}  // namespace attile::standard
