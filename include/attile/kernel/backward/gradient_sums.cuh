// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/modifier_gradient.h>
#include <attile/core/vec.h>
#include <attile/kernel/backward/diagonal_sums.cuh>
#include <attile/kernel/backward/gradient_values.cuh>
#include <attile/kernel/backward/score_gradient.cuh>
#include <attile/tile/score_sums.cuh>
#include <attile/tile/tile_coord.cuh>
#include <attile/tile/warp_sum.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

// How the backward pass adds to the gradient of a score modifier (kHasGradient). A kernel makes one
// of the classes below once, calls `begin` before its first tile and `end` after its last one, and
// `probabilities_and_gradient` makes a Tile of it for each tile. A Tile takes the values of kRows
// register rows at a time, and then adds them.
// All additions are atomic, and those of several warps to one element come in no fixed order:
// DqMode::kInOrder and kTwoPass are refused where scores share an element (docs/contract.md,
// "Bits").

namespace attile {

/// Adds nothing. It stands for the gradient of a modifier that has none, and in a pass that leaves
/// it to another one.
struct NoGradient {
  static constexpr std::size_t kWarpBytes = 0;

  ATTILE_DEVICE explicit NoGradient(unsigned char*) {}
  ATTILE_DEVICE void begin() const {}
  template <class S>
  ATTILE_DEVICE void end(const S&, const tile::TileCoord&) const {}

  template <class Registers>
  struct Tile {
    static constexpr int kRows = Registers::kRegRows;

    template <class S>
    ATTILE_DEVICE Tile(const NoGradient&, const S&, const tile::TileCoord&) {}
    template <bool kBranches>
    ATTILE_DEVICE void take(int, int, float, float, const ScoreIndex&, bool) const {}
    ATTILE_DEVICE void add(int) const {}
    ATTILE_DEVICE void end() const {}
  };
};

/// Adds the values of each score by atomics of its own, for a modifier that does not say which
/// scores share an element.
template <class S>
struct AddsEachScore {
  static constexpr std::size_t kWarpBytes = 0;

  ATTILE_DEVICE explicit AddsEachScore(unsigned char*) {}
  ATTILE_DEVICE void begin() const {}
  ATTILE_DEVICE void end(const S&, const tile::TileCoord&) const {}

  template <class Registers>
  struct Tile {
    static constexpr int kRows = Registers::kRegRows;
    const S& mod;
    const Extent& extent;

    ATTILE_DEVICE Tile(const AddsEachScore&, const S& modifier, const tile::TileCoord& coord)
        : mod(modifier), extent(coord.extent) {}
    template <bool kBranches>
    ATTILE_DEVICE void take(int, int, float s, float ds, const ScoreIndex& i, bool visible) const {
      if (visible && ds != 0.0f) mod.add_gradient(s, ds, i, extent, AddAtomically{});
    }
    ATTILE_DEVICE void add(int) const {}
    ATTILE_DEVICE void end() const {}
  };
};

/// Sums what the scores of a warp contribute to the same element, and adds each sum by one atomic.
/// The sums of columns and of a head are kept in shared memory over all tiles of a head, because a
/// warp's columns are the same in all of them.
/// Shapes   a warp has 8 * kRegCols columns of S, in a TransposedRegisters<MmaTile>.
/// Scope    all lanes of a warp.
/// Barriers the caller has a barrier of the warp, or a wider one, between the last Tile of a head
///          and the first Tile of another one, and before `end`: lanes then read sums that other
///          lanes have written.
template <class Registers, class S>
class GradientSums {
  static constexpr int kTerms = kGradientTerms<S>;
  static constexpr int kCols = 8 * Registers::kRegCols;

 public:
  /// The shared memory of a warp: the head that the sums are of, and the sums of its columns.
  static constexpr std::size_t kWarpBytes = 16 + sizeof(float) * kTerms * kCols;

  ATTILE_DEVICE explicit GradientSums(unsigned char* warp) : data_(warp) {}
  /// Clears the sums, which are then those of no head.
  ATTILE_DEVICE void begin() const { clear(-1); }
  /// Adds the sums to memory. `coord`: of any tile of the warp, of any head.
  ATTILE_DEVICE void end(const S& mod, tile::TileCoord coord) const {
    coord.head = head();
    if (coord.head < 0) return;
    const GradientTerms<kTerms> per = detail::gradient_terms(mod);
    ATTILE_UNROLL
    for (int t = 0; t < kTerms; ++t) {
      if (per.of[t] == GradientPer::kCol) add_columns(mod, coord, t);
      if (per.of[t] == GradientPer::kHead) add_head(mod, coord, t);
    }
  }

  template <class>  // Registers, which this class knows; NoGradient takes them here
  class Tile {
   public:
    /// The register rows of which values are kept at a time. They take registers, as do the scores
    /// that some modifiers need.
    static constexpr int kRows = Registers::kRegRows % 8 == 0 && !kNeedsScores<S> ? 8 : 4;

    ATTILE_DEVICE Tile(const GradientSums& sums, const S& mod, const tile::TileCoord& coord)
        : sums_(sums), mod_(mod), coord_(coord), per_(detail::gradient_terms(mod)) {
      if (sums.head() == coord.head) return;
      sums.end(mod, coord);
      arch::warp_barrier();  // the sums have been read before they are overwritten
      sums.clear(coord.head);
    }
    /// Takes the values of the score in registers (r, c): see GradientValues.
    template <bool kBranches>
    ATTILE_DEVICE void take(int r, int c, float s, float ds, const ScoreIndex& i, bool visible) {
      values_.template take<kBranches>(mod_, r % kRows, c, s, ds, i, coord_.extent, visible);
    }
    /// Adds the values that have been taken, of register rows r0 on.
    ATTILE_DEVICE void add(int r0) {
      ATTILE_UNROLL
      for (int t = 0; t < kTerms; ++t) {
        switch (per_.of[t]) {
          case GradientPer::kScore:
            add_scores(t, r0);
            break;
          case GradientPer::kRow:
            add_rows(t, r0);
            break;
          case GradientPer::kDiagonal:
            add_diagonals(t, r0);
            break;
          case GradientPer::kCol:
          case GradientPer::kHead:
            ATTILE_UNROLL
            for (int r = 0; r < kRows; ++r) {
              ATTILE_UNROLL
              for (int c = 0; c < Registers::kRegCols; ++c) columns_[t][c] += values_.of[t][r][c];
            }
        }
      }
    }
    ATTILE_DEVICE void end() const {
      ATTILE_UNROLL
      for (int t = 0; t < kTerms; ++t) {
        if (per_.of[t] != GradientPer::kCol && per_.of[t] != GradientPer::kHead) continue;
        // Each column's sum is always the same lane's.
        Sums::by_cols(columns_[t], [&](int col, float x) { sums_.columns(t)[col] += x; });
      }
    }

   private:
    using Sums = tile::ScoreSums<kRows, Registers::kRegCols>;

    ATTILE_DEVICE ScoreIndex index(int row, int col) const {
      return {coord_.batch, coord_.head, row, col};
    }
    ATTILE_DEVICE void add_scores(int t, int r0) const {
      if constexpr (kHasLinearGradient<S>) {
        add_linear_scores(t, coord_.row0 + Registers::row(r0), coord_.col0 + Registers::col(0));
      } else if constexpr (arch::kAddsVectors && Sums::kHasQuads) {
        const int row0 = coord_.row0 + Registers::row(r0);
        const int col0 = coord_.col0 + Registers::col(0) - tile::detail::lane_of_sums() / 4;
        Sums::by_quads(values_.of[t], [&](int r, int odd, int col, const Float4& x) {
          const int row = row0 + Registers::row_offset(r) + odd;
          add_four(mod_, t, index(row, col0 + col), coord_.extent, x);
        });
      } else {
        ATTILE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          ATTILE_UNROLL
          for (int c = 0; c < Registers::kRegCols; ++c) {
            const ScoreIndex i = coord_.at(Registers::row(r0 + r), Registers::col(c));
            add_to_gradient(mod_, t, i, coord_.extent, values_.of[t][r][c]);
          }
        }
      }
    }
    /// Adds the values of scores whose elements lie row_step and col_step apart: where all scores
    /// exist, and their columns lie together, four columns' by one instruction. `row`, `col`: of
    /// the thread's first score.
    ATTILE_DEVICE void add_linear_scores(int t, int row, int col) const {
      const auto element = [&](int dr, int dc) {
        return gradient_address(mod_, t, index(row + dr, col + dc), coord_.extent);
      };
      float* const first = element(0, 0);
      const std::ptrdiff_t row_step = element(1, 0) - first, col_step = element(0, 1) - first;
      if constexpr (arch::kAddsVectors && Sums::kHasQuads) {
        const int before = tile::detail::lane_of_sums() / 4;  // columns of the warp
        const bool vectors =
            col_step == 1 && row_step % 4 == 0 &&
            reinterpret_cast<std::uintptr_t>(first - before) % sizeof(Float4) == 0 &&
            row + Registers::row_offset(kRows - 1) < coord_.extent.q_len &&
            col - before + kCols <= coord_.extent.kv_len;
        if (!arch::any_lane(!vectors)) {
          Sums::by_quads(values_.of[t], [&](int r, int odd, int quad, const Float4& x) {
            arch::atomic_add(
                first + (odd * row_step + (quad - before)) + Registers::row_offset(r) * row_step,
                x);
          });
          return;
        }
      }
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        ATTILE_UNROLL
        for (int c = 0; c < Registers::kRegCols; ++c) {
          const float x = values_.of[t][r][c];
          float* const to =
              first + (Registers::row_offset(r) * row_step + Registers::col_offset(c) * col_step);
          if (x != 0.0f) arch::atomic_add(to, x);
        }
      }
    }
    ATTILE_DEVICE void add_rows(int t, int r0) const {
      const int row0 = coord_.row0 + Registers::row(r0);
      Sums::by_rows(values_.of[t], [&](int r, float x) {
        add_to_gradient(mod_, t, index(row0 + Registers::row_offset(r), 0), coord_.extent, x);
      });
    }
    ATTILE_DEVICE void add_diagonals(int t, int r0) const {
      const int lane = tile::detail::lane_of_sums();
      const int row0 = coord_.row0 + Registers::row(r0) - lane % 4 * 2;
      const int col0 = coord_.col0 + Registers::col(0) - lane / 4;
      Sums::by_diagonals(values_.of[t], [&](int d, float x) {
        const int distance = col0 - row0 + d;  // the diagonal's first score stands for all of it
        add_to_gradient(mod_, t, index(max(0, -distance), max(0, distance)), coord_.extent, x);
      });
    }

    const GradientSums& sums_;
    const S& mod_;
    const tile::TileCoord& coord_;
    GradientTerms<kTerms> per_;
    GradientValues<S, kRows, Registers::kRegCols> values_;
    Array<float, kTerms, Registers::kRegCols> columns_ = {};
  };

 private:
  /// Adds the values of four columns' scores, by one instruction where their elements lie together.
  ATTILE_DEVICE static void add_four(const S& mod, int t, ScoreIndex i, const Extent& extent,
                                     const Float4& x) {
    if (x[0] == 0.0f && x[1] == 0.0f && x[2] == 0.0f && x[3] == 0.0f) return;
    if (i.col + 3 < extent.kv_len) {
      float* const first = gradient_address(mod, t, i, extent);
      bool together = reinterpret_cast<std::uintptr_t>(first) % sizeof(Float4) == 0;
      ATTILE_UNROLL
      for (int e = 1; e < 4; ++e) {
        const ScoreIndex next{i.batch, i.head, i.row, i.col + e};
        together &= gradient_address(mod, t, next, extent) == first + e;
      }
      if (together) return arch::atomic_add(first, x);
    }
    ATTILE_UNROLL
    for (int e = 0; e < 4; ++e, ++i.col) add_to_gradient(mod, t, i, extent, x[e]);
  }
  ATTILE_DEVICE void add_columns(const S& mod, const tile::TileCoord& coord, int t) const {
    const int lane = tile::detail::lane_of_sums();
    const int col0 = coord.col0 + Registers::col(0) - lane / 4;
    ATTILE_UNROLL
    for (int col = lane; col < kCols; col += arch::kWarpSize) {
      const ScoreIndex i{coord.batch, coord.head, 0, col0 + col};  // row 0 stands for all rows
      add_to_gradient(mod, t, i, coord.extent, columns(t)[col]);
    }
  }
  ATTILE_DEVICE void add_head(const S& mod, const tile::TileCoord& coord, int t) const {
    const int lane = tile::detail::lane_of_sums();
    float sum = 0.0f;
    ATTILE_UNROLL
    for (int col = lane; col < kCols; col += arch::kWarpSize) sum += columns(t)[col];
    sum = tile::warp_sum(sum);
    // The first score stands for all scores of the head.
    if (lane == 0) add_to_gradient(mod, t, {coord.batch, coord.head, 0, 0}, coord.extent, sum);
  }

  ATTILE_DEVICE void clear(int head) const {
    const int lane = tile::detail::lane_of_sums();
    for (int i = lane; i < kTerms * kCols; i += arch::kWarpSize) columns(0)[i] = 0.0f;
    if (lane == 0) *reinterpret_cast<int*>(data_) = head;
    arch::warp_barrier();  // both are written before other lanes read them
  }
  ATTILE_DEVICE int head() const { return arch::uniform(*reinterpret_cast<const int*>(data_)); }
  ATTILE_DEVICE float* columns(int t) const {
    return reinterpret_cast<float*>(data_ + 16) + t * kCols;
  }

  unsigned char* data_;
};

/// Names how a kernel adds to the gradient of a modifier S: with scores in `Registers`.
/// kDiagonal: the one value that a score adds is summed by diagonals.
template <class Registers, class S, bool kDiagonal = false>
using GradientOf = std::conditional_t<
    !kHasGradient<S>, NoGradient,
    std::conditional_t<kGradientTerms<S> == 0, AddsEachScore<S>,
                       std::conditional_t<kDiagonal && kGradientTerms<S> == 1,
                                          DiagonalSums<Registers, S>, GradientSums<Registers, S>>>>;

}  // namespace attile
