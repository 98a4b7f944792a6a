// SPDX-License-Identifier: MIT
// promises: attile::sm80::ForwardTraits: the tiles of Q (or O), K and V, of P where warps share
// promises: take more than the 232448 bytes of shared memory
#include <attile/forward.cuh>

attile::ForwardTraits<256, 128, 256, __nv_bfloat16>::Args args;
