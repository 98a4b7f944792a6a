// SPDX-License-Identifier: MIT
// The matrix instructions of a warp. Lane -> element maps: PTX ISA, "Matrix Fragments for
// mma.m16n8k16" and "ldmatrix".
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

/// The products are exact; their sum is rounded once.
void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  ToFloat to_float, std::source_location at) {
  const auto lanes = exchange({a[0], a[1], a[2], a[3], b[0], b[1]}, at);
  const int lane = thread_index() % kWarpSize;
  const auto element = [&](int of_lane, int word, int k) {
    return static_cast<double>(
        to_float(static_cast<std::uint16_t>((*lanes)[of_lane][word] >> 16 * (k % 2))));
  };
  for (int i = 0; i < 4; ++i) {
    const int col = lane % 4 * 2 + i % 2;
    double sum = d[i];
    for (int k = 0; k < 16; ++k) {
      const int owner = k % 8 / 2;
      sum += element(lane / 4 * 4 + owner, k / 8 * 2 + i / 2, k) *
             element(col * 4 + owner, 4 + k / 8, k);
    }
    d[i] = static_cast<float>(sum);
  }
  if (lane == 0) count_flops(2 * 16 * 8 * 16);
}

}  // namespace sim
