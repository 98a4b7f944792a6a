// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/matrix.cuh>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/tile/mma_tile.cuh>

#include <cstdint>

namespace attile::tile {

/// The right operand for a left one of type A.
template <class A, class B>
ATTILE_DEVICE const B& facing(const B& b) {
  static_assert(!A::kPaired, "attile::tile: a paired left operand wants a right one that follows");
  return b;
}
template <class A, class Tile>
ATTILE_DEVICE auto facing(const SharedRight<Tile>& b) {
  return typename SharedRight<Tile>::template Facing<A::kPaired>(b);
}

/// Words of fp32 as sums, x = big + small, exactly: `big` has TF32's 11 significant bits, rounded
/// to nearest so that `small` has either sign, and `small` at most 12, of which TF32 cuts off the
/// last. An infinity is inf + NaN.
struct SplitWords {
  std::uint32_t big[4], small[4];

  SplitWords() = default;
  /// An operand's piece.
  template <class Operand>
  ATTILE_DEVICE SplitWords(const Operand& operand, int first, int second) {
    std::uint32_t x[4];
    operand.piece(x, first, second);
    ATTILE_UNROLL
    for (int w = 0; w < 4; ++w) {
      big[w] = (x[w] + 0x1000u) & 0xFFFFE000u;
      small[w] = word_of(float_of(x[w]) - float_of(big[w]));
    }
  }
};

/// Two neighbouring 16 x 8 pieces of a product of fp32, summed over a part of the depth. Products
/// of a small part, and those of two big ones, have their own sums: they round less.
struct SplitSum {
  float big[2][4], small[2][4];

  ATTILE_DEVICE SplitSum() {
    ATTILE_UNROLL
    for (int i = 0; i < 8; ++i) big[i / 4][i % 4] = small[i / 4][i % 4] = 0.0f;
  }
  /// += A B in three products; that of the two small parts is below fp32's last bit.
  ATTILE_DEVICE void add(const SplitWords& a, const SplitWords& b) {
    ATTILE_UNROLL
    for (int h = 0; h < 2; ++h) {
      step(small[h], a.small, b.big, h);
      step(small[h], a.big, b.small, h);
      step(big[h], a.big, b.big, h);
    }
  }
  ATTILE_DEVICE float operator()(int half, int i) const { return big[half][i] + small[half][i]; }

 private:
  ATTILE_DEVICE static void step(float (&d)[4], const std::uint32_t (&a)[4],
                                 const std::uint32_t (&b)[4], int half) {
    arch::mma_m16n8k8_tf32(d[0], d[1], d[2], d[3], a, b[2 * half], b[2 * half + 1]);
  }
};

/// acc += A B. The pieces of one step of the depth are on their way while those of the step before
/// are multiplied.
/// Scope    all lanes of a warp, each for what it holds; the operands are visible to it.
template <class T, class Acc, class A, class B>
  requires(sizeof(T) == 2)
ATTILE_DEVICE void multiply(Acc& acc, const A& a, const B& b) {
  constexpr int kDown = Acc::kWarpRows / 16;
  constexpr int kAlong = Acc::kWarpCols / 16;
  ATTILE_UNROLL
  for (int k = 0; k < A::kDepth / kStepDepth<T>; ++k) {
    std::uint32_t left[kDown][4];
    ATTILE_UNROLL
    for (int i = 0; i < kDown; ++i) a.piece(left[i], i, k);
    ATTILE_UNROLL
    for (int j = 0; j < kAlong; ++j) {
      std::uint32_t right[4];
      b.piece(right, k, j);
      ATTILE_UNROLL
      for (int i = 0; i < kDown; ++i) {
        float(&top)[Acc::kRegCols] = acc.x[2 * i];
        float(&bottom)[Acc::kRegCols] = acc.x[2 * i + 1];
        arch::mma_m16n8k16<T>(top[4 * j], top[4 * j + 1], bottom[4 * j], bottom[4 * j + 1], left[i],
                              right[0], right[1]);
        arch::mma_m16n8k16<T>(top[4 * j + 2], top[4 * j + 3], bottom[4 * j + 2], bottom[4 * j + 3],
                              left[i], right[2], right[3]);
      }
    }
  }
}

/// The same for fp32, with fp32's accuracy, by TF32 instructions. These cut off what does not fit
/// into their sums, always towards zero, so that their sums stay short: each is of 32 of the depth,
/// and added to `acc` by an ordinary, rounding addition.
template <class T, class Acc, class A, class B>
  requires(sizeof(T) == 4)
ATTILE_DEVICE void multiply(Acc& acc, const A& a, const B& b) {
  constexpr int kDown = Acc::kWarpRows / 16;
  constexpr int kAlong = Acc::kWarpCols / 16;
  constexpr int kSteps = A::kDepth / kStepDepth<float>;
  constexpr int kTogether = 4;  // steps
  const auto right = facing<A>(b);
  ATTILE_UNROLL
  for (int k0 = 0; k0 < kSteps; k0 += kTogether) {
    SplitWords left[kTogether][kDown];
    ATTILE_UNROLL
    for (int k = 0; k < min(kTogether, kSteps - k0); ++k) {
      ATTILE_UNROLL
      for (int i = 0; i < kDown; ++i) left[k][i] = SplitWords(a, i, k0 + k);
    }
    ATTILE_UNROLL
    for (int j = 0; j < kAlong; ++j) {
      SplitSum sum[kDown];
      ATTILE_UNROLL
      for (int k = 0; k < min(kTogether, kSteps - k0); ++k) {
        const SplitWords words(right, k0 + k, j);
        ATTILE_UNROLL
        for (int i = 0; i < kDown; ++i) sum[i].add(left[k][i], words);
      }
      ATTILE_UNROLL
      for (int i = 0; i < kDown; ++i) {
        ATTILE_UNROLL
        for (int e = 0; e < 8; ++e) {
          acc.x[2 * i + e / 2 % 2][4 * j + e / 4 * 2 + e % 2] += sum[i](e / 4, e % 4);
        }
      }
    }
  }
}

}  // namespace attile::tile
