// SPDX-License-Identifier: MIT
// promises: type constraint failed for "Halve"
#include <attile/forward.cuh>

struct Halve {
  float operator()(float s) const { return s / 2; }
};

attile::ForwardArgs<float, attile::NoMask, Halve> args;
