// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/architectures.cuh>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/cluster.cuh>
#include <attile/arch/device.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/vec.h>
#include <attile/kernel/forward_kernel.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_traits.cuh>
#include <attile/tile/copy.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/ring.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/warpgroup.cuh>

namespace attile::sm90 {

/// A block's shared memory.
template <class Traits>
struct ForwardMemory {
  using QRing = typename Traits::QRing;
  using KRing = typename Traits::KRing;
  using VRing = typename Traits::VRing;

  unsigned char* data;

  ATTILE_DEVICE QRing q(int group) const {
    return {data + group * QRing::kBytes, barriers() + group * 2};
  }
  ATTILE_DEVICE KRing k() const {
    return {data + Traits::kKPlace, barriers() + Traits::kGroups * 2};
  }
  ATTILE_DEVICE VRing v() const {
    return {data + Traits::kVPlace, barriers() + Traits::kGroups * 2 + Traits::kStages * 2};
  }
  /// Where a warpgroup brings its rows of O together, some columns at a time.
  ATTILE_DEVICE typename Traits::OTile o(int group) const {
    return {data + Traits::kOPlace + group * Traits::OTile::kBytes};
  }

  /// Scope    all threads of the block.
  ATTILE_DEVICE void init() const {
    if (arch::thread_index() == 0) {
      for (int group = 0; group < Traits::kGroups; ++group) q(group).init(4);
      k().init(Traits::kGroups * 4);
      v().init(Traits::kGroups * 4);
      arch::mbarrier_publish();
    }
    if constexpr (Traits::kCluster == 1) {
      arch::barrier();  // nobody uses a barrier that is not there yet
    } else {
      arch::cluster_barrier();
    }
  }

 private:
  ATTILE_DEVICE arch::Mbarrier* barriers() const {
    return reinterpret_cast<arch::Mbarrier*>(data + Traits::kBarrierPlace);
  }
};

/// Sends for Q of all tiles that a block computes. Scope    one thread.
template <class Traits>
ATTILE_DEVICE void load_q(const ForwardParams<Traits>& p, int block,
                          const ForwardMemory<Traits>& smem) {
  tile::RingPlace<1> q_at;
  for (BlockTiles<Traits::kCluster> tiles{block}; tiles.more(p.tiles); ++tiles.turn) {
    const WorkTile<Traits> at(p, tiles.tile());
    const int rows = at.group_rows(p);
    const int heads = at.packed_heads(p);
    const tile::RingPlace<1> q_now = q_at;
    for (int group = 0; group < Traits::kGroups; ++group) {
      q_at = q_now;
      smem.q(group).fill(q_at, p.maps.q, at.row0 + group * rows, at.head / heads, at.batch,
                         rows * heads);
    }
  }
}

/// Sends for K, or V, of all tiles that they see. Scope    one thread.
template <class Traits, class Ring>
ATTILE_DEVICE void load_keys(const ForwardParams<Traits>& p, int block, const Ring& ring,
                             const arch::TensorMap& map) {
  typename Ring::Place place;
  for (BlockTiles<Traits::kCluster> tiles{block}; tiles.more(p.tiles); ++tiles.turn) {
    const WorkTile<Traits> at(p, tiles.tile());
    const TileRange range = at.cluster_seen(p);
    for (int kv_tile = range.first; kv_tile < range.last; ++kv_tile) {
      ring.fill(place, map, kv_tile * Traits::kBc, at.kv_head, at.batch);
    }
  }
  if constexpr (Traits::kCluster > 1) ring.drain(place);
}

/// Packed rows may not fill a warpgroup's part of Q: what is left is zeros, which no copy touches.
/// Scope    all threads of a warpgroup that computes.
/// Barriers one after, for the warpgroup.
template <class Traits>
ATTILE_DEVICE void clear_unused_rows(const ForwardParams<Traits>& p,
                                     const typename Traits::QTile& q_smem) {
  using Tile = typename Traits::QTile;
  constexpr int kUnit = Tile::Layout::kUnitElements;
  constexpr int kUnits = Tile::kCols / kUnit;
  const int used = p.packing.heads * p.packing.rows * kUnits;
  const int thread = arch::thread_index() % arch::kWarpgroupSize;
  for (int i = used + thread; i < Tile::kRows * kUnits; i += arch::kWarpgroupSize) {
    arch::store(&q_smem.at(i / kUnits, i % kUnits * kUnit),
                Vec<typename Traits::ElementType, kUnit>{});
  }
  arch::fence_async_proxy();
}

/// Where a warpgroup is in the rings.
template <class Traits>
struct ForwardPlaces {
  tile::RingPlace<1> q;
  tile::RingPlace<Traits::kStages> k, v;

  /// Tiles that it does not want, K's and V's in turn: others may need a V of these before they
  /// free a K.
  ATTILE_DEVICE void pass(const ForwardMemory<Traits>& smem, int count) {
    ATTILE_UNROLL_BY(1)
    for (int i = 0; i < count; ++i) {
      smem.k().pass(k);
      smem.v().pass(v);
    }
  }
};

/// A warpgroup's rows of a tile, and the tiles of K and V that they see.
template <class Traits>
struct GroupTile {
  WorkTile<Traits> at;
  TileRange mine;
  int before, after;  ///< tiles of K and V that come for other warpgroups only

  /// None.
  ATTILE_DEVICE GroupTile() : at{}, before(0), after(0) {}
  ATTILE_DEVICE GroupTile(const ForwardParams<Traits>& p, const WorkTile<Traits>& tile, int group)
      : at(tile) {
    const TileRange all = at.cluster_seen(p);
    mine = at.seen(p, group).between(all.first, all.last);
    if (empty()) mine.first = mine.last = all.last;
    before = mine.first - all.first;
    after = all.last - mine.last;
  }

  ATTILE_DEVICE bool empty() const { return mine.first >= mine.last; }
};

/// FlashAttention-2, forward, for a warpgroup's rows of the tiles of its block (arXiv 2307.08691,
/// Algorithm 1; the lines named are its). The product P V of one tile of keys and S of the next one
/// are begun together (arXiv 2407.08608, section 3.2): the maximum of S is found beside the first,
/// and its exponentials beside products of the other warpgroups. Between tiles of rows O leaves
/// beside the next S.
template <class Traits>
class GroupForward {
  using T = typename Traits::ElementType;
  using Scores = typename Traits::ScoreRegisters;
  using Outputs = typename Traits::OutputRegisters;
  using Probabilities = tile::RegisterLeft<T, Scores>;
  using Softmax = tile::OnlineSoftmax<Scores::kRegRows>;
  using Rows = GroupTile<Traits>;

 public:
  ATTILE_DEVICE GroupForward(const ForwardParams<Traits>& p, const ForwardMemory<Traits>& smem,
                             int block, int group)
      : p_(p), smem_(smem), group_(group), tiles_{block}, next_{} {
    if (tiles_.more(p.tiles)) next_ = WorkTile<Traits>(p, tiles_.tile());
    if constexpr (Traits::kPacked) {
      clear_unused_rows(p, smem.q(group).tile(0));
      sync();  // zeros are there for the products
    }
  }

  /// Scope    all threads of a warpgroup that computes.
  ATTILE_DEVICE void run() {
    Rows rows;
    while (restart(rows)) {
      for (bool more = true; more;) {
        first_tile(rows);
        other_tiles(rows);
        more = next_rows(rows);
      }
    }
    if (is_sender()) arch::bulk_wait_read<0>();  // before shared memory goes
  }

 private:
  /// Finds out, for later, what comes behind the tile that next_ is: divisions.
  ATTILE_DEVICE void look_ahead() {
    ++tiles_.turn;
    if (tiles_.more(p_.tiles)) next_ = WorkTile<Traits>(p_, tiles_.tile());
  }

  /// The next rows that see keys, and S of their first tile; false where none are left. Rows that
  /// see none are written here.
  ATTILE_DEVICE bool restart(Rows& rows) {
    for (; tiles_.more(p_.tiles); look_ahead()) {
      rows = Rows(p_, next_, group_);
      places_.pass(smem_, rows.before);
      if (!rows.empty()) {
        start_scores();
        look_ahead();
        tile::wait_product<0>(s_frag_);
        return true;
      }
      smem_.q(group_).pass(places_.q);
      o_frag_.clear();
      softmax_.reset();
      finish(rows.at);
    }
    return false;
  }

  /// Ends these rows, and begins the next ones, if there are some that see keys: O leaves while S
  /// of their first tile is made.
  ATTILE_DEVICE bool next_rows(Rows& rows) {
    start_output();  // line 10, of the last tile
    const bool more = tiles_.more(p_.tiles);
    const Rows next = more ? Rows(p_, next_, group_) : Rows();
    tile::wait_product<0>(o_frag_);
    smem_.v().release(places_.v);
    places_.pass(smem_, rows.after);
    if (next.empty()) {
      finish(rows.at);
      return false;
    }
    places_.pass(smem_, next.before);
    start_scores();
    look_ahead();
    finish(rows.at);
    tile::wait_product<0>(s_frag_);
    rows = next;
    return true;
  }

  ATTILE_DEVICE void start_scores() {
    const auto q_smem = smem_.q(group_).wait(places_.q);  // line 4
    const auto k_smem = smem_.k().wait(places_.k);
    tile::start_transposed_product<T>(s_frag_, q_smem, k_smem);  // line 8
  }
  ATTILE_DEVICE void start_output() {
    tile::start_product<T>(o_frag_, p_left_, smem_.v().tile(places_.v.stage), 0, adds_);
    adds_ = true;
  }

  /// P of the rows' first tile of keys, behind S.
  ATTILE_DEVICE void first_tile(const Rows& rows) {
    adds_ = false;  // line 5
    softmax_.reset();
    scores_made(rows, rows.mine.first);
    raise_maximum(rows, rows.mine.first);
    smem_.v().wait(places_.v);
    make_probabilities(rows, rows.mine.first);
  }

  /// All others, but for the product P V of the last one.
  ATTILE_DEVICE void other_tiles(const Rows& rows) {
    ATTILE_UNROLL_BY(1)
    for (int kv_tile = rows.mine.first + 1; kv_tile < rows.mine.last; ++kv_tile) {  // 6 and 7
      const auto k_smem = smem_.k().wait(places_.k);
      tile::start_transposed_product<T>(s_frag_, smem_.q(group_).tile(0), k_smem);  // line 8
      start_output();  // line 10, of the tile before
      tile::wait_product<1>(s_frag_);
      scores_made(rows, kv_tile);
      const auto rescaling = raise_maximum(rows, kv_tile);
      const auto v_next = places_.v.after();
      smem_.v().wait(v_next);
      tile::wait_product<0>(o_frag_);
      smem_.v().release(places_.v);
      rescaling.apply(o_frag_);
      make_probabilities(rows, kv_tile);
    }
  }

  /// K, and behind the last one Q, have been read.
  ATTILE_DEVICE void scores_made(const Rows& rows, int kv_tile) {
    smem_.k().release(places_.k);
    if (kv_tile + 1 == rows.mine.last) smem_.q(group_).release(places_.q);
  }

  /// Line 9: S as the policies want it, m, and what O is then to be multiplied by.
  ATTILE_DEVICE typename Softmax::Rescaling raise_maximum(const Rows& rows, int kv_tile) {
    const auto where = rows.at.place(p_, group_, kv_tile * Traits::kBc);
    if (rows.mine.full(kv_tile)) {
      tile::modify_and_mask<false>(s_frag_, where, p_.mask, p_.score_mod, p_.scale);
    } else {
      tile::modify_and_mask<true>(s_frag_, where, p_.mask, p_.score_mod, p_.scale);
    }
    return softmax_.template raise_maximum<Traits::kRescaleSlack>(s_frag_, unit());
  }
  /// Line 9: P, l, and P as an operand.
  ATTILE_DEVICE void make_probabilities(const Rows& rows, int kv_tile) {
    softmax_.exponentiate(s_frag_, unit());
    if constexpr (Traits::DropoutType::kEnabled) {
      tile::drop(s_frag_, rows.at.place(p_, group_, kv_tile * Traits::kBc),
                 p_.dropout.sampler(p_.q_heads));
    }
    p_left_ = Probabilities(s_frag_);
  }

  /// O and LSE of rows whose last product is done (lines 12 to 15).
  ATTILE_DEVICE void finish(const WorkTile<Traits>& at) {
    float factor[Outputs::kRegRows];
    ATTILE_UNROLL
    for (int r = 0; r < Outputs::kRegRows; ++r) {
      const float keep_scale = p_.dropout.sampler(p_.q_heads).keep_scale();
      factor[r] = softmax_.complete(o_frag_, r, keep_scale);
    }
    const auto o_smem = smem_.o(group_);
    ATTILE_UNROLL
    for (int col0 = 0; col0 < Outputs::kCols; col0 += Traits::OTile::kCols) {  // line 14
      if (is_sender()) arch::bulk_wait_read<0>();
      sync();  // what was there before has been read
      tile::stage_columns(o_smem, o_frag_, group_ * kGroupRows, col0, factor);
      arch::fence_async_proxy();
      sync();
      if (is_sender()) {
        tile::send_tile(o_smem, p_.maps.o, col0, at.row0 + group_ * at.group_rows(p_),
                        at.head / at.packed_heads(p_), at.batch);
      }
    }
    store_lse<Outputs>(p_, at.place(p_, group_, 0), softmax_, unit());  // lines 13, 15
  }

  ATTILE_DEVICE void sync() const { arch::barrier(1 + group_, arch::kWarpgroupSize); }
  ATTILE_DEVICE static bool is_sender() { return arch::thread_index() % arch::kWarpgroupSize == 0; }
  ATTILE_DEVICE float unit() const {
    return tile::score_unit<typename Traits::ScoreModType>(p_.scale);
  }

  const ForwardParams<Traits>& p_;
  const ForwardMemory<Traits>& smem_;
  int group_;
  BlockTiles<Traits::kCluster> tiles_;  // behind the one that is computed
  WorkTile<Traits> next_;               // the same
  ForwardPlaces<Traits> places_;
  Softmax softmax_;
  Scores s_frag_;
  Probabilities p_left_;
  Outputs o_frag_;
  bool adds_ = false;  // whether the next product adds to it
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
  const ForwardMemory<Traits> smem{shared};
  smem.init();
  const int group = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (group == Traits::kGroups) {
    arch::give_registers<Traits::kLoaderRegisters>();
    const int thread = arch::thread_index() % arch::kWarpgroupSize;
    if (thread == 0) load_keys(p, block, smem.k(), p.maps.k);
    if (thread == arch::kWarpSize) load_keys(p, block, smem.v(), p.maps.v);
    if (thread == 2 * arch::kWarpSize) load_q(p, block, smem);
  } else {
    arch::take_registers<Traits::kGroupRegisters>();
    GroupForward<Traits>(p, smem, block, group).run();
  }
}

/// Whether the current device runs the kernel for arguments that passed `check_arguments`.
template <class Traits>
bool runs(const typename Traits::Args& args) requires(Traits::kDirection == Direction::kForward) {
  return arch::device_architecture() == Traits::kLeastArchitecture &&
         !arch::is_empty(forward_kernel<Traits>) &&
         (args.batch == 0 || args.q_len == 0 ||
          BoxedTensors<Traits>(args, packing_of<Traits>(args)).boxable());
}

/// Whether packing query heads leaves enough fewer rows of tiles empty.
template <class Traits>
bool packing_pays(const typename Traits::Args& args) {
  const Packing packing(args.q_heads / args.kv_heads);
  const auto apart = ceil_div<std::int64_t>(args.q_len, Traits::kBr) * packing.heads;
  const auto packed = ceil_div<std::int64_t>(args.q_len, Traits::kGroups * packing.rows);
  return 10 * packed <= 9 * apart;  // tiles, for as many rows
}

}  // namespace attile::sm90
