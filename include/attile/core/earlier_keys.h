// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/element.h>
#include <attile/core/tensor.h>

namespace attile {

/// Holds what attention of the same queries to earlier keys has given, O_0 and LSE_0, from where a
/// forward pass goes on to its own keys:
///   LSE = ln(e^LSE_0 + sum of e^S'),  O = (e^LSE_0 O_0 + dropout(e^S') V) / e^LSE
/// So for each row they are one more key, whose score is LSE_0 and whose value is O_0, and stand
/// where a sink does (`AttentionSink`), which is a key without a value. Neither the scale nor the
/// score modifier, the mask or dropout applies to them. A sink belongs to a row once: the call for
/// the first keys has it.
/// Shapes   o (batch, q_heads, q_len, head_dim_v), lse (batch, q_heads, q_len), with any strides.
///          LSE as `forward` writes it is bhs(lse, {.rows = q_len, .heads = q_heads}).
/// Units    LSE in natural logarithms.
/// Empty    a row with LSE_0 = -inf has seen nothing, whatever its O_0 holds; one that sees nothing
///          now has O = O_0 and LSE = LSE_0.
/// In place o may be the memory of the call's O, with the same element type and strides, and lse
///          that of its LSE.
template <Element T = float>
struct EarlierKeys {
  static constexpr bool kEnabled = true;

  Tensor<const T> o{};
  Tensor<const float> lse{};
};

/// Says whether a policy in the place of a sink is EarlierKeys.
template <class K>
inline constexpr bool kIsEarlierKeys = false;
template <Element T>
inline constexpr bool kIsEarlierKeys<EarlierKeys<T>> = true;

}  // namespace attile
