// SPDX-License-Identifier: MIT
#include <attile/attile.cuh>

const char* why_the_kernel_refuses(const attile::ForwardArgs<float>& args) {
  return attile::check<64>(args).why;
}

/// A kernel for Hopper, which compiles for every architecture.
using Kernel = attile::ForwardTraits<128, 128, 64, __half, attile::Causal, attile::NoScoreMod,
                                     attile::NoDropout, 64, attile::sm90::Tuning<>>;
cudaError_t attend(const Kernel::Args& args, cudaStream_t stream) {
  return attile::forward<Kernel>(args, stream);
}
