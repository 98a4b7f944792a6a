// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/float_bits.h>
#include <attile/core/fp8.h>
#include <attile/core/vec.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <concepts>
#include <cstdint>
#include <cstring>

namespace attile {

/// Is satisfied by the element types of Q, K, V, O and their gradients.
template <class T>
concept Element =  // fp32, fp16, bf16
    std::same_as<T, float> || std::same_as<T, __half> || std::same_as<T, __nv_bfloat16>;

/// Is satisfied by the element types of K and V, which may lie in a cache of 8-bit elements.
template <class T>
concept CacheElement = Element<T> || Fp8<T>;

ATTILE_HOST_DEVICE float to_float(float x) { return x; }
ATTILE_HOST_DEVICE float to_float(__half x) { return __half2float(x); }
ATTILE_HOST_DEVICE float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

/// Rounds to nearest even.
template <Element T>
ATTILE_HOST_DEVICE T from_float(float x) {
  if constexpr (std::same_as<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::same_as<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else {
    return x;
  }
}

/// Returns two neighbours of a 16-bit type, rounded to nearest even by one instruction.
template <Element T>
ATTILE_HOST_DEVICE Vec<T, 2> from_floats(float x, float y) {
  if constexpr (std::same_as<T, __half>) {
    const __half2 pair = __floats2half2_rn(x, y);
    return {pair.x, pair.y};
  } else if constexpr (std::same_as<T, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return {pair.x, pair.y};
  } else {
    return {x, y};
  }
}

/// Returns the bits of two neighbours of a 16-bit type, the first one in the low half.
template <Element T>
  requires(sizeof(T) == 2)
ATTILE_HOST_DEVICE std::uint32_t word_of(const Vec<T, 2>& pair) {
  std::uint32_t word;
  std::memcpy(&word, &pair, sizeof word);
  return word;
}

/// Names the element types of Q, K, V and O, one for each role: O's is that of dO too, those of dQ,
/// dK and dV are Q's, K's and V's.
template <Element TQ, CacheElement TK = TQ, CacheElement TV = TQ, Element TO = TQ>
struct Elements {
  using Q = TQ;
  using K = TK;
  using V = TV;
  using O = TO;
  static constexpr bool kInputsEqual = std::same_as<Q, K> && std::same_as<Q, V>;
  static constexpr bool kAllEqual = kInputsEqual && std::same_as<Q, O>;
  /// Whether K and V are in fp8, each in a type of its own, and Q has 16 bits, as O has, or O is
  /// fp32.
  static constexpr bool kFp8Cache = Fp8<K> && Fp8<V> && sizeof(Q) == sizeof(std::uint16_t) &&
                                    (std::same_as<Q, O> || std::same_as<O, float>);
  /// Whether all are equal but for O, which is fp32.
  static constexpr bool kOnlyOutputIsFloat =
      kInputsEqual && !std::same_as<Q, O> && std::same_as<O, float>;
};

namespace detail {

template <class E>
inline constexpr bool kIsElements = false;
template <Element Q, CacheElement K, CacheElement V, Element O>
inline constexpr bool kIsElements<Elements<Q, K, V, O>> = true;

template <class E>
struct AllRoles {
  using type = Elements<E>;
};
template <class E>
  requires kIsElements<E>
struct AllRoles<E> {
  using type = E;
};

}  // namespace detail

/// Names the types of all roles: those of `Elements`, or one element type for all.
template <class E>
using ElementsOf = typename detail::AllRoles<E>::type;

/// Returns the name that error messages and programs print.
template <CacheElement T>
constexpr const char* element_name() {
  if constexpr (std::same_as<T, __nv_fp8_e4m3>) return "e4m3";
  if constexpr (std::same_as<T, __nv_fp8_e5m2>) return "e5m2";
  if constexpr (std::same_as<T, __half>) return "fp16";
  if constexpr (std::same_as<T, __nv_bfloat16>) return "bf16";
  return "fp32";
}

}  // namespace attile
