// SPDX-License-Identifier: MIT
// What the portable kernels have to keep doing to be fast: how often they read and write each
// tensor, and how many exponentials they take.
#include <attile/attile.cuh>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../examples/07_algorithms/costs.h"
#include "../../examples/support.cuh"
#include "sim/machine.h"
#include "support/catch.h"

namespace {

using attile::Extent;

constexpr int kDim = 64, kHeads = 2;

using Array = example::DeviceArray<float>;

/// A dense (1, heads, rows, dim) tensor in device memory, all of it written.
Array tensor(int rows, int dim = kDim) {
  return Array(std::vector<float>(static_cast<std::size_t>(kHeads) * rows * dim, 0.5f));
}

std::uint64_t read(const Array& x) { return sim::traffic(x.get()).read; }
std::uint64_t written(const Array& x) { return sim::traffic(x.get()).written; }

std::uint64_t bytes_of(double rows) {
  return sizeof(float) * kHeads * kDim * static_cast<std::uint64_t>(rows);
}

template <class Args>
void describe(Args& args, const Array& q, const Array& k, const Array& v, Extent extent) {
  args.q = attile::bhsd(q.get(), extent.q_len, kHeads, kDim);
  args.k = attile::bhsd(k.get(), extent.kv_len, kHeads, kDim);
  args.v = attile::bhsd(v.get(), extent.kv_len, kHeads, kDim);
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
  using Traits = attile::DefaultForwardTraits<Args, kDim>;
  const Array q = tensor(extent.q_len), k = tensor(extent.kv_len), v = tensor(extent.kv_len),
              o = tensor(extent.q_len), lse = tensor(extent.q_len, 1);
  Args args;
  args.mask = mask;
  args.o = attile::bhsd(o.get(), extent.q_len, kHeads, kDim);
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
  using Traits = attile::DefaultBackwardTraits<Args, kDim, kDim, kMode>;
  const Array q = tensor(extent.q_len), k = tensor(extent.kv_len), v = tensor(extent.kv_len),
              o = tensor(extent.q_len), lse = tensor(extent.q_len, 1), dout = tensor(extent.q_len),
              dq = tensor(extent.q_len), dk = tensor(extent.kv_len), dv = tensor(extent.kv_len);
  Args args;
  args.mask = mask;
  args.o = attile::bhsd(o.get(), extent.q_len, kHeads, kDim);
  args.lse = lse.get();
  args.dout = attile::bhsd(dout.get(), extent.q_len, kHeads, kDim);
  args.dq = attile::bhsd(dq.get(), extent.q_len, kHeads, kDim);
  args.dk = attile::bhsd(dk.get(), extent.kv_len, kHeads, kDim);
  args.dv = attile::bhsd(dv.get(), extent.kv_len, kHeads, kDim);
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

}  // namespace
