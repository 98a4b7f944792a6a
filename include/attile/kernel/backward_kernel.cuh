// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/kernel/backward_params.cuh>
#include <attile/kernel/backward_preprocess.cuh>

#include <cstdint>

// What all families of backward passes have in common: which block takes which tile, and the shells
// of the kernels.

namespace attile {

/// A tile of K and V of one kv head. `column`: its number, counted through all kv heads of one
/// batch after another; kAlternatesFrom, through all batches of one kv head after another.
struct KeyTile {
  int batch, kv_head, index;

  template <class Traits>
  ATTILE_DEVICE KeyTile(const BackwardParams<Traits>& p, int column)
      : batch(kHeadByHead<Traits> ? column / p.kv_tiles % p.batch
                                  : column / p.kv_tiles / p.kv_heads),
        kv_head(kHeadByHead<Traits> ? column / p.kv_tiles / p.batch
                                    : column / p.kv_tiles % p.kv_heads),
        index(column % p.kv_tiles) {}

 private:
  template <class Traits>
  static constexpr bool kHeadByHead = Traits::kAlternatesFrom > 0;
};

/// The column of the block that is the `begun`-th to begin: the kv heads of a round begin their
/// tiles in turn. Each from its first tile on, which under a causal mask has most rows: the blocks
/// that begin last are short. kInOrder from its last one on, since a block waits for those behind
/// its tile, and takes its rows from the first on: under a causal mask or a window it then meets no
/// rows before the tile behind it has. kAlternatesFrom says where half of the heads ascend: from
/// the first tile on, and each tile's rows from the last one on. Which heads those are must depend
/// neither on how many batches there are nor on the device: the order of the sums would.
template <class Traits>
ATTILE_DEVICE int column_of(const BackwardParams<Traits>& p, int begun) {
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  if constexpr (Traits::kAlternatesFrom > 0) {
    const AlternatingHeads heads{p.rounds, p.ascending_from / p.kv_tiles, p.batch * p.kv_heads};
    const auto [head, index] = heads.tile(begun, p.kv_tiles);
    return head * p.kv_tiles + index;
  } else {
    if (!kInOrder && (!Traits::kHeadsAbreast || p.rounds.one_each())) return begun;
    const HeadRounds::Round round = p.rounds.round_of(begun / p.kv_tiles);
    const int among = begun - round.first * p.kv_tiles;
    const int index = kInOrder ? p.kv_tiles - 1 - among / round.heads : among / round.heads;
    return (round.first + among % round.heads) * p.kv_tiles + index;
  }
}

/// The pass over K/V blocks: one block for each tile of K and V of each kv head, by the
/// `backward_columns` of the traits' own namespace, which awaits the kernel before when it has sent
/// for K and V.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_columns_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  if constexpr (!Traits::kTellsAdded) arch::launch_dependents();
  backward_columns<Traits>(p, column_of(p, arch::block_index()), arch::dynamic_shared());
}

/// The same for kInOrder, where a block may wait for those with smaller indices, which are given
/// out as the blocks begin, so that whoever is waited for has begun.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_in_order_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  int* const column = reinterpret_cast<int*>(arch::dynamic_shared());
  arch::launch_dependents();
  if (arch::thread_index() == 0) {
    arch::await_dependencies();  // the counter is set, and the turns are
    *column = column_of(p, arch::fetch_add(p.begun(), 1));
  }
  arch::barrier();
  const int mine = *column;
  arch::barrier();  // everyone has read it before the tiles are written there
  backward_columns<Traits>(p, mine, arch::dynamic_shared());
}

/// The tile of rows that a block takes, of `tile` among them, if those of the heads that the pass
/// ends with come last.
template <class Traits>
ATTILE_DEVICE int late_heads_last(const BackwardParams<Traits>& p, int tile) {
  if (p.kv_tiles == 0) return tile;
  const int late_heads = ceil_div(arch::multiprocessor_bound(), p.kv_tiles) + p.rounds.heads;
  const std::int64_t late_tiles = std::int64_t{late_heads} * (p.q_heads / p.kv_heads) * p.q_tiles;
  const int late = static_cast<int>(min<std::int64_t>(late_tiles, arch::block_count()));
  return tile < late ? tile - late + arch::block_count() : tile - late;
}

/// Waits until the sum of dQ of a tile of rows is complete, while the pass may still add to others.
template <class Traits>
ATTILE_DEVICE void await_sum(const BackwardParams<Traits>& p, int tile) {
  if (p.kv_tiles == 0) {  // there is no pass: zeros are what preprocessing wrote
    arch::await_dependencies();
    return;
  }
  const int first = tile / p.q_tiles / (p.q_heads / p.kv_heads) * p.kv_tiles;
  for (int i = arch::thread_index(); i < p.kv_tiles * Traits::kTellers; i += Traits::kDqThreads) {
    while (arch::load_acquire(p.added(first, i)) == 0) {
    }
  }
  arch::barrier();  // what one thread has acquired counts for all
}

/// One block for each tile of query rows of each head, after the pass over K/V blocks.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kDqThreads, 1)
    backward_postprocess_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  int tile = row_tile_of_block<Traits>();
  if constexpr (Traits::kTellsAdded) {
    tile = late_heads_last(p, tile);
    await_sum(p, tile);
  } else {
    arch::await_dependencies();  // the sum is complete
  }
  const int slice = tile / p.q_tiles;
  store_dq(p, slice / p.q_heads, slice % p.q_heads, tile % p.q_tiles * Traits::kBr,
           arch::dynamic_shared());
  // Whoever waits for this kernel's end waits for that of the pass, too.
  if (Traits::kTellsAdded && arch::block_index() == 0) arch::await_dependencies();
}

namespace detail {

/// The kernel of the pass over K/V blocks.
template <class Traits>
constexpr auto columns_kernel() {
  if constexpr (Traits::kDqMode == DqMode::kInOrder) {
    return backward_in_order_kernel<Traits>;
  } else {
    return backward_columns_kernel<Traits>;
  }
}

}  // namespace detail

}  // namespace attile
