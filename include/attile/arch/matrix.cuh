// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// Matrix instructions of a warp (compute capability 8.0, but where another one is named). All its
// lanes execute them together. The PTX ISA says which lane holds which element ("Matrix Fragments
// for mma.m16n8k16" and "mma.m16n8k8"), and tile/mma_operands.cuh repeats it.

namespace attile::arch {

/// Loads four 8 x 8 matrices of 16-bit elements. Lane i gives the address of row i % 8 of matrix
/// i / 8 (16 bytes, aligned), and gets in r[j] the elements 2 (i % 4) and 2 (i % 4) + 1 of row i /
/// 4 of matrix j. With 8 x 4 matrices of 32-bit elements it gets element i % 4 of row i / 4.
ATTILE_DEVICE void load_matrices(std::uint32_t (&r)[4], std::uint32_t shared) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
#else
  trap();
#endif
}

/// Loads four matrices as `load_matrices` does, each one of 16-bit elements transposed.
ATTILE_DEVICE void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t shared) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
#else
  trap();
#endif
}

/// Loads two matrices as the functions above load four, with the addresses of lanes 0 to 15. The
/// others give addresses, too, which are not read.
ATTILE_DEVICE void load_matrices(std::uint32_t (&r)[2], std::uint32_t shared) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared)
               : "memory");
#else
  trap();
#endif
}
ATTILE_DEVICE void load_matrices_transposed(std::uint32_t (&r)[2], std::uint32_t shared) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared)
               : "memory");
#else
  trap();
#endif
}

/// Stores four 8 x 8 matrices of 16-bit elements (compute capability 9.0). Lane i gives the address
/// of row i % 8 of matrix i / 8 (16 bytes, aligned), and has the elements of each that
/// `load_matrices` would give it.
ATTILE_DEVICE void store_matrices(std::uint32_t shared, const std::uint32_t (&r)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
#else
  trap();
#endif
}

/// Adds A B to d with fp32 sums: A (16, 16), B (16, 8), d (16, 8); each word holds two elements of
/// T.
template <class T>
ATTILE_DEVICE void mma_m16n8k16(float& d0, float& d1, float& d2, float& d3,
                                const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

template <>
ATTILE_DEVICE void mma_m16n8k16<__half>(float& d0, float& d1, float& d2, float& d3,
                                        const std::uint32_t (&a)[4], std::uint32_t b0,
                                        std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  trap();
#endif
}

template <>
ATTILE_DEVICE void mma_m16n8k16<__nv_bfloat16>(float& d0, float& d1, float& d2, float& d3,
                                               const std::uint32_t (&a)[4], std::uint32_t b0,
                                               std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  trap();
#endif
}

/// Adds A B to d in TF32: A (16, 8), B (8, 8), d (16, 8). TF32 is fp32 without the last 13 bits,
/// which the instruction ignores. Sums are fp32, in an order and with roundings of the device:
/// terms may be truncated, towards zero, below the last bit of the largest.
ATTILE_DEVICE void mma_m16n8k8_tf32(float& d0, float& d1, float& d2, float& d3,
                                    const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  trap();
#endif
}

}  // namespace attile::arch
