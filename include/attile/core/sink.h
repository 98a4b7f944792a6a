// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/earlier_keys.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/tensor.h>

#include <concepts>
#include <type_traits>

namespace attile {

/// An attention sink is one more term in the denominator of the softmax, without a key and a value:
/// l = sum of exp(S' - m) + exp(sink - m), so that a row's probabilities sum to less than 1. LSE
/// includes it. It is the same for all rows of a query head and of every sequence, and neither the
/// scale nor the score modifier, the mask or dropout applies to it. A row that sees no key has
/// O = 0 and LSE = sink. A policy of this kind is copied to the device, and has
///
///   static constexpr bool kEnabled   whether there are sinks
///   logit(head)                      the sink of a query head, natural units; -inf is none
///   gradient()                       where its gradient goes: see Sink::dsinks
///
/// EarlierKeys are of this kind, too: one more term for each row, which has a value.
template <class K>
concept AttentionSink = std::is_trivially_copyable_v<K> &&
    (kIsEarlierKeys<K> || requires(const K& sink, int head) {
      { K::kEnabled } -> std::convertible_to<bool>;
      { sink.logit(head) } -> std::same_as<float>;
      { sink.gradient() } -> std::same_as<float*>;
    });

/// Is the sink that is not there: the scores alone are in the denominator. It costs nothing.
struct NoSink {
  static constexpr bool kEnabled = false;

  ATTILE_HOST_DEVICE static constexpr float logit(int) { return -kInf; }
  ATTILE_HOST_DEVICE static constexpr float* gradient() { return nullptr; }
};

/// Gives each query head a learned sink, as gpt-oss has it.
/// Shapes   sinks, dsinks: (q_heads), dense.
/// Units    natural logarithms: each sink is finite, of any size, or -inf, which is no sink.
template <Element T = float>
struct Sink {
  static constexpr bool kEnabled = true;

  const T* sinks = nullptr;
  /// The backward pass writes dsinks_h = -sum of exp(sink_h - LSE) (D - dLSE) over all rows of the
  /// head in all sequences: the same bits at every run, and zeros in a problem without rows. Null:
  /// not wanted. The forward pass does not use it.
  float* dsinks = nullptr;

  const char* fault() const {
    if (sinks == nullptr) return "Sink: sinks must not be null";
    return detail::misaligned(sinks) ? "Sink: sinks is not aligned to its element type" : nullptr;
  }

  /// Returns why the gradient cannot be written; null when it can. A policy need not have it.
  const char* gradient_fault() const {
    if (detail::misaligned(dsinks)) return "Sink: dsinks is not aligned to 4 bytes";
    const void* const input = sinks;
    return dsinks != nullptr && dsinks == input ? "Sink: dsinks is the memory of sinks" : nullptr;
  }

  ATTILE_HOST_DEVICE float logit(int head) const { return to_float(sinks[head]); }
  ATTILE_HOST_DEVICE constexpr float* gradient() const { return dsinks; }
};

}  // namespace attile
