// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/forward/forward_params.cuh>

namespace attile {

/// Gives each block its one work tile, in kernels that have a block for each tile of rows. Tiles of
/// a head are neighbours, so that they share its K and V in L2; the last rows, which see most under
/// a causal mask, come first. Heads go in Problem::head_order. Where lengths differ, blocks whose
/// slot has no tile (Problem::has_rows) do nothing.
template <class Traits>
class OneTileSchedule {
 public:
  ATTILE_DEVICE OneTileSchedule(const ForwardParams<Traits>& p, int block) : p_(p), block_(block) {}

  ATTILE_DEVICE WorkTile tile() const {
    WorkTile at = rows();
    at.kv_tiles = p_.keys_seen(at, at.head, at.row0, Traits::kBr);
    at.first_key = p_.first_key_seen(at, at.head, at.row0, Traits::kBr);
    return at;
  }
  /// Returns the tile without kv_tiles, for which a mask may have to be read.
  ATTILE_DEVICE WorkTile rows() const { return p_.ordered_row_tile(block_, p_.q_tiles); }

 private:
  const ForwardParams<Traits>& p_;
  int block_;
};

}  // namespace attile
