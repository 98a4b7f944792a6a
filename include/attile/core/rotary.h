// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/index.h>
#include <attile/core/tensor.h>

#include <cmath>
#include <cstdint>

// Rotary position embedding (RoPE; J. Su et al.: RoFormer, arXiv 2104.09864): the elements of a row
// of Q or K are taken in pairs, and pair p of the row at position t is turned by the angle
// t * theta_p. A score then depends on the distance of query and key alone.

namespace attile {

/// Names which elements of a row are a pair.
enum class RotaryLayout {
  kHalves,       ///< p and p + dims / 2: GPT-NeoX, Llama in Hugging Face's layout
  kInterleaved,  ///< 2 p and 2 p + 1: GPT-J, and the paper
};

/// Says where the elements of a run of pairs lie in a row: half of them from `first` on, and the
/// other half from `second` on.
struct PairOffsets {
  int first, second;
};

/// Returns where the elements of `count` pairs from number `pair` on lie where pairs are
/// neighbours.
ATTILE_HOST_DEVICE constexpr PairOffsets neighbours(int pair, int count) {
  return {2 * pair, 2 * pair + count};
}

/// Holds a pair.
struct RotatedPair {
  float first, second;
};

/// Returns a pair, turned by the angle with this cosine and sine. The compiler has no choice of
/// roundings: every executor computes the same bits.
ATTILE_HOST_DEVICE RotatedPair rotate(float first, float second, float cos, float sin) {
  return {::fmaf(first, cos, -(second * sin)), ::fmaf(second, cos, first * sin)};
}

/// Rotates nothing.
struct NoRotary {
  static constexpr bool kEnabled = false;
};

/// Rotates the first `dims` elements of each row by tables of cosines and sines, and leaves the
/// others as they are. Sums are fp32, and are rounded once.
/// Shapes   cos, sin (rows, dims / 2) with one row stride: element (t, p) belongs to position t and
///          pair p. seqlens (batch), or null. All are device memory.
template <Element Table = float>
struct Rotary {
  static constexpr bool kEnabled = true;

  const Table* cos = nullptr;
  const Table* sin = nullptr;
  int rows = kUnset;                 ///< positions of the tables: at least kv_len, without seqlens
  int dims = kUnset;                 ///< even, 2 to head_dim
  std::int64_t row_stride = kUnset;  ///< of both tables; not given: dims / 2
  RotaryLayout layout = RotaryLayout::kHalves;
  /// The position that the first new row of each sequence is rotated by, in place of its number
  /// among the sequence's keys; null: that number.
  const int* seqlens = nullptr;

  const char* fault() const {
    if (cos == nullptr) return "Rotary: cos is null";
    if (sin == nullptr) return "Rotary: sin is null";
    if (rows == kUnset) return "Rotary: rows is not given";
    if (dims == kUnset) return "Rotary: dims is not given";
    if (rows < 0) return "Rotary: rows is negative";
    if (dims < 2 || dims % 2 != 0) return "Rotary: dims must be even, and at least 2";
    if (row_stride < 0 && row_stride != kUnset) return "Rotary: row_stride is negative";
    if (detail::misaligned(cos)) return "Rotary: cos is not aligned to its element type";
    if (detail::misaligned(sin)) return "Rotary: sin is not aligned to its element type";
    if (detail::misaligned(seqlens)) return "Rotary: seqlens is not aligned to 4 bytes";
    return nullptr;
  }

  /// Returns whether there are angles for a position.
  ATTILE_HOST_DEVICE constexpr bool has(std::int64_t position) const {
    return 0 <= position && position < rows;
  }
  /// Returns whether a pair is rotated. The other elements of a row are pairs too, from number
  /// dims / 2 on.
  ATTILE_HOST_DEVICE constexpr bool rotates(int pair) const { return pair < dims / 2; }
  /// Returns where the elements of `count` pairs from number `pair` on lie. `count` divides `pair`
  /// and dims / 2.
  ATTILE_HOST_DEVICE constexpr PairOffsets offsets(int pair, int count) const {
    if (layout == RotaryLayout::kHalves && rotates(pair)) return {pair, pair + dims / 2};
    return neighbours(pair, count);
  }
  /// Returns the index in `cos` and `sin` of the angle of a pair.
  ATTILE_HOST_DEVICE constexpr std::int64_t angle(std::int64_t position, int pair) const {
    return position * (row_stride == kUnset ? dims / 2 : row_stride) + pair;
  }
};

}  // namespace attile
