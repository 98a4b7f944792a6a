// SPDX-License-Identifier: MIT
#include <attile/attile.cuh>

const char* why_the_kernel_refuses(const attile::ForwardArgs<float>& args) {
  return attile::check<64>(args).why;
}
