// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/core/quantize.h>
#include <attile/core/status.h>

#include <algorithm>
#include <cstdint>

namespace attile::host {

/// Rounds Q, K and V to fp8 in host memory, and makes their scales, as attile::quantize does in
/// device memory: the same bits.
/// Errors   never throws: bad arguments are a Check that says so, and then nothing is written.
template <class T, class E, class S>
[[nodiscard]] Check quantize(const QuantizeArgs<T, E, S>& args) {
  if (const Check ok = check_arguments(args); !ok) return ok;
  const auto a = attile::detail::resolved(args);
  const auto each = [&](QuantizeRole role, int sequence, int heads, const auto& f) {
    for (int head = 0; head < heads; ++head) {
      const int kv_head = head / (heads / a.kv_heads);
      with_rows(a, role, sequence, head,
                [&](const auto& rows) { f(rows, rows.scales.at(sequence, kv_head)); });
    }
  };
  const auto quantize_role = [&]<class F>(QuantizeRole role, const Tensor<F>& to, int heads,
                                          const WritableScales& scales) {
    if constexpr (Fp8<F>) {
      if (to.data == nullptr) return;
      const auto each_scale = [&](const auto& f) {
        for (int b = 0; b < a.batch; ++b) {
          for (int h = 0; h < a.kv_heads; ++h) {
            if (scales.is_first(b, h)) f(scales.at(b, h));
          }
        }
      };
      const auto each_row = [&](const auto& f) {
        for (int b = 0; b < a.batch; ++b) {
          each(role, b, heads, [&](const auto& rows, float& scale) {
            for (std::int64_t i = 0; i < rows.rows; ++i) {
              f(rows.from + i * rows.from_stride, rows.to + i * rows.to_stride, rows.cols, scale);
            }
          });
        }
      };
      each_scale([](float& scale) { scale = 0.0f; });
      each_row([](const T* from, const auto*, int cols, float& scale) {
        for (int c = 0; c < cols; ++c) {
          scale = std::max(scale, finite_magnitude(to_float(from[c])));
        }
      });
      each_scale([](float& scale) {
        scale = fitting_scale(scale, scale / to_float(largest_number<F>()));
      });
      each_row([]<class X>(const T* from, X* to_row, int cols, float& scale) {
        for (int c = 0; c < cols; ++c) to_row[c] = from_float<X>(to_float(from[c]) / scale);
      });
    }
  };
  quantize_role(QuantizeRole::kQ, a.q_out, a.q_heads, a.q_scale);
  quantize_role(QuantizeRole::kK, a.k_out, a.kv_heads, a.k_scale);
  quantize_role(QuantizeRole::kV, a.v_out, a.kv_heads, a.v_scale);
  return {};
}

}  // namespace attile::host
