// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/arch/opaque.h>
#include <attile/core/config.h>
#include <attile/core/dropout.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>

#include <cstdint>

namespace attile::tile {

/// Which part of which score matrix a tile is.
struct TileCoord {
  int batch, head, row0, col0;
  Extent extent;

  ATTILE_DEVICE ScoreIndex at(int r, int c) const { return {batch, head, row0 + r, col0 + c}; }
  ATTILE_DEVICE bool has_row(int r) const { return row0 + r < extent.q_len; }
  ATTILE_DEVICE bool inside(ScoreIndex i) const {
    return i.row < extent.q_len && i.col < extent.kv_len;
  }
  /// The same, for which the compiler works rows and columns out again instead of keeping them.
  ATTILE_DEVICE TileCoord again() const {
    return {batch, head, arch::opaque(row0), arch::opaque(col0), extent};
  }
  /// The score inside the extent that is nearest to it. Neither length may be 0.
  ATTILE_DEVICE ScoreIndex nearest_inside(const ScoreIndex& i) const {
    return {i.batch, i.head, min(i.row, extent.q_len - 1), min(i.col, extent.kv_len - 1)};
  }
};

/// The same for a part of a tile that has `rows` rows of `heads` neighbouring heads, from its row
/// `first` on: a row of each head in turn.
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
};

/// S = -inf where an interval mask, or the end of the columns, hides it: by the thread's rows or by
/// its columns, of whichever it has fewer.
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

/// S' = score_mod(scale * S), and -inf where the mask hides it. Policies are asked only about
/// scores inside the extent, so what they read from memory never ends past a length.
/// Units    in: raw products; out: log2-able by scale * log2(e) with NoScoreMod (S stays raw), by
///          log2(e) otherwise (see `score_scale_log2`).
/// Policies: PolicyBundle.
template <bool kMasked, class Registers, class Coord, class Policies>
ATTILE_DEVICE void modify_and_mask(Registers& scores, const Coord& coord, const Policies& policies,
                                   float scale) {
  using M = typename Policies::MaskType;
  using S = typename Policies::ScoreModType;
  if constexpr (kIsIdentity<S> && kMasked && IntervalMask<M>) {
    hide_outside_intervals(scores, coord, policies.mask);
  } else if constexpr (kMasked || !kIsIdentity<S>) {
    const S modifier =
        policies.score_mod;  // a copy: what it makes of its members alone is made once
    scores.for_each([&](int r, int c, float& s) {
      const ScoreIndex i = coord.at(r, c);
      if (!coord.inside(i)) {
        s = -kInf;
        return;
      }
      if constexpr (!kIsIdentity<S>) {
        // A named product: the compiler could fuse it with a sum of the modifier's in one place and
        // not in another, and a row's bits would depend on which of them it meets.
        s = modifier(arch::multiply(scale, s), i, coord.extent).value;
      }
      if constexpr (kMasked) {
        if (!policies.mask.visible(i, coord.extent)) s = -kInf;
      }
    });
  }
}

/// A bit for each score that this thread holds of a tile.
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

/// Which scores of a tile are inside the extent and visible, for those that are asked about before
/// they are made: what the mask reads has come by then, and a bit is left of it. As far as the mask
/// has no branch, it is sent for for all scores at a time, and once where they have it in common.
template <class Registers>
class VisibleBits : ScoreBits<Registers> {
 public:
  static constexpr bool kModifierBranches = false;
  template <class M, class Coord>
  ATTILE_DEVICE void ask(const M& mask, const Coord& coord) {
    ATTILE_UNROLL
    for (int w = 0; w < this->kWords; ++w) {
      this->words_[w] = word(w, coord, [&](const ScoreIndex& at) {
        return coord.inside(at) & mask.visible(coord.nearest_inside(at), coord.extent);
      });
    }
  }
  /// Of two masks first what the second one reads is sent for. Asked together they would keep all
  /// rows and columns in registers until it has come.
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
  /// S = -inf where it is not.
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
  /// Word w of the bits, with what f(score) says of each of its scores.
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

/// What turns scores into log2 units: the scale is folded in where no modifier needs it earlier.
template <class S>
ATTILE_HOST_DEVICE constexpr float score_scale_log2(float scale) {
  return kIsIdentity<S> ? scale * kLog2e : kLog2e;
}

/// Dropout's decisions for what this thread holds of a tile, a bit each. They are made in a loop
/// that is not unrolled: the random numbers' code stands once for 32 scores, not once for each.
/// Scores beyond the extent are not asked about.
template <class Registers, class Sampler>
class KeepBits : ScoreBits<Registers> {
 public:
  template <class Coord>
  ATTILE_DEVICE KeepBits(const Coord& coord, const Sampler& sampler)
      : scale_(sampler.keep_scale()) {
    ATTILE_UNROLL
    for (int w = 0; w < this->kWords; ++w) {
      ATTILE_UNROLL_BY(1)
      for (int i = w * 32; i < min(w * 32 + 32, this->kCount); ++i) {
        const ScoreIndex at = this->index(coord, i);
        const bool keep = coord.inside(at) && sampler.keep(at);
        this->words_[w] |= std::uint32_t{keep} << (i % 32);
      }
    }
  }

  ATTILE_DEVICE bool keep(int r, int c) const { return this->get(r, c); }
  /// 1 / (1 - p).
  ATTILE_DEVICE float scale() const { return scale_; }

 private:
  float scale_;
};

/// No dropout: no bits.
template <class Registers>
class KeepBits<Registers, NoDropout::Sampler> {
 public:
  KeepBits() = default;
  template <class Coord>
  ATTILE_DEVICE KeepBits(const Coord&, const NoDropout::Sampler&) {}
  ATTILE_DEVICE bool keep(int, int) const { return true; }
  ATTILE_DEVICE float scale() const { return 1.0f; }
};

/// P <- dropout(P), without the factor 1 / (1 - p).
template <class Registers, class Coord, class Sampler>
ATTILE_DEVICE void drop(Registers& p, const Coord& coord, const Sampler& sampler) {
  const KeepBits<Registers, Sampler> bits(coord, sampler);
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      if (!bits.keep(r, c)) p.x[r][c] = 0.0f;
    }
  }
}

}  // namespace attile::tile
