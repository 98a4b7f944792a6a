// SPDX-License-Identifier: MIT
// Matrix products by cuBLAS, of matrices that carry their shapes.
#pragma once

#include <cublas_v2.h>

#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "../support.cuh"

namespace gpt {

/// A matrix in device memory, row by row. Its transpose is the same memory read the other way.
template <class T>
struct Matrix {
  T* data;
  int rows, cols;
  bool is_transposed = false;

  Matrix transposed() const { return {data, cols, rows, !is_transposed}; }
  /// From one row of the memory to the next one.
  int stride() const { return is_transposed ? rows : cols; }
};

/// A handle of cuBLAS.
class Products {
 public:
  Products() {
    must(cublasCreate(&handle_), "cublasCreate");
    // Else parts of a sum may be added in bf16.
    must(cublasSetMathMode(handle_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
         "cublasSetMathMode");
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  ~Products() { static_cast<void>(cublasDestroy(handle_)); }

  cublasHandle_t handle() const { return handle_; }

  /// C = A B. Sums are fp32, whatever the types.
  /// cuBLAS takes matrices column by column. Memory that holds A row by row holds A^T column by
  /// column, so what it is asked for is C^T = B^T A^T: the operands change places, and a matrix
  /// that we call transposed is one for cuBLAS too.
  template <class C, class A, class B>
  void multiply(Matrix<C> c, Matrix<A> a, Matrix<B> b) const {
    if (a.rows != c.rows || b.cols != c.cols || a.cols != b.rows || c.is_transposed) {
      std::fprintf(stderr, "no product: (%d, %d) = (%d, %d) (%d, %d)\n", c.rows, c.cols, a.rows,
                   a.cols, b.rows, b.cols);
      std::exit(1);
    }
    const float one = 1, zero = 0;
    must(cublasGemmEx(handle_, operation(b), operation(a), c.cols, c.rows, a.cols, &one, b.data,
                      type_of<B>(), b.stride(), a.data, type_of<A>(), a.stride(), &zero, c.data,
                      type_of<C>(), c.stride(), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
         "cublasGemmEx");
  }

 private:
  static void must(cublasStatus_t status, const char* what) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    std::fprintf(stderr, "%s: %s\n", what, cublasGetStatusString(status));
    std::exit(1);
  }

  template <class T>
  static cublasOperation_t operation(const Matrix<T>& matrix) {
    return matrix.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  }

  template <class T>
  static constexpr cudaDataType_t type_of() {
    return std::is_same_v<std::remove_const_t<T>, float> ? CUDA_R_32F : CUDA_R_16BF;
  }

  cublasHandle_t handle_ = nullptr;
};

}  // namespace gpt
