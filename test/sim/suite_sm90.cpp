// SPDX-License-Identifier: MIT
#include <attile/attile.cuh>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernel/suite_executor.cuh"
#include "sim/any_cache.h"
#include "sim/any_table.h"
#include "sim/one_head.h"
#include "sim/packed.h"
#include "sim/suite.h"
#include "sim/wrong_lists.h"
#include "support/catch.h"
#include "support/earlier_keys_on_device.h"
#include "support/own_lengths.h"
#include "support/problem.h"
#include "support/random.h"

namespace {

using namespace attile_test;
using attile::sm90::BackwardTuning;
using attile::sm90::BackwardTuningValues;
using attile::sm90::Tuning;
using attile::sm90::TuningValues;

/// Whether TMA can address every tensor of the case, by the rule of docs/kernels.md.
bool is_boxable(const Case& c) {
  const bool whole_rows = c.head_dim % 8 == 0 && c.head_dim_v % 8 == 0;
  return whole_rows && c.layout != Layout::kUnaligned && c.layout != Layout::kReversed &&
         c.layout != Layout::kBroadcast;
}

/// The same tiles, without an sm80 kernel that stands in.
template <class TileChoice>
struct Alone {
  template <class Args, class Dim>
  using Forward = typename TileChoice::template Forward<Args, Dim>;
  template <class Args, class Dim, attile::DqMode kMode>
  using Backward = typename TileChoice::template Backward<Args, Dim, kMode>;
};

template <class Dim, class TileChoice, attile::DqMode kMode = attile::DqMode::kAccumulate>
struct Sm90Executor : GpuExecutor<Dim, Alone<TileChoice>, kMode> {
  using Kernels = GpuExecutor<Dim, Alone<TileChoice>, kMode>;

  bool takes(const Case& c) const { return is_boxable(c) && Kernels::takes(c); }
};

template <int Br, int Bc, class Tuning>
using Warpgroups = Sm90Executor<Dims<64>, Sm90Tiles<Br, Bc, Tuning>>;
using Two = Warpgroups<128, 64, Tuning<>>;
using Three = Warpgroups<192, 32, Tuning<TuningValues{.stages = 3}>>;
using Plain = Warpgroups<64, 64, Tuning<TuningValues{.persistent = false}>>;
using Packed = Warpgroups<128, 64, Tuning<TuningValues{.packs_heads = true}>>;
// Work tiles come from a counter, or in turns, though all sequences have the same lengths.
using Counted = Warpgroups<192, 32, Tuning<TuningValues{.stages = 3, .counts = true}>>;
// Two teams: each has work tiles of its own, by its number or from a counter.
template <int kStages, bool kCounts>
using TeamTuning = Tuning<TuningValues{.stages = kStages, .counts = kCounts, .teams = 2}>;
using Teams = Warpgroups<128, 64, TeamTuning<2, false>>;
using CountedTeams = Warpgroups<64, 32, TeamTuning<3, true>>;
// Where TMA cannot address the inputs, a kernel of sm80 stands in, and sm90 has to say so.
using PackedOrSm80 =
    GpuExecutor<Dims<64>, Sm90Tiles<128, 64, Tuning<TuningValues{.packs_heads = true}>>>;
using TwoOrSm80 = GpuExecutor<Dims<64>, Sm90Tiles<128, 64, Tuning<>>>;
using ThreeOrSm80 = GpuExecutor<Dims<64>, Sm90Tiles<192, 32, Tuning<TuningValues{.stages = 3}>>>;
// Rows of O lie elsewhere than those of Q.
using Narrow = Sm90Executor<Dims<64, 32>, Sm90Tiles<128, 64, Tuning<>>>;
// O is staged in halves.
using Deep = Sm90Executor<Dims<256, 256, 64>, Sm90DefaultTiles<>>;
using D96 = Sm90Executor<Dims<96, 96, 64>, Sm90DefaultTiles<>>;

// A bias in tiles: one stage and two, and rows of two and three consumers.
using ElementsTwo =
    GpuExecutor<Dims<64>, Sm90Tiles<128, 64, Tuning<TuningValues{.element_stages = 1}>>>;
using ElementsThree =
    GpuExecutor<Dims<64>,
                Sm90Tiles<192, 48, Tuning<TuningValues{.stages = 3, .element_stages = 2}>>>;
using ElementsDefault = GpuExecutor<Dims<64>, Sm90DefaultTiles<attile::sm90::TileSet::kElements>>;

// A bias that all rows have in common, which comes with K, and which backward threads read.
using ColumnsTwo = GpuExecutor<
    Dims<64>,
    Sm90Tiles<128, 80, Tuning<TuningValues{.words = attile::sm90::ModifierWords::kColumns}>>>;
using ColumnsDefault = GpuExecutor<Dims<64>, Sm90DefaultTiles<attile::sm90::TileSet::kColumns>>;
// A bias of column - row: its words come with K, and backward with Q.
using DiagonalsTwo = GpuExecutor<
    Dims<64>,
    Sm90Tiles<128, 80, Tuning<TuningValues{.words = attile::sm90::ModifierWords::kDiagonals}>>>;
template <class Dim, attile::DqMode kMode = attile::DqMode::kAccumulate>
using DiagonalsOf = GpuExecutor<Dim, Sm90DefaultTiles<attile::sm90::TileSet::kDiagonals>, kMode>;
using Diagonals64 = DiagonalsOf<Dims<64>>;
using Diagonals128 = DiagonalsOf<Dims<128>>;
using Diagonals192 = DiagonalsOf<Dims<192>>;
using DiagonalsInOrder = DiagonalsOf<Dims<64>, attile::DqMode::kInOrder>;
// The elements backward, where each warp reads the transpose: parts of a tile, and dQ by columns.
template <int Br, int Bc, class Dim, int kStages, attile::DqMode kMode>
using ElementsBackward = GpuExecutor<
    Dim,
    Sm90Tiles<Br, Bc, Tuning<>, BackwardTuning<BackwardTuningValues{.element_stages = kStages}>>,
    kMode>;
using ElementsRows = ElementsBackward<128, 128, Dims<64>, 1, attile::DqMode::kAccumulate>;
using ElementsColumns = ElementsBackward<64, 128, Dims<128>, 2, attile::DqMode::kAccumulate>;
using ElementsInOrder = ElementsBackward<64, 64, Dims<64>, 2, attile::DqMode::kInOrder>;
template <class Dim, attile::DqMode kMode = attile::DqMode::kAccumulate>
using ElementsOf = GpuExecutor<Dim, Sm90DefaultTiles<attile::sm90::TileSet::kElements>, kMode>;
using Elements96 = ElementsOf<Dims<96>>;
using Elements192x128 = ElementsOf<Dims<192, 128>>;
using Elements256 = ElementsOf<Dims<256>>;
using ElementsInOrder256 = ElementsOf<Dims<256>, attile::DqMode::kInOrder>;
template <int kD>
using ElementsAlone = Sm90Executor<Dims<kD>, Sm90DefaultTiles<attile::sm90::TileSet::kElements>>;

// Backward: dQ shared by its rows, and by its columns; above 128 columns each product is one
// warpgroup's.
using Rows = Sm90Executor<Dims<64>, Sm90Tiles<128, 128, Tuning<>>>;
using RowsOrSm80 = GpuExecutor<Dims<64>, Sm90Tiles<128, 128, Tuning<>>>;
using Columns = Sm90Executor<Dims<128>, Sm90Tiles<64, 128, Tuning<>>>;
using ColumnsOrSm80 = GpuExecutor<Dims<128>, Sm90Tiles<64, 128, Tuning<>>>;
using ColumnsInOrder =
    Sm90Executor<Dims<128>, Sm90Tiles<64, 128, Tuning<>>, attile::DqMode::kInOrder>;
using OneGroup =
    Sm90Executor<Dims<64>,
                 Sm90Tiles<64, 64, Tuning<>, BackwardTuning<BackwardTuningValues{.stages = 3}>>>;
using OneGroupInOrder =
    Sm90Executor<Dims<64>, Sm90Tiles<64, 64, Tuning<>>, attile::DqMode::kInOrder>;
using Default = Sm90Executor<Dims<64>, Sm90DefaultTiles<>>;
using DefaultOrSm80 = GpuExecutor<Dims<64>, Sm90DefaultTiles<>>;
using InOrder = Sm90Executor<Dims<64>, Sm90Tiles<64, 128, Tuning<>>, attile::DqMode::kInOrder>;
// dQ is added from registers, in the turns that other warps wait for.
using SemaphoreWarps = Sm90Executor<Dims<96, 96, 64>, Sm90DefaultTiles<>, attile::DqMode::kInOrder>;
using Roles256 = Sm90Executor<Dims<256, 256, 96>, Sm90DefaultTiles<>>;
using RolesInOrder = Sm90Executor<Dims<160, 64>, Sm90DefaultTiles<>, attile::DqMode::kInOrder>;
using Roles192 = Sm90Executor<Dims<192>, Sm90DefaultTiles<>>;

using PackedDeep = Sm90Executor<Dims<256>, Sm90DefaultTiles<attile::sm90::TileSet::kPackedHeads>>;

// The same case takes longer here than in the other families.
constexpr double kMost = kTestFull ? kLessCost : kMostCost;
constexpr double kWide = 1.2e6;
// What a stage of a pipeline holds is replaced only where there are several tiles.
constexpr double kSeveralTiles = 6e6;

struct Nothing {
  static constexpr bool kIntervals = true;

  ATTILE_HOST_DEVICE bool visible(attile::ScoreIndex, attile::Extent) const { return false; }
  ATTILE_HOST_DEVICE attile::Span columns(int, int, attile::Interval, attile::Extent) const {
    return {};
  }
  ATTILE_HOST_DEVICE attile::Span rows(int, int, attile::Interval, attile::Extent) const {
    return {};
  }
};

using NothingArgs = attile::BackwardArgs<__half, Nothing>;
template <int D>
using DefaultOfNothing =
    attile::sm90::DefaultBackwardTraits<NothingArgs, D, D, attile::DqMode::kAccumulate>;
// Three consumers: preprocessing writes the zeros.
using ThreeOfNothing =
    attile::BackwardTraits<64, 192, 64, __half, Nothing, attile::NoScoreMod, attile::NoDropout, 64,
                           attile::DqMode::kAccumulate, BackwardTuning<>>;

using Blocks = attile::BlockSparse<attile::Causal, 128, 64>;
template <int Br, int Bc, int D>
using ListedForward = attile::ForwardTraits<Br, Bc, D, __half, Blocks, attile::NoScoreMod,
                                            attile::NoDropout, D, Tuning<>>;
template <int D, attile::DqMode kMode>
using ListedBackward =
    attile::sm90::DefaultBackwardTraits<attile::BackwardArgs<__half, Blocks>, D, D, kMode>;

/// No row sees a key of any tile: none of them adds to dQ, and all of them have to signal that
/// behind the zeros, and behind the reset of what they signal with.
template <class Traits>
void nothing_is_visible() {
  const OneHead<Traits> head(/*rows=*/60, /*keys=*/160, -attile::kInf);
  head.run_backward();
  REQUIRE(machine_reports() == "");
  for (const auto* gradient : {&head.dq, &head.dk, &head.dv}) {
    for (const __half x : gradient->download()) REQUIRE(attile::to_float(x) == 0.0f);
  }
}

/// Kernels of both passes, of all ways to add dQ, with a mask that reads a table.
template <class Mask>
void any_table() {
  using attile::BackwardTraits;
  using attile::DqMode;
  using attile::ForwardTraits;
  using attile::NoDropout;
  using attile::NoScoreMod;
  run_any_table<ForwardTraits<192, 32, 64, __half, Mask, NoScoreMod, NoDropout, 64,
                              Tuning<TuningValues{.stages = 3}>>>();
  run_any_table<BackwardTraits<64, 64, 64, __half, Mask, NoScoreMod, NoDropout, 64,
                               DqMode::kAccumulate, BackwardTuning<>>>();
#if ATTILE_TEST_LARGE
  run_any_table<BackwardTraits<64, 128, 64, __half, Mask, NoScoreMod, NoDropout, 64,
                               DqMode::kInOrder, BackwardTuning<>>>();
#endif
  run_any_table<BackwardTraits<64, 64, 160, __half, Mask, NoScoreMod, NoDropout, 160,
                               DqMode::kInOrder, BackwardTuning<>>>();
}

/// O and LSE of the first of two packed sequences, of 40 rows and 200 keys, where the other one's Q
/// and K have that size: rows of it lie in the tile with the first one's, and see the same keys
/// there, and keys of it lie in the tile with the first one's last keys.
template <class S = attile::NoScoreMod>
std::vector<float> beside_neighbour(float size, const S& mod = {}) {
  constexpr int kDim = 64, kRows = 40, kKeys = 200, kAll = 2 * kKeys;
  using Args = attile::ForwardArgs<__half, attile::Policies<OwnLengths, S>>;
  using Traits = attile::sm90::Tuning<>::Forward<128, 64, kDim, typename Args::Elements,
                                                 typename Args::Policies, kDim>;
  const auto numbers = [&](int seed, int rows, float later) {
    const Random random(static_cast<std::uint64_t>(seed));
    std::vector<__half> x;
    for (int i = 0; i < kAll * kDim; ++i) {
      x.push_back(__float2half(random.normal(i) * (i < rows * kDim ? 1.0f : later)));
    }
    return x;
  };
  using Ints = example::DeviceArray<int>;
  const example::DeviceArray<__half> q(numbers(1, kRows, size)), k(numbers(2, kKeys, size)),
      v(numbers(3, kKeys, 1));
  const example::DeviceArray<__half> o{std::vector<__half>(kAll * kDim)};
  const example::DeviceArray<float> lse{std::vector<float>(kAll)};
  const Ints q_first(std::vector<int>{0, kRows}), q_len(std::vector<int>{kRows, 30});
  const Ints kv_first(std::vector<int>{0, kKeys}), kv_len(std::vector<int>{kKeys, kKeys});
  Args args;
  args.q = attile::bshd<const __half>(q.get(), {.rows = kAll, .heads = 1, .dim = kDim});
  args.k = attile::bshd<const __half>(k.get(), {.rows = kAll, .heads = 1, .dim = kDim});
  args.v = attile::bshd<const __half>(v.get(), {.rows = kAll, .heads = 1, .dim = kDim});
  args.o = attile::bshd(o.get(), {.rows = kAll, .heads = 1, .dim = kDim});
  args.lse = lse.get();
  args.batch = 2, args.q_heads = args.kv_heads = 1, args.q_len = kRows, args.kv_len = kKeys;
  args.score_mod = mod;
  args.sequences = {q_first.get(), q_len.get(), kv_first.get(), kv_len.get(), kAll, kAll};
  REQUIRE(attile::forward<Traits>(args) == cudaSuccess);
  REQUIRE(machine_reports() == "");
  std::vector<float> bits;
  const auto of_first = o.download();
  for (int i = 0; i < kRows * kDim; ++i) bits.push_back(attile::to_float(of_first[i]));
  const auto lse_of_first = lse.download();
  bits.insert(bits.end(), lse_of_first.begin(), lse_of_first.begin() + kRows);
  return bits;
}

/// A causal kernel of 64 columns that counts its work tiles, with a bias that comes with K.
template <int Br, int kTeams, attile::sm90::ModifierWords kWords>
using CountedBias = attile::ForwardTraits<
    Br, 32, 64, __half, attile::Causal, attile::AdditiveBias<float>, attile::NoDropout, 64,
    Tuning<TuningValues{.stages = 3, .counts = true, .words = kWords, .teams = kTeams}>>;

/// Under a causal mask a call that counts its work tiles, of which there are enough, has the bits
/// of one that has no scratch memory to count in. `set` sets the score modifier.
template <class Traits, class F>
void check_counted(const F& set) {
  constexpr int kRows = kTestLarge ? 450 : 386, kHeads = 12, kKvHeads = 4;
  const auto numbers = [](int heads, unsigned seed) {
    return example::normal<__half>(static_cast<std::size_t>(kRows) * heads * 64, seed);
  };
  const example::DeviceArray<__half> q(numbers(kHeads, 1)), k(numbers(kKvHeads, 2)),
      v(numbers(kKvHeads, 3));
  const example::DeviceArray<char> workspace(16);
  const auto results = [&](bool counts) {
    const example::DeviceArray<__half> o{std::vector<__half>(q.size())};
    const example::DeviceArray<float> lse{std::vector<float>(kRows * kHeads)};
    typename Traits::Args args;
    args.q = attile::bshd<const __half>(q.get(), {.rows = kRows, .heads = kHeads, .dim = 64});
    args.k = attile::bshd<const __half>(k.get(), {.rows = kRows, .heads = kKvHeads, .dim = 64});
    args.v = attile::bshd<const __half>(v.get(), {.rows = kRows, .heads = kKvHeads, .dim = 64});
    args.o = attile::bshd(o.get(), {.rows = kRows, .heads = kHeads, .dim = 64});
    args.lse = lse.get();
    args.batch = 1, args.q_heads = kHeads, args.kv_heads = kKvHeads;
    args.q_len = args.kv_len = kRows;
    set(args.score_mod);
    if (counts) {
      attile::sm90::TmaForwardParams<Traits> params(args);
      REQUIRE(params.use(workspace.get()) > 0);
      REQUIRE(attile::forward<Traits>(workspace.get(), workspace.size(), args) == cudaSuccess);
    } else {
      REQUIRE(attile::forward<Traits>(args) == cudaSuccess);
    }
    std::vector<float> bits = lse.download();
    for (const __half x : o.download()) bits.push_back(attile::to_float(x));
    return bits;
  };
  CHECK(results(true) == results(false));
  CHECK(machine_reports() == "");
}

void check_counted_causal() {
  check_counted<attile::ForwardTraits<192, 32, 64, __half, attile::Causal, attile::NoScoreMod,
                                      attile::NoDropout, 64,
                                      Tuning<TuningValues{.stages = 3, .counts = true}>>>(
      [](auto&) {});
  // The words of a bias by columns, and by diagonals.
  using attile::sm90::ModifierWords;
  const example::DeviceArray<float> bias(example::normal<float>(12 * 1024, 4));
  const auto columns = [&](auto& mod) {
    mod.bias = bias.get();
    mod.head_stride = 1024, mod.col_stride = 1;
  };
  check_counted<CountedBias<128, 2, ModifierWords::kColumns>>(columns);
#if ATTILE_TEST_LARGE
  check_counted<CountedBias<192, 1, ModifierWords::kColumns>>(columns);
  check_counted<CountedBias<192, 1, ModifierWords::kDiagonals>>([&](auto& mod) {
    mod.bias = bias.get() + 512;
    mod.head_stride = 1024, mod.row_stride = -1, mod.col_stride = 1;
  });
#endif
}

/// Pages are refused that no box of rows fits into, and keys that begin in the middle of one, where
/// the caller names the family; the one call takes another family.
void check_pages_that_are_refused() {
  using Args = ForwardArgsOf<__half, Policy::kPagedWindow>;
  using Traits = attile::sm90::DefaultForwardTraits<Args, 64>;
  Problem<__half, Policy::kPagedWindow> p(
      {.policy = Policy::kPagedWindow, .q_len = 9, .kv_len = 40, .left = 5, .right = 0});
  Args args = p.forward_args();
  args.sequences.leftpad_k = nullptr;
  args.sequences.page_size = 12;
  CHECK(attile::check<Traits>(args).why ==
        std::string("the sm90 kernels copy pages in boxes of rows: the greatest common divisor of "
                    "page_size and Bc must be a multiple of 8"));
  CHECK(bool(attile::check<64>(args)));
  args.sequences.page_size = 16;
  CHECK(bool(attile::check<Traits>(args)));
  args.sequences.leftpad_k = args.sequences.seqused_k;
  CHECK(attile::check<Traits>(args).why ==
        std::string("the sm90 kernels copy pages in boxes of rows: each sequence's first key must "
                    "be the first one of a page"));
  CHECK(bool(attile::check<64>(args)));
}

/// Tensors whose batches can be counted neither by rows nor by heads are refused whatever the bound
/// is, also where it is one row: a bound chooses no kernel.
void check_bounds_of_padded_rows() {
  using Args = attile::ForwardArgs<__half, attile::Causal, attile::Padded>;
  using Traits = attile::sm90::DefaultForwardTraits<Args, 64>;
  std::vector<__half> memory(4 * 2 * 64 * 136);  // check reads none of it
  const auto part = [&](int n) { return memory.data() + n * 2 * 64 * 136; };
  const int lengths[] = {1, 1};
  // A row is 136 apart, a head 64: batches are counted by rows or heads, or not at all.
  for (const auto& [batch_stride, is_taken] :
       {std::pair(15 * 136, true), {10 * 64, true}, {10 * 64 + 8, false}}) {
    for (const int q_len : {1, 2}) {
      Args args;
      args.q = {part(0), batch_stride, 64, 136};
      args.k = {part(1), 64 * 128, 64, 128};
      args.v = {part(2), 64 * 128, 64, 128};
      args.o = {part(3), batch_stride, 64, 136};
      args.batch = args.q_heads = args.kv_heads = 2;
      args.q_len = q_len, args.kv_len = 64;
      args.sequences = {lengths, nullptr};
      CAPTURE(q_len, batch_stride);
      CHECK(bool(attile::check<Traits>(args)) == is_taken);
    }
  }
}

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("sim.sm90",
                    in_large(kSimulatedPolicies + kLearnedPolicies + kSequencePolicies +
                             kSinkPolicies + kBlockPolicies + kEarlierPolicies +
                             policies<kHalfBias, kSoftcapBias, kFullAlibi, kPreparedAlibi,
                                      kCachedCausal, kPagedWindow, kPagedPackedEverything>));
  suite.demand(policies<kNone, kCausal, kWindow, kDocument, kKeyPadding, kCausalSortedDocument,
                        kRowIntervals, kPreparedAlibi, kBias, kHalfBias, kCausalDropout,
                        kHalfBiasDropout, kUser, kEverything> +
               kLearnedPolicies +
               policies<kBlockSparse, kBlockSparseEverything, kPackedCausal, kPackedBias,
                        kPaddedEverything, kPackedBatches, kSink, kOwnLengthsSink, kCachedCausal,
                        kPagedWindow, kEarlier, kEarlierEverything>);
  suite.forward<__half>("128x64", simulated<Two>(kMost),
                        in_large(kSimulatedPolicies + kSequencePolicies + kBlockPolicies +
                                     policies<kSink, kOwnLengthsSink>,
                                 policies<kWindow, kDocument, kUser, kRowIntervals, kPackedCausal,
                                          kPaddedEverything, kBlockSparse, kOwnLengthsSink>));
  suite.forward<__half>(
      "128x64", simulated<Two>(kMost),
      policies<kCachedCausal> +
          in_large(policies<kEarlier> + in_full(policies<>, policies<kFullAlibi>)));
  suite.forward<__nv_bfloat16>("192x32", simulated<Three>(kMost),
                               policies<kCausal, kPreparedAlibi, kEarlierEverything> +
                                   in_large(policies<kFullAlibi, kPackedCausal>) +
                                   in_full(policies<kCachedPackedAlibi>));
  // Also with more work tiles than blocks: a window that makes a consumer skip tiles of K and V
  // ahead of more work, and dropout, with which consumers are ordered. And all policies at once.
  suite.forward<__nv_bfloat16>("192x32", simulated<Three>(2e6), policies<kWindow, kCausalDropout>);
  suite.forward<__nv_bfloat16>("192x32_or_sm80", simulated<ThreeOrSm80>(2e6),
                               policies<kEverything>);
  suite.forward<__nv_bfloat16>("64x64", simulated<Plain>(kMost), policies<kCausal>);
  suite.forward<__half>("packed", simulated<Packed>(kMost),
                        policies<kCausalDropout, kSink> +
                            in_large(policies<kCausal, kRowIntervals, kEarlier, kFullAlibi>));
  suite.forward<__half>("packed_or_sm80", simulated<PackedOrSm80>(kMost),
                        in_large(policies<kNone>));
  suite.forward<__half>(
      "counted", simulated<Counted>(kMost),
      policies<kCausalSortedDocument, kKeyPadding> + in_large(policies<kRowIntervals>));
  suite.forward<__half>(
      "teams", simulated<Teams>(kMost),
      policies<kNone, kEarlier, kPackedCausal> + in_large(policies<kCausal, kWindow, kSink>));
  suite.forward<__half>(
      "counted_teams", simulated<CountedTeams>(kMost),
      policies<kCausal, kPackedBatches> + in_large(policies<kBlockSparse, kKeyPadding>));
  suite.forward<__nv_bfloat16>("192x32_or_sm80", simulated<ThreeOrSm80>(2e6),
                               in_large(policies<kPagedPackedEverything>));
  suite.forward<__half>("128x64_or_sm80", simulated<TwoOrSm80>(kMost),
                        policies<kPagedWindow> + in_large(policies<kEarlierPaged>));
  suite.forward<__half>("elements", simulated<ElementsTwo>(kSeveralTiles),
                        in_large(policies<kHalfBias, kSoftcapBias>));
  suite.forward<__nv_bfloat16>("elements", simulated<ElementsThree>(kSeveralTiles),
                               policies<kHalfBias>);
  suite.forward<__half>("elements_d64", simulated<ElementsDefault>(kSeveralTiles),
                        policies<kPackedBias> + in_large(policies<kHalfBias>));
  suite.forward<__half>("columns", simulated<ColumnsTwo>(kSeveralTiles),
                        policies<kBias, kPackedBias> + in_large(policies<kHalfBias, kSoftcapBias>));
  suite.forward<__nv_bfloat16>(
      "columns_d64", simulated<ColumnsDefault>(kSeveralTiles),
      policies<kLearnedBiasDropout> + in_large(policies<kHalfBias, kLearnedBias>));
  suite.backward<__half>("columns_d64", simulated<ColumnsDefault>(kSeveralTiles),
                         policies<kBias> + in_large(policies<kHalfBias, kPackedBias>));
  suite.forward<__half>(
      "diagonals", simulated<DiagonalsTwo>(kSeveralTiles),
      policies<kHalfBias> + in_large(policies<kLearnedBias, kPackedBias, kSoftcapBias>));
  suite.forward<__nv_bfloat16>("diagonals_d64", simulated<Diagonals64>(kSeveralTiles),
                               in_large(policies<kHalfBias, kLearnedBiasDropout>));
  suite.backward<__half>(
      "diagonals_d64", simulated<Diagonals64>(kSeveralTiles),
      policies<kHalfBias, kPackedBias> + in_large(policies<kLearnedBias, kLearnedBiasDropout>));
  suite.backward<__nv_bfloat16>("diagonals_d128", simulated<Diagonals128>(kSeveralTiles),
                                in_large(policies<kLearnedBias>));
  suite.backward<__half>("diagonals_d192", simulated<Diagonals192>(kSeveralTiles),
                         in_large(policies<kHalfBias, kLearnedBias>));
  suite.backward<__half>("diagonals_in_order", simulated<DiagonalsInOrder>(kSeveralTiles),
                         in_large(policies<kHalfBias>));
  suite.backward<__half>("elements_rows", simulated<ElementsRows>(kSeveralTiles),
                         policies<kSoftcapBias, kPackedBias> + in_large(policies<kHalfBias>));
  suite.backward<__half>("elements_columns", simulated<ElementsColumns>(kSeveralTiles),
                         policies<kHalfBias> + in_large(policies<kPackedBias>));
  suite.backward<__nv_bfloat16>("elements_in_order", simulated<ElementsInOrder>(kSeveralTiles),
                                policies<kHalfBias>);
  suite.backward<__half>("elements_d96", simulated<Elements96>(kSeveralTiles),
                         in_large(policies<kHalfBias>));
  suite.backward<__nv_bfloat16>("elements_d192x128", simulated<Elements192x128>(kSeveralTiles),
                                in_large(policies<kHalfBias>));
  suite.backward<__half>("elements_d256", simulated<Elements256>(kSeveralTiles),
                         in_large(policies<kHalfBias, kPackedBias>));
  suite.backward<__half>("elements_in_order_d256", simulated<ElementsInOrder256>(kSeveralTiles),
                         in_large(policies<kHalfBias, kPackedBias>));
  suite.forward<__half>("d64x32", simulated<Narrow>(kMost), policies<kCausal>);
  suite.forward<__half>("d256", simulated<Deep>(kWide),
                        policies<kCausal> + in_large(policies<kNone, kOwnLengths, kEarlier>));
  suite.forward<__half>("packed_d256", simulated<PackedDeep>(kWide / 8),
                        in_large(policies<kCausal>));
  suite.forward<__half>("d96", simulated<D96>(kWide), in_large(policies<kNone>));
  suite.backward<__half>("rows_or_sm80", simulated<RowsOrSm80>(kMost), in_large(policies<kNone>));
  suite.backward<__half>("rows", simulated<Rows>(kMost),
                         policies<kLearnedDropout, kOwnLengthsSink> +
                             in_large(policies<kLearned, kLearnedBiasDropout, kOwnLengths>));
  suite.backward<__half>(
      "columns", simulated<Columns>(kMost),
      policies<kNone, kKeyPadding> +
          in_large(policies<kCausal, kLearned, kLearnedBias, kRowIntervals, kSinkEverything> +
                       kSequencePolicies,
                   policies<kPaddedEverything>));
  suite.backward<__half>("columns_or_sm80", simulated<ColumnsOrSm80>(kMost),
                         in_large(policies<kEverything>));
  suite.backward<__half>("columns", simulated<Columns>(kWide),
                         in_large(policies<kDocument, kPreparedAlibi>));
  // Tiles of 64 rows and up to 64 columns: dQ of 32 columns each, of panels of K as wide.
  suite.backward<__half>("d64_or_sm80", simulated<DefaultOrSm80>(kMost), policies<kEverything>);
  suite.backward<__half>("columns_in_order", simulated<ColumnsInOrder>(kWide), policies<kDocument>);
  suite.backward<__nv_bfloat16>("one_group", simulated<OneGroup>(kMost), policies<kCausal>);
  suite.backward<__half>(
      "in_order", simulated<InOrder>(kMost),
      policies<kCausal, kPackedCausal> +
          in_large(policies<kPackedBatches, kCausalSortedDocument, kRowIntervals, kSink>));
  suite.backward<__half>("d96", simulated<D96>(kWide / 4), policies<kNone>);
  suite.backward<__half>("d96_in_order", simulated<SemaphoreWarps>(kWide / 4),
                         policies<kCausal> + in_large(policies<kPackedCausal>));
  suite.backward<__half>("d256", simulated<Roles256>(kWide),
                         policies<kNone, kPackedCausal, kLearned> +
                             in_large(policies<kOwnLengths, kPaddedEverything>));
  suite.backward<__half>("d160x64_in_order", simulated<RolesInOrder>(kWide / 4),
                         policies<kCausal> + in_large(policies<kEverything, kPackedCausal>));
  suite.backward<__half>("d160x64_in_order", simulated<RolesInOrder>(kWide),
                         in_large(policies<kLearnedBias>));
  suite.backward<__nv_bfloat16>("d192", simulated<Roles192>(kWide),
                                policies<kLearnedBias> + in_large(policies<kEverything>));
  suite.forward<__nv_bfloat16>("default", simulated<Default>(kMost),
                               in_large(policies<kBlockSparse>));
  suite.backward<__half>("one_group", simulated<OneGroup>(kMost), in_large(policies<kBlockSparse>));
  suite.backward<__half>("one_group_in_order", simulated<OneGroupInOrder>(kMost),
                         policies<kBlockSparse>);
  suite.backward<__half>("columns", simulated<Columns>(kMost), policies<kBlockSparseEverything>);
  suite.backward<__half>("columns_in_order", simulated<ColumnsInOrder>(kMost),
                         in_large(policies<kBlockSparseEverything>));
  suite.backward<__half>("d256", simulated<Roles256>(6e6), in_large(policies<kBlockSparse>));
  suite.forward<__half>("elements", simulated<ElementsTwo>(kSeveralTiles),
                        in_large(policies<kHalfBiasDropout>));
  suite.backward<__nv_bfloat16>("diagonals_d128", simulated<Diagonals128>(kSeveralTiles),
                                in_large(policies<kHalfBiasDropout>));
  // More sequences than a warp has lanes, and some of two tiles each, which are a run of them.
  suite.forward<__half>("many_sequences", simulated_case<Two>("packed_causal_38_sequences"),
                        policies<kPackedCausal>);
  suite.forward<__half>("run_of_sequences", simulated_case<Two>("packed_causal_tight_130"),
                        policies<kPackedCausal>);
  suite.forward<__half>("many_sequences_of_teams",
                        simulated_case<CountedTeams>("packed_batches_60_sequences"),
                        policies<kPackedBatches>);
  suite.backward<__half>("in_order_of_sequences", simulated_case<InOrder>("packed_causal_40_24"),
                         policies<kPackedCausal>);
  // Elements in tiles: each product one warpgroup's, which have several tiles of Q; and dropout.
  suite.backward<__half>("elements_alone_d256",
                         simulated_case<ElementsAlone<256>>("half_bias_dim_256"),
                         policies<kHalfBias>);
  suite.backward<__half>("elements_alone_d128",
                         simulated_case<ElementsAlone<128>>("half_bias_dropout_dim_128"),
                         policies<kHalfBiasDropout>);
  suite.test("block_sparse", "forward", "wrong_lists",
             [] { forward_of_wrong_lists<ListedForward<128, 32, 16>>(300, 250); });
  // Two teams.
  suite.test("block_sparse", "forward", "wrong_lists_of_teams", [] {
    using Traits = attile::sm90::DefaultForwardTraits<attile::ForwardArgs<__half, Blocks>, 32>;
    static_assert(Traits::kTeams == 2);
    forward_of_wrong_lists<Traits>(400, 250);
  });
#if ATTILE_TEST_LARGE
  // Three consumers: blocks of 192 rows.
  suite.test("block_sparse", "forward", "wrong_lists_of_192_rows", [] {
    using Args = attile::ForwardArgs<__half, attile::BlockSparse<attile::Causal, 192, 64>>;
    using Traits = attile::sm90::DefaultForwardTraits<Args, 32>;
    static_assert(Traits::kBr == 192 && Traits::kBc == 64);
    forward_of_wrong_lists<Traits>(400, 250);
  });
#endif
  suite.test("block_sparse", "backward", "wrong_lists", [] {
    backward_of_wrong_lists<ListedBackward<32, attile::DqMode::kInOrder>>(300, 250);
#if ATTILE_TEST_LARGE
    backward_of_wrong_lists<ListedBackward<32, attile::DqMode::kAccumulate>>(300, 250);
    backward_of_wrong_lists<ListedBackward<256, attile::DqMode::kInOrder>>(150, 140);
#endif
  });
  suite.test("paged_window", "forward", "any_cache",
             run_any_cache<KernelsOf<TwoOrSm80, __half, kPagedWindow>::Forward, 16>);
  suite.test("paged_window", "forward", "pages_are_refused", check_pages_that_are_refused);
  suite.test("own_lengths", "forward", "bounds_choose_no_family", check_bounds_of_padded_rows);
  suite.test("own_lengths", "forward", "neighbours_change_no_bits",
             [] { CHECK(beside_neighbour(1.0f) == beside_neighbour(20.0f)); });
#if ATTILE_TEST_LARGE
  // A neighbour's large keys take the short way from small scores' softcap, and from nothing else.
  suite.test("modifiers", "forward", "beside_a_neighbour", [] {
    const example::DeviceArray<float> slopes(std::vector<float>{0.6299605f});
    const attile::Then<attile::Softcap, attile::Alibi> mod{{3.0f}, {slopes.get(), 0}};
    CHECK(beside_neighbour(1.0f, mod) == beside_neighbour(20.0f, mod));
    const attile::Then<attile::Softcap, attile::Alibi> wide{{30.0f}, {slopes.get(), 0}};
    CHECK(beside_neighbour(1.0f, wide) == beside_neighbour(300.0f, wide));
  });
  add_packed_tests<KernelsOf<Two::Kernels, __half, kPackedCausal>::Forward,
                   KernelsOf<InOrder::Kernels, __half, kPackedCausal>::Backward,
                   KernelsOf<Columns::Kernels, __half, kPackedCausal>::Backward,
                   KernelsOf<RolesInOrder::Kernels, __half, kPackedCausal>::Backward>(suite, 4, 2);
#else
  add_packed_tests<KernelsOf<Two::Kernels, __half, kPackedCausal>::Forward,
                   KernelsOf<InOrder::Kernels, __half, kPackedCausal>::Backward>(suite, 4, 2);
#endif
  suite.test("packed_batches", "both", "any_offsets", [] {
    run_any_offsets<KernelsOf<CountedTeams::Kernels, __half, kPackedBatches>::Forward, 7>();
    run_any_offsets<KernelsOf<InOrder::Kernels, __half, kPackedBatches>::Backward, 7>();
#if ATTILE_TEST_LARGE
    run_any_offsets<KernelsOf<Two::Kernels, __half, kPackedBatches>::Forward, 7>();
    run_any_offsets<KernelsOf<Columns::Kernels, __half, kPackedBatches>::Backward, 40>();
#endif
  });
  // Several kv tiles, whose blocks go row by row through the query heads, and head by head.
  suite.test("packed_causal", "both", "bits_of_several_kv_tiles", [] {
    using Both = ByTraits<KernelsOf<Two::Kernels, __half, kPackedCausal>::Forward,
                          KernelsOf<InOrder::Kernels, __half, kPackedCausal>::Backward>;
    if (kTestLarge) {
      check_packed_bits<Both>(300, 400, 4, 1);
      check_packed_bits<Both>(300, 400, 4, 2);
    } else {
      check_packed_bits<Both>(100, 200, 4, 2);
    }
    CHECK(machine_reports() == "");
  });
  suite.test("causal", "forward", "counted", check_counted_causal);
  suite.test("earlier", "forward", "parts_are_the_whole", [] {
    const auto run = on_device([]<class Args>(const Args& args) {
      return attile::forward<attile::sm90::DefaultForwardTraits<Args, 32>>(args);
    });
#if ATTILE_TEST_LARGE
    check_parts_of_sequences<__nv_bfloat16, attile::Uniform, attile::Packed>(run);
#endif
    check_parts<KeysInParts<__half, attile::Uniform, attile::PartDropout, attile::Causal>>(
        {2, 4, 2, 20, 32, {16, 64, 144, 200}}, run);
    CHECK(machine_reports() == "");
  });
  suite.test("any_table", "both", "sorted_document", any_table<attile::SortedDocument>);
#if ATTILE_TEST_LARGE
  suite.test("any_table", "both", "causal_sorted_document",
             any_table<attile::And<attile::Causal, attile::SortedDocument>>);
#endif
  suite.test("any_table", "both", "row_intervals", any_table<attile::RowIntervals>);
  suite.test("own_mask", "backward", "nothing_is_visible", [] {
    nothing_is_visible<DefaultOfNothing<96>>();
    nothing_is_visible<ThreeOfNothing>();
#if ATTILE_TEST_LARGE
    nothing_is_visible<DefaultOfNothing<64>>();
    nothing_is_visible<DefaultOfNothing<192>>();
#endif
  });
  return true;
}();

}  // namespace
