// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/tensor_map.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/status.h>
#include <attile/kernel/backward/backward_params.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/boxed.cuh>

namespace attile::sm90 {

/// Describes Q, K, V, dO, dK and dV as TMA addresses them.
template <class Traits>
struct BoxedGradients {
  arch::BoxedTensor q, k, v, dout, dk, dv;
  bool has_keys, has_rows;  ///< whether K and V, and whether Q, have any rows

  explicit BoxedGradients(const typename Traits::Args& a)
      : BoxedGradients(a, head_dims(a, Traits::kD, Traits::kDv)) {}

  /// Refuses tensors that TMA cannot address, or past whose rows it would write.
  Check check() const {
    if (!has_keys) return {};
    const bool keys =
        arch::boxable(k) && arch::boxable(v) && arch::boxable(dk) && arch::boxable(dv);
    const bool rows = !has_rows || (arch::boxable(q) && arch::boxable(dout));
    if (!keys || !rows) return not_boxable(Direction::kBackward);
    return arch::storable(dk) && arch::storable(dv) ? Check{} : not_storable(Direction::kBackward);
  }

 private:
  using T = typename Traits::ElementType;

  BoxedGradients(const typename Traits::Args& a, HeadDims dims)
      : q(boxed<typename Traits::QTile, T>(a.q, a.sequences.q_shape(a.batch, a.q_len), a.q_heads,
                                           dims.qk)),
        k(boxed<typename Traits::KTile, T>(a.k, a.sequences.kv_shape(a.batch, a.kv_len), a.kv_heads,
                                           dims.qk)),
        v(boxed<typename Traits::VTile, T>(a.v, a.sequences.kv_shape(a.batch, a.kv_len), a.kv_heads,
                                           dims.v)),
        dout(boxed<typename Traits::DoTile, T>(a.dout, a.sequences.q_shape(a.batch, a.q_len),
                                               a.q_heads, dims.v)),
        dk(boxed<typename Traits::DkTile, T>(a.dk, a.sequences.kv_shape(a.batch, a.kv_len),
                                             a.kv_heads, dims.qk)),
        dv(boxed<typename Traits::DvTile, T>(a.dv, a.sequences.kv_shape(a.batch, a.kv_len),
                                             a.kv_heads, dims.v)),
        has_keys(a.batch > 0 && a.kv_len > 0),
        has_rows(a.batch > 0 && a.q_len > 0) {}
};

/// The one argument of the kernels. It adds the tensor maps to attile::BackwardParams.
template <class Traits>
struct BackwardParams : attile::BackwardParams<Traits> {
  arch::TensorMap q_map{}, k_map{}, v_map{}, do_map{}, dk_map{}, dv_map{};

  using attile::BackwardParams<Traits>::BackwardParams;

  /// Makes the tensor maps.
  /// Errors   the reasons of BoxedGradients::check, and those of arch::make_map.
  [[nodiscard]] Check complete(const typename Traits::Args& args) {
    const BoxedGradients<Traits> boxed(args);
    const Check copies = boxed.check();
    return copies ? check_maps(make_maps(boxed)) : copies;
  }

 private:
  [[nodiscard]] cudaError_t make_maps(const BoxedGradients<Traits>& boxed) {
    if (!boxed.has_keys) return cudaSuccess;  // nothing is read
    if (const cudaError_t error = arch::make_map(k_map, boxed.k)) return error;
    if (const cudaError_t error = arch::make_map(v_map, boxed.v)) return error;
    if (const cudaError_t error = arch::make_map(dk_map, boxed.dk)) return error;
    if (const cudaError_t error = arch::make_map(dv_map, boxed.dv)) return error;
    if (!boxed.has_rows) return cudaSuccess;
    if (const cudaError_t error = arch::make_map(q_map, boxed.q)) return error;
    return arch::make_map(do_map, boxed.dout);
  }
};

}  // namespace attile::sm90
