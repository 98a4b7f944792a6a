// SPDX-License-Identifier: MIT
// What every step of the tutorial (docs/tutorial.md) computes, and how it is tried: causal
// attention with grouped query heads, O = softmax(scale Q K^T, causal) V.
#pragma once

#include <attile/core/args.h>
#include <attile/core/tensor.h>
#include <attile/reference.h>
#include <attile/tile.cuh>

#include <algorithm>
#include <vector>

#include "../support.cuh"

namespace tutorial {

namespace tile = attile::tile;
namespace arch = attile::arch;

inline constexpr int kDim = 128;
inline constexpr float kScale = 0.08838835f;  // 1 / sqrt(kDim)

/// The sizes of a problem.
struct Sizes {
  int batch, q_heads, kv_heads, len;
};

/// The parameter of the kernels that load by threads: tensors, and work tiles of Br rows that see
/// tiles of Bc keys.
template <class T, int Br, int Bc>
struct Params {
  tile::TensorParam<const T> q, k, v;
  tile::TensorParam<T> o;
  attile::DenseTiles<Br, Bc> tiles;
  float scale;
};

/// The problem in device memory, (batch, len, heads, kDim), and what it should give.
template <class T>
class Problem {
 public:
  explicit Problem(const Sizes& sizes)
      : sizes_(sizes),
        q_(example::normal<T>(size(sizes.q_heads), 1)),
        k_(example::normal<T>(size(sizes.kv_heads), 2)),
        v_(example::normal<T>(size(sizes.kv_heads), 3)),
        q_dev_(q_),
        k_dev_(k_),
        v_dev_(v_),
        o_dev_(q_.size()) {}

  const Sizes& sizes() const { return sizes_; }
  attile::Tensor<const T> q() const { return of_queries<const T>(q_dev_.get()); }
  attile::Tensor<const T> k() const { return of_keys(k_dev_.get()); }
  attile::Tensor<const T> v() const { return of_keys(v_dev_.get()); }
  attile::Tensor<T> o() const { return of_queries<T>(o_dev_.get()); }

  /// Returns the work tiles of a kernel with tiles of Br rows and Bc keys.
  template <int Br, int Bc>
  attile::DenseTiles<Br, Bc> tiles() const {
    return {{sizes_.batch, sizes_.q_heads, {sizes_.len, sizes_.len}},
            sizes_.kv_heads,
            2 * kDim * sizeof(T)};
  }
  template <int Br, int Bc>
  Params<T, Br, Bc> params() const {
    return {tile::tensor_param(q(), kDim),
            tile::tensor_param(k(), kDim),
            tile::tensor_param(v(), kDim),
            tile::tensor_param(o(), kDim),
            tiles<Br, Bc>(),
            kScale};
  }

  /// Forgets O, so that the next step cannot pass by what the one before has left.
  void clear() const {
    example::must(cudaMemset(o_dev_.get(), 0xFF, q_.size() * sizeof(T)), "clear");
  }
  /// Compares O with the reference, which computes in fp64.
  bool check(const char* step) const {
    if (expected_.empty()) {
      attile::ForwardArgs<T, attile::Causal> args;
      args.q = of_queries<const T>(q_.data());
      args.k = of_keys(k_.data());
      args.v = of_keys(v_.data());
      args.batch = sizes_.batch, args.q_heads = sizes_.q_heads, args.kv_heads = sizes_.kv_heads;
      args.q_len = args.kv_len = sizes_.len, args.head_dim = kDim, args.scale = kScale;
      expected_ = attile::reference::forward(args).o;  // (batch, head, row, dim)
    }
    const std::vector<T> o = o_dev_.download();
    const attile::Tensor<const T> rows = of_queries<const T>(o.data());
    std::vector<float> found;
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      const int row = static_cast<int>(i / kDim), head = row / sizes_.len;
      found.push_back(attile::to_float(
          rows.row(head / sizes_.q_heads, head % sizes_.q_heads, row % sizes_.len)[i % kDim]));
    }
    // P and O are rounded to bf16, by 2^-9 each, and elements of V and O are up to 4: twice that.
    const double bound = sizeof(T) == 4 ? 5e-6 : 0.032;
    return example::report(step, example::max_difference(found, expected_), bound);
  }

 private:
  std::size_t size(int heads) const {
    return std::size_t(sizes_.batch) * heads * sizes_.len * kDim;
  }
  template <class X>
  attile::Tensor<X> of_queries(X* data) const {
    return attile::bshd<X>(data, {.rows = sizes_.len, .heads = sizes_.q_heads, .dim = kDim});
  }
  attile::Tensor<const T> of_keys(const T* data) const {
    return attile::bshd<const T>(data, {.rows = sizes_.len, .heads = sizes_.kv_heads, .dim = kDim});
  }

  Sizes sizes_;
  std::vector<T> q_, k_, v_;
  example::DeviceArray<T> q_dev_, k_dev_, v_dev_, o_dev_;
  mutable std::vector<double> expected_;
};

/// Launches a kernel, if its sizes make work tiles, and the device and the program's code for it
/// run it.
template <class P>
attile::Check launch(void (*kernel)(P), int blocks, int threads, std::size_t shared_bytes,
                     int architecture, cudaStream_t stream, const P& params) {
  attile::Check ok = params.tiles.check();
  if (ok) ok = arch::check_launch(kernel, shared_bytes, blocks, architecture);
  if (!ok) return ok;
  return {arch::launch(kernel, blocks, threads, shared_bytes, stream, params)};
}

}  // namespace tutorial
