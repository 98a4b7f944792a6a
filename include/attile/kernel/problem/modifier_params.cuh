// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/schedule.h>
#include <attile/core/tile_modifier.h>

#include <utility>

// Parts of a Problem that follow from its score modifier. They have no size where it needs none, so
// that nothing moves in the parameters of other kernels.

namespace attile::detail {

/// Holds the order of batch heads where a score modifier says along which axes its data differ.
template <bool kThere>
struct HeadOrderParam {
  HeadOrder head_order;
};
template <>
struct HeadOrderParam<false> {};

/// Holds what a score modifier prepares on the host. Where it prepares nothing, or the host does
/// not know the scale of scores, because tensors in fp8 have scales in device memory, this has no
/// size.
template <class S, class Math, bool kKnowsScale>
struct PreparedModifier {
  static constexpr bool kHasPrepared = false;
  PreparedModifier(const S&, float) {}
};
template <class S, class Math>
  requires(kPrepares<S, Math>)
struct PreparedModifier<S, Math, true> {
  static constexpr bool kHasPrepared = true;
  decltype(prepared(std::declval<const S&>(), 1.0f, Math())) prepared_mod;

  PreparedModifier(const S& mod, float scale) : prepared_mod(prepared(mod, scale, Math())) {}
};

/// Says whether the order of batch heads depends on a score modifier's data.
template <class Policies>
inline constexpr bool kOrdersHeads =
    Policies::SequencesType::kUniform&& kHasDataAxes<typename Policies::ScoreModType>;

}  // namespace attile::detail
