// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/philox.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace attile {

/// Drops nothing; costs nothing.
struct NoDropout {
  static constexpr bool kEnabled = false;
  struct Sampler {
    ATTILE_HOST_DEVICE bool keep(ScoreIndex) const { return true; }
    ATTILE_HOST_DEVICE float keep_scale() const { return 1.0f; }
  };
  ATTILE_HOST_DEVICE Sampler sampler(int) const { return {}; }
};

/// Drops elements of P by decisions that depend on (seed, offset, batch, head, row, col) alone, so
/// that forward and backward agree whatever their tiles.
///
/// Each score has 16 random bits; it is dropped when they are below probability * 65536, rounded to
/// nearest. What is kept is multiplied by the inverse of that rounded keep probability, so that the
/// expectation of dropout(P) is P. One Philox call serves the 8 scores (r, r + 8) x (c, c + 1, c +
/// 8, c + 9) of a 16 x 16 block: those that one lane holds, in the tensor cores' accumulator
/// layout, of two neighbouring 16 x 8 tiles of S.
/// Units   0 <= probability < 1 - 2^-17, from where on it would be rounded to 1. `seed_pointer` and
///         `offset_pointer`, when given, replace the values and are read when the kernel runs, so
///         that a replayed graph can draw afresh.
struct PhiloxDropout {
  float probability = 0.0f;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  const std::uint64_t* seed_pointer = nullptr;
  const std::uint64_t* offset_pointer = nullptr;

  static constexpr bool kEnabled = true;

  const char* fault() const {
    return probability >= 0.0f && threshold() < 65536u
               ? nullptr
               : "PhiloxDropout: probability must be >= 0 and < 1 - 2^-17";
  }

  ATTILE_HOST_DEVICE constexpr std::uint32_t threshold() const {
    return probability < 1.0f ? static_cast<std::uint32_t>(probability * 65536.0f + 0.5f) : 65536u;
  }

  /// Holds the state of one kernel: seed and offset are read once.
  struct Sampler {
    std::uint32_t key0, key1, offset, threshold;
    int q_heads;

    ATTILE_HOST_DEVICE constexpr bool keep(ScoreIndex i) const {
      const std::uint32_t row = static_cast<std::uint32_t>(i.row);
      const std::uint32_t col = static_cast<std::uint32_t>(i.col);
      const std::uint32_t row_group = row / 16 * 8 + row % 8;
      const std::uint32_t col_group = col / 16 * 4 + col % 8 / 2;
      const std::uint32_t slice =
          static_cast<std::uint32_t>(i.batch) * static_cast<std::uint32_t>(q_heads) +
          static_cast<std::uint32_t>(i.head);
      const PhiloxBlock random = philox4x32({{col_group, row_group, slice, offset}}, key0, key1);
      const std::uint32_t word = random.word[row / 8 % 2 * 2 + col / 8 % 2];
      return (col % 2 != 0 ? word >> 16 : word & 0xFFFFu) >= threshold;
    }
    ATTILE_HOST_DEVICE constexpr float keep_scale() const {
      return 65536.0f / (65536.0f - static_cast<float>(threshold));
    }
  };

  /// Returns the seed that the kernel uses.
  ATTILE_HOST_DEVICE std::uint64_t current_seed() const {
    return seed_pointer != nullptr ? *seed_pointer : seed;
  }
  /// Returns the offset that the kernel uses.
  ATTILE_HOST_DEVICE std::uint64_t current_offset() const {
    return offset_pointer != nullptr ? *offset_pointer : offset;
  }

  /// Returns a sampler. The offset's high half joins the key, its low half is a word of the
  /// counter.
  ATTILE_HOST_DEVICE Sampler sampler(int q_heads) const {
    const std::uint64_t s = current_seed();
    const std::uint64_t o = current_offset();
    return {static_cast<std::uint32_t>(s), static_cast<std::uint32_t>((s >> 32) ^ (o >> 32)),
            static_cast<std::uint32_t>(o), threshold(), q_heads};
  }
};

template <class P>
concept Dropout = std::is_trivially_copyable_v<P> && requires(const P& dropout, ScoreIndex index) {
  { P::kEnabled } -> std::convertible_to<bool>;
  { dropout.sampler(1).keep(index) } -> std::same_as<bool>;
  { dropout.sampler(1).keep_scale() } -> std::convertible_to<float>;
};

}  // namespace attile
