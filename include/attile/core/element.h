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

/// Is satisfied by the element types of Q, K and V, which may have 8 bits.
template <class T>
concept InputElement = Element<T> || Fp8<T>;

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

namespace detail {

/// Names the element type of P and of converted elements of fp8: see Elements.
template <class Q, class V>
struct OperandOf {
  using type = Q;
};
template <Fp8 Q, class V>
struct OperandOf<Q, V> {
  using type = V;
};
template <Fp8 Q, Fp8 V>
struct OperandOf<Q, V> {
  using type = __half;
};

}  // namespace detail

/// Names the element types of Q, K, V and O, one for each role: O's is that of dO too, those of dQ,
/// dK and dV are Q's, K's and V's. With Q in fp8 O has no default. `kSums`: how sums of products P
/// V are kept where all of Q, K and V are in fp8.
template <InputElement TQ, InputElement TK = TQ, InputElement TV = TQ, Element TO = TQ,
          Fp8Sums kSums = Fp8Sums::kPromoted>
struct Elements {
  using Q = TQ;
  using K = TK;
  using V = TV;
  using O = TO;
  /// Whether Q, K and V have one type of 16 bits, or fp32.
  static constexpr bool kInputsEqual = Element<Q> && std::same_as<Q, K> && std::same_as<Q, V>;
  static constexpr bool kAllEqual = kInputsEqual && std::same_as<Q, O>;
  /// Whether K and V are in fp8, each in a type of its own, and Q has 16 bits, as O has, or O is
  /// fp32.
  static constexpr bool kFp8Cache = Fp8<K> && Fp8<V> && sizeof(Q) == sizeof(std::uint16_t) &&
                                    (std::same_as<Q, O> || std::same_as<O, float>);
  /// Whether Q and K are in fp8, each in a type of its own. V is in fp8, or has 16 bits, as O has
  /// then, or O is fp32.
  static constexpr bool kFp8Queries = Fp8<Q> && Fp8<K> &&
                                      (Fp8<V> || (sizeof(V) == sizeof(std::uint16_t) &&
                                                  (std::same_as<V, O> || std::same_as<O, float>)));
  /// Whether Q, K and V are in fp8, so that P may be multiplied in e4m3 (fp8_probability_log2).
  static constexpr bool kAllFp8 = kFp8Queries && Fp8<V>;
  static constexpr Fp8Sums kFp8Sums = kSums;
  static_assert(kSums == Fp8Sums::kPromoted || kAllFp8,
                "attile: Fp8Sums::kUnpromoted is for Q, K and V in fp8");
  /// The element type in which P is multiplied by V where that is not in fp8, and to which elements
  /// of fp8 are converted where they are not multiplied as they are: that of Q, or with Q in fp8
  /// that of V, or with V in fp8, too, fp16, which has all their numbers.
  using Operand = typename detail::OperandOf<Q, V>::type;
  /// Whether all are equal but for O, which is fp32.
  static constexpr bool kOnlyOutputIsFloat =
      kInputsEqual && !std::same_as<Q, O> && std::same_as<O, float>;
};

namespace detail {

template <class E>
inline constexpr bool kIsElements = false;
template <InputElement Q, InputElement K, InputElement V, Element O, Fp8Sums kSums>
inline constexpr bool kIsElements<Elements<Q, K, V, O, kSums>> = true;

template <class E>
struct AllRoles {
  static_assert(Element<E>,
                "attile: Q, K, V and O are of one type of float, __half and __nv_bfloat16; with "
                "fp8, name the type of each: Elements<Q, K, V, O>");
  using type = Elements<std::conditional_t<Element<E>, E, float>>;
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
template <InputElement T>
constexpr const char* element_name() {
  if constexpr (std::same_as<T, __nv_fp8_e4m3>) return "e4m3";
  if constexpr (std::same_as<T, __nv_fp8_e5m2>) return "e5m2";
  if constexpr (std::same_as<T, __half>) return "fp16";
  if constexpr (std::same_as<T, __nv_bfloat16>) return "bf16";
  return "fp32";
}

}  // namespace attile
