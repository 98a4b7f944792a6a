// SPDX-License-Identifier: MIT
// As planted.cpp, for what came with compute capability 9.0.
#include <attile/arch/async_copy.cuh>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/cluster.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/tensor_map.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/arch/wgmma.cuh>
#include <attile/core/element.h>
#include <attile/core/panel_layout.h>
#include <attile/tile_wgmma.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../../examples/support.cuh"
#include "sim/machine.h"
#include "support/catch.h"

namespace {

namespace arch = attile::arch;
namespace tile = attile::tile;

using Halves = example::DeviceArray<__half>;
using Reports = std::vector<sim::Report>;
using Words = std::vector<std::string>;

/// What a kernel is reported for under many orders of its threads: the first report, if any.
template <class... Params, class... Given>
Reports cluster_reports_of(unsigned cluster, unsigned blocks, unsigned threads,
                           std::size_t shared_bytes, void (*kernel)(Params...),
                           const Given&... given) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    sim::set_seed(seed);
    REQUIRE(arch::launch_clusters<Params...>(kernel, cluster, blocks, threads, shared_bytes,
                                             nullptr, given...) == cudaSuccess);
    const bool failed = cudaDeviceSynchronize() != cudaSuccess;
    const auto reports = sim::take_reports();
    CHECK(failed == !reports.empty());
    if (failed) return reports;
  }
  return {};
}
template <class... Params, class... Given>
Reports reports_of(unsigned threads, std::size_t shared_bytes, void (*kernel)(Params...),
                   const Given&... given) {
  return cluster_reports_of(1, 2, threads, shared_bytes, kernel, given...);
}

/// One report, of one of these kinds, with all of these words.
void check_report(const Reports& all, const Words& kinds, const Words& words = {}) {
  REQUIRE(all.size() == 1);
  CAPTURE(all.front().kind, all.front().text);
  CHECK(std::find(kinds.begin(), kinds.end(), all.front().kind) != kinds.end());
  for (const std::string& word : words) {
    CHECK(all.front().text.find(word) != std::string::npos);
  }
}

// ---- a product of matrices as a Hopper kernel makes it ------------------------------------------

/// What is wrong with it.
enum class Bug {
  kNone,
  // Barriers.
  kNoPublication,
  kNoBarrierBehindInit,
  kTwoInits,
  kTwoArrivals,
  kTooManyBytes,
  kBytesNotAnnounced,
  kMoreBytesAnnounced,
  kBarrierRead,
  // Copies to shared memory.
  kNoFullWait,
  kWrongParity,
  kNoEmptyWait,
  kReleasedTooEarly,
  kOneReleases,
  kMisaligned,
  kBetweenVectors,
  kSourceChanges,
  kSourceJustWritten,
  kNobodyWaits,
  // Products.
  kOneRegisterFence,
  kNoRegisterFence,
  kSumsTouched,
  kSumsRead,
  kSumsWritten,
  kNoCommit,
  kNoProductWait,
  kOtherOperand,
  kOneWarpStaysAway,
  kOperandBetweenRows,
  // Copies from shared memory.
  kNoProxyFence,
  kLateProxyFence,
  kSendersProxyFence,  // is none
  kSenderFencesEarly,
  kNoStoreBarrier,
  kNoReadWait,
  kNoStoreCommit,
  kOverwritten,
  kStoredBetweenVectors,
  kStoredBefore,
};

constexpr int kSize = 64, kSteps = 4, kStages = 2;
constexpr int kDepth = kSize * kSteps;
using Tile = attile::PanelLayout<kSize, kSize>;

struct Shared {
  alignas(1024) unsigned char a[kStages][Tile::kBytes], b[kStages][Tile::kBytes];
  alignas(1024) unsigned char c[Tile::kBytes];
  arch::Mbarrier full[kStages], empty[kStages];
};

/// One thread fetches the tiles.
template <Bug kBug>
void produce(Shared& shared, const arch::TensorMap& a, const arch::TensorMap& b, __half* source) {
  const bool writes_source = arch::block_index() == 0;
  if (kBug == Bug::kSourceJustWritten && writes_source) *source = 1.0f;
  const int shift = kBug == Bug::kMisaligned ? 512 : 0;
  for (int step = 0; step < kSteps; ++step) {
    const int stage = step % kStages;
    arch::Mbarrier* const full = &shared.full[stage];
    if (kBug != Bug::kNoEmptyWait && step >= kStages) {
      arch::mbarrier_wait(&shared.empty[stage], step / kStages % 2 ^ 1);
    }
    if (kBug == Bug::kBytesNotAnnounced) {
      arch::mbarrier_arrive(full);
    } else {
      const int bytes = kBug == Bug::kTooManyBytes ? 1 << 20 : 2 * Tile::kBytes;
      arch::mbarrier_arrive_expect(full, bytes + (kBug == Bug::kMoreBytesAnnounced ? 16 : 0));
    }
    if (kBug == Bug::kTwoArrivals) arch::mbarrier_arrive(full);
    const int column = step * kSize + (kBug == Bug::kBetweenVectors ? 3 : 0);
    arch::bulk_load(arch::shared_address(shared.a[stage] + shift), a, {column, 0, 0, 0, 0}, full);
    arch::bulk_load(arch::shared_address(shared.b[stage] + shift), b,
                    {0, step * kSize, arch::block_index(), 0, 0}, full);
    if (kBug == Bug::kSourceChanges && step == 0 && writes_source) *source = 9.0f;
  }
  if (kBug == Bug::kNobodyWaits) {
    arch::mbarrier_wait(&shared.empty[0], kSteps / kStages % 2 ^ 1);
    arch::bulk_load(arch::shared_address(shared.a[0]), a, {}, &shared.full[0]);
  }
}

template <Bug kBug>
void multiply_tiles(const Shared& shared, int stage, float (&sums)[2][kSize / 4], bool first) {
  const int warp = arch::thread_index() / 32 % 4;
  const int shift = kBug == Bug::kOperandBetweenRows ? 128 : 0;
  const arch::WgmmaOperand a(arch::shared_address(shared.a[stage]), 128, Tile::kPanelBytes);
  const arch::WgmmaOperand b(arch::shared_address(shared.b[stage]), 128, Tile::kPanelBytes);
  if (kBug != Bug::kNoRegisterFence && (kBug != Bug::kOneRegisterFence || first)) {
    arch::wgmma_fence();
  }
  if (kBug == Bug::kSumsTouched) sums[1][3] = 0.0f;
  if (kBug == Bug::kOneWarpStaysAway && warp == 3) return;
  for (int k = 0; k < kSize / 16; ++k) {
    const int column = kBug == Bug::kOtherOperand && warp == 2 ? 0 : k;
    arch::wgmma_m64k16<__half, kSize, true>(sums, a.at(column * 32 + shift), b.at(k * 16 * 128),
                                            !first || k > 0);
  }
}

template <Bug kBug>
void store_tile(Shared& shared, const arch::TensorMap& c, const float (&sums)[2][kSize / 4]) {
  const int thread = arch::thread_index() % 128, lane = thread % 32;
  const auto write = [&] {
    for (int i = 0; i < kSize / 4; ++i) {
      const int row = thread / 32 * 16 + lane / 4 + i % 2 * 8;
      const float* const pair = sums[i % 2] + i / 2 * 2;
      auto* const unit = reinterpret_cast<std::uint32_t*>(shared.c + Tile::offset(row, i / 2));
      unit[lane % 4] = attile::word_of(attile::from_floats<__half>(pair[0], pair[1]));
    }
  };
  write();
  constexpr bool kLate = kBug == Bug::kLateProxyFence || kBug == Bug::kSendersProxyFence;
  const bool fences = kBug != Bug::kSenderFencesEarly || thread == 0;
  if (kBug != Bug::kNoProxyFence && !kLate && fences) arch::fence_async_proxy();
  if (kBug != Bug::kNoStoreBarrier) arch::barrier(1, 128);
  if (kLate && (thread == 0) == (kBug == Bug::kSendersProxyFence)) arch::fence_async_proxy();
  if (thread == 0) {
    const int column = kBug == Bug::kStoredBetweenVectors ? 4 : kBug == Bug::kStoredBefore ? -8 : 0;
    arch::bulk_store(c, {column, 0, arch::block_index(), 0, 0}, arch::shared_address(shared.c));
    if (kBug != Bug::kNoStoreCommit) arch::bulk_commit();
    if (kBug != Bug::kNoReadWait && kBug != Bug::kOverwritten) arch::bulk_wait_read<0>();
  }
  if (kBug == Bug::kOverwritten) {
    arch::barrier(1, 128);
    write();
  }
}

/// A warpgroup multiplies them.
template <Bug kBug>
void consume(Shared& shared, const arch::TensorMap& c) {
  float sums[2][kSize / 4];
  for (int step = 0; step < kSteps; ++step) {
    const int stage = step % kStages;
    arch::Mbarrier* const empty = &shared.empty[stage];
    const int parity = kBug == Bug::kWrongParity ? 1 : 0;
    if (kBug != Bug::kNoFullWait) {
      arch::mbarrier_wait(&shared.full[stage], step / kStages % 2 ^ parity);
    }
    if (kBug == Bug::kBarrierRead && shared.full[stage].state == 0) return;
    multiply_tiles<kBug>(shared, stage, sums, step == 0);
    if (kBug != Bug::kNoCommit) arch::wgmma_commit();
    if (kBug == Bug::kReleasedTooEarly) arch::mbarrier_arrive(empty);
    if (kBug == Bug::kSumsWritten) sums[0][1] = 0.0f;
    if (kBug == Bug::kSumsRead && sums[0][0] == 77.0f) return;
    if (kBug != Bug::kNoProductWait) arch::wgmma_wait<0>();
    // One thread knows that the warpgroup's products are over.
    if (kBug == Bug::kOneReleases && arch::thread_index() != 200) continue;
    if (kBug != Bug::kReleasedTooEarly) arch::mbarrier_arrive(empty);
  }
  store_tile<kBug>(shared, c, sums);
}

/// c (2, 64, 64) = a (64, 256) b (2, 256, 64), a block for each, of two warpgroups.
template <Bug kBug>
void multiply(const arch::TensorMap a, const arch::TensorMap b, const arch::TensorMap c,
              __half* source) {
  Shared& shared = *reinterpret_cast<Shared*>(arch::dynamic_shared());
  if (arch::thread_index() == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      arch::mbarrier_init(&shared.full[stage], 1);
      arch::mbarrier_init(&shared.empty[stage], kBug == Bug::kOneReleases ? 1 : 128);
    }
    if (kBug == Bug::kTwoInits) arch::mbarrier_init(&shared.full[1], 1);
    if (kBug != Bug::kNoPublication) arch::mbarrier_publish();
  }
  if (kBug != Bug::kNoBarrierBehindInit) arch::barrier();
  if (arch::thread_index() >= 128) return consume<kBug>(shared, c);
  if (arch::thread_index() == 0) produce<kBug>(shared, a, b, source);
}

/// The map of a tensor (count, rows, cols), in tiles.
arch::TensorMap map_of(const Halves& data, int rows, int cols, int count) {
  arch::TensorMap map;
  const std::int64_t row_bytes = 2 * cols;
  const arch::BoxedTensor tensor{data.get(),
                                 {cols, rows, count, 1, 1},
                                 {2, row_bytes, rows * row_bytes, 0, 0},
                                 {kSize, kSize, 1, 1, 1}};
  REQUIRE(arch::make_map(map, tensor) == cudaSuccess);
  return map;
}

/// Small whole numbers.
std::vector<__half> numbers(std::size_t count, int factor) {
  std::vector<__half> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = __float2half(static_cast<float>(static_cast<int>(i) * factor % 7 - 3));
  }
  return x;
}

template <Bug kBug>
Reports multiply_reports() {
  const std::vector<__half> a = numbers(kSize * kDepth, 37), b = numbers(2 * kDepth * kSize, 53);
  const Halves a_dev(a), b_dev(b), c_dev(std::vector<__half>(2 * kSize * kSize));
  const auto found =
      reports_of(256, sizeof(Shared), multiply<kBug>, map_of(a_dev, kSize, kDepth, 1),
                 map_of(b_dev, kDepth, kSize, 2), map_of(c_dev, kSize, kSize, 2), b_dev.get());
  if (!found.empty()) return found;
  CHECK(sim::traffic(c_dev.get()).written == 10 * 2 * Tile::kBytes);
  const std::vector<__half> c = c_dev.download();
  for (int i = 0; i < 2 * kSize * kSize; ++i) {
    const __half* const row = a.data() + i / kSize % kSize * kDepth;
    const __half* const col = b.data() + i / (kSize * kSize) * kDepth * kSize + i % kSize;
    float sum = 0.0f;
    for (int k = 0; k < kDepth; ++k) sum += __half2float(row[k]) * __half2float(col[k * kSize]);
    if (__half2float(c[i]) != sum) FAIL("c[" << i << "] is " << __half2float(c[i]));
  }
  return found;
}

TEST_CASE("planted.hopper.none") {
  sim::reset_counters();
  CHECK(multiply_reports<Bug::kNone>().empty());
  CHECK(sim::counters().mma_flops == 10 * 2ull * 2 * kSize * kSize * kDepth);
  CHECK(multiply_reports<Bug::kOneReleases>().empty());
  CHECK(multiply_reports<Bug::kOneRegisterFence>().empty());
}

TEST_CASE("planted.hopper.mbarrier") {
  check_report(multiply_reports<Bug::kNoPublication>(), {"mbarrier"},
               {"begins a copy (planted_hopper.cpp:", "has not published"});
  check_report(multiply_reports<Bug::kNoBarrierBehindInit>(), {"mbarrier"}, {"nitialis"});
  check_report(multiply_reports<Bug::kTwoInits>(), {"mbarrier"}, {"for the second time"});
  check_report(multiply_reports<Bug::kTwoArrivals>(), {"mbarrier"},
               {"thread 0 of block", "planted_hopper.cpp:", "all its 1 have come"});
  check_report(multiply_reports<Bug::kTooManyBytes>(), {"mbarrier"}, {"up to 2^20 - 1 bytes"});
  check_report(
      multiply_reports<Bug::kMoreBytesAnnounced>(), {"deadlock"},
      {"the end of phase 0 of the mbarrier at shared memory + 0xa000", "0 arrivals and 16 bytes"});
  check_report(multiply_reports<Bug::kBytesNotAnnounced>(),
               {"in flight", "uninitialised", "race", "deadlock"});
  check_report(multiply_reports<Bug::kBarrierRead>(), {"mbarrier"},
               {"reads 8 bytes of shared memory + 0xa00", "where an mbarrier lies"});
}

TEST_CASE("planted.hopper.copies_to_shared_memory") {
  const Words unordered{"race", "in flight", "uninitialised"};
  check_report(multiply_reports<Bug::kNoFullWait>(), unordered, {"planted_hopper.cpp:"});
  check_report(multiply_reports<Bug::kWrongParity>(),
               {"race", "in flight", "uninitialised", "deadlock"}, {"planted_hopper.cpp:"});
  check_report(multiply_reports<Bug::kNoEmptyWait>(), {"race", "in flight", "mbarrier"},
               {"thread 0 of block", "shared memory", "planted_hopper.cpp:"});
  check_report(multiply_reports<Bug::kReleasedTooEarly>(), {"race"},
               {"the copy of thread 0 of block", "a product of warpgroup 1 of block",
                "has read (planted_hopper.cpp:"});
  check_report(multiply_reports<Bug::kMisaligned>(), {"misaligned"},
               {"shared memory + 0x200", "128 bytes", "multiples of 1024"});
  check_report(multiply_reports<Bug::kBetweenVectors>(), {"misaligned"},
               {"brings to shared memory + 0x0", "at byte 6 of", "no multiple of 16"});
  check_report(multiply_reports<Bug::kSourceChanges>(), {"in flight"}, {"its source has changed"});
  check_report(multiply_reports<Bug::kSourceJustWritten>(), {"proxy"},
               {"thread 0 of block 0 reads 128 bytes of device memory"});
  check_report(multiply_reports<Bug::kNobodyWaits>(), {"in flight"}, {"is still on its way"});
}

/// Each of the first 32 threads copies 16 bytes of each of four tiles to one stage; the other 32
/// read a neighbour's.
template <Bug kBug>
void copy_behind_a_barrier(float* out, const float* in) {
  auto* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  auto* const full = reinterpret_cast<arch::Mbarrier*>(arch::dynamic_shared() + 512);
  auto* const empty = full + 1;
  const int lane = arch::thread_index() % 32;
  if (arch::thread_index() == 0) {
    arch::mbarrier_init(full, 32);
    arch::mbarrier_init(empty, 32);
  }
  arch::barrier();
  float sum = 0.0f;
  for (int step = 0; step < 4; ++step) {
    if (arch::thread_index() < 32) {
      if (kBug != Bug::kNoEmptyWait) arch::mbarrier_wait(empty, step % 2 ^ 1);
      arch::async_copy_part_of_16(arch::shared_address(shared + 4 * lane), in + 4 * lane, 8);
      if (kBug == Bug::kReleasedTooEarly) {
        arch::mbarrier_arrive(full);
      } else {
        arch::mbarrier_arrive_behind_copies(full);
      }
    } else {
      if (kBug != Bug::kNoFullWait) arch::mbarrier_wait(full, step % 2);
      sum += arch::load<4>(shared + 4 * (lane ^ 1))[1] + arch::load<4>(shared + 4 * (lane ^ 1))[3];
      arch::mbarrier_arrive(empty);
    }
  }
  if (arch::thread_index() >= 32) out[arch::block_index() * 32 + lane] = sum;
}

TEST_CASE("planted.hopper.copies_by_threads") {
  const example::DeviceArray<float> in(std::vector<float>(128, 1.0f));
  const example::DeviceArray<float> out(std::vector<float>(64, 0.0f));
  const auto reports = [&](auto kernel) {
    return reports_of(64, 528, kernel, out.get(), static_cast<const float*>(in.get()));
  };
  CHECK(reports(copy_behind_a_barrier<Bug::kNone>).empty());
  CHECK(out.download()[40] == 4.0f);
  const Words unordered{"race", "in flight", "uninitialised"};
  check_report(reports(copy_behind_a_barrier<Bug::kReleasedTooEarly>), unordered);
  check_report(reports(copy_behind_a_barrier<Bug::kNoFullWait>), unordered);
  check_report(reports(copy_behind_a_barrier<Bug::kNoEmptyWait>),
               {"race", "in flight", "mbarrier", "uninitialised"});
}

TEST_CASE("planted.hopper.products") {
  check_report(multiply_reports<Bug::kNoRegisterFence>(), {"registers"},
               {"begins a product (planted_hopper.cpp:", "has made no wgmma_fence"});
  check_report(multiply_reports<Bug::kSumsTouched>(), {"registers"},
               {"since the last wgmma_fence"});
  check_report(multiply_reports<Bug::kSumsRead>(), {"in flight"}, {"reads a sum (planted_hopper"});
  check_report(multiply_reports<Bug::kSumsWritten>(), {"in flight"}, {"writes a sum"});
  check_report(multiply_reports<Bug::kNoCommit>(), {"in flight", "race"});
  check_report(multiply_reports<Bug::kNoProductWait>(), {"in flight", "race"});
  check_report(multiply_reports<Bug::kOtherOperand>(), {"divergence"}, {"with other operands"});
  check_report(multiply_reports<Bug::kOneWarpStaysAway>(), {"deadlock"},
               {"which not all have begun, at planted_hopper.cpp:"});
  check_report(multiply_reports<Bug::kOperandBetweenRows>(), {"misaligned"}, {"left operand"});
}

TEST_CASE("planted.hopper.copies_from_shared_memory") {
  const Words missing{"the store of thread 128 of block", "no fence_async_proxy of that thread"};
  check_report(multiply_reports<Bug::kNoProxyFence>(), {"proxy"}, missing);
  check_report(multiply_reports<Bug::kLateProxyFence>(), {"proxy"}, missing);
  check_report(multiply_reports<Bug::kSenderFencesEarly>(), {"proxy"},
               {"no fence_async_proxy of that thread"});
  CHECK(multiply_reports<Bug::kSendersProxyFence>().empty());
  check_report(multiply_reports<Bug::kNoStoreBarrier>(), {"race", "uninitialised"},
               {"the store of thread 128"});
  check_report(multiply_reports<Bug::kNoReadWait>(), {"in flight"},
               {"thread 128 of block", "ends, and its store (planted_hopper.cpp:"});
  check_report(multiply_reports<Bug::kNoStoreCommit>(), {"in flight"}, {"ends, and its store"});
  check_report(multiply_reports<Bug::kOverwritten>(), {"race", "in flight"}, {"thread 1", "store"});
  check_report(multiply_reports<Bug::kStoredBetweenVectors>(), {"misaligned"},
               {"stores from shared memory", "at byte 8 of", "no multiple of 16"});
  check_report(multiply_reports<Bug::kStoredBefore>(), {"out of bounds"},
               {"stores from shared memory", "begins before the tensor"});
}

// ---- barriers -----------------------------------------------------------------------------------

/// The first thread goes through `kPhases` phases, and another one waits for the first of them.
template <int kPhases>
void phases(int parity) {
  auto* const barrier = reinterpret_cast<arch::Mbarrier*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  if (i == 0) arch::mbarrier_init(barrier, 1);
  arch::barrier();
  for (int phase = 0; i == 0 && phase < kPhases; ++phase) arch::mbarrier_arrive(barrier);
  if (i == 40) arch::mbarrier_wait(barrier, parity);
}
void no_barrier() {
  arch::mbarrier_wait(reinterpret_cast<arch::Mbarrier*>(arch::dynamic_shared()), 0);
}

TEST_CASE("planted.hopper.phases") {
  CHECK(reports_of(64, 64, phases<1>, 0).empty());
  CHECK(reports_of(64, 64, phases<0>, 1).empty());  // the phase before the first is over
  check_report(reports_of(64, 64, phases<0>, 0), {"deadlock"},
               {"the end of phase 0", "1 arrivals and 0 bytes have yet to come"});
  check_report(reports_of(64, 64, phases<2>, 0), {"mbarrier"},
               {"thread 40 of block", "phase 0", "which is in phase 2 already"});
  check_report(reports_of(64, 64, no_barrier), {"mbarrier"}, {"which nobody has initialised"});
}

using OneTile = tile::Pipeline<tile::PanelTile<kSize, kSize, __half>, 1>;

/// One warp waits for a tile that nobody loads.
void nobody_loads() {
  tile::SharedCarver carver{arch::dynamic_shared()};
  const auto pipeline = carver.take<OneTile>();
  tile::init_pipelines(1, pipeline);
  if (arch::thread_index() < 32) static_cast<void>(pipeline.consumer_wait({}));
}

TEST_CASE("planted.hopper.a_deadlock_in_a_piece_tells_who_calls_it") {
  sim::set_residency(2);
  check_report(reports_of(64, tile::shared_bytes<OneTile>, nobody_loads), {"deadlock"},
               {"block 0, and block 1 alike:", " 32 threads (0 first) wait for the end of phase 0",
                "pipeline.cuh:", ", from planted_hopper.cpp:"});
  sim::set_residency(0);
}

enum class Order { kAllWait, kOneWaits, kOneWaitsAndMeets };

/// What a copy has brought is read by all threads.
template <Order kOrder>
void read_box(const arch::TensorMap map, float* out) {
  unsigned char* const tile = arch::dynamic_shared();
  auto* const barrier = reinterpret_cast<arch::Mbarrier*>(tile + Tile::kBytes);
  const int i = arch::thread_index();
  if (i == 0) {
    arch::mbarrier_init(barrier, 1);
    arch::mbarrier_publish();
    arch::mbarrier_arrive_expect(barrier, Tile::kBytes);
    arch::bulk_load(arch::shared_address(tile), map, {}, barrier);
  }
  arch::barrier();
  if (kOrder == Order::kAllWait || i == 0) arch::mbarrier_wait(barrier, 0);
  if (kOrder == Order::kOneWaitsAndMeets) arch::barrier();
  const __half* const row = reinterpret_cast<const __half*>(tile + Tile::offset(i, 0));
  out[arch::block_index() * kSize + i] = __half2float(row[1]);
}

TEST_CASE("planted.hopper.a_box_is_there_for_those_who_wait") {
  const std::vector<__half> x = numbers(kSize * kSize, 5);
  const Halves x_dev(x), small(numbers(kSize * (kSize - 1), 5));
  const example::DeviceArray<float> out(std::vector<float>(2 * kSize));
  const auto map = map_of(x_dev, kSize, kSize, 1);
  const std::size_t bytes = Tile::kBytes + 64;
  const sim::Traffic before = sim::traffic(x_dev.get());
  CHECK(reports_of(64, bytes, read_box<Order::kAllWait>, map, out.get()).empty());
  CHECK(out.download()[kSize + 9] == __half2float(x[9 * kSize + 1]));
  CHECK(sim::traffic(x_dev.get()).read - before.read == 10 * 2 * Tile::kBytes);
  CHECK(reports_of(64, bytes, read_box<Order::kOneWaitsAndMeets>, map, out.get()).empty());
  check_report(reports_of(64, bytes, read_box<Order::kOneWaits>, map, out.get()),
               {"race", "in flight"}, {"that the mbarrier at shared memory + 0x2000"});
  check_report(
      reports_of(64, bytes, read_box<Order::kAllWait>, map_of(small, kSize, kSize, 1), out.get()),
      {"bounds"}, {"thread 0", "reads 128 bytes of device memory"});
  check_report(reports_of(64, Tile::kBytes - 64, read_box<Order::kAllWait>, map, out.get()),
               {"bounds"}, {"thread 0"});
}

// ---- operands that threads have written ---------------------------------------------------------

enum class Flaw {
  kNone,
  kNoProxyFence,
  kWarpsRight,
  kNoWarpBarrier,
  kOperandWritten,
  kOperandRead,
  kOperandTouched,
  kRightOverwritten,
  kReadersProxyFence,  // is none
  kOneReaderFences,
  kOneWarpFences
};

/// Each warp writes its rows of A (64, 16), or has them in registers, and all write B (16, 64).
template <Flaw kFlaw, bool kRegisters>
void written_operands(float* out) {
  using Left = attile::PanelLayout<64, 16>;
  using Right = attile::PanelLayout<64, 16>;
  unsigned char* const a_smem = arch::dynamic_shared();
  unsigned char* const b_smem = a_smem + Left::kBytes;
  const int i = arch::thread_index(), warp = i / 32, lane = i % 32;
  const std::uint32_t ones = attile::word_of(attile::from_floats<__half>(1.0f, 1.0f));
  const auto write = [&](unsigned char* unit) {
    for (int word = 0; word < 4; ++word) reinterpret_cast<std::uint32_t*>(unit)[word] = ones;
  };
  write(b_smem + Right::offset(i / 2, i % 2));
  constexpr bool kReaders = kFlaw == Flaw::kReadersProxyFence || kFlaw == Flaw::kOneReaderFences ||
                            kFlaw == Flaw::kOneWarpFences;
  if (kFlaw != Flaw::kNoProxyFence && !kReaders) arch::fence_async_proxy();
  if (kFlaw != Flaw::kWarpsRight) arch::barrier();
  write(a_smem + Left::offset(warp * 16 + lane / 2, lane % 2));
  if (kFlaw != Flaw::kNoProxyFence && !kReaders) arch::fence_async_proxy();
  if (kReaders) {
    arch::barrier();
    const bool fences = (kFlaw != Flaw::kOneReaderFences || lane == 0) &&
                        (kFlaw != Flaw::kOneWarpFences || warp == 0);
    if (fences) arch::fence_async_proxy();
  }
  if (kFlaw != Flaw::kNoWarpBarrier) arch::warp_barrier();

  const arch::WgmmaOperand a(arch::shared_address(a_smem), 32, Left::kPanelBytes);
  const arch::WgmmaOperand b(arch::shared_address(b_smem), 32, Right::kPanelBytes);
  float sums[2][16];
  std::uint32_t words[4] = {ones, ones, ones, ones};
  arch::wgmma_fence();
  if (kFlaw == Flaw::kOperandTouched) words[2] = ones;
  if constexpr (kRegisters) {
    arch::wgmma_m64k16<__half, 64, false>(sums, words, b.at(0), false);
  } else {
    arch::wgmma_m64k16<__half, 64, false>(sums, a.at(0), b.at(0), false);
  }
  arch::wgmma_commit();
  if (kFlaw == Flaw::kOperandWritten) words[0] = 0;
  if (kFlaw == Flaw::kOperandRead) out[0] = static_cast<float>(words[0]);
  if (kFlaw == Flaw::kRightOverwritten) write(b_smem + Right::offset(i / 2, i % 2));
  arch::wgmma_wait<0>();
  words[1] = 0;
  out[arch::block_index() * 128 + i] = sums[1][7] + static_cast<float>(words[1]);
}

template <Flaw kFlaw, bool kRegisters>
Reports operand_reports() {
  const example::DeviceArray<float> out(std::vector<float>(256));
  const auto found = reports_of(128, 4096, written_operands<kFlaw, kRegisters>, out.get());
  if (found.empty()) CHECK(out.download() == std::vector<float>(256, 16.0f));
  return found;
}

TEST_CASE("planted.hopper.operands_that_threads_have_written") {
  CHECK(operand_reports<Flaw::kNone, false>().empty());
  CHECK(operand_reports<Flaw::kNone, true>().empty());
  CHECK(operand_reports<Flaw::kNoWarpBarrier, true>().empty());
  CHECK(operand_reports<Flaw::kReadersProxyFence, false>().empty());
  check_report(operand_reports<Flaw::kOneReaderFences, false>(), {"proxy"}, {"the product of"});
  check_report(operand_reports<Flaw::kOneWarpFences, false>(), {"proxy"}, {"the product of"});
  check_report(operand_reports<Flaw::kNoProxyFence, false>(), {"proxy"},
               {"the product of thread", "reads 16 bytes of shared memory + 0x"});
  check_report(operand_reports<Flaw::kNoWarpBarrier, false>(), {"race"},
               {"the product of thread", "reads 16 bytes of shared memory + 0x"});
  check_report(operand_reports<Flaw::kWarpsRight, false>(), {"race"},
               {"the product of thread", "reads 16 bytes of shared memory + 0x"});
  check_report(operand_reports<Flaw::kRightOverwritten, true>(), {"race"}, {"product of"});
  check_report(operand_reports<Flaw::kOperandWritten, true>(), {"in flight"},
               {"writes an operand (planted_hopper.cpp:"});
  check_report(operand_reports<Flaw::kOperandRead, true>(), {"in flight"}, {"reads an operand"});
  check_report(operand_reports<Flaw::kOperandTouched, true>(), {"registers"},
               {"with operands that were touched since the last wgmma_fence"});
}

// ---- registers ----------------------------------------------------------------------------------

/// Three warpgroups of 168 registers a thread: one gives, the others take.
template <int kGive, int kTake, bool kWhole = true>
void registers() {
  if (arch::thread_index() < 128) {
    if (kWhole || arch::thread_index() >= 32) arch::reg_dealloc<kGive>();
  } else {
    arch::reg_alloc<kTake>();
  }
}

TEST_CASE("planted.hopper.registers") {
  CHECK(reports_of(384, 0, registers<24, 240>).empty());
  check_report(reports_of(384, 0, registers<24, 248>), {"deadlock"},
               {"wait for more registers than the block has left, at planted_hopper.cpp:"});
  check_report(reports_of(384, 0, registers<20, 168>), {"registers"}, {"a multiple of 8 from 24"});
  check_report(reports_of(384, 0, registers<176, 168>), {"registers"}, {"dec", "and has 168"});
  check_report(reports_of(384, 0, registers<24, 160>), {"registers"}, {"inc", "and has 168"});
  check_report(reports_of(384, 0, registers<24, 168, false>), {"divergence"},
               {"thread 0 of block", "has not come to the setmaxnreg"});
}

// ---- clusters -----------------------------------------------------------------------------------

/// What is wrong with two blocks that bring each other's tiles.
enum class Slip {
  kNone,
  kClusterBarrierAtEnd,
  // Barriers of another block.
  kBlockBarrierBehindInit,
  kNoInit,
  kNoPublication,
  kNoSuchRank,
  kHalfAnnounced,
  // Stages that are filled again.
  kOwnReadersOnly,
  kOneWaitsForNobody,
  kReleasedBeforeRead,
  kOneDoesNotPass,
  // Ends.
  kNoDrain,
  kOneEndsAtOnce,
  kNobodyWaits,
  kNoSuchBlock,
  // The cluster's barrier.
  kArrivesTwice,
  kNoArrival,
  kOneStaysAway,
};

constexpr int kTiles = 7, kCluster = 2;

struct ClusterShared {
  alignas(1024) unsigned char tile[kStages][kCluster][Tile::kBytes];
  arch::Mbarrier full[kStages], empty[kStages];
};

/// Brings the block's half of each tile's columns to both blocks.
template <Slip kSlip>
void produce_for_cluster(ClusterShared& shared, const arch::TensorMap& map) {
  const int rank = arch::cluster_rank(), cluster = arch::block_index() / kCluster;
  const bool waits = kSlip != Slip::kOneWaitsForNobody || rank == 0;
  for (int step = 0; step < kTiles + kStages; ++step) {
    const int stage = step % kStages;
    arch::Mbarrier* const full = &shared.full[stage];
    if (step >= kStages && kSlip == Slip::kNoInit) return;
    if (waits && step >= kStages && (step < kTiles || kSlip != Slip::kNoDrain)) {
      arch::mbarrier_wait(&shared.empty[stage], step / kStages % 2 ^ 1);
    }
    if (step >= kTiles) continue;
    const int parts = kSlip == Slip::kHalfAnnounced ? 1 : kCluster;
    arch::mbarrier_arrive_expect(full, parts * Tile::kBytes);
    arch::bulk_load_multicast(arch::shared_address(shared.tile[stage][rank]), map,
                              {rank * kSize, step * kSize, cluster, 0, 0}, full,
                              kSlip == Slip::kNoSuchBlock ? 7 : 3);
  }
}

/// A warp reads them.
template <Slip kSlip>
void consume_of_cluster(ClusterShared& shared, float* out) {
  const int rank = arch::cluster_rank(), lane = arch::thread_index();
  float sum = 0.0f;
  for (int step = 0; step < kTiles; ++step) {
    const int stage = step % kStages;
    const auto release = [&] {
      arch::warp_barrier();
      if (lane < kCluster && (kSlip != Slip::kOwnReadersOnly || lane == rank)) {
        arch::mbarrier_arrive(&shared.empty[stage], kSlip == Slip::kNoSuchRank ? lane + 1 : lane);
      }
    };
    if (kSlip == Slip::kOneDoesNotPass && rank == 1 && step == kTiles - kStages) return;
    arch::mbarrier_wait(&shared.full[stage], step / kStages % 2);
    if (kSlip == Slip::kReleasedBeforeRead && rank == 1) release();
    for (int row = lane; row < kSize; row += 32) {
      for (const auto& part : shared.tile[stage]) {
        sum += __half2float(*reinterpret_cast<const __half*>(part + Tile::offset(row, rank)));
      }
    }
    for (int i = 0; i < (step + rank) % 3; ++i) arch::warp_barrier();  // one is slower
    if (kSlip != Slip::kReleasedBeforeRead || rank == 0) release();
  }
  out[arch::block_index() * 32 + lane] = sum;
}

template <Slip kSlip>
void share_tiles(const arch::TensorMap map, float* out) {
  ClusterShared& shared = *reinterpret_cast<ClusterShared*>(arch::dynamic_shared());
  const int i = arch::thread_index(), rank = arch::cluster_rank();
  if (kSlip == Slip::kOneEndsAtOnce && rank == 1) return;
  if (i == 0) {
    constexpr int kReaders = kSlip == Slip::kOwnReadersOnly ? 1 : kCluster;
    for (int stage = 0; stage < kStages; ++stage) {
      arch::mbarrier_init(&shared.full[stage], 1);
      if (kSlip == Slip::kNoInit && rank == 1) continue;
      arch::mbarrier_init(&shared.empty[stage], kReaders);
    }
    if (kSlip != Slip::kNoPublication) arch::mbarrier_publish();
  }
  if (kSlip == Slip::kArrivesTwice && i == 5) arch::cluster_arrive();
  if (kSlip == Slip::kBlockBarrierBehindInit || kSlip == Slip::kOneEndsAtOnce) {
    arch::barrier();
  } else if (kSlip == Slip::kNoArrival && i == 5) {
    arch::cluster_wait();
  } else if (kSlip == Slip::kOneStaysAway && i == 5) {
    arch::warp_barrier();  // for lanes that wait for it elsewhere
  } else {
    arch::cluster_barrier();
  }
  if (i < 32) consume_of_cluster<kSlip>(shared, out);
  if (i == 32) {
    constexpr bool kDrains = kSlip != Slip::kClusterBarrierAtEnd;
    produce_for_cluster<kDrains ? kSlip : Slip::kNoDrain>(shared, map);
    if (kSlip == Slip::kNobodyWaits && rank == 0) {
      arch::bulk_load_multicast(arch::shared_address(shared.tile[0][0]), map, {}, &shared.full[0],
                                2);
    }
  }
  if (kSlip == Slip::kClusterBarrierAtEnd) arch::cluster_barrier();
}

template <Slip kSlip>
Reports cluster_reports() {
  constexpr int kRows = kTiles * kSize, kCols = kCluster * kSize;
  const std::vector<__half> x = numbers(2 * kRows * kCols, 37);
  const Halves x_dev(x);
  const example::DeviceArray<float> out(std::vector<float>(4 * 32));
  const auto found = cluster_reports_of(kCluster, 4, 64, sizeof(ClusterShared), share_tiles<kSlip>,
                                        map_of(x_dev, kRows, kCols, 2), out.get());
  if (!found.empty()) return found;
  CHECK(sim::traffic(x_dev.get()).read == 10 * x.size() * sizeof(__half));  // once for a cluster
  const std::vector<float> sums = out.download();
  for (int i = 0; i < 4 * 32; ++i) {
    float sum = 0.0f;
    for (int row = i % 32; row < kRows; row += 32) {
      for (int part = 0; part < kCluster; ++part) {
        const int col = part * kSize + i / 32 % kCluster * 8;
        sum += __half2float(x[(i / 64 * kRows + row) * kCols + col]);
      }
    }
    if (sums[i] != sum) FAIL("out[" << i << "] is " << sums[i] << " and not " << sum);
  }
  return found;
}

TEST_CASE("planted.hopper.clusters") {
  CHECK(cluster_reports<Slip::kNone>().empty());
  CHECK(cluster_reports<Slip::kClusterBarrierAtEnd>().empty());
}

TEST_CASE("planted.hopper.barriers_of_another_block") {
  check_report(cluster_reports<Slip::kBlockBarrierBehindInit>(), {"mbarrier"}, {"nitialis"});
  check_report(cluster_reports<Slip::kNoInit>(), {"mbarrier"},
               {"arrives at the mbarrier", "which nobody has initialised"});
  check_report(cluster_reports<Slip::kNoPublication>(), {"mbarrier"}, {"has not published before"});
  check_report(cluster_reports<Slip::kNoSuchRank>(), {"cluster", "mbarrier"});
  check_report(cluster_reports<Slip::kHalfAnnounced>(),
               {"mbarrier", "in flight", "uninitialised", "deadlock"});
}

TEST_CASE("planted.hopper.stages_that_another_block_reads") {
  const Words who{"the copy of thread 32 of block", "planted_hopper.cpp:"};
  check_report(cluster_reports<Slip::kOwnReadersOnly>(), {"race", "in flight"}, who);
  check_report(cluster_reports<Slip::kOneWaitsForNobody>(), {"race", "in flight", "mbarrier"});
  check_report(cluster_reports<Slip::kReleasedBeforeRead>(), {"race", "in flight"});
  check_report(cluster_reports<Slip::kOneDoesNotPass>(), {"deadlock"}, {"1 arrivals and 0 bytes"});
}

TEST_CASE("planted.hopper.blocks_that_end_before_others_are_done") {
  check_report(cluster_reports<Slip::kNoDrain>(), {"cluster"}, {"planted_hopper.cpp:"});
  check_report(cluster_reports<Slip::kOneEndsAtOnce>(), {"cluster", "mbarrier"}, {"block 1"});
  check_report(cluster_reports<Slip::kNobodyWaits>(), {"cluster", "in flight"}, {"the copy of"});
  check_report(cluster_reports<Slip::kNoSuchBlock>(), {"cluster"},
               {"begins a copy to block 2 of its cluster", "which has 2"});
}

TEST_CASE("planted.hopper.barriers_of_a_cluster") {
  check_report(cluster_reports<Slip::kArrivesTwice>(), {"cluster"}, {"for the second time"});
  check_report(cluster_reports<Slip::kNoArrival>(), {"cluster"}, {"has not arrived there"});
  check_report(cluster_reports<Slip::kOneStaysAway>(), {"deadlock"},
               {"wait for the threads of its cluster at planted_hopper.cpp:"});
}

}  // namespace
