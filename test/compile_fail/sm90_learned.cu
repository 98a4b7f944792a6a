// SPDX-License-Identifier: MIT
// promises: attile::sm90::BackwardTraits: where a score modifier has a gradient, D and Dv must be
#include <attile/kernel/sm90/backward_traits.cuh>

attile::sm90::BackwardTraits<64, 64, 192, attile::Elements<__half>,
                             attile::Policies<attile::LearnedBias<>>, 192>::Args args;
