// SPDX-License-Identifier: MIT
// What the kernels have to keep doing to be fast: how often the portable ones read and write each
// tensor, in which sectors and with which bank conflicts, and how many exponentials they take; bank
// conflicts of fp32 in matrix instructions.
#include <attile/arch/launch.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/attile.cuh>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../examples/07_algorithms/costs.h"
#include "../../examples/support.cuh"
#include "sim/machine.h"
#include "sim/one_head.h"
#include "sim/report.h"
#include "support/catch.h"

namespace {

using attile::Extent;

constexpr int kDim = 64, kHeads = 2;

using Array = example::DeviceArray<float>;

/// A dense (1, heads, rows, dim) tensor in device memory, all of it written.
Array tensor(int rows, int dim = kDim) {
  return Array(std::vector<float>(static_cast<std::size_t>(kHeads) * rows * dim, 0.5f));
}

template <class T>
example::DeviceArray<T> ones(std::size_t size) {
  return attile_test::filled<T>(size, 1.0f);
}

std::uint64_t read(const Array& x) { return sim::traffic(x.get()).read; }
std::uint64_t written(const Array& x) { return sim::traffic(x.get()).written; }

std::uint64_t bytes_of(double rows) {
  return sizeof(float) * kHeads * kDim * static_cast<std::uint64_t>(rows);
}

template <class Args>
void describe(Args& args, const Array& q, const Array& k, const Array& v, Extent extent) {
  args.q = attile::bhsd(q.get(), {.rows = extent.q_len, .heads = kHeads, .dim = kDim});
  args.k = attile::bhsd(k.get(), {.rows = extent.kv_len, .heads = kHeads, .dim = kDim});
  args.v = attile::bhsd(v.get(), {.rows = extent.kv_len, .heads = kHeads, .dim = kDim});
  args.batch = 1;
  args.q_heads = args.kv_heads = kHeads;
  args.q_len = extent.q_len, args.kv_len = extent.kv_len;
  args.head_dim = kDim;
}

/// K and V are read once for each tile of Q that sees any of them, Q once; O and LSE are written
/// once, and never read. As many exponentials as scores in those tiles, and one for each lane of a
/// row and tile, for the rescaling.
template <class M>
void forward_reads_what_it_must(const M& mask, Extent extent) {
  CAPTURE(extent.q_len, extent.kv_len);
  using Args = attile::ForwardArgs<float, M>;
  using Traits = attile::portable::DefaultForwardTraits<Args, kDim>;
  const Array q = tensor(extent.q_len), k = tensor(extent.kv_len), v = tensor(extent.kv_len),
              o = tensor(extent.q_len), lse = tensor(extent.q_len, 1);
  Args args;
  args.mask = mask;
  args.o = attile::bhsd(o.get(), {.rows = extent.q_len, .heads = kHeads, .dim = kDim});
  args.lse = lse.get();
  describe(args, q, k, v, extent);
  sim::reset_counters();
  REQUIRE(attile::forward<Traits>(args) == cudaSuccess);
  REQUIRE(sim::take_reports().empty());

  const auto met = algorithms::visits_by_rows(mask, extent, Traits::kBr, Traits::kBc);
  CHECK(read(k) == bytes_of(met.loaded));
  CHECK(read(v) == bytes_of(met.loaded));
  CHECK(read(q) == bytes_of(extent.q_len));
  CHECK(written(o) == bytes_of(extent.q_len));
  CHECK(written(lse) == sizeof(float) * kHeads * extent.q_len);
  CHECK(read(o) + read(lse) + written(q) + written(k) + written(v) == 0);
  const sim::Counters counted = sim::counters();
  CHECK(counted.blocks ==
        static_cast<std::uint64_t>(kHeads) * attile::ceil_div(extent.q_len, Traits::kBr));
  const std::uint64_t scores =
      kHeads * static_cast<std::uint64_t>(met.tiles) * Traits::kBr * Traits::kBc;
  const std::uint64_t rescalings = scores / Traits::kBc * attile::tile::kColLanes;
  CHECK(counted.exps >= scores);
  CHECK(counted.exps <= scores + rescalings);
  CHECK(counted.barriers == kHeads * std::uint64_t{3} * static_cast<std::uint64_t>(met.tiles));
}

TEST_CASE("performance.forward_reads_what_it_must") {
  for (const Extent extent : {Extent{128, 64}, Extent{300, 300}, Extent{300, 130}}) {
    forward_reads_what_it_must(attile::NoMask{}, extent);
    forward_reads_what_it_must(attile::Causal{}, extent);
    forward_reads_what_it_must(attile::SlidingWindow{40, 0}, extent);
  }
}

/// Q and dO are read once for each tile of K and V that they see (dO once more for D), K and V
/// once; dQ, dK and dV are written once.
template <attile::DqMode kMode, class M>
void backward_reads_what_it_must(const M& mask, Extent extent) {
  CAPTURE(static_cast<int>(kMode), extent.q_len, extent.kv_len);
  using Args = attile::BackwardArgs<float, M>;
  using Traits = attile::portable::DefaultBackwardTraits<Args, kDim, kDim, kMode>;
  const Array q = tensor(extent.q_len), k = tensor(extent.kv_len), v = tensor(extent.kv_len),
              o = tensor(extent.q_len), lse = tensor(extent.q_len, 1), dout = tensor(extent.q_len),
              dq = tensor(extent.q_len), dk = tensor(extent.kv_len), dv = tensor(extent.kv_len);
  Args args;
  args.mask = mask;
  args.o = attile::bhsd(o.get(), {.rows = extent.q_len, .heads = kHeads, .dim = kDim});
  args.lse = lse.get();
  args.dout = attile::bhsd(dout.get(), {.rows = extent.q_len, .heads = kHeads, .dim = kDim});
  args.dq = attile::bhsd(dq.get(), {.rows = extent.q_len, .heads = kHeads, .dim = kDim});
  args.dk = attile::bhsd(dk.get(), {.rows = extent.kv_len, .heads = kHeads, .dim = kDim});
  args.dv = attile::bhsd(dv.get(), {.rows = extent.kv_len, .heads = kHeads, .dim = kDim});
  describe(args, q, k, v, extent);
  std::size_t bytes = 0;
  REQUIRE(attile::backward<Traits>(nullptr, bytes, args) == cudaSuccess);
  const example::DeviceArray<unsigned char> workspace(bytes);
  REQUIRE(attile::backward<Traits>(workspace.get(), bytes, args) == cudaSuccess);
  REQUIRE(sim::take_reports().empty());

  const auto by_columns = algorithms::visits_by_columns(mask, extent, Traits::kBr, Traits::kBc);
  const bool two_pass = kMode == attile::DqMode::kTwoPass;
  const auto by_rows = two_pass ? algorithms::visits_by_rows(mask, extent, Traits::kBr, Traits::kBc)
                                : algorithms::Visits{};
  const int second = two_pass ? extent.q_len : 0;
  CHECK(read(q) == bytes_of(by_columns.loaded + second));
  CHECK(read(dout) == bytes_of(by_columns.loaded + second + extent.q_len));
  CHECK(read(o) == bytes_of(extent.q_len));
  CHECK(read(k) == bytes_of(extent.kv_len + by_rows.loaded));
  CHECK(read(v) == bytes_of(extent.kv_len + by_rows.loaded));
  CHECK(written(dq) == bytes_of(extent.q_len));
  CHECK(written(dk) == bytes_of(extent.kv_len));
  CHECK(written(dv) == bytes_of(extent.kv_len));
  CHECK(read(dq) + read(dk) + read(dv) == 0);
}

TEST_CASE("performance.backward_reads_what_it_must") {
  using attile::DqMode;
  for (const Extent extent : {Extent{64, 64}, Extent{150, 150}, Extent{70, 130}}) {
    backward_reads_what_it_must<DqMode::kAccumulate>(attile::NoMask{}, extent);
    backward_reads_what_it_must<DqMode::kAccumulate>(attile::Causal{}, extent);
    backward_reads_what_it_must<DqMode::kInOrder>(attile::Causal{}, extent);
    backward_reads_what_it_must<DqMode::kTwoPass>(attile::Causal{}, extent);
  }
}

/// The launches of a forward pass, counted: one head, two tiles of rows and three of columns.
template <class Traits>
std::vector<sim::LaunchCounts> counted_forward() {
  using Q = typename Traits::Args::Elements::Q;
  using K = typename Traits::Args::Elements::K;
  using V = typename Traits::Args::Elements::V;
  constexpr int kLen = 2 * Traits::kBr, kKvLen = 3 * Traits::kBc, kD = Traits::kD;
  const auto q = ones<Q>(kLen * kD);
  const auto o = ones<typename Traits::Args::Elements::O>(kLen * kD);
  const auto k = ones<K>(kKvLen * kD);
  const auto v = ones<V>(kKvLen * kD);
  typename Traits::Args args;
  args.q = attile::bhsd<const Q>(q.get(), {.rows = kLen, .heads = 1, .dim = kD});
  args.k = attile::bhsd<const K>(k.get(), {.rows = kKvLen, .heads = 1, .dim = kD});
  args.v = attile::bhsd<const V>(v.get(), {.rows = kKvLen, .heads = 1, .dim = kD});
  args.o = attile::bhsd(o.get(), {.rows = kLen, .heads = 1, .dim = kD});
  args.batch = args.q_heads = args.kv_heads = 1;
  args.q_len = kLen, args.kv_len = kKvLen, args.head_dim = kD;
  sim::count_instructions(true);
  REQUIRE(attile::forward<Traits>(args) == cudaSuccess);
  sim::count_instructions(false);
  REQUIRE(sim::take_reports().empty());
  return sim::take_launches();
}

template <class Traits>
std::vector<sim::LaunchCounts> counted_backward() {
  const attile_test::OneHead<Traits> head(3 * Traits::kBr, 2 * Traits::kBc, 1.0f);
  sim::count_instructions(true);
  head.run_backward();
  sim::count_instructions(false);
  REQUIRE(sim::take_reports().empty());
  return sim::take_launches();
}

template <class T, int D, int kKb>
using Forward = attile::portable::DefaultForwardTraits<attile::ForwardArgs<T>, D, D, kKb>;
template <class T, int D, int kKb, attile::DqMode kMode = attile::DqMode::kAccumulate>
using Backward = attile::portable::DefaultBackwardTraits<attile::BackwardArgs<T>, D, D, kMode, kKb>;

using enum sim::Space;
using enum sim::Access;

std::uint64_t conflicts(const sim::LaunchCounts& launch, sim::Access access) {
  return launch.sum(kShared, access, &sim::Instruction::bank_conflicts);
}

/// Sectors that vectors move to or from device memory.
std::uint64_t vector_sectors(const sim::LaunchCounts& launch, sim::Access access) {
  std::uint64_t total = 0;
  for (const sim::Instruction& i : launch.instructions) {
    if (i.space == kDevice && i.access == access && i.bytes >= 8) total += i.sectors;
  }
  return total;
}

/// The loops read shared memory without bank conflicts. What writes it (K, Q and P by columns, fp16
/// 32 bytes at a time) has some: `most_conflicts`, which may become fewer. Device memory is moved
/// in whole sectors, but for Q and K of 16 bits: they are read by columns, half a sector at a time.
template <class Traits>
void forward_moves_well(std::uint64_t most_conflicts) {
  const auto launches = counted_forward<Traits>();
  REQUIRE(launches.size() == 1);
  CAPTURE(Traits::kD, Traits::kBr, Traits::kBc, sizeof(typename Traits::ElementType));
  CHECK(conflicts(launches[0], kRead) == 0);
  CHECK(conflicts(launches[0], kWrite) <= most_conflicts);
  constexpr std::uint64_t kRowSectors = sizeof(typename Traits::ElementType) * Traits::kD / 32;
  constexpr std::uint64_t kQ = 2 * Traits::kBr * kRowSectors;      // and O
  constexpr std::uint64_t kK = 2 * 3 * Traits::kBc * kRowSectors;  // and V
  constexpr int kHalves = sizeof(typename Traits::ElementType) == 2 ? 2 : 1;
  CHECK(launches[0].l2_read_sectors == kQ + 2 * kK);
  CHECK(vector_sectors(launches[0], kRead) <= kHalves * (kQ + kK) + kK);
  CHECK(vector_sectors(launches[0], kWrite) == kQ);
}

TEST_CASE("performance.forward_moves_whole_sectors_and_reads_without_bank_conflicts") {
  forward_moves_well<Forward<float, 64, 99>>(2048);
  forward_moves_well<Forward<__half, 128, 227>>(3072);
#if ATTILE_TEST_LARGE
  forward_moves_well<Forward<float, 128, 99>>(1280);
  forward_moves_well<Forward<float, 256, 227>>(4864);
  forward_moves_well<Forward<__half, 64, 99>>(2304);
  forward_moves_well<Forward<__half, 256, 99>>(1536);
#endif
#if ATTILE_TEST_FULL
  forward_moves_well<Forward<float, 128, 227>>(2560);
  forward_moves_well<Forward<float, 256, 99>>(2048);
  forward_moves_well<Forward<__half, 128, 99>>(2304);
  forward_moves_well<Forward<__half, 256, 227>>(3840);
#endif
}

/// The same; the tiles are read by rows, so their sectors are whole in any type.
template <class Traits>
void backward_moves_well(std::uint64_t most_conflicts) {
  const auto launches = counted_backward<Traits>();
  REQUIRE(launches.size() == 3);
  CAPTURE(Traits::kD, Traits::kBr, Traits::kBc, sizeof(typename Traits::ElementType));
  const sim::LaunchCounts& columns = launches[1];
  CHECK(conflicts(columns, kRead) == 0);
  CHECK(conflicts(columns, kWrite) <= most_conflicts);
  constexpr std::uint64_t kRowSectors = sizeof(typename Traits::ElementType) * Traits::kD / 32;
  constexpr std::uint64_t kQ = 2 * 3 * Traits::kBr * kRowSectors;  // and dO
  constexpr std::uint64_t kK = 2 * Traits::kBc * kRowSectors;      // and V, dK, dV
  const bool sums = Traits::kDqMode == attile::DqMode::kInOrder;   // in device memory: read back
  const std::uint64_t sum = sums ? 3 * Traits::kBr * kRowSectors : 0;
  CHECK(vector_sectors(columns, kRead) == 2 * kQ + 2 * kK + sum);
  CHECK(vector_sectors(columns, kWrite) == 2 * kK + 2 * sum);
}

TEST_CASE("performance.backward_moves_whole_sectors_and_reads_without_bank_conflicts") {
  using enum attile::DqMode;
  backward_moves_well<Backward<float, 64, 99>>(768);
  backward_moves_well<Backward<float, 64, 99, kInOrder>>(768);
  backward_moves_well<Backward<__half, 64, 99>>(2048);
#if ATTILE_TEST_LARGE
  backward_moves_well<Backward<float, 128, 227>>(2304);
  backward_moves_well<Backward<float, 256, 99>>(192);
  backward_moves_well<Backward<__half, 128, 99>>(2880);
#endif
#if ATTILE_TEST_FULL
  backward_moves_well<Backward<float, 64, 227>>(1536);
  backward_moves_well<Backward<float, 128, 99>>(576);
  backward_moves_well<Backward<__half, 256, 99>>(2496);
#endif
}

/// For matrix instructions: nothing meets a bank of shared memory twice, transposed or not.
void meets_no_bank_twice(const std::vector<sim::LaunchCounts>& launches) {
  for (const sim::LaunchCounts& launch : launches) {
    for (const sim::Instruction& i : launch.instructions) {
      CAPTURE(sim::place_of(i.pc));
      CHECK(i.bank_conflicts == 0);
    }
  }
}

TEST_CASE("performance.sm80_fp32_meets_no_bank_twice") {
  using ForwardArgs = attile::ForwardArgs<float>;
  using attile::DqMode;
  using attile::sm80::BackwardTuning;
  using attile::sm80::BackwardTuningValues;
  meets_no_bank_twice(counted_forward<attile::sm80::DefaultForwardTraits<ForwardArgs, 64>>());
#if ATTILE_TEST_LARGE
  using BackwardArgs = attile::BackwardArgs<float>;
  meets_no_bank_twice(counted_forward<attile::sm80::DefaultForwardTraits<ForwardArgs, 256>>());
  meets_no_bank_twice(counted_backward<attile::sm80::DefaultBackwardTraits<BackwardArgs, 128>>());
#endif
  // P and dS from registers; panels of 16 columns.
  meets_no_bank_twice(
      counted_backward<attile::sm80::BackwardTraits<
          16, 64, 64, attile::Elements<float>, attile::Policies<>, 64, DqMode::kAccumulate,
          BackwardTuning<BackwardTuningValues{.warps = 4, .warps_n = 1, .dq_warps_n = 4}>>>());
}

TEST_CASE("performance.sm80_lines_meet_no_bank_twice") {
  using Args = attile::ForwardArgs<__half, attile::Causal>;
  using Traits = attile::sm80::DefaultForwardTraits<Args, 256, 256, 227>;
  static_assert(Traits::kWarpsN == 2);
  meets_no_bank_twice(counted_forward<Traits>());
}

/// Of inputs in fp8 matrix instructions meet no bank twice, and each block of `forward` reads as
/// many sectors as they have, which are half of those of 16 bits.
template <class Traits>
void fp8_moves_well() {
  CAPTURE(Traits::kFamily, Traits::kD);
  const auto launches = counted_forward<Traits>();
  REQUIRE(launches.size() == 1);
  std::uint64_t matrices = 0, conflicts_of_matrices = 0;
  for (const sim::Instruction& i : launches[0].instructions) {
    if (i.way != sim::Way::kMatrix) continue;
    matrices += i.executions, conflicts_of_matrices += i.bank_conflicts;
  }
  CHECK(matrices > 0);
  CHECK(conflicts_of_matrices == 0);
  if (Traits::kPersistent) return;
  const std::uint64_t of_q =
      2 * Traits::kBr * Traits::kD * sizeof(typename Traits::Args::Elements::Q) / 32;
  const std::uint64_t of_keys = 3 * Traits::kBc * Traits::kD * 2 / 32;
  CHECK(launches[0].l2_read_sectors == of_q + 2 * of_keys);
}

TEST_CASE("performance.fp8_meets_no_bank_twice") {
  using E = attile::Elements<__half, __nv_fp8_e4m3, __nv_fp8_e5m2>;
  using Args = attile::ForwardArgs<E>;
  fp8_moves_well<attile::sm80::DefaultForwardTraits<Args, 64>>();
#if ATTILE_TEST_LARGE
  fp8_moves_well<attile::sm80::DefaultForwardTraits<Args, 256, 256, 227>>();
  fp8_moves_well<attile::sm80::DefaultDecodeTraits<Args, 32, 32, 227>>();
#endif
  fp8_moves_well<attile::sm80::DefaultDecodeTraits<Args, 128, 128, 227>>();
  using All = attile::ForwardArgs<
      attile::Elements<__nv_fp8_e4m3, __nv_fp8_e4m3, __nv_fp8_e4m3, __nv_bfloat16>>;
#if ATTILE_TEST_LARGE
  fp8_moves_well<attile::sm80::DefaultForwardTraits<All, 64>>();
#endif
  fp8_moves_well<attile::sm80::DefaultForwardTraits<All, 256, 256, 227>>();
}

/// FLOPs of the matrix instructions of a forward and of a backward pass.
template <attile::sm80::Products kProducts>
std::vector<std::uint64_t> fp32_flops() {
  using ForwardTuning = attile::sm80::Tuning<attile::sm80::TuningValues{
      .warps = 2, .blocks_per_sm = 1, .products = kProducts}>;
  using BackwardTuning = attile::sm80::BackwardTuning<attile::sm80::BackwardTuningValues{
      .warps = 2, .warps_n = 1, .dq_warps_n = 2, .products = kProducts}>;
  using ForwardTraits = attile::ForwardTraits<32, 32, 64, float, attile::NoMask, attile::NoScoreMod,
                                              attile::NoDropout, 64, ForwardTuning>;
  using BackwardTraits =
      attile::BackwardTraits<32, 32, 64, float, attile::NoMask, attile::NoScoreMod,
                             attile::NoDropout, 64, attile::DqMode::kAccumulate, BackwardTuning>;
  sim::reset_counters();
  counted_forward<ForwardTraits>();
  const std::uint64_t forward = sim::counters().mma_flops;
  counted_backward<BackwardTraits>();
  return {forward, sim::counters().mma_flops - forward};
}

TEST_CASE("performance.sm80_fp32_takes_the_products_that_its_tuning_names") {
  using attile::sm80::Products;
  const std::vector<std::uint64_t> one = fp32_flops<Products::k1xTf32>();
  const std::vector<std::uint64_t> three = fp32_flops<Products::k3xTf32>();
  REQUIRE(one[0] > 0);
  CHECK(three[0] == 3 * one[0]);
  CHECK(three[1] == 3 * one[1]);
}

// ---- the counting itself ------------------------------------------------------------------------

/// Lane i reads N floats from place * i / share on; `shared`: of shared memory.
template <int N>
void read_pattern(const float* in, float* out, int place, int share, bool shared) {
  const int lane = attile::arch::thread_index();
  float* const copy = reinterpret_cast<float*>(attile::arch::dynamic_shared());
  for (int i = lane; shared && i < 2048; i += 32) copy[i] = 1.0f;
  attile::arch::barrier();
  const float* const from = (shared ? copy : in) + place * (lane / share);
  out[lane] = attile::arch::load<N>(from)[0];
}

struct Pattern {
  std::uint64_t sectors, wavefronts, conflicts;
  bool operator==(const Pattern&) const = default;
};

template <int N>
Pattern counted_pattern(int place, int share) {
  const auto in = ones<float>(2048), out = ones<float>(32);
  sim::count_instructions(true);
  for (const bool shared : {false, true}) {
    REQUIRE(attile::arch::launch(read_pattern<N>, 1, 32, 8192, nullptr,
                                 static_cast<const float*>(in.get()), out.get(), place, share,
                                 shared) == cudaSuccess);
  }
  sim::count_instructions(false);
  REQUIRE(sim::take_reports().empty());
  const auto launches = sim::take_launches();
  return {launches.at(0).sum(kDevice, kRead, &sim::Instruction::sectors),
          launches.at(1).sum(kShared, kRead, &sim::Instruction::wavefronts),
          conflicts(launches.at(1), kRead)};
}

TEST_CASE("performance.sectors_and_wavefronts_of_patterns") {
  CHECK(counted_pattern<1>(1, 1) == Pattern{4, 1, 0});
  CHECK(counted_pattern<1>(0, 1) == Pattern{1, 1, 0});
  CHECK(counted_pattern<1>(2, 1) == Pattern{8, 2, 1});
  CHECK(counted_pattern<1>(8, 1) == Pattern{32, 8, 7});
  CHECK(counted_pattern<1>(33, 1) == Pattern{32, 1, 0});
  CHECK(counted_pattern<1>(32, 1) == Pattern{32, 32, 31});
  CHECK(counted_pattern<2>(2, 1) == Pattern{8, 2, 0});
  CHECK(counted_pattern<2>(4, 1) == Pattern{16, 4, 2});
  CHECK(counted_pattern<4>(4, 1) == Pattern{16, 4, 0});
  CHECK(counted_pattern<4>(8, 1) == Pattern{32, 8, 4});
  CHECK(counted_pattern<4>(4, 2) == Pattern{8, 2, 0});
  CHECK(counted_pattern<4>(4, 16) == Pattern{1, 2, 0});
  CHECK(counted_pattern<4>(8, 2) == Pattern{16, 4, 2});
}

}  // namespace
