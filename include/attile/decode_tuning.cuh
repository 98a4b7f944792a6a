// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/earlier_keys.h>
#include <attile/core/math.h>
#include <attile/kernel/sm80/decode_traits.cuh>
#include <attile/tuning.cuh>

// The default tiles of decode kernels, as tuning.cuh has those of the others.

namespace attile {

namespace detail {

/// Holds the tiles of the sm80 decode kernel, and its tuning (sm80::DecodeTuningValues).
struct Sm80DecodeTiles {
  int bc, warps, key_groups, stages, blocks_per_sm, q_stages = 2;
  bool pairs = false;

  constexpr int br() const { return 16 * warps / key_groups; }
};

/// Returns the tiles of the sm80 decode kernel for rows of K, and of V, of so many columns.
/// Units    bytes of an element of Q, and of one of K and V; KB.
/// A group of four warps takes registers for the scores of 16 rows and 64 keys, beside O: up to 256
/// columns of K and V together, of 16 bits. More columns, and fp32, leave registers for two warps,
/// or one; fp8 takes two, because each warp of a group converts all of its keys. A warp has 16 keys
/// of a step, or 32 of fp8, so that a stage has as many bytes. Of these the largest tiles are taken
/// of which two stages fit shared memory, with as many as fit, up to six. Two blocks of a
/// multiprocessor, where both fit, load while one of them merges (bench/log/tuning-decode.md): if
/// need be with one stage of Q. Without an instruction that converts fp8 its warps are in pairs.
/// `state_floats`: DecodeTraits::kStateFloats.
constexpr Sm80DecodeTiles sm80_decode_tiles(int d, int dv, int q_bytes_each, int kv_bytes_each,
                                            int shared_kb, int state_floats) {
  const int columns = d + dv;
  const int row_bytes = columns * kv_bytes_each;
  const bool fp8 = kv_bytes_each == 1;
  const int most = q_bytes_each == 4        ? (columns <= 128 ? 2 : 1)
                   : columns <= 256 && !fp8 ? 4
                   : columns <= 384         ? 2
                                            : 1;
  const int warp_keys = fp8 && columns <= 384 ? 32 : 16;
  // Of devices with 163 KB none converts fp8 by an instruction.
  const auto in_pairs = [&](int group_warps) {
    return fp8 && group_warps == 2 && columns <= 256 && shared_kb == 163;
  };
  // For 16 bits on 227 KB it is mixed: bench/log/tuning-decode.md.
  const int least_q_stages = shared_kb == 163 || (fp8 && shared_kb > 163) ? 1 : 2;
  const auto stages = [&](int warps, int group_warps, int blocks, int q_stages) {
    const int q_bytes = q_stages * 16 * group_warps * d * q_bytes_each;
    const int row_floats = warps * 16 * static_cast<int>(sizeof(float));
    const int merge_bytes = row_floats * sm80::merge_pitch(sm80::merge_columns(dv, warps));
    const int p_bytes = in_pairs(group_warps) ? warps * 16 * 2 * warp_keys * 2 : 0;
    // With a float for each row of fp8's queries (DecodeTraits::kScalesQueries).
    const int others = row_floats * (state_floats + (fp8 ? 1 : 0)) +
                       (q_stages == 1 ? round_up(max(q_bytes + p_bytes, merge_bytes), 1024)
                                      : q_bytes + max(p_bytes, merge_bytes));
    // The device keeps 1 KB of each block.
    const int of_block = (shared_kb + 1) * 1024 / blocks - 1024;
    return (of_block - others) / (warps * warp_keys * row_bytes);
  };
  for (int group_warps = most; group_warps >= 1; group_warps /= 2) {
    for (int warps = 4; warps >= max(group_warps, 2); warps /= 2) {
      for (int blocks = 2; blocks >= 1; --blocks) {
        for (int q_stages = 2; q_stages >= (blocks == 2 ? least_q_stages : 2); --q_stages) {
          const int count = stages(warps, group_warps, blocks, q_stages);
          if (count < 2) continue;
          return {warp_keys * warps,    warps, warps / group_warps, min(count, 6), blocks, q_stages,
                  in_pairs(group_warps)};
        }
      }
    }
  }
  return {16, 1, 1, 1, 1};  // fp32 of 256 columns where a block can have 99 KB
}

template <class Args, int D, int Dv, int kSharedKb>
struct Sm80Decode {
  using E = typename Args::Elements;
  static constexpr int kColumns = tile::kTileColumns<typename E::K>;
  static constexpr Sm80DecodeTiles kTiles = sm80_decode_tiles(
      round_up(D, kColumns), round_up(Dv, kColumns), sizeof(typename E::Q), sizeof(typename E::K),
      kSharedKb, kIsEarlierKeys<typename Args::SinkType> ? 3 : 2);
  // Score modifiers leave pairs too few registers.
  static constexpr bool kPairs = kTiles.pairs && kIsIdentity<typename Args::ScoreModType>;
  using type = sm80::DecodeTraits<
      kTiles.br(), kTiles.bc, D, typename Args::Elements, typename Args::Policies, Dv,
      sm80::DecodeTuning<sm80::DecodeTuningValues{.warps = kTiles.warps,
                                                  .key_groups = kTiles.key_groups,
                                                  .stages = kTiles.stages,
                                                  .blocks_per_sm = kTiles.blocks_per_sm,
                                                  .q_stages = kTiles.q_stages,
                                                  .pairs = kPairs}>>;
  static_assert(type::kSharedBytes <= kSharedKb * 1024,
                "attile: the default tiles of a decode kernel do not fit the shared memory");
};

}  // namespace detail

namespace sm80 {

/// Names the sm80 decode kernel for these arguments with the default tiles for devices on which a
/// block can have kSharedKb: see DefaultForwardTraits.
template <class Args, int D, int Dv = D, int kSharedKb = kCommonSharedKb>
using DefaultDecodeTraits = typename detail::Sm80Decode<Args, D, Dv, kSharedKb>::type;

}  // namespace sm80

}  // namespace attile
