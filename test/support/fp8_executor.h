// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/core/sequences.h>
#include <attile/core/status.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "support/fp8.h"
#include "support/tensors.h"

// Queries, keys and values in fp8, for any executor of the suite.

namespace attile_test {

/// Names an input that is not in fp8.
struct AsItIs {};

/// Says how a copy lies in memory: as the tensor, or with contiguous columns.
enum class Fp8Layout { kRows, kColumns };

/// A tensor in fp8 that lies in memory of its own as the elements of a tensor lie in its buffer, or
/// by columns; NaN where there is no number.
template <class F>
class Fp8Copy {
 public:
  using Element = F;

  /// `scale_of(head)`: the number stored is the element over the scale.
  template <class T, class ScaleOf>
  Fp8Copy(const attile::Tensor<const T>& tensor, attile::RowShape shape, int heads, int dim,
          const std::vector<Region>& regions, const ScaleOf& scale_of,
          Fp8Layout layout = Fp8Layout::kRows) {
    F nan;
    nan.__x = static_cast<__nv_fp8_storage_t>(attile::Fp8Format<F>::kNan);
    if (layout == Fp8Layout::kColumns) {
      // Columns are multiples of 16 bytes apart where there are enough rows, and else not.
      const std::int64_t rows = shape.rows > 40 ? (shape.rows + 15) / 16 * 16 : shape.rows;
      col_stride_ = rows > 1 ? rows : 2;
      view_ = {nullptr, heads * dim * col_stride_, dim * col_stride_, 1};
      codes_.assign(static_cast<std::size_t>(shape.batches) * heads * dim * col_stride_ + 1, nan);
      view_.data = codes_.data();
    } else {
      view_ = {nullptr, tensor.batch_stride, tensor.head_stride, tensor.row_stride};
      const auto at = reinterpret_cast<std::uintptr_t>(tensor.data);
      for (const Region& region : regions) {
        const auto begin = reinterpret_cast<std::uintptr_t>(region.data);
        if (at < begin || at >= begin + region.bytes) continue;
        codes_.assign(region.bytes / sizeof(T), nan);
        view_.data = codes_.data() + (at - begin) / sizeof(T);
      }
    }
    if (view_.data == nullptr) return;
    for (int b = 0; b < shape.batches; ++b) {
      for (int h = 0; h < heads; ++h) {
        for (int r = 0; r < shape.rows; ++r) {
          const T* const from = tensor.row(b, h, r);
          F* const to = const_cast<F*>(view_.row(b, h, r));
          for (int c = 0; c < dim; ++c) {
            const float x = attile::to_float(from[c]);
            if (std::isfinite(x)) to[c * col_stride_] = attile::from_float<F>(x / scale_of(h));
          }
        }
      }
    }
    before_ = codes_;
  }

  attile::Tensor<const F> view() const { return view_; }
  std::int64_t col_stride() const { return col_stride_; }
  void add_region(std::vector<Region>& regions) {
    regions.push_back({codes_.data(), codes_.size()});
  }
  bool is_changed() const { return std::memcmp(codes_.data(), before_.data(), codes_.size()) != 0; }

 private:
  attile::Tensor<const F> view_{};
  std::int64_t col_stride_ = 1;
  std::vector<F> codes_, before_;
};

/// The tensor itself.
template <class T>
class NoFp8Copy {
 public:
  using Element = T;

  template <class... Rest>
  explicit NoFp8Copy(const attile::Tensor<const T>& tensor, const Rest&...) : view_(tensor) {}
  attile::Tensor<const T> view() const { return view_; }
  void add_region(std::vector<Region>&) {}
  bool is_changed() const { return false; }

 private:
  attile::Tensor<const T> view_{};
};

template <class F, class T>
using Fp8CopyOf = std::conditional_t<attile::Fp8<F>, Fp8Copy<F>, NoFp8Copy<T>>;

template <class F>
constexpr Fp8Type fp8_type_of() {
  if constexpr (attile::Fp8<F>) return kFp8TypeOf<F>;
  return Fp8Type::kNone;
}

/// The forward pass of an executor with inputs in fp8: Q, K, V are types of fp8, or AsItIs. Half of
/// the problems have scales for each sequence and head, and the others, whose heads are one, for
/// the tensor. kProducts: what the executor's kernels multiply in fp8. kLayout: that of V.
template <class Inner, class Q, class K, class V, Fp8Products kProducts,
          Fp8Layout kLayout = Fp8Layout::kRows>
struct Fp8Executor : Inner {
  static constexpr Fp8Types kFp8 = {fp8_type_of<Q>(), fp8_type_of<K>(), fp8_type_of<V>()};
  static constexpr Fp8Products kFp8Products = kProducts;

  template <class P, class E>
  attile::Check forward(const attile::Arguments<attile::Direction::kForward, E, P>& a,
                        const std::vector<Region>& regions) const {
    using T = typename E::Q;
    constexpr auto kSums = kProducts == Fp8Products::kUnpromoted ? attile::Fp8Sums::kUnpromoted
                                                                 : attile::Fp8Sums::kPromoted;
    using Types =
        attile::Elements<typename Fp8CopyOf<Q, T>::Element, typename Fp8CopyOf<K, T>::Element,
                         typename Fp8CopyOf<V, T>::Element, typename E::O, kSums>;
    attile::Arguments<attile::Direction::kForward, Types, P> fp8{};
    const auto dims = attile::head_dims(a, 0, 0);
    const attile::RowShape queries = a.sequences.q_shape(a.batch, a.q_len);
    const attile::RowShape keys = a.sequences.kv_shape(a.batch, a.kv_len);
    const int group = a.kv_heads > 0 ? a.q_heads / a.kv_heads : 1;
    Fp8CopyOf<Q, T> q(a.q, queries, a.q_heads, dims.qk, regions,
                      [&](int head) { return q_scale_of(head / group); });
    Fp8CopyOf<K, T> k(a.k, keys, a.kv_heads, dims.qk, regions, k_scale_of);
    Fp8CopyOf<V, T> v(a.v, keys, a.kv_heads, dims.v, regions, v_scale_of, kLayout);
    std::vector<float> scales;
    for (int b = 0; b < a.batch; ++b) {
      for (int h = 0; h < a.kv_heads; ++h) scales.push_back(q_scale_of(h));
      for (int h = 0; h < a.kv_heads; ++h) scales.push_back(k_scale_of(h));
      for (int h = 0; h < a.kv_heads; ++h) scales.push_back(v_scale_of(h));
    }
    fp8.q = q.view(), fp8.k = k.view(), fp8.v = v.view(), fp8.o = a.o, fp8.lse = a.lse;
    if (a.batch > 0) {
      const bool is_one = a.kv_heads == 1;
      const auto set = [&](auto& scale, int number) {
        if constexpr (requires { scale.data; }) {
          scale = {scales.data() + number * a.kv_heads, is_one ? 0 : 3 * a.kv_heads,
                   is_one ? 0 : 1};
        }
      };
      set(fp8.q_scale, 0), set(fp8.k_scale, 1), set(fp8.v_scale, 2);
    }
    if constexpr (kLayout == Fp8Layout::kColumns) fp8.v_col_stride = v.col_stride();
    fp8.batch = a.batch, fp8.q_heads = a.q_heads, fp8.kv_heads = a.kv_heads;
    fp8.q_len = a.q_len, fp8.kv_len = a.kv_len;
    fp8.head_dim = a.head_dim, fp8.head_dim_v = a.head_dim_v, fp8.scale = a.scale;
    fp8.mask = a.mask, fp8.score_mod = a.score_mod, fp8.dropout = a.dropout;
    fp8.sequences = a.sequences, fp8.sink = a.sink;
    std::vector<Region> all = regions;
    q.add_region(all), k.add_region(all), v.add_region(all);
    all.push_back({scales.data(), scales.size() * sizeof(float)});
    const attile::Check check = Inner::forward(fp8, all);
    if (q.is_changed() || k.is_changed() || v.is_changed()) {
      return {cudaErrorIllegalAddress, "the pass writes to its inputs in fp8"};
    }
    return check;
  }
};

/// The forward pass with keys and values in fp8.
template <class Inner, attile::Fp8 K, attile::Fp8 V>
using Fp8Cache = Fp8Executor<Inner, AsItIs, K, V, Fp8Products::kNone>;

}  // namespace attile_test
