// SPDX-License-Identifier: MIT
// The matrix instructions of a warp. Lane -> element maps: PTX ISA, "Matrix Fragments for
// mma.m16n8k16", "mma.m16n8k8" and "ldmatrix".
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>

#include "sim/machine.h"

namespace sim {

namespace {

/// Each lane reads for itself what it gets, so that it has to be in order with who wrote it.
/// Addresses of lanes behind those of the matrices are not used.
template <int kCount>
void load_some_matrices(std::uint32_t (&r)[kCount], std::uint32_t shared, bool transposed,
                        const void* pc, std::source_location at) {
  const int lane = thread_index() % kWarpSize;
  if (lane < kCount * 8) matrix_row(at_shared(shared), Access::kRead, pc);
  const auto& rows = exchange({shared}, at);
  for (int matrix = 0; matrix < kCount; ++matrix) {
    unsigned char element[2][2];
    for (int e = 0; e < 2; ++e) {
      const int row = transposed ? lane % 4 * 2 + e : lane / 4;
      const int col = transposed ? lane / 4 : lane % 4 * 2 + e;
      const unsigned char* const p = at_shared(rows[matrix * 8 + row][0]) + 2 * col;
      matrix_element(p, 2, Access::kRead, pc);
      std::memcpy(element[e], p, 2);
    }
    std::memcpy(&r[matrix], element, 4);
  }
}

}  // namespace

void load_matrices(std::uint32_t (&r)[4], std::uint32_t shared, bool transposed,
                   std::source_location at) {
  load_some_matrices(r, shared, transposed, __builtin_return_address(0), at);
}
void load_matrices(std::uint32_t (&r)[2], std::uint32_t shared, bool transposed,
                   std::source_location at) {
  load_some_matrices(r, shared, transposed, __builtin_return_address(0), at);
}
void store_matrices(std::uint32_t shared, const std::uint32_t (&r)[4], std::source_location at) {
  const void* const pc = __builtin_return_address(0);
  matrix_row(at_shared(shared), Access::kWrite, pc);
  const auto& rows = exchange({shared}, at);
  const int lane = thread_index() % kWarpSize;
  for (int matrix = 0; matrix < 4; ++matrix) {
    unsigned char* const p = at_shared(rows[matrix * 8 + lane / 4][0]) + lane % 4 * 4;
    matrix_element(p, 4, Access::kWrite, pc);
    std::memcpy(p, &r[matrix], 4);
  }
}

namespace {

/// One number for each of the four sums of a lane.
using Doubles [[gnu::vector_size(4 * sizeof(double))]] = double;
using Words [[gnu::vector_size(4 * sizeof(std::int64_t))]] = std::int64_t;
using Ints [[gnu::vector_size(4 * sizeof(int))]] = int;

/// What a lane needs of the operands: two rows of the left one, two columns of the right one.
template <std::size_t kDepth>
struct Factors {
  double row[2][kDepth], col[2][kDepth];
};

/// Adds the products of factors, which are exact, to the sums. Each term is cut off, towards zero,
/// 2^-kBits below the largest: two bits below the last one that fp32 has of that, or for fp8 less
/// far. Then their sum is cut off, below its last bit. Devices differ in how far below they cut,
/// and in whether they add all terms at once or in two halves.
template <int kBits = 25, std::size_t kDepth>
void multiply_add(float (&d)[4], const Factors<kDepth>& x) {
  constexpr std::int64_t kExponent = 0x7FF0'0000'0000'0000, kMagnitude = 0x7FFF'FFFF'FFFF'FFFF;
  Doubles terms[kDepth + 1] = {{d[0], d[1], d[2], d[3]}};
  for (std::size_t k = 0; k < kDepth; ++k) {
    terms[k + 1] = Doubles{x.row[0][k], x.row[0][k], x.row[1][k], x.row[1][k]} *
                   Doubles{x.col[0][k], x.col[1][k], x.col[0][k], x.col[1][k]};
  }
  Doubles plain_sum{};
  Words largest{};  // the bits of magnitudes have the order of the magnitudes
  for (const Doubles& term : terms) {
    plain_sum += term;
    const Words magnitude = reinterpret_cast<Words>(term) & kMagnitude;
    largest = magnitude > largest ? magnitude : largest;
  }
  // In units of that last bit, which are powers of two, the terms are whole numbers below
  // 2^(kBits + 1).
  static_assert(kDepth + 1 < (1u << (30 - kBits)), "the sum of so many of them is an int");
  constexpr double kUnits = 1 << kBits;
  const Doubles power = reinterpret_cast<Doubles>(largest & kExponent);
  const Doubles units = kUnits / power;
  Ints sum{};
  for (const Doubles& term : terms) sum += __builtin_convertvector(term * units, Ints);
  const Doubles exact = __builtin_convertvector(sum, Doubles) * (power / kUnits);
  for (int i = 0; i < 4; ++i) {
    const bool is_number = largest[i] != 0 && largest[i] < kExponent;
    d[i] = static_cast<float>(is_number ? exact[i] : plain_sum[i]);
    if (is_number && std::abs(double{d[i]}) > std::abs(exact[i])) d[i] = std::nextafter(d[i], 0.0f);
  }
}

}  // namespace

void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  const float* values, std::source_location at) {
  const auto& lanes = exchange({a[0], a[1], a[2], a[3], b[0], b[1]}, at);
  const int lane = thread_index() % kWarpSize;
  Factors<16> x;
  for (int owner = 0; owner < 4; ++owner) {
    for (int i = 0; i < 2; ++i) {
      const Operands& left = lanes[lane / 4 * 4 + owner];
      const Operands& right = lanes[(lane % 4 * 2 + i) * 4 + owner];
      for (int k = 0; k < 4; ++k) {
        const int at_k = k / 2 * 8 + owner * 2 + k % 2;
        x.row[i][at_k] = values[left[k / 2 * 2 + i] >> 16 * (k % 2) & 0xFFFFu];
        x.col[i][at_k] = values[right[4 + k / 2] >> 16 * (k % 2) & 0xFFFFu];
      }
    }
  }
  multiply_add(d, x);
  if (lane == 0) count_flops(2 * 16 * 8 * 16);
}

/// Sums of fp8 have 14 bits, as those of compute capability 8.9 and 12.0 have.
void mma_m16n8k32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  const float* left_values, const float* right_values, std::source_location at) {
  const auto& lanes = exchange({a[0], a[1], a[2], a[3], b[0], b[1]}, at);
  const int lane = thread_index() % kWarpSize;
  Factors<32> x;
  for (int owner = 0; owner < 4; ++owner) {
    for (int i = 0; i < 2; ++i) {
      const Operands& left = lanes[lane / 4 * 4 + owner];
      const Operands& right = lanes[(lane % 4 * 2 + i) * 4 + owner];
      for (int k = 0; k < 8; ++k) {
        const int at_k = k / 4 * 16 + owner * 4 + k % 4;
        x.row[i][at_k] = left_values[left[k / 4 * 2 + i] >> 8 * (k % 4) & 0xFFu];
        x.col[i][at_k] = right_values[right[4 + k / 4] >> 8 * (k % 4) & 0xFFu];
      }
    }
  }
  multiply_add<13>(d, x);
  if (lane == 0) count_flops(2 * 16 * 8 * 32);
}

/// The last 13 bits of operands are not looked at.
void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                      std::source_location at) {
  const auto& lanes = exchange({a[0], a[1], a[2], a[3], b[0], b[1]}, at);
  const int lane = thread_index() % kWarpSize;
  const auto value = [](std::uint32_t word) { return std::bit_cast<float>(word & 0xFFFFE000u); };
  Factors<8> x;
  for (int owner = 0; owner < 4; ++owner) {
    for (int i = 0; i < 2; ++i) {
      const Operands& left = lanes[lane / 4 * 4 + owner];
      const Operands& right = lanes[(lane % 4 * 2 + i) * 4 + owner];
      for (int k = 0; k < 2; ++k) {
        x.row[i][k * 4 + owner] = value(left[k * 2 + i]);
        x.col[i][k * 4 + owner] = value(right[4 + k]);
      }
    }
  }
  multiply_add(d, x);
  if (lane == 0) count_flops(2 * 16 * 8 * 8);
}

}  // namespace sim
