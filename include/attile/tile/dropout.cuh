// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/halves.h>
#include <attile/arch/math.h>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/dropout.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/philox.h>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/scores.cuh>

#include <cstdint>
#include <type_traits>

// Dropout's decisions for the scores of a tile in registers.

namespace attile::tile {

/// Makes the decisions of a GroupSampler for the scores that this thread holds, a group at a time.
/// `for_each` calls f(r, c, keep) for each of them. kKnown says whether it does for this layout.
/// Units    coord: it begins at a multiple of 16 rows and columns.
/// Scope    all lanes of a warp.
template <class Registers>
struct KeepGroups {
  static constexpr bool kKnown = false;
};

template <int Rows, int Cols, int kWarps, int kWarpsN>
struct KeepGroups<MmaTile<Rows, Cols, kWarps, kWarpsN>> {
  using Registers = MmaTile<Rows, Cols, kWarps, kWarpsN>;
  static constexpr bool kKnown = true;

  template <class Sampler, class F>
  ATTILE_DEVICE static void for_each(const TileCoord& coord, const Sampler& sampler, F&& f) {
    const std::uint32_t row_group = Sampler::row_group(coord.row0 + Registers::row(0));
    const std::uint32_t col_group = sampler.col_group(coord.col0 + Registers::col(0));
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; c += 4) {
      ATTILE_UNROLL
      for (int r = 0; r < Registers::kRegRows; r += 2) {
        const PhiloxBlock random =
            sampler.group(coord.batch, coord.head, row_group + 4 * r, col_group + c);
        ATTILE_UNROLL
        for (int i = 0; i < 4; ++i) {
          f(r + i / 2, c + i % 2 * 2, sampler.keeps(random.word[i] << 16));
          f(r + i / 2, c + i % 2 * 2 + 1, sampler.keeps(random.word[i]));
        }
      }
    }
  }
};

/// Calls f(r, c, first, second, odd) with the random words that this lane has of a transposed tile:
/// it holds four scores of each of two groups, in rows r and r + 1, and its neighbour in the next
/// column, lane ^ 4, the other four of both. Each calls for one group: the lane of an odd column
/// (`odd`) for that of row r + 1. The halves of `first` are for column c, those of `second` for
/// c + 1; the lower halves are for the lane of the even column.
/// Units    coord: as for KeepGroups.
template <class Registers, class Sampler, class F>
ATTILE_DEVICE void for_each_transposed_word(const TileCoord& coord, const Sampler& sampler,
                                            const F& f) {
  const int col = coord.col0 + Registers::col(0);
  const bool odd = col % 2 != 0;
  const std::uint32_t row_group = Sampler::row_group(coord.row0 + Registers::row(0) + odd);
  const std::uint32_t col_group = sampler.col_group(col);
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; r += 4) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; c += 2) {
      const PhiloxBlock random =
          sampler.group(coord.batch, coord.head, row_group + 2 * r, col_group + 2 * c);
      ATTILE_UNROLL
      for (int i = 0; i < 4; i += 2) f(r + i, c, random.word[i], random.word[i + 1], odd);
    }
  }
}

/// Of a transposed tile two lanes exchange halves of their words.
template <int Rows, int Cols, int kWarps, int kWarpsN>
struct KeepGroups<TransposedRegisters<MmaTile<Rows, Cols, kWarps, kWarpsN>>> {
  using Registers = TransposedRegisters<MmaTile<Rows, Cols, kWarps, kWarpsN>>;
  static constexpr bool kKnown = true;

  template <class Sampler, class F>
  ATTILE_DEVICE static void for_each(const TileCoord& coord, const Sampler& sampler, F&& f) {
    for_each_transposed_word<Registers>(
        coord, sampler, [&](int r, int c, std::uint32_t first, std::uint32_t second, bool odd) {
          const std::uint32_t mine = arch::halves(first, second, odd);
          const std::uint32_t given = arch::halves(first, second, !odd);
          const std::uint32_t taken = arch::shuffle_xor(given, 4);
          const std::uint32_t even_row = odd ? taken : mine;
          const std::uint32_t odd_row = odd ? mine : taken;
          f(r, c, sampler.keeps(even_row << 16));
          f(r, c + 1, sampler.keeps(even_row));
          f(r + 1, c, sampler.keeps(odd_row << 16));
          f(r + 1, c + 1, sampler.keeps(odd_row));
        });
  }
};

/// Says whether decisions are made a group at a time.
template <class Registers, class Coord, class Sampler>
inline constexpr bool kKeepsInGroups =
    KeepGroups<Registers>::kKnown&& std::is_same_v<Coord, TileCoord>&& GroupSampler<Sampler>;

/// Calls f(r, c) for each score that this thread holds, row by row.
template <class Registers, class F>
ATTILE_DEVICE void for_each_score(const F& f) {
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) f(r, c);
  }
}

/// Holds dropout's decision for each score of a tile that this thread holds, one bit each.
template <class Registers, class Sampler>
class KeepBits : ScoreBits<Registers> {
 public:
  static constexpr bool kSigns = false;

  KeepBits() = default;
  /// Makes the decisions. Where the sampler makes them one by one, the loop is not unrolled, so
  /// that its code occurs once for 32 scores, and scores beyond the extent count as dropped, so
  /// that it may read memory. Scope    all lanes of a warp.
  template <class Coord>
  ATTILE_DEVICE KeepBits(const Coord& coord, const Sampler& sampler)
      : scale_(sampler.keep_scale()) {
    if constexpr (kKeepsInGroups<Registers, Coord, Sampler>) {
      KeepGroups<Registers>::for_each(coord, sampler, [&](int r, int c, bool keep) {
        const int i = r * Registers::kRegCols + c;
        this->words_[i / 32] |= std::uint32_t{keep} << (i % 32);
      });
      // Decided here, before more registers are in use, and not where they are needed.
      for (std::uint32_t& w : this->words_) w = arch::opaque(w);
    } else {
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
  }

  ATTILE_DEVICE bool keep(int r, int c) const { return this->get(r, c); }
  /// Calls f(r, c, keep) for each score.
  template <class Coord, class F>
  ATTILE_DEVICE void for_each(const Coord&, const F& f) const {
    for_each_score<Registers>([&](int r, int c) { f(r, c, keep(r, c)); });
  }
  /// Returns dropout(dP) - delta, where dP and delta are those of a score.
  ATTILE_DEVICE float dp_minus_delta(int r, int c, float dp, float delta) const {
    return arch::fma(keep(r, c) ? dp : 0.0f, scale_, -delta);
  }

 private:
  float scale_;
};

/// Holds no bits without dropout: every score is kept.
template <class Registers>
class KeepBits<Registers, NoDropout::Sampler> {
 public:
  static constexpr bool kSigns = false;

  KeepBits() = default;
  template <class Coord>
  ATTILE_DEVICE KeepBits(const Coord&, const NoDropout::Sampler&) {}
  ATTILE_DEVICE bool keep(int, int) const { return true; }
  template <class Coord, class F>
  ATTILE_DEVICE void for_each(const Coord&, const F& f) const {
    for_each_score<Registers>([&](int r, int c) { f(r, c, true); });
  }
  ATTILE_DEVICE float dp_minus_delta(int, int, float dp, float delta) const { return dp - delta; }
};

/// Drops two scores at once, whose random bits are the halves of a word. With t the threshold and x
/// the bits of a score, which is kept where x >= t, two instructions mark the smaller one of both
/// sets by all bits of the half, and the other one by none:
///   t <= 2^15:  max(min(x, t) - t, -1)               marks what is dropped
///   else:       max(min(x - t, u) - u, -1), u = 2^16 - t   what is kept
/// The minimum is that of numbers of 16 bits without sign, x - t is modulo 2^16; the maximum has a
/// sign, and its first operand is -2^15 or more.
template <class Sampler>
class DropHalves {
 public:
  ATTILE_DEVICE explicit DropHalves(const Sampler& sampler) {
    const std::uint32_t t = sampler.threshold >> 16;
    const bool marks_dropped = t <= 0x8000u;
    const std::uint32_t marked = marks_dropped ? t : 0x10000u - t;
    turn_ = marks_dropped ? 0 : marked * 0x10001u;
    end_ = marked * 0x10001u;
    minus_end_ = ((0u - marked) & 0xFFFFu) * 0x10001u;
    unmarked_ = marks_dropped ? ~0u : 0;
  }
  /// Returns two elements of 16 bits, with 0 in place of those that are dropped.
  ATTILE_DEVICE std::uint32_t operator()(std::uint32_t elements, std::uint32_t bits) const {
    return elements & (marks(bits) ^ unmarked_);
  }
  /// Returns the marks of two scores, which are for those that are kept where `unmarked` is 0, and
  /// else, where it is all ones, for those that are dropped.
  ATTILE_DEVICE std::uint32_t marks(std::uint32_t bits) const {
    const std::uint32_t distance = arch::add_min_of_halves(bits, turn_, end_);
    return arch::add_max_of_signed_halves(distance, minus_end_, ~0u);
  }
  ATTILE_DEVICE std::uint32_t unmarked() const { return unmarked_; }

 private:
  std::uint32_t turn_, end_, minus_end_, unmarked_;
};

/// Replaces P by 0 where decisions that have been made drop it: P = M o P, without the factor
/// 1 / (1 - p). `bits`: KeepBits, which are M.
template <class Registers, class Bits>
ATTILE_DEVICE void zero_dropped(Registers&& p, const Bits& bits) {
  using R = std::remove_cvref_t<Registers>;
  ATTILE_UNROLL
  for (int r = 0; r < R::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < R::kRegCols; ++c) {
      if (!bits.keep(r, c)) p.at(r, c) = 0.0f;
    }
  }
}

/// Makes dropout's decisions for the scores of a tile, and replaces P by 0 where they drop it.
/// Scope    all lanes of a warp.
///   const auto sampler = policies.dropout.sampler(q_heads);
///   tile::drop_scores(s_frag, coord, sampler);  // behind softmax.step: l is the sum of all P
///   softmax.finish(o_frag, sampler.keep_scale());
template <class Registers, class Coord, class Sampler>
ATTILE_DEVICE void drop_scores(Registers& p, const Coord& coord, const Sampler& sampler) {
  if constexpr (kKeepsInGroups<Registers, Coord, Sampler>) {
    KeepGroups<Registers>::for_each(coord, sampler, [&](int r, int c, bool keep) {
      if (!keep) p.at(r, c) = 0.0f;
    });
  } else {
    zero_dropped(p, KeepBits<Registers, Sampler>(coord, sampler));
  }
}

/// Does the same as drop_scores, with the same decisions, to P as a left operand of 16-bit
/// elements, whose pieces are groups of eight scores. `columns(i)`: sampler.column of the group of
/// columns i of the tile. Units    coord: as for KeepGroups. Scope    all lanes of a warp.
///   tile::RegisterLeft<T, Scores> p_left(s_frag);
///   tile::drop_operand(p_left, coord, sampler, columns);
template <class T, class Registers, class Sampler, class Columns>
ATTILE_DEVICE void drop_operand(RegisterLeft<T, Registers>& p, const TileCoord& coord,
                                const Sampler& sampler, const Columns& columns) {
  static_assert(
      Registers::kRegRows == 2 && sizeof(T) == 2,
      "attile::tile::drop_operand: an operand of 16-bit elements, of which a warp has 16 rows");
  const PhiloxRow row =
      sampler.row(coord.batch, coord.head, Sampler::row_group(coord.row0 + Registers::row(0)));
  const DropHalves<Sampler> drop_halves(sampler);
  ATTILE_UNROLL
  for (int k = 0; k < Registers::kRegCols / 4; ++k) {
    const PhiloxBlock random = sampler.group(columns(Registers::col(0) / 2 + 4 * k), row);
    ATTILE_UNROLL
    for (int i = 0; i < 4; ++i) {
      std::uint32_t& word = p.word(0, k, i % 2 * 2 + i / 2);
      word = drop_halves(word, random.word[i]);
    }
  }
}

}  // namespace attile::tile
