// SPDX-License-Identifier: MIT
// promises: attile::portable::ForwardTraits: Br and Bc must be at least 1
#include <attile/forward.cuh>

attile::ForwardTraits<0, 64, 64, float, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 64,
                      attile::portable::Tuning<>>::Args args;
