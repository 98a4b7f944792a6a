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
/// expectation of dropout(P) is P. One call of Philox4x32-7 serves a group of eight scores (see
/// GroupSampler).
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
  static constexpr int kRounds = 7;

  const char* fault() const {
    if (!(probability >= 0.0f && threshold() < 65536u)) {
      return "PhiloxDropout: probability must be >= 0 and < 1 - 2^-17";
    }
    return nullptr;
  }

  ATTILE_HOST_DEVICE constexpr std::uint32_t threshold() const {
    return probability < 1.0f ? static_cast<std::uint32_t>(probability * 65536.0f + 0.5f) : 65536u;
  }

  /// Holds what decides in one kernel, and seed and offset as they were when it was made.
  struct Sampler {
    std::uint32_t key0, key1, offset;
    std::uint32_t threshold;  ///< in the upper 16 bits
    int q_heads;
    float scale;  ///< 1 / (1 - p), p as it is rounded

    ATTILE_HOST_DEVICE static constexpr std::uint32_t row_group(int row) {
      const std::uint32_t r = static_cast<std::uint32_t>(row);
      return r / 16 * 8 + r % 8;
    }
    ATTILE_HOST_DEVICE static constexpr std::uint32_t col_group(int col) {
      const std::uint32_t c = static_cast<std::uint32_t>(col);
      return c / 16 * 4 + c % 8 / 2;
    }
    ATTILE_HOST_DEVICE constexpr std::uint32_t batch_head(int batch, int head) const {
      return static_cast<std::uint32_t>(batch) * static_cast<std::uint32_t>(q_heads) +
             static_cast<std::uint32_t>(head);
    }
    ATTILE_HOST_DEVICE constexpr PhiloxBlock group(int batch, int head, std::uint32_t rows,
                                                   std::uint32_t cols) const {
      return philox4x32<kRounds>({{cols, rows, batch_head(batch, head), offset}}, key0, key1);
    }
    ATTILE_HOST_DEVICE constexpr PhiloxColumn column(int batch, int head,
                                                     std::uint32_t cols) const {
      return philox_column(cols, batch_head(batch, head), offset, key0, key1);
    }
    ATTILE_HOST_DEVICE constexpr PhiloxRow row(int batch, int head, std::uint32_t rows) const {
      return philox_row(rows, batch_head(batch, head), key0, key1);
    }
    ATTILE_HOST_DEVICE constexpr PhiloxBlock group(const PhiloxColumn& column,
                                                   const PhiloxRow& row) const {
      return philox4x32<kRounds>(column, row, key0, key1);
    }
    ATTILE_HOST_DEVICE constexpr bool keeps(std::uint32_t bits) const { return bits >= threshold; }

    ATTILE_HOST_DEVICE constexpr bool keep(ScoreIndex i) const {
      const PhiloxBlock random = group(i.batch, i.head, row_group(i.row), col_group(i.col));
      const std::uint32_t word = random.word[i.row / 8 % 2 * 2 + i.col / 8 % 2];
      return keeps(i.col % 2 != 0 ? word : word << 16);
    }
    ATTILE_HOST_DEVICE constexpr float keep_scale() const { return scale; }
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
    return {static_cast<std::uint32_t>(s),
            static_cast<std::uint32_t>((s >> 32) ^ (o >> 32)),
            static_cast<std::uint32_t>(o),
            threshold() << 16,
            q_heads,
            65536.0f / (65536.0f - static_cast<float>(threshold()))};
  }
};

/// Is PhiloxDropout for a call that has a part of the keys (see EarlierKeys): its decisions are
/// those that a call over all keys would make. Units   first_col: the column of key 0 in the scores
/// over all keys, a multiple of 16.
struct PartDropout : PhiloxDropout {
  int first_col = 0;

  const char* fault() const {
    if (first_col < 0 || first_col % 16 != 0) {
      return "PartDropout: first_col must be a multiple of 16, and not negative";
    }
    return PhiloxDropout::fault();
  }

  struct Sampler : PhiloxDropout::Sampler {
    int first_col;

    ATTILE_HOST_DEVICE constexpr std::uint32_t col_group(int col) const {
      return PhiloxDropout::Sampler::col_group(first_col + col);
    }
    ATTILE_HOST_DEVICE constexpr bool keep(ScoreIndex i) const {
      return PhiloxDropout::Sampler::keep({i.batch, i.head, i.row, first_col + i.col});
    }
  };

  ATTILE_HOST_DEVICE Sampler sampler(int q_heads) const {
    return {PhiloxDropout::sampler(q_heads), first_col};
  }
};

/// A dropout says which elements of P are kept, and what these are multiplied by: 1 / (1 - p). Its
/// `sampler(q_heads)` is made in the kernel, or on the host by the CPU executor, and says so by
/// `keep(index)` and `keep_scale()`. It is copied to the device, so pointers in it are device
/// pointers. With kEnabled false all elements are kept as they are.
template <class P>
concept Dropout = std::is_trivially_copyable_v<P> && requires(const P& dropout, ScoreIndex index) {
  { P::kEnabled } -> std::convertible_to<bool>;
  { dropout.sampler(1).keep(index) } -> std::same_as<bool>;
  { dropout.sampler(1).keep_scale() } -> std::convertible_to<float>;
};

/// A GroupSampler decides for groups of eight scores at once: those in rows r and r + 8 and in
/// columns c, c + 1, c + 8 and c + 9, of which a lane holds all in the layout of the tensor cores'
/// sums. Kernels that have this layout ask for groups, and others for single scores by `keep`,
/// which decides the same. It holds whole words, the same in all threads.
///   row_group(r), col_group(c): the numbers of the group that has the score (r, c); that of rows
///     is the same for all samplers. 16 rows on they are 8 higher, and 16 columns on 4.
///   group(batch, head, row_group, col_group): four words of random bits. The score in row r and
///     column c has 16 bits of word r / 8 % 2 * 2 + c / 8 % 2, the upper ones where c is odd.
///   column(batch, head, col_group), row(batch, head, row_group): what the calls for a column of
///     groups have in common, and those for a row of them; group(column, row) is the same call.
///   threshold: a score is kept where its 16 bits are not below the upper 16 of this.
///   keeps(bits): the same of the upper 16 of `bits`. It ignores the others.
template <class S>
concept GroupSampler = requires(const S& sampler, std::uint32_t x) {
  { S::row_group(0) } -> std::same_as<std::uint32_t>;
  { sampler.col_group(0) } -> std::same_as<std::uint32_t>;
  { sampler.group(0, 0, x, x) } -> std::same_as<PhiloxBlock>;
  { sampler.group(sampler.column(0, 0, x), sampler.row(0, 0, x)) } -> std::same_as<PhiloxBlock>;
  { sampler.threshold } -> std::convertible_to<std::uint32_t>;
  { sampler.keeps(x) } -> std::same_as<bool>;
};

}  // namespace attile
