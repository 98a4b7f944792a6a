// SPDX-License-Identifier: MIT
// Instead of gpu.cu: in attend where CMake's option ATTILE_ATTEND_GPU is off, and in attend_cpu.
#include "run.h"

namespace attend {

std::string why_no_gpu() {
  return "this program was built without its GPU part; CMake's -DATTILE_ATTEND_GPU=ON adds it";
}

std::string gpu_name() { return ""; }

template <class T>
Run run_on_gpu(const Problem&, Tensors<T>&, const Pace&) {
  throw npy::Error("The GPU has no part in this program.");
}

template Run run_on_gpu(const Problem&, Tensors<float>&, const Pace&);
template Run run_on_gpu(const Problem&, Tensors<__half>&, const Pace&);
template Run run_on_gpu(const Problem&, Tensors<__nv_bfloat16>&, const Pace&);

}  // namespace attend
