// SPDX-License-Identifier: MIT
// promises: attile: with a mask of block lists, Br and Bc must divide the sizes of a block
#include <attile/forward.cuh>

using Args = attile::ForwardArgs<float, attile::BlockSparse<attile::Causal>>;
using Kernel = attile::ForwardTraits<64, 48, 64, float, attile::BlockSparse<attile::Causal>>;

cudaError_t run(const Args& args) { return attile::forward<Kernel>(args); }
