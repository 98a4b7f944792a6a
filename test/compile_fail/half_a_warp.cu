// SPDX-License-Identifier: MIT
// promises: attile::portable::Tuning: threads must be a multiple of 32 up to 1024
#include <attile/forward.cuh>

attile::ForwardTraits<64, 64, 64, float, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
                      attile::portable::Tuning<48>>::Args args;
