// SPDX-License-Identifier: MIT
// promises: attile::BackwardTraits: the tiles of Q, dO, K, V, P and dS take more than the 232448
#include <attile/backward.cuh>

attile::BackwardTraits<128, 128, 128, float>::Args args;
