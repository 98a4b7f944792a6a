// SPDX-License-Identifier: MIT
#include "policies.h"

using namespace attile;
using namespace attile::no_spill;

// On other architectures the kernels are empty.
struct NamedKernels {
  template <int D, int Dv, sm90::Rows kRows, class T, class M, class S, class P>
  static constexpr auto kKernel =
      forward_kernel<sm90::DefaultForwardTraits<ForwardArgs<T, M, S, P>, D, Dv, kRows>>;

  template <class T, class M, class S, class P>
  bool operator()() const {
    using enum sm90::Rows;
    return kKernel<64, 64, kAny, T, M, S, P> != nullptr &&
           kKernel<64, 64, kMany, T, M, S, P> != nullptr &&
           kKernel<96, 96, kAny, T, M, S, P> != nullptr &&
           kKernel<96, 96, kMany, T, M, S, P> != nullptr &&
           kKernel<128, 128, kAny, T, M, S, P> != nullptr &&
           kKernel<128, 128, kPacked, T, M, S, P> != nullptr &&
           kKernel<128, 128, kMany, T, M, S, P> != nullptr &&
           kKernel<192, 128, kAny, T, M, S, P> != nullptr &&
           kKernel<192, 128, kMany, T, M, S, P> != nullptr &&
           kKernel<192, 192, kAny, T, M, S, P> != nullptr &&
           kKernel<192, 192, kMany, T, M, S, P> != nullptr &&
           kKernel<256, 256, kAny, T, M, S, P> != nullptr;
  }
};

bool compiled() { return each_16_bit_policy(NamedKernels{}); }
