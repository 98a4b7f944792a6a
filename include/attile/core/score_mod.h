// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/modifier_gradient.h>
#include <attile/core/policy.h>
#include <attile/core/tensor.h>
#include <attile/core/tile_modifier.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace attile {

/// A score modifier maps a score to another: `mod(s, index, extent) -> ModifiedScore`, where
/// s = scale * (q . k). It is copied to the device, so pointers in it are device pointers (host
/// pointers for the CPU executor). It is called for scores inside the extent, also for those that
/// the mask hides, where its result is not used. Make the call operator a template over the type of
/// s if the fp64 reference should compute it in fp64. A modifier that may return -inf declares
/// `static constexpr bool kMayHide = true`, and one whose derivative is never negative
/// `static constexpr bool kNeverFalls = true`. One that reads an element for each score may declare
/// kMayHide too: the backward pass then does not call it for hidden scores. One with parameters
/// whose gradient is wanted declares what kHasGradient says.
/// It may also say what scores have in common (`of_tile`): see TileModifier.
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
template <>
inline constexpr bool kNeedsScores<NoScoreMod> = false;

/// Says whether a modifier may turn a visible score into -inf.
template <class S>
inline constexpr bool kMayHide = [] {
  if constexpr (requires { S::kMayHide; }) return bool(S::kMayHide);
  return false;
}();

/// Says whether a modifier tends to make the scores of later columns larger, as a distance to a
/// causal diagonal does. Kernels may then begin with those; results differ by rounding alone.
template <class S>
inline constexpr bool kFavorsLateColumns = [] {
  if constexpr (requires { S::kFavorsLateColumns; }) return bool(S::kFavorsLateColumns);
  return false;
}();

/// Says whether a modifier tends to make the scores near the diagonal column = row + kv_len - q_len
/// the largest of a row. Kernels may then begin there; results differ by rounding alone.
template <class S>
inline constexpr bool kFavorsDiagonal = [] {
  if constexpr (requires { S::kFavorsDiagonal; }) return bool(S::kFavorsDiagonal);
  return false;
}();

/// Says whether what a modifier makes of a score depends on that alone, and not on where it is: a
/// Then of it and of one whose data are read ahead has its data read ahead, too. Specialise it for
/// one of your own.
template <class S>
inline constexpr bool kIgnoresPlace = false;

/// Adds ALiBi (arXiv 2108.12409): s - slope * |i + kv_len - q_len - j|.
/// Shapes   slopes: (q_heads), or (batch, q_heads) with batch_stride = q_heads.
struct Alibi {
  static constexpr bool kFavorsDiagonal = true;

  const float* slopes = nullptr;
  std::int64_t batch_stride = 0;

  const char* fault() const {
    if (slopes == nullptr) return "Alibi: slopes must not be null";
    return detail::misaligned(slopes) ? "Alibi: slopes is not aligned to 4 bytes" : nullptr;
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent e) const {
    const int distance = i.row + e.shift() - i.col;
    const Real slope = slopes[i.batch * batch_stride + i.head];
    // An explicit fma rounds once: the same bits wherever the compiler puts the product.
    return {std::fma(-slope, Real(distance < 0 ? -distance : distance), s), Real(1)};
  }

  /// Distances are sums of floats: exact up to 2^24, and beyond rounded as floats are. What a score
  /// gets depends on its row and column by their difference alone, which is a constant of the code:
  /// scores with the same one have it in common. With kExact what is subtracted, which may be far
  /// larger than the score, is not rounded by itself.
  template <bool kExact>
  struct Tile {
    using Modifier = Alibi;
    static constexpr bool kReadsMemory = false;
    float scale, slope, distance;  ///< of the first score
    int rows, cols;

    ATTILE_HOST_DEVICE int row(int dr) const { return dr; }
    ATTILE_HOST_DEVICE int col(int dc) const { return dc; }
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, int row, int col) const {
      const float far = std::fabs(distance + static_cast<float>(row - col));
      if constexpr (kExact) return {std::fma(-slope, far, scale * x), 1.0f};
      return {std::fma(scale, x, -slope * far), 1.0f};
    }
    template <class Products, class F>
    ATTILE_HOST_DEVICE void simplify(const Products& products, const F& f) const {
      if constexpr (kExact) return f(*this);
      const bool below = distance >= static_cast<float>(cols - 1);
      if (products.all(below || distance <= static_cast<float>(1 - rows))) {
        const float towards = below ? slope : -slope;
        f(OneSided{scale, towards, -towards * distance});
      } else {
        f(*this);
      }
    }
  };
  /// Is for scores that are all on one side of the diagonal.
  struct OneSided {
    static constexpr bool kReadsMemory = false;
    float scale, slope, of_first;  ///< of_first: what is added to the first score

    ATTILE_HOST_DEVICE int row(int dr) const { return dr; }
    ATTILE_HOST_DEVICE int col(int dc) const { return dc; }
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, int row, int col) const {
      const float nearer = static_cast<float>(col - row);
      return {std::fma(scale, x, std::fma(slope, nearer, of_first)), 1.0f};
    }
  };
  template <class Math>
  ATTILE_HOST_DEVICE Tile<Math::kExact> of_tile(const ScoreBlock& block, const Math&) const {
    const ScoreIndex i = block.first;
    return {block.scale, slopes[i.batch * batch_stride + i.head],
            static_cast<float>(i.row + block.extent.shift() - i.col), block.rows, block.cols};
  }
};

template <>
inline constexpr bool kNeedsScores<Alibi> = false;

namespace detail {

/// Returns 1 / cap. The bound keeps it finite for the smallest caps, as the next one keeps it times
/// the scale: 0 stays 0.
template <class Real>
ATTILE_HOST_DEVICE Real inverse_of_cap(Real cap) {
  return min(Real(1) / cap, Real(3e38f));
}

ATTILE_HOST_DEVICE float scaled_inverse_of_cap(float cap, float scale) {
  return min(scale * inverse_of_cap(cap), 3e38f);
}

template <class Real>
ATTILE_HOST_DEVICE ModifiedScore<Real> softcap(Real s, Real cap) {
  // The inverse is the same for all scores, so the compiler computes it once: a division takes ten
  // instructions, and registers.
  const Real t = std::tanh(s * inverse_of_cap(cap));
  return {cap * t, Real(1) - t * t};
}

/// Caps the scores of a tile of the modifier S. The derivative comes from the value.
template <class S, class Tanh>
struct SoftcapTile {
  using Modifier = S;
  static constexpr bool kReadsMemory = false;
  float inverse_cap;
  Tanh capped;  ///< of a product

  ATTILE_HOST_DEVICE int row(int) const { return 0; }
  ATTILE_HOST_DEVICE int col(int) const { return 0; }
  ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, int, int) const {
    const float value = capped(x);
    const float t = value * inverse_cap;
    return {value, std::fma(-t, t, 1.0f)};
  }
  template <class Products, class F>
  ATTILE_HOST_DEVICE void simplify(const Products& products, const F& f) const {
    if constexpr (requires { capped.near(); }) {
      const auto near = capped.near();
      using Near = std::remove_const_t<decltype(near)>;
      if (products.all_within(near.limit)) return f(SoftcapTile<S, Near>{inverse_cap, near});
    }
    f(*this);
  }
};

/// Holds what tiles of the softcap S are made of.
template <class S, class Tanh>
struct PreparedSoftcap {
  using Modifier = S;
  float inverse_cap;
  Tanh capped;

  template <class Math>
  ATTILE_HOST_DEVICE SoftcapTile<S, Tanh> of_tile(const ScoreBlock&, const Math&) const {
    return {inverse_cap, capped};
  }
};

template <class S, class Tanh>
ATTILE_HOST_DEVICE PreparedSoftcap<S, Tanh> prepared_softcap(float cap, const Tanh& capped) {
  return {inverse_of_cap(cap), capped};
}

}  // namespace detail

/// Caps scores: cap * tanh(s / cap). Units: cap > 0.
struct Softcap {
  static constexpr bool kNeverFalls = true;
  float cap = 50.0f;

  const char* fault() const {
    return cap > 0.0f && cap < kInf ? nullptr : "Softcap: cap must be finite and > 0";
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex, Extent) const {
    return detail::softcap(s, Real(cap));
  }
  template <class Math>
  ATTILE_HOST_DEVICE auto prepare(float scale, const Math& math) const {
    const float inner = detail::scaled_inverse_of_cap(cap, scale);
    return detail::prepared_softcap<Softcap>(cap, math.prepared_tanh(cap, inner));
  }
  template <class Math>
  ATTILE_HOST_DEVICE auto of_tile(const ScoreBlock& block, const Math& math) const {
    const float inner = detail::scaled_inverse_of_cap(cap, block.scale);
    return detail::prepared_softcap<Softcap>(cap, math.tanh(cap, inner)).of_tile(block, math);
  }
};

template <>
inline constexpr bool kIgnoresPlace<Softcap> = true;

/// Caps scores as Softcap does, on the GPU in 16-bit types by the machine's tanh, whose relative
/// error is up to 2^-10.9: a score, and so LSE, is off by up to cap * 2^-10.9, and a probability by
/// a factor of e to that. Units: cap > 0.
struct ApproximateSoftcap {
  static constexpr bool kNeverFalls = true;
  float cap = 50.0f;

  const char* fault() const {
    return cap > 0.0f && cap < kInf ? nullptr : "ApproximateSoftcap: cap must be finite and > 0";
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex, Extent) const {
    return detail::softcap(s, Real(cap));
  }
  template <class Math>
  ATTILE_HOST_DEVICE auto prepare(float scale, const Math& math) const {
    const float inner = detail::scaled_inverse_of_cap(cap, scale);
    return detail::prepared_softcap<ApproximateSoftcap>(cap, math.approximate_tanh(cap, inner));
  }
  template <class Math>
  ATTILE_HOST_DEVICE auto of_tile(const ScoreBlock& block, const Math& math) const {
    return prepare(block.scale, math).of_tile(block, math);
  }
};

template <>
inline constexpr bool kIgnoresPlace<ApproximateSoftcap> = true;

}  // namespace attile
