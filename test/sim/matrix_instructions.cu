// SPDX-License-Identifier: MIT
// As instructions.cu, for the instructions of compute capability 8.0: asynchronous copies and
// matrices.
#include <attile/arch/async_copy.cuh>
#include <attile/arch/fp8.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/matrix.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/element.h>
#include <attile/core/fp8.h>

#include <cstdint>
#include <vector>

#include "../../examples/support.cuh"
#include "sim/instructions.h"

namespace {

namespace arch = attile::arch;
using namespace instructions;

/// Three groups of copies, of which the last two are waited for one by one; every fifth is zeros.
ATTILE_KERNEL void copies(std::uint32_t* out, const float* in) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  for (int group = 0; group < 3; ++group) {
    if (i < 16) {
      const int vector = group * 16 + i;
      arch::async_copy_16(arch::shared_address(shared + 4 * vector), in + 4 * (vector ^ 5),
                          vector % 5 != 0);
    }
    arch::async_copy_commit();
  }
  arch::async_copy_wait<2>();
  arch::barrier();
  out[i] = bits(shared[63 - i]);
  arch::async_copy_wait<1>();
  arch::barrier();
  out[64 + i] = bits(shared[64 + (63 - i)]);
  arch::async_copy_wait<0>();
  arch::barrier();
  out[128 + i] = bits(shared[128 + (63 - i)]);
}

/// Copies of single words; every fifth is zeros.
ATTILE_KERNEL void word_copies(std::uint32_t* out, const float* in) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  arch::async_copy_4(arch::shared_address(shared + i), in + (i ^ 5), i % 5 != 0);
  arch::async_copy_commit();
  arch::async_copy_wait<0>();
  arch::barrier();
  out[i] = bits(shared[63 - i]);
}

/// Four 8 x 8 matrices of the words' halves, as they are and transposed.
ATTILE_KERNEL void matrices(std::uint32_t* out, const float* in) {
  std::uint32_t* const shared = reinterpret_cast<std::uint32_t*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  for (int w = i; w < 128; w += 32) shared[w] = as<std::uint32_t>(in[w]);
  arch::barrier();
  const std::uint32_t row = arch::shared_address(shared + 4 * (i ^ 3));
  std::uint32_t r[4];
  arch::load_matrices(r, row);
  for (int m = 0; m < 4; ++m) out[m * 32 + i] = r[m];
  arch::load_matrices_transposed(r, row);
  for (int m = 0; m < 4; ++m) out[128 + m * 32 + i] = r[m];
}

/// The same of two matrices, with addresses of half of the lanes.
ATTILE_KERNEL void two_matrices(std::uint32_t* out, const float* in) {
  std::uint32_t* const shared = reinterpret_cast<std::uint32_t*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  for (int w = i; w < 64; w += 32) shared[w] = as<std::uint32_t>(in[w]);
  arch::barrier();
  const std::uint32_t row = arch::shared_address(shared + 4 * (i % 16 ^ 3));
  std::uint32_t r[2];
  arch::load_matrices(r, row);
  for (int m = 0; m < 2; ++m) out[m * 32 + i] = r[m];
  arch::load_matrices_transposed(r, row);
  for (int m = 0; m < 2; ++m) out[64 + m * 32 + i] = r[m];
}

/// Word w of a matrix of T: small whole numbers, whose sums are exact, or positive fractions.
template <class T>
ATTILE_DEVICE std::uint32_t operand(int w, bool whole, const float* in) {
  std::uint32_t word = 0;
  for (int e = 0; e < 2; ++e) {
    const int i = 2 * w + e;
    const float x = in[i] < 0.0f ? -in[i] : in[i];
    const T t = attile::from_float<T>(whole ? static_cast<float>(i * 37 % 31 - 15) : x);
    word |= static_cast<std::uint32_t>(as<std::uint16_t>(t)) << 16 * e;
  }
  return word;
}

/// Sixteen products, each added to the sum before.
template <class T, bool kWhole>
ATTILE_KERNEL void products(std::uint32_t* out, const float* in) {
  const int i = arch::thread_index();
  float d[4] = {0.0f, 1.0f, 2.0f, 3.0f};
  for (int step = 0; step < 16; ++step) {
    std::uint32_t a[4];
    for (int w = 0; w < 4; ++w) a[w] = operand<T>((w * 32 + i + step * 5) % 512, kWhole, in);
    const std::uint32_t b0 = operand<T>((128 + i + step * 11) % 512, kWhole, in);
    const std::uint32_t b1 = operand<T>((160 + i + step * 7) % 512, kWhole, in);
    arch::mma_m16n8k16<T>(d[0], d[1], d[2], d[3], a, b0, b1);
    for (int w = 0; w < 4; ++w) out[(step * 4 + w) * 32 + i] = bits(d[w]);
  }
}

/// The same in TF32; `in` has all 24 bits of fp32, of which the last 13 are not looked at.
template <bool kWhole>
ATTILE_KERNEL void tf32_products(std::uint32_t* out, const float* in) {
  const int i = arch::thread_index();
  const auto word = [&](int w) {
    const float whole = static_cast<float>(w * 37 % 31 - 15);
    return attile::word_of(kWhole ? whole : in[w] < 0.0f ? -in[w] : in[w]);
  };
  float d[4] = {0.0f, 1.0f, 2.0f, 3.0f};
  for (int step = 0; step < 16; ++step) {
    std::uint32_t a[4];
    for (int w = 0; w < 4; ++w) a[w] = word((w * 32 + i + step * 5) % 512);
    arch::mma_m16n8k8_tf32(d[0], d[1], d[2], d[3], a, word((128 + i + step * 11) % 512),
                           word((160 + i + step * 7) % 512));
    for (int w = 0; w < 4; ++w) out[(step * 4 + w) * 32 + i] = bits(d[w]);
  }
}

/// Products of fp8: small whole numbers, whose sums have no more than 14 bits.
template <class FA, class FB>
ATTILE_KERNEL void fp8_products(std::uint32_t* out, const float*) {
  const int i = arch::thread_index();
  const auto word = [&]<class F>(F, int w) {
    std::uint32_t bytes = 0;
    for (int e = 0; e < 4; ++e) {
      const F x = attile::from_float<F>(static_cast<float>((4 * w + e) * 37 % 7 - 3));
      bytes |= std::uint32_t{as<std::uint8_t>(x)} << 8 * e;
    }
    return bytes;
  };
  float d[4] = {0.0f, 1.0f, 2.0f, 3.0f};
  for (int step = 0; step < 16; ++step) {
    std::uint32_t a[4];
    for (int w = 0; w < 4; ++w) a[w] = word(FA(), (w * 32 + i + step * 5) % 512);
    const std::uint32_t b0 = word(FB(), (128 + i + step * 11) % 512);
    const std::uint32_t b1 = word(FB(), (160 + i + step * 7) % 512);
    arch::mma_m16n8k32<FA, FB>(d[0], d[1], d[2], d[3], a, b0, b1);
    for (int w = 0; w < 4; ++w) out[(step * 4 + w) * 32 + i] = bits(d[w]);
  }
}

/// The GPU adds in an order of its own, and may cut off each of a step's 17 terms, which are all
/// positive here, at 2^-24 of the largest: 16 steps bring less than 2^-16.
constexpr float kAnyOrder = 0x1p-16f;

}  // namespace

int main(int argc, char** argv) {
  if (!well_called(argc)) return 2;
  example::need_gpu();
  const std::vector<Result> results{
      run("cp.async", copies, 1, 64, 192),
      run("cp.async of words", word_copies, 1, 64, 64),
      run("ldmatrix", matrices, 1, 32, 256),
      run("ldmatrix of two", two_matrices, 1, 32, 128),
      run("mma fp16 exact", products<__half, true>, 1, 32, 2048),
      run("mma bf16 exact", products<__nv_bfloat16, true>, 1, 32, 2048),
      run("mma fp16", products<__half, false>, 1, 32, 2048, kAnyOrder),
      run("mma bf16", products<__nv_bfloat16, false>, 1, 32, 2048, kAnyOrder),
      run("mma e4m3 exact", fp8_products<__nv_fp8_e4m3, __nv_fp8_e4m3>, 1, 32, 2048),
      run("mma e4m3 e5m2 exact", fp8_products<__nv_fp8_e4m3, __nv_fp8_e5m2>, 1, 32, 2048),
      run("mma e5m2 e4m3 exact", fp8_products<__nv_fp8_e5m2, __nv_fp8_e4m3>, 1, 32, 2048),
      run("mma tf32 exact", tf32_products<true>, 1, 32, 2048),
      run("mma tf32", tf32_products<false>, 1, 32, 2048, kAnyOrder),
  };
  return write_and_compare(results, argc, argv);
}
