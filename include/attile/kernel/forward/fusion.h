// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/work_tile.h>

#include <type_traits>

namespace attile {

/// Is what a ready-made forward kernel does beside attention: nothing. A fusion of your own adds
/// work to the kernel without a copy of it: a kernel of yours passes it to the family's
/// `forward_block` (examples/13_prologue_epilogue.cu): sm80's takes any, sm90's one that changes O
/// alone.
///   ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Kernel::kThreads, Kernel::kBlocksPerSm)
///       fused(const ATTILE_GRID_CONSTANT Kernel::Params p, const ATTILE_GRID_CONSTANT Mine mine) {
///     attile::sm80::forward_block<Kernel>(p, arch::block_index(), arch::dynamic_shared(), mine);
///   }
/// It has these three members, the functions const and ATTILE_DEVICE.
struct NoFusion {
  /// Whether Q and K change when they have been loaded. Then `q_loaded` and `k_loaded` are called
  /// by all threads of the block, which may access any element of the tile in shared memory: the
  /// kernel has a barrier before and behind each call.
  ///   q_loaded(tile, at)           once: row r of `tile` is row at.row0 + r of the sequence
  ///   k_loaded(tile, at, key0)     for each tile of K: its row r is key key0 + r
  /// `tile` is a tile::PanelTile; rows and columns that the tensor does not have are 0.
  static constexpr bool kChangesInputs = false;

  /// Changes O in registers, normalised and not yet rounded, before it is stored.
  /// Shapes   o_frag: a tile::MmaTile, whose row r is row at.row0 + r of the sequence; r counts
  ///          through all consumers of a block and may be above Br. Rows and columns that O does
  ///          not have are not stored.
  template <class Registers>
  ATTILE_DEVICE void output(Registers&, const WorkTile&) const {}
};

/// Is how an object holds a fusion. A reference to one that does nothing would take registers.
template <class Fusion>
using HeldFusion = std::conditional_t<std::is_same_v<Fusion, NoFusion>, NoFusion, const Fusion&>;

}  // namespace attile
