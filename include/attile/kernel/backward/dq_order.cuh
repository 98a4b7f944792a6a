// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_params.cuh>
#include <attile/kernel/backward/backward_schedule.cuh>

#include <cstdint>

namespace attile {

/// Says who may write to `dq_accum`, the fp32 sum of dQ in device memory, and when it is complete.
///
/// A block of the pass over keys has one tile of K and V, a kv block, and adds to the dQ of all
/// rows that see it. Three kinds of numbers in the workspace order that: flags of chunks of zeros,
/// semaphores, and flags of readiness. Preprocessing resets all of them (`reset`). A counter of the
/// blocks that have begun is beside them with kInOrder (`begun_counter`).
///
/// 1. Zeros. With kInOrder the kv block that adds first overwrites what is there, and preprocessing
///    writes zeros only for rows that no kv block sees. With kAccumulate preprocessing writes all
///    zeros, but with kZeroFillsInPass, and where L2 has room for them (zero_fills_in_pass), the
///    pass writes those of a sequence itself, because preprocessing's would go to device memory and
///    come back.
///    The dq_accum of a kv head's query heads is cut into one chunk for each of its kv blocks.
///    `zero_fill_chunk` claims a chunk (an atomic increment), writes it and marks it filled. A
///    block does so for the block that begins two rounds after it, where a round is as many blocks
///    as run at the same time: the zeros are there by then and still in L2. Before it adds,
///    `await_zero_fill` waits for all chunks of its kv head, and fills those that nobody has
///    claimed, so that it does not matter in which order blocks begin, or whether they run at the
///    same time.
/// 2. Semaphores, with kInOrder. Each tile of rows has kDqShares, one for each share of its dQ. One
///    holds the kv tile that added last, at first kv_tiles, which is none. `acquire` waits until it
///    holds the kv tile that comes before the caller's, of those that the rows see (`tile_before`);
///    where shares have semaphores of their own `has_added` asks each. `release` writes the
///    caller's kv tile. The order is from the last kv tile to the first; in a kv head that ascends
///    (`kv_block_of`) it is from the first to the last.
///    Nobody waits for ever. The kv tile that a block waits for has a block, which visits these
///    rows: BackwardParams::sees and the QTileLoop of that block ask the same function, or the same
///    list, and where sequences are packed either all kv tiles of one have a block or none
///    (find_by_warp). And that block has begun before this one, because the kv tiles of a head
///    begin in the order in which they add (backward_in_order_kernel).
///    A list that names a block twice is wrong (BlockSparse). A kv block then adds several
///    times to the same rows, the later times while other blocks add, and if it is the first to add
///    it overwrites each time. What such a list gives is wrong and differs from run to run.
/// 3. Readiness, with kSignalsDqReady: kDqShares flags for each kv block. `signal_ready` sets
///    one when its part has been added, and `await_ready` waits for those of all kv blocks of a kv
///    head, so that dQ of the first heads is written while the last kv blocks still run (worth
///    1.8 % in the mean of the 18 backward benchmarks of group `peers`: H200, 2026-11-24,
///    bench/log/tuning-sm90.md). Without it the kernel that writes dQ waits for the whole pass.
///    Where sequences are packed that kernel reads its tiles from a list of preprocessing's, and
///    one more flag hands that on, too: `signal_listed`, `await_listed`.
///
/// A chunk, a semaphore and readiness are handed on by a store.release of one lane
/// (zero_fill_chunk, release, signal_ready), after a barrier of those that wrote, or after
/// bulk_wait where TMA wrote, and taken by a load.acquire, before a barrier of those that go on.
template <class Traits>
class DqOrder {
 public:
  ATTILE_DEVICE explicit DqOrder(const BackwardParams<Traits>& p) : p_(p) {}

  /// Resets all numbers. Scope    all threads of a grid of blocks of kThreads.
  template <int kThreads>
  ATTILE_DEVICE void reset() const {
    if constexpr (Traits::kDqMode == DqMode::kInOrder) {
      fill<kThreads>(p_.dq_semaphores, Traits::kDqShares * p_.q_tile_count(), p_.kv_tiles);
    }
    if (p_.zero_fill_flags != nullptr) {
      fill<kThreads>(p_.zero_fill_flags, std::int64_t{2} * p_.kv_blocks(), 0);
    }
    if constexpr (Traits::kSignalsDqReady) {
      fill<kThreads>(p_.dq_ready_flags, std::int64_t{Traits::kDqShares} * p_.kv_blocks(), 0);
      if constexpr (BackwardParams<Traits>::kPackedSequences) fill<kThreads>(p_.listed_flag, 1, 0);
    }
  }

  // 1. Zeros.

  /// Fills the chunk of a kv block, `kv`, with zeros, unless somebody has claimed it.
  /// Scope    all lanes of a warp.
  ATTILE_DEVICE void zero_fill_chunk(const WorkTile& kv) const {
    const int lane = arch::thread_index() % arch::kWarpSize;
    const int number = p_.kv_tile_number(kv);
    if (arch::uniform(lane == 0 ? arch::fetch_add(claimed(number), 1) : 0) != 0) return;
    const std::int64_t floats = p_.group_scratch_rows(kv) * Traits::kDqCols;
    float* const accum = p_.dq_accum_of(kv);  // of its first head and row
    constexpr int kStep = arch::kWarpSize * 4;
    static_assert(Traits::kBr * Traits::kDqCols % kStep == 0,
                  "attile::DqOrder: whole steps of a warp");
    const std::int64_t steps = floats / kStep;
    const int kv_tiles = p_.kv_tiles_of(kv);
    const auto begin = [&](int index) { return steps * index / kv_tiles; };
    const std::int64_t end = begin(kv.kv_tile() + 1);
    ATTILE_UNROLL_BY(4)
    for (std::int64_t i = begin(kv.kv_tile()); i < end; ++i) {
      arch::store(accum + i * kStep + lane * 4, Float4{});
    }
    arch::warp_barrier();  // all lanes have written before one says so
    if (lane == 0) arch::store_release(filled(number), 1);
  }
  /// Waits until the dq_accum of the kv block's query heads is zeros. Each lane looks at some
  /// chunks: what it has acquired counts for all behind a barrier of the warp.
  /// Scope    all lanes of a warp.
  ATTILE_DEVICE void await_zero_fill(const WorkTile& kv) const {
    const int first = p_.kv_tile_number(kv) - kv.kv_tile();  // of the kv head
    const int kv_tiles = p_.kv_tiles_of(kv);
    const int lane = arch::thread_index() % arch::kWarpSize;
    ATTILE_UNROLL_BY(1)
    for (int i = 0; i < kv_tiles; i += arch::kWarpSize) {
      const int mine = first + min(i + lane, kv_tiles - 1);
      while (arch::any_lane(arch::load_acquire(filled(mine)) == 0)) {
        const int found = arch::first_lane(arch::load_acquire(claimed(mine)) == 0);
        if (found < arch::kWarpSize) {
          WorkTile unclaimed = kv;
          unclaimed.kv_tiles.first = min(i + found, kv_tiles - 1);
          zero_fill_chunk(unclaimed);
        }
      }
    }
  }

  // 2. Semaphores.

  /// Returns the kv tile nearest to `from`, in that direction (1 or -1) and from there on, that the
  /// rows of `at` see; kv_tiles where none is. With kDqSemaphoreWarps the mask reads what it needs
  /// about the sequence anew for each 32 tiles, which spares registers.
  /// Scope    all lanes of a warp.
  ATTILE_DEVICE int nearest_seen(const WorkTile& at, int from, int direction) const {
    const int lane = arch::thread_index() % arch::kWarpSize;
    const int kv_tiles = p_.kv_tiles_of(at);
    const auto exists = [&](int tile) {
      return static_cast<unsigned>(tile) < static_cast<unsigned>(kv_tiles);
    };
    const auto here = [&] {
      WorkTile tile = at;
      if (Traits::kDqSemaphoreWarps) tile.sequence = arch::opaque(at.sequence);
      return tile;
    };
    for (int next = from; exists(next); next += direction * arch::kWarpSize) {
      const int tile = next + direction * lane;
      const bool sees = exists(tile) && p_.sees(here(), tile);
      const int found = arch::first_lane(sees);
      if (found < arch::kWarpSize) return next + direction * found;
    }
    return p_.kv_tiles;
  }
  /// Return the kv tiles before and after `kv_tile` in the order, of those that the rows of `at`
  /// see; kv_tiles where none is: the first one overwrites. `ascends`: BackwardParams::ascends.
  /// Scope    all lanes of a warp.
  ATTILE_DEVICE int tile_before(const WorkTile& at, int kv_tile, bool ascends) const {
    const int direction = ascends ? -1 : 1;
    return nearest_seen(at, kv_tile + direction, direction);
  }
  ATTILE_DEVICE int tile_after(const WorkTile& at, int kv_tile, bool ascends) const {
    return tile_before(at, kv_tile, !ascends);
  }
  /// Waits until the kv tile before `kv_tile` has added to the dQ of the rows of `at`; returns true
  /// where there is none. Scope    all lanes of a warp, with one share.
  ATTILE_DEVICE bool acquire(const WorkTile& at, int kv_tile, bool ascends = false) const {
    const int before = tile_before(at, kv_tile, ascends);
    while (!has_added(at, before, 0)) {
    }
    arch::warp_barrier();  // all lanes have seen it before one of them releases it
    return before == p_.kv_tiles;
  }
  /// Returns whether kv tile `before` has added this share, and so all that come before it.
  /// Scope    one thread.
  ATTILE_DEVICE bool has_added(const WorkTile& at, int before, int share) const {
    const int last = arch::load_acquire(semaphore(at, share));
    // Where a list names these rows twice, kv tiles after the caller's may have added.
    return kListsBlocks ? last <= before : last == before;
  }
  /// Lets the next kv tile add to a share of the dQ of these rows.
  /// Scope    one thread, after all that added.
  ATTILE_DEVICE void release(const WorkTile& at, int kv_tile, int share = 0) const {
    if constexpr (kListsBlocks) {
      // A list that names these rows twice: others may have added meanwhile.
      if (has_added(at, kv_tile, share)) return;
    }
    arch::store_release(semaphore(at, share), kv_tile);
  }

  // 3. Readiness.

  /// Says that the lists of tiles of packed sequences are complete.
  /// Scope    one thread of the pass, behind the end of preprocessing.
  ATTILE_DEVICE void signal_listed() const { arch::store_release(p_.listed_flag, 1); }
  /// Waits for that. Scope    each thread of the kernel behind the pass that reads the lists.
  ATTILE_DEVICE void await_listed() const {
    if constexpr (Traits::kSignalsDqReady) {
      if (p_.kv_blocks() > 0) {
        while (arch::load_acquire(p_.listed_flag) == 0) {
        }
        return;
      }
    }
    arch::await_dependencies();
  }
  /// Says that share `share` of a kv block's dQ has been added. Scope    one thread, after all that
  /// added it.
  ATTILE_DEVICE void signal_ready(int kv_block, int share) const {
    arch::store_release(
        p_.dq_ready_flags + std::int64_t{Traits::kDqShares} * flag_number(kv_block) + share, 1);
  }
  /// Waits until dq_accum of a tile of rows is complete.
  /// `is_computed`: whether the pass adds to it.
  /// Scope    all threads of a block of Traits::kDqThreads.
  ATTILE_DEVICE void await_ready(const WorkTile& at, bool is_computed) const {
    if (!is_computed) {
      arch::await_dependencies();  // nothing adds: preprocessing's zeros are complete
      return;
    }
    static_assert(!kHeadMajor<Traits>, "attile::DqOrder: kv blocks go sequence by sequence");
    const int* const flags =
        p_.dq_ready_flags + std::int64_t{Traits::kDqShares} * p_.kv_tile_number(at);
    const int count = p_.kv_tiles_of(at) * Traits::kDqShares;
    for (int i = arch::thread_index(); i < count; i += Traits::kDqThreads) {
      while (arch::load_acquire(flags + i) == 0) {
      }
    }
    arch::barrier();  // what one thread has acquired counts for all
  }

 private:
  static constexpr bool kListsBlocks = BackwardParams<Traits>::kListsBlocks;
  static_assert(!kListsBlocks || Traits::kAlternatesFrom == 0,
                "attile::DqOrder: with block lists kv tiles add from the last one on");

  template <int kThreads>
  ATTILE_DEVICE static void fill(int* numbers, std::int64_t count, int value) {
    const std::int64_t threads = std::int64_t{arch::block_count()} * kThreads;
    std::int64_t i = std::int64_t{arch::block_index()} * kThreads + arch::thread_index();
    for (; i < count; i += threads) {
      numbers[i] = value;
    }
  }
  ATTILE_DEVICE int* semaphore(const WorkTile& at, int share) const {
    return p_.dq_semaphores + Traits::kDqShares * p_.q_tile_number(at) + share;
  }
  /// Returns the number of a kv block's flags. Those of a sequence and kv head follow each other.
  ATTILE_DEVICE int flag_number(int kv_block) const {
    if constexpr (!BackwardParams<Traits>::kPackedSequences) return kv_block;
    return p_.kv_tile_number(kv_work_tile(p_, kv_block));
  }
  ATTILE_DEVICE int* claimed(int number) const { return p_.zero_fill_flags + number; }
  ATTILE_DEVICE int* filled(int number) const {
    return p_.zero_fill_flags + p_.kv_blocks() + number;
  }

  const BackwardParams<Traits>& p_;
};

}  // namespace attile
