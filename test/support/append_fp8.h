// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/append.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/host/append.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "support/append.h"
#include "support/catch.h"

// `append` into a cache in fp8 against `append` into one of 16 bits: what is stored is each number
// of that one over its scale, rounded.

namespace attile_test {

/// The memory of a case whose caches of keys and of values are two buffers of fp8, laid out as the
/// one of 16 bits.
template <class T, class S, class R, attile::Fp8 K, attile::Fp8 V>
class Fp8AppendProblem : public AppendProblem<T, S, R> {
  using Base = AppendProblem<T, S, R>;

 public:
  using Args = attile::AppendArgs<attile::Elements<T, K, V>, S, R>;

  explicit Fp8AppendProblem(const AppendCase& the_case) : Base(the_case) {
    spoil(*this);
    k_codes.assign(this->cache.size(), untouched<K>());
    v_codes.assign(this->cache.size(), untouched<V>());
    // Not powers of two: quotients are rounded twice, to fp32 and to fp8.
    for (int i = 0; i < this->c.batch * this->c.kv_heads; ++i) {
      scales.push_back(0.01f * static_cast<float>(1 + i * 7 % 11));
      scales.push_back(0.3f + 0.07f * static_cast<float>(i % 5));
    }
  }

  std::vector<Region> regions() {
    std::vector<Region> all = Base::regions();
    all.push_back({k_codes.data(), k_codes.size()});
    all.push_back({v_codes.data(), v_codes.size()});
    all.push_back({scales.data(), scales.size() * sizeof(float)});
    return all;
  }
  template <class At>
  Args args(const At& at) {
    const auto a = Base::args(at);
    const auto moved = [&](const attile::Tensor<T>& t, auto* codes) {
      using F = std::remove_pointer_t<decltype(codes)>;
      const auto elements = (reinterpret_cast<std::intptr_t>(t.data) -
                             reinterpret_cast<std::intptr_t>(at(this->cache.data()))) /
                            static_cast<std::intptr_t>(sizeof(T));
      return attile::Tensor<F>{
          reinterpret_cast<F*>(reinterpret_cast<std::intptr_t>(at(codes)) + elements),
          t.batch_stride, t.head_stride, t.row_stride};
    };
    const float* const first = at(scales.data());
    const int heads = this->c.kv_heads;
    return {.k_new = a.k_new,
            .v_new = a.v_new,
            .k = moved(a.k, k_codes.data()),
            .v = moved(a.v, v_codes.data()),
            .k_scale = {first, 2 * heads, 2},
            .v_scale = {first + 1, 2 * heads, 2},
            .q = a.q,
            .q_out = a.q_out,
            .dropped = a.dropped,
            .batch = a.batch,
            .q_heads = a.q_heads,
            .kv_heads = a.kv_heads,
            .q_len = a.q_len,
            .kv_len = a.kv_len,
            .head_dim = a.head_dim,
            .head_dim_v = a.head_dim_v,
            .rotary = a.rotary,
            .sequences = a.sequences};
  }

  /// Holds the outputs against those of a cache of 16 bits.
  void check() const {
    Fp8AppendProblem wide(this->c);
    REQUIRE(attile::host::append(wide.Base::args([](auto* x) { return x; })));
    CHECK(this->dropped == wide.dropped);
    const std::vector<T>&q = this->q_to(), &wide_q = wide.q_to();
    int wrong = 0, saturated = 0, nans = 0;
    for (std::size_t i = 0; i < q.size(); ++i) wrong += !same_bits(q[i], wide_q[i]);
    CHECK(wrong == 0);
    const std::int64_t k_columns = std::int64_t{this->c.kv_heads} * this->c.dim;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(k_codes.size()); ++i) {
      const std::int64_t column = (i - this->first()) % this->cache_stride();
      const bool is_k = column < k_columns;
      K k = untouched<K>();
      V v = untouched<V>();
      if (const int b = this->sequence_of[i]; b >= 0) {
        const auto head =
            static_cast<int>(is_k ? column / this->c.dim : (column - k_columns) / this->c.dim_v);
        const float scale = scales[2 * (b * this->c.kv_heads + head) + (is_k ? 0 : 1)];
        const float quotient = attile::to_float(wide.cache[i]) / scale;
        saturated += quotient > 1e6f, nans += quotient != quotient;
        if (is_k) k = attile::from_float<K>(quotient);
        if (!is_k) v = attile::from_float<V>(quotient);
      }
      wrong += !same_bits(k, k_codes[i]) + !same_bits(v, v_codes[i]);
    }
    CHECK(wrong == 0);
    CHECK((saturated > 0 && nans > 0));
  }

 private:
  template <class F>
  static F untouched() {
    F x;
    x.__x = 0xA5;
    return x;
  }
  /// Makes some of the new keys and values what has no number in fp8.
  static void spoil(Base& base) {
    auto& problem = static_cast<Fp8AppendProblem&>(base);
    const float values[] = {std::numeric_limits<float>::quiet_NaN(), attile::kInf, -attile::kInf,
                            60000.0f, -1e-6f};
    const std::int64_t q_columns = std::int64_t{problem.c.q_heads} * problem.c.dim;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(problem.new_rows.size()); ++i) {
      const std::int64_t column = (i - problem.first()) % problem.new_stride();
      const bool is_gap = column >= problem.new_stride() - problem.odd();
      if (i < problem.first() || column < q_columns || is_gap || i % 11 != 0) continue;
      problem.new_rows[i] = attile::from_float<T>(values[i / 11 % 5]);
    }
  }

  std::vector<K> k_codes;
  std::vector<V> v_codes;
  std::vector<float> scales;  ///< (batch, kv_heads, K and V)
};

/// Runs the cases that `takes` takes.
template <class Append, class Takes>
void check_fp8_appends(const Append& append, const Takes& takes) {
  using E4m3 = __nv_fp8_e4m3;
  using E5m2 = __nv_fp8_e5m2;
  using attile::NoRotary;
  using attile::Rotary;
  const auto run = [&](auto problem) {
    REQUIRE(append(problem) == std::string());
    problem.check();
  };
  for (const AppendCase& c : append_cases()) {
    if (!takes(c)) continue;
    INFO(c.name);
    run(Fp8AppendProblem<__half, attile::Paged, Rotary<>, E4m3, E5m2>(c));
    run(Fp8AppendProblem<__nv_bfloat16, attile::CachedPacked, Rotary<>, E4m3, E4m3>(c));
    run(Fp8AppendProblem<__nv_bfloat16, attile::PagedPacked, NoRotary, E5m2, E4m3>(c));
  }
}

}  // namespace attile_test
