// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/score_mod.h>
#include <attile/core/tile_mask.h>
#include <attile/core/tile_modifier.h>

// nvcc only warns of a host function that a __host__ __device__ one calls, says nothing where the
// caller is in a header of a system, and compiles a kernel that is wrong. It refuses the same call
// in a __device__ function: the two in this file are such ones, and are never run.

namespace attile::detail {

/// Says whether a policy joins two others.
template <class P>
concept Pair = requires(const P& policy) {
  policy.first;
  policy.second;
};

/// Calls what kernels call of a mask, and of those that it joins.
template <Mask M>
ATTILE_DEVICE void mask_wants_ATTILE_HOST_DEVICE(const M& mask) {
  static_cast<void>(mask.visible(ScoreIndex(), Extent()));
  if constexpr (SpanMask<M>) {
    static_cast<void>(mask.columns(0, 0, Interval(), Extent()));
    static_cast<void>(mask.rows(0, 0, Interval(), Extent()));
  }
  if constexpr (kHasTileMask<M>) {
    const auto tile = mask.of_tile(ScoreIndex(), Extent());
    static_cast<void>(tile.visible(tile.row(0), tile.col(0)));
  }
  if constexpr (Pair<M>) {
    if constexpr (Mask<decltype(mask.first)> && Mask<decltype(mask.second)>) {
      mask_wants_ATTILE_HOST_DEVICE(mask.first);
      mask_wants_ATTILE_HOST_DEVICE(mask.second);
    }
  }
  if constexpr (requires { mask.inner; }) {
    if constexpr (Mask<decltype(mask.inner)>) mask_wants_ATTILE_HOST_DEVICE(mask.inner);
  }
}

/// Calls what kernels call of a score modifier, and of those that it applies one after another.
template <ScoreMod S>
ATTILE_DEVICE void modifier_wants_ATTILE_HOST_DEVICE(const S& mod) {
  static_cast<void>(mod(0.0f, ScoreIndex(), Extent()));
  if constexpr (kHasTiles<S, StandardMath> && !kPrepares<S, StandardMath>) {
    const auto tile = mod.of_tile(ScoreBlock(), StandardMath());
    static_cast<void>(apply_tile(tile, 0.0f, tile.row(0), tile.col(0)));
  }
  if constexpr (Pair<S>) {
    if constexpr (ScoreMod<decltype(mod.first)> && ScoreMod<decltype(mod.second)>) {
      modifier_wants_ATTILE_HOST_DEVICE(mod.first);
      modifier_wants_ATTILE_HOST_DEVICE(mod.second);
    }
  }
}

/// Does nothing. A kernel that says it is refused by nvcc where a mask or a score modifier of the
/// bundle has functions that are not ATTILE_HOST_DEVICE.
template <class P>
ATTILE_DEVICE void require_device_policies() {
  static_cast<void>(&mask_wants_ATTILE_HOST_DEVICE<typename P::MaskType>);
  static_cast<void>(&modifier_wants_ATTILE_HOST_DEVICE<typename P::ScoreModType>);
}

}  // namespace attile::detail
