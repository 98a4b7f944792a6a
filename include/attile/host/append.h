// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/append.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/core/rotary.h>
#include <attile/core/status.h>

#include <cstdint>

namespace attile::host {

namespace detail {

/// Returns an element as the cache stores it: in fp8 what it is over the scale.
template <class X, class T>
X stored(T x, float scale) {
  if constexpr (Fp8<X>) {
    return from_float<X>(to_float(x) / scale);
  } else {
    return x;
  }
}

/// Copies a row of Q or K, rotated by the angles of a position. `to` may be `from`.
template <class T, class X, class R>
void rotate_row(const T* from, X* to, int dim, float scale, const R& rotary,
                std::int64_t position) {
  int copied = 0;  // elements that are not rotated lie behind the others
  if constexpr (R::kEnabled) {
    for (int pair = 0; rotary.rotates(pair); ++pair) {
      const auto [first, second] = rotary.offsets(pair, 1);
      const std::int64_t angle = rotary.angle(position, pair);
      const RotatedPair turned =
          attile::rotate(to_float(from[first]), to_float(from[second]), to_float(rotary.cos[angle]),
                         to_float(rotary.sin[angle]));
      to[first] = stored<X>(from_float<T>(turned.first), scale);
      to[second] = stored<X>(from_float<T>(turned.second), scale);
    }
    copied = rotary.dims;
  }
  for (int c = copied; c < dim; ++c) to[c] = stored<X>(from[c], scale);
}

}  // namespace detail

/// Writes new keys and values into a cache in host memory, and rotates, as attile::append does in
/// device memory. Sequences are taken in order, by the calling thread.
/// Errors   never throws: bad arguments are a Check that says so, and then nothing is written.
template <class E, class S, class R>
[[nodiscard]] Check append(const AppendArgs<E, S, R>& args) {
  if (const Check ok = check_arguments(args); !ok) return ok;
  if (args.q_len == 0) return {};  // the sequences may be null then
  const auto a = attile::detail::resolved(args);
  for (int sequence = 0; sequence < a.batch; ++sequence) {
    const int rows = extent_of(a, sequence).q_len;
    for (int i = 0; i < rows; ++i) {
      const NewRow at = new_row(a, sequence, rows, i);
      const auto [batch, row] = at.origin;
      for (int head = 0; head < a.q_heads && at.has_angles; ++head) {
        detail::rotate_row(a.q.row(batch, head, row), a.q_out.row(batch, head, row), a.head_dim,
                           1.0f, a.rotary, at.rotary_position);
      }
      const auto [cache, to] = cache_row(a, sequence, at);
      if (cache < 0) {
        if (a.dropped != nullptr) ++*a.dropped;
        continue;
      }
      for (int head = 0; head < a.kv_heads; ++head) {
        detail::rotate_row(a.k_new.row(batch, head, row), a.k.row(cache, head, to), a.head_dim,
                           a.k_scale.at(sequence, head), a.rotary, at.rotary_position);
        detail::rotate_row(a.v_new.row(batch, head, row), a.v.row(cache, head, to), a.head_dim_v,
                           a.v_scale.at(sequence, head), NoRotary(), 0);
      }
    }
  }
  return {};
}

}  // namespace attile::host
