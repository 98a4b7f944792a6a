// SPDX-License-Identifier: MIT
// Packed sequences by the one call: the bits of a sequence, and captured graphs that replay with
// other lengths and contents.
#include <attile/attile.cuh>

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/captured.h"
#include "support/catch.h"
#include "support/device.h"
#include "support/packed_bits.h"
#include "support/random.h"

namespace kernel_packed {

using attile::DqMode;
using attile_test::Device;
using T = __nv_bfloat16;
constexpr int kDim = 128;

/// The one calls, with dQ in order.
struct OneCall {
  using ForwardArgs = attile::ForwardArgs<T, attile::Causal, attile::Packed>;
  using BackwardArgs = attile::BackwardArgs<T, attile::Causal, attile::Packed>;
  static constexpr int kD = kDim;
  static constexpr DqMode kDqMode = DqMode::kInOrder;

  static cudaError_t forward(const ForwardArgs& args, cudaStream_t stream = nullptr) {
    return attile::forward<kDim>(args, stream);
  }
  static cudaError_t backward(void* workspace, std::size_t& bytes, const BackwardArgs& args,
                              cudaStream_t stream = nullptr) {
    return attile::backward<kDim, kDim, kDqMode>(workspace, bytes, args, stream);
  }
};

/// Both passes over packed sequences, all in memory of one place.
struct Training {
  static constexpr int kHeads = 6, kKvHeads = 2, kTotal = 3000, kBatch = 9, kLongest = 1500;

  Device<T> q, k, v, dout, o, dq, dk, dv;
  Device<float> lse;
  Device<int> cu_seqlens;
  std::size_t bytes = 0;

  Training()
      : q(kTotal * kHeads * kDim),
        k(kTotal * kKvHeads * kDim),
        v(kTotal * kKvHeads * kDim),
        dout(kTotal * kHeads * kDim),
        o(kTotal * kHeads * kDim),
        dq(kTotal * kHeads * kDim),
        dk(kTotal * kKvHeads * kDim),
        dv(kTotal * kKvHeads * kDim),
        lse(kTotal * kHeads),
        cu_seqlens(kBatch + 1) {
    REQUIRE(OneCall::backward(nullptr, bytes, backward()) == cudaSuccess);
  }

  void set(const std::vector<int>& lengths, int seed) const {
    std::vector<int> offsets{0};
    for (const int n : lengths) offsets.push_back(offsets.back() + n);
    REQUIRE(offsets.size() == kBatch + 1);
    upload(cu_seqlens, offsets);
    for (const Device<T>* x : {&q, &k, &v, &dout}) {
      const attile_test::Random random(static_cast<std::uint64_t>(++seed));
      std::vector<T> values(x->bytes() / sizeof(T));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = attile::from_float<T>(random.normal(i));
      }
      upload(*x, values);
    }
    for (const Device<T>* x : {&o, &dq, &dk, &dv}) {
      REQUIRE(cudaMemset(x->get(), 0xFF, x->bytes()) == cudaSuccess);
    }
  }
  cudaError_t run(void* workspace, cudaStream_t stream) const {
    std::size_t size = bytes;
    // With scratch memory, in which blocks of sm90 count what they have taken.
    if (const auto error = attile::forward<kDim>(workspace, size, forward(), stream)) return error;
    return OneCall::backward(workspace, size, backward(), stream);
  }
  /// All that is written, as bits.
  std::vector<std::uint16_t> results() const {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    std::vector<std::uint16_t> bits;
    for (const Device<T>* x : {&o, &dq, &dk, &dv}) {
      const std::vector<T> values = x->download();
      const std::size_t before = bits.size();
      bits.resize(before + values.size());
      std::memcpy(bits.data() + before, values.data(), values.size() * sizeof(T));
    }
    return bits;
  }

 private:
  template <class X>
  static void upload(const Device<X>& to, const std::vector<X>& values) {
    REQUIRE(cudaMemcpy(to.get(), values.data(), values.size() * sizeof(X),
                       cudaMemcpyHostToDevice) == cudaSuccess);
  }
  template <class Args>
  void describe(Args& a) const {
    a.q = attile::bshd<const T>(q.get(), {.rows = kTotal, .heads = kHeads, .dim = kDim});
    a.k = attile::bshd<const T>(k.get(), {.rows = kTotal, .heads = kKvHeads, .dim = kDim});
    a.v = attile::bshd<const T>(v.get(), {.rows = kTotal, .heads = kKvHeads, .dim = kDim});
    a.lse = lse.get();
    a.batch = kBatch, a.q_heads = kHeads, a.kv_heads = kKvHeads;
    a.q_len = a.kv_len = kLongest;
    a.sequences = attile::Packed{cu_seqlens.get(), cu_seqlens.get(), kTotal, kTotal};
  }
  OneCall::ForwardArgs forward() const {
    OneCall::ForwardArgs a{};
    describe(a);
    a.o = attile::bshd<T>(o.get(), {.rows = kTotal, .heads = kHeads, .dim = kDim});
    return a;
  }
  OneCall::BackwardArgs backward() const {
    OneCall::BackwardArgs a{};
    describe(a);
    a.o = attile::bshd<const T>(o.get(), {.rows = kTotal, .heads = kHeads, .dim = kDim});
    a.dout = attile::bshd<const T>(dout.get(), {.rows = kTotal, .heads = kHeads, .dim = kDim});
    a.dq = attile::bshd<T>(dq.get(), {.rows = kTotal, .heads = kHeads, .dim = kDim});
    a.dk = attile::bshd<T>(dk.get(), {.rows = kTotal, .heads = kKvHeads, .dim = kDim});
    a.dv = attile::bshd<T>(dv.get(), {.rows = kTotal, .heads = kKvHeads, .dim = kDim});
    return a;
  }
};

/// Device memory before and behind which no address is mapped.
class AloneInMemory {
 public:
  explicit AloneInMemory(std::size_t bytes) {
    CUmemAllocationProp where{};
    where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    where.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    std::size_t unit = 0;
    call("cuMemGetAllocationGranularity", cuMemGetAllocationGranularity, &unit, &where,
         CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    const std::size_t size = attile::round_up(bytes, unit);
    CUdeviceptr first = 0;
    call("cuMemAddressReserve", cuMemAddressReserve, &first, kGap + size + kGap, 0, 0, 0);
    address_ = first + kGap;
    CUmemGenericAllocationHandle memory{};
    call("cuMemCreate", cuMemCreate, &memory, size, &where, 0);
    call("cuMemMap", cuMemMap, address_, size, 0, memory, 0);
    const CUmemAccessDesc access{where.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    call("cuMemSetAccess", cuMemSetAccess, address_, size, &access, 1);
  }
  template <class X>
  X* get() const {
    return reinterpret_cast<X*>(address_);
  }

 private:
  static constexpr std::size_t kGap = std::size_t{1} << 30;

  /// Calls a function of the driver, which the program is not linked with.
  template <class... Params, class... Args>
  static void call(const char* name, CUresult (*)(Params...), Args... args) {
    void* entry = nullptr;
    REQUIRE(cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault) ==
            cudaSuccess);
    REQUIRE(reinterpret_cast<CUresult (*)(Params...)>(entry)(static_cast<Params>(args)...) ==
            CUDA_SUCCESS);
  }

  CUdeviceptr address_ = 0;
};

/// Writes bf16 numbers of either sign from 0.5 to 1, two to a word, which follow from `seed`.
__global__ void fill_with_random(std::uint32_t* words, std::size_t count, std::uint32_t seed) {
  const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += threads) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 0x9E3779B9u + seed;
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    words[i] = ((x ^ x >> 16) & 0x807F807Fu) | 0x3F003F00u;
  }
}
__global__ void count_differences(const std::uint32_t* a, const std::uint32_t* b, std::size_t count,
                                  int* differences) {
  const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += threads) {
    if (a[i] != b[i]) atomicAdd(differences, 1);
  }
}

/// A block goes through many work tiles of many heads, so that its producer's threads get ahead of
/// each other where nothing keeps them together. Without scratch memory blocks take other tiles
/// than with it, and the bits are still the same.
TEST_CASE("packed.the forward pass repeats where blocks have many work tiles") {
  constexpr int kBatch = 34, kHeads = 16, kKvHeads = 2, kBlocks = 1024, kThreads = 256;
  std::vector<int> offsets{0};
  for (int b = 0; b < kBatch; ++b) {  // 61 to 7500 rows, short ones among long ones
    offsets.push_back(offsets.back() + 61 + 241 * (b * 13 % kBatch) % 7450);
  }
  const int total = offsets.back();
  const Device<int> cu_seqlens(offsets), differences(1);
  const std::size_t of_queries = std::size_t{kHeads} * kDim * total / 2;
  const std::size_t of_keys = std::size_t{kKvHeads} * kDim * total / 2;
  const Device<std::uint32_t> q(of_queries), k(of_keys), v(of_keys), o(of_queries);
  const Device<std::uint32_t> first(of_queries);
  const Device<float> lse(std::size_t{kHeads} * total);
  std::uint32_t seed = 0;
  for (const Device<std::uint32_t>* x : {&q, &k, &v}) {
    fill_with_random<<<kBlocks, kThreads>>>(x->get(), x->bytes() / 4, seed += 77);
  }
  OneCall::ForwardArgs a{};
  a.q = attile::bshd<const T>(reinterpret_cast<const T*>(q.get()),
                              {.rows = total, .heads = kHeads, .dim = kDim});
  a.k = attile::bshd<const T>(reinterpret_cast<const T*>(k.get()),
                              {.rows = total, .heads = kKvHeads, .dim = kDim});
  a.v = attile::bshd<const T>(reinterpret_cast<const T*>(v.get()),
                              {.rows = total, .heads = kKvHeads, .dim = kDim});
  a.lse = lse.get();
  a.batch = kBatch, a.q_heads = kHeads, a.kv_heads = kKvHeads, a.q_len = a.kv_len = total;
  a.o =
      attile::bshd<T>(reinterpret_cast<T*>(o.get()), {.rows = total, .heads = kHeads, .dim = kDim});
  a.sequences = attile::Packed{cu_seqlens.get(), cu_seqlens.get(), total, total};
  std::size_t bytes = 0;
  REQUIRE(attile::forward<kDim>(nullptr, bytes, a) == cudaSuccess);
  const Device<unsigned char> workspace(bytes + 1);
  REQUIRE(cudaMemset(differences.get(), 0, differences.bytes()) == cudaSuccess);
  for (int i = 0; i < 60; ++i) {
    const Device<std::uint32_t>& to = i == 0 ? first : o;
    REQUIRE(cudaMemset(to.get(), 0xFF, to.bytes()) == cudaSuccess);
    a.o = attile::bshd<T>(reinterpret_cast<T*>(to.get()),
                          {.rows = total, .heads = kHeads, .dim = kDim});
    if (i % 3 == 0) {
      REQUIRE(OneCall::forward(a) == cudaSuccess);
    } else {
      REQUIRE(attile::forward<kDim>(workspace.get(), bytes, a) == cudaSuccess);
    }
    if (i == 0) continue;
    count_differences<<<kBlocks, kThreads>>>(first.get(), o.get(), of_queries, differences.get());
    INFO("repetition " << i);
    REQUIRE(differences.download() == std::vector<int>{0});
  }
}

TEST_CASE("packed.nothing is read before a tensor") {
  constexpr int kTotal = 300, kHeads = 2;
  const AloneInMemory memory[4]{AloneInMemory(1), AloneInMemory(1), AloneInMemory(1),
                                AloneInMemory(1)};
  const Device<float> lse(kTotal * kHeads);
  const Device<int> offsets(4);
  const int of_sequences[]{0, 7, 150, kTotal};
  REQUIRE(cudaMemcpy(offsets.get(), of_sequences, sizeof of_sequences, cudaMemcpyHostToDevice) ==
          cudaSuccess);
  for (const AloneInMemory& x : memory) {
    REQUIRE(cudaMemset(x.get<T>(), 0, kTotal * kHeads * kDim * sizeof(T)) == cudaSuccess);
  }
  OneCall::ForwardArgs a{};
  a.q = attile::bshd<const T>(memory[0].get<T>(), {.rows = kTotal, .heads = kHeads, .dim = kDim});
  a.k = attile::bshd<const T>(memory[1].get<T>(), {.rows = kTotal, .heads = kHeads, .dim = kDim});
  a.v = attile::bshd<const T>(memory[2].get<T>(), {.rows = kTotal, .heads = kHeads, .dim = kDim});
  a.o = attile::bshd<T>(memory[3].get<T>(), {.rows = kTotal, .heads = kHeads, .dim = kDim});
  a.lse = lse.get();
  a.batch = 3, a.q_heads = a.kv_heads = kHeads, a.q_len = a.kv_len = kTotal;
  a.sequences = attile::Packed{offsets.get(), offsets.get(), kTotal, kTotal};
  REQUIRE(OneCall::forward(a) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("packed.a sequence has the same bits anywhere in any pack") {
  attile_test::check_packed_bits<OneCall>(70, 100, 8, 1);
  attile_test::check_packed_bits<OneCall>(700, 900, 7, 1);
  attile_test::check_packed_bits<OneCall>(1000, 1000, 4, 4);
}

/// The case of FlashAttention's pull request 2520: 8192 sequences of 34 rows.
TEST_CASE("packed.a short sequence has the same bits among thousands") {
  constexpr int kSequences = 8192, kRows = 34;
  attile_test::Pack pack{{}, 0, kRows, kRows};
  for (int b = 0; b < kSequences; ++b) pack.sequences.push_back({kRows, kRows, b});
  constexpr int kOne = 5000;
  const attile_test::Pack alone{{pack.sequences[kOne]}, 0, kRows, kRows};
  CHECK(attile_test::PackedRun<OneCall>(pack, 1, 1).of_sequence(kOne) ==
        attile_test::PackedRun<OneCall>(alone, 1, 1).of_sequence(0));
}

TEST_CASE("packed.a row has the same bits beside longer sequences") {
  attile_test::check_decode_bits<OneCall>(19802, 14, 2);
}

/// An order of dQ that early ends break shows only now and then.
TEST_CASE("packed.the ordered backward pass repeats a thousand times") {
  const Training training;
  const Device<unsigned char> workspace(training.bytes);
  training.set({300, 0, 7, 400, 0, 64, 300, 1, 129}, 0);
  REQUIRE(training.run(workspace.get(), nullptr) == cudaSuccess);
  const auto want = training.results();
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(training.run(workspace.get(), nullptr) == cudaSuccess);
    REQUIRE(training.results() == want);
  }
}

TEST_CASE("packed.a captured graph replays with other lengths") {
  const std::vector<int> lengths_captured{1500, 0, 7, 400, 0, 0, 300, 1, 792};
  const std::vector<std::vector<int>> replayed{{0, 0, 1000, 1, 1, 1, 1, 996, 1000},
                                               {3, 1500, 0, 0, 0, 0, 0, 0, 0},
                                               {0, 0, 0, 0, 0, 0, 0, 0, 0},
                                               lengths_captured};
  const Training training;
  const Device<unsigned char> workspace(training.bytes);
  training.set(lengths_captured, 0);
  const attile_test::Captured captured(
      [&](cudaStream_t stream) { return training.run(workspace.get(), stream); });
  int seed = 1;
  for (const std::vector<int>& lengths : replayed) {
    seed += 10;
    training.set(lengths, seed);
    REQUIRE(training.run(workspace.get(), nullptr) == cudaSuccess);
    const auto want = training.results();
    training.set(lengths, seed);
    captured.replay();
    CHECK(training.results() == want);
  }
}

}  // namespace kernel_packed
