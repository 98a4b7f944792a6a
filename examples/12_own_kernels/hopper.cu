// SPDX-License-Identifier: MIT
// A kernel of one's own on wgmma and TMA, against the CPU reference.
#include "hopper_kernel.cuh"

int main() {
  example::need_gpu();
  const own::Problem problem({.batch = 1, .q_heads = 4, .kv_heads = 2, .len = 333});
  if (const attile::Check ok = own::hopper::launch(problem); !ok) {
    std::fprintf(stderr, "own kernel: %s\n", *ok.why ? ok.why : cudaGetErrorString(ok.error));
    return ok.error == cudaErrorNoKernelImageForDevice ? example::kSkipped : 1;
  }
  example::must(cudaDeviceSynchronize(), "the kernel");
  return problem.check() ? 0 : 1;
}
