// SPDX-License-Identifier: MIT
// Small kernels over every function of arch/ that computes or orders something, for a GPU and for
// the simulated machine: both have to give the same bits.
#include <attile/arch/atomic.cuh>
#include <attile/arch/fp8.cuh>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/core/vec.h>

#include <cstdint>
#include <vector>

#include "../../examples/support.cuh"
#include "sim/instructions.h"

namespace {

namespace arch = attile::arch;

using namespace instructions;

template <class T>
ATTILE_DEVICE std::uint32_t bits_of_16(T x) {
  const float y = attile::to_float(x);
  return y != y ? kNan : as<std::uint16_t>(x);
}

// ---- threads ------------------------------------------------------------------------------------

ATTILE_KERNEL void indices(std::uint32_t* out, const float*) {
  const int i = arch::block_index() * 64 + arch::thread_index();
  out[i] = static_cast<std::uint32_t>(arch::block_index() << 16 | arch::thread_index());
}

ATTILE_KERNEL void shuffles(std::uint32_t* out, const float* in) {
  const int i = arch::thread_index();
  const int lane = i % arch::kWarpSize;
  const unsigned half = lane < 16 ? 0x0000FFFFu : 0xFFFF0000u;
  int at = i;
  for (int mask = 1; mask < arch::kWarpSize; mask *= 2, at += 64) {
    out[at] = bits(arch::shuffle_xor(in[i], mask));
  }
  out[at] = bits(arch::shuffle_xor(in[i], 31));
  out[at += 64] = bits(arch::shuffle_xor(in[i], 5, half));
  out[at += 64] = bits(arch::shuffle(in[i], (7 * lane + 3) % arch::kWarpSize));
}

ATTILE_KERNEL void votes(std::uint32_t* out, const float* in) {
  const int i = arch::thread_index();
  const int lane = i % arch::kWarpSize;
  const unsigned half = lane < 16 ? 0x0000FFFFu : 0xFFFF0000u;
  out[i] = static_cast<std::uint32_t>(arch::first_lane(in[i] > 1.0f));
  out[i + 64] = static_cast<std::uint32_t>(arch::first_lane(false));
  out[i + 128] = static_cast<std::uint32_t>(arch::first_lane(lane >= 20, half));
  out[i + 192] = arch::any_lane(in[i] > 2.0f) ? 1u : 0u;
  out[i + 256] = arch::any_lane(lane >= 20, half) ? 1u : 0u;
}

// ---- barriers: each number goes to another thread -----------------------------------------------

ATTILE_KERNEL void barriers(std::uint32_t* out, const float* in) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  shared[i] = in[i];
  arch::barrier();
  out[i] = bits(shared[i ^ 63]);
  arch::barrier();
  shared[i] = in[i] + 1.0f;
  arch::warp_barrier();
  out[i + 64] = bits(shared[i ^ 31]);
  arch::warp_barrier();
  shared[i] = in[i] + 2.0f;
  arch::warp_barrier(i % 32 < 16 ? 0x0000FFFFu : 0xFFFF0000u);
  out[i + 128] = bits(shared[i ^ 15]);
}

/// Warps 0 and 1 produce, warps 2 and 3 consume: barrier 1 says full, 2 empty.
ATTILE_KERNEL void named_barriers(std::uint32_t* out, const float* in) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_index() % 64;
  const bool produces = arch::thread_index() < 64;
  for (int step = 0; step < 4; ++step) {
    if (produces) {
      if (step > 0) arch::barrier(2, 128);
      shared[i] = in[step * 64 + i];
      arch::barrier_arrive(1, 128);
    } else {
      arch::barrier(1, 128);
      out[step * 64 + i] = bits(shared[63 - i]);
      if (step < 3) arch::barrier_arrive(2, 128);
    }
  }
}

/// Of each two warps, what any of their threads says.
ATTILE_KERNEL void barrier_votes(std::uint32_t* out, const float* in) {
  const int i = arch::thread_index();
  const int pair = 1 + i / 64;
  for (int step = 0; step < 4; ++step) {
    const bool mine = step == 0 ? i == 70 : in[step * 128 + i] > 1.25f * static_cast<float>(step);
    out[step * 128 + i] = arch::barrier_any(pair, 64, mine) ? 1u : 0u;
  }
}

// ---- device memory ------------------------------------------------------------------------------

ATTILE_KERNEL void atomics(std::uint32_t* out, const float*) {
  const int i = arch::thread_index();
  arch::atomic_add(reinterpret_cast<float*>(out), static_cast<float>(i + 1));
  arch::fetch_add(reinterpret_cast<int*>(out) + 1, i + 1);
  if (arch::block_index() != 0 || i != 0) return;
  for (int step = 0; step < 4; ++step) {
    out[3 + step] =
        static_cast<std::uint32_t>(arch::fetch_add(reinterpret_cast<int*>(out) + 2, 5 - 3 * step));
  }
}

/// Block b waits for block b - 1 and goes on from its numbers.
ATTILE_KERNEL void messages(std::uint32_t* out, const float* in) {
  int* const flags = reinterpret_cast<int*>(out) + 256;
  const int i = arch::thread_index();
  const int block = arch::block_index();
  if (block > 0 && i == 0) {
    while (arch::load_acquire(flags + block - 1) == 0) {
    }
  }
  arch::barrier();
  const float before = block > 0 ? as<float>(out[(block - 1) * 64 + (i ^ 63)]) : in[i];
  out[block * 64 + i] = as<std::uint32_t>(before + 1.0f);
  arch::barrier();
  if (i == 0) arch::store_release(flags + block, 1);
}

/// Through shared memory and back, N at a time.
template <int N, class T>
ATTILE_DEVICE void move(T* out, const T* in) {
  T* const shared = reinterpret_cast<T*>(arch::dynamic_shared());
  const int i = arch::thread_index() * N;
  const attile::Vec<T, N> x = arch::load<N>(in + i);
  arch::store(shared + i, x);
  arch::barrier();
  arch::store(out + i, arch::load<N>(shared + (64 * N - N - i)));
  arch::barrier();
}

template <class T>
ATTILE_KERNEL void vectors(std::uint32_t* out, const float* in) {
  const T* const from = reinterpret_cast<const T*>(in);
  T* const to = reinterpret_cast<T*>(out);
  move<1>(to, from);
  move<2>(to + 64, from + 64);
  move<4>(to + 192, from + 192);
  if constexpr (sizeof(T) == 2) move<8>(to + 448, from + 448);
}

// ---- kernels ------------------------------------------------------------------------------------

/// Long after the kernel behind may begin, as it has room beside these blocks.
ATTILE_KERNEL void late_numbers(std::uint32_t* out, const float* in) {
  const int i = arch::block_index() * 64 + arch::thread_index();
  arch::launch_dependents();
  std::uint32_t x = bits(in[i]);
  for (int step = 0; step < 20000; ++step) x = x * 1664525u + (x >> 16);
  out[i] = x;
}

/// Thread 0 of a block awaits them, and tells the others.
ATTILE_KERNEL void numbers_behind(std::uint32_t* out, const std::uint32_t* in) {
  const int block = arch::block_index();
  const int i = arch::thread_index();
  if (i == 0) arch::await_dependencies();
  arch::barrier();
  out[block * 64 + i] = in[(2 - block) * 64 + 63 - i];
}

Result dependent_kernels() {
  const char* const name = "dependent kernels";
  const example::DeviceArray<float> in(example::normal<float>(192, 1));
  const example::DeviceArray<std::uint32_t> late{Words(192)}, out{Words(192)};
  const float* const from = in.get();
  const std::uint32_t* const numbers = late.get();
  example::must(arch::launch(late_numbers, 3, 64, 0, nullptr, late.get(), from), name);
  example::must(arch::launch_dependent(numbers_behind, 3, 64, 0, nullptr, out.get(), numbers),
                name);
  example::must(cudaDeviceSynchronize(), name);
  return {name, out.download(), 0.0f};
}

// ---- numbers ------------------------------------------------------------------------------------

constexpr int kPatterns = 1 << 16;

/// Float i of kPatterns that are spread over all of them, with the neighbourhood of halves.
ATTILE_DEVICE float pattern(int i) {
  const std::uint32_t spread = static_cast<std::uint32_t>(i) * 65536u;
  return as<float>(spread + (i % 7 == 0   ? 0u
                             : i % 7 == 1 ? 0x1000u
                             : i % 7 == 2 ? 0x8000u
                                          : static_cast<std::uint32_t>(i) * 40503u % 65536u));
}

template <class T>
ATTILE_KERNEL void conversions(std::uint32_t* out, const float*) {
  const int i = arch::block_index() * 64 + arch::thread_index();
  out[i] = bits(attile::to_float(as<T>(static_cast<std::uint16_t>(i))));
  out[kPatterns + i] = bits_of_16(attile::from_float<T>(pattern(i)));
}

/// All codes, and numbers of every size.
template <class F>
ATTILE_KERNEL void fp8_conversions(std::uint32_t* out, const float*) {
  const int i = arch::block_index() * 64 + arch::thread_index();
  if (i < 256) out[kPatterns + i] = bits(attile::to_float(as<F>(static_cast<std::uint8_t>(i))));
  out[i] = as<std::uint8_t>(attile::from_float<F>(pattern(i)));
}

/// All codes in words of four, as T; and the quotients that append stores.
template <class F, class T>
ATTILE_KERNEL void fp8_words(std::uint32_t* out, const float* in) {
  const int i = arch::thread_index();
  std::uint32_t word = 0, pairs[2];
  for (int e = 0; e < 4; ++e) word |= static_cast<std::uint32_t>(4 * i + e) << 8 * e;
  const auto write = [&](int first) {
    for (int e = 0; e < 4; ++e) {
      const auto element = static_cast<std::uint16_t>(pairs[e / 2] >> 16 * (e % 2));
      out[first + 4 * i + e] = bits_of_16(as<T>(element));
    }
  };
  arch::widen<F, T>(word, pairs[0], pairs[1]);
  write(0);
  arch::widen<F, T, true>(word, pairs[0], pairs[1]);
  write(1280);
  out[256 + i] = arch::swap_middle_bytes(word);
  for (int e = 0; e < 15; ++e) {
    out[320 + 15 * i + e] = bits(arch::divide(in[i + 64 * e], in[i + 64 * e + 1]));
  }
}

ATTILE_KERNEL void maxima(std::uint32_t* out, const float*) {
  constexpr int kCount = 10;
  constexpr std::uint32_t kNumbers[kCount] = {0u,          0x80000000u, 1u,          0x80000001u,
                                              0x3F800000u, 0xBF800000u, 0x7F800000u, 0xFF800000u,
                                              0x7F7FFFFFu, kNan};
  const int i = arch::block_index() * 64 + arch::thread_index();
  if (i >= kCount * kCount) return;
  out[i] = bits(arch::fmax(as<float>(kNumbers[i / kCount]), as<float>(kNumbers[i % kCount])));
}

ATTILE_KERNEL void exponentials(std::uint32_t* out, const float*) {
  const int i = arch::block_index() * 64 + arch::thread_index();
  out[i] = bits(arch::exp2(static_cast<float>(i - kPatterns / 2) * (256.0f / kPatterns) * 1.17f));
  out[kPatterns + i] = bits(arch::exp2(pattern(i)));
}

ATTILE_KERNEL void logarithms(std::uint32_t* out, const float*) {
  const int i = arch::block_index() * 64 + arch::thread_index();
  out[i] = bits(arch::log(static_cast<float>(i) / 4096.0f));
  out[kPatterns + i] = bits(arch::log(pattern(i)));
}

/// ex2.approx is an approximation, and so is each library's logarithm.
constexpr float kApproximate = 0x1p-21f;

}  // namespace

int main(int argc, char** argv) {
  if (!well_called(argc)) return 2;
  example::need_gpu();
  const unsigned all = kPatterns / 64;
  const std::vector<Result> results{
      run("indices", indices, 3, 64, 192),
      run("shuffles", shuffles, 1, 64, 512),
      run("votes", votes, 1, 64, 320),
      run("barriers", barriers, 1, 64, 192),
      run("named barriers", named_barriers, 1, 128, 256),
      run("barrier votes", barrier_votes, 1, 128, 512),
      run("atomics", atomics, 4, 64, 7),
      run("messages", messages, 4, 64, 260),
      dependent_kernels(),
      run("vectors fp16", vectors<__half>, 1, 64, 480),
      run("vectors fp32", vectors<float>, 1, 64, 448),
      run("fp16", conversions<__half>, all, 64, 2 * kPatterns),
      run("bf16", conversions<__nv_bfloat16>, all, 64, 2 * kPatterns),
      run("e4m3", fp8_conversions<__nv_fp8_e4m3>, all, 64, kPatterns + 256),
      run("e5m2", fp8_conversions<__nv_fp8_e5m2>, all, 64, kPatterns + 256),
      run("e4m3 as fp16", fp8_words<__nv_fp8_e4m3, __half>, 1, 64, 1536),
      run("e4m3 as bf16", fp8_words<__nv_fp8_e4m3, __nv_bfloat16>, 1, 64, 1536),
      run("e5m2 as fp16", fp8_words<__nv_fp8_e5m2, __half>, 1, 64, 1536),
      run("e5m2 as bf16", fp8_words<__nv_fp8_e5m2, __nv_bfloat16>, 1, 64, 1536),
      run("fmax", maxima, 2, 64, 100),
      run("exp2", exponentials, all, 64, 2 * kPatterns, kApproximate),
      run("log", logarithms, all, 64, 2 * kPatterns, kApproximate),
  };
  return write_and_compare(results, argc, argv);
}
