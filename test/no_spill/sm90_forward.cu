// SPDX-License-Identifier: MIT
#include "policies.h"

using namespace attile;
using namespace attile::no_spill;

// On other architectures the kernels are empty.
struct NamedKernels {
  template <int D, int Dv, bool kPacked, class T, class M, class S, class P>
  static constexpr auto kKernel =
      forward_kernel<sm90::DefaultForwardTraits<ForwardArgs<T, M, S, P>, D, Dv, kPacked>>;

  template <class T, class M, class S, class P>
  bool operator()() const {
    return kKernel<64, 64, false, T, M, S, P> != nullptr &&
           kKernel<96, 96, false, T, M, S, P> != nullptr &&
           kKernel<128, 128, false, T, M, S, P> != nullptr &&
           kKernel<128, 128, true, T, M, S, P> != nullptr &&
           kKernel<192, 128, false, T, M, S, P> != nullptr &&
           kKernel<192, 192, false, T, M, S, P> != nullptr &&
           kKernel<256, 256, false, T, M, S, P> != nullptr;
  }
};

bool compiled() { return each_16_bit_policy(NamedKernels{}); }
