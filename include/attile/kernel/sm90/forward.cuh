// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/architectures.cuh>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/cluster.cuh>
#include <attile/arch/device.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/kernel/forward_kernel.cuh>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_schedule.cuh>
#include <attile/kernel/sm90/forward_traits.cuh>
#include <attile/kernel/work_tile.h>
#include <attile/tile/copy.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/ring.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/warpgroup.cuh>

namespace attile::sm90 {

/// Sends for a warpgroup's part of Q of all tiles that a block computes, and says which rows it is:
/// the parts go round, as under a causal mask each takes a step more than the one before it. Behind
/// a sequence's last row come zeros, and not its neighbour's rows: what those see would decide with
/// the others when a warp rescales, and so on the sequence's bits.
/// Scope    one thread.
template <class Traits>
ATTILE_DEVICE void load_q(const ForwardParams<Traits>& p, int block,
                          const ForwardMemory<Traits>& smem, int group) {
  const auto ring = smem.q(group);
  tile::Landing landing = smem.landing(1 + group);
  typename Traits::QRing::Place place;
  int turn = 0;
  for (ForwardSchedule<Traits> work(p, block); work.more(); work.next(), ++turn) {
    const int part = (group + turn) % Traits::kGroups;
    const GroupRows<Traits> mine(p, work.tile(), group, part);
    const RowOrigin origin = p.policies.sequences.q_origin(mine.sequence);
    const int heads = p.packed_heads();
    const int rows = p.group_rows();
    ring.await_free(place);
    smem.rows(group, turn) = mine;
    const int first = mine.row0 + group * rows;
    const int there = mine.extent_of(p).q_len - first;
    if (Traits::kLands && there < rows) {
      ring.fill_part(place, p.maps.q, origin.row + first, mine.head, origin.batch, there, landing);
    } else {
      ring.fill(place, p.maps.q, origin.row + first, p.box_head(mine.head), origin.batch,
                rows * heads);
    }
  }
  ring.await_free(place);
  smem.rows(group, turn) = GroupRows<Traits>();
  static_cast<void>(ring.announce(place, 0));
}

/// Sends for K, or V, of all tiles that they see. Behind a sequence's last key lies its
/// neighbour's V, or what nobody has written; P is 0 there, and meets zeros.
/// Scope    one thread.
template <bool kIsV, class Traits, class Ring>
ATTILE_DEVICE void load_keys(const ForwardParams<Traits>& p, int block, const Ring& ring,
                             const arch::TensorMap& map, tile::Landing landing) {
  constexpr bool kClears = kIsV && Traits::kLands;
  typename Ring::Place place;
  for (ForwardSchedule<Traits> work(p, block); work.more(); work.next()) {
    const WorkTile at = work.tile();
    const RowOrigin origin = p.policies.sequences.kv_origin(at.sequence);
    for (int kv_tile = at.kv_tiles.first; kv_tile < at.kv_tiles.last; ++kv_tile) {
      const int key0 = origin.row + kv_tile * Traits::kBc;
      const int there = p.extent(at).kv_len - kv_tile * Traits::kBc;
      if constexpr (kClears) {
        if (there < Traits::kBc) {
          ring.fill_part(place, map, key0, at.kv_head, origin.batch, there, landing);
          continue;
        }
      }
      ring.fill(place, map, key0, at.kv_head, origin.batch);
    }
  }
  if constexpr (Traits::kCluster > 1) ring.drain(place);
}

/// Where a warpgroup is in the rings, and how it goes past tiles that it does not want.
template <class Traits>
struct ForwardPlaces {
  tile::RingPlace<Traits::kQStages> q;
  tile::RingPlace<Traits::kStages> k, v;

  ATTILE_DEVICE void pass_keys(const ForwardMemory<Traits>& smem, int count) {
    ATTILE_UNROLL_BY(1)
    for (int i = 0; i < count; ++i) {
      smem.k().pass(k);
    }
  }
  ATTILE_DEVICE void pass_values(const ForwardMemory<Traits>& smem, int count) {
    ATTILE_UNROLL_BY(1)
    for (int i = 0; i < count; ++i) {
      smem.v().pass(v);
    }
  }
  /// K's and V's in turn: others may need a V of these before they free a K.
  ATTILE_DEVICE void pass(const ForwardMemory<Traits>& smem, int count) {
    ATTILE_UNROLL_BY(1)
    for (int i = 0; i < count; ++i) {
      smem.k().pass(k);
      smem.v().pass(v);
    }
  }
};

/// FlashAttention-2, forward, for a warpgroup's rows of the tiles of its block (arXiv 2307.08691,
/// Algorithm 1; the lines named are its). The product P V of one tile of keys and S of the next one
/// are begun together (arXiv 2407.08608, section 3.2), also where that is the first one of the next
/// rows: the maximum of S is found beside the first, and its exponentials beside products of the
/// other warpgroups.
template <class Traits>
class GroupForward {
  using T = typename Traits::ElementType;
  using Scores = typename Traits::ScoreRegisters;
  using Outputs = typename Traits::OutputRegisters;
  using Probabilities = tile::RegisterLeft<T, Scores>;
  using Softmax = tile::OnlineSoftmax<Scores::kRegRows>;
  using Rows = GroupRows<Traits>;

 public:
  ATTILE_DEVICE GroupForward(const ForwardParams<Traits>& p, const ForwardMemory<Traits>& smem,
                             int group)
      : p_(p), smem_(smem), group_(group) {
    if constexpr (Traits::kPacked) {
      ATTILE_UNROLL
      for (int stage = 0; stage < Traits::kQStages; ++stage) {
        // Packed rows may not fill the tile; no copy touches what is left.
        tile::clear_rows_from(smem.q(group).tile(stage), p.packing.heads * p.packing.rows,
                              arch::thread_index() % arch::kWarpgroupSize, arch::kWarpgroupSize);
      }
      sync();  // zeros are there for the products
    }
  }

  /// Scope    all threads of a warpgroup that computes.
  ATTILE_DEVICE void run() {
    while (restart()) {
      do {
        other_tiles();
      } while (next_rows());
    }
    if (is_sender()) arch::bulk_wait_read<0>();  // before shared memory goes
  }

 private:
  /// The rows that are computed.
  ATTILE_DEVICE const Rows& rows() const { return smem_.rows(group_, turn_); }
  /// Those of a tile, once Q is there.
  ATTILE_DEVICE const Rows& rows_with_q(int turn) const {
    static_cast<void>(smem_.q(group_).wait(places_.q));  // line 4
    return smem_.rows(group_, turn);
  }
  ATTILE_DEVICE void begin_rows() {
    range_ = rows().kv_tiles;
    softmax_.reset();
  }

  /// The next rows that see keys, and P of their first tile; false where none are left. Rows that
  /// see none are written here.
  ATTILE_DEVICE bool restart() {
    for (;; ++turn_) {
      const Rows& next = rows_with_q(turn_);
      if (next.is_end()) return false;
      begin_rows();
      // First, so that nobody's Q waits for what is passed here.
      if (next.empty()) smem_.q(group_).pass(places_.q);
      places_.pass(smem_, next.before);
      if (!next.empty()) break;
      if (!next.exist(p_, group_)) continue;
      o_frag_.clear();
      finish(next, softmax_);
    }
    start_scores();
    tile::wait_product<0>(s_frag_);
    scores_made(range_.first);
    raise_maximum(range_.first, limit());
    smem_.v().wait(places_.v);
    make_probabilities(range_.first);
    return true;
  }

  /// Ends these rows. If the next ones see keys: P of their first tile too, and true. They are
  /// found out beside the last P V, and O leaves beside their S. V of the last tile is held
  /// meanwhile, so that at most kStages tiles may lie between: other warpgroups may wait for those
  /// behind.
  ATTILE_DEVICE bool next_rows() {
    start_output(range_.last - 1 > range_.first);  // line 10
    const Rows& done = rows();
    const int after = done.after;
    const bool near = after <= Traits::kStages;
    int skipped = 0;
    bool goes_on = near;
    if (near) {
      places_.pass_keys(smem_, after);
      const Rows& next = rows_with_q(turn_ + 1);
      skipped = after + next.before;
      goes_on = !next.empty() && skipped <= Traits::kStages;
    }
    ++turn_;
    if (!goes_on) {
      tile::wait_product<0>(o_frag_);
      smem_.v().release(places_.v);
      if (near) {
        places_.pass_values(smem_, after);
      } else {
        places_.pass(smem_, after);
      }
      finish(done, softmax_);
      return false;
    }
    places_.pass_keys(smem_, skipped - after);
    start_scores();
    tile::wait_product<1>(o_frag_);
    smem_.v().release(places_.v);
    places_.pass_values(smem_, skipped);
    finish(done, softmax_);
    begin_rows();
    tile::wait_product<0>(s_frag_);
    scores_made(range_.first);
    raise_maximum(range_.first, limit());
    smem_.v().wait(places_.v);
    make_probabilities(range_.first);
    return true;
  }

  ATTILE_DEVICE void start_scores() {
    const auto k_smem = smem_.k().wait(places_.k);
    tile::start_transposed_product<T>(s_frag_, smem_.q(group_).tile(places_.q.stage),
                                      k_smem);  // line 8
  }
  /// `adds`: not the rows' first tile (line 5).
  ATTILE_DEVICE void start_output(bool adds) {
    tile::start_product<T>(o_frag_, p_left_, smem_.v().tile(places_.v.stage), 0, adds);
  }

  /// P of all tiles but the first, and of all but the last P V.
  ATTILE_DEVICE void other_tiles() {
    ATTILE_UNROLL_BY(1)
    for (int kv_tile = range_.first + 1; kv_tile < range_.last; ++kv_tile) {  // 6 and 7
      start_scores();
      start_output(kv_tile - 1 > range_.first);  // line 10, of the tile before
      const auto limit = this->limit();
      tile::wait_product<1>(s_frag_);
      scores_made(kv_tile);
      const auto rescaling = raise_maximum(kv_tile, limit);
      const auto v_next = places_.v.after();
      smem_.v().wait(v_next);
      tile::wait_product<0>(o_frag_);
      smem_.v().release(places_.v);
      rescaling.apply(o_frag_);
      make_probabilities(kv_tile);
    }
  }

  /// K, and behind the last one Q, have been read.
  ATTILE_DEVICE void scores_made(int kv_tile) {
    smem_.k().release(places_.k);
    if (kv_tile + 1 == range_.last) smem_.q(group_).release(places_.q);
  }

  /// Line 9: S as the policies want it, m, and what O is then to be multiplied by.
  ATTILE_DEVICE typename Softmax::Rescaling raise_maximum(int kv_tile,
                                                          const typename Softmax::Limit& limit) {
    const auto where = p_.place(rows().at(p_), group_, kv_tile * Traits::kBc);
    if (range_.full(kv_tile)) {
      tile::modify_and_mask<false>(s_frag_, where, p_.policies, p_.scale);
    } else {
      tile::modify_and_mask<true>(s_frag_, where, p_.policies, p_.scale);
    }
    const bool above = Softmax::above(s_frag_, limit);
    return softmax_.raise_maximum(s_frag_, p_.unit, Scores::any_lane(above));
  }
  /// Line 9: P, l, and P as an operand.
  ATTILE_DEVICE void make_probabilities(int kv_tile) {
    softmax_.exponentiate(s_frag_, p_.unit);
    if constexpr (Traits::DropoutType::kEnabled) {
      tile::drop(s_frag_, p_.place(rows().at(p_), group_, kv_tile * Traits::kBc), p_.sampler());
    }
    p_left_ = Probabilities(s_frag_);
  }

  /// O and LSE of rows whose last product is done (lines 12 to 15).
  ATTILE_DEVICE void finish(const Rows& rows, Softmax& softmax) {
    const WorkTile at = rows.at(p_);
    softmax.finish(o_frag_, p_.sampler().keep_scale());
    const auto o_smem = smem_.o(group_);
    ATTILE_UNROLL
    for (int col0 = 0; col0 < Outputs::kCols; col0 += Traits::OTile::kCols) {  // line 14
      if (is_sender()) arch::bulk_wait_read<0>();
      sync();  // what was there before has been read
      tile::stage(o_smem, o_frag_, 1.0f, -col0, group_ * kGroupRows);
      arch::fence_async_proxy();
      sync();
      store_rows(o_smem, at, col0);
    }
    store_lse<Outputs>(p_, p_.place(at, group_, 0), softmax, p_.unit);  // lines 13, 15
  }

  /// Sends staged rows of O away, columns col0 on. Where rows of another sequence may follow, by
  /// the threads, which write this one's alone.
  ATTILE_DEVICE void store_rows(const typename Traits::OTile& o_smem, const WorkTile& at,
                                int col0) const {
    const int row0 = at.row0 + group_ * p_.group_rows();
    if constexpr (ForwardParams<Traits>::kUniform) {
      if (!is_sender()) return;
      tile::send_tile(o_smem, p_.maps.o, col0, row0, p_.box_head(at.head), at.sequence);
    } else {
      constexpr int kWarpRows = kGroupRows * arch::kWarpSize / arch::kWarpgroupSize;
      auto target = p_.o_of(at);
      target.data += col0;
      target.cols -= col0;
      const int warp = arch::thread_index() % arch::kWarpgroupSize / arch::kWarpSize;
      tile::store_rows<kWarpRows>(target, o_smem, warp * kWarpRows, row0);
      sync();  // all have read it before it is written again
    }
  }

  ATTILE_DEVICE typename Softmax::Limit limit() const {
    return softmax_.template limit<Scores>(p_.slack);
  }
  ATTILE_DEVICE void sync() const { arch::barrier(1 + group_, arch::kWarpgroupSize); }
  ATTILE_DEVICE static bool is_sender() { return arch::thread_index() % arch::kWarpgroupSize == 0; }

  const ForwardParams<Traits>& p_;
  const ForwardMemory<Traits>& smem_;
  int group_;
  int turn_ = 0;     // of the block's tiles, the one whose rows are computed
  TileRange range_;  // what they see
  ForwardPlaces<Traits> places_;
  Softmax softmax_;
  Scores s_frag_;
  Probabilities p_left_;
  Outputs o_frag_;
};

/// A block's tiles of query rows: one warpgroup sends for Q, K and V of all of them, the others
/// compute. Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 1024
/// bytes.
template <class Traits>
ATTILE_DEVICE void forward_block(const ForwardParams<Traits>& p, int block, unsigned char* shared) {
  if constexpr (!arch::kHasWarpgroups) return;
  if constexpr (Traits::kCluster > 1) {
    if (arch::cluster_size() != Traits::kCluster) arch::trap();  // launched without clusters
  }
  if (arch::thread_index() == Traits::kGroups * arch::kWarpgroupSize) {
    p.maps.prefetch();
  }
  const ForwardMemory<Traits> smem{shared};
  smem.init();
  const int group = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (group == Traits::kGroups) {
    arch::give_registers<Traits::kLoaderRegisters>();
    const int thread = arch::thread_index() % arch::kWarpgroupSize;
    if (thread == 0) load_keys<false>(p, block, smem.k(), p.maps.k, smem.landing(0));
    if (thread == arch::kWarpSize) {
      load_keys<true>(p, block, smem.v(), p.maps.v, smem.landing(0));
    }
    const int q_group = thread - 2 * arch::kWarpSize;
    if (0 <= q_group && q_group < Traits::kGroups) load_q(p, block, smem, q_group);
  } else {
    arch::take_registers<Traits::kGroupRegisters>();
    GroupForward<Traits>(p, smem, group).run();
  }
}

/// Whether the current device runs the kernel for arguments that passed `check_arguments`.
template <class Traits>
bool runs(const typename Traits::Args& args) requires(Traits::kDirection == Direction::kForward) {
  return arch::has_own_code(forward_kernel<Traits>, Traits::kLeastArchitecture) &&
         (args.batch == 0 || args.q_len == 0 ||
          BoxedTensors<Traits>(args, packing_of<Traits>(args)).check());
}

}  // namespace attile::sm90
