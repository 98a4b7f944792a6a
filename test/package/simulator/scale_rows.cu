// SPDX-License-Identifier: MIT
// A kernel and its test in one file, for nvcc and for the simulated machine.
#include <attile/attile.cuh>
#include <attile/tile.cuh>

#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

namespace arch = attile::arch;

constexpr int kThreads = 64;

/// Divides each row of 64 numbers by its last one; one block for each row.
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 1) scale_rows(float* rows) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  float* const row = rows + arch::block_index() * kThreads;
  shared[i] = row[i];
  arch::barrier();  // the last number is written before anyone reads it
  row[i] = shared[i] / shared[kThreads - 1];
}

int main() {
  std::vector<float> numbers(3 * kThreads);
  for (int i = 0; i < 3 * kThreads; ++i) numbers[i] = static_cast<float>(i + 1);
  const std::size_t bytes = numbers.size() * sizeof numbers[0];
  float* rows = nullptr;
  if (cudaMalloc(&rows, bytes) != cudaSuccess) return 77;  // no GPU
  cudaMemcpy(rows, numbers.data(), bytes, cudaMemcpyHostToDevice);
  const cudaError_t launched = arch::launch(scale_rows, 3, kThreads, 256, nullptr, rows);
  cudaMemcpy(numbers.data(), rows, bytes, cudaMemcpyDeviceToHost);
  cudaFree(rows);
  const bool right = launched == cudaSuccess && cudaGetLastError() == cudaSuccess &&
                     numbers[0] == 1.0f / 64 && numbers[191] == 1.0f;
  std::printf("%s\n", right ? "right" : "wrong");
  return right ? 0 : 1;
}
