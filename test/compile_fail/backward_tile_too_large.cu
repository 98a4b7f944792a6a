// SPDX-License-Identifier: MIT
// promises: attile::portable::BackwardTraits: the tiles of Q, dO, K, V, P and dS
// promises: take more than the 232448 bytes of shared memory
#include <attile/backward.cuh>

attile::BackwardTraits<128, 128, 128, float, attile::NoMask, attile::NoScoreMod, attile::NoDropout,
                       128, attile::DqMode::kAccumulate, attile::portable::Tuning<>>::Args args;
