// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/halves.h>
#include <attile/arch/math.h>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/philox.h>
#include <attile/tile/dropout.cuh>
#include <attile/tile/tile_coord.cuh>

#include <cmath>
#include <cstdint>

// Dropout's decisions of a backward pass, kept as the sign of P.

namespace attile::tile {

/// Makes the same random bits as KeepGroups of a transposed tile, and calls f(r, c, pair) for two
/// scores at a time: the lower half of `pair` is for (r, c), the upper one for (r + 1, c). It takes
/// fewer instructions than KeepGroups and one register more. Some kernels that use KeepBits lack
/// that register, so both are there.
/// Units    coord: as for KeepGroups. Scope    all lanes of a warp.
template <class Registers, class Sampler, class F>
ATTILE_DEVICE void for_each_transposed_pair(const TileCoord& coord, const Sampler& sampler, F&& f) {
  // An even lane has the lower halves of its own words and gives the upper ones; an odd lane has
  // the upper halves, which belong to the later row, and gives the lower ones.
  // Of a lane's own word and the one that it has taken the bytes of row r go low and those of
  // row r + 1 high.
  for_each_transposed_word<Registers>(
      coord, sampler, [&](int r, int c, std::uint32_t first, std::uint32_t second, bool odd) {
        const std::uint32_t given = arch::byte_perm(first, second, odd ? 0x5410u : 0x7632u);
        const std::uint32_t taken = arch::shuffle_xor(given, 4);
        f(r, c, arch::byte_perm(first, taken, odd ? 0x3254u : 0x5410u));
        f(r, c + 1, arch::byte_perm(second, taken, odd ? 0x3276u : 0x7610u));
      });
}

/// Does what both kinds of signs do: each of dropout's decisions about the scores of a transposed
/// tile is kept as the sign of its P. A backward pass wants a decision twice, of P for dV and later
/// of dP for dS; KeepBits holds it in a register between, and takes instructions to read it there.
/// P is never negative, so that its sign is free to hold it. With M the decision, 1 or 0, and
/// k = keep_scale = 1 / (1 - p), what is stored of a score is
///   x = P k / 2 where M = 1,  -P k / 2 where M = 0,
/// by an LSE that has the factor k / 2 in it, and a delta that is divided by it. Of it are made
///   M P k   = 2 max(x, 0), the left operand of dV: max by `positive_left`, the 2 by kDvScale;
///   P (M k dP - delta) = (x + |x|) dP - |x| (2 delta / k), which is `ds`: x + |x| is M P k.
struct SignedP {
  static constexpr bool kSigns = true;
  /// What dV of a dropout(P) with that factor has to be multiplied by.
  static constexpr float kDvScale = 2.0f;

  /// Returns P * (dropout(dP) - delta). `signed_p` may have another factor that is not negative.
  ATTILE_DEVICE static float ds(float signed_p, float dp, float scaled_delta) {
    const float magnitude = std::fabs(signed_p);
    return arch::fma(signed_p + magnitude, dp, -(magnitude * scaled_delta));
  }
};

/// Makes dropout's decisions for the scores of a transposed tile where P is computed, between its
/// exponentials.
template <class Registers, class Sampler>
class KeepSigns : public SignedP {
 public:
  KeepSigns() = default;
  ATTILE_DEVICE KeepSigns(const TileCoord&, const Sampler& sampler) : sampler_(sampler) {}

  /// Calls f(r, c, keep) for each score. Units    coord: as for KeepGroups.
  /// Scope    all lanes of a warp.
  template <class F>
  ATTILE_DEVICE void for_each(const TileCoord& coord, const F& f) const {
    for_each_transposed_pair<Registers>(coord, sampler_, [&](int r, int c, std::uint32_t pair) {
      f(r, c, sampler_.keeps(pair << 16));
      f(r + 1, c, sampler_.keeps(pair));
    });
  }

 private:
  Sampler sampler_;
};

/// Makes them when it is made, and holds them in a word: bit `bit(r, c)` is for a score. A thread
/// has 32 scores or fewer of a transposed tile, in two columns.
/// Of four scores of each of two groups, in rows r and r + 1, a lane decides about one group, and
/// its neighbour in the next column, lane ^ 4, about the other, that of an odd column about row
/// r + 1. What a lane has decided for both is packed before they exchange words, once for a tile.
template <class Registers, class Sampler>
class KeptSigns : public SignedP {
 public:
  KeptSigns() = default;
  /// Units    coord: as for KeepGroups. Scope    all lanes of a warp.
  ATTILE_DEVICE KeptSigns(const TileCoord& coord, const Sampler& sampler) {
    static_assert(Registers::kRegCols == 2 && Registers::kRegRows <= 16,
                  "attile::tile::KeptSigns: a thread has 32 scores or fewer, in two columns");
    const int col = coord.col0 + Registers::col(0);
    const bool odd = col % 2 != 0;
    const PhiloxColumn column = sampler.column(coord.batch, coord.head, sampler.col_group(col));
    const std::uint32_t row_group = Sampler::row_group(coord.row0 + Registers::row(0) + odd);
    const DropHalves<Sampler> halves(sampler);
    std::uint32_t marks = 0;  // the lower half is for the lane of the even column
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; r += 4) {
      const PhiloxBlock random =
          sampler.group(column, sampler.row(coord.batch, coord.head, row_group + 2 * r));
      ATTILE_UNROLL
      for (int i = 0; i < 4; ++i) marks |= halves.marks(random.word[i]) & 0x10001u << (r + i);
    }
    const std::uint32_t taken = arch::shuffle_xor(marks, 4);
    word_ = arch::byte_perm(marks, taken, odd ? 0x3276u : 0x5410u) ^ halves.unmarked();
    word_ = arch::opaque(word_);  // made here, before more registers are in use
  }

  /// Calls f(r, c, keep) for each score.
  template <class F>
  ATTILE_DEVICE void for_each(const TileCoord&, const F& f) const {
    for_each_score<Registers>([&](int r, int c) { f(r, c, (word_ >> bit(r, c) & 1u) != 0); });
  }

 private:
  ATTILE_DEVICE static constexpr int bit(int r, int c) { return r % 2 * 16 + r / 2 * 2 + c; }

  std::uint32_t word_;
};

/// Returns dropout(P) as a left operand of 16-bit elements, of P with signs (SignedP).
template <class Left, class Registers>
ATTILE_DEVICE Left positive_left(const Registers& p) {
  Left left;
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; c += 2) {
      left.word(r / 2, c / 4, c / 2 % 2 * 2 + r % 2) =
          arch::positive_halves<typename Left::Element>(p.x[r][c], p.x[r][c + 1]);
    }
  }
  return left;
}

}  // namespace attile::tile
