// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/kernel/backward/backward_params.cuh>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/problem/work_tile.h>

#include <cstdint>

// These functions map the blocks of a backward pass to work tiles: to tiles of K and V in the pass
// over them, to tiles of query rows in the kernels before and after it. A kv block is one tile of
// Bc keys of one kv head of one sequence, which one block of the pass computes; kv blocks are
// numbered through the problem.

namespace attile {

/// Says whether kv blocks are counted through all sequences of one kv head after another, so that
/// which heads ascend (`kv_block_of`) depends on the head alone. Else they are counted through all
/// kv heads of one sequence after another.
template <class Traits>
inline constexpr bool kHeadMajor = Traits::kAlternatesFrom > 0;

/// Returns the work tile of a kv block. Its head is the first one that reads the kv head.
template <class Traits>
ATTILE_DEVICE WorkTile kv_work_tile(const BackwardParams<Traits>& p, int kv_block) {
  const int batch_head = kv_block / p.kv_tiles;
  const int index = kv_block % p.kv_tiles;
  WorkTile at;
  at.sequence = kHeadMajor<Traits> ? batch_head % p.batch : batch_head / p.kv_heads;
  at.kv_head = kHeadMajor<Traits> ? batch_head / p.batch : batch_head % p.kv_heads;
  at.head = at.kv_head * p.group_heads;
  at.extent = p.policies.sequences.extent(at.sequence, p.bounds);
  at.kv_tiles = {index, index, index, index + 1};
  return at;
}

/// Returns the work tile of a tile of query rows. `number`: counted through all heads of one
/// sequence after another, from a head's first rows on.
template <class Traits>
ATTILE_DEVICE WorkTile q_work_tile(const BackwardParams<Traits>& p, int number) {
  const int batch_head = number / p.q_tiles;
  WorkTile at;
  at.sequence = batch_head / p.q_heads;
  at.head = batch_head % p.q_heads;
  at.kv_head = at.head / p.group_heads;
  at.row0 = number % p.q_tiles * Traits::kBr;
  at.extent = p.policies.sequences.extent(at.sequence, p.bounds);
  return at;
}

/// Does the same, but counts from a head's last rows on, which see most under a causal mask.
template <class Traits>
ATTILE_DEVICE WorkTile q_work_tile_from_last(const BackwardParams<Traits>& p, int number) {
  WorkTile at = q_work_tile(p, number);
  at.row0 = (p.q_tiles - 1) * Traits::kBr - at.row0;
  return at;
}

/// Returns the first kv block of the kv head that a work tile's rows read.
template <class Traits>
ATTILE_DEVICE int first_kv_block(const BackwardParams<Traits>& p, const WorkTile& at) {
  static_assert(!kHeadMajor<Traits>, "attile::first_kv_block: kv blocks go sequence by sequence");
  return (at.sequence * p.kv_heads + at.kv_head) * p.kv_tiles;
}

/// Returns the kv block of the `begun`-th block to begin; the kv heads of a round begin one tile
/// each, then the next tile each. A head begins with its first tile, which under a causal mask has
/// most rows: the blocks that begin last are short. With kInOrder it begins with its last tile,
/// since a block waits for those of later tiles, and goes through its rows from the first on: under
/// a causal mask or a window it then meets no rows before the next tile has. kAlternatesFrom says
/// where half of the heads ascend: they begin with the first tile, and with the last rows of each
/// tile. Which heads those are must depend neither on the number of sequences nor on the device,
/// because the order of the sums depends on it.
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

/// Returns the tile of query rows that the `tile`-th block of the kernel after the pass stores. The
/// heads that the pass ends with come last, so that the blocks that begin first need not wait.
template <class Traits>
ATTILE_DEVICE int late_heads_last(const BackwardParams<Traits>& p, int tile) {
  if (p.kv_tiles == 0) return tile;
  const int late_heads = ceil_div(arch::multiprocessor_bound(), p.kv_tiles) + p.rounds.heads;
  const std::int64_t late_tiles = std::int64_t{late_heads} * p.group_heads * p.q_tiles;
  const int late = static_cast<int>(min<std::int64_t>(late_tiles, arch::block_count()));
  return tile < late ? tile - late + arch::block_count() : tile - late;
}

}  // namespace attile
