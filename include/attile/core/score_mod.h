// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/overlap.h>
#include <attile/core/policy.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace attile {

/// Holds what a score modifier returns for a score s: f(s), and f'(s) for the backward pass.
template <class Real>
struct ModifiedScore {
  Real value;
  Real derivative;
};

/// A score modifier maps a score to another: `mod(s, index, extent) -> ModifiedScore`, where
/// s = scale * (q . k). It is copied to the device, so pointers in it are device pointers (host
/// pointers for the CPU executor). It is called for scores inside the extent, also for those that
/// the mask hides, where its result is not used. Make the call operator a template over the type of
/// s if the fp64 reference should compute it in fp64. A modifier that may return -inf declares
/// `static constexpr bool kMayHide = true`. One that reads an element for each score may declare it
/// too: the backward pass then does not call it for hidden scores. One with parameters whose
/// gradient is wanted declares what kHasGradient says.
template <class S>
concept ScoreMod = std::is_trivially_copyable_v<S> &&
    requires(const S& mod, float s, ScoreIndex index, Extent extent) {
  { mod(s, index, extent).value } -> std::convertible_to<float>;
  { mod(s, index, extent).derivative } -> std::convertible_to<float>;
};

/// Leaves scores as they are; costs nothing.
struct NoScoreMod {
  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex, Extent) const {
    return {s, Real(1)};
  }
};

template <class S>
inline constexpr bool kIsIdentity = std::is_same_v<S, NoScoreMod>;

/// Says whether a modifier may turn a visible score into -inf.
template <class S>
inline constexpr bool kMayHide = [] {
  if constexpr (requires { S::kMayHide; }) return bool(S::kMayHide);
  return false;
}();

/// Says whether the backward pass also gives the gradient of a modifier's parameters: a bias,
/// slopes, a cap. Such a modifier declares `static constexpr bool kHasGradient = true` and has,
/// const and ATTILE_HOST_DEVICE,
///   add_gradient(s, ds, index, extent, add): calls add(float* where, value) for each parameter
///     that the score depends on; value is ds times the derivative of its output by that parameter,
///     and ds = dS' = P * (dP - D + dLSE). Not called for hidden scores.
///   gradient_lines(shape), gradient_line(n, shape): all elements of its gradient, as that many
///     GradientLines, each once; they begin as zeros, in a problem without scores too.
/// It may also have, for the host,
///   gradient_fault(shape): the sentence why it cannot be written, null when it can.
///   adds_once(shape): whether no two scores add to the same element. Otherwise sums run in no
///     fixed order, and the deterministic DqModes always refuse the problem.
template <class S>
inline constexpr bool kHasGradient = [] {
  static_assert(
      !requires { S::kLearns; },
      "attile: a score modifier declares kHasGradient, which was kLearns "
      "(docs/migration.md)");
  if constexpr (requires { S::kHasGradient; }) return bool(S::kHasGradient);
  return false;
}();

/// Names elements of a gradient, `stride` apart.
struct GradientLine {
  float* first = nullptr;
  int count = 0;
  std::int64_t stride = 1;
};

/// Returns the number of a modifier's gradient lines: 0 of one without a gradient.
template <ScoreMod S>
ATTILE_HOST_DEVICE std::int64_t gradient_lines(const S& mod, const ScoreShape& shape) {
  if constexpr (kHasGradient<S>) return mod.gradient_lines(shape);
  return 0;
}

/// Returns why the gradient cannot be written; null when it can.
template <ScoreMod S>
constexpr const char* gradient_fault(const S& mod, const ScoreShape& shape) {
  if constexpr (kHasGradient<S> && requires { mod.gradient_fault(shape); }) {
    return mod.gradient_fault(shape);
  }
  return nullptr;
}

/// Returns whether no two scores add to the same element of a modifier's gradient.
template <ScoreMod S>
constexpr bool adds_once(const S& mod, const ScoreShape& shape) {
  if constexpr (!kHasGradient<S>) return true;
  if constexpr (requires { mod.adds_once(shape); }) return mod.adds_once(shape);
  return false;
}

/// Adds ALiBi (arXiv 2108.12409): s - slope * |i + kv_len - q_len - j|.
/// Shapes   slopes: (q_heads), or (batch, q_heads) with batch_stride = q_heads.
struct Alibi {
  const float* slopes = nullptr;
  std::int64_t batch_stride = 0;

  const char* fault() const {
    return slopes == nullptr ? "Alibi: slopes must not be null" : nullptr;
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent e) const {
    const int distance = i.row + e.shift() - i.col;
    const Real slope = slopes[i.batch * batch_stride + i.head];
    // An explicit fma rounds once: the same bits wherever the compiler puts the product.
    return {std::fma(-slope, Real(distance < 0 ? -distance : distance), s), Real(1)};
  }
};

/// Caps scores: cap * tanh(s / cap). Units: cap > 0.
struct Softcap {
  float cap = 50.0f;

  const char* fault() const {
    return cap > 0.0f && cap < kInf ? nullptr : "Softcap: cap must be finite and > 0";
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex, Extent) const {
    // It is the same for all scores, so the compiler computes it once: a division takes ten
    // instructions, and registers. The bound keeps it finite for the smallest caps: 0 stays 0.
    const Real inverse = min(Real(1) / Real(cap), Real(3e38f));
    const Real t = std::tanh(s * inverse);
    return {Real(cap) * t, Real(1) - t * t};
  }
};

/// Adds a bias: s + bias[batch, head, row, col]; a bias of -inf hides the score.
/// Units   strides count elements; 0 broadcasts along that axis.
template <Element T = float>
struct AdditiveBias {
  const T* bias = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;

  static constexpr bool kMayHide = true;

  const char* fault() const {
    return bias == nullptr ? "AdditiveBias: bias must not be null" : nullptr;
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent) const {
    const std::int64_t at =
        i.batch * batch_stride + i.head * head_stride + i.row * row_stride + i.col * col_stride;
    return {s + Real(to_float(bias[at])), Real(1)};
  }
};

/// Says where the gradient of a bias goes: fp32, [batch, head, row, col].
/// Units   strides count elements, of any sign. 0 sums over that axis; row_stride = -col_stride has
///         one element for each col - row, and row_stride = col_stride for each col + row.
struct BiasGradient {
  float* data = nullptr;  ///< the element of the score (0, 0, 0, 0)
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;

  ATTILE_HOST_DEVICE float* at(std::int64_t batch, std::int64_t head, std::int64_t row,
                               std::int64_t col) const {
    return data + batch * batch_stride + head * head_stride + row * row_stride + col * col_stride;
  }

  ATTILE_HOST_DEVICE std::int64_t lines(const ScoreShape& s) const {
    return cols(s) == 0 ? 0 : batches(s) * heads(s) * rows(s);
  }
  /// Returns the elements that a row has and the rows before it have not.
  ATTILE_HOST_DEVICE GradientLine line(std::int64_t n, const ScoreShape& s) const {
    const std::int64_t slice = n / rows(s), row = n % rows(s);
    const std::int64_t batch = slice / heads(s), head = slice % heads(s);
    if (row == 0 || !diagonal()) return {at(batch, head, row, 0), cols(s), col_stride};
    return {at(batch, head, row, row_stride == col_stride ? cols(s) - 1 : 0), 1, 1};
  }

  /// Returns whether elements share memory beyond what a stride of 0 or a diagonal implies.
  bool overlaps_itself(const ScoreShape& s) const {
    const std::int64_t diagonals = rows(s) + cols(s) - 1;
    return strides_overlap<4>(
        {batches(s), heads(s), diagonal() ? diagonals : rows(s), diagonal() ? 1 : cols(s)},
        {batch_stride, head_stride, row_stride, col_stride}, 1);
  }
  /// Returns whether no two scores share an element; true without scores.
  bool one_for_each(const ScoreShape& s) const {
    if (s.batch == 0 || s.heads == 0 || s.extent.q_len == 0 || s.extent.kv_len == 0) return true;
    return !strides_overlap<4>({s.batch, s.heads, s.extent.q_len, s.extent.kv_len},
                               {batch_stride, head_stride, row_stride, col_stride}, 1);
  }

 private:
  ATTILE_HOST_DEVICE bool diagonal() const {
    return row_stride != 0 && (row_stride == col_stride || row_stride == -col_stride);
  }
  // An axis that is summed over has one element, however many scores.
  ATTILE_HOST_DEVICE std::int64_t batches(const ScoreShape& s) const {
    return batch_stride != 0 ? s.batch : 1;
  }
  ATTILE_HOST_DEVICE std::int64_t heads(const ScoreShape& s) const {
    return head_stride != 0 ? s.heads : 1;
  }
  ATTILE_HOST_DEVICE std::int64_t rows(const ScoreShape& s) const {
    return row_stride != 0 ? s.extent.q_len : 1;
  }
  ATTILE_HOST_DEVICE int cols(const ScoreShape& s) const {
    return col_stride != 0 ? s.extent.kv_len : 1;
  }
};

/// Adds a bias as AdditiveBias does, and has a gradient: the backward pass also writes dS', summed
/// as the gradient's strides say, which may differ from the bias's. Hidden scores give 0.
/// Cost     backward an fp32 atomic addition for each score that is not hidden.
template <Element T = float>
struct LearnedBias {
  AdditiveBias<T> bias{};
  BiasGradient gradient{};  ///< the forward pass does not read it

  static constexpr bool kMayHide = true;
  static constexpr bool kHasGradient = true;

  const char* fault() const { return bias.fault(); }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent e) const {
    return bias(s, i, e);
  }

  template <class Real, class Add>
  ATTILE_HOST_DEVICE void add_gradient(Real, Real ds, ScoreIndex i, Extent, const Add& add) const {
    add(gradient.at(i.batch, i.head, i.row, i.col), ds);
  }
  ATTILE_HOST_DEVICE std::int64_t gradient_lines(const ScoreShape& s) const {
    return gradient.lines(s);
  }
  ATTILE_HOST_DEVICE GradientLine gradient_line(std::int64_t n, const ScoreShape& s) const {
    return gradient.line(n, s);
  }
  const char* gradient_fault(const ScoreShape& s) const {
    if (gradient.lines(s) == 0) return nullptr;
    if (gradient.data == nullptr) return "LearnedBias: gradient must not be null";
    if (reinterpret_cast<std::uintptr_t>(gradient.data) % alignof(float) != 0) {
      return "LearnedBias: gradient is not aligned to 4 bytes";
    }
    if (gradient.overlaps_itself(s)) {
      return "LearnedBias: elements of gradient share memory (see its strides; 0 sums)";
    }
    const void* const input = bias.bias;
    return gradient.data == input ? "LearnedBias: gradient is the memory of the bias" : nullptr;
  }
  bool adds_once(const ScoreShape& s) const { return gradient.one_for_each(s); }
};

/// Applies the second modifier to the result of the first one.
template <ScoreMod First, ScoreMod Second>
struct Then {
  First first{};
  Second second{};

  static constexpr bool kMayHide = attile::kMayHide<First> || attile::kMayHide<Second>;
  static constexpr bool kHasGradient = attile::kHasGradient<First> || attile::kHasGradient<Second>;

  const char* fault() const {
    const char* inner = policy_fault(first);
    return inner != nullptr ? inner : policy_fault(second);
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent e) const {
    const auto inner = first(s, i, e);
    const auto outer = second(Real(inner.value), i, e);
    return {Real(outer.value), Real(outer.derivative) * Real(inner.derivative)};
  }

  template <class Real, class Add>
  ATTILE_HOST_DEVICE void add_gradient(Real s, Real ds, ScoreIndex i, Extent e,
                                       const Add& add) const {
    const Real inner = Real(first(s, i, e).value);
    if constexpr (attile::kHasGradient<Second>) second.add_gradient(inner, ds, i, e, add);
    if constexpr (attile::kHasGradient<First>) {
      first.add_gradient(s, ds * Real(second(inner, i, e).derivative), i, e, add);
    }
  }
  ATTILE_HOST_DEVICE std::int64_t gradient_lines(const ScoreShape& s) const {
    return attile::gradient_lines(first, s) + attile::gradient_lines(second, s);
  }
  ATTILE_HOST_DEVICE GradientLine gradient_line(std::int64_t n, const ScoreShape& s) const {
    const std::int64_t inner = attile::gradient_lines(first, s);
    if constexpr (attile::kHasGradient<First>) {
      if (n < inner) return first.gradient_line(n, s);
    }
    if constexpr (attile::kHasGradient<Second>) return second.gradient_line(n - inner, s);
    return {};
  }
  const char* gradient_fault(const ScoreShape& s) const {
    const char* inner = attile::gradient_fault(first, s);
    return inner != nullptr ? inner : attile::gradient_fault(second, s);
  }
  bool adds_once(const ScoreShape& s) const {
    return attile::adds_once(first, s) && attile::adds_once(second, s);
  }
};

}  // namespace attile
