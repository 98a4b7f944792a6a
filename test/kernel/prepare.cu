// SPDX-License-Identifier: MIT
// Tables of masks: the same bytes as on the host, in a graph too, and kernels that read tables
// which contradict themselves.
#include <attile/attile.cuh>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/catch.h"
#include "support/device.h"
#include "support/prepared.h"
#include "support/prepared_on_device.h"

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
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  REQUIRE(attile::prepare(table.get(), bytes, source, stream) == cudaSuccess);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  const auto replayed_is = [&](const DocumentRows& rows) {
    REQUIRE(cudaMemcpy(ids.get(), rows.q_ids.data(), ids.bytes(), cudaMemcpyHostToDevice) ==
            cudaSuccess);
    REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    attile::SortedIds on_host = rows.source;
    on_host.kv_ids = rows.q_ids.data();
    const Table expected = host_table(on_host);
    return std::memcmp(table.download().data(), expected.data(), bytes) == 0;
  };
  CHECK(replayed_is(before));
  CHECK(replayed_is(after));
  CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
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
