// SPDX-License-Identifier: MIT
// promises: type constraint failed for "Lower"
#include <attile/forward.cuh>

struct Lower {
  bool visible(int row, int col) const { return col <= row; }
};

attile::ForwardArgs<float, Lower> args;
