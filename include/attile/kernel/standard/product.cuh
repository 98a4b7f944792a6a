// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/tensor.h>

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace attile::standard {

/// Returns a cuBLAS status as the error that the library's entry points return.
inline cudaError_t to_cuda_error(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return cudaSuccess;
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return cudaErrorInvalidResourceHandle;
    case CUBLAS_STATUS_ALLOC_FAILED:
      return cudaErrorMemoryAllocation;
    case CUBLAS_STATUS_INVALID_VALUE:
      return cudaErrorInvalidValue;
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return cudaErrorInvalidDeviceFunction;
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return cudaErrorLaunchFailure;
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return cudaErrorNotSupported;
    default:
      return cudaErrorUnknown;
  }
}

/// Sets on the caller's handle what a call needs, and restores it at the call's end: the stream,
/// host scalars, fp32 sums of unrounded operands (no TF32, no partial sums in 16 bits), and the
/// same order of them each time.
class HandleScope {
 public:
  HandleScope(cublasHandle_t handle, cudaStream_t stream) : handle_(handle) {
    keep(cublasGetStream(handle, &stream_));
    keep(cublasGetPointerMode(handle, &pointer_mode_));
    keep(cublasGetMathMode(handle, &math_mode_));
    keep(cublasGetAtomicsMode(handle, &atomics_mode_));
    if (error_ != cudaSuccess) return;
    active_ = true;
    // cublasSetStream, even with the same stream, takes the caller's workspace from the handle.
    moved_ = stream_ != stream;
    if (moved_) keep(cublasSetStream(handle, stream));
    keep(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST));
    keep(cublasSetMathMode(handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
    keep(cublasSetAtomicsMode(handle, CUBLAS_ATOMICS_NOT_ALLOWED));
  }
  HandleScope(const HandleScope&) = delete;
  HandleScope& operator=(const HandleScope&) = delete;
  ~HandleScope() {
    if (!active_) return;
    if (moved_) static_cast<void>(cublasSetStream(handle_, stream_));
    static_cast<void>(cublasSetPointerMode(handle_, pointer_mode_));
    static_cast<void>(cublasSetMathMode(handle_, math_mode_));
    static_cast<void>(cublasSetAtomicsMode(handle_, atomics_mode_));
  }

  cudaError_t error() const { return error_; }

 private:
  void keep(cublasStatus_t status) {
    if (error_ == cudaSuccess) error_ = to_cuda_error(status);
  }

  cublasHandle_t handle_;
  cudaStream_t stream_ = nullptr;
  cublasPointerMode_t pointer_mode_{};
  cublasMath_t math_mode_{};
  cublasAtomicsMode_t atomics_mode_{};
  cudaError_t error_ = cudaSuccess;
  bool active_ = false;
  bool moved_ = false;
};

/// Describes one row-major matrix for each (batch, kv head, query head of that kv head).
/// Units   elements.
template <class T>
struct Matrices {
  T* data;
  std::int64_t row_stride;
  std::int64_t stride[3];
};

/// Returns whether cuBLAS can read or write these rows where they are.
template <class T>
bool fits_product(const Tensor<T>& t, int batch, int heads, int rows, int dim) {
  if (batch == 0 || rows == 0) return true;
  return (rows == 1 || t.row_stride >= dim) && (heads == 1 || t.head_stride >= 0) &&
         (batch == 1 || t.batch_stride >= 0);
}

/// Describes a tensor with query heads; `group` of them share a kv head.
template <class T>
Matrices<T> per_q_head(const Tensor<T>& t, int rows, int dim, int group) {
  return {t.data,
          rows > 1 ? t.row_stride : dim,
          {t.batch_stride, group * t.head_stride, t.head_stride}};
}

/// Describes a tensor with kv heads: one matrix for all query heads of a kv head.
template <class T>
Matrices<T> per_kv_head(const Tensor<T>& t, int rows, int dim) {
  return {t.data, rows > 1 ? t.row_stride : dim, {t.batch_stride, t.head_stride, 0}};
}

/// Says which operands of op(A) op(B) are transposed: those with the letter T.
enum class Form { kNN, kNT, kTN };

/// Holds the sizes of a product: op(A) is rows x inner, op(B) inner x cols.
struct ProductSize {
  int rows, cols, inner;
};

template <Element T>
inline constexpr cudaDataType_t kCudaType = std::same_as<T, __half>          ? CUDA_R_16F
                                            : std::same_as<T, __nv_bfloat16> ? CUDA_R_16BF
                                                                             : CUDA_R_32F;

/// Computes the matrix products of one pass, over all its sequences and heads.
struct Products {
  cublasHandle_t handle;
  int batch, kv_heads, group;

  /// Computes C = alpha op(A) op(B) for every query head. Sums are fp32.
  /// Errors   those of cuBLAS, see `to_cuda_error`.
  template <Form kForm, class A, class B, class C>
  cudaError_t each_head(ProductSize size, float alpha, const Matrices<A>& a, const Matrices<B>& b,
                        const Matrices<C>& c) const {
    return multiply<kForm>(size, group, alpha, a, b, 0.0f, c);
  }

  /// Computes C = alpha * (the sum of op(A) op(B) over the query heads of a kv head) for every kv
  /// head. C of 16 bits would round each partial sum.
  template <Form kForm, class A, class B, class C>
  cudaError_t sum_of_group(ProductSize size, float alpha, Matrices<A> a, Matrices<B> b,
                           const Matrices<C>& c) const {
    for (int head = 0; head < group; ++head) {
      const float beta = head == 0 ? 0.0f : 1.0f;
      if (const auto error = multiply<kForm>(size, 1, alpha, a, b, beta, c)) return error;
      a.data += a.stride[2];
      b.data += b.stride[2];
    }
    return cudaSuccess;
  }

 private:
  /// Describes a run of equally spaced matrices.
  struct Axis {
    std::int64_t count = 1, a = 0, b = 0, c = 0;
  };

  /// Computes C = alpha op(A) op(B) + beta C along three axes. cuBLAS has one batch axis: two axes
  /// that one stride covers become one, the longest of those left is cuBLAS's own, and each step
  /// along the others is a call.
  template <Form kForm, class A, class B, class C>
  cudaError_t multiply(ProductSize size, int heads, float alpha, const Matrices<A>& a,
                       const Matrices<B>& b, float beta, const Matrices<C>& c) const {
    const std::int64_t counts[3] = {batch, kv_heads, heads};
    Axis axes[3];
    int n = 0;
    for (int i = 0; i < 3; ++i) {
      const Axis inner{counts[i], a.stride[i], b.stride[i], c.stride[i]};
      if (inner.count == 1) continue;
      const auto covers = [&](std::int64_t outer, std::int64_t stride) {
        return outer == inner.count * stride;
      };
      if (n > 0 && covers(axes[n - 1].a, inner.a) && covers(axes[n - 1].b, inner.b) &&
          covers(axes[n - 1].c, inner.c)) {
        axes[n - 1] = {axes[n - 1].count * inner.count, inner.a, inner.b, inner.c};
      } else {
        axes[n++] = inner;
      }
    }
    for (int i = 0; i < 2; ++i) {
      if (axes[i].count > axes[2].count) std::swap(axes[i], axes[2]);
    }
    // A grid has at most 65535 blocks along the axis of the batch.
    constexpr std::int64_t kMostAtOnce = 65535;
    for (std::int64_t i = 0; i < axes[0].count; ++i) {
      for (std::int64_t j = 0; j < axes[1].count; ++j) {
        for (std::int64_t k = 0; k < axes[2].count; k += kMostAtOnce) {
          const cublasStatus_t status = call<kForm>(
              size, alpha, a.data + i * axes[0].a + j * axes[1].a + k * axes[2].a, a.row_stride,
              axes[2].a, b.data + i * axes[0].b + j * axes[1].b + k * axes[2].b, b.row_stride,
              axes[2].b, beta, c.data + i * axes[0].c + j * axes[1].c + k * axes[2].c, c.row_stride,
              axes[2].c, min(kMostAtOnce, axes[2].count - k));
          if (status != CUBLAS_STATUS_SUCCESS) return to_cuda_error(status);
        }
      }
    }
    return cudaSuccess;
  }

  /// Calls cuBLAS, which takes column-major matrices: a row-major one is its transpose there, so
  /// that the product is C^T = op(B)^T op(A)^T.
  template <Form kForm, class A, class B, class C>
  cublasStatus_t call(ProductSize size, float alpha, const A* a, std::int64_t a_row,
                      std::int64_t a_step, const B* b, std::int64_t b_row, std::int64_t b_step,
                      float beta, C* c, std::int64_t c_row, std::int64_t c_step,
                      std::int64_t count) const {
    constexpr auto kAb = kCudaType<std::remove_const_t<A>>;
    static_assert(kAb == kCudaType<std::remove_const_t<B>>,
                  "attile::standard: A and B of one type");
    constexpr auto kTransposeA = kForm == Form::kTN ? CUBLAS_OP_T : CUBLAS_OP_N;
    constexpr auto kTransposeB = kForm == Form::kNT ? CUBLAS_OP_T : CUBLAS_OP_N;
    return cublasGemmStridedBatchedEx_64(handle, kTransposeB, kTransposeA, size.cols, size.rows,
                                         size.inner, &alpha, b, kAb, b_row, b_step, a, kAb, a_row,
                                         a_step, &beta, c, kCudaType<C>, c_row, c_step, count,
                                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  }
};

}  // namespace attile::standard
