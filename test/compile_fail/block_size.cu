// SPDX-License-Identifier: MIT
// promises: attile::BlockSparse: blocks have a multiple of 64 rows and of 64 columns
#include <attile/forward.cuh>

using Blocks = attile::BlockSparse<attile::Causal, 128, 96>;

cudaError_t run(const attile::ForwardArgs<float, Blocks>& args) {
  return attile::forward<64>(args);
}
