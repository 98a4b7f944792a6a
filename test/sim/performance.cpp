// SPDX-License-Identifier: MIT
// What the portable kernels have to keep doing to be fast: how often they read and write each
// tensor, and how many exponentials they take.
#include <attile/attile.cuh>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/machine.h"
#include "support/catch.h"

namespace {

using attile::Extent;
using attile::Interval;
using attile::TileRange;

constexpr int kDim = 64, kHeads = 2;

/// A dense (1, heads, rows, dim) tensor in device memory, all of it written.
class Tensor {
 public:
  explicit Tensor(int rows, int dim = kDim) : rows_(rows), dim_(dim) {
    const std::vector<float> values(static_cast<std::size_t>(kHeads) * rows * dim, 0.5f);
    REQUIRE(cudaMalloc(&data_, values.size() * sizeof(float)) == cudaSuccess);
    REQUIRE(cudaMemcpy(data_, values.data(), values.size() * sizeof(float),
                       cudaMemcpyHostToDevice) == cudaSuccess);
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { static_cast<void>(cudaFree(data_)); }

  float* get() const { return static_cast<float*>(data_); }
  attile::Tensor<float> view() const { return attile::bhsd(get(), rows_, kHeads, dim_); }
  std::uint64_t read() const { return sim::traffic(data_).read; }
  std::uint64_t written() const { return sim::traffic(data_).written; }

 private:
  void* data_ = nullptr;
  int rows_, dim_;
};

std::uint64_t bytes_of(int rows) { return std::uint64_t{sizeof(float)} * kHeads * rows * kDim; }

template <class Args>
void describe(Args& args, const Tensor& q, const Tensor& k, const Tensor& v, Extent extent) {
  args.q = q.view(), args.k = k.view(), args.v = v.view();
  args.batch = 1;
  args.q_heads = args.kv_heads = kHeads;
  args.q_len = extent.q_len, args.kv_len = extent.kv_len;
  args.head_dim = kDim;
}

/// Rows of `inner` tiles that a loop over `outer` tiles meets, of one head, and those tiles.
struct Met {
  int rows = 0, tiles = 0;
};

template <class TilesOf>
Met met(int outer_length, int outer, int inner_length, int inner, const TilesOf& tiles_of) {
  Met all;
  for (int begin = 0; begin < outer_length; begin += outer) {
    const TileRange range = tiles_of(Interval{begin, attile::min(begin + outer, outer_length)});
    for (int t = range.first; t < range.last; ++t) {
      all.rows += attile::min(inner, inner_length - t * inner);
      ++all.tiles;
    }
  }
  return all;
}

/// K and V are read once for each tile of Q that sees any of them, Q once; O and LSE are written
/// once, and never read. As many exponentials as scores in those tiles, and one for each lane of a
/// row and tile, for the rescaling.
template <class M>
void forward_reads_what_it_must(const M& mask, Extent extent) {
  CAPTURE(extent.q_len, extent.kv_len);
  using Args = attile::ForwardArgs<float, M>;
  using Traits = attile::DefaultForwardTraits<Args, kDim>;
  const Tensor q(extent.q_len), k(extent.kv_len), v(extent.kv_len), o(extent.q_len),
      lse(extent.q_len, 1);
  Args args;
  args.mask = mask;
  args.o = o.view();
  args.lse = lse.get();
  describe(args, q, k, v, extent);
  sim::reset_counters();
  REQUIRE(attile::forward<Traits>(args) == cudaSuccess);
  REQUIRE(sim::take_reports().empty());

  const Met tiles = met(extent.q_len, Traits::kBr, extent.kv_len, Traits::kBc, [&](Interval rows) {
    return attile::tiles_of(attile::visible_columns(mask, 0, 0, rows, extent), Traits::kBc);
  });
  CHECK(k.read() == bytes_of(tiles.rows));
  CHECK(v.read() == bytes_of(tiles.rows));
  CHECK(q.read() == bytes_of(extent.q_len));
  CHECK(o.written() == bytes_of(extent.q_len));
  CHECK(lse.written() == sizeof(float) * kHeads * extent.q_len);
  CHECK(o.read() + lse.read() + q.written() + k.written() + v.written() == 0);
  const sim::Counters counted = sim::counters();
  CHECK(counted.blocks ==
        static_cast<std::uint64_t>(kHeads) * attile::ceil_div(extent.q_len, Traits::kBr));
  const std::uint64_t scores =
      static_cast<std::uint64_t>(kHeads) * tiles.tiles * Traits::kBr * Traits::kBc;
  const std::uint64_t rescalings = scores / Traits::kBc * attile::tile::kColLanes;
  CHECK(counted.exps >= scores);
  CHECK(counted.exps <= scores + rescalings);
  CHECK(counted.barriers == kHeads * std::uint64_t{3} * tiles.tiles);
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
  const Tensor q(extent.q_len), k(extent.kv_len), v(extent.kv_len), o(extent.q_len),
      lse(extent.q_len, 1), dout(extent.q_len), dq(extent.q_len), dk(extent.kv_len),
      dv(extent.kv_len);
  Args args;
  args.mask = mask;
  args.o = o.view();
  args.lse = lse.get();
  args.dout = dout.view();
  args.dq = dq.view(), args.dk = dk.view(), args.dv = dv.view();
  describe(args, q, k, v, extent);
  std::size_t bytes = 0;
  REQUIRE(attile::backward<Traits>(nullptr, bytes, args) == cudaSuccess);
  void* workspace = nullptr;
  REQUIRE(cudaMalloc(&workspace, bytes) == cudaSuccess);
  REQUIRE(attile::backward<Traits>(workspace, bytes, args) == cudaSuccess);
  REQUIRE(cudaFree(workspace) == cudaSuccess);
  REQUIRE(sim::take_reports().empty());

  const Met by_columns =
      met(extent.kv_len, Traits::kBc, extent.q_len, Traits::kBr, [&](Interval columns) {
        return attile::tiles_of(attile::visible_rows(mask, 0, 0, columns, extent), Traits::kBr);
      });
  const bool two_pass = kMode == attile::DqMode::kTwoPass;
  const Met by_rows =
      met(two_pass ? extent.q_len : 0, Traits::kBr, extent.kv_len, Traits::kBc, [&](Interval rows) {
        return attile::tiles_of(attile::visible_columns(mask, 0, 0, rows, extent), Traits::kBc);
      });
  const int second = two_pass ? extent.q_len : 0;
  CHECK(q.read() == bytes_of(by_columns.rows + second));
  CHECK(dout.read() == bytes_of(by_columns.rows + second + extent.q_len));
  CHECK(o.read() == bytes_of(extent.q_len));
  CHECK(k.read() == bytes_of(extent.kv_len + by_rows.rows));
  CHECK(v.read() == bytes_of(extent.kv_len + by_rows.rows));
  CHECK(dq.written() == bytes_of(extent.q_len));
  CHECK(dk.written() == bytes_of(extent.kv_len));
  CHECK(dv.written() == bytes_of(extent.kv_len));
  CHECK(dq.read() + dk.read() + dv.read() == 0);
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
