// SPDX-License-Identifier: MIT
#pragma once

#include <attile/standard.cuh>

#include <cublas_v2.h>

#include <cstddef>
#include <vector>

#include "support/catch.h"
#include "support/gpu_executor.h"
#include "support/suite_cases.h"

namespace attile_test {

namespace standard = attile::standard;

/// As unlike what the passes need as a handle can be. Made once and never destroyed: at exit the
/// CUDA run time may be gone already.
inline cublasHandle_t standard_handle() {
  static const cublasHandle_t made = [] {
    cublasHandle_t h = nullptr;
    REQUIRE(cublasCreate(&h) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasSetPointerMode(h, CUBLAS_POINTER_MODE_DEVICE) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasSetMathMode(h, CUBLAS_TF32_TENSOR_OP_MATH) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasSetAtomicsMode(h, CUBLAS_ATOMICS_ALLOWED) == CUBLAS_STATUS_SUCCESS);
    return h;
  }();
  return made;
}

template <class Args>
cudaError_t run_standard_forward(const Args& args, const GuardedWorkspace& p) {
  using T = typename Args::ElementType;
  return with_workspace([&](void* workspace, std::size_t& bytes) {
    return standard::forward(standard_handle(), static_cast<T*>(p.get()), workspace, bytes, args);
  });
}

/// For the suite: everything but the layouts that cuBLAS cannot address.
struct StandardExecutor {
  static constexpr bool kRepeatsBackward = true;
  static constexpr bool kRepeatsSums = false;

  Direction direction;

  bool takes(const Case& c) const {
    if (c.layout == Layout::kReversed) return false;
    return direction == Direction::kForward || c.layout != Layout::kBroadcast;
  }

  template <class Args>
  attile::Check forward(const Args& host_args, const std::vector<Region>& regions) const {
    if (const attile::Check check = standard::check(host_args); !check) return check;
    return run_on_device(host_args, regions, [](const Args& args) {
      const GuardedWorkspace p(standard::probabilities_bytes(args));
      if (const auto error = run_standard_forward(args, p)) return error;
      return p.check();
    });
  }

  template <class Args>
  attile::Check backward(const Args& host_args, const std::vector<Region>& regions) const {
    using T = typename Args::ElementType;
    if (const attile::Check check = standard::check(host_args); !check) return check;
    return run_on_device(host_args, regions, [](const Args& args) {
      const int dim = attile::head_dims(args, 0, 0).v;
      const GuardedWorkspace p(standard::probabilities_bytes(args));
      const GuardedWorkspace o(sizeof(T) * args.batch * args.q_heads * args.q_len * dim);
      if (const auto error = run_standard_forward(forward_of(args, static_cast<T*>(o.get())), p)) {
        return error;
      }
      if (const auto error = with_workspace([&](void* workspace, std::size_t& bytes) {
            return standard::backward(standard_handle(), static_cast<const T*>(p.get()), workspace,
                                      bytes, args);
          })) {
        return error;
      }
      return p.check();
    });
  }
};

}  // namespace attile_test
