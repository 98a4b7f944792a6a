// SPDX-License-Identifier: MIT
// promises: attile::portable::ForwardTraits: the tiles of Q, K (or P) and V
// promises: take more than the 232448 bytes of shared memory
#include <attile/forward.cuh>

attile::ForwardTraits<256, 256, 128, float, attile::NoMask, attile::NoScoreMod, attile::NoDropout,
                      128, attile::portable::Tuning<>>::Args args;
