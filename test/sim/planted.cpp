// SPDX-License-Identifier: MIT
// One planted bug of each kind that the machine reports, and beside it the same kernel without.
#include <attile/arch/async_copy.cuh>
#include <attile/arch/atomic.cuh>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/matrix.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/tile_mma.cuh>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "../../examples/support.cuh"
#include "sim/machine.h"
#include "support/catch.h"

namespace {

namespace arch = attile::arch;
namespace tile = attile::tile;

constexpr int kThreads = 64;

using Numbers = example::DeviceArray<float>;
using Flag = example::DeviceArray<int>;

/// Device memory for a test, all of it written.
Numbers zeros(std::size_t count) { return Numbers(std::vector<float>(count)); }
Flag lowered() { return Flag(std::vector<int>(1)); }

/// Before each launch: a flag is lowered, other arguments stay as they are.
void lower(int* flag) { REQUIRE(cudaMemset(flag, 0, sizeof *flag) == cudaSuccess); }
template <class T>
void lower(const T&) {}

/// What a kernel is reported for under many orders of its threads: the first report, or "" for
/// none. `line`: where the report has to point to, by "planted.cpp:LINE".
template <class... Params, class... Given>
std::vector<sim::Report> reports_of(unsigned blocks, std::size_t shared_bytes,
                                    void (*kernel)(Params...), const Given&... given) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    sim::set_seed(seed);
    (lower(given), ...);
    REQUIRE(arch::launch(kernel, blocks, kThreads, shared_bytes, nullptr, given...) == cudaSuccess);
    const bool failed = cudaDeviceSynchronize() != cudaSuccess;
    const auto reports = sim::take_reports();
    CHECK(failed == !reports.empty());
    CHECK(cudaGetLastError() == cudaSuccess);
    if (failed) return reports;
  }
  return {};
}

#define CHECK_REPORT(reports, a_kind, words)                       \
  do {                                                             \
    const auto all = (reports);                                    \
    REQUIRE(all.size() == 1);                                      \
    CHECK(all.front().kind == (a_kind));                           \
    CAPTURE(all.front().text);                                     \
    for (const std::string word : words) {                         \
      CHECK(all.front().text.find(word) != all.front().text.npos); \
    }                                                              \
  } while (false)

using Words = std::vector<std::string>;

template <bool kBarrier>
void neighbours(float* out) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  shared[i] = 1.0f;
  if (kBarrier) arch::barrier();
  out[i] = shared[(i + 1) % kThreads];
}

TEST_CASE("planted.a_read_before_the_barrier_is_a_race_or_uninitialised") {
  const Numbers out = zeros(kThreads);
  CHECK(reports_of(1, 256, neighbours<true>, out.get()).empty());
  const auto found = reports_of(1, 256, neighbours<false>, out.get());
  REQUIRE(found.size() == 1);
  CHECK((found.front().kind == "race" || found.front().kind == "uninitialised"));
  CHECK(found.front().text.find("planted.cpp:") != std::string::npos);
}

template <bool kBarrier>
void overwrite(float* out) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  shared[i] = 1.0f;
  arch::barrier();
  out[i] = shared[(i + 1) % kThreads];
  if (kBarrier) arch::barrier();
  shared[i] = 2.0f;
}

TEST_CASE("planted.a_write_that_others_may_still_have_to_read_is_a_race") {
  const Numbers out = zeros(kThreads);
  CHECK(reports_of(1, 256, overwrite<true>, out.get()).empty());
  CHECK_REPORT(reports_of(1, 256, overwrite<false>, out.get()), "race",
               (Words{"of block 0", "shared memory", "planted.cpp:", "nothing orders"}));
}

/// A warp's barrier orders its own lanes, and nobody else.
template <int kDistance>
void within_a_warp(float* out) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  shared[i] = 1.0f;
  arch::barrier();
  shared[i] = 2.0f;
  arch::warp_barrier();
  out[i] = shared[i ^ kDistance];
}

TEST_CASE("planted.a_warps_barrier_is_none_for_another_warp") {
  const Numbers out = zeros(kThreads);
  CHECK(reports_of(1, 256, within_a_warp<31>, out.get()).empty());
  CHECK_REPORT(reports_of(1, 256, within_a_warp<32>, out.get()), "race", Words{"planted.cpp:"});
}

/// A shuffle orders no memory.
void after_a_shuffle(float* out) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  shared[i] = 1.0f;
  out[i] = arch::shuffle_xor(1.0f, 1) + shared[i ^ 1];
}

TEST_CASE("planted.a_shuffle_is_no_barrier") {
  const Numbers out = zeros(kThreads);
  CHECK_REPORT(reports_of(1, 256, after_a_shuffle, out.get()), "race", Words{"planted.cpp:"});
}

void unwritten_shared(float* out) {
  out[arch::thread_index()] = reinterpret_cast<float*>(arch::dynamic_shared())[3];
}
void unwritten_device(float* out, const float* in) {
  out[arch::thread_index()] = in[arch::thread_index()];
}

TEST_CASE("planted.uninitialised") {
  const Numbers out = zeros(kThreads);
  CHECK_REPORT(reports_of(1, 256, unwritten_shared, out.get()), "uninitialised",
               (Words{"reads 4 bytes", "shared memory + 0xc"}));
  void* fresh = nullptr;
  REQUIRE(cudaMalloc(&fresh, kThreads * sizeof(float)) == cudaSuccess);
  CHECK_REPORT(reports_of(1, 0, unwritten_device, out.get(), static_cast<const float*>(fresh)),
               "uninitialised", Words{"device memory"});
  CHECK(cudaFree(fresh) == cudaSuccess);
}

void write_at(float* out, int at) {
  if (arch::thread_index() == 7) out[at] = 1.0f;
}
void write_shared_at(int at) {
  if (arch::thread_index() == 7) reinterpret_cast<float*>(arch::dynamic_shared())[at] = 1.0f;
}

TEST_CASE("planted.bounds") {
  const Numbers out = zeros(kThreads);
  CHECK(reports_of(1, 0, write_at, out.get(), kThreads - 1).empty());
  CHECK_REPORT(reports_of(1, 0, write_at, out.get(), kThreads), "bounds",
               (Words{"thread 7 of block 0 writes 4 bytes", "in no allocation"}));
  CHECK_REPORT(reports_of(1, 0, write_at, out.get(), -1), "bounds", Words{"thread 7"});
  CHECK(reports_of(1, 256, write_shared_at, 63).empty());
  CHECK_REPORT(reports_of(1, 256, write_shared_at, 64), "bounds",
               (Words{"shared memory + 0x100", "asked for 256 bytes"}));
}

TEST_CASE("planted.freed_memory_is_out_of_bounds") {
  const Numbers out = zeros(kThreads);
  void* gone = nullptr;
  REQUIRE(cudaMalloc(&gone, kThreads * sizeof(float)) == cudaSuccess);
  REQUIRE(cudaFree(gone) == cudaSuccess);
  CHECK_REPORT(reports_of(1, 0, write_at, static_cast<float*>(gone), 0), "bounds",
               Words{"thread 7"});
}

void vector_at(float* out, int at) {
  if (arch::thread_index() != 7) return;
  arch::store(out + at, arch::load<4>(out));
}

TEST_CASE("planted.misaligned") {
  const Numbers out = zeros(kThreads);
  CHECK(reports_of(1, 0, vector_at, out.get(), 4).empty());
  CHECK_REPORT(reports_of(1, 0, vector_at, out.get(), 2), "misaligned", Words{"16 bytes"});
}

template <bool kDiverge>
void collectives(float* out) {
  float x = 1.0f;
  if (kDiverge && arch::thread_index() % 32 < 5) {
    x = arch::shuffle_xor(x, 1);
  } else {
    arch::warp_barrier();
  }
  out[arch::thread_index()] = x;
}

TEST_CASE("planted.divergence") {
  const Numbers out = zeros(kThreads);
  CHECK(reports_of(1, 0, collectives<false>, out.get()).empty());
  CHECK_REPORT(reports_of(1, 0, collectives<true>, out.get()), "divergence",
               (Words{"lanes of its warp wait at", "planted.cpp:"}));
}

void one_leaves(float* out) {
  if (arch::thread_index() == 3) return;
  arch::barrier();
  out[arch::thread_index()] = 1.0f;
}

TEST_CASE("planted.deadlock_at_a_barrier") {
  const Numbers out = zeros(kThreads);
  CHECK_REPORT(reports_of(1, 0, one_leaves, out.get()), "deadlock",
               (Words{"63 threads", "the barrier of the block at planted.cpp:", "1 have ended"}));
}

/// Block 0 waits for a value: of its own thread 40, or of a later block, which may not begin before
/// it ends.
template <int kWriter>
void wait_for_flag(float* out, int* flag) {
  if (arch::block_index() == 0 && arch::thread_index() == 3) {
    while (arch::load_acquire(flag) == 0) {
    }
  }
  if (arch::block_index() == kWriter && arch::thread_index() == 40) arch::store_release(flag, 1);
  out[arch::thread_index() + kThreads * arch::block_index()] = 1.0f;
}

TEST_CASE("planted.deadlock_of_one_that_polls") {
  const Numbers out = zeros(2 * kThreads);
  const Flag flag = lowered(), other = lowered();
  CHECK(reports_of(2, 0, wait_for_flag<0>, out.get(), flag.get()).empty());
  CHECK_REPORT(reports_of(2, 0, wait_for_flag<1>, out.get(), other.get()), "deadlock",
               (Words{"another value than 0, polled at planted.cpp:", "1 later blocks"}));
  sim::set_residency(2);
  CHECK(reports_of(2, 0, wait_for_flag<1>, out.get(), other.get()).empty());
  sim::set_residency(0);
}

/// Block 1 reads what block 0 wrote; in order only where it acquires what block 0 released.
template <bool kAcquire>
void hand_over(float* data, float* out, int* flag) {
  const int i = arch::thread_index();
  if (arch::block_index() == 0) {
    data[i] = 1.0f;
    arch::barrier();
    if (i == 0) arch::store_release(flag, 1);
  } else {
    if (kAcquire && i == 0) {
      while (arch::load_acquire(flag) != 1) {
      }
    }
    arch::barrier();
    out[i] = data[i];
  }
}

TEST_CASE("planted.blocks_that_share_memory_without_a_release") {
  const Numbers data = zeros(kThreads), out = zeros(kThreads);
  const Flag flag = lowered(), other = lowered();
  CHECK_REPORT(reports_of(2, 0, hand_over<false>, data.get(), out.get(), other.get()), "race",
               (Words{"of block 1 reads", "of block 0 has written"}));
  CHECK(reports_of(2, 0, hand_over<true>, data.get(), out.get(), flag.get()).empty());
}

/// Thread 0 hands what it wrote to thread 40, which acquires the flag or only meets it by chance.
template <bool kAcquire>
void hand_over_within(float* data, float* out, int* flag) {
  const int i = arch::thread_index();
  if (i == 0) {
    data[0] = 1.0f;
    arch::store_release(flag, 1);
    data[1] = 1.0f;
  } else if (i == 40) {
    while (arch::load_acquire(flag) != 1) {
    }
    out[0] = data[kAcquire ? 0 : 1];
  }
}

TEST_CASE("planted.a_release_orders_what_was_before_it_also_within_a_block") {
  const Numbers data = zeros(2), out = zeros(1);
  const Flag flag = lowered();
  CHECK(reports_of(1, 0, hand_over_within<true>, data.get(), out.get(), flag.get()).empty());
  CHECK_REPORT(reports_of(1, 0, hand_over_within<false>, data.get(), out.get(), flag.get()), "race",
               (Words{"of block 0", "planted.cpp:"}));
}

/// Only one thread of block 1 acquires; the others go on without a barrier.
template <bool kBarrier>
void acquired_by_one(float* data, float* out, int* flag) {
  const int i = arch::thread_index();
  if (arch::block_index() == 0) {
    data[i] = 1.0f;
    arch::barrier();
    if (i == 0) arch::store_release(flag, 1);
    return;
  }
  if (i == 0) {
    while (arch::load_acquire(flag) != 1) {
    }
  }
  if (kBarrier) {
    arch::barrier();
  } else {
    arch::warp_barrier();
  }
  out[i] = data[i];
}

TEST_CASE("planted.what_one_thread_acquires_the_others_get_by_a_barrier") {
  const Numbers data = zeros(kThreads), out = zeros(kThreads);
  const Flag flag = lowered();
  CHECK(reports_of(2, 0, acquired_by_one<true>, data.get(), out.get(), flag.get()).empty());
  CHECK_REPORT(reports_of(2, 0, acquired_by_one<false>, data.get(), out.get(), flag.get()), "race",
               (Words{"of block 1 reads", "of block 0 has written"}));
}

template <bool kAtomic>
void sum(float* out) {
  if (kAtomic) {
    arch::atomic_add(out, 1.0f);
  } else {
    *out += 1.0f;
  }
}

TEST_CASE("planted.a_sum_without_atomics") {
  const Numbers out = zeros(1);
  CHECK(reports_of(2, 0, sum<true>, out.get()).empty());
  CHECK_REPORT(reports_of(2, 0, sum<false>, out.get()), "race", Words{"of block 0"});
}

// ---- named barriers -----------------------------------------------------------------------------

constexpr int kFull = 1, kEmpty = 2;

/// Warp 0 fills a buffer of 32 numbers, warp 1 empties it, three times over.
template <bool kEmptyFirst>
void produce_and_consume(float* out) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int lane = arch::thread_index() % 32;
  float sum = 0.0f;
  for (int i = 0; i < 3; ++i) {
    if (arch::thread_index() < 32) {
      if (kEmptyFirst && i > 0) arch::barrier(kEmpty, 64);
      shared[lane] = static_cast<float>(i + 1);
      arch::barrier_arrive(kFull, 64);
    } else {
      arch::barrier(kFull, 64);
      sum += shared[31 - lane];
      if (i < 2) arch::barrier_arrive(kEmpty, 64);
    }
  }
  out[arch::thread_index()] = sum;
}

TEST_CASE("planted.a_buffer_refilled_before_it_is_empty") {
  const Numbers out = zeros(kThreads);
  CHECK(reports_of(1, 128, produce_and_consume<true>, out.get()).empty());
  CHECK(out.download()[63] == 6.0f);
  const auto found = reports_of(1, 128, produce_and_consume<false>, out.get());
  REQUIRE(found.size() == 1);
  CHECK((found.front().kind == "race" || found.front().kind == "barrier"));
}

void named(int id, int threads) { arch::barrier(id, threads); }
void one_votes() {
  if (arch::thread_index() < 32) return arch::barrier(1, 64);
  static_cast<void>(arch::barrier_any(1, 64, true));
}
void two_counts() { arch::barrier(1, arch::thread_index() < 32 ? 64 : 32); }
void arrives_twice() {
  if (arch::thread_index() >= 32) return arch::barrier(1, 64);
  arch::barrier_arrive(1, 64);
  arch::barrier_arrive(1, 64);
}
void one_warp_stays_away() {
  if (arch::thread_index() < 32) arch::barrier(1, 64);
}
/// Both warps come to a barrier of one, with or without an order between them.
template <bool kOrdered>
void one_after_the_other() {
  if (arch::thread_index() < 32) arch::barrier(1, 32);
  if (kOrdered) arch::barrier();
  if (arch::thread_index() >= 32) arch::barrier(1, 32);
}

TEST_CASE("planted.barrier") {
  CHECK(reports_of(1, 0, named, 1, 64).empty());
  CHECK(reports_of(1, 0, named, 15, 64).empty());
  CHECK_REPORT(reports_of(1, 0, named, 16, 64), "barrier",
               (Words{"barrier 16 of 64 threads at planted.cpp:", "from 0 to 15"}));
  CHECK_REPORT(reports_of(1, 0, named, 1, 40), "barrier", Words{"a multiple of 32"});
  CHECK_REPORT(reports_of(1, 0, named, 1, 96), "barrier", Words{"up to the block's 64"});
  CHECK_REPORT(reports_of(1, 0, two_counts), "barrier", Words{"came to as one of"});
  CHECK_REPORT(reports_of(1, 0, one_votes), "barrier", Words{"some vote and some do not"});
  CHECK_REPORT(reports_of(1, 0, arrives_twice), "barrier", Words{"for the second time"});
  CHECK_REPORT(reports_of(1, 0, one_warp_stays_away), "deadlock",
               (Words{"32 threads", "barrier 1 of 64 threads at planted.cpp:"}));
  CHECK(reports_of(1, 0, one_after_the_other<true>).empty());
  CHECK_REPORT(reports_of(1, 0, one_after_the_other<false>), "barrier",
               Words{"barrier 1 of 32 threads"});
}

// ---- lanes --------------------------------------------------------------------------------------

/// The halves of a warp work on their own; `kSecond`: the lanes that the second half names.
template <unsigned kSecond>
void halves(float* out) {
  const int i = arch::thread_index();
  const unsigned lanes = i % 32 < 16 ? 0xFFFFu : kSecond;
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  shared[i] = 1.0f;
  arch::warp_barrier(lanes);
  out[i] = shared[i ^ 8] + arch::shuffle_xor(1.0f, 8, lanes) +
           static_cast<float>(arch::first_lane(i % 16 == 3, lanes));
}

TEST_CASE("planted.lanes") {
  const Numbers out = zeros(kThreads);
  CHECK(reports_of(1, 256, halves<0xFFFF0000u>, out.get()).empty());
  CHECK(out.download()[0] == 5.0f);
  CHECK(out.download()[16] == 21.0f);
  CHECK_REPORT(reports_of(1, 256, halves<0xFFFFFFFFu>, out.get()), "deadlock",
               Words{"wait for the lanes of its warp at planted.cpp:"});
  CHECK_REPORT(reports_of(1, 256, halves<0xFF000000u>, out.get()), "divergence",
               Words{"is none of the lanes 0xff000000"});
}

void across_halves(float* out) {
  const int i = arch::thread_index();
  out[i] = arch::shuffle_xor(1.0f, 16, i % 32 < 16 ? 0xFFFFu : 0xFFFF0000u);
}

TEST_CASE("planted.a_shuffle_from_a_lane_that_takes_no_part") {
  const Numbers out = zeros(kThreads);
  CHECK_REPORT(reports_of(1, 0, across_halves, out.get()), "divergence",
               Words{"which is none of the lanes"});
}

/// A vector of which one element was never written: the last one may be a tile's padding.
template <int kUnwritten>
void partly_written(float* out) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  if (i != kUnwritten) shared[i] = 1.0f;
  arch::barrier();
  out[i] = arch::load<4>(shared + i / 4 * 4)[0];
}
void vector_from(float* out, const float* in) { out[arch::thread_index()] = arch::load<4>(in)[0]; }

TEST_CASE("planted.a_vector_that_is_partly_uninitialised") {
  const Numbers out = zeros(kThreads);
  CHECK(reports_of(1, 256, partly_written<7>, out.get()).empty());
  CHECK_REPORT(reports_of(1, 256, partly_written<4>, out.get()), "uninitialised",
               Words{"reads 16 bytes of shared memory + 0x10"});
  CHECK_REPORT(reports_of(1, 256, partly_written<6>, out.get()), "uninitialised",
               Words{"reads 16 bytes of shared memory + 0x10"});
  void* fresh = nullptr;
  REQUIRE(cudaMalloc(&fresh, 16) == cudaSuccess);
  REQUIRE(cudaMemset(fresh, 0, 15) == cudaSuccess);
  CHECK_REPORT(reports_of(1, 0, vector_from, out.get(), static_cast<const float*>(fresh)),
               "uninitialised", Words{"reads 16 bytes of device memory"});
  CHECK(cudaFree(fresh) == cudaSuccess);
}

// ---- asynchronous copies ------------------------------------------------------------------------

enum class Bug { kNone, kNoWait, kNoCommit, kNoBarrier, kOverwritten, kRefilledTooEarly };

/// Two stages of 64 vectors: each thread fetches a vector and reads its neighbour's.
template <Bug kBug>
void copy_and_read(float* out, const float* in) {
  float* const shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_index();
  const auto fetch = [&](int step) {
    const std::uint32_t to = arch::shared_address(shared + (step % 2 * kThreads + i) * 4);
    arch::async_copy_16(to, in + 4 * (step * kThreads + i), step * kThreads + i < 4 * kThreads - 3);
    if (kBug != Bug::kNoCommit) arch::async_copy_commit();
  };
  fetch(0);
  float sum = 0.0f;
  for (int step = 0; step < 4; ++step) {
    if (step < 3) fetch(step + 1);
    float* const stage = shared + step % 2 * kThreads * 4;
    if (kBug == Bug::kOverwritten && step == 0) stage[4 * i] = 0.0f;
    if (kBug != Bug::kNoWait) {
      if (step < 3) {
        arch::async_copy_wait<1>();
      } else {
        arch::async_copy_wait<0>();
      }
    }
    if (kBug != Bug::kNoBarrier) arch::barrier();
    sum += arch::load<4>(stage + 4 * ((i + 1) % kThreads))[3];
    if (kBug != Bug::kRefilledTooEarly) arch::barrier();
  }
  out[i] = sum;
}

template <Bug kBug>
std::vector<sim::Report> copy_reports(const Numbers& out) {
  const Numbers in(std::vector<float>(16 * kThreads, 1.0f));
  return reports_of(1, 2 * 16 * kThreads, copy_and_read<kBug>, out.get(),
                    static_cast<const float*>(in.get()));
}

TEST_CASE("planted.asynchronous_copies") {
  const Numbers out = zeros(kThreads);
  CHECK(copy_reports<Bug::kNone>(out).empty());
  CHECK(out.download()[0] == 4.0f);
  CHECK(out.download()[60] == 3.0f);  // whose last vector is not there: zeros
  CHECK_REPORT(copy_reports<Bug::kNoWait>(out), "in flight",
               (Words{"reads 16 bytes of shared memory", "planted.cpp:", "is still writing"}));
  CHECK_REPORT(copy_reports<Bug::kNoCommit>(out), "in flight", Words{"reads 16 bytes"});
  CHECK_REPORT(copy_reports<Bug::kOverwritten>(out), "in flight", Words{"writes 4 bytes"});
  for (const auto& found :
       {copy_reports<Bug::kNoBarrier>(out), copy_reports<Bug::kRefilledTooEarly>(out)}) {
    REQUIRE(found.size() == 1);
    // Unordered: which of the two the machine sees depends on who comes first.
    const std::string& kind = found.front().kind;
    CHECK((kind == "race" || kind == "in flight" || kind == "uninitialised"));
  }
}

void change_the_source(float* in) {
  const int i = arch::thread_index();
  arch::async_copy_16(arch::shared_address(arch::dynamic_shared() + 16 * i), in + 4 * i, true);
  arch::async_copy_commit();
  in[4 * i] = 2.0f;
  arch::async_copy_wait<0>();
}
void copy_to(float* in, int shift) {
  const std::uint32_t to = arch::shared_address(arch::dynamic_shared()) + shift;
  if (arch::thread_index() == 0) arch::async_copy_16(to, in, true);
}

TEST_CASE("planted.asynchronous_copies_out_of_place") {
  const Numbers in = zeros(4 * kThreads);
  CHECK_REPORT(reports_of(1, 16 * kThreads, change_the_source, in.get()), "in flight",
               Words{"whose source has changed"});
  CHECK(reports_of(1, 16, copy_to, in.get(), 0).empty());
  CHECK_REPORT(reports_of(1, 32, copy_to, in.get(), 8), "misaligned",
               (Words{"writes 16 bytes", "planted.cpp:"}));
  CHECK_REPORT(reports_of(1, 16, copy_to, in.get(), 16), "bounds", Words{"shared memory + 0x10"});
}

// ---- kernels that begin before the one before has ended -----------------------------------------

void fill(float* data) { data[arch::thread_index()] = 1.0f; }

enum class Awaits { kAll, kOneBeforeABarrier, kOneBehindIt, kNobody };

/// Reads what `fill` wrote, and block 1 nothing.
template <Awaits kAwaits>
void read_behind(float* out, const float* data) {
  const int i = arch::thread_index();
  const bool one = arch::block_index() == 1 || i == 40;
  if (kAwaits == Awaits::kAll || (kAwaits == Awaits::kOneBeforeABarrier && one)) {
    arch::await_dependencies();
  }
  arch::barrier();
  if (kAwaits == Awaits::kOneBehindIt && one) arch::await_dependencies();
  if (arch::block_index() == 0) out[i] = data[i];
}

/// Writes what nobody else does; one block waits for the kernel before, or none.
template <bool kAwaits>
void has_own_data(float* out) {
  if (arch::block_index() == 0) out[arch::thread_index()] = 2.0f;
  if (kAwaits && arch::block_index() == 1) arch::await_dependencies();
}

/// Says with a flag what it has written, and block 1 of the kernel behind reads it.
void fill_and_tell(float* data, int* flag) {
  data[arch::thread_index()] = 1.0f;
  arch::barrier();
  if (arch::thread_index() == 0) arch::store_release(flag, 1);
}
template <bool kAcquires>
void read_when_told(float* out, const float* data, const int* flag) {
  const int i = arch::thread_index();
  if (arch::block_index() == 1) {
    while (kAcquires && arch::load_acquire(flag) == 0) {
    }
    out[i] = data[i];
  } else {
    arch::await_dependencies();
  }
}

/// Says so although nothing orders what the others write, but knows of the kernel before.
void fill_and_tell_apart(float* data, int* flag) {
  if (arch::thread_index() != 0) {
    data[arch::thread_index()] = 1.0f;
  } else {
    arch::await_dependencies();
    arch::store_release(flag, 1);
  }
}

template <class... Params, class... Given>
std::vector<sim::Report> reports_behind(float* data, void (*kernel)(Params...),
                                        const Given&... given) {
  REQUIRE(arch::launch(fill, 1, kThreads, 0, nullptr, data) == cudaSuccess);
  REQUIRE(arch::launch_dependent(kernel, 2, kThreads, 0, nullptr, given...) == cudaSuccess);
  return sim::take_reports();
}

TEST_CASE("planted.dependency") {
  const Numbers data = zeros(kThreads), out = zeros(kThreads);
  const float* const in = data.get();
  float *const to = data.get(), *const o = out.get();
  CHECK(reports_behind(to, read_behind<Awaits::kAll>, o, in).empty());
  CHECK(reports_behind(to, read_behind<Awaits::kOneBeforeABarrier>, o, in).empty());
  CHECK_REPORT(
      reports_behind(to, read_behind<Awaits::kOneBehindIt>, o, in), "dependency",
      (Words{"of block 0 reads 4 bytes", "which the kernel before has written", "planted.cpp:"}));
  CHECK_REPORT(reports_behind(to, read_behind<Awaits::kNobody>, o, in), "dependency", Words{});
  CHECK(reports_behind(to, has_own_data<true>, o).empty());
  CHECK_REPORT(reports_behind(to, has_own_data<false>, o), "dependency",
               Words{"none of its blocks has come to await_dependencies"});
  CHECK(reports_of(2, 0, read_behind<Awaits::kNobody>, o, in).empty());
}

/// Reads what the kernel behind it writes over.
void read_all(float* out, const float* data) { out[arch::thread_index()] = data[0]; }
template <bool kAwaits>
void write_over(float* data) {
  if (arch::block_index() == 1 || kAwaits) arch::await_dependencies();
  if (arch::block_index() == 0 && arch::thread_index() == 0) *data = 3.0f;
}

/// Blocks of another size change nothing about who has read.
TEST_CASE("planted.dependency_on_a_kernel_that_reads") {
  const Numbers data = zeros(1), out = zeros(256);
  const auto launch = [&](auto kernel, unsigned readers, unsigned writers) {
    REQUIRE(arch::launch(fill, 1, 32, 0, nullptr, out.get()) == cudaSuccess);
    REQUIRE(arch::launch(read_all, 1, readers, 0, nullptr, out.get(),
                         static_cast<const float*>(data.get())) == cudaSuccess);
    REQUIRE(arch::launch_dependent(kernel, 2, writers, 0, nullptr, data.get()) == cudaSuccess);
    return sim::take_reports();
  };
  for (const unsigned readers : {32u, 64u, 256u}) {
    for (const unsigned writers : {32u, 64u, 256u}) {
      CAPTURE(readers, writers);
      CHECK(launch(write_over<true>, readers, writers).empty());
      CHECK_REPORT(launch(write_over<false>, readers, writers), "dependency",
                   (Words{"which the kernel before has read", "planted.cpp:"}));
    }
  }
}

TEST_CASE("planted.told_by_the_kernel_before") {
  const Numbers data = zeros(kThreads), out = zeros(kThreads);
  const example::DeviceArray<int> flag(std::vector<int>(1));
  const auto launch = [&](auto kernel) {
    REQUIRE(arch::launch(fill_and_tell, 1, kThreads, 0, nullptr, data.get(), flag.get()) ==
            cudaSuccess);
    REQUIRE(arch::launch_dependent(kernel, 2, kThreads, 0, nullptr, out.get(),
                                   static_cast<const float*>(data.get()),
                                   static_cast<const int*>(flag.get())) == cudaSuccess);
    return sim::take_reports();
  };
  CHECK(launch(read_when_told<true>).empty());
  CHECK_REPORT(launch(read_when_told<false>), "dependency", Words{"planted.cpp:"});
}

/// Whoever is told by a thread of the kernel before, which has awaited the one before that, has not
/// awaited the kernel before.
TEST_CASE("planted.told_by_one_that_has_awaited") {
  const Numbers data = zeros(kThreads), other = zeros(kThreads), out = zeros(kThreads);
  const example::DeviceArray<int> flag(std::vector<int>(1));
  REQUIRE(arch::launch(fill, 1, kThreads, 0, nullptr, other.get()) == cudaSuccess);
  REQUIRE(arch::launch_dependent(fill_and_tell_apart, 1, kThreads, 0, nullptr, data.get(),
                                 flag.get()) == cudaSuccess);
  REQUIRE(arch::launch_dependent(read_when_told<true>, 2, kThreads, 0, nullptr, out.get(),
                                 static_cast<const float*>(data.get()),
                                 static_cast<const int*>(flag.get())) == cudaSuccess);
  CHECK_REPORT(sim::take_reports(), "dependency", Words{"planted.cpp:"});
}

/// What a kernel that nobody has awaited was to await is not there either.
TEST_CASE("planted.dependency_on_the_kernel_before_the_last") {
  const Numbers data = zeros(kThreads), out = zeros(kThreads), other = zeros(kThreads);
  const auto launch = [&](auto kernel) {
    REQUIRE(arch::launch(fill, 1, kThreads, 0, nullptr, data.get()) == cudaSuccess);
    REQUIRE(arch::launch_dependent(read_behind<Awaits::kAll>, 2, kThreads, 0, nullptr, other.get(),
                                   static_cast<const float*>(other.get())) == cudaSuccess);
    REQUIRE(arch::launch_dependent(kernel, 2, kThreads, 0, nullptr, out.get(),
                                   static_cast<const float*>(data.get())) == cudaSuccess);
    return sim::take_reports();
  };
  CHECK(launch(read_behind<Awaits::kAll>).empty());
  CHECK_REPORT(launch(read_behind<Awaits::kOneBehindIt>), "dependency", Words{"planted.cpp:"});
}

// ---- matrices -----------------------------------------------------------------------------------

/// C = A B for A (16, 16) and B (16, 16), by one warp; B lies as its transpose or as it is.
template <bool kTransposed, bool kBarrier, int kPad>
void multiply(float* out, const __half* a, const __half* b) {
  __half* const a_smem = reinterpret_cast<__half*>(arch::dynamic_shared());
  constexpr int kStride = 16 + kPad;
  __half* const b_smem = a_smem + 16 * kStride;
  const int lane = arch::thread_index();
  if (lane >= 32) return;
  for (int i = lane; i < 256; i += 32) {
    a_smem[i / 16 * kStride + i % 16] = a[i];
    b_smem[i / 16 * kStride + i % 16] = b[i];
  }
  if (kBarrier) arch::warp_barrier();
  const auto row = [&](__half* tile, int r, int c) {
    return arch::shared_address(tile + r * kStride + c);
  };
  std::uint32_t a_frag[4], b_frag[4];
  arch::load_matrices(a_frag, row(a_smem, lane % 16, lane / 16 * 8));
  if (kTransposed) {  // B(k, n) lies in row n: matrices are (n, k)
    arch::load_matrices(b_frag, row(b_smem, lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8));
  } else {
    arch::load_matrices_transposed(b_frag, row(b_smem, lane % 16, lane / 16 * 8));
  }
  for (int half = 0; half < 2; ++half) {
    float d[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    arch::mma_m16n8k16<__half>(d[0], d[1], d[2], d[3], a_frag, b_frag[2 * half],
                               b_frag[2 * half + 1]);
    for (int i = 0; i < 4; ++i) {
      out[(lane / 4 + i / 2 * 8) * 16 + half * 8 + lane % 4 * 2 + i % 2] = d[i];
    }
  }
}

template <bool kTransposed, bool kBarrier, int kPad = 8>
std::vector<sim::Report> multiply_reports() {
  std::vector<__half> a(256), b(256);
  std::vector<float> expected(256, 1.0f);
  for (int i = 0; i < 256; ++i) {
    a[i] = __float2half(static_cast<float>(i * 37 % 17 - 8));
    b[i] = __float2half(static_cast<float>(i * 53 % 23 - 11));
  }
  for (int i = 0; i < 256; ++i) {
    for (int k = 0; k < 16; ++k) {
      expected[i] += __half2float(a[i / 16 * 16 + k]) *
                     __half2float(b[kTransposed ? i % 16 * 16 + k : k * 16 + i % 16]);
    }
  }
  const example::DeviceArray<__half> a_dev(a), b_dev(b);
  const Numbers out = zeros(256);
  const auto found =
      reports_of(1, 2048, multiply<kTransposed, kBarrier, kPad>, out.get(),
                 static_cast<const __half*>(a_dev.get()), static_cast<const __half*>(b_dev.get()));
  if (found.empty()) CHECK(out.download() == expected);
  return found;
}

TEST_CASE("planted.matrices") {
  sim::reset_counters();
  CHECK(multiply_reports<true, true>().empty());
  CHECK(sim::counters().mma_flops == 20 * 2 * 16 * 16 * 16);
  CHECK(multiply_reports<false, true>().empty());
  CHECK_REPORT((multiply_reports<true, true, 4>()), "misaligned", Words{"reads 16 bytes"});
  const auto found = multiply_reports<true, false>();
  REQUIRE(found.size() == 1);
  CHECK((found.front().kind == "race" || found.front().kind == "uninitialised"));
}

enum class Slip { kNone, kNoBarrier, kNoClear };

/// out = A A^T, by pieces of tile/, the sums rescaled by 0 before as those of a first tile are.
template <Slip kSlip>
void square(float* out, const __half* a) {
  using Tile = tile::PanelTile<32, 32, __half>;
  using Sums = tile::MmaTile<32, 32, 2>;
  tile::SharedCarver carver{arch::dynamic_shared()};
  const auto a_smem = carver.take<Tile>();
  tile::load_async<kThreads>(a_smem, tile::Matrix<const __half>{a, 32, 32, 32, 1}, 0);
  arch::async_copy_commit();
  arch::async_copy_wait<0>();
  if (kSlip != Slip::kNoBarrier) arch::barrier();
  Sums sums;
  if (kSlip != Slip::kNoClear) sums.clear();
  for (int r = 0; r < Sums::kRegRows; ++r) sums.scale_row(r, 0.0f);
  tile::multiply<__half>(sums, tile::SharedLeft(a_smem, Sums::warp_row()),
                         tile::SharedRightTransposed(a_smem));
  tile::store(tile::Matrix<float>{out, 32, 32, 32, 1}, sums, 0);
}

TEST_CASE("planted.tiles") {
  const example::DeviceArray<__half> a(std::vector<__half>(32 * 32, __float2half(1.0f)));
  const Numbers out = zeros(32 * 32);
  const __half* const from = a.get();
  CHECK(reports_of(1, 2048, square<Slip::kNone>, out.get(), from).empty());
  CHECK(out.download() == std::vector<float>(32 * 32, 32.0f));
  // The line of a piece, and the one that calls it.
  const auto found = reports_of(1, 2048, square<Slip::kNoBarrier>, out.get(), from);
  REQUIRE(found.size() == 1);
  CAPTURE(found.front().text);
  CHECK(found.front().text.find("mma_operands.cuh:") != std::string::npos);
  CHECK(found.front().text.find(", from planted.cpp:") != std::string::npos);
  // Registers are not looked at; they begin as NaN.
  CHECK(reports_of(1, 2048, square<Slip::kNoClear>, out.get(), from).empty());
  for (const float x : out.download()) CHECK(std::isnan(x));
}

TEST_CASE("planted.a_grid_that_no_device_takes") {
  const Numbers out = zeros(kThreads);
  CHECK(arch::launch(sum<true>, 1, kThreads, sim::kMaxSharedBytes + 1, nullptr, out.get()) ==
        cudaErrorInvalidValue);
  CHECK(arch::launch(sum<true>, 1, 2048, 0, nullptr, out.get()) == cudaErrorInvalidConfiguration);
  CHECK(sim::take_reports().empty());
}

}  // namespace
