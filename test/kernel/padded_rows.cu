// SPDX-License-Identifier: MIT
// Results in slices of wider arrays: what lies behind a row stays, and the row is what it is in an
// array of its own. Both problems once had the memory behind their rows overwritten.
#include <attile/attile.cuh>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/catch.h"
#include "support/device.h"
#include "support/random.h"

namespace kernel_padded_rows {

/// A (row, head, dim) array with places between rows; all of it is 0xFF at first.
template <class T>
class Rows {
 public:
  Rows(int rows, int heads, int dim, std::int64_t row_stride, std::int64_t head_stride)
      : rows_(rows),
        heads_(heads),
        dim_(dim),
        row_stride_(row_stride),
        head_stride_(head_stride),
        memory_(elements()) {}
  Rows(int rows, int heads, int dim) : Rows(rows, heads, dim, heads * dim, dim) {}

  /// Standard normal numbers, the same wherever the rows lie.
  void fill(int seed) {
    const attile_test::Random random(seed);
    std::vector<T> host(elements(), attile::from_float<T>(attile::kInf));  // between the rows
    std::uint64_t number = 0;
    for_each([&](std::size_t at) { host[at] = attile::from_float<T>(random.normal(number++)); });
    REQUIRE(cudaMemcpy(memory_.get(), host.data(), host.size() * sizeof(T),
                       cudaMemcpyHostToDevice) == cudaSuccess);
  }
  attile::Tensor<T> view() const {
    return {memory_.get(), static_cast<std::int64_t>(elements()), head_stride_, row_stride_};
  }
  /// The elements of the rows; fails where another one was written.
  std::vector<std::uint16_t> bits() const {
    std::vector<std::uint16_t> all(elements()), mine;
    REQUIRE(cudaMemcpy(all.data(), memory_.get(), all.size() * sizeof(T), cudaMemcpyDeviceToHost) ==
            cudaSuccess);
    for_each([&](std::size_t at) {
      mine.push_back(all[at]);
      CHECK(all[at] != 0xFFFF);
      all[at] = 0xFFFF;
    });
    for (const std::uint16_t element : all) REQUIRE(element == 0xFFFF);
    return mine;
  }

 private:
  static_assert(sizeof(T) == 2);

  std::size_t elements() const { return rows_ * row_stride_; }
  template <class F>
  void for_each(const F& f) const {
    for (int i = 0; i < rows_; ++i) {
      for (int h = 0; h < heads_; ++h) {
        for (int c = 0; c < dim_; ++c) f(i * row_stride_ + h * head_stride_ + c);
      }
    }
  }

  int rows_, heads_, dim_;
  std::int64_t row_stride_, head_stride_;
  attile_test::Device<T> memory_;
};

TEST_CASE("padded_rows.forward_bf16_head_dim_51") {
  using T = __nv_bfloat16;
  constexpr int kLen = 31, kHeads = 14, kKvHeads = 2, kDim = 51;
  Rows<T> q(kLen, kHeads, kDim, 1008, 72), k(kLen, kKvHeads, kDim, 144, 72);
  Rows<T> v(kLen, kKvHeads, kDim, 144, 72), o(kLen, kHeads, kDim, 1008, 72);
  Rows<T> dense(kLen, kHeads, kDim);
  q.fill(1), k.fill(2), v.fill(3);
  std::vector<float> slopes(kHeads);
  for (int h = 0; h < kHeads; ++h) slopes[h] = 1.0f / (h + 1);
  const attile_test::Device<float> on_device(slopes);
  const auto run = [&](const Rows<T>& to) {
    attile::ForwardArgs<T, attile::CausalTopLeft, attile::Alibi> args{};
    args.q = q.view(), args.k = k.view(), args.v = v.view(), args.o = to.view();
    args.batch = 1, args.q_heads = kHeads, args.kv_heads = kKvHeads;
    args.q_len = args.kv_len = kLen;
    args.head_dim = kDim;
    args.score_mod.slopes = on_device.get();
    REQUIRE(attile::forward<80>(args) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    return to.bits();
  };
  CHECK(run(o) == run(dense));
}

TEST_CASE("padded_rows.backward_fp16_head_dim_48_and_4") {
  using T = __half;
  constexpr int kLen = 31, kHeads = 2, kDim = 48, kDimV = 4;
  Rows<T> q(kLen, kHeads, kDim), k(kLen, kHeads, kDim);
  Rows<T> v(kLen, kHeads, kDimV, 8 * kHeads, 8), dout(kLen, kHeads, kDimV, 8 * kHeads, 8);
  Rows<T> o(kLen, kHeads, kDimV, 8 * kHeads, 8), dq(kLen, kHeads, kDim), dk(kLen, kHeads, kDim);
  Rows<T> dv(kLen, kHeads, kDimV, 8 * kHeads, 8), dense(kLen, kHeads, kDimV);
  q.fill(1), k.fill(2), v.fill(3), dout.fill(4);
  const attile_test::Device<float> lse(kHeads * kLen);
  const auto describe = [&](auto& args) {
    args.q = q.view(), args.k = k.view(), args.v = v.view(), args.o = o.view();
    args.lse = lse.get();
    args.batch = 1, args.q_heads = args.kv_heads = kHeads;
    args.q_len = args.kv_len = kLen;
    args.head_dim = kDim, args.head_dim_v = kDimV;
  };
  attile::ForwardArgs<T> forward{};
  describe(forward);
  REQUIRE(attile::forward<128>(forward) == cudaSuccess);
  const auto run = [&](const Rows<T>& to) {
    attile::BackwardArgs<T> args{};
    describe(args);
    args.dout = dout.view();
    args.dq = dq.view(), args.dk = dk.view(), args.dv = to.view();
    const attile::WorkspaceSize size = attile::workspace_size<128>(args);
    REQUIRE(bool(size));
    const attile_test::Device<unsigned char> workspace(size.bytes);
    REQUIRE(attile::backward<128>(workspace.get(), size.bytes, args) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    return to.bits();
  };
  CHECK(run(dv) == run(dense));
}

}  // namespace kernel_padded_rows
