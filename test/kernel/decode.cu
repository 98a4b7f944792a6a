// SPDX-License-Identifier: MIT
// Decoding by the one call: bits that follow from a sequence alone, scratch memory that is shared,
// captured graphs that replay with other lengths, lengths and page tables that the kernel ahead
// writes, pages far away, the host's time, and what is refused.
#include <attile/arch/grid_dependency.cuh>
#include <attile/attile.cuh>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include "support/captured.h"
#include "support/catch.h"
#include "support/decode_bits.h"
#include "support/device.h"
#include "support/paged_problem.h"
#include "support/random.h"

namespace kernel_decode {

using namespace attile_test;
using attile::Splits;
using T = __nv_bfloat16;
constexpr int kDim = 128;
constexpr int kFixedKeys = 512;  // a multiple of every default Bc

template <class Sequences>
using Args = attile::ForwardArgs<T, attile::Causal, Sequences>;
template <class Sequences>
using Call = DecodeByOneCall<Args<Sequences>, kDim, kFixedKeys>;
using PagedSink =
    DecodeByOneCall<attile::ForwardArgs<T, attile::Causal, attile::Paged, attile::Sink<>>, kDim,
                    kFixedKeys>;
/// The head dimension of the case that batches of vLLM got wrong.
using Paged64 =
    DecodeByOneCall<attile::ForwardArgs<T, attile::Causal, attile::PagedPacked>, 64, kFixedKeys>;
/// Keys and values in fp8.
using Fp8 = attile::Elements<T, __nv_fp8_e4m3, __nv_fp8_e5m2>;
using PagedFp8 =
    DecodeByOneCall<attile::ForwardArgs<Fp8, attile::Causal, attile::Paged>, kDim, kFixedKeys>;

constexpr auto kNoPolicies = [](auto&) {};

TEST_CASE("decode.a sequence has the same bits in any batch") {
  const std::vector<int> pages{16, 1, 64, 7, 256};
  check_fixed_bits<Call<attile::Cached>>(250, 300, 1600, 8, 2, {0}, kNoPolicies);
  check_fixed_bits<Call<attile::CachedPacked>>(250, 300, 1600, 4, 4, {0}, kNoPolicies);
  check_fixed_bits<Call<attile::Paged>>(250, 300, 1600, 7, 1, pages, kNoPolicies);
  check_fixed_bits<Call<attile::PagedPacked>>(250, 300, 1600, 8, 2, pages, kNoPolicies);
  check_fixed_bits<PagedFp8>(100, 300, 1600, 8, 2, pages, kNoPolicies);
}

TEST_CASE("decode.a row has the same bits beside prompts, and in pages of any size") {
  check_bits_beside_prompts<Paged64>(19802, 14, 2, {16, 1, 256}, kNoPolicies);
  check_bits_beside_prompts<Call<attile::Paged>>(5000, 8, 8, {64, 7}, kNoPolicies);
  check_bits_in_chunks<Call<attile::Paged>>(1500, 8, 2, 64, kNoPolicies);
}

TEST_CASE("decode.scratch memory is ready after every call") {
  check_workspace_stays_ready<Call<attile::Paged>>(600, 6000, 64, kNoPolicies);
  check_workspace_stays_ready<Call<attile::CachedPacked>>(600, 6000, 0, kNoPolicies);
}

TEST_CASE("decode.a sink counts once") { check_sink_counts_once<PagedSink>(64); }

TEST_CASE("decode.splits are refused without scratch memory and without a kernel that splits") {
  check_decode_refusals<Call<attile::Paged>>(64, kNoPolicies);
  const CachedRun<Call<attile::Cached>> run({{{1, 900, 1}}, 1, 900}, 2, 1);
  Args<attile::Cached> args = run.args();
  REQUIRE(bool(attile::check<kDim>(args)));
  args.splits = Splits::fill();
  CHECK(std::string(attile::check<kDim>(args).why) ==
        "splits is given, and this kernel gives all keys of a row to one block: those of decode "
        "split them");
  CHECK(attile::forward<kDim>(args) == cudaErrorInvalidValue);
  const Device<unsigned char> workspace(1 << 20);
  CHECK(attile::forward<kDim>(workspace.get(), std::size_t{1 << 20}, args) ==
        cudaErrorInvalidValue);
}

/// One step of generation: a row for each sequence, whose keys lie in pages. What a step reads
/// changes in place, as a captured graph wants it.
struct Generation {
  static constexpr int kBatch = 6, kHeads = 8, kKvHeads = 2, kPage = 16, kLongest = 4000;
  static constexpr int kLine = kLongest / kPage, kPages = kBatch * kLine;
  static constexpr std::size_t kQueries = std::size_t(kBatch) * kHeads * kDim;
  static constexpr std::size_t kKeys = std::size_t(kPages) * kPage * kKvHeads * kDim;

  Device<T> q{kQueries}, o{kQueries}, k{normal(kKeys, 1)}, v{normal(kKeys, 2)};
  Device<float> lse{std::size_t(kBatch) * kHeads};
  Device<int> seqused{std::size_t(kBatch)}, table{std::size_t(kBatch) * kLine};

  /// Sequences without keys, and entries behind a sequence's last page, have garbage in the table.
  void set(const std::vector<int>& lengths, int seed) const {
    constexpr int kGarbage[] = {-1, INT_MAX, INT_MIN, kPages};
    REQUIRE(lengths.size() == kBatch);
    std::vector<int> entries(std::size_t(kBatch) * kLine);
    for (int b = 0; b < kBatch; ++b) {
      for (int i = 0; i < kLine; ++i) {
        const bool is_used = i * kPage < lengths[b];
        // 7 and kPages have no divisor in common: all entries differ.
        entries[b * kLine + i] =
            is_used ? (7 * (b * kLine + i) + seed) % kPages : kGarbage[(b + i) % 4];
      }
    }
    upload(seqused, lengths);
    upload(table, entries);
    upload(q, normal(kQueries, seed));
    clear_outputs();
  }
  void clear_outputs() const {
    REQUIRE(cudaMemset(o.get(), 0xFF, o.bytes()) == cudaSuccess);
    REQUIRE(cudaMemset(lse.get(), 0xFF, lse.bytes()) == cudaSuccess);
  }
  Args<attile::Paged> args(Splits splits) const {
    Args<attile::Paged> a{};
    a.q = attile::bshd<const T>(q.get(), {.rows = 1, .heads = kHeads, .dim = kDim});
    a.k = attile::bshd<const T>(k.get(), {.rows = kPage, .heads = kKvHeads, .dim = kDim});
    a.v = attile::bshd<const T>(v.get(), {.rows = kPage, .heads = kKvHeads, .dim = kDim});
    a.o = attile::bshd<T>(o.get(), {.rows = 1, .heads = kHeads, .dim = kDim});
    a.lse = lse.get();
    a.batch = kBatch, a.q_heads = kHeads, a.kv_heads = kKvHeads;
    a.q_len = 1, a.kv_len = kLongest;
    a.sequences.page_table = table.get();
    a.sequences.pages_per_sequence = kLine;
    a.sequences.page_size = kPage;
    a.sequences.pages = kPages;
    a.sequences.seqused_k = seqused.get();
    a.splits = splits;
    return a;
  }
  /// O and LSE, as bits.
  std::vector<std::uint32_t> results() const {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    std::vector<std::uint32_t> bits((o.bytes() + lse.bytes()) / 4);
    REQUIRE(cudaMemcpy(bits.data(), o.get(), o.bytes(), cudaMemcpyDeviceToHost) == cudaSuccess);
    REQUIRE(cudaMemcpy(bits.data() + o.bytes() / 4, lse.get(), lse.bytes(),
                       cudaMemcpyDeviceToHost) == cudaSuccess);
    return bits;
  }

 private:
  static std::vector<T> normal(std::size_t size, int seed) {
    const Random random(static_cast<std::uint64_t>(seed));
    std::vector<T> values(size);
    for (std::size_t i = 0; i < size; ++i) values[i] = attile::from_float<T>(random.normal(i));
    return values;
  }
  template <class X>
  static void upload(const Device<X>& to, const std::vector<X>& values) {
    REQUIRE(cudaMemcpy(to.get(), values.data(), values.size() * sizeof(X),
                       cudaMemcpyHostToDevice) == cudaSuccess);
  }
};

/// A call for such a batch, with scratch memory of its own.
struct GenerationCall {
  Args<attile::Paged> args;
  attile::WorkspaceSize size = attile::decode_workspace_size<kDim>(args);
  DecodeWorkspace workspace{size.bytes};

  GenerationCall(const Generation& generation, Splits splits) : args(generation.args(splits)) {
    REQUIRE(bool(size));
    workspace.reset();
  }
  cudaError_t reset(cudaStream_t stream) const {
    return attile::reset_workspace(workspace.get(), size.bytes, stream);
  }
  cudaError_t operator()(cudaStream_t stream) const {
    return attile::decode<kDim>(workspace.get(), size.bytes, args, stream);
  }
};

TEST_CASE("decode.a captured graph replays with other lengths") {
  constexpr int kCalls = 3;  // of a graph, each behind the one before
  const std::vector<int> lengths_captured{100, 1, 0, 700, 16, 17};
  const std::vector<std::vector<int>> replayed{
      {4000, 3999, 1, 4000, 2000, 513},  // longer
      {1, 2, 3, 0, 5, 6},                // shorter
      {300, 4000, 700, 0, 0, 0},         // padding rows, whose tables are garbage
      {0, 0, 0, 0, 0, 0},
      lengths_captured};
  const Generation generation;
  for (const Splits splits : {Splits::none(), Splits::fill(), Splits::fixed(kFixedKeys)}) {
    const GenerationCall call(generation, splits);
    generation.set(lengths_captured, 10);
    const Captured captured([&](cudaStream_t stream) {
      cudaError_t error = call.reset(stream);
      for (int i = 0; i < kCalls && error == cudaSuccess; ++i) error = call(stream);
      return error;
    });
    int seed = 10;
    for (const std::vector<int>& lengths : replayed) {
      ++seed;
      INFO("splits " << static_cast<int>(splits.kind) << ", seed " << seed);
      generation.set(lengths, seed);
      REQUIRE(call(nullptr) == cudaSuccess);
      const auto want = generation.results();
      generation.clear_outputs();
      captured.replay();
      CHECK(generation.results() == want);
      const auto lse = generation.lse.download();
      for (int b = 0; b < Generation::kBatch; ++b) {
        for (int h = 0; h < Generation::kHeads; ++h) {
          const float x = lse[b * Generation::kHeads + h];
          CHECK((lengths[b] == 0 ? x == -attile::kInf : x > -20.0f && x < 20.0f));
        }
      }
    }
  }
}

/// Writes numbers while the blocks of the kernel behind it may long have begun: takes turns of what
/// is there and of what comes, which it writes last.
__global__ void write_late(volatile int* to, const int* earlier, const int* later, int count) {
  constexpr long long kClocks = 50000;
  attile::arch::launch_dependents();
  const auto write = [&](const int* from) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
  };
  const long long begin = clock64();
  while (clock64() - begin < kClocks) {
    write(later);
    write(earlier);
  }
  write(later);
}

/// Checks that a call behind a kernel that writes such numbers late has the results of one behind
/// them.
void check_late(const Generation& generation, const GenerationCall& call, int* numbers,
                const std::vector<int>& before, const std::vector<int>& after) {
  const Device<int> earlier(before), later(after);
  const auto copy = [&](const Device<int>& from) {
    REQUIRE(cudaMemcpy(numbers, from.get(), from.bytes(), cudaMemcpyDeviceToDevice) == cudaSuccess);
    generation.clear_outputs();
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  };
  copy(later);
  REQUIRE(call(nullptr) == cudaSuccess);
  const auto want = generation.results();
  copy(earlier);
  write_late<<<1, 256>>>(numbers, earlier.get(), later.get(), static_cast<int>(after.size()));
  REQUIRE(call(nullptr) == cudaSuccess);
  CHECK(generation.results() == want);
}

TEST_CASE("decode.the kernel ahead may write lengths") {
  const std::vector<std::vector<int>> lengths{
      {100, 1, 0, 700, 16, 17},  {4000, 3999, 1, 4000, 2000, 513},
      {0, 0, 0, 0, 0, 0},        {300, 4000, 700, 0, 0, 0},
      {300, 4000, 700, 1, 0, 0}, {4000, 4000, 4000, 4000, 4000, 4000}};
  const Generation generation;
  for (const Splits splits : {Splits::none(), Splits::fill(), Splits::fixed(kFixedKeys)}) {
    const GenerationCall call(generation, splits);
    for (std::size_t i = 0; i < 4 * lengths.size(); ++i) {
      INFO("splits " << static_cast<int>(splits.kind) << ", call " << i);
      const std::vector<int>& before = lengths[i % lengths.size()];
      const std::vector<int>& after = lengths[(i * i + 1) % lengths.size()];
      // The page table is that of the lengths which are written. Earlier ones are longer, or not.
      generation.set(after, 5);
      check_late(generation, call, generation.seqused.get(), before, after);
    }
  }
}

TEST_CASE("decode.the kernel ahead may write page tables, and which line of them is whose") {
  constexpr int kBatch = Generation::kBatch;
  const Generation generation;
  // Lengths, lines and table, one behind the other. Sequence b has line (b + shift) % kBatch.
  const auto numbers_of = [&](std::vector<int> lengths, int shift, int seed) {
    std::vector<int> numbers = lengths;
    for (int b = 0; b < kBatch; ++b) numbers.push_back((b + shift) % kBatch);
    std::rotate(lengths.begin(), lengths.end() - shift, lengths.end());  // those of lines
    generation.set(lengths, seed);
    const std::vector<int> table = generation.table.download();
    numbers.insert(numbers.end(), table.begin(), table.end());
    return numbers;
  };
  const std::vector<int> lengths{300, 4000, 700, 1, 0, 2000}, others{4000, 3999, 1, 4000, 0, 513};
  const Device<int> numbers(numbers_of(lengths, 0, 5));
  for (const Splits splits : {Splits::none(), Splits::fill(), Splits::fixed(kFixedKeys)}) {
    GenerationCall call(generation, splits);
    call.args.sequences.seqused_k = numbers.get();
    call.args.sequences.cache_batch_idx = numbers.get() + kBatch;
    call.args.sequences.tables = kBatch;
    call.args.sequences.page_table = numbers.get() + 2 * kBatch;
    for (int i = 0; i < 12; ++i) {
      INFO("splits " << static_cast<int>(splits.kind) << ", call " << i);
      const auto before = numbers_of(lengths, i % kBatch, 2 * i);
      const auto after = numbers_of(i % 3 == 0 ? others : lengths, i % 4, 2 * i + 1);
      check_late(generation, call, numbers.get(), before, after);
    }
  }
}

TEST_CASE("decode.offsets of pages have 64 bits") {
  using Problem = PagedProblem<__half>;
  check_far_pages<__half>(
      [](const Problem::Args& args) { return attile::decode<Problem::kDim>(args); });
}

TEST_CASE("decode.offsets that fall stay within scratch memory") {
  // Row tiles are counted from `total_q`, which these offsets exceed by far: there are more runs
  // and more parts than scratch memory was made for.
  constexpr int kBatch = 8, kHeads = 1;
  constexpr std::size_t kGuard = std::size_t{4} << 20;
  for (const int rows : {64, 128, 192, 256, 384}) {
    for (const int keys : {130, 257, 513, 1025}) {
      INFO(rows << " rows, " << keys << " keys");
      std::vector<int> cu_q, cu_k;
      for (int b = 0; b <= kBatch; ++b) {
        cu_q.push_back(b % 2 * rows);
        cu_k.push_back(b % 2 * keys);
      }
      const Device<int> offsets_q(cu_q), offsets_k(cu_k);
      const Device<T> q(std::size_t(rows + 1) * kDim), o(std::size_t(rows + 1) * kDim);
      const Device<T> kv(std::size_t(keys) * kDim);
      Args<attile::Packed> args{};
      args.q = attile::bshd<const T>(q.get(), {.rows = rows + 1, .heads = kHeads, .dim = kDim});
      args.k = attile::bshd<const T>(kv.get(), {.rows = keys, .heads = kHeads, .dim = kDim});
      args.v = args.k;
      args.o = attile::bshd<T>(o.get(), {.rows = rows + 1, .heads = kHeads, .dim = kDim});
      args.batch = kBatch, args.q_heads = kHeads, args.kv_heads = kHeads;
      args.q_len = rows, args.kv_len = keys;
      args.sequences = {offsets_q.get(), offsets_k.get(), rows + 1, keys};
      args.splits = Splits::fill();
      const attile::WorkspaceSize size = attile::decode_workspace_size<kDim>(args);
      REQUIRE(std::string(size.check.why) == "");
      const Device<unsigned char> workspace(size.bytes + kGuard);
      REQUIRE(attile::reset_workspace(workspace.get(), size.bytes) == cudaSuccess);
      REQUIRE(attile::decode<kDim>(workspace.get(), size.bytes, args) == cudaSuccess);
      REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
      const std::vector<unsigned char> after = workspace.download();
      CHECK(std::all_of(after.end() - kGuard, after.end(), [](auto x) { return x == 0xFF; }));
    }
  }
}

TEST_CASE("decode.a call takes little of the host") {
  constexpr int kCalls = 200;
  const Generation generation;
  generation.set({10, 20, 30, 40, 50, 60}, 1);
  const auto args = generation.args(Splits::fill());
  const attile::WorkspaceSize size = attile::decode_workspace_size<kDim>(args);
  REQUIRE(bool(size));
  const DecodeWorkspace workspace(size.bytes);
  workspace.reset();
  const auto call = [&] { return attile::decode<kDim>(workspace.get(), size.bytes, args); };
  REQUIRE(call() == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) REQUIRE(call() == cudaSuccess);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  std::printf("decode: a call takes %.1f us of the host\n", time.count() / kCalls);
  CHECK(time.count() / kCalls < 50);
}

}  // namespace kernel_decode
