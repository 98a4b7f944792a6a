// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/arch/opaque.h>
#include <attile/core/block_sparse.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace attile::tile {

/// Says which part of which score matrix a tile is: the head of a sequence, and the row and column
/// of the tile's first score.
struct TileCoord {
  int batch, head, row0, col0;
  Extent extent;

  /// Returns the index in the score matrix of the tile's score (r, c).
  ATTILE_DEVICE ScoreIndex at(int r, int c) const { return {batch, head, row0 + r, col0 + c}; }
  ATTILE_DEVICE bool has_row(int r) const { return row0 + r < extent.q_len; }
  ATTILE_DEVICE bool inside(ScoreIndex i) const {
    return i.row < extent.q_len && i.col < extent.kv_len;
  }
  /// Returns a copy for which the compiler recomputes rows and columns instead of keeping those of
  /// the original in registers.
  ATTILE_DEVICE TileCoord again() const {
    return {batch, head, arch::opaque(row0), arch::opaque(col0), extent};
  }
  /// Returns the index inside the extent that is nearest to i. Neither length may be 0.
  ATTILE_DEVICE ScoreIndex nearest_inside(const ScoreIndex& i) const {
    return {i.batch, i.head, min(i.row, extent.q_len - 1), min(i.col, extent.kv_len - 1)};
  }
};

/// Says what TileCoord does for a part of a tile with packed query heads: from row `first` on it
/// holds `rows` rows of each of `heads` neighbouring heads, row i of every head before row i + 1.
struct PackedTileCoord {
  int batch, head, row0, col0;
  Extent extent;
  int first, heads, rows;

  ATTILE_DEVICE ScoreIndex at(int r, int c) const {
    const int i = r - first;
    return {batch, head + i % heads, row0 + i / heads, col0 + c};
  }
  ATTILE_DEVICE bool has_row(int r) const {
    const int row = (r - first) / heads;
    return row < rows && row0 + row < extent.q_len;
  }
  ATTILE_DEVICE bool inside(ScoreIndex i) const {
    return i.row < extent.q_len && i.col < extent.kv_len;
  }
  ATTILE_DEVICE ScoreIndex nearest_inside(const ScoreIndex& i) const {
    return {i.batch, i.head, min(i.row, extent.q_len - 1), min(i.col, extent.kv_len - 1)};
  }
};

/// Names the score from which a thread's scores of a row are counted, and the row's distance from
/// it. All rows of a TileCoord are counted from the thread's first score, and with packed heads
/// each from its own. Both are inside the extent: a row behind the last one is replaced by that.
struct ThreadRow {
  ScoreIndex first;
  int offset;

  ATTILE_DEVICE ThreadRow(const TileCoord& coord, int row, int row_offset, int col)
      : first(coord.nearest_inside(coord.at(row, col))),
        offset(min(row_offset, coord.extent.q_len - 1 - first.row)) {}
  ATTILE_DEVICE ThreadRow(const PackedTileCoord& coord, int row, int row_offset, int col)
      : first(coord.nearest_inside(coord.at(row + row_offset, col))), offset(0) {}
};

/// Gives a score modifier functions of the machine's own instructions, for results of 16 bits.
struct FastMath {
  /// tanh(y), y = factor x. Relative error at most 2^-19: near 0 it is the series of tanh, and else
  /// 1 - 2 / (2^(2 y log2(e)) + 1), whose error is one of the absolute value. The power may
  /// overflow to inf, of which the reciprocal is 0.
  struct Tanh {
    float factor;

    ATTILE_HOST_DEVICE float operator()(float x) const {
      const float y = x * factor;
      const float power = arch::exp2(y * (2.0f * kLog2e));
      const float far = arch::fma(-2.0f, arch::reciprocal(power + 1.0f), 1.0f);
      const float square = y * y;
      const float series =
          arch::fma(square, arch::fma(square, -17.0f / 315.0f, 2.0f / 15.0f), -1.0f / 3.0f);
      const float near = arch::fma(y * square, series, y);
      return std::fabs(y) < 0.3f ? near : far;
    }
  };
  /// Returns the function x -> tanh(factor x).
  ATTILE_HOST_DEVICE static Tanh tanh(float factor) { return {factor}; }
};

/// The functions for a kernel of elements T.
template <class T>
using MathOf = std::conditional_t<sizeof(T) == 2, FastMath, StandardMath>;

/// Sets S = -inf where an interval mask, or the end of the columns, hides it. The mask gives one
/// interval for each of the thread's rows or of its columns, whichever are fewer.
template <class Registers, class Coord, class M>
ATTILE_DEVICE void hide_outside_intervals(Registers& scores, const Coord& coord, const M& mask) {
  constexpr bool kByRows = Registers::kRegRows <= Registers::kRegCols;
  constexpr int kLines = kByRows ? Registers::kRegRows : Registers::kRegCols;
  constexpr int kLength = kByRows ? Registers::kRegCols : Registers::kRegRows;
  const int row0 = kByRows ? 0 : coord.row0 + Registers::row(0);
  const int col0 = coord.col0 + Registers::col(0);
  const int kv_len = arch::opaque(coord.extent.kv_len);
  ATTILE_UNROLL
  for (int line = 0; line < kLines; ++line) {
    Interval seen;
    if constexpr (kByRows) {
      const ScoreIndex at = coord.at(Registers::row(0) + Registers::row_offset(line), 0);
      if (at.row < coord.extent.q_len) {
        seen = mask.columns(at.batch, at.head, {at.row, at.row + 1}, coord.extent).touched;
      }
    } else {
      const int col = col0 + Registers::col_offset(line);
      if (col < kv_len) {
        seen = mask.rows(coord.batch, coord.head, {col, col + 1}, coord.extent).touched;
      }
    }
    const int begin = seen.begin - (kByRows ? col0 : row0);
    const int end = seen.end - (kByRows ? col0 : row0);
    ATTILE_UNROLL
    for (int i = 0; i < kLength; ++i) {
      const int at = kByRows ? Registers::col_offset(i) : Registers::row_offset(i);
      if (at < begin || at >= end) scores.at(kByRows ? line : i, kByRows ? i : line) = -kInf;
    }
  }
}

/// Applies a score modifier to the scores of one of a thread's rows, a row behind the last one as
/// that. With kClampsColumns a column behind the last one is taken as that, too; else it is not
/// asked about.
template <bool kClampsColumns, class Registers, class S, class Math>
class RowModifier {
  using Tile = decltype(modifier_of_tile(std::declval<const S&>(), ScoreIndex{}, Extent{},
                                         std::declval<const Math&>()));
  using Row = decltype(std::declval<const Tile&>().row(0));

 public:
  template <class Coord>
  ATTILE_DEVICE RowModifier(const S& mod, const Coord& coord, int r, const Math& math = {})
      : RowModifier(
            mod, coord.extent,
            ThreadRow(coord, Registers::row(0), Registers::row_offset(r), Registers::col(0)),
            math) {}

  /// Returns what becomes of score s in register column c.
  ATTILE_DEVICE auto operator()(float s, int c) const {
    const int offset = Registers::col_offset(c);
    return tile_(s, row_, tile_.col(kClampsColumns ? min(offset, last_col_) : offset));
  }

 private:
  ATTILE_DEVICE RowModifier(const S& mod, Extent extent, const ThreadRow& row, const Math& math)
      : tile_(modifier_of_tile(mod, row.first, extent, math)),
        row_(tile_.row(row.offset)),
        last_col_(extent.kv_len - 1 - row.first.col) {}

  Tile tile_;
  Row row_;
  int last_col_;
};

/// Sets S' = score_mod(scale * S), and -inf where the mask or the extent hides the score. Without
/// kMasked no score of a row that exists is hidden. Policies are called only for scores inside the
/// extent, so that they never read memory past a length.
/// Units    in: raw products; out: with NoScoreMod still raw, and in log2 units after a factor of
///          scale * log2(e); otherwise after a factor of log2(e) (see `score_scale_log2`).
/// Policies is a PolicyBundle; `math`: see StandardMath.
template <bool kMasked, class Registers, class Coord, class Policies, class Math = StandardMath>
ATTILE_DEVICE void modify_and_mask(Registers& scores, const Coord& coord, const Policies& policies,
                                   float scale, const Math& math = {}) {
  using M = typename Policies::MaskType;
  using S = typename Policies::ScoreModType;
  if constexpr (kIsIdentity<S> && kMasked && IntervalMask<M>) {
    hide_outside_intervals(scores, coord, policies.mask);
  } else if constexpr (kMasked || !kIsIdentity<S>) {
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      if (!Registers::has_row(r)) continue;
      const RowModifier<false, Registers, S, Math> modifier(policies.score_mod, coord, r, math);
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; ++c) {
        if (!Registers::has_col(c)) continue;
        float& s = scores.at(r, c);
        const ScoreIndex i = coord.at(Registers::row(r), Registers::col(c));
        if constexpr (kMasked) {
          if (!coord.inside(i)) {
            s = -kInf;
            continue;
          }
        }
        if constexpr (!kIsIdentity<S>) {
          // The product has a rounding of its own: the compiler could otherwise fuse it with an
          // addition of the modifier in one inlined copy and not in another, and the bits of a row
          // would depend on the copy that computes it.
          s = modifier(arch::multiply(scale, s), c).value;
        }
        if constexpr (kMasked) {
          if (!policies.mask.visible(i, coord.extent)) s = -kInf;
        }
      }
    }
  }
}

/// Holds one bit for each score of a tile that this thread holds.
template <class Registers>
class ScoreBits {
 public:
  ATTILE_DEVICE bool get(int r, int c) const {
    const int i = r * Registers::kRegCols + c;
    return (words_[i / 32] >> (i % 32) & 1u) != 0;
  }

 protected:
  static constexpr int kCount = Registers::kRegRows * Registers::kRegCols;
  static constexpr int kWords = ceil_div(kCount, 32);

  template <class Coord>
  ATTILE_DEVICE static ScoreIndex index(const Coord& coord, int i) {
    return coord.at(Registers::row(i / Registers::kRegCols),
                    Registers::col(i % Registers::kRegCols));
  }

  std::uint32_t words_[kWords] = {};
};

/// Holds which scores of a tile are inside the extent and visible. The mask is evaluated before the
/// scores are computed, so that the loads of the mask have finished by then and one bit a score
/// remains. Where the mask has no branch, its loads for all scores are in flight together, and what
/// scores have in common is loaded once.
template <class Registers>
class VisibleBits : ScoreBits<Registers> {
 public:
  static constexpr bool kModifierBranches = false;
  /// Evaluates the mask for all scores of this thread.
  template <class M, class Coord>
  ATTILE_DEVICE void ask(const M& mask, const Coord& coord) {
    ATTILE_UNROLL
    for (int w = 0; w < this->kWords; ++w) {
      this->words_[w] = word(w, coord, [&](const ScoreIndex& at) {
        return coord.inside(at) & mask.visible(coord.nearest_inside(at), coord.extent);
      });
    }
  }
  /// Asks nothing about a full block, of which the extent alone hides scores.
  template <class M, class Coord>
  ATTILE_DEVICE void ask(const MaskOfBlock<M>& mask, const Coord& coord) {
    if (mask.is_full) {
      ask(NoMask{}, coord);
    } else {
      ask(mask.inner, coord);
    }
  }
  /// Evaluates the second of two masks first. Evaluated together, they would keep all rows and
  /// columns in registers until the loads of the second mask have finished.
  template <class A, class B, class Coord>
    requires(!And<A, B>::kIntervals)
  ATTILE_DEVICE void ask(const And<A, B>& mask, const Coord& coord) {
    const Coord again = coord.again();
    ATTILE_UNROLL
    for (int w = 0; w < this->kWords; ++w) {
      this->words_[w] = word(w, coord, [&](const ScoreIndex& at) {
        return mask.second.visible(coord.nearest_inside(at), coord.extent);
      });
      this->words_[w] &= word(w, again, [&](const ScoreIndex& at) {
        return again.inside(at) & mask.first.visible(again.nearest_inside(at), again.extent);
      });
    }
  }

  ATTILE_DEVICE bool visible(int r, int c, const ScoreIndex&) const { return this->get(r, c); }
  /// Sets S = -inf where the score is not visible.
  ATTILE_DEVICE void hide(Registers& scores) const {
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; ++c) {
        if (!this->get(r, c)) scores.at(r, c) = -kInf;
      }
    }
  }

 private:
  /// Returns word w of the bits, computed as f(index) for each of its scores.
  template <class Coord, class F>
  ATTILE_DEVICE static std::uint32_t word(int w, const Coord& coord, const F& f) {
    std::uint32_t bits = 0;
    ATTILE_UNROLL
    for (int i = w * 32; i < min(w * 32 + 32, VisibleBits::kCount); ++i) {
      bits |= static_cast<std::uint32_t>(f(VisibleBits::index(coord, i))) << (i % 32);
    }
    return bits;
  }
};

/// Returns the factor that turns scores into log2 units. It includes the scale where no modifier
/// needs the scale earlier.
template <class S>
ATTILE_HOST_DEVICE constexpr float score_scale_log2(float scale) {
  return kIsIdentity<S> ? scale * kLog2e : kLog2e;
}

}  // namespace attile::tile
