// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/block_sparse.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>
#include <attile/tile/modify.cuh>
#include <attile/tile/tile_coord.cuh>

#include <cstdint>

namespace attile::tile {

/// Calls f(r, c) for each of a thread's scores that an interval mask, or the end of the columns,
/// hides. The mask gives one interval for each of the thread's rows or of its columns, whichever
/// are fewer.
template <class Registers, class Coord, class M, class F>
ATTILE_DEVICE void for_each_outside(const Coord& coord, const M& mask, const F& f) {
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
      if (at < begin || at >= end) f(kByRows ? line : i, kByRows ? i : line);
    }
  }
}

/// Sets those scores to -inf.
template <class Registers, class Coord, class M>
ATTILE_DEVICE void hide_outside_intervals(Registers& scores, const Coord& coord, const M& mask) {
  for_each_outside<Registers>(coord, mask, [&](int r, int c) { scores.at(r, c) = -kInf; });
}

/// Calls f(r, c, shown) for each of a thread's scores: whether the mask, by what it says that
/// scores have in common (TileMask), and the extent show the score in registers (r, c). The mask is
/// asked about rows and columns inside the extent: the last ones stand for those behind them.
/// Nothing branches, so that what it reads of a row or a column is read once. Of rows and columns,
/// those that are fewer take registers meanwhile. Without kCutsRows all rows are inside, without
/// kCutsColumns all columns.
template <bool kCutsRows, bool kCutsColumns, class Registers, class Coord, class M, class F>
ATTILE_DEVICE void for_each_shown(const Coord& coord, const M& mask, const F& f) {
  constexpr bool kByRows = Registers::kRegRows <= Registers::kRegCols;
  const Extent extent = coord.extent;
  ATTILE_UNROLL
  for (int i = 0; i < (kByRows ? Registers::kRegCols : Registers::kRegRows); ++i) {
    ATTILE_UNROLL
    for (int line = 0; line < (kByRows ? Registers::kRegRows : Registers::kRegCols); ++line) {
      const int r = kByRows ? line : i, c = kByRows ? i : line;
      if (!Registers::has_row(r) || !Registers::has_col(c)) continue;
      const int base = Coord::kOneHead ? 0 : r;
      const int row = Registers::row_offset(r) - Registers::row_offset(base);
      const int col = Registers::col_offset(c);
      ScoreIndex first =
          coord.at(Registers::row(0) + Registers::row_offset(base), Registers::col(0));
      if constexpr (kCutsRows || kCutsColumns) first = coord.nearest_inside(first);
      const auto tile = mask_of_tile(mask, first, extent);
      const bool visible =
          tile.visible(tile.row(kCutsRows ? min(row, extent.q_len - 1 - first.row) : row),
                       tile.col(kCutsColumns ? min(col, extent.kv_len - 1 - first.col) : col));
      const ScoreIndex at = coord.at(Registers::row(r), Registers::col(c));
      f(r, c,
        visible &
            ((!kCutsRows || at.row < extent.q_len) && (!kCutsColumns || at.col < extent.kv_len)));
    }
  }
}

/// Returns a mask as one of intervals and another one: the mask itself where it is so, else NoMask
/// and the mask.
template <bool kDivides, class M>
ATTILE_DEVICE auto intervals_of(const M& mask) {
  return And<NoMask, M>{{}, mask};
}
template <bool kDivides, IntervalMask A, class B>
  requires(kDivides && !IntervalMask<B>)
ATTILE_DEVICE And<A, B> intervals_of(const And<A, B>& mask) { return mask; }

/// Returns whether all of a warp's rows exist and an interval mask shows all scores of them.
/// Scope    all lanes.
template <class Registers, class Coord, IntervalMask M>
ATTILE_DEVICE bool shows_all(const Coord& coord, const M& mask) {
  const ScoreIndex first = coord.at(Registers::row(0), 0);
  const ScoreIndex last = coord.at(Registers::row(Registers::kRegRows - 1), 0);
  bool shown = last.row < coord.extent.q_len;
  if (shown) {
    const Interval rows{first.row, last.row + 1};
    const Interval full = mask.columns(first.batch, first.head, rows, coord.extent).full;
    shown = full.begin <= coord.col0 && coord.col0 + Registers::kCols <= full.end;
  }
  return !arch::any_lane(!shown);
}

/// Sets S = -inf where the mask or the extent hides the score.
///   tile::hide(s_frag, tile::TileCoord{batch, head, row0, col0, {q_len, kv_len}}, Causal{});
/// The mask is called only for scores inside the extent, so that it never reads memory past a
/// length. Of a mask that reads no memory only the part that intervals do not say is asked where
/// these show a whole tile; others lack registers for that way beside the others.
template <class Registers, class Coord, class M>
ATTILE_DEVICE void hide(Registers& scores, const Coord& coord, const M& mask) {
  const auto hide_one = [&](int r, int c, bool shown) {
    if (!shown) scores.at(r, c) = -kInf;
  };
  if constexpr (IntervalMask<M>) return hide_outside_intervals(scores, coord, mask);
  if constexpr (!kHasTileMask<M>) {
    const auto& intervals = intervals_of<Coord::kOneHead>(mask);
    if (shows_all<Registers>(coord, intervals.first)) {
      return for_each_shown<false, false, Registers>(coord, intervals.second, hide_one);
    }
  }
  if (coord.col0 + Registers::kCols <= coord.extent.kv_len) {
    for_each_shown<true, false, Registers>(coord, mask, hide_one);
  } else {
    for_each_shown<true, true, Registers>(coord, mask, hide_one);
  }
}

/// Sets S' = score_mod(scale * S), and -inf where the mask or the extent hides the score. Without
/// kMasked no score of a row that exists is hidden.
/// Units    in: raw products; out: with NoScoreMod still raw, and in log2 units after a factor of
///          scale * log2(e); otherwise after a factor of log2(e) (see `score_scale_log2`).
/// Policies is a PolicyBundle; `modifier` applies its score_mod: a Modifier or an ElementModifier.
template <bool kMasked, class Registers, class Coord, class AnyModifier, class Policies>
  requires(requires(const AnyModifier& m, Registers& s) { m.template apply<kMasked>(s); })
ATTILE_DEVICE void modify_and_mask(Registers& scores, const Coord& coord,
                                   const AnyModifier& modifier, const Policies& policies) {
  modifier.template apply<kMasked>(scores);
  if constexpr (kMasked) hide(scores, coord, policies.mask);
}

/// Does the same. `math`: see StandardMath.
template <bool kMasked, class Registers, class Coord, class Policies, class Math = SafeMath>
ATTILE_DEVICE void modify_and_mask(Registers& scores, const Coord& coord, const Policies& policies,
                                   float scale, const Math& math = {}) {
  using S = typename Policies::ScoreModType;
  const Modifier<Registers, Coord, S, Math> modifier(coord, policies.score_mod, scale, math);
  modify_and_mask<kMasked>(scores, coord, modifier, policies);
}

/// Does the same where it is known at run time alone whether a tile is `full`, that is whether no
/// score of a row that exists is hidden. Such a tile is spared the mask.
///   const tile::TileCoord coord{batch, head, row0, kv_tile * kBc, {q_len, kv_len}};
///   tile::modify_and_mask(s_frag, coord, modifier, policies, at.kv_tiles.full(kv_tile));
template <class Registers, class Coord, class AnyModifier, class Policies>
ATTILE_DEVICE void modify_and_mask(Registers& scores, const Coord& coord,
                                   const AnyModifier& modifier, const Policies& policies,
                                   bool full) {
  if (full) {
    modify_and_mask<false>(scores, coord, modifier, policies);
  } else {
    modify_and_mask<true>(scores, coord, modifier, policies);
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

  Array<std::uint32_t, kWords> words_ = {};
};

/// Holds which scores of a tile are inside the extent and visible.
///   tile::VisibleBits<Scores> visible;
///   visible.ask(mask, coord);  // while the product is made
///   visible.hide(s_frag);
/// The mask is evaluated before the scores are computed, so that the loads of the mask have
/// finished by then and one bit a score remains. Where the mask has no branch, its loads for all
/// scores are in flight together, and what scores have in common is loaded once.
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
  /// Does the same for a mask that says what scores have in common.
  template <class M, class Coord>
    requires(kHasTileMask<M>)
  ATTILE_DEVICE void ask(const M& mask, const Coord& coord) {
    for_each_shown<true, true, Registers>(coord, mask, [&](int r, int c, bool shown) {
      const int i = r * Registers::kRegCols + c;
      this->words_[i / 32] |= static_cast<std::uint32_t>(shown) << (i % 32);
    });
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
    requires(!And<A, B>::kIntervals && !kHasTileMask<And<A, B>>)
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
  /// Sets a score to `hidden` where it is not visible.
  ATTILE_DEVICE void hide(Registers& scores, float hidden = -kInf) const {
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; ++c) {
        if (!this->get(r, c)) scores.at(r, c) = hidden;
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
