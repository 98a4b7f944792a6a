// SPDX-License-Identifier: MIT
// promises: type constraint failed for "double"
#include <attile/forward.cuh>

attile::ForwardTraits<64, 64, 64, double>::Args args;
