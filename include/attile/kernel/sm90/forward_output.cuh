// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/core/config.h>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/transpose.cuh>
#include <attile/tile/warpgroup.cuh>

#include <type_traits>

// O of a consumer warpgroup of the forward kernel, and how P V is added to it.

namespace attile::sm90 {

/// Holds O of a consumer's rows, not normalised. Without kPromotes the products add to it. With
/// kPromotes P V of a tile has sums of its own, in registers of its own or without kOverlaps in
/// those of S, and is made in kOutputParts parts, each of some columns of O. When a part is added,
/// O is multiplied by the factor of the maximum that P has: that is one FMA for each element.
/// Scope    all threads of the warpgroup, for each function.
template <class Traits>
class ForwardOutput {
  using Scores = typename Traits::ScoreRegisters;
  using Sums = typename Traits::SumRegisters;
  using Probabilities = tile::RegisterLeft<typename Traits::ProbabilityType, Scores>;
  using VTile = typename Traits::VTile;
  using Rescaling = typename tile::OnlineSoftmax<Scores::kRegRows>::Rescaling;
  static constexpr int kParts = Traits::kOutputParts;
  /// Without kOverlaps S is dead when P V begins, so that its registers can hold the sums. nvcc
  /// 13.0 shares them only where both are one variable, so of one type.
  static constexpr bool kHasSums =
      Traits::kPromotes && (Traits::kOverlaps || !std::is_same_v<Sums, Scores>);
  struct Empty {};

 public:
  typename Traits::OutputRegisters o_frag;

  /// Begins rows: with kPromotes O = 0.
  ATTILE_DEVICE void reset() {
    if constexpr (Traits::kPromotes) {
      o_frag.clear();
      ATTILE_UNROLL
      for (float& factor : factor_) factor = 1.0f;
    }
  }
  /// Begins O += P V, or with `adds` false O = P V. With kPromotes `adds` is ignored, as `reset`
  /// has made O 0: all parts but the last one are made, and that one is begun. `scratch`, of all
  /// functions: registers that the sums may take; S in them is lost.
  ATTILE_DEVICE void start(const Probabilities& p_left, const VTile& v_smem, bool adds,
                           Scores& scratch) {
    if constexpr (Traits::kPromotes) {
      start_part(0, p_left, v_smem, scratch);
      make_parts<0>(p_left, v_smem, scratch);
    } else if constexpr (Traits::kFp8Values) {
      tile::start_transposed_product<true>(o_frag, p_left, v_smem, 0, adds);
    } else {
      tile::start_product(o_frag, p_left, v_smem, 0, adds);
    }
  }
  /// Begins a part of P V, with kPromotes.
  ATTILE_DEVICE void start_part(int part, const Probabilities& p_left, const VTile& v_smem,
                                Scores& scratch) {
    tile::start_transposed_product(sums(scratch), p_left, v_smem, part * Sums::kCols);
  }
  /// Adds all parts of P V but the last one to O, of which the first one has been begun, and begins
  /// the next part after each. kPending: the products begun after the first part.
  template <int kPending>
  ATTILE_DEVICE void make_parts(const Probabilities& p_left, const VTile& v_smem, Scores& scratch) {
    ATTILE_UNROLL
    for (int part = 0; part + 1 < kParts; ++part) {
      if (part == 0) {
        tile::wait_product<kPending>(sums(scratch));
      } else {
        tile::wait_product<0>(sums(scratch));
      }
      promote(part, scratch);
      start_part(part + 1, p_left, v_smem, scratch);
    }
  }
  /// Waits for P V, behind which kPending products have been begun, and adds its last part to O
  /// where it is promoted.
  template <int kPending>
  ATTILE_DEVICE void end(Scores& scratch) {
    if constexpr (Traits::kPromotes) {
      tile::wait_product<kPending>(sums(scratch));
      promote(kParts - 1, scratch);
    } else {
      tile::wait_product<kPending>(o_frag);
    }
  }
  /// Multiplies O by the factor of a new maximum; with kPromotes when the next part is added.
  ATTILE_DEVICE void rescale(const Rescaling& rescaling) {
    if constexpr (Traits::kPromotes) {
      ATTILE_UNROLL
      for (int r = 0; r < Scores::kRegRows; ++r) {
        factor_[r] = rescaling.needed ? rescaling.factor[r] : 1.0f;
      }
    } else {
      rescaling.apply(o_frag);
    }
  }

 private:
  /// Adds a part of P V, which is complete, to O.
  ATTILE_DEVICE void promote(int part, Scores& scratch) {
    tile::scale_and_add(o_frag, part * Sums::kCols, factor_, sums(scratch));
  }
  /// Returns where P V is made, with kPromotes.
  ATTILE_DEVICE Sums& sums([[maybe_unused]] Scores& scratch) {
    if constexpr (kHasSums) {
      return sum_frag_;
    } else {
      return scratch;
    }
  }

  std::conditional_t<kHasSums, Sums, Empty> sum_frag_;
  std::conditional_t<Traits::kPromotes, float[Scores::kRegRows], Empty> factor_;
};

}  // namespace attile::sm90
