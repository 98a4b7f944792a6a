// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/arch/bulk_tensor.cuh>

#include <cuda_runtime.h>

// The simulated counterpart of include/attile/arch/tensor_map.cuh; refuses what the driver does.

namespace attile::arch {

[[nodiscard]] inline cudaError_t make_map(TensorMap& map, const BoxedTensor& tensor) {
  const auto row_bytes = tensor.box[0] * tensor.stride_bytes[0];
  if (!boxable(tensor) || (row_bytes != 32 && row_bytes != 64 && row_bytes != 128)) {
    return cudaErrorNotSupported;
  }
  for (const int elements : tensor.box) {
    if (elements < 1 || elements > 256) return cudaErrorNotSupported;
  }
  map.tensor = tensor;
  return cudaSuccess;
}

}  // namespace attile::arch
