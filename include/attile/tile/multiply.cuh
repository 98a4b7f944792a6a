// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/fp8.cuh>
#include <attile/arch/matrix.cuh>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/products.h>

#include <cstdint>

namespace attile::tile {

/// Returns the right operand b with the order of the depth that a left operand of type A has.
template <class T, class A, class B>
ATTILE_DEVICE decltype(auto) facing(const B& b) {
  if constexpr (requires { typename B::template Facing<A::kPaired>; }) {
    return typename B::template Facing<A::kPaired>(b);
  } else {
    if constexpr (sizeof(T) == 4) {
      static_assert(!A::kPaired, "attile::tile: a paired left operand wants a right that follows");
    }
    return (b);
  }
}

/// Holds four words of fp32 as exact sums x = big + rest. `big` has TF32's 11 significant bits,
/// rounded to nearest so that `rest` has either sign; `rest` has at most 12, of which TF32
/// truncates the last. An infinity is inf + NaN.
struct SplitWords {
  std::uint32_t big[4], rest[4];

  SplitWords() = default;
  /// Splits a piece of an operand.
  template <class Operand>
  ATTILE_DEVICE SplitWords(const Operand& operand, int first, int second) {
    std::uint32_t x[4];
    operand.piece(x, first, second);
    ATTILE_UNROLL
    for (int w = 0; w < 4; ++w) {
      big[w] = (x[w] + 0x1000u) & 0xFFFFE000u;
      rest[w] = word_of(float_of(x[w]) - float_of(big[w]));
    }
  }
};

/// Rounds words of fp32 to TF32; the instruction ignores what remains in the last 13 bits. A NaN is
/// left as it is, because the rounding would carry some NaNs into the sign.
ATTILE_DEVICE void round_to_tf32(std::uint32_t (&words)[4]) {
  ATTILE_UNROLL
  for (std::uint32_t& x : words) x = float_of(x) == float_of(x) ? x + 0x1000u : x;
}

/// Adds A B to d, for a 16 x 8 piece of A and the left or right half of an 8 x 16 piece of B.
ATTILE_DEVICE void add_product(float (&d)[4], const std::uint32_t (&a)[4],
                               const std::uint32_t (&b)[4], int half) {
  arch::mma_m16n8k8_tf32(d[0], d[1], d[2], d[3], a, b[2 * half], b[2 * half + 1]);
}

/// Adds A B to d by one instruction, for a 16 x kStepDepth piece of A and a kStepDepth x 8 piece of
/// B. Right: the right operand's type, whose elements may be another type of fp8 than T.
template <class T, class Right>
ATTILE_DEVICE void add_step(float& d0, float& d1, float& d2, float& d3, const std::uint32_t (&a)[4],
                            std::uint32_t b0, std::uint32_t b1) {
  if constexpr (sizeof(T) == 4) {
    arch::mma_m16n8k8_tf32(d0, d1, d2, d3, a, b0, b1);
  } else if constexpr (Fp8<T>) {
    arch::mma_m16n8k32<T, typename Right::Element>(d0, d1, d2, d3, a, b0, b1);
  } else {
    arch::mma_m16n8k16<T>(d0, d1, d2, d3, a, b0, b1);
  }
}

/// Loads a piece of a right operand whose elements are T, or are converted to it.
template <class T, class B>
ATTILE_DEVICE void load_right(const B& b, std::uint32_t (&words)[4], int k, int j) {
  if constexpr (requires { b.template piece<T>(words, k, j); }) {
    b.template piece<T>(words, k, j);
  } else {
    b.piece(words, k, j);
  }
}

/// Is the kLaneColumns of a result with a right operand of type B.
template <class B>
inline constexpr int kResultLaneColumns = [] {
  if constexpr (requires { B::kLaneColumns; }) return int{B::kLaneColumns};
  return 2;
}();

/// Refuses, in words, operands that no product has.
template <class Acc, class A, class B>
struct MultiplyOperands {
  static_assert(
      requires { A::kDepth; } && requires { B::kDepth; },
      "attile::tile::multiply: an operand is a SharedLeft, a RegisterLeft, a SharedRight "
      "or the like, which reads a tile, and not the tile itself");
  static_assert(A::kDepth <= B::kDepth && Acc::kCols <= B::kCols,
                "attile::tile::multiply: a is (rows, depth), b is (depth, columns); of a tile that "
                "is (columns, depth), as K is, b is a SharedRightTransposed");
  static constexpr bool kValid = true;
};

/// Adds A B to acc; fp32 takes one product of operands rounded to TF32. The pieces of one step of
/// the depth are loaded while those of the step before are multiplied.
///   tile::multiply<T>(s_frag, tile::SharedLeft(q_smem, Scores::warp_row()),
///                     tile::SharedRightTransposed(k_smem));
/// Scope    all lanes of a warp, each for the elements that it holds; the operands are visible to
///          the warp.
template <class T, Products kProducts = Products::k3xTf32, class Acc, class A, class B>
  requires(sizeof(T) <= 2 || kProducts == Products::k1xTf32)
ATTILE_DEVICE void multiply(Acc& acc, const A& a, const B& b) {
  static_assert(MultiplyOperands<Acc, A, B>::kValid, "attile::tile::multiply: wrong operands");
  constexpr int kDown = Acc::kWarpRows / 16;
  constexpr int kAlong = Acc::kWarpCols / 16;
  static_assert(Acc::kLaneColumns == kResultLaneColumns<B>,
                "attile::tile::multiply: the result of V in fp8, and of no other right operand, is "
                "an MmaTile whose lanes have 4 neighbouring columns");
  const auto& right_operand = facing<T, A>(b);
  ATTILE_UNROLL
  for (int k = 0; k < A::kDepth / kStepDepth<T>; ++k) {
    std::uint32_t left[kDown][4];
    ATTILE_UNROLL
    for (int i = 0; i < kDown; ++i) {
      a.piece(left[i], i, k);
      if constexpr (sizeof(T) == 4) round_to_tf32(left[i]);
    }
    ATTILE_UNROLL
    for (int j = 0; j < kAlong; ++j) {
      std::uint32_t right[4];
      load_right<T>(right_operand, right, k, j);
      if constexpr (sizeof(T) == 4) round_to_tf32(right);
      ATTILE_UNROLL
      for (int i = 0; i < kDown; ++i) {
        float(&top)[Acc::kRegCols] = acc.x[2 * i];
        float(&bottom)[Acc::kRegCols] = acc.x[2 * i + 1];
        ATTILE_UNROLL
        for (int h = 0; h < 2; ++h) {
          const int first = 4 * j + 2 * h, second = first + 1;
          add_step<T, B>(top[first], top[second], bottom[first], bottom[second], left[i],
                         right[2 * h], right[2 * h + 1]);
        }
      }
    }
  }
}

/// Adds A B to acc for fp32, by three products in TF32: big big + (big rest + rest big). The
/// product of the rests is left out, and so is one bit of each rest: each product is within 2^-21
/// of its value. The instructions truncate their sums towards zero; therefore the sums are short,
/// begin with the small products, and are added to `acc` by ordinary additions, which round.
/// Scope    as above. The order of the depth is that of A::kPaired.
template <class T, Products kProducts = Products::k3xTf32, class Acc, class A, class B>
  requires(sizeof(T) == 4 && kProducts == Products::k3xTf32)
ATTILE_DEVICE void multiply(Acc& acc, const A& a, const B& b) {
  static_assert(MultiplyOperands<Acc, A, B>::kValid, "attile::tile::multiply: wrong operands");
  constexpr int kDown = Acc::kWarpRows / 16;
  constexpr int kAlong = Acc::kWarpCols / 16;
  constexpr int kSteps = 2;  // the steps of the depth in one sum
  static_assert(A::kDepth % (kSteps * kStepDepth<T>) == 0,
                "attile::tile::multiply: the depth must be a multiple of 16");
  // Registers are addressed by constants, so operands in registers need a fully unrolled loop. The
  // others take one sum at a time: two together need registers that the accumulators beside them
  // have (backward, up to 512 bytes of spills).
  [[maybe_unused]] constexpr int kUnroll = A::kInRegisters ? A::kDepth : 1;
  const auto& right_operand = facing<T, A>(b);
  ATTILE_UNROLL_BY(kUnroll)
  for (int k0 = 0; k0 < A::kDepth / kStepDepth<T>; k0 += kSteps) {
    SplitWords left[kSteps][kDown];
    ATTILE_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      ATTILE_UNROLL
      for (int i = 0; i < kDown; ++i) left[k][i] = SplitWords(a, i, k0 + k);
    }
    ATTILE_UNROLL
    for (int j = 0; j < kAlong; ++j) {
      float sum[kDown][2][4] = {};
      SplitWords right[kSteps];
      ATTILE_UNROLL
      for (int k = 0; k < kSteps; ++k) {
        right[k] = SplitWords(right_operand, k0 + k, j);
        ATTILE_UNROLL
        for (int i = 0; i < 2 * kDown; ++i) {
          add_product(sum[i / 2][i % 2], left[k][i / 2].rest, right[k].big, i % 2);
          add_product(sum[i / 2][i % 2], left[k][i / 2].big, right[k].rest, i % 2);
        }
      }
      ATTILE_UNROLL
      for (int k = 0; k < kSteps; ++k) {
        ATTILE_UNROLL
        for (int i = 0; i < 2 * kDown; ++i) {
          add_product(sum[i / 2][i % 2], left[k][i / 2].big, right[k].big, i % 2);
        }
      }
      ATTILE_UNROLL
      for (int i = 0; i < 2 * kDown; ++i) {
        ATTILE_UNROLL
        for (int e = 0; e < 4; ++e) {
          acc.x[i / 2 * 2 + e / 2][4 * j + i % 2 * 2 + e % 2] += sum[i / 2][i % 2][e];
        }
      }
    }
  }
}

}  // namespace attile::tile
