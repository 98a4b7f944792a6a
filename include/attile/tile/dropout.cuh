// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/dropout.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/philox.h>
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

/// Of a transposed tile a lane holds four scores of each of two groups, in rows r and r + 1, and
/// its neighbour in the next column the other four of both. Each calls for one group, and they
/// exchange halves of the words.
template <int Rows, int Cols, int kWarps, int kWarpsN>
struct KeepGroups<TransposedRegisters<MmaTile<Rows, Cols, kWarps, kWarpsN>>> {
  using Registers = TransposedRegisters<MmaTile<Rows, Cols, kWarps, kWarpsN>>;
  static constexpr bool kKnown = true;

  template <class Sampler, class F>
  ATTILE_DEVICE static void for_each(const TileCoord& coord, const Sampler& sampler, F&& f) {
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
        for (int i = 0; i < 4; i += 2) {
          const std::uint32_t mine = arch::halves(random.word[i], random.word[i + 1], odd);
          const std::uint32_t given = arch::halves(random.word[i], random.word[i + 1], !odd);
          const std::uint32_t taken = arch::shuffle_xor(given, 4);
          const std::uint32_t even_row = odd ? taken : mine;
          const std::uint32_t odd_row = odd ? mine : taken;
          f(r + i, c, sampler.keeps(even_row << 16));
          f(r + i, c + 1, sampler.keeps(even_row));
          f(r + i + 1, c, sampler.keeps(odd_row << 16));
          f(r + i + 1, c + 1, sampler.keeps(odd_row));
        }
      }
    }
  }
};

/// Says whether decisions are made a group at a time.
template <class Registers, class Coord, class Sampler>
inline constexpr bool kKeepsInGroups =
    KeepGroups<Registers>::kKnown&& std::is_same_v<Coord, TileCoord>&& GroupSampler<Sampler>;

/// Holds dropout's decision for each score of a tile that this thread holds, one bit each.
template <class Registers, class Sampler>
class KeepBits : ScoreBits<Registers> {
 public:
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
  KeepBits() = default;
  template <class Coord>
  ATTILE_DEVICE KeepBits(const Coord&, const NoDropout::Sampler&) {}
  ATTILE_DEVICE bool keep(int, int) const { return true; }
  ATTILE_DEVICE float dp_minus_delta(int, int, float dp, float delta) const { return dp - delta; }
};

/// Sets P = dropout(P), without the factor 1 / (1 - p). `bits`: KeepBits.
template <class Registers, class Bits>
ATTILE_DEVICE void drop(Registers&& p, const Bits& bits) {
  using R = std::remove_cvref_t<Registers>;
  ATTILE_UNROLL
  for (int r = 0; r < R::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < R::kRegCols; ++c) {
      if (!bits.keep(r, c)) p.at(r, c) = 0.0f;
    }
  }
}

/// Does the same, and makes the decisions. Scope    all lanes of a warp.
///   const auto sampler = policies.dropout.sampler(q_heads);
///   tile::drop(s_frag, coord, sampler);  // behind softmax.step
///   softmax.finish(o_frag, sampler.keep_scale());
template <class Registers, class Coord, class Sampler>
ATTILE_DEVICE void drop(Registers& p, const Coord& coord, const Sampler& sampler) {
  if constexpr (kKeepsInGroups<Registers, Coord, Sampler>) {
    KeepGroups<Registers>::for_each(coord, sampler, [&](int r, int c, bool keep) {
      if (!keep) p.at(r, c) = 0.0f;
    });
  } else {
    drop(p, KeepBits<Registers, Sampler>(coord, sampler));
  }
}

}  // namespace attile::tile
