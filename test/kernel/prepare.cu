// SPDX-License-Identifier: MIT
// Tables of masks, and offsets of packed sequences: the same bytes as on the host, in a graph too,
// and kernels that read tables which contradict themselves.
#include <attile/attile.cuh>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/captured.h"
#include "support/catch.h"
#include "support/device.h"
#include "support/prepared.h"
#include "support/prepared_on_device.h"
#include "support/random.h"

namespace kernel_prepare {

using namespace attile_test;
using attile::And;
using attile::Causal;
using attile::DqMode;
using attile::RowIntervals;
using attile::SortedDocument;

TEST_CASE("tables are the same bytes as on the host") { check_prepared_tables(); }

TEST_CASE("bad sources and tables are refused before a launch") {
  const Device<int> ids(std::vector<int>(8, 1));
  const attile::SortedIds source{ids.get(), ids.get(), 1, 4, 8};
  const Device<unsigned char> table(96);
  std::size_t bytes = 95;
  CHECK(attile::prepare(table.get(), bytes, source) == cudaErrorInvalidValue);
  bytes = 96;
  CHECK(attile::prepare(table.get() + 8, bytes, source) == cudaErrorInvalidValue);
  CHECK(attile::prepare(table.get(), bytes, attile::SortedIds{}) == cudaErrorInvalidValue);
  CHECK(attile::prepare(table.get(), bytes, source) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

/// A graph that prepares a table reads what the ids are when it is replayed.
TEST_CASE("a replayed graph prepares anew") {
  constexpr int kLength = 500;
  const DocumentRows before(2, kLength, kLength, false);
  DocumentRows after(2, kLength, kLength, false);
  for (int i = 0; i < 2 * kLength; ++i) after.q_ids[i] = i % kLength / 123;
  const Device<int> ids(before.q_ids);
  const attile::SortedIds source{ids.get(), ids.get(), 2, kLength, kLength};
  std::size_t bytes = 0;
  REQUIRE(attile::prepare(nullptr, bytes, source) == cudaSuccess);
  const Device<unsigned char> table(bytes);
  const Captured captured(
      [&](cudaStream_t stream) { return attile::prepare(table.get(), bytes, source, stream); });
  const auto replayed_is = [&](const DocumentRows& rows) {
    REQUIRE(cudaMemcpy(ids.get(), rows.q_ids.data(), ids.bytes(), cudaMemcpyHostToDevice) ==
            cudaSuccess);
    captured.replay();
    attile::SortedIds on_host = rows.source;
    on_host.kv_ids = rows.q_ids.data();
    const Table expected = host_table(on_host);
    return std::memcmp(table.download().data(), expected.data(), bytes) == 0;
  };
  CHECK(replayed_is(before));
  CHECK(replayed_is(after));
}

/// Both passes over the documents of dense tensors, (batch, row, head, dim) or (batch, head, row,
/// dim), whose ids are on the device.
template <class Sequences, class... Dropout>
struct Documents {
  using T = __half;
  static constexpr int kD = 64, kBatches = 3, kRows = 900, kHeads = 2, kTotal = kBatches * kRows;
  static constexpr std::size_t kElements = std::size_t{kTotal} * kHeads * kD;
  using ForwardArgs = attile::ForwardArgs<T, Causal, Sequences, Dropout...>;
  using BackwardArgs = attile::BackwardArgs<T, Causal, Sequences, Dropout...>;

  bool by_heads;
  Device<T> q, k, v, dout, o, dq, dk, dv;
  Device<float> lse;

  explicit Documents(bool heads_apart)
      : by_heads(heads_apart),
        q(inputs(1)),
        k(inputs(2)),
        v(inputs(3)),
        dout(inputs(4)),
        o(kElements),
        dq(kElements),
        dk(kElements),
        dv(kElements),
        lse(std::size_t{kTotal} * kHeads) {}

  /// Runs both passes; `sequences` are so many, and `stream` may be that of a capture.
  void run(const Sequences& sequences, int count, const Device<unsigned char>& workspace,
           cudaStream_t stream = nullptr) const {
    std::size_t bytes = workspace.bytes();
    REQUIRE(attile::forward<kD>(workspace.get(), bytes, forward(sequences, count), stream) ==
            cudaSuccess);
    bytes = workspace.bytes();
    REQUIRE(attile::backward<kD, kD, DqMode::kInOrder>(
                workspace.get(), bytes, backward(sequences, count), stream) == cudaSuccess);
  }
  Device<unsigned char> workspace(const Sequences& sequences, int count) const {
    std::size_t first = 0, second = 0;
    REQUIRE(attile::forward<kD>(nullptr, first, forward(sequences, count)) == cudaSuccess);
    REQUIRE(attile::backward<kD, kD, DqMode::kInOrder>(nullptr, second,
                                                       backward(sequences, count)) == cudaSuccess);
    return Device<unsigned char>(attile::max(first, second));
  }
  void poison() const {
    for (const Device<T>* x : {&o, &dq, &dk, &dv}) {
      REQUIRE(cudaMemset(x->get(), 0xFF, x->bytes()) == cudaSuccess);
    }
    REQUIRE(cudaMemset(lse.get(), 0xFF, lse.bytes()) == cudaSuccess);
  }
  /// All that is written, as bits, by (tensor, batch, row, head, dim).
  std::vector<std::uint32_t> results() const {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    std::vector<std::uint32_t> bits;
    for (const Device<T>* x : {&o, &dq, &dk, &dv}) {
      const std::vector<T> values = x->download();
      for (std::size_t i = 0; i < kElements; ++i) {
        std::uint16_t word;
        std::memcpy(&word, &values[place(i)], sizeof word);
        bits.push_back(word);
      }
    }
    return bits;
  }
  /// Whether a row of O, and of the gradients, holds what `poison` wrote.
  static bool is_poison(const std::vector<std::uint32_t>& bits, int row) {
    bool is = true;
    for (std::size_t tensor = 0; tensor < 4; ++tensor) {
      for (std::size_t c = 0; c < std::size_t{kHeads} * kD; ++c) {
        is = is &&
             bits[tensor * kElements + static_cast<std::size_t>(row) * kHeads * kD + c] == 0xFFFFu;
      }
    }
    return is;
  }

 private:
  /// Where the element of (batch, row, head, dim) lies.
  std::size_t place(std::size_t i) const {
    if (!by_heads) return i;
    const std::size_t c = i % kD, head = i / kD % kHeads, row = i / kD / kHeads % kRows;
    return ((i / kD / kHeads / kRows * kHeads + head) * kRows + row) * kD + c;
  }
  std::vector<T> inputs(std::uint64_t seed) const {
    const Random random(seed);
    std::vector<T> values(kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      values[place(i)] = attile::from_float<T>(random.normal(i));
    }
    return values;
  }
  template <class X>
  attile::Tensor<X> view(X* data) const {
    const attile::DenseShape shape{.rows = kRows, .heads = kHeads, .dim = kD};
    return by_heads ? attile::bhsd<X>(data, shape) : attile::bshd<X>(data, shape);
  }
  template <class Args>
  void describe(Args& a, const Sequences& sequences, int count) const {
    a.q = view<const T>(q.get()), a.k = view<const T>(k.get()), a.v = view<const T>(v.get());
    a.lse = lse.get();
    a.batch = count, a.q_heads = a.kv_heads = kHeads, a.q_len = a.kv_len = kRows;
    a.sequences = sequences;
    if constexpr (sizeof...(Dropout) > 0) a.dropout = {.probability = 0.25f, .seed = 5};
  }
  ForwardArgs forward(const Sequences& sequences, int count) const {
    ForwardArgs a;
    describe(a, sequences, count);
    a.o = view<T>(o.get());
    return a;
  }
  BackwardArgs backward(const Sequences& sequences, int count) const {
    BackwardArgs a;
    describe(a, sequences, count);
    a.o = view<const T>(o.get()), a.dout = view<const T>(dout.get());
    a.dq = view<T>(dq.get()), a.dk = view<T>(dk.get()), a.dv = view<T>(dv.get());
    return a;
  }
};

/// Ids of three batches, of which one begins with the id that the one before ends with.
std::vector<int> some_ids(int length) {
  using All = Documents<attile::Packed>;
  std::vector<int> ids;
  for (int i = 0; i < All::kTotal; ++i) ids.push_back(i % All::kRows / length % 2);
  return ids;
}

/// Documents of dense tensors have the bits of the same rows packed, whatever the layout.
template <class... Dropout>
void check_documents() {
  using InBatches = Documents<attile::PackedBatches, Dropout...>;
  using Merged = Documents<attile::Packed, Dropout...>;
  constexpr int kMost = 40, kTotal = InBatches::kTotal;
  const Device<int> ids(some_ids(170));
  const attile::PackedIds source{ids.get(), InBatches::kBatches, InBatches::kRows, kMost};
  std::size_t bytes = 0;
  REQUIRE(attile::prepare(nullptr, bytes, source) == cudaSuccess);
  const Device<unsigned char> table(bytes);
  REQUIRE(attile::prepare(table.get(), bytes, source) == cudaSuccess);
  const auto* const offsets = reinterpret_cast<const int*>(table.get());
  const Merged merged(false);
  const attile::Packed packed{offsets, offsets, kTotal, kTotal};
  merged.poison();
  merged.run(packed, kMost, merged.workspace(packed, kMost));
  const auto wanted = merged.results();
  const attile::PackedBatches in_batches{offsets, InBatches::kBatches, InBatches::kRows};
  for (const bool by_heads : {false, true}) {
    const InBatches documents(by_heads);
    documents.poison();
    documents.run(in_batches, kMost, documents.workspace(in_batches, kMost));
    CHECK(documents.results() == wanted);
  }
}

TEST_CASE("documents of dense tensors have the bits of packed sequences") {
  check_documents<>();
  check_documents<attile::PhiloxDropout>();
}

/// A graph prepares the offsets and runs both passes; ids that it is replayed with may have more
/// documents than it has sequences, whose rows are not written.
TEST_CASE("a replayed graph finds other documents") {
  using InBatches = Documents<attile::PackedBatches>;
  constexpr int kMost = 12, kTotal = InBatches::kTotal, kRows = InBatches::kRows;
  const InBatches documents(true);
  const Device<int> ids(some_ids(300));
  const attile::PackedIds source{ids.get(), InBatches::kBatches, kRows, kMost};
  std::size_t bytes = 0;
  REQUIRE(attile::prepare(nullptr, bytes, source) == cudaSuccess);
  const Device<unsigned char> table(bytes);
  const auto* const offsets = reinterpret_cast<const int*>(table.get());
  const attile::PackedBatches sequences{offsets, InBatches::kBatches, kRows};
  const auto workspace = documents.workspace(sequences, kMost);
  const auto run = [&](cudaStream_t stream) {
    REQUIRE(attile::prepare(table.get(), bytes, source, stream) == cudaSuccess);
    documents.run(sequences, kMost, workspace, stream);
  };
  const Captured captured([&](cudaStream_t stream) {
    run(stream);
    return cudaSuccess;
  });
  for (const int length : {300, 900, 129}) {
    const std::vector<int> now = some_ids(length);
    REQUIRE(cudaMemcpy(ids.get(), now.data(), ids.bytes(), cudaMemcpyHostToDevice) == cudaSuccess);
    documents.poison();
    run(nullptr);
    const auto wanted = documents.results();
    documents.poison();
    captured.replay();
    const auto found = documents.results();
    CHECK(found == wanted);
    const int in_batch = attile::ceil_div(kRows, length);
    const std::vector<unsigned char> bytes_of_table = table.download();
    int runs = 0;
    std::memcpy(&runs, bytes_of_table.data() + (kMost + 1) * sizeof(int), sizeof runs);
    CHECK(runs == InBatches::kBatches * in_batch);
    int wrong = 0;
    for (int row = 0; row < kTotal; ++row) {
      const bool is_left_out = row / kRows * in_batch + row % kRows / length >= kMost;
      wrong += InBatches::is_poison(found, row) != is_left_out;
    }
    CHECK(wrong == 0);
  }
}

/// Runs both passes with a mask, on a batch of 2 and 4 heads.
template <class T, DqMode kMode, class Mask>
void run_with(const Mask& mask) {
  constexpr int kD = 64, kBatch = 2, kHeads = 4, kRows = 700, kKeys = 900;
  constexpr std::size_t kQ = std::size_t{kBatch} * kHeads * kRows * kD;
  constexpr std::size_t kK = std::size_t{kBatch} * kHeads * kKeys * kD;
  const std::vector<T> ones(kK, attile::from_float<T>(0.1f));
  const Device<T> q(ones), k(ones), v(ones), dout(ones), o(kQ), dq(kQ), dk(kK), dv(kK);
  const Device<float> lse(std::size_t{kBatch} * kHeads * kRows);
  const auto describe = [&](auto& a) {
    a.q = attile::bhsd<const T>(q.get(), {.rows = kRows, .heads = kHeads, .dim = kD});
    a.k = attile::bhsd<const T>(k.get(), {.rows = kKeys, .heads = kHeads, .dim = kD});
    a.v = attile::bhsd<const T>(v.get(), {.rows = kKeys, .heads = kHeads, .dim = kD});
    a.lse = lse.get();
    a.batch = kBatch, a.q_heads = a.kv_heads = kHeads, a.q_len = kRows, a.kv_len = kKeys;
    a.mask = mask;
  };
  attile::ForwardArgs<T, Mask> forward;
  describe(forward);
  forward.o = attile::bhsd(o.get(), {.rows = kRows, .heads = kHeads, .dim = kD});
  CHECK(attile::forward<kD>(forward) == cudaSuccess);
  attile::BackwardArgs<T, Mask> backward;
  describe(backward);
  backward.o = attile::bhsd<const T>(o.get(), {.rows = kRows, .heads = kHeads, .dim = kD});
  backward.dout = attile::bhsd<const T>(dout.get(), {.rows = kRows, .heads = kHeads, .dim = kD});
  backward.dq = attile::bhsd(dq.get(), {.rows = kRows, .heads = kHeads, .dim = kD});
  backward.dk = attile::bhsd(dk.get(), {.rows = kKeys, .heads = kHeads, .dim = kD});
  backward.dv = attile::bhsd(dv.get(), {.rows = kKeys, .heads = kHeads, .dim = kD});
  std::size_t bytes = 0;
  CHECK(attile::backward<kD, kD, kMode>(nullptr, bytes, backward) == cudaSuccess);
  const Device<unsigned char> workspace(bytes);
  CHECK(attile::backward<kD, kD, kMode>(workspace.get(), bytes, backward) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

template <class T, DqMode kMode>
void run_any_tables() {
  const auto count = 2 * (RowIntervals::Places::size({700, 900}) + 900u);
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    const Device<Table::value_type> table(any_entries(static_cast<std::size_t>(count), seed, 900));
    run_with<T, kMode>(SortedDocument{table.get()});
    run_with<T, kMode>(RowIntervals{table.get()});
    run_with<T, kMode>(And<Causal, SortedDocument>{{}, {table.get()}});
  }
}

TEST_CASE("every kernel ends, whatever a table holds") {
  run_any_tables<__half, DqMode::kAccumulate>();
  run_any_tables<__half, DqMode::kInOrder>();
  run_any_tables<float, DqMode::kTwoPass>();
}

}  // namespace kernel_prepare
