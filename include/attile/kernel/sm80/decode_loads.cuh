// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/async_copy.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/splits.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/decode/decode_params.cuh>
#include <attile/kernel/decode/split_part.cuh>
#include <attile/kernel/decode/split_schedule.cuh>
#include <attile/kernel/sm80/decode_traits.cuh>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/panel_tile.cuh>

#include <cstdint>
#include <utility>

// The loads of decode (decode.cuh).

namespace attile::sm80 {

/// Whether the products of 64 rows are those of a warpgroup, in code that has them.
template <class Traits>
inline constexpr bool kByWarpgroup = Traits::kIsWarpgroup&& arch::kHasWarpgroups;

/// Says whether all warps divide the keys of a part.
template <class Traits>
ATTILE_DEVICE bool divides_keys(const DecodeParams<Traits>& p, const SplitPart& part) {
  return Traits::kGroupWarps == 1 ||
         (part.rows <= Traits::kWarpRows && p.splits != Splits::Kind::kFixed);
}

/// Loads Q of the block's parts, and K and V of this thread's key group, ahead of the products.
/// Scope    all threads of the block take the same steps, at times of their group's own.
template <class Traits>
class TileLoads {
  static constexpr int kStages = Traits::kStages;
  static constexpr int kPrefetchedTiles = 3;
  using T = typename Traits::ElementType;
  using K = typename Traits::K;
  /// Whether page tables are read ahead: where there are registers left for that.
  static constexpr bool kReadsAhead = Traits::Params::kPaged && max(Traits::kD, Traits::kDv) <= 128;
  using PageRows = tile::PageRowsOf<decltype(std::declval<DecodeParams<Traits>>().k_of(WorkTile{})),
                                    Traits::kGroupThreads, typename Traits::KTile>;

 public:
  ATTILE_DEVICE TileLoads(const DecodeParams<Traits>& p, unsigned char* shared)
      : p_(p), shared_(shared), schedule_(p) {}

  /// Goes to the block's first part (SplitSchedule::begin). In a warm-up pass loads copy nothing,
  /// and end with the first part's first tiles.
  ATTILE_DEVICE void begin(int block, bool warms_up) {
    number_ = -1;
    loaded_ = used_ = 0;
    is_looked_up_ = false;
    warms_up_ = warms_up;
    schedule_.begin(block, shared_, warms_up);
    enter_part();
  }
  /// Goes to the first part of the warm-up pass, and returns true, if it is the call's
  /// (SplitSchedule::keep_parts); else `begin` has to be called again.
  ATTILE_DEVICE bool keep_parts() {
    if (!schedule_.keep_parts()) return false;
    loaded_ = 0;
    is_looked_up_ = warms_up_ = is_begun_ = false;
    if (has_part_) tile_ = part_.at.kv_tiles.first;
    return true;
  }

  /// Sets the block's next part; returns false after the last one. From then on load_ahead may load
  /// Q of the part after it, into the stage of the part before it.
  /// Barriers all threads are past the last barrier of merge_warps of the part before.
  ATTILE_DEVICE bool begin_part(SplitPart& part) {
    if (!has_part_) return false;
    part = part_;
    is_begun_ = true;
    q_ = q_stage();
    if constexpr (Traits::kQStages == 1) {
      // The first part's Q comes with its first tile.
      awaits_q_ = number_ > 0 && part.at.kv_tiles.first < part.at.kv_tiles.last;
      if (awaits_q_) {
        load_q(q_);
        arch::async_copy_commit();
      }
    }
    return true;
  }
  /// Sets what of a part its loads do not need (SplitSchedule::complete).
  ATTILE_DEVICE void complete(SplitPart& part) const { schedule_.complete(part); }
  /// Loads tiles while a stage is free, of the part that is computed and of the one after it.
  ATTILE_DEVICE void load_ahead() {
    for (;;) {
      for (; tile_ < part_.at.kv_tiles.last && may_load(); ++tile_) load_tile();
      if (tile_ < part_.at.kv_tiles.last || !is_begun_ || warms_up_) return;
      enter_part();
    }
  }
  /// Brings the first tiles of a warm-up pass's part into the level-2 cache: blocks that begin
  /// while the kernel before ends leave no gap in the reads of device memory
  /// (bench/log/tuning-decode.md). Where blocks of both kernels have room at once, they begin too
  /// early for that.
  ATTILE_DEVICE void prefetch() const {
    const WorkTile& at = part_.at;
    if (p_.reads_early == 0 || p_.is_crowded == 0) return;
    const auto k = p_.k_of(at);
    const auto v = p_.v_of(at);
    constexpr int kColumns = 128 / sizeof(K);  // of a line of the cache
    constexpr int kLines = ceil_div(max(Traits::kD, Traits::kDv), kColumns);
    const TileRange tiles = at.kv_tiles;
    const int first = max(tiles.first * Traits::kBc, at.first_key);
    const int end = min(tiles.last, tiles.first + kPrefetchedTiles) * Traits::kBc;
    const int rows = min(end, p_.extent(at).kv_len) - first;
    ATTILE_UNROLL_BY(1)
    for (int i = arch::thread_index(); i < rows * kLines; i += Traits::kThreads) {
      const int row = first + i / kLines, col = i % kLines * kColumns;
      const auto at_column = [&](const auto& matrix) {
        return arch::read_early(true, [&] { return matrix.at(row, col); });
      };
      if (col < p_.head_dim) arch::prefetch(at_column(k));
      if (col < p_.head_dim_v) arch::prefetch(at_column(v));
    }
  }
  /// Waits until this thread's copies of the next tile have landed, and those of the part's Q with
  /// its first one. Where not all stages are loaded, it waits for all that are: how many are in
  /// flight is no constant then. That is so in the last tiles of a block, and where parts have
  /// fewer tiles than there are stages. Barriers one after, before copies of other threads are
  /// read.
  ATTILE_DEVICE void await_tile() {
    const bool awaits_all = Traits::kQStages == 1 && awaits_q_;
    awaits_q_ = false;
    if (loaded_ - used_ == kStages && !awaits_all) {
      arch::async_copy_wait<kStages - 1>();
    } else {
      arch::async_copy_wait<0>();
    }
  }
  /// Frees the stage of a tile after its last read. Scope    all threads of the group.
  ATTILE_DEVICE void release_tile() {
    barrier_of_group();  // all have read the tile before the next one replaces it
    ++used_;
  }

  /// Return the part's Q, and the next tile of K and V, in shared memory. scaled_q is Q after
  /// scale_to_half, in the same memory.
  ATTILE_DEVICE typename Traits::QTile q() const { return q_; }
  ATTILE_DEVICE typename Traits::ScaledQTile scaled_q() const { return {q_.data}; }
  ATTILE_DEVICE typename Traits::KTile k() const { return {stage(used_)}; }
  ATTILE_DEVICE typename Traits::VTile v() const { return {stage(used_) + Traits::KTile::kBytes}; }

  ATTILE_DEVICE static int group() { return arch::thread_index() / Traits::kGroupThreads; }
  ATTILE_DEVICE static void barrier_of_group() {
    if constexpr (Traits::kGroupWarps == 1) {
      arch::warp_barrier();
    } else {
      arch::barrier(1 + group(), Traits::kGroupThreads);
    }
  }

 private:
  /// Goes on to the next part, if there is one.
  ATTILE_DEVICE void enter_part() {
    ++number_;
    is_begun_ = false;
    has_part_ = schedule_.next(part_);
    if (has_part_) tile_ = part_.at.kv_tiles.first;
  }
  /// Returns whether a stage is free, after it has begun to read in which pages the next tile lies:
  /// mostly a tile ahead of its loads, which would else wait for the page table. The read leaves
  /// the loop here: at the loop's head the compiler waits for it.
  ATTILE_DEVICE bool may_load() {
    if (kReadsAhead && !is_looked_up_) {
      look_up();
      is_looked_up_ = true;
    }
    return loaded_ - used_ < kStages;
  }
  ATTILE_DEVICE void look_up() {
    page_rows_ = PageRows(p_.k_of(part_.at), first_key(), thread_of_group());
  }
  ATTILE_DEVICE int first_key() const { return tile_ * Traits::kBc + group() * Traits::kGroupKeys; }
  ATTILE_DEVICE static int thread_of_group() {
    return arch::thread_index() % Traits::kGroupThreads;
  }
  ATTILE_DEVICE void load_tile() {
    if (!kReadsAhead) look_up();
    const typename Traits::KTile k_smem{stage(loaded_)};
    const typename Traits::VTile v_smem{stage(loaded_) + Traits::KTile::kBytes};
    auto k = p_.k_of(part_.at);
    auto v = p_.v_of(part_.at);
    if (warms_up_) k.rows = v.rows = 0;
    tile::load_async<Traits::kGroupThreads>(k_smem, k, v_smem, v, first_key(), thread_of_group(),
                                            page_rows_);
    is_looked_up_ = false;
    if (tile_ == part_.at.kv_tiles.first && (Traits::kQStages > 1 || number_ == 0)) {
      load_q(q_stage());
    }
    arch::async_copy_commit();
    ++loaded_;
  }

  /// Loads the packed rows of a part, for warps that have any of them, or for the product of all;
  /// rows and columns that there are not become 0.
  ATTILE_DEVICE void load_q(const typename Traits::QTile& q_smem) const {
    using Layout = typename Traits::QTile::Layout;
    constexpr int kUnit = Layout::kUnitElements;
    const RowOrigin origin = p_.q_origin(part_.at);
    const auto row_of = [&](int r) {
      const auto [row, head] = p_.packed_heads.divmod(part_.packed_row0 + r);
      return p_.q.tensor.row(origin.batch, part_.at.head + head, std::int64_t{origin.row} + row);
    };
    const bool is_whole = (kByWarpgroup<Traits> || Traits::kPairs) && !divides_keys(p_, part_);
    // A warm-up pass leaves this memory to the schedule.
    const int rows = warms_up_  ? 0
                     : is_whole ? Traits::kBr
                                : round_up(part_.rows, Traits::kWarpRows);
    const int units = rows * Layout::kUnits;
    for (int i = arch::thread_index(); i < units; i += Traits::kThreads) {
      const int r = i / Layout::kUnits, col = i % Layout::kUnits * kUnit;
      const bool there = r < part_.rows && col < p_.head_dim;
      const T* const from = row_of(r < part_.rows ? r : 0) + (there ? col : 0);
      if (p_.q.vectors != 0) {
        tile::copy_left_async<K>(q_smem, r, i % Layout::kUnits, from, there);
      } else {
        for (int e = 0; e < kUnit; ++e) {
          tile::left_element<K>(q_smem, r, col + e) =
              there && col + e < p_.head_dim ? from[e] : from_float<T>(0.0f);
        }
      }
    }
  }

  ATTILE_DEVICE typename Traits::QTile q_stage() const {
    return {shared_ + number_ % Traits::kQStages * Traits::QTile::kBytes};
  }
  ATTILE_DEVICE unsigned char* stage(int number) const {
    return shared_ + Traits::kQBytes + group() * Traits::kGroupBytes +
           number % kStages * Traits::kStageBytes;
  }

  const DecodeParams<Traits>& p_;
  unsigned char* shared_;
  SplitSchedule<Traits> schedule_;
  SplitPart part_{};            // the part whose tiles are loaded
  bool has_part_ = false;       // whether there is one
  bool is_begun_ = false;       // whether it is also the one that is computed
  bool awaits_q_ = false;       // whether Q of the one that is computed was loaded after its tiles
  bool warms_up_ = false;       // whether copies copy nothing
  int number_ = -1;             // of that part among the block's
  int tile_ = 0;                // of that part: the next one to load
  typename Traits::QTile q_{};  // of the part that is computed
  int loaded_ = 0, used_ = 0;   // tiles
  bool is_looked_up_ = false;   // whether page_rows_ are those of the next tile
  [[no_unique_address]] PageRows page_rows_;
};

}  // namespace attile::sm80
