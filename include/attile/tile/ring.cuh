// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/cluster.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>

#include <cstddef>
#include <cstdint>

namespace attile::tile {

/// Where a thread is in a ring of kStages stages. The parity is that of the phase that the stage's
/// barriers are in.
template <int kStages>
struct RingPlace {
  int stage = 0;
  int parity = 0;

  ATTILE_DEVICE void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
  ATTILE_DEVICE RingPlace after() const {
    RingPlace place = *this;
    place.next();
    return place;
  }
};

/// Writes zeros to the rows of a tile from row `first` on, for products that read them.
/// Scope    `threads` threads, of which this is number `thread`.
/// Barriers one after, or an arrival, for those who begin the products.
template <class Tile>
ATTILE_DEVICE void clear_rows_from(const Tile& tile, int first, int thread = 0, int threads = 1) {
  constexpr int kUnit = Tile::Layout::kUnitElements;
  constexpr int kUnits = Tile::kCols / kUnit;
  for (int i = max(first, 0) * kUnits + thread; i < Tile::kRows * kUnits; i += threads) {
    arch::store(&tile.at(i / kUnits, i % kUnits * kUnit), Vec<typename Tile::Element, kUnit>{});
  }
  arch::fence_async_proxy();
}

/// A barrier of the loading thread's own. Copies complete on it, instead of on the barrier of a
/// stage, so that the thread can change the tile, and only then arrives at the stage's barrier, for
/// which the readers wait.
/// Scope    one thread.
class Landing {
 public:
  ATTILE_DEVICE explicit Landing(arch::Mbarrier* barrier) : barrier_(barrier) {}

  /// The barrier that counts the bytes of copies to come.
  ATTILE_DEVICE arch::Mbarrier* expect(int bytes) const {
    arch::mbarrier_arrive_expect(barrier_, bytes);
    return barrier_;
  }
  /// Waits for them.
  ATTILE_DEVICE void wait() {
    arch::mbarrier_wait(barrier_, parity_);
    parity_ ^= 1;
  }

 private:
  arch::Mbarrier* barrier_;
  int parity_ = 0;
};

/// Tiles in shared memory through which one thread passes on what it brings from device memory:
/// kStages of them, each free, or under way, or full.
///
/// The rings of a cluster of kCluster blocks, at the same place in each of them, get the same
/// tiles: each block's thread brings its part of a tile to all, so that device memory is read once
/// for the cluster. A stage is free when the readers of all blocks have released it, so all of them
/// have to come to each tile, to read or to pass it, and no block is more than kStages tiles ahead.
template <class Tile, int kStages, int kCluster = 1>
class Ring {
  using Layout = typename Tile::Layout;
  static constexpr int kPanels = Tile::kCols / Layout::kPanelColumns;
  /// A block's part: whole panels, as large boxes travel faster, or else some of the rows.
  static constexpr bool kPanelsApart = kPanels % kCluster == 0;
  static_assert(kCluster >= 1 && kCluster <= arch::kMaxClusterBlocks,
                "attile::tile::Ring: a cluster has 1 to 8 blocks");
  static_assert(kPanelsApart || Tile::kRows % (8 * kCluster) == 0,
                "attile::tile::Ring: the blocks of a cluster share a tile's panels, or else its "
                "rows in eights: kRows must be a multiple of 8 kCluster");

 public:
  using Place = RingPlace<kStages>;
  static constexpr std::size_t kBytes = kStages * Tile::kBytes;
  static constexpr int kTileBytes = Tile::kRows * Tile::kCols * sizeof(typename Tile::Element);
  /// Of the boxes that the maps have to have.
  static constexpr int kBoxRows = kPanelsApart ? Tile::kRows : Tile::kRows / kCluster;

  ATTILE_DEVICE Ring(unsigned char* data, arch::Mbarrier* barriers)
      : data_(data), barriers_(barriers) {}

  /// Scope    one thread, before all else; the others after `mbarrier_publish` and a barrier: the
  ///          cluster's, if it has more than one block.
  /// Units    warps of a block that read each tile.
  ATTILE_DEVICE void init(int readers) const {
    ATTILE_UNROLL
    for (int stage = 0; stage < kStages; ++stage) {
      arch::mbarrier_init(full(stage), 1);
      arch::mbarrier_init(empty(stage), readers * kCluster);
    }
  }

  /// Sends for rows row0 on of a matrix, in as many boxes as a tile has panels, or for the block's
  /// part of them; waits until the stage is free. Scope    the thread that fills the ring, in each
  /// block of the cluster, of the same tiles in the same order.
  /// Units    rows: of the tile, kBoxRows those of a box as its map has it (Tile::kRows, or fewer
  ///          without a cluster, as the map's box has); `head` counts what the map's fourth
  ///          dimension does.
  ATTILE_DEVICE void fill(Place& at, const arch::TensorMap& map, int row0, int head, int batch,
                          int rows = Tile::kRows) const {
    constexpr int kRowBytes = Tile::kCols * sizeof(typename Tile::Element);
    await_free(at);
    send(announce(at, rows * kRowBytes), at, map, row0, head, batch);
    at.next();
  }

  /// `fill` of a tile of which only the first `there` rows are the sequence's: its readers see
  /// zeros in the others, whatever lies behind those rows.
  ATTILE_DEVICE void fill_part(Place& at, const arch::TensorMap& map, int row0, int head, int batch,
                               int there, Landing& landing) const {
    static_assert(kCluster == 1, "attile::tile::Ring: blocks of a cluster have no landing");
    await_free(at);
    send(landing.expect(kTileBytes), at, map, row0, head, batch);
    landing.wait();
    pass_part(at, there);
    at.next();
  }
  /// Its end, for a tile that has landed: zeros, and the readers may have it.
  ATTILE_DEVICE void pass_part(const Place& at, int there) const {
    clear_rows_from(tile(at.stage), there);
    arch::mbarrier_arrive(full(at.stage));
  }

  /// The steps of `fill`, for a thread that brings something else to the same stage.
  ATTILE_DEVICE void await_free(const Place& at) const {
    arch::mbarrier_wait(empty(at.stage), at.parity ^ 1);
  }
  /// The barrier that counts the bytes: of the whole tile, whichever block brings them. What this
  /// thread wrote before is there for those of its block who wait.
  ATTILE_DEVICE arch::Mbarrier* announce(const Place& at, int bytes) const {
    arch::mbarrier_arrive_expect(full(at.stage), bytes);
    return full(at.stage);
  }
  ATTILE_DEVICE void send(arch::Mbarrier* barrier, const Place& at, const arch::TensorMap& map,
                          int row0, int head, int batch) const {
    if constexpr (kCluster == 1) {
      ATTILE_UNROLL
      for (int panel = 0; panel < kPanels; ++panel) {
        arch::bulk_load(arch::shared_address(tile(at.stage).data) + panel * Layout::kPanelBytes,
                        map, {panel * Layout::kPanelColumns, 0, row0, head, batch}, barrier);
      }
    } else {
      constexpr int kBoxes = kPanelsApart ? kPanels / kCluster : kPanels;
      const int rank = arch::cluster_rank();
      const int first_panel = kPanelsApart ? rank * kBoxes : 0;
      const int first_row = kPanelsApart ? 0 : rank * kBoxRows;
      ATTILE_UNROLL
      for (int box = 0; box < kBoxes; ++box) {
        const int panel = first_panel + box;
        arch::bulk_load_multicast(arch::shared_address(tile(at.stage).data) +
                                      static_cast<std::uint32_t>(panel * Layout::kPanelBytes +
                                                                 first_row * Layout::kRowBytes),
                                  map,
                                  {panel * Layout::kPanelColumns, 0, row0 + first_row, head, batch},
                                  barrier, (1u << kCluster) - 1);
      }
    }
  }

  /// Waits until all tiles have been released, in all blocks of the cluster: then no copy to this
  /// block is under way, or from it to others, and nobody arrives here any more, so that the block
  /// may end. Scope    the thread that has filled the ring, last; not needed without a cluster.
  ATTILE_DEVICE void drain(Place at) const {
    ATTILE_UNROLL
    for (int stage = 0; stage < kStages; ++stage) {
      await_free(at);
      at.next();
    }
  }

  /// The next tile, once it is there. Scope    the lanes of a warp that reads it.
  ATTILE_DEVICE Tile wait(const Place& at) const {
    arch::mbarrier_wait(full(at.stage), at.parity);
    return tile(at.stage);
  }

  /// This warp has read the tile that it waited for. Scope    all lanes of the warp, behind what
  /// tells its first ones that all have read: the wait for a product, or a barrier.
  ATTILE_DEVICE void release(Place& at) const {
    const int lane = arch::thread_index() % arch::kWarpSize;
    if constexpr (kCluster == 1) {
      if (lane == 0) arch::mbarrier_arrive(empty(at.stage));
    } else {
      if (lane < kCluster) arch::mbarrier_arrive(empty(at.stage), lane);
    }
    at.next();
  }

  /// A tile that this warp does not want.
  ATTILE_DEVICE void pass(Place& at) const {
    static_cast<void>(wait(at));
    arch::warp_barrier();  // all lanes have waited before the stage is filled again
    release(at);
  }

  ATTILE_DEVICE Tile tile(int stage) const { return {data_ + stage * Tile::kBytes}; }

 private:
  ATTILE_DEVICE arch::Mbarrier* full(int stage) const { return barriers_ + stage; }
  ATTILE_DEVICE arch::Mbarrier* empty(int stage) const { return barriers_ + kStages + stage; }

  unsigned char* data_;
  arch::Mbarrier* barriers_;  // full ones, empty ones
};

/// Sends a tile away, to rows row0 on and columns col0 on of a matrix, in as many boxes as it has
/// panels; what lies beyond the matrix stays, but for the rest of 16 bytes in which a row ends
/// (arch::storable). Scope    one thread, which
/// `arch::bulk_wait_read` later tells that the tile can be written again.
/// Barriers `fence_async_proxy` by those who wrote the tile, and one behind it.
template <class Tile>
ATTILE_DEVICE void send_tile(const Tile& tile, const arch::TensorMap& map, int col0, int row0,
                             int head, int batch) {
  using Layout = typename Tile::Layout;
  ATTILE_UNROLL
  for (int panel = 0; panel < Tile::kCols / Layout::kPanelColumns; ++panel) {
    arch::bulk_store(map, {col0 + panel * Layout::kPanelColumns, 0, row0, head, batch},
                     arch::shared_address(tile.data) + panel * Layout::kPanelBytes);
  }
  arch::bulk_commit();
}

}  // namespace attile::tile
