// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/index.h>
#include <attile/core/policy.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace attile {

/// What a score modifier makes of one score s: f(s), and f'(s) for the backward pass.
template <class Real>
struct ModifiedScore {
  Real value;
  Real derivative;
};

/// A score modifier maps a score to another: `mod(s, index, extent) -> ModifiedScore`, where
/// s = scale * (q . k). It is copied to the device, so pointers in it are device pointers (host
/// pointers for the CPU executor). Make the call operator a template over the type of s if the
/// fp64 reference should compute it in fp64. A modifier that may return -inf declares
/// `static constexpr bool kMayHide = true`.
template <class S>
concept ScoreMod = std::is_trivially_copyable_v<S> &&
    requires(const S& mod, float s, ScoreIndex index, Extent extent) {
  { mod(s, index, extent).value } -> std::convertible_to<float>;
  { mod(s, index, extent).derivative } -> std::convertible_to<float>;
};

/// Leaves scores as they are; costs nothing.
struct NoScoreMod {
  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex, Extent) const {
    return {s, Real(1)};
  }
};

template <class S>
inline constexpr bool kIsIdentity = std::is_same_v<S, NoScoreMod>;

/// Whether a modifier may turn a visible score into -inf.
template <class S>
inline constexpr bool kMayHide = [] {
  if constexpr (requires { S::kMayHide; }) return bool(S::kMayHide);
  return false;
}();

/// ALiBi (arXiv 2108.12409): s - slope * |i + kv_len - q_len - j|.
/// Shapes   slopes: (q_heads), or (batch, q_heads) with batch_stride = q_heads.
struct Alibi {
  const float* slopes = nullptr;
  std::int64_t batch_stride = 0;

  const char* fault() const {
    return slopes == nullptr ? "Alibi: slopes must not be null" : nullptr;
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent e) const {
    const int distance = i.row + e.shift() - i.col;
    const Real slope = slopes[i.batch * batch_stride + i.head];
    return {s - slope * Real(distance < 0 ? -distance : distance), Real(1)};
  }
};

/// cap * tanh(s / cap). Units: cap > 0.
struct Softcap {
  float cap = 50.0f;

  const char* fault() const {
    return cap > 0.0f && cap < kInf ? nullptr : "Softcap: cap must be finite and > 0";
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex, Extent) const {
    const Real t = std::tanh(s / Real(cap));
    return {Real(cap) * t, Real(1) - t * t};
  }
};

/// s + bias[batch, head, row, col]; a bias of -inf hides the score.
/// Units   strides count elements; 0 broadcasts along that axis.
template <Element T = float>
struct AdditiveBias {
  const T* bias = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;

  static constexpr bool kMayHide = true;

  const char* fault() const {
    return bias == nullptr ? "AdditiveBias: bias must not be null" : nullptr;
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent) const {
    const std::int64_t at =
        i.batch * batch_stride + i.head * head_stride + i.row * row_stride + i.col * col_stride;
    return {s + Real(to_float(bias[at])), Real(1)};
  }
};

/// The second modifier of what the first one made.
template <ScoreMod First, ScoreMod Second>
struct Then {
  First first{};
  Second second{};

  const char* fault() const {
    const char* inner = policy_fault(first);
    return inner != nullptr ? inner : policy_fault(second);
  }

  static constexpr bool kMayHide = attile::kMayHide<First> || attile::kMayHide<Second>;

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent e) const {
    const auto inner = first(s, i, e);
    const auto outer = second(Real(inner.value), i, e);
    return {Real(outer.value), Real(outer.derivative) * Real(inner.derivative)};
  }
};

}  // namespace attile
