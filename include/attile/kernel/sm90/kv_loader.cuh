// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/tensor_map.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/sm90/forward_params.cuh>

// What load_kv of the forward kernel copies tiles of K and V by (forward_producer.cuh).

namespace attile::sm90 {

/// Begins the copies of tiles of K and V, each once its stage is empty.
/// Scope    load: all lanes of a warp where keys lie in pages, else one; go_to: each lane that has
///          a loader.
template <class Traits, bool kPaged = Problem<Traits>::kPaged>
class KvLoader {
 public:
  ATTILE_DEVICE explicit KvLoader(const TmaForwardParams<Traits>& p) : p_(p) {}

  /// Goes to a step of a work tile, which has to stay where it is, and its tile of keys. Steps are
  /// gone through one after another.
  ATTILE_DEVICE void go_to(const WorkTile& at, int /*step*/, int kv_tile) {
    at_ = &at, kv_tile_ = kv_tile;
    if constexpr (kFindsAhead) box_ = box();
  }
  /// Loads K or V of that tile.
  template <class Pipeline>
  ATTILE_DEVICE void load(const Pipeline& pipeline, const typename Pipeline::State& state,
                          const arch::TensorMap& map) const {
    pipeline.producer_acquire(state);
    if constexpr (kFindsAhead) {
      pipeline.load(state, map, box_);
    } else {
      pipeline.load(state, map, box());
    }
  }

 private:
  /// Whether a box is found while the stage is still read. With lengths on the device, 512 rows on
  /// 32k keys then take 0.97 of the time (H200, 2026-11-26, bench/log/tuning-decode.md). With fp8
  /// three consumers leave no registers for it.
  static constexpr bool kFindsAhead = !Traits::SequencesType::kUniform && !Traits::kFp8Values;

  ATTILE_DEVICE arch::TmaCoord box() const { return p_.keys(*at_, kv_tile_ * Traits::kBc); }

  const TmaForwardParams<Traits>& p_;
  const WorkTile* at_ = nullptr;
  int kv_tile_ = 0;
  arch::TmaCoord box_{};
};

/// Does so where keys lie in pages, and a tile comes in up to 32 boxes. The lanes look up the pages
/// of as many next tiles as have 32 boxes, which takes 0.97 to 0.99 of the time of a lookup for
/// each tile. All lanes wait for a stage: while one lane did, and the others waited for that one, V
/// came later and a call took 1.06 times as long (both: H200, 2026-11-26,
/// bench/log/tuning-decode.md).
template <class Traits>
class KvLoader<Traits, true> {
 public:
  ATTILE_DEVICE explicit KvLoader(const TmaForwardParams<Traits>& p)
      : p_(p), own_tile_(lane() / p.pages.boxes) {}

  ATTILE_DEVICE void go_to(const WorkTile& at, int step, int /*kv_tile*/) {
    ++tile_;
    if (step > at.kv_tiles.first && tile_ < p_.pages.tiles) return;
    tile_ = 0;
    const int own_step = step + own_tile_;
    if (own_tile_ < p_.pages.tiles && own_step < at.kv_tiles.last) {
      box_ = p_.keys_in_page(at, p_.kv_tile(at, own_step) * Traits::kBc + row());
    }
  }
  template <class Pipeline>
  ATTILE_DEVICE void load(const Pipeline& pipeline, const typename Pipeline::State& state,
                          const arch::TensorMap& map) const {
    pipeline.await_empty(state);
    if (lane() == 0) static_cast<void>(pipeline.expect(state, Pipeline::kTileBytes));
    arch::warp_barrier();  // the bytes are expected before they arrive
    if (tile_ == own_tile_) pipeline.load(state, map, box_, row());
  }

 private:
  ATTILE_DEVICE static int lane() { return arch::thread_index() % arch::kWarpSize; }
  /// Returns the first row of this lane's box in its tile.
  ATTILE_DEVICE int row() const {
    return (lane() - own_tile_ * p_.pages.boxes) * p_.pages.box_keys;
  }

  const TmaForwardParams<Traits>& p_;
  int own_tile_;  // of which of the tiles whose boxes the lanes hold this lane's box is
  int tile_ = 0;  // which of them is loaded
  arch::TmaCoord box_{};
};

}  // namespace attile::sm90
