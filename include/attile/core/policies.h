// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/bias.h>
#include <attile/core/cache.h>
#include <attile/core/config.h>
#include <attile/core/dropout.h>
#include <attile/core/earlier_keys.h>
#include <attile/core/mask.h>
#include <attile/core/packed.h>
#include <attile/core/packed_batches.h>
#include <attile/core/policy.h>
#include <attile/core/prepared_mask.h>
#include <attile/core/score_mod.h>
#include <attile/core/sequences.h>
#include <attile/core/sink.h>
#include <attile/core/then.h>

#include <type_traits>

// This file defines the bundle of policies. One more kind of policy edits the lists of five in this
// file, adds a field to the arguments (args.h), edits the code that applies it, and has its own
// header: kernels, traits, families and entry points pass the bundle on. test/policy/overlay.cmake
// does so, and is a test.

namespace attile {

namespace detail {

/// Holds the bundle's sink. That of no sink has no size, so that nothing moves in the parameter of
/// a kernel without one. (nvcc 13.0 and g++ disagree about where members are that follow one with
/// no_unique_address.)
template <AttentionSink K>
struct SinkMember {
  K sink;
};
template <>
struct SinkMember<NoSink> {
  static constexpr NoSink sink{};
};
template <AttentionSink K>
constexpr SinkMember<K> sink_member(const K& sink) {
  if constexpr (K::kEnabled) {
    return {sink};
  } else {
    return {};
  }
}

}  // namespace detail

/// Holds what a problem has beside its tensors and sizes: one policy of each kind. `Policies` names
/// it.
template <Mask M, ScoreMod S, Dropout P, Sequences Q, AttentionSink K>
struct PolicyBundle : detail::SinkMember<K> {
  using detail::SinkMember<K>::sink;
  static_assert(
      Q::kUniform || !kUniformOnly<M>,
      "attile: this mask finds its data by the lengths that all sequences have in common: "
      "it takes Uniform sequences alone");
  using MaskType = M;
  using ScoreModType = S;
  using DropoutType = P;
  using SequencesType = Q;
  using SinkType = K;

  M mask;
  S score_mod;
  P dropout;
  Q sequences;

  /// Returns the policies of arguments, which have members of the same names.
  template <class Args>
  static constexpr PolicyBundle of(const Args& args) {
    return {detail::sink_member(args.sink), args.mask, args.score_mod, args.dropout,
            args.sequences};
  }

  /// Returns the same policies with another mask.
  template <Mask Other>
  ATTILE_HOST_DEVICE constexpr PolicyBundle<Other, S, P, Q, K> with_mask(const Other& other) const {
    return {*this, other, score_mod, dropout, sequences};
  }

  /// Returns why one of the policies cannot be used with the values it holds; null when all can.
  constexpr const char* fault() const {
    if (const char* why = policy_fault(mask)) return why;
    if (const char* why = policy_fault(score_mod)) return why;
    if (const char* why = policy_fault(dropout)) return why;
    if (const char* why = policy_fault(sequences)) return why;
    return policy_fault(sink);
  }
};

namespace detail {

template <class P>
inline constexpr bool kIsBundle = false;
template <Mask M, ScoreMod S, Dropout P, Sequences Q, AttentionSink K>
inline constexpr bool kIsBundle<PolicyBundle<M, S, P, Q, K>> = true;

/// Replaces the bundle's policy of the kind of `Policy`.
template <class Bundle, class Policy>
struct WithPolicy;

/// Chooses the policy of one kind: `Policy` if it is of that kind, else the old one. `None`, the
/// policy that does nothing, never replaces another one, and any other one replaces it.
template <class Old, class Policy, class None, bool kIsOfKind>
struct Chosen {
  using type = Old;
};
template <class Old, class Policy, class None>
struct Chosen<Old, Policy, None, true> {
  static constexpr bool kKeepsOld = std::is_same_v<Policy, None>;
  static_assert(kKeepsOld || std::is_same_v<Old, None> || std::is_same_v<Old, Policy>,
                "attile: one mask, one score modifier, one dropout, one sequences policy and one "
                "sink, or EarlierKeys: join two masks by And, two modifiers by Then");
  using type = std::conditional_t<kKeepsOld, Old, Policy>;
};

/// Say what a type that is no policy was meant to be.
template <class Policy>
inline constexpr bool kHasVisible = [] {
  if constexpr (requires { &Policy::visible; }) return true;
  return false;
}();
template <class Policy>
inline constexpr bool kHasCall = [] {
  if constexpr (requires { &Policy::operator(); }) return true;
  return std::is_invocable_v<Policy, float> || std::is_invocable_v<Policy, float, ScoreIndex> ||
         std::is_invocable_v<Policy, float, ScoreIndex, Extent>;
}();

template <Mask M, ScoreMod S, Dropout P, Sequences Q, AttentionSink K, class Policy>
struct WithPolicy<PolicyBundle<M, S, P, Q, K>, Policy> {
  static constexpr int kKinds = int{Mask<Policy>} + ScoreMod<Policy> + Dropout<Policy> +
                                Sequences<Policy> + AttentionSink<Policy>;
  static_assert(kKinds != 0 || !kHasVisible<Policy>,
                "attile: no Mask: it wants ATTILE_HOST_DEVICE bool visible(ScoreIndex, Extent) "
                "const, in a type that is trivially copyable; static_assert(attile::Mask<M>) says "
                "which of these is missing");
  static_assert(kKinds != 0 || kHasVisible<Policy> || !kHasCall<Policy>,
                "attile: no ScoreMod: it wants template <class Real> ATTILE_HOST_DEVICE "
                "ModifiedScore<Real> operator()(Real s, ScoreIndex, Extent) const, in a type that "
                "is trivially copyable; static_assert(attile::ScoreMod<S>) says which of these is "
                "missing");
  static_assert(kKinds != 0 || kHasVisible<Policy> || kHasCall<Policy>,
                "attile: no policy: a Mask has visible, a ScoreMod operator(), and a Dropout, a "
                "Sequences or an AttentionSink all that its concept asks for");
  static_assert(kKinds < 2, "attile: a policy is of one kind: this type could be two");
  static_assert(ScoreMod<Policy> || !kHasGradient<Policy>,
                "attile: only a score modifier has a gradient, kHasGradient");
  using type = PolicyBundle<typename Chosen<M, Policy, NoMask, Mask<Policy>>::type,
                            typename Chosen<S, Policy, NoScoreMod, ScoreMod<Policy>>::type,
                            typename Chosen<P, Policy, NoDropout, Dropout<Policy>>::type,
                            typename Chosen<Q, Policy, Uniform, Sequences<Policy>>::type,
                            typename Chosen<K, Policy, NoSink, AttentionSink<Policy>>::type>;
};

template <class Bundle, class... Ps>
struct BundleOf {
  using type = Bundle;
};
template <class Bundle, class First, class... Others>
struct BundleOf<Bundle, First, Others...> {
  using type = typename BundleOf<typename WithPolicy<Bundle, First>::type, Others...>::type;
};
template <class Bundle, Mask M, ScoreMod S, Dropout P, Sequences Q, AttentionSink K,
          class... Others>
struct BundleOf<Bundle, PolicyBundle<M, S, P, Q, K>, Others...> {
  using type = typename BundleOf<Bundle, M, S, P, Q, K, Others...>::type;
};

}  // namespace detail

/// Names the bundle of these policies, given in any order; a kind that is not named gets the policy
/// that does nothing. A bundle stands for all its policies: `Policies<Causal, Alibi>`,
/// `Policies<>`.
template <class... Ps>
using Policies =
    typename detail::BundleOf<PolicyBundle<NoMask, NoScoreMod, NoDropout, Uniform, NoSink>,
                              Ps...>::type;

}  // namespace attile
