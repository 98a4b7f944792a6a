// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/core/config.h>
#include <attile/core/fp8.h>
#include <attile/core/math.h>
#include <attile/core/quantize.h>
#include <attile/core/tensor.h>

#include <cstdint>

namespace attile {

/// The threads of a block, and the rows of a block of a tensor.
inline constexpr int kQuantizeThreads = 128;
inline constexpr int kQuantizeRows = 64;

/// Holds the one argument of the kernels.
template <class Args>
struct QuantizeParams {
  using T = typename Args::ElementType;
  /// The elements that one instruction loads: 16 bytes.
  static constexpr int kVector = 16 / sizeof(T);

  Args args;           ///< resolved
  int chunks[3];       ///< of kQuantizeRows rows, of a head of each role
  int heads[3];        ///< of each role; 0 where it is not given
  int vectors[3];      ///< whether rows can be moved by vectors
  int sequence_tiles;  ///< of all heads of a sequence

  /// Takes arguments that passed `check_arguments`.
  explicit QuantizeParams(const Args& given) : args(detail::resolved(given)) {
    const auto set = [&](int role, const auto& from, const auto& to, int count, int len, int dim) {
      heads[role] = from.data == nullptr ? 0 : count;
      chunks[role] = ceil_div(len, kQuantizeRows);
      vectors[role] = dim % kVector == 0 && aligned(from, 16) && aligned(to, kVector);
    };
    set(0, args.q, args.q_out, args.q_heads, args.q_len, args.head_dim);
    set(1, args.k, args.k_out, args.kv_heads, args.kv_len, args.head_dim);
    set(2, args.v, args.v_out, args.kv_heads, args.kv_len, args.head_dim_v);
    sequence_tiles = static_cast<int>(tiles_of_sequence());
  }

  /// Returns the blocks of the kernels for tensors.
  std::int64_t tiles() const { return tiles_of_sequence() * args.batch; }
  /// Returns the threads of the kernels for scales.
  std::int64_t scales() const { return std::int64_t{args.batch} * args.kv_heads; }

 private:
  std::int64_t tiles_of_sequence() const {
    std::int64_t tiles = 0;
    for (int role = 0; role < 3; ++role) tiles += std::int64_t{heads[role]} * chunks[role];
    return tiles;
  }
  /// Returns whether an address, and strides, are multiples of `bytes`.
  template <class X>
  static bool aligned(const Tensor<X>& x, int bytes) {
    const auto is_multiple = [&](std::int64_t stride) {
      return stride * static_cast<std::int64_t>(sizeof(X)) % bytes == 0;
    };
    return reinterpret_cast<std::intptr_t>(x.data) % bytes == 0 && is_multiple(x.batch_stride) &&
           is_multiple(x.head_stride) && is_multiple(x.row_stride);
  }
};

/// Calls f(rows, scale, row0, vectors) with the rows of a tile, of which those from row0 on are its
/// own, and with the place of their scale.
template <class Args, class F>
ATTILE_DEVICE void with_tile(const QuantizeParams<Args>& p, std::int64_t tile, const F& f) {
  const int sequence = static_cast<int>(tile / p.sequence_tiles);
  int rest = static_cast<int>(tile % p.sequence_tiles);
  int role = 0;
  ATTILE_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int of_role = p.heads[r] * p.chunks[r];
    if (role != r || rest < of_role) continue;
    rest -= of_role;
    role = r + 1;
  }
  const int head = rest / p.chunks[role], row0 = rest % p.chunks[role] * kQuantizeRows;
  const int kv_head = role == 0 ? head / (p.args.q_heads / p.args.kv_heads) : head;
  with_rows(p.args, static_cast<QuantizeRole>(role), sequence, head, [&](const auto& rows) {
    if (row0 < rows.rows) f(rows, &rows.scales.at(sequence, kv_head), row0, p.vectors[role] != 0);
  });
}

/// Calls f(scale, largest_number) with the places of the scales of a sequence and kv head, by
/// number, that are none of earlier ones, and with the largest number of their types.
template <class Args, class F>
ATTILE_DEVICE void with_scales(const QuantizeParams<Args>& p, std::int64_t number, const F& f) {
  const int kv_heads = p.args.kv_heads;
  const auto sequence = static_cast<int>(number / kv_heads);
  const auto kv_head = static_cast<int>(number % kv_heads);
  if (sequence >= p.args.batch) return;
  const auto call = [&]<class X>(const Tensor<X>& to, const WritableScales& scales) {
    if constexpr (Fp8<X>) {
      if (to.data == nullptr || !scales.is_first(sequence, kv_head)) return;
      f(scales.at(sequence, kv_head), to_float(largest_number<X>()));
    }
  };
  call(p.args.q_out, p.args.q_scale);
  call(p.args.k_out, p.args.k_scale);
  call(p.args.v_out, p.args.v_scale);
}

}  // namespace attile
