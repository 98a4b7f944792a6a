// SPDX-License-Identifier: MIT
// Instead of gpu.cu, where CMake's option ATTILE_ATTEND_GPU is off.
#include "run.h"

namespace attend {

std::string why_no_gpu() { return "attend was built with ATTILE_ATTEND_GPU=OFF"; }

template <class T>
Run run_on_gpu(const Problem&, Tensors<T>&) {
  throw npy::Error("The GPU has no part in this program.");
}

template Run run_on_gpu(const Problem&, Tensors<float>&);
template Run run_on_gpu(const Problem&, Tensors<__half>&);
template Run run_on_gpu(const Problem&, Tensors<__nv_bfloat16>&);

}  // namespace attend
