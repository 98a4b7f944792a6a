// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/fp8.h>
#include <attile/core/quantize.h>
#include <attile/core/sequences.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/random.h"
#include "support/tensors.h"

// `quantize` against plain loops, for any executor: a function of the arguments, with host
// pointers, and their regions, that returns a text of what went wrong.

namespace attile_test {

/// Which maxima are one: of the tensor, of a head of all sequences, or of a head of one.
enum class ScaleOf { kTensor, kHead, kSequenceAndHead };

struct QuantizeCase {
  std::string name;
  int batch, q_heads, kv_heads, q_len, kv_len, head_dim, head_dim_v;
  ScaleOf scale_of = ScaleOf::kSequenceAndHead;
  int padding = 0;  // elements between rows
  bool lengths = false;
};

inline const std::vector<QuantizeCase>& quantize_cases() {
  using enum ScaleOf;
  static const std::vector<QuantizeCase> cases = {
      {"one", 1, 1, 1, 1, 1, 8, 8},
      {"heads", 2, 6, 2, 5, 70, 64, 64},
      {"tensor", 2, 4, 2, 130, 66, 40, 24, kTensor},
      {"head", 3, 3, 3, 9, 65, 128, 64, kHead},
      {"odd", 2, 2, 1, 7, 33, 41, 7, kSequenceAndHead},
      {"padded_rows", 2, 2, 2, 3, 100, 64, 32, kSequenceAndHead, 3},
      {"own_lengths", 3, 4, 2, 20, 90, 64, 64, kSequenceAndHead, 0, true},
      {"no_keys", 1, 2, 2, 3, 0, 16, 16},
      {"no_sequences", 0, 2, 2, 3, 4, 16, 16},
  };
  return cases;
}

/// The memory of a case: tensors in T, all elements of which are numbers, but for a NaN and an
/// infinity; and outputs between guards.
template <class T, class E>
class QuantizeProblem {
 public:
  using Args = attile::QuantizeArgs<T, E, attile::Padded>;

  explicit QuantizeProblem(const QuantizeCase& the_case) : c_(the_case) {
    fill(q_, 1, c_.q_heads, c_.q_len, c_.head_dim);
    fill(k_, 2, c_.kv_heads, c_.kv_len, c_.head_dim);
    fill(v_, 3, c_.kv_heads, c_.kv_len, c_.head_dim_v);
    scales_.assign(3 * scale_count() + 2, -7.0f);
    for (int b = 0; b < c_.batch; ++b) {
      q_lengths_.push_back(c_.lengths ? (c_.q_len * b + 1) / 2 : c_.q_len);
      kv_lengths_.push_back(c_.lengths ? c_.kv_len - 31 * b : c_.kv_len);
    }
  }

  Args args() {
    Args a{};
    const auto view = [&](auto& x, int heads, int rows, int dim) {
      using X = std::remove_reference_t<decltype(x[0])>;
      const std::int64_t row = dim + c_.padding;
      return attile::Tensor<X>{x.data() + kGuard, row * rows * heads, row * rows, row};
    };
    a.q = view(q_.from, c_.q_heads, c_.q_len, c_.head_dim);
    a.k = view(k_.from, c_.kv_heads, c_.kv_len, c_.head_dim);
    a.q_out = view(q_.to, c_.q_heads, c_.q_len, c_.head_dim);
    a.k_out = view(k_.to, c_.kv_heads, c_.kv_len, c_.head_dim);
    const auto scale = [&](int role) {
      float* const first = scales_.data() + 1 + role * scale_count();
      if (c_.scale_of == ScaleOf::kTensor) return attile::WritableScales{first};
      if (c_.scale_of == ScaleOf::kHead) return attile::WritableScales{first, 0, 1};
      return attile::WritableScales{first, c_.kv_heads, 1};
    };
    a.q_scale = scale(0), a.k_scale = scale(1);
    if constexpr (attile::Fp8<typename E::V>) {
      a.v = view(v_.from, c_.kv_heads, c_.kv_len, c_.head_dim_v);
      a.v_out = view(v_.to, c_.kv_heads, c_.kv_len, c_.head_dim_v);
      a.v_scale = scale(2);
    }
    a.batch = c_.batch, a.q_heads = c_.q_heads, a.kv_heads = c_.kv_heads;
    a.q_len = c_.q_len, a.kv_len = c_.kv_len;
    a.head_dim = c_.head_dim, a.head_dim_v = c_.head_dim_v;
    if (c_.lengths) {
      a.sequences.seqused_q = q_lengths_.data(), a.sequences.seqused_k = kv_lengths_.data();
    }
    return a;
  }
  std::vector<Region> regions() {
    const auto region = [](auto& x) { return Region{x.data(), x.size() * sizeof(x[0])}; };
    return {region(q_.from), region(k_.from), region(v_.from),    region(q_.to),      region(k_.to),
            region(v_.to),   region(scales_), region(q_lengths_), region(kv_lengths_)};
  }

  /// Whether all outputs are those of plain loops, and nothing else is written.
  void check() {
    check(q_, 0, c_.q_heads, c_.q_len, c_.head_dim, q_lengths_);
    check(k_, 1, c_.kv_heads, c_.kv_len, c_.head_dim, kv_lengths_);
    if constexpr (attile::Fp8<typename E::V>) {
      check(v_, 2, c_.kv_heads, c_.kv_len, c_.head_dim_v, kv_lengths_);
    }
    CHECK(scales_.front() == -7.0f);
    CHECK(scales_.back() == -7.0f);
  }

 private:
  static constexpr std::int64_t kGuard = 32;
  template <class F>
  struct Memory {
    std::vector<T> from;
    std::vector<F> to;
  };

  int scale_count() const {
    if (c_.scale_of == ScaleOf::kTensor) return 1;
    return c_.scale_of == ScaleOf::kHead ? c_.kv_heads : std::max(c_.batch, 1) * c_.kv_heads;
  }
  int scale_number(int b, int kv_head) const {
    if (c_.scale_of == ScaleOf::kTensor) return 0;
    return c_.scale_of == ScaleOf::kHead ? kv_head : b * c_.kv_heads + kv_head;
  }
  template <class F>
  static F marker() {
    if constexpr (attile::Fp8<F>) return std::bit_cast<F>(std::uint8_t{0x55});
    return F{};
  }
  template <class F>
  void fill(Memory<F>& memory, std::uint64_t seed, int heads, int rows, int dim) {
    const std::int64_t count = std::int64_t{c_.batch} * heads * rows * (dim + c_.padding);
    const Random random(seed);
    memory.from.assign(count + 2 * kGuard, attile::from_float<T>(1e4f));  // around: larger than all
    for (std::int64_t i = 0; i < count; ++i) {
      memory.from[kGuard + i] = attile::from_float<T>(random.normal(i));
    }
    if (count > 200) {
      memory.from[kGuard + 3] = attile::from_float<T>(std::numeric_limits<float>::quiet_NaN());
      memory.from[kGuard + 5] = attile::from_float<T>(-attile::kInf);
    }
    memory.to.assign(count + 2 * kGuard, marker<F>());
  }

  template <class F>
  void check(const Memory<F>& memory, int role, int heads, int rows, int dim,
             const std::vector<int>& lengths) {
    std::vector<float> largest(scale_count(), 0.0f);
    const auto each = [&](const auto& f) {
      for (int b = 0; b < c_.batch; ++b) {
        for (int h = 0; h < heads; ++h) {
          for (int r = 0; r < lengths[b]; ++r) {
            for (int col = 0; col < dim; ++col) {
              const std::int64_t at =
                  ((std::int64_t{b} * heads + h) * rows + r) * (dim + c_.padding) + col;
              f(scale_number(b, h / (heads / c_.kv_heads)), kGuard + at);
            }
          }
        }
      }
    };
    each([&](int number, std::int64_t at) {
      const float x = std::abs(attile::to_float(memory.from[at]));
      if (std::isfinite(x)) largest[number] = std::max(largest[number], x);
    });
    const float most = attile::Fp8Format<F>::kIsE4m3 ? 448.0f : 57344.0f;
    const float* const scales = scales_.data() + 1 + role * scale_count();
    if (c_.batch > 0) {
      for (int i = 0; i < scale_count(); ++i) {
        CHECK(scales[i] == (largest[i] == 0 ? 1.0f : largest[i] / most));
      }
    }
    std::vector<F> wanted(memory.to.size(), marker<F>());
    each([&](int number, std::int64_t at) {
      wanted[at] = attile::from_float<F>(attile::to_float(memory.from[at]) / scales[number]);
    });
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) wrong += wanted[i].__x != memory.to[i].__x;
    CHECK(wrong == 0);
  }

  QuantizeCase c_;
  Memory<typename E::Q> q_;
  Memory<typename E::K> k_;
  Memory<typename E::V> v_;
  std::vector<float> scales_;
  std::vector<int> q_lengths_, kv_lengths_;
};

template <class T, class E, class Run>
void check_quantize_of(const Run& run, int smallest_run) {
  for (const QuantizeCase& c : quantize_cases()) {
    const bool bytes = (c.head_dim + c.padding) % smallest_run != 0 ||
                       (c.head_dim_v + c.padding) % smallest_run != 0;
    if (bytes) continue;
    INFO(c.name);
    QuantizeProblem<T, E> problem(c);
    CHECK(run(problem) == "");
    problem.check();
  }
}

/// All types and cases. smallest_run: the elements that rows are multiples of, 1 for all.
template <class Run>
void check_quantize(const Run& run, int smallest_run = 1) {
  using E4m3 = __nv_fp8_e4m3;
  using E5m2 = __nv_fp8_e5m2;
  check_quantize_of<__half, attile::Elements<E4m3, E4m3, E4m3, __half>>(run, smallest_run);
  check_quantize_of<__nv_bfloat16, attile::Elements<E5m2, E4m3, E5m2, __half>>(run, smallest_run);
  check_quantize_of<float, attile::Elements<E5m2, E5m2, __half, __half>>(run, smallest_run);
}

}  // namespace attile_test
