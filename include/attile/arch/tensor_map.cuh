// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/arch/bulk_tensor.cuh>

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace attile::arch {

namespace detail {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/// Returns the driver's cuTensorMapEncodeTiled without linking the driver's library; null where the
/// driver has none.
inline EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                               12000, cudaEnableDefault, &found);
#else
    const cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
#endif
    const bool there = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return there ? reinterpret_cast<EncodeTiled>(entry) : nullptr;
  }();
  return function;
}

}  // namespace detail

/// Makes the map of a boxable tensor of 16-bit or 8-bit elements whose boxes have the layout of
/// PanelLayout in shared memory: a row of box[0] elements takes 32, 64 or 128 bytes.
/// Errors   cudaErrorNotSupported where the driver has no tensor maps or refuses this one.
[[nodiscard]] inline cudaError_t make_map(TensorMap& map, const BoxedTensor& tensor) {
  const detail::EncodeTiled encode = detail::encode_tiled();
  if (encode == nullptr) return cudaErrorNotSupported;
  cuuint64_t size[5], stride[4];
  cuuint32_t box[5], step[5];
  for (int i = 0; i < 5; ++i) {
    size[i] = static_cast<cuuint64_t>(tensor.size[i]);
    box[i] = static_cast<cuuint32_t>(tensor.box[i]);
    step[i] = 1;
    // The driver checks the stride of a dimension with one element, although it is not used.
    const std::int64_t bytes = tensor.size[i] == 1 ? 16 : tensor.stride_bytes[i];
    if (i > 0) stride[i - 1] = static_cast<cuuint64_t>(bytes);
  }
  const int element_bytes = static_cast<int>(tensor.stride_bytes[0]);
  const int row_bytes = tensor.box[0] * element_bytes;
  const CUtensorMapDataType type =
      element_bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_UINT16;
  const CUtensorMapSwizzle swizzle = row_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                       : CU_TENSOR_MAP_SWIZZLE_32B;
  const CUresult result =
      encode(&map, type, 5, const_cast<void*>(tensor.data), size, stride, box, step,
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorNotSupported;
}

}  // namespace attile::arch
