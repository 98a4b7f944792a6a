// SPDX-License-Identifier: MIT
// promises: attile: a mask has both columns and rows, as SpanMask wants them, or neither
#include <attile/forward.cuh>

struct Lower {
  ATTILE_HOST_DEVICE bool visible(attile::ScoreIndex i, attile::Extent) const {
    return i.col <= i.row;
  }
  ATTILE_HOST_DEVICE attile::Span columns(int, int, attile::Interval rows,
                                          attile::Extent e) const {
    return {attile::clip(0, rows.end, e.kv_len), {}};
  }
};

cudaError_t run(const attile::ForwardArgs<float, Lower>& args) { return attile::forward<64>(args); }
