// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/vec.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_params.cuh>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/problem/find_slot.cuh>
#include <attile/tile/warp_sum.cuh>

#include <cstdint>

// These functions map the blocks of a backward pass to work tiles: to tiles of K and V in the pass
// over them, to tiles of query rows in the kernels before and after it. A kv block is one tile of
// Bc keys of one kv head of one sequence, which one block of the pass computes. Kv blocks are
// numbered through the problem, as many for each sequence as there are tiles of the bound kv_len,
// or where sequences are packed in the order in which they begin.

namespace attile {

/// Says whether kv blocks are numbered kv head by kv head, in each sequence by sequence, so that
/// the kv head alone decides whether a head ascends (`kv_block_of`). Else they are numbered
/// sequence by sequence.
template <class Traits>
inline constexpr bool kHeadMajor = Traits::kAlternatesFrom > 0;

/// Writes a work tile of packed sequences to a list in device memory, with the lengths of its
/// sequence and where that begins, so that who reads it reads nothing else. `head`: the query head
/// or the kv head; `tile`: the number of its tile; `kind`: what else is said of it.
template <Sequences Q>
ATTILE_DEVICE void list_tile(const Q& sequences, int* list, std::int64_t number, const WorkTile& at,
                             int head, int tile, int kind) {
  int* const listed = list + kListedInts * number;
  arch::store(listed, Vec<int, 4>{at.sequence, head, tile, kind});
  arch::store(listed + 4,
              Vec<int, 4>{at.extent.q_len, at.extent.kv_len, row_number(sequences, at.q_origin),
                          row_number(sequences, at.kv_origin)});
}
/// Returns the sequence, head, tile and kind that list_tile wrote.
ATTILE_DEVICE Vec<int, 4> listed_tile(const int* list, std::int64_t number) {
  return arch::load<4>(list + kListedInts * number);
}
/// Reads the lengths and origins that list_tile wrote into `at`.
template <Sequences Q>
ATTILE_DEVICE void read_listed_lengths(const Q& sequences, WorkTile& at, const int* list,
                                       std::int64_t number) {
  const Vec<int, 4> lengths = arch::load<4>(list + kListedInts * number + 4);
  at.extent = {lengths[0], lengths[1]};
  at.q_origin = origin_of_row(sequences, lengths[2]);
  at.kv_origin = origin_of_row(sequences, lengths[3]);
}

/// Returns the work tile of a kv block. Its head is the first one that reads the kv head. Of packed
/// sequences it is listed (list_kv_blocks).
template <class Traits>
ATTILE_DEVICE WorkTile kv_work_tile(const BackwardParams<Traits>& p, int kv_block) {
  WorkTile at;
  int index;
  if constexpr (BackwardParams<Traits>::kPackedSequences) {
    if (p.rows_first(kv_block)) kv_block -= p.kv_blocks();
    if (p.ascends(kv_block)) kv_block -= p.kv_blocks();
    const Vec<int, 4> listed = listed_tile(p.kv_block_list, kv_block);
    at.sequence = listed[0];
    at.kv_head = listed[1];
    index = listed[2];
    read_listed_lengths(p.policies.sequences, at, p.kv_block_list, kv_block);
  } else {
    const int batch_head = kv_block / p.kv_tiles;
    index = kv_block % p.kv_tiles;
    at.sequence = kHeadMajor<Traits> ? batch_head % p.batch : batch_head / p.kv_heads;
    at.kv_head = kHeadMajor<Traits> ? batch_head / p.batch : batch_head % p.kv_heads;
    p.read_lengths(at);
  }
  at.head = at.kv_head * p.group_heads;
  at.kv_tiles = {index, index, index, index + 1};  // from `index` to the next one; none is full
  return at;
}

/// Returns the kv tile, and its head, that is the `begun`-th to begin of `heads` kv heads with
/// `tiles` kv tiles each: the kv heads of a round begin one tile each, then the next tile each. A
/// head begins with its first tile, which under a causal mask has most rows: the blocks that begin
/// last are short.
/// With kInOrder a head descends: it begins with its last tile, since a block waits for those of
/// later tiles, and each block goes through its rows from the first on. Under a causal mask or a
/// window the block then meets its first rows when the block of the next tile is done with them.
/// Where kAlternatesFrom says so, half of the heads ascend, all but the first `descending` ones:
/// they begin with the first tile, and their blocks with the last rows. Which heads those are must
/// depend neither on the number of sequences nor on the device, because the order of the sums
/// depends on it. Where none descends, all ascend (goes_rows_first).
template <class Traits>
ATTILE_DEVICE HeadTile begun_tile(const HeadRounds& rounds, int descending, int heads, int tiles,
                                  int begun) {
  if constexpr (Traits::kAlternatesFrom > 0) {
    if (descending > 0) return AlternatingHeads{rounds, descending, heads}.tile(begun, tiles);
  }
  const bool descends = Traits::kDqMode == DqMode::kInOrder && descending > 0;
  const HeadRounds::Round round = rounds.round_of(begun / tiles);
  const int among = begun - round.first * tiles;
  const int begun_before = among / round.heads;
  return {round.first + among % round.heads, descends ? tiles - 1 - begun_before : begun_before};
}

/// Says in which order a kv block of packed sequences goes through its rows, and so which other kv
/// blocks begin before it. The number of such a kv block holds it: it is the index in kv_block_list
/// plus the order times kv_blocks() (BackwardParams::ascends, rows_first).
enum class KvBlockOrder { kDescends = 0, kAscends = 1, kRowsFirst = 2 };

/// Is a kv block of packed sequences. `tile.sequence`: below 0 where there is none.
struct PackedKvBlock {
  WorkTile tile{.sequence = -1};
  KvBlockOrder order = KvBlockOrder::kDescends;
};

/// Returns the kv block of the `begun`-th block to begin (begun_tile) where sequences are packed.
/// Those with equally many slots of kv tiles (SequenceRun) begin as those of a dense problem do,
/// runs one after another.
/// Scope    all lanes of a warp.
template <class Traits>
ATTILE_DEVICE PackedKvBlock packed_kv_block(const BackwardParams<Traits>& p, int begun) {
  const auto lengths = [&](int sequence) {
    return p.policies.sequences.extent(sequence, p.bounds);
  };
  const auto rows_first = [&](int sequence) {
    if constexpr (Traits::kRowsFirstFrom > 0) {
      const int kv_tiles = ceil_div(lengths(sequence).kv_len, Traits::kBc);
      return int{goes_rows_first<Traits>(p.kv_heads, p.group_heads, kv_tiles)};
    } else {
      return 0;
    }
  };
  const SequenceRun run = find_run_by_warp(p.kv_slots(), begun, p.kv_heads, rows_first);
  if (run.sequences == 0) return {};
  const int first = run.sequence(0);  // whose lengths decide for all, about the speed alone
  const bool is_rows_first = rows_first(first) != 0;
  const int heads = run.sequences * p.kv_heads;
  const int descending_per_sequence =
      is_rows_first ? 0 : descending_heads<Traits>(p.kv_heads, p.group_heads);
  const int descending = run.sequences * descending_per_sequence;
  const int kv_tiles = max(run.slots - 1, 1);  // a sequence mostly has a slot more than tiles
  int in_flight = rows_first_in_flight(kv_tiles);
  if (!is_rows_first) {
    in_flight = heads_in_flight<Traits>(p.kv_blocks() / run.slots, p.group_heads,
                                        ceil_div(lengths(first).q_len, Traits::kBr), kv_tiles);
  }
  HeadRounds rounds(is_rows_first ? heads : descending, in_flight);
  int before = 0;  // heads
  if constexpr (Traits::kDqMode != DqMode::kInOrder && Traits::kAlternatesFrom == 0) {
    // Where heads begin one after another, the last ones of the grid begin a tile each.
    const int blocks = heads * run.slots;
    const int last = min(last_in_flight(kv_tiles), heads);
    const bool is_end = begun - run.item + blocks >= p.kv_blocks();
    if (is_end && in_flight == 1 && run.item >= blocks - last * run.slots) {
      before = heads - last;
      rounds = HeadRounds(last, last);
    }
  }
  const auto [among_rounds, index] =
      begun_tile<Traits>(rounds, descending, heads, run.slots, run.item - before * run.slots);
  const int head_number = before + among_rounds;
  // The descending heads of all sequences of the run come before the ascending ones.
  const bool descends = head_number < descending;
  const int of_each = descends ? descending_per_sequence : p.kv_heads - descending_per_sequence;
  const int among = descends ? head_number : head_number - descending;
  WorkTile at;
  at.sequence = run.sequence(among / of_each);
  at.kv_head = among % of_each + (descends ? 0 : descending_per_sequence);
  at.kv_tiles = {index, index, index, index + 1};
  p.read_lengths(at);
  // Where offsets of rows decrease, which is wrong, sequences may have slots of rows in common, and
  // so semaphores (q_tile_number): each could wait for kv tiles that the other lacks. So with
  // kInOrder nobody computes such a sequence, and its dK and dV are not written.
  if (Traits::kDqMode == DqMode::kInOrder && !is_found_by_warp(p.q_slots(), at.sequence)) return {};
  if (!p.has_keys(at)) return {};
  return {at, is_rows_first ? KvBlockOrder::kRowsFirst
              : descends    ? KvBlockOrder::kDescends
                            : KvBlockOrder::kAscends};
}

/// Lists the kv blocks of packed sequences for the pass, the lengths of their sequences, and where
/// these begin. Found by each block of the pass that would be a part of its time: a multiprocessor
/// runs one of them at a time, but many warps of this grid.
/// Scope    all threads of a grid of blocks of kThreads.
template <int kThreads, class Traits>
ATTILE_DEVICE void list_kv_blocks(const BackwardParams<Traits>& p) {
  const int thread = arch::thread_index();
  const int warps = arch::block_count() * (kThreads / arch::kWarpSize);
  std::int64_t begun = (std::int64_t{arch::block_index()} * kThreads + thread) / arch::kWarpSize;
  ATTILE_UNROLL_BY(1)
  for (; begun < p.kv_blocks(); begun += warps) {
    const auto [at, order] = packed_kv_block(p, static_cast<int>(begun));
    if (thread % arch::kWarpSize != 0) continue;
    list_tile(p.policies.sequences, p.kv_block_list, begun, at, at.kv_head, at.kv_tile(),
              static_cast<int>(order));
  }
}

/// Returns the kv block of the `begun`-th block to begin (begun_tile) where nothing has been listed
/// or sorted. Batch heads go in Problem::head_order.
template <class Traits>
ATTILE_DEVICE int unsorted_kv_block(const BackwardParams<Traits>& p, int begun) {
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  static_assert(!(kHeadMajor<Traits> && BackwardParams<Traits>::kOrdersHeads),
                "attile: which heads ascend follows from the number of the batch head");
  if (!kInOrder && (!Traits::kHeadsInFlight || p.rounds.one_each())) {
    return p.in_head_order(begun, p.kv_tiles, p.kv_heads);
  }
  const auto [head, index] = begun_tile<Traits>(p.rounds, p.ascending_from / p.kv_tiles,
                                                p.batch * p.kv_heads, p.kv_tiles, begun);
  return p.ordered_head(head, p.kv_heads) * p.kv_tiles + index;
}

/// Sorts the kv blocks that begin last, with kSortsLastKvBlocks: those with more steps first, as a
/// long block that begins last lets all other multiprocessors wait. Blocks with as many go by kv
/// tiles and then by heads.
/// Scope    all threads of a grid of blocks of kThreads.
template <int kThreads, class Traits>
ATTILE_DEVICE void sort_last_kv_blocks(const BackwardParams<Traits>& p) {
  struct Sorted {
    int steps, tile;
  };
  // Steps are those over all query heads that read the kv head.
  const auto sorted = [&](int begun) {
    WorkTile kv = kv_work_tile(p, unsorted_kv_block(p, begun));
    Sorted at{0, kv.kv_tile()};
    for (const int end = p.head_end(kv); kv.head < end; ++kv.head) {
      at.steps += p.q_tiles_seeing(kv, at.tile).last;
    }
    return at;
  };
  const int thread = arch::thread_index();
  const int warps = arch::block_count() * (kThreads / arch::kWarpSize);
  std::int64_t begun = (std::int64_t{arch::block_index()} * kThreads + thread) / arch::kWarpSize;
  ATTILE_UNROLL_BY(1)
  for (begun += p.sorted_from; begun < p.kv_blocks(); begun += warps) {
    const auto number = static_cast<int>(begun);
    const Sorted own = sorted(number);
    std::uint32_t before = 0;
    ATTILE_UNROLL_BY(1)
    for (int i = p.sorted_from + thread % arch::kWarpSize; i < p.kv_blocks();
         i += arch::kWarpSize) {
      const Sorted other = sorted(i);
      const bool is_before = other.tile != own.tile ? other.tile < own.tile : i < number;
      before += other.steps != own.steps ? other.steps > own.steps : is_before;
    }
    before = tile::warp_sum(before);
    if (thread % arch::kWarpSize == 0) p.sorted_blocks[before] = unsorted_kv_block(p, number);
  }
}

/// Returns the kv block of the `begun`-th block to begin, or one below 0 where that has none.
/// Packed sequences have a list of them, which is there behind the end of preprocessing, and number
/// them as they begin; those that ascend, and those that go rows first, have numbers of their own
/// (BackwardParams::ascends, rows_first). Sorted ones are there behind that end, too.
template <class Traits>
ATTILE_DEVICE int kv_block_of(const BackwardParams<Traits>& p, int begun) {
  if constexpr (BackwardParams<Traits>::kPackedSequences) {
    const Vec<int, 4> listed = listed_tile(p.kv_block_list, begun);
    return listed[0] < 0 ? -1 : begun + listed[3] * p.kv_blocks();
  } else {
    if constexpr (Traits::kSortsLastKvBlocks) {
      if (begun >= p.sorted_from) return p.sorted_blocks[begun - p.sorted_from];
    }
    return unsorted_kv_block(p, begun);
  }
}

/// Returns whether a kv block, as kv_block_of gives it, has keys.
template <class Traits>
ATTILE_DEVICE bool has_keys(const BackwardParams<Traits>& p, int kv_block) {
  if constexpr (BackwardParams<Traits>::kPackedSequences) return kv_block >= 0;
  return Traits::SequencesType::kUniform || p.has_keys(kv_work_tile(p, kv_block));
}

/// Returns the work tile of a tile of query rows (Problem::row_tile), of packed sequences from the
/// list, behind the end of preprocessing. `is_computed`: whether the pass adds to its dQ.
template <class Traits>
ATTILE_DEVICE WorkTile listed_row_tile(const BackwardParams<Traits>& p, int number,
                                       bool& is_computed) {
  if constexpr (BackwardParams<Traits>::kPackedSequences) {
    const Vec<int, 4> listed = listed_tile(p.q_tile_list, number);
    WorkTile at;
    at.sequence = listed[0];
    at.head = listed[1];
    at.kv_head = at.head / p.group_heads;
    at.row0 = listed[2] * Traits::kBr;
    read_listed_lengths(p.policies.sequences, at, p.q_tile_list, number);
    is_computed = listed[3] != 0;
    return at;
  } else {
    const WorkTile at = p.row_tile(number, p.q_tiles);
    is_computed = p.kv_tiles_of(at) > 0;
    return at;
  }
}
/// Lists a tile of query rows of packed sequences for the kernel behind the pass.
/// Scope    all lanes of a warp.
template <class Traits>
ATTILE_DEVICE void list_row_tile(const BackwardParams<Traits>& p, int number, const WorkTile& at) {
  const bool has_rows = at.sequence >= 0 && p.has_rows(at);
  // Where offsets decrease, which is wrong, the pass leaves sequences out (find_run_by_warp).
  const bool is_computed =
      has_rows && p.kv_tiles_of(at) > 0 && is_found_by_warp(p.kv_slots(), at.sequence);
  if (arch::thread_index() % arch::kWarpSize != 0) return;
  list_tile(p.policies.sequences, p.q_tile_list, number, at, at.head, at.row0 / Traits::kBr,
            is_computed);
}

/// Returns the tile of query rows that a block of the kernel after the pass stores, behind which
/// `blocks_after` blocks begin (q_tile_of_block, which counts down). Tiles are rotated, so that the
/// blocks that begin last get the heads that the pass ends with, and the first ones need not wait.
template <class Traits>
ATTILE_DEVICE int late_heads_last(const BackwardParams<Traits>& p, int blocks_after) {
  if (p.kv_tiles == 0) return blocks_after;
  std::int64_t late_tiles = 0;
  if constexpr (BackwardParams<Traits>::kPackedSequences) {
    // The last wave of the pass, and the kv tiles of one more head, which it may complete; a kv
    // block counts as the q tiles of as many rows as it has keys.
    constexpr int kTiles = ceil_div(Traits::kBc, Traits::kBr);
    const std::int64_t kv_blocks = arch::multiprocessor_bound() + p.kv_tiles;
    late_tiles = kv_blocks * kTiles * p.group_heads;
  } else {
    const int late_heads = ceil_div(arch::multiprocessor_bound(), p.kv_tiles) + p.rounds.heads;
    late_tiles = std::int64_t{late_heads} * p.group_heads * p.q_tiles;
  }
  const int late = static_cast<int>(min<std::int64_t>(late_tiles, arch::block_count()));
  const int number =
      blocks_after < late ? blocks_after - late + arch::block_count() : blocks_after - late;
  return p.in_head_order(number, p.q_tiles, p.q_heads);
}

}  // namespace attile
