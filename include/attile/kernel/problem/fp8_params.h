// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/fp8.h>

#include <cstdint>

namespace attile::detail {

/// Holds what Q, K and V in fp8 have besides: their scales, and the stride of V's columns. Where
/// there is none it has no size, so that nothing moves in the parameter of a kernel.
template <class E>
struct Fp8Inputs {
  static constexpr bool kHasScales = false;
  template <class Args>
  explicit Fp8Inputs(const Args&) {}
};
template <class E>
  requires(E::kFp8Cache)
struct Fp8Inputs<E> {
  static constexpr bool kHasScales = true;
  Scales k_scale, v_scale;

  template <class Args>
  explicit Fp8Inputs(const Args& args) : k_scale(args.k_scale), v_scale(args.v_scale) {}

  /// Returns the scale of scores, of which `scale` is a part.
  ATTILE_HOST_DEVICE float scaled(float scale, int sequence, int kv_head) const {
    return scale * k_scale.at(sequence, kv_head);
  }
};
template <class E>
  requires(E::kFp8Queries)
struct Fp8Inputs<E> {
  static constexpr bool kHasScales = true;
  Scales q_scale, k_scale;
  ScalesOf<typename E::V> v_scale;
  std::int64_t v_col_stride;  ///< 1 where V has 16 bits

  template <class Args>
  explicit Fp8Inputs(const Args& args)
      : q_scale(args.q_scale),
        k_scale(args.k_scale),
        v_scale(args.v_scale),
        v_col_stride(args.v_col_stride) {}

  /// Returns the scale of scores, of which `scale` is a part: in this order, because the product of
  /// two large or two small scales may be out of range.
  ATTILE_HOST_DEVICE float scaled(float scale, int sequence, int kv_head) const {
    return scale * q_scale.at(sequence, kv_head) * k_scale.at(sequence, kv_head);
  }
};

}  // namespace attile::detail
