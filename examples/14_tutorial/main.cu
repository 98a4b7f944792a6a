// SPDX-License-Identifier: MIT
// Runs every step of the tutorial (docs/tutorial.md) against the CPU reference. A step that the
// device does not run says so, and is left out.
#include "step_1.cuh"
#include "step_2.cuh"
#include "step_3.cuh"
#include "step_4.cuh"
#include "step_5.cuh"
#include "step_6.cuh"
#include "step_7.cuh"

namespace {

/// Runs one step. Returns whether what it gives is right, or it cannot run here.
template <class T>
bool holds(const char* step, attile::Check (*run)(const tutorial::Problem<T>&, cudaStream_t),
           const tutorial::Problem<T>& problem) {
  problem.clear();
  const attile::Check ok = run(problem, nullptr);
  if (ok.error == cudaErrorNoKernelImageForDevice) {
    std::printf("%s: %s\n", step, ok.why);
    return true;
  }
  example::must(ok.error, step);
  example::must(cudaDeviceSynchronize(), step);
  return problem.check(step);
}

}  // namespace

int main() {
  example::need_gpu();
  const tutorial::Sizes sizes{.batch = 1, .q_heads = 2, .kv_heads = 1, .len = 333};
  const tutorial::Problem<float> in_fp32(sizes);
  const tutorial::Problem<__nv_bfloat16> in_bf16(sizes);
  bool ok = true;
  ok &= holds("step 1", tutorial::step_1::run, in_fp32);
  ok &= holds("step 2", tutorial::step_2::run, in_fp32);
  ok &= holds("step 3", tutorial::step_3::run, in_bf16);
  ok &= holds("step 4", tutorial::step_4::run, in_bf16);
  ok &= holds("step 5", tutorial::step_5::run, in_bf16);
  ok &= holds("step 6", tutorial::step_6::run, in_bf16);
  ok &= holds("step 7", tutorial::step_7::run, in_bf16);
  return ok ? 0 : 1;
}
