// SPDX-License-Identifier: MIT
// What both kernels of this folder compute, and how they are tried: causal attention in bf16 with a
// bias for each key, grouped query heads, and rows of O that are normalised (RMSNorm).
//   A = softmax(scale Q K^T + bias, causal) V,   O = A / sqrt(mean(A^2) + epsilon) * gain
#pragma once

#include <attile/arch/attributes.h>
#include <attile/core/args.h>
#include <attile/core/index.h>
#include <attile/core/score_mod.h>
#include <attile/core/tensor.h>
#include <attile/reference.h>
#include <attile/tile/matrix.cuh>

#include <cmath>
#include <cstdint>
#include <vector>

#include "../support.cuh"

namespace own {

using T = __nv_bfloat16;
inline constexpr int kDim = 128;
inline constexpr float kScale = 0.08838835f;  // 1 / sqrt(kDim)
inline constexpr float kEpsilon = 1e-6f;

/// A score modifier: it adds a bias for each key of a sequence. What the scores of a column have in
/// common is read once for all rows of a thread (docs/masks.md).
struct KeyBias {
  const float* bias = nullptr;  // (batch, kv_len)

  template <class Real>
  ATTILE_HOST_DEVICE attile::ModifiedScore<Real> operator()(Real s, attile::ScoreIndex i,
                                                            attile::Extent e) const {
    return {s + Real(of_keys(i.batch, e)[i.col]), Real(1)};
  }
  /// Returns the biases of a sequence's keys.
  ATTILE_HOST_DEVICE const float* of_keys(int batch, attile::Extent e) const {
    return bias + std::int64_t{batch} * e.kv_len;
  }

  struct Tile {
    using Modifier = KeyBias;
    float scale;
    const float* bias;  // of the tile's first column
    ATTILE_HOST_DEVICE int row(int) const { return 0; }
    ATTILE_HOST_DEVICE float col(int dc) const { return bias[dc]; }
    ATTILE_HOST_DEVICE attile::ModifiedScore<float> operator()(float x, int, float col) const {
      return {std::fma(scale, x, col), 1.0f};
    }
  };
  template <class Math>
  ATTILE_HOST_DEVICE Tile of_tile(const attile::ScoreBlock& block, const Math&) const {
    const attile::ScoreIndex at = block.first;
    return {block.scale, of_keys(at.batch, block.extent) + at.col};
  }
  /// Says that this reads for each column alone, and which of the tiles are of that kind: all. The
  /// library's kernel for Hopper then reads the biases once for all rows of a tile.
  constexpr bool reads_columns() const { return true; }
  template <class Math>
  ATTILE_HOST_DEVICE Tile column_tile(const attile::ScoreBlock& block, const Math& math) const {
    return of_tile(block, math);
  }
};

/// Normalises the rows of O in registers, and multiplies them by the gain, (kDim). Scope    all
/// lanes of a warp.
template <class Output>
ATTILE_DEVICE void normalise(Output& o_frag, const float* gain) {
  ATTILE_UNROLL
  for (int r = 0; r < Output::kRegRows; ++r) {
    float squares = 0.0f;
    ATTILE_UNROLL
    for (int c = 0; c < Output::kRegCols; ++c) squares += o_frag.x[r][c] * o_frag.x[r][c];
    const float mean = Output::sum_lanes(squares) / kDim;
    o_frag.scale_row(r, 1.0f / std::sqrt(mean + kEpsilon));
  }
  o_frag.for_each([&](int, int c, float& o) { o *= gain[c]; });
}

/// The sizes of a problem.
struct Sizes {
  int batch, q_heads, kv_heads, len;

  std::size_t queries() const { return std::size_t(batch) * q_heads * len * kDim; }
  std::size_t keys() const { return std::size_t(batch) * kv_heads * len * kDim; }
  attile::ScoreShape shape() const { return {batch, q_heads, {len, len}}; }
};

/// The problem in device memory, (batch, len, heads, kDim), and what it should give.
class Problem {
 public:
  explicit Problem(const Sizes& sizes)
      : sizes_(sizes),
        q_(example::normal<T>(sizes.queries(), 1)),
        k_(example::normal<T>(sizes.keys(), 2)),
        v_(example::normal<T>(sizes.keys(), 3)),
        bias_(example::normal<float>(std::size_t(sizes.batch) * sizes.len, 4)),
        gain_(example::normal<float>(kDim, 5)),
        q_dev_(q_),
        k_dev_(k_),
        v_dev_(v_),
        o_dev_(std::vector<T>(sizes.queries(), attile::from_float<T>(NAN))),  // unwritten rows show
        bias_dev_(bias_),
        gain_dev_(gain_) {}

  const Sizes& sizes() const { return sizes_; }
  attile::Tensor<const T> q() const { return of_queries<const T>(q_dev_); }
  attile::Tensor<const T> k() const { return of_keys(k_dev_); }
  attile::Tensor<const T> v() const { return of_keys(v_dev_); }
  attile::Tensor<T> o() const { return of_queries<T>(o_dev_); }
  KeyBias bias() const { return {bias_dev_.get()}; }
  const float* gain() const { return gain_dev_.get(); }

  /// Compares O with the reference, which computes in fp64.
  bool check() const {
    attile::ForwardArgs<T, attile::Causal, KeyBias> args;
    args.q = attile::bshd(q_.data(), {.rows = sizes_.len, .heads = sizes_.q_heads, .dim = kDim});
    args.k = attile::bshd(k_.data(), {.rows = sizes_.len, .heads = sizes_.kv_heads, .dim = kDim});
    args.v = attile::bshd(v_.data(), {.rows = sizes_.len, .heads = sizes_.kv_heads, .dim = kDim});
    args.batch = sizes_.batch, args.q_heads = sizes_.q_heads, args.kv_heads = sizes_.kv_heads;
    args.q_len = args.kv_len = sizes_.len, args.head_dim = kDim, args.scale = kScale;
    args.score_mod = {bias_.data()};
    const auto a = attile::reference::forward(args).o;  // (batch, head, row, dim)
    std::vector<double> expected, found;
    const std::vector<T> o = o_dev_.download();
    const attile::Tensor<const T> o_rows =
        attile::bshd(o.data(), {.rows = sizes_.len, .heads = sizes_.q_heads, .dim = kDim});
    for (std::size_t first = 0; first < a.size(); first += kDim) {
      double squares = 0.0;
      for (int c = 0; c < kDim; ++c) squares += a[first + c] * a[first + c];
      const double factor = 1.0 / std::sqrt(squares / kDim + kEpsilon);
      const int row = static_cast<int>(first / kDim), head = row / sizes_.len;
      const T* const mine =
          o_rows.row(head / sizes_.q_heads, head % sizes_.q_heads, row % sizes_.len);
      for (int c = 0; c < kDim; ++c) {
        const double x = a[first + c] * factor * gain_[c];
        const double size = std::fmax(1.0, std::fabs(x));  // errors relative to larger elements
        expected.push_back(x / size);
        found.push_back(attile::to_float(mine[c]) / size);
      }
    }
    // P is rounded to bf16, by 2^-9, and elements of V and of the gain are up to about 3: twice
    // that.
    return example::report("O", example::max_difference(found, expected), 0.035);
  }

 private:
  template <class X>
  attile::Tensor<X> of_queries(const example::DeviceArray<T>& array) const {
    return attile::bshd<X>(array.get(), {.rows = sizes_.len, .heads = sizes_.q_heads, .dim = kDim});
  }
  attile::Tensor<const T> of_keys(const example::DeviceArray<T>& array) const {
    return attile::bshd<const T>(array.get(),
                                 {.rows = sizes_.len, .heads = sizes_.kv_heads, .dim = kDim});
  }

  Sizes sizes_;
  std::vector<T> q_, k_, v_;
  std::vector<float> bias_, gain_;
  example::DeviceArray<T> q_dev_, k_dev_, v_dev_, o_dev_;
  example::DeviceArray<float> bias_dev_, gain_dev_;
};

}  // namespace own
