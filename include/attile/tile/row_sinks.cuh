// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

namespace attile::tile {

/// Gives OnlineSoftmax the sinks of the rows that this thread holds: each has that of its query
/// head.
///   const tile::RowSinks<Output, attile::Sink<>, tile::TileCoord> sinks{sink, coord, scale_log2};
///   softmax.finish(o_frag, 1.0f, sinks);
/// Units    scale_log2: as OnlineSoftmax has it.
template <class Registers, class SinkType, class Coord>
struct RowSinks {
  static constexpr bool kEnabled = true;

  const SinkType& sink;
  Coord coord;
  float scale_log2;

  ATTILE_DEVICE float logit(int r) const { return sink.logit(coord.at(Registers::row(r), 0).head); }
};

}  // namespace attile::tile
