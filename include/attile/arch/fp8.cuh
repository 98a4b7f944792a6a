// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/matrix.cuh>
#include <attile/core/config.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

// Conversions of fp8 in words of four elements, as matrix instructions take their operands, and
// products of such words.

namespace attile::arch {

/// Returns bytes 0, 2, 1 and 3 of a word, in this order.
ATTILE_DEVICE std::uint32_t swap_middle_bytes(std::uint32_t word) {
  return __byte_perm(word, 0, 0x3120);
}

/// Returns bytes 0 and 2 of two words (kOdd: bytes 1 and 3), those of `low` first.
template <bool kOdd>
ATTILE_DEVICE std::uint32_t every_second_byte(std::uint32_t low, std::uint32_t high) {
  return __byte_perm(low, high, kOdd ? 0x7531 : 0x6420);
}

/// Rounds four numbers to fp8, the first one in byte 0. What is larger than the largest number
/// becomes that; a NaN stays one.
template <class F>
ATTILE_DEVICE std::uint32_t narrow(float x0, float x1, float x2, float x3) {
  constexpr __nv_fp8_interpretation_t kFormat =
      std::is_same_v<F, __nv_fp8_e4m3> ? __NV_E4M3 : __NV_E5M2;
  const std::uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(x0, x1), __NV_SATFINITE, kFormat);
  const std::uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(x2, x3), __NV_SATFINITE, kFormat);
  return low | high << 16;  // the second conversion's instruction does this
}

namespace detail {

/// Returns a word of four elements of e4m3 with each one's sign replaced by whether it is NaN.
/// kOneSum  beside a NaN others may become NaN. That saves an instruction.
template <bool kOneSum>
ATTILE_DEVICE std::uint32_t e4m3_nan_for_sign(std::uint32_t word) {
  if constexpr (kOneSum) {
    // The sum changes the first bit of a NaN's byte alone, but for the carry of 0xFF, which is NaN.
    return word ^ ((word + 0x01010101u) & 0x80808080u);
  } else {
    const std::uint32_t next = (word & 0x7F7F7F7Fu) + 0x01010101u;  // 0x80 of 0x7F, which is NaN
    std::uint32_t result;  // the first bit of each byte of `next`, the others of `word`
    asm("lop3.b32 %0, %1, %2, 0x80808080, 0xD8;" : "=r"(result) : "r"(word), "r"(next));
    return result;
  }
}

/// Returns elements kFirst and kSecond of a word of fp8, as fp16; exactly. NaN stays NaN.
/// kInUnit  they are in fp8_unit.  kOneSum  see e4m3_nan_for_sign.
template <class F, int kFirst, int kSecond, bool kInUnit, bool kOneSum>
ATTILE_DEVICE __half2 widen_by_integers(std::uint32_t word) {
  __half2 pair;
  if constexpr (std::is_same_v<F, __nv_fp8_e4m3>) {
    // Each half gets in its lower byte what e4m3_nan_for_sign makes of an element, and in its upper
    // byte copies of the sign (8 + a byte's number; those of `word` are 4 to 7). A shift takes the
    // element's bits to their places in fp16, and completes an exponent of ones with that of NaN.
    // The result is 2^-8 times the element, subnormal ones included.
    constexpr unsigned kSelector =
        kFirst | (8 + 4 + kFirst) << 4 | kSecond << 8 | (8 + 4 + kSecond) << 12;
    std::uint32_t bits;
    asm("prmt.b32 %0, %1, %2, %3;"
        : "=r"(bits)
        : "r"(e4m3_nan_for_sign<kOneSum>(word)), "r"(word), "n"(kSelector));
    bits = bits << 7 & 0xFF80FF80u;
    std::memcpy(&pair, &bits, sizeof pair);
    return kInUnit ? pair : __hmul2(pair, __float2half2_rn(256.0f));
  } else {
    const std::uint32_t upper = __byte_perm(word, 0, 0x0404 | kFirst << 4 | kSecond << 12);
    std::memcpy(&pair, &upper, sizeof pair);
    return pair;
  }
}

/// Returns the two elements of fp8 in half kHalf of a word, or with kApart elements kHalf and kHalf
/// + 2, as fp16; exactly.
template <class F, int kHalf, bool kApart, bool kInUnit>
ATTILE_DEVICE __half2 widen_to_half(std::uint32_t word) {
#if __CUDA_ARCH__ >= 890
  if constexpr (std::is_same_v<F, __nv_fp8_e4m3>) {
    const std::uint32_t neighbours = kApart ? swap_middle_bytes(word) : word;
    std::uint32_t bits;
    const auto elements = static_cast<std::uint16_t>(neighbours >> (16 * kHalf));
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(bits) : "h"(elements));
    __half2 pair;
    std::memcpy(&pair, &bits, sizeof pair);
    return pair;
  }
#endif
  constexpr int kFirst = kApart ? kHalf : 2 * kHalf;
  return widen_by_integers<F, kFirst, kFirst + (kApart ? 2 : 1), kInUnit, !kApart>(word);
}

/// Returns two elements of fp16 as T, in a word.
template <class T>
ATTILE_DEVICE std::uint32_t word_of_pair(__half2 pair) {
  std::uint32_t word;
  if constexpr (std::is_same_v<T, __half>) {
    std::memcpy(&word, &pair, sizeof word);
  } else {
    const __nv_bfloat162 converted = __float22bfloat162_rn(__half22float2(pair));
    std::memcpy(&word, &converted, sizeof word);
  }
  return word;
}

}  // namespace detail

/// Returns what numbers that `widen` makes with kInUnit count: 1 where the device has an
/// instruction that converts them, else a power of two that saves a multiplication.
template <class F>
ATTILE_DEVICE constexpr float fp8_unit() {
#if __CUDA_ARCH__ >= 890
  return 1.0f;
#else
  return std::is_same_v<F, __nv_fp8_e4m3> ? 256.0f : 1.0f;
#endif
}

/// Converts four elements of fp8 to T, fp16 or bf16: those of bytes 0 and 1 of the word to `low`,
/// those of bytes 2 and 3 to `high`, or with kApart those of bytes 0 and 2, and of 1 and 3; the
/// first one in the lower half. It is exact; NaN stays NaN. With kInUnit they are in fp8_unit.
/// Without kApart the four are meant for the same sums: if one is NaN, another may become NaN too.
template <class F, class T, bool kApart = false, bool kInUnit = false>
ATTILE_DEVICE void widen(std::uint32_t word, std::uint32_t& low, std::uint32_t& high) {
  low = detail::word_of_pair<T>(detail::widen_to_half<F, 0, kApart, kInUnit>(word));
  high = detail::word_of_pair<T>(detail::widen_to_half<F, 1, kApart, kInUnit>(word));
}

/// Adds A B to d: A (16, 32) of elements of FA, B (32, 8) of elements of FB, d (16, 8). Each word
/// holds four elements of the depth: a lane's words are those of mma_m16n8k16, which hold two. From
/// compute capability 8.9 on it is one instruction; where that is made for fp8, on 8.9 and 12.0,
/// sums have 14 significant bits. Elsewhere it is two products of fp16, which the compiler makes of
/// the instruction for 9.0 and 10.0 and this function before; sums are fp32 then.
template <class FA, class FB>
ATTILE_DEVICE void mma_m16n8k32(float& d0, float& d1, float& d2, float& d3,
                                const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
#if __CUDA_ARCH__ >= 890
#define ATTILE_MMA_FP8(left, right)                           \
  asm("mma.sync.aligned.m16n8k32.row.col.f32." left "." right \
      ".f32 {%0, %1, %2, %3}, "                               \
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"         \
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)                \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  constexpr bool kLeft = std::is_same_v<FA, __nv_fp8_e4m3>;
  constexpr bool kRight = std::is_same_v<FB, __nv_fp8_e4m3>;
  if constexpr (kLeft && kRight) ATTILE_MMA_FP8("e4m3", "e4m3");
  if constexpr (kLeft && !kRight) ATTILE_MMA_FP8("e4m3", "e5m2");
  if constexpr (!kLeft && kRight) ATTILE_MMA_FP8("e5m2", "e4m3");
  if constexpr (!kLeft && !kRight) ATTILE_MMA_FP8("e5m2", "e5m2");
#undef ATTILE_MMA_FP8
#else
  // The depth of each product is that of one word of a lane: two words of fp16.
  const std::uint32_t b[2] = {b0, b1};
  ATTILE_UNROLL
  for (int i = 0; i < 2; ++i) {
    std::uint32_t left[4], right[2];
    widen<FA, __half>(a[2 * i], left[0], left[2]);
    widen<FA, __half>(a[2 * i + 1], left[1], left[3]);
    widen<FB, __half>(b[i], right[0], right[1]);
    mma_m16n8k16<__half>(d0, d1, d2, d3, left, right[0], right[1]);
  }
#endif
}

}  // namespace attile::arch
