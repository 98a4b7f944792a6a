// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/sequences.h>
#include <attile/core/status.h>

#include <climits>
#include <cstdint>

namespace attile {

/// Describes what a block computes at a time: rows of one query head of one sequence, or of several
/// heads that share a tile, against tiles of the sequence's keys. A schedule makes it, and all
/// addresses of a kernel follow from it and from the problem. In a backward pass over keys a block
/// has one kv tile, and goes through the rows that see it: `head` and `row0` are then those of the
/// current rows, and at first `head` is the first query head that reads `kv_head`.
struct WorkTile {
  /// Forward: the tiles of Bc keys that any of the rows sees. In a pass over keys: the one kv tile
  /// of the block. It is empty in the kernels before and after that pass, which read no keys.
  TileRange kv_tiles{};
  /// The index of the sequence, which policies call `batch`; below 0: of none, without rows or
  /// keys.
  int sequence = 0;
  int head = 0;     ///< the query head, or the first of those that share the tile
  int kv_head = 0;  ///< the head of K and V that it reads
  /// The first row, counted in the sequence. Where sm90 lets the tiles of a sequence end with its
  /// last row, the first tile may begin below 0, where there are no rows.
  int row0 = 0;
  /// These are read where sequences have lengths of their own (Problem::read_lengths).
  Extent extent{};                    ///< the sequence's lengths
  RowOrigin q_origin{}, kv_origin{};  ///< where its rows and its keys begin
  /// Where keys lie in pages, the first one that any of the rows may see: none before it is read.
  int first_key = 0;

  /// Returns the block's one kv tile, in a pass over keys.
  ATTILE_HOST_DEVICE constexpr int kv_tile() const { return kv_tiles.first; }
};

/// Gives the work tiles of a problem of dense tensors, all of whose sequences have the same
/// lengths, to a kernel of your own: Br rows of one query head each, and the tiles of Bc keys that
/// a mask lets them see.
///   const attile::DenseTiles<128, 64> tiles({batch, q_heads, {q_len, kv_len}}, kv_heads, bytes);
///   arch::launch(kernel, tiles.count(), ...);
/// and in the kernel, one block for each:
///   const attile::WorkTile at = p.tiles.tile(arch::block_index(), attile::Causal{});
///   for (int kv_tile = at.kv_tiles.first; kv_tile < at.kv_tiles.last; ++kv_tile) ...
/// or several, of which every second wave goes backwards, so that no block gets all the long ones:
///   p.tiles.visit(arch::block_index(), arch::block_count(), attile::Causal{},
///                 [&](const attile::WorkTile& at) { ... });
/// Heads follow each other in sections whose K and V fit L2. The tiles of a section begin with the
/// last rows, which see most under a causal mask.
/// Units    key_bytes: of one key and its value.
/// Errors   `check` says with a sentence which sizes make no work tiles; ask it before a launch.
template <int Br, int Bc>
struct DenseTiles {
  ScoreShape shape;
  int kv_heads;
  int section;  ///< heads, of all sequences

  DenseTiles(const ScoreShape& scores, int heads_of_keys, std::int64_t key_bytes)
      : shape(scores), kv_heads(heads_of_keys) {
    const std::int64_t head_bytes = max<std::int64_t>(scores.extent.kv_len * key_bytes, 1);
    const std::int64_t fit = max<std::int64_t>(kL2Bytes / head_bytes, 1);
    const std::int64_t all = std::int64_t{scores.batch} * scores.heads;
    const int group = scores.heads / max(kv_heads, 1);
    section = static_cast<int>(max<std::int64_t>(min(fit * group, all), 1));
  }

  /// Refuses sizes that make no work tiles, or more than a grid has blocks.
  Check check() const {
    const auto [q_len, kv_len] = shape.extent;
    if (shape.batch < 0 || shape.heads < 0 || q_len < 0 || kv_len < 0) {
      return refuse("DenseTiles: batch, q_heads, q_len and kv_len must not be negative");
    }
    if (q_len > kMaxLength || kv_len > kMaxLength) {
      return refuse("DenseTiles: q_len and kv_len must be at most 2^30");
    }
    if (kv_heads < 1 || shape.heads % kv_heads != 0) {
      return refuse("DenseTiles: q_heads must be a multiple of kv_heads, which are at least 1");
    }
    const std::int64_t all = std::int64_t{shape.batch} * shape.heads;
    if (all > INT_MAX || all * q_tiles() > INT_MAX) {
      return refuse("DenseTiles: the problem has more than 2^31 - 1 tiles");
    }
    return {};
  }
  /// Returns the number of work tiles.
  ATTILE_HOST_DEVICE int count() const { return heads() * q_tiles(); }
  /// Returns work tile `number` < count().
  template <class M>
  ATTILE_HOST_DEVICE WorkTile tile(int number, const M& mask) const {
    const HeadTile found = section_tile(number, section, heads(), q_tiles());
    WorkTile at;
    at.sequence = found.head / shape.heads;
    at.head = found.head % shape.heads;
    at.kv_head = at.head / (shape.heads / kv_heads);
    at.row0 = found.index * Br;
    at.extent = shape.extent;
    const Interval rows{at.row0, min(at.row0 + Br, shape.extent.q_len)};
    at.kv_tiles = tiles_of(visible_columns(mask, at.sequence, at.head, rows, shape.extent), Bc);
    return at;
  }
  /// Calls f(tile) for each work tile of a block of a grid of `blocks`.
  template <class M, class F>
  ATTILE_HOST_DEVICE void visit(int block, int blocks, const M& mask, const F& f) const {
    for (int wave = 0;; ++wave) {
      const std::int64_t number = snake(block, blocks, wave);
      if (number >= count()) return;
      f(tile(static_cast<int>(number), mask));
    }
  }

 private:
  ATTILE_HOST_DEVICE int heads() const { return shape.batch * shape.heads; }
  ATTILE_HOST_DEVICE int q_tiles() const { return ceil_div(shape.extent.q_len, Br); }
};

}  // namespace attile
