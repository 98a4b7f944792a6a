// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/opaque.h>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/config.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/kernel/dq_mode.h>
#include <attile/tile/copy.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace attile {

/// What the kernels get: the arguments with everything resolved that the host knows.
template <class Traits>
struct BackwardParams {
  using T = typename Traits::ElementType;

  tile::TensorParam<const T> q, k, v, o, dout;
  tile::TensorParam<T> dq, dk, dv;
  const float* lse;  ///< LSE; where l is given, m
  const float* l;    ///< null, or the l of FlashAttention-1: LSE = m + ln(l)
  const float* dlse;
  float* row_lse;  ///< (batch, q_heads, stat_rows): LSE; +inf where P must be 0
  float* delta;    ///< (batch, q_heads, stat_rows): rowsum(dO * O) - dLSE; 0 past q_len
  float* dq_sum;   ///< (batch, q_heads, stat_rows, kDqCols); null with kTwoPass
  int* turns;      ///< kInOrder: see turn_of and begun
  int* shares;     ///< see share_taken; null where the kernel before writes all zeros
  int* flags;      ///< kTellsAdded: see added
  int batch, q_heads, kv_heads;
  Extent extent;
  int head_dim, head_dim_v;
  int q_tiles, kv_tiles;
  HeadRounds rounds;  ///< of kv heads: see column_of
  float scale;
  typename Traits::MaskType mask;
  typename Traits::ScoreModType score_mod;
  typename Traits::DropoutType dropout;
  float half_unit;     ///< 0.5 / scale: half of an LSE, in raw scores
  int ascending_from;  ///< kAlternatesFrom: the first column of the heads that ascend

  /// What a family adds that can fail, or why its kernels do not take the arguments.
  [[nodiscard]] Check complete(const typename Traits::Args&) { return {}; }

  /// Rows of the statistics of one head: whole tiles, so that the loop reads without a bound.
  ATTILE_HOST_DEVICE std::int64_t stat_rows() const {
    return static_cast<std::int64_t>(q_tiles) * Traits::kBr;
  }
  ATTILE_HOST_DEVICE std::int64_t slices() const {
    return static_cast<std::int64_t>(batch) * q_heads;
  }
  /// The tiles of query rows that see any of a tile of K and V.
  ATTILE_HOST_DEVICE TileRange rows_of(int b, int head, int kv_tile) const {
    const Extent here{arch::opaque(extent.q_len), arch::opaque(extent.kv_len)};
    return row_tiles(mask, b, head, kv_tile * Traits::kBc, Traits::kBc, Traits::kBr, here);
  }
  /// Whether the tiles of K and V of a column's kv head ascend (`column_of`).
  ATTILE_HOST_DEVICE bool ascends(int column) const {
    return Traits::kAlternatesFrom > 0 && column >= ascending_from;
  }
  /// The tile of K and V that was the latest to add its part to the dQ of those rows; kv_tiles at
  /// first.
  ATTILE_HOST_DEVICE int* turn_of(int b, int head, int row0) const {
    return turns + (static_cast<std::int64_t>(b) * q_heads + head) * q_tiles + row0 / Traits::kBr;
  }
  /// Blocks of the pass over K/V blocks that have begun.
  ATTILE_HOST_DEVICE int* begun() const { return turns + slices() * q_tiles; }
  /// Each column has a share of the zeros that the sum of dQ begins with, which any block may
  /// write: not 0 once somebody does, and 1 once that is done.
  ATTILE_HOST_DEVICE int* share_taken(int column) const { return shares + column; }
  ATTILE_HOST_DEVICE int* share_cleared(int column) const { return shares + columns() + column; }
  /// kTellsAdded: not 0 when what a teller knows of a column's dQ has been added to the sum.
  ATTILE_HOST_DEVICE int* added(int column, int teller) const {
    return flags + std::int64_t{Traits::kTellers} * column + teller;
  }
  /// Tiles of K and V of all kv heads, and blocks of that pass.
  ATTILE_HOST_DEVICE int columns() const { return batch * kv_heads * kv_tiles; }
  /// The fp32 sum of dQ of one head from a row on; the family decides how a tile of it lies.
  ATTILE_DEVICE float* dq_sum_of(std::int64_t slice, int row) const {
    return dq_sum + (slice * stat_rows() + row) * Traits::kDqCols;
  }
};

/// Bytes of the caller's scratch memory, and where each part of it starts.
/// Units   bytes. For each query row, rounded up to tiles: statistics 8; the sum of dQ 4 for each
///         column of a tile (D rounded up to 4, or to whole pieces of the warps that share a row
///         with matrix instructions), not with kTwoPass. Turns 4 for each tile of query rows and 4
///         more, with kInOrder; shares 8 for each tile of keys of each kv head, kClearsInPass;
///         flags 4 for each teller of each of those tiles, kTellsAdded.
struct BackwardWorkspace {
  std::size_t row_lse, delta, dq_sum, turns, flags, bytes;  ///< turns, or shares
};

template <class Traits>
BackwardWorkspace backward_workspace(const typename Traits::Args& args) {
  const std::size_t slices = static_cast<std::size_t>(args.batch) * args.q_heads;
  const std::size_t stats = sizeof(float) * slices * round_up(args.q_len, Traits::kBr);
  const std::size_t sums = Traits::kDqMode != DqMode::kTwoPass ? stats * Traits::kDqCols : 0;
  const std::size_t turns = Traits::kDqMode == DqMode::kInOrder
                                ? sizeof(int) * (slices * ceil_div(args.q_len, Traits::kBr) + 1)
                                : 0;
  const std::size_t columns =
      static_cast<std::size_t>(args.batch) * args.kv_heads * ceil_div(args.kv_len, Traits::kBc);
  const std::size_t shares = Traits::kClearsInPass ? 2 * sizeof(int) * columns : 0;
  std::size_t flags = 0;
  if constexpr (Traits::kTellsAdded) flags = sizeof(int) * Traits::kTellers * columns;
  const std::size_t aligned_stats = round_up<std::size_t>(stats, 16);
  const std::size_t behind = 2 * aligned_stats + sums;
  const std::size_t bytes = max<std::size_t>(behind + turns + shares + flags, 16);
  return {0, aligned_stats, 2 * aligned_stats, behind, behind + turns + shares, bytes};
}

/// Whether the pass writes the zeros of the sum of dQ: where the blocks of a kv head run together,
/// each with a share that is worth its atomics, and L2 has room for what some hundred of them write
/// ahead. On an H200 it is 4 % faster with 8 MB of sum for a kv head, and 3 % slower with 16 MB, in
/// shares of 32 and 64 KB (docs/tuning.md); others are not measured.
template <class Traits>
bool clears_in_pass(const typename Traits::Args& args) {
  if (!Traits::kClearsInPass || args.kv_heads == 0 || args.kv_len == 0) return false;
  const std::int64_t rows = round_up(args.q_len, Traits::kBr);
  const std::int64_t heads = args.q_heads / args.kv_heads;
  const std::int64_t sum = heads * rows * Traits::kDqCols * std::int64_t{sizeof(float)};
  const int kv_tiles = ceil_div(args.kv_len, Traits::kBc);
  const std::int64_t share = sum / kv_tiles;
  return sum <= 8 << 20 && kv_tiles <= 128 && 16 << 10 <= share && share <= 128 << 10;
}

/// Whether half of the kv heads ascend: see column_of.
template <class Traits>
bool alternates(const typename Traits::Args& args) {
  return Traits::kAlternatesFrom > 0 && args.kv_heads > 0 &&
         args.q_heads / args.kv_heads >= Traits::kAlternatesFrom;
}

/// How many kv heads begin a tile each before one of them begins its next one. Of speed alone.
/// kInOrder a block waits for a step of the one before it, so blocks of one head can begin one a
/// step, and as many end in a step as the device runs at a time, over the steps that a block takes.
/// Twice that, since dQ is on its way for longer than a step; where heads alternate, at least what
/// fills a device.
/// Else one: blocks of one head share what L2 holds. But where there are few, and a mask makes them
/// uneven, as many heads as fill a device, so that the longest of all begin first.
template <class Traits>
int slices_abreast(const typename Traits::Args& args) {
  if (args.kv_heads == 0 || args.q_len == 0 || args.kv_len == 0) return 1;
  constexpr int kDeviceBlocks = 128;
  const std::int64_t slices = std::int64_t{args.batch} * args.kv_heads;
  std::int64_t abreast = 1;
  if constexpr (Traits::kDqMode == DqMode::kInOrder) {
    constexpr std::int64_t kMostBlocks = 256;
    abreast = ceil_div(kMostBlocks, std::int64_t{args.q_heads / args.kv_heads} *
                                        ceil_div(args.q_len, Traits::kBr));
    if (alternates<Traits>(args)) {
      const int tiles = ceil_div(args.kv_len, Traits::kBc);
      abreast = max<std::int64_t>(abreast, ceil_div(kDeviceBlocks, tiles));
    }
  } else if constexpr (Traits::kHeadsAbreast && !kRowsAlike<typename Traits::MaskType>) {
    const int tiles = ceil_div(args.kv_len, Traits::kBc);
    if (slices * tiles <= 8 * kDeviceBlocks) abreast = kDeviceBlocks / tiles;
  }
  return static_cast<int>(max<std::int64_t>(min(abreast, slices), 1));
}

/// The kernels' parameters for arguments that passed `check_arguments`; the rest is `complete`'s.
/// Without a workspace they are nothing to launch with.
template <class Traits>
typename Traits::Params backward_params(const typename Traits::Args& args, void* workspace,
                                        const float* l = nullptr) {
  const auto [qk, v] = head_dims(args, Traits::kD, Traits::kDv);
  const BackwardWorkspace parts = backward_workspace<Traits>(args);
  const auto part = [&](std::size_t offset) -> void* {
    return workspace == nullptr ? nullptr : static_cast<unsigned char*>(workspace) + offset;
  };
  typename Traits::Params p{};
  p.q = tile::tensor_param(args.q, qk);
  p.k = tile::tensor_param(args.k, qk);
  p.v = tile::tensor_param(args.v, v);
  p.o = tile::tensor_param(args.o, v);
  p.dout = tile::tensor_param(args.dout, v);
  p.dq = tile::tensor_param(args.dq, qk);
  p.dk = tile::tensor_param(args.dk, qk);
  p.dv = tile::tensor_param(args.dv, v);
  p.lse = args.lse;
  p.l = l;
  p.dlse = args.dlse;
  p.row_lse = static_cast<float*>(part(parts.row_lse));
  p.delta = static_cast<float*>(part(parts.delta));
  if (Traits::kDqMode != DqMode::kTwoPass) p.dq_sum = static_cast<float*>(part(parts.dq_sum));
  if (Traits::kDqMode == DqMode::kInOrder) p.turns = static_cast<int*>(part(parts.turns));
  if (Traits::kTellsAdded) p.flags = static_cast<int*>(part(parts.flags));
  p.batch = args.batch;
  p.q_heads = args.q_heads;
  p.kv_heads = args.kv_heads;
  p.extent = {args.q_len, args.kv_len};
  p.head_dim = qk;
  p.head_dim_v = v;
  p.q_tiles = ceil_div(args.q_len, Traits::kBr);
  p.kv_tiles = ceil_div(args.kv_len, Traits::kBc);
  const int descending = p.batch * (alternates<Traits>(args) ? (p.kv_heads + 1) / 2 : p.kv_heads);
  p.ascending_from = descending * p.kv_tiles;
  p.rounds = {descending, slices_abreast<Traits>(args)};
  if (clears_in_pass<Traits>(args) && p.columns() > 0) {
    p.shares = static_cast<int*>(part(parts.turns));
  }
  p.scale = scale_of(args, qk);
  p.mask = args.mask;
  p.score_mod = args.score_mod;
  p.dropout = args.dropout;
  p.half_unit = 0.5f / p.scale;
  return p;
}

}  // namespace attile
