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
#include <vector>

#include "support/fp8.h"
#include "support/tensors.h"

// Keys and values in fp8, for any executor of the suite.

namespace attile_test {

/// A tensor in fp8 that lies in memory of its own as the elements of a tensor lie in its buffer;
/// NaN where the buffer has no number.
template <attile::Fp8 F>
class Fp8Copy {
 public:
  /// `scale_of(head)`: the number stored is the element over the scale.
  template <class T, class ScaleOf>
  Fp8Copy(const attile::Tensor<const T>& tensor, attile::RowShape shape, int heads, int dim,
          const std::vector<Region>& regions, const ScaleOf& scale_of) {
    view_ = {nullptr, tensor.batch_stride, tensor.head_stride, tensor.row_stride};
    const auto at = reinterpret_cast<std::uintptr_t>(tensor.data);
    for (const Region& region : regions) {
      const auto begin = reinterpret_cast<std::uintptr_t>(region.data);
      if (at < begin || at >= begin + region.bytes) continue;
      F nan;
      nan.__x = static_cast<__nv_fp8_storage_t>(attile::Fp8Format<F>::kNan);
      codes_.assign(region.bytes / sizeof(T), nan);
      view_.data = codes_.data() + (at - begin) / sizeof(T);
    }
    if (view_.data == nullptr) return;
    for (int b = 0; b < shape.batches; ++b) {
      for (int h = 0; h < heads; ++h) {
        for (int r = 0; r < shape.rows; ++r) {
          const T* const from = tensor.row(b, h, r);
          F* const to = const_cast<F*>(view_.row(b, h, r));
          for (int c = 0; c < dim; ++c) {
            const float x = attile::to_float(from[c]);
            if (std::isfinite(x)) to[c] = attile::from_float<F>(x / scale_of(h));
          }
        }
      }
    }
    before_ = codes_;
  }

  attile::Tensor<const F> view() const { return view_; }
  Region region() { return {codes_.data(), codes_.size()}; }
  bool is_changed() const { return std::memcmp(codes_.data(), before_.data(), codes_.size()) != 0; }

 private:
  attile::Tensor<const F> view_{};
  std::vector<F> codes_, before_;
};

/// The forward pass of an executor with keys and values in fp8. Half of the problems have scales
/// for each sequence and head, and the others, whose heads are one, for the tensor.
template <class Inner, attile::Fp8 K, attile::Fp8 V>
struct Fp8Cache : Inner {
  static constexpr Fp8Pair kFp8 = {kFp8TypeOf<K>, kFp8TypeOf<V>};

  template <class P, class E>
  attile::Check forward(const attile::Arguments<attile::Direction::kForward, E, P>& a,
                        const std::vector<Region>& regions) const {
    using T = typename E::Q;
    attile::Arguments<attile::Direction::kForward, attile::Elements<T, K, V, typename E::O>, P>
        fp8{};
    const auto dims = attile::head_dims(a, 0, 0);
    const attile::RowShape keys = a.sequences.kv_shape(a.batch, a.kv_len);
    Fp8Copy<K> k(a.k, keys, a.kv_heads, dims.qk, regions, k_scale_of);
    Fp8Copy<V> v(a.v, keys, a.kv_heads, dims.v, regions, v_scale_of);
    std::vector<float> scales;
    for (int b = 0; b < a.batch; ++b) {
      for (int h = 0; h < a.kv_heads; ++h) scales.push_back(k_scale_of(h));
      for (int h = 0; h < a.kv_heads; ++h) scales.push_back(v_scale_of(h));
    }
    fp8.q = a.q, fp8.k = k.view(), fp8.v = v.view(), fp8.o = a.o, fp8.lse = a.lse;
    if (a.batch > 0) {
      const bool is_one = a.kv_heads == 1;
      const attile::Scales layout{nullptr, is_one ? 0 : 2 * a.kv_heads, is_one ? 0 : 1};
      fp8.k_scale = fp8.v_scale = layout;
      fp8.k_scale.data = scales.data();
      fp8.v_scale.data = scales.data() + a.kv_heads;
    }
    fp8.batch = a.batch, fp8.q_heads = a.q_heads, fp8.kv_heads = a.kv_heads;
    fp8.q_len = a.q_len, fp8.kv_len = a.kv_len;
    fp8.head_dim = a.head_dim, fp8.head_dim_v = a.head_dim_v, fp8.scale = a.scale;
    fp8.mask = a.mask, fp8.score_mod = a.score_mod, fp8.dropout = a.dropout;
    fp8.sequences = a.sequences, fp8.sink = a.sink;
    std::vector<Region> all = regions;
    all.push_back(k.region());
    all.push_back(v.region());
    all.push_back({scales.data(), scales.size() * sizeof(float)});
    const attile::Check check = Inner::forward(fp8, all);
    if (k.is_changed() || v.is_changed()) {
      return {cudaErrorIllegalAddress, "the pass writes to the keys or values in fp8"};
    }
    return check;
  }
};

}  // namespace attile_test
