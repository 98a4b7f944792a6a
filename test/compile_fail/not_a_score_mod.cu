// SPDX-License-Identifier: MIT
// promises: attile: this type is no policy: neither a Mask, nor a ScoreMod, nor a Dropout, nor a
// Sequences, nor an AttentionSink has all that its concept asks for
#include <attile/forward.cuh>

struct Halve {
  float operator()(float s) const { return s / 2; }
};

attile::ForwardArgs<float, attile::NoMask, Halve> args;
