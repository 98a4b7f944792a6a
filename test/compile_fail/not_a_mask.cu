// SPDX-License-Identifier: MIT
// promises: attile: this type is no policy: neither a Mask, nor a ScoreMod, nor a Dropout, nor a
// Sequences, nor an AttentionSink has all that its concept asks for
#include <attile/forward.cuh>

struct Lower {
  bool visible(int row, int col) const { return col <= row; }
};

attile::ForwardArgs<float, Lower> args;
