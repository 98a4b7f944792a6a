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

/// Each lane reads for itself what it gets, so that it has to be in order with who wrote it.
void load_matrices(std::uint32_t (&r)[4], std::uint32_t shared, bool transposed,
                   std::source_location at) {
  const void* const pc = __builtin_return_address(0);
  matrix_row(at_shared(shared), pc);
  const auto rows = exchange({shared}, at);
  const int lane = thread_index() % kWarpSize;
  for (int matrix = 0; matrix < 4; ++matrix) {
    unsigned char element[2][2];
    for (int e = 0; e < 2; ++e) {
      const int row = transposed ? lane % 4 * 2 + e : lane / 4;
      const int col = transposed ? lane / 4 : lane % 4 * 2 + e;
      const unsigned char* const p = at_shared((*rows)[matrix * 8 + row][0]) + 2 * col;
      matrix_element(p, 2, pc);
      std::memcpy(element[e], p, 2);
    }
    std::memcpy(&r[matrix], element, 4);
  }
}

namespace {

/// The sum of an instruction's terms: each cut off, towards zero, two bits below the last one that
/// fp32 has of the largest; then their sum, below its last bit. Devices differ in how far below
/// they cut, and in whether they add all terms at once or in two halves.
template <std::size_t kTerms>
float truncated_sum(const double (&terms)[kTerms]) {
  double largest = 0, plain_sum = 0;
  for (const double x : terms) {
    largest = std::max(largest, std::abs(x));
    plain_sum += x;
  }
  if (!std::isfinite(plain_sum)) return static_cast<float>(plain_sum);
  if (largest == 0) return 0.0f;
  // In units of that last bit, which are powers of two, the terms are whole numbers below 2^26.
  constexpr std::uint64_t kExponent = 0x7FF0'0000'0000'0000u;
  const double power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(largest) & kExponent);
  const double units = 0x1p25 / power;
  std::int64_t sum = 0;
  for (const double x : terms) sum += static_cast<std::int64_t>(x * units);
  const double exact = static_cast<double>(sum) * (power * 0x1p-25);
  const float rounded = static_cast<float>(exact);
  return std::abs(static_cast<double>(rounded)) > std::abs(exact) ? std::nextafter(rounded, 0.0f)
                                                                  : rounded;
}

}  // namespace

/// The products are exact.
void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  const float* values, std::source_location at) {
  const auto lanes = exchange({a[0], a[1], a[2], a[3], b[0], b[1]}, at);
  const int lane = thread_index() % kWarpSize;
  const auto element = [&](int of_lane, int word, int k) {
    return values[(*lanes)[of_lane][word] >> 16 * (k % 2) & 0xFFFFu];
  };
  float row[2][16], col[2][16];
  for (int k = 0; k < 16; ++k) {
    const int owner = k % 8 / 2;
    for (int i = 0; i < 2; ++i) {
      row[i][k] = element(lane / 4 * 4 + owner, k / 8 * 2 + i, k);
      col[i][k] = element((lane % 4 * 2 + i) * 4 + owner, 4 + k / 8, k);
    }
  }
  for (int i = 0; i < 4; ++i) {
    double terms[17] = {d[i]};
    for (int k = 0; k < 16; ++k) terms[k + 1] = double{row[i / 2][k]} * col[i % 2][k];
    d[i] = truncated_sum(terms);
  }
  if (lane == 0) count_flops(2 * 16 * 8 * 16);
}

/// The last 13 bits of operands are not looked at; the products are exact.
void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                      std::source_location at) {
  const auto lanes = exchange({a[0], a[1], a[2], a[3], b[0], b[1]}, at);
  const int lane = thread_index() % kWarpSize;
  const auto element = [&](int of_lane, int word) {
    return std::bit_cast<float>((*lanes)[of_lane][word] & 0xFFFFE000u);
  };
  float row[2][8], col[2][8];
  for (int k = 0; k < 8; ++k) {
    for (int i = 0; i < 2; ++i) {
      row[i][k] = element(lane / 4 * 4 + k % 4, k / 4 * 2 + i);
      col[i][k] = element((lane % 4 * 2 + i) * 4 + k % 4, 4 + k / 4);
    }
  }
  for (int i = 0; i < 4; ++i) {
    double terms[9] = {d[i]};
    for (int k = 0; k < 8; ++k) terms[k + 1] = double{row[i / 2][k]} * col[i % 2][k];
    d[i] = truncated_sum(terms);
  }
  if (lane == 0) count_flops(2 * 16 * 8 * 8);
}

}  // namespace sim
