// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>

#include <type_traits>

// Arguments with masks and score modifiers of any type behind pointers to functions, so that the
// reference is compiled once for all of them.

namespace attile_test {

/// A mask that asks another one.
struct AnyMask {
  const void* mask;
  bool (*sees)(const void* mask, attile::ScoreIndex at, attile::Extent extent);

  ATTILE_HOST_DEVICE bool visible(attile::ScoreIndex at, attile::Extent extent) const {
    return sees(mask, at, extent);
  }
};

/// A score modifier that asks another one.
struct AnyScoreMod {
  template <class Real>
  using Call = attile::ModifiedScore<Real> (*)(const void* modifier, Real score,
                                               attile::ScoreIndex at, attile::Extent extent);
  const void* modifier;
  Call<float> in_float;
  Call<double> in_double;

  template <class Real>
  ATTILE_HOST_DEVICE attile::ModifiedScore<Real> operator()(Real score, attile::ScoreIndex at,
                                                            attile::Extent extent) const {
    if constexpr (std::is_same_v<Real, double>) {
      return in_double(modifier, score, at, extent);
    } else {
      return in_float(modifier, score, at, extent);
    }
  }
};

namespace detail {

template <class S, class Real>
attile::ModifiedScore<Real> call_modifier(const void* modifier, Real score, attile::ScoreIndex at,
                                          attile::Extent extent) {
  const auto modified = (*static_cast<const S*>(modifier))(score, at, extent);
  return {static_cast<Real>(modified.value), static_cast<Real>(modified.derivative)};
}

}  // namespace detail

/// The same problem for the reference, which asks the mask and the score modifier of `args` as long
/// as those live. What it asks more of than a score at a time stays: a modifier's gradient, and the
/// span of keys in pages.
template <class Args>
auto with_any_policies(const Args& args) {
  using M = typename Args::MaskType;
  using S = typename Args::ScoreModType;
  if constexpr (attile::kHasGradient<S> || attile::kIsPaged<typename Args::SequencesType>) {
    return args;
  } else {
    using Bundle = attile::PolicyBundle<AnyMask, AnyScoreMod, typename Args::DropoutType,
                                        typename Args::SequencesType, typename Args::SinkType>;
    attile::Arguments<Args::kDirection, typename Args::Elements, Bundle> any{};
    any.q = args.q, any.k = args.k, any.v = args.v, any.o = args.o, any.lse = args.lse;
    any.dout = args.dout, any.dlse = args.dlse;
    any.batch = args.batch, any.q_heads = args.q_heads, any.kv_heads = args.kv_heads;
    any.q_len = args.q_len, any.kv_len = args.kv_len;
    any.head_dim = args.head_dim, any.head_dim_v = args.head_dim_v, any.scale = args.scale;
    any.dropout = args.dropout, any.sequences = args.sequences, any.sink = args.sink;
    any.mask = {&args.mask, [](const void* mask, attile::ScoreIndex at, attile::Extent extent) {
                  return static_cast<const M*>(mask)->visible(at, extent);
                }};
    any.score_mod = {&args.score_mod, detail::call_modifier<S, float>,
                     detail::call_modifier<S, double>};
    return any;
  }
}

}  // namespace attile_test
