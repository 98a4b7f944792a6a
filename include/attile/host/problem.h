// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/status.h>
#include <attile/host/panels.h>

#include <algorithm>
#include <cstdint>
#include <thread>

namespace attile::host {

/// Holds the choices of the CPU executor. `threads` and `tile_rows` change no bit of the results.
/// Units: 0 lets the executor choose.
struct Options {
  int threads = 0;    ///< at most; 0: as many as the machine runs at once, fewer for little work
  int tile_rows = 0;  ///< Br, the rows of a work item; rounded up to a multiple of a strip's rows
  int tile_cols = 0;  ///< Bc, the columns of one step; rounded up to whole panels, <= 256
};

inline Check check_options(const Options& options) {
  if (options.threads < 0) return refuse("threads is negative");
  if (options.tile_rows < 0) return refuse("tile_rows is negative");
  if (options.tile_cols < 0) return refuse("tile_cols is negative");
  if (options.tile_rows > kMaxLength) return refuse("tile_rows must be at most 2^30");
  if (options.tile_cols > kMaxTileColumns) return refuse("tile_cols must be at most 256");
  return {};
}

/// Holds one forward or backward pass with every choice made: sizes, tiles, threads.
template <class V, class Args>
struct Problem {
  using E = typename Args::Elements;
  static_assert(E::kAllEqual ||
                    (Args::kIsForward && (E::kOnlyOutputIsFloat || E::kFp8Cache || E::kFp8Queries)),
                "attile::host: the CPU executor takes Q, K, V and O of one element type; forward "
                "also K and V in fp8 with Q of 16 bits, Q and K in fp8 with V in fp8 or of the 16 "
                "bits of O, and O in fp32");
  using T = typename Args::ElementType;
  using ScoreModType = typename Args::ScoreModType;
  using DropoutType = typename Args::DropoutType;

  const Args& args;
  int D, Dv;
  int group;  ///< query heads that share a kv head
  float scale;
  typename DropoutType::Sampler sampler;
  int threads, tile_rows, tile_cols;

  Problem(const Args& a, const Options& options)
      : args(a),
        D(head_dims(a, 0, 0).qk),
        Dv(head_dims(a, 0, 0).v),
        group(a.q_heads / a.kv_heads),
        scale(scale_of(a, D)),
        sampler(a.dropout.sampler(a.q_heads)) {
    threads = options.threads > 0 ? options.threads : worthwhile_threads();
    tile_rows = round_up(options.tile_rows > 0 ? options.tile_rows : default_tile_rows(), kRows);
    tile_cols = round_up(options.tile_cols > 0 ? options.tile_cols : default_tile_cols(), kWidth);
  }

  /// Returns the factor from the products of a query head's elements to its scores.
  float score_scale(int sequence, int head) const {
    const int kv_head = head / group;
    return scale * (args.q_scale.at(sequence, kv_head) * args.k_scale.at(sequence, kv_head));
  }
  /// Returns scale_log2, the factor from the scores that `modify_scores` leaves to log2 units.
  float scale_log2(int sequence, int head) const {
    return kIsIdentity<ScoreModType> ? score_scale(sequence, head) * kLog2e : kLog2e;
  }

  Extent extent(int sequence) const { return extent_of(args, sequence); }
  /// Return a tensor from the first row of a sequence's queries on, or of its keys.
  template <class X>
  auto q_rows(const X& tensor, int sequence) const {
    return rows_from(tensor, args.sequences.q_origin(sequence));
  }
  template <class X>
  auto kv_rows(const X& tensor, int sequence) const {
    return rows_from(tensor, args.sequences.kv_origin(sequence));
  }

  int padded_dim() const { return round_up(D, V::kWidth); }
  int padded_dim_v() const { return round_up(Dv, V::kWidth); }

 private:
  static constexpr int kRows = kStripRows<V>;
  static constexpr int kWidth = kPanelWidth<V>;
  static_assert(kMaxTileColumns % kWidth == 0, "the largest tile must be a number of panels");

  /// Returns the threads that the work is worth: starting one takes about as long as 4 million
  /// multiplications and additions.
  int worthwhile_threads() const {
    const double work =
        double(args.batch) * args.q_heads * args.q_len * args.kv_len * (double(D) + Dv);
    const double machine = std::max(1u, std::thread::hardware_concurrency());
    return static_cast<int>(std::min(machine, 1.0 + work / 4e6));
  }

  /// Returns the rows that share a packed tile: more rows, less packing. There are fewer when there
  /// are too few work items for the threads; the results do not depend on it.
  int default_tile_rows() const {
    constexpr int kMost = 264;
    const std::int64_t batch_heads =
        std::max<std::int64_t>(1, std::int64_t{args.batch} * args.q_heads);
    const std::int64_t blocks = ceil_div<std::int64_t>(2 * threads, batch_heads);
    const int longest = std::max({args.q_len, 1});
    return static_cast<int>(std::min<std::int64_t>(kMost, ceil_div<std::int64_t>(longest, blocks)));
  }

  /// Returns the columns of a tile, so that the packed K and V stay in the second-level cache.
  int default_tile_cols() const {
    constexpr std::int64_t kFloats = 32768;
    const std::int64_t columns = kFloats / (std::int64_t{D} + Dv) / kWidth * kWidth;
    return static_cast<int>(std::clamp<std::int64_t>(columns, kWidth, 128));
  }
};

}  // namespace attile::host
