// SPDX-License-Identifier: MIT
// promises: attile::portable::ForwardTraits: D must be 1 to 256
// promises: attile::portable::BackwardTraits: Dv must be 1 to 256
#include <attile/attile.cuh>

attile::ForwardTraits<16, 16, 264, float, attile::NoMask, attile::NoScoreMod, attile::NoDropout,
                      264, attile::portable::Tuning<>>::Args forward;
attile::BackwardTraits<16, 16, 64, float, attile::NoMask, attile::NoScoreMod, attile::NoDropout, 0,
                       attile::DqMode::kAccumulate, attile::portable::Tuning<>>::Args backward;
