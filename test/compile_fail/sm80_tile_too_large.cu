// SPDX-License-Identifier: MIT
// promises: attile::sm80::ForwardTraits: the tiles of Q (or O), K and V, of P where warps share
#include <attile/forward.cuh>

attile::ForwardTraits<256, 128, 256, __nv_bfloat16>::Args args;
