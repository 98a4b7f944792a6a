// SPDX-License-Identifier: MIT
// promises: attile::sm80::ForwardTraits: Br must be a multiple of 16
// promises: attile::sm80::ForwardTraits: Bc must be a multiple of 16
// promises: attile::sm80::ForwardTraits: Br must be a multiple of 16 rows for each warp
#include <attile/forward.cuh>

attile::ForwardTraits<57, 64, 64, __half>::Args rows;
attile::ForwardTraits<64, 57, 64, __half>::Args columns;
attile::ForwardTraits<64, 64, 64, __half, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
                      attile::sm80::Tuning<3>>::Args warps;
