// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/kernel/backward_params.cuh>
#include <attile/kernel/dq_mode.h>
#include <attile/kernel/work_tile.h>

#include <cstdint>

// Which block of a backward pass takes which work tile: tiles of K and V in the pass over them,
// tiles of query rows in the kernels before and behind it. A column is one tile of Bc keys of one
// kv head of one sequence, which one block of the pass takes; columns are numbered through the
// problem.

namespace attile {

/// Whether columns are counted through all sequences of one kv head after another, so that which
/// heads ascend (`kv_block_of`) depends on the head alone. Else through all kv heads of one
/// sequence after another.
template <class Traits>
inline constexpr bool kHeadByHead = Traits::kAlternatesFrom > 0;

/// The work tile of a column. Its head is the first one that reads the kv head.
template <class Traits>
ATTILE_DEVICE WorkTile kv_work_tile(const BackwardParams<Traits>& p, int kv_block) {
  const int batch_head = kv_block / p.kv_tiles;
  const int index = kv_block % p.kv_tiles;
  WorkTile at;
  at.sequence = kHeadByHead<Traits> ? batch_head % p.batch : batch_head / p.kv_heads;
  at.kv_head = kHeadByHead<Traits> ? batch_head / p.batch : batch_head % p.kv_heads;
  at.head = at.kv_head * p.group_heads;
  at.extent = p.policies.sequences.extent(at.sequence, p.bounds);
  at.kv_tiles = {index, index, index, index + 1};
  return at;
}

/// The work tile of a tile of query rows. `number`: counted through all heads of one sequence after
/// another, from a head's first rows on.
template <class Traits>
ATTILE_DEVICE WorkTile row_tile(const BackwardParams<Traits>& p, int number) {
  const int batch_head = number / p.q_tiles;
  WorkTile at;
  at.sequence = batch_head / p.q_heads;
  at.head = batch_head % p.q_heads;
  at.kv_head = at.head / p.group_heads;
  at.row0 = number % p.q_tiles * Traits::kBr;
  at.extent = p.policies.sequences.extent(at.sequence, p.bounds);
  return at;
}

/// The same where a head's last rows, which see most under a causal mask, come first.
template <class Traits>
ATTILE_DEVICE WorkTile last_rows_first(const BackwardParams<Traits>& p, int number) {
  WorkTile at = row_tile(p, number);
  at.row0 = (p.q_tiles - 1) * Traits::kBr - at.row0;
  return at;
}

/// The first column of the kv head that a work tile's rows read.
template <class Traits>
ATTILE_DEVICE int first_kv_block(const BackwardParams<Traits>& p, const WorkTile& at) {
  static_assert(!kHeadByHead<Traits>, "attile::first_kv_block: columns go sequence by sequence");
  return (at.sequence * p.kv_heads + at.kv_head) * p.kv_tiles;
}

/// The column of the block that is the `begun`-th to begin: the kv heads of a round begin their
/// tiles in turn. Each from its first tile on, which under a causal mask has most rows: the blocks
/// that begin last are short. kInOrder from its last one on, since a block waits for those behind
/// its tile, and takes its rows from the first on: under a causal mask or a window it then meets no
/// rows before the tile behind it has. kAlternatesFrom says where half of the heads ascend: from
/// the first tile on, and each tile's rows from the last one on. Which heads those are must depend
/// neither on how many batches there are nor on the device: the order of the sums would.
template <class Traits>
ATTILE_DEVICE int kv_block_of(const BackwardParams<Traits>& p, int begun) {
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  if constexpr (Traits::kAlternatesFrom > 0) {
    const AlternatingHeads heads{p.rounds, p.ascending_from / p.kv_tiles, p.batch * p.kv_heads};
    const auto [head, index] = heads.tile(begun, p.kv_tiles);
    return head * p.kv_tiles + index;
  } else {
    if (!kInOrder && (!Traits::kHeadsInFlight || p.rounds.one_each())) return begun;
    const HeadRounds::Round round = p.rounds.round_of(begun / p.kv_tiles);
    const int among = begun - round.first * p.kv_tiles;
    const int index = kInOrder ? p.kv_tiles - 1 - among / round.heads : among / round.heads;
    return (round.first + among % round.heads) * p.kv_tiles + index;
  }
}

/// The tile of query rows that a block behind the pass takes, of the `tile`-th among them. The
/// heads that the pass ends with come last, so that the blocks that begin first have not to wait.
template <class Traits>
ATTILE_DEVICE int late_heads_last(const BackwardParams<Traits>& p, int tile) {
  if (p.kv_tiles == 0) return tile;
  const int late_heads = ceil_div(arch::multiprocessor_bound(), p.kv_tiles) + p.rounds.heads;
  const std::int64_t late_tiles = std::int64_t{late_heads} * p.group_heads * p.q_tiles;
  const int late = static_cast<int>(min<std::int64_t>(late_tiles, arch::block_count()));
  return tile < late ? tile - late + arch::block_count() : tile - late;
}

}  // namespace attile
