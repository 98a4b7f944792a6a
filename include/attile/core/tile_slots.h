// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/sequences.h>

#include <climits>
#include <cstdint>

// Grids over tiles of sequences of which the host knows bounds alone.

namespace attile {

/// Divides the rows, or the keys, of all sequences into slots of kTile each: every tile that there
/// is has a slot, and what is launched for a slot without a tile does nothing. Where a sequence has
/// a batch of its own, it has slots for the bound of its length. A packed sequence b has those from
/// first_row / kTile + b (the first one from 0) to where the next one's begin: at least one, and
/// enough for its rows, whatever the bound.
template <Axis kAxis, int kTile, Sequences S>
class TileSlots {
 public:
  /// Says which sequence an item belongs to. Each slot has as many items as the others, for
  /// instance one for each head, and those of a sequence follow each other.
  struct Share {
    int sequence = 0;
    int slots = 0;             ///< of the sequence
    int item = 0;              ///< the item's number among those of the sequence
    bool is_sequence = false;  ///< false: it is nobody's
  };

  /// `bound`: the length that no sequence exceeds.
  ATTILE_HOST_DEVICE constexpr TileSlots(const S& sequences, int batch, int bound)
      : sequences_(sequences), batch_(batch), bound_(bound), bound_tiles_(ceil_div(bound, kTile)) {}

  ATTILE_HOST_DEVICE constexpr int sequences() const { return batch_; }
  /// Returns the number of slots of all sequences.
  constexpr std::int64_t count() const {
    if (batch_ == 0 || bound_tiles_ == 0) return 0;
    if constexpr (kIsPackedAlong<S, kAxis>) return rows() / kTile + batch_;
    return std::int64_t{batch_} * bound_tiles_;
  }
  /// Returns the first slot of a sequence; of the one behind the last, one past the last one's.
  ATTILE_HOST_DEVICE constexpr int first(int sequence) const {
    if constexpr (kIsPackedAlong<S, kAxis>) {
      return sequence == 0 ? 0 : row_number(sequences_, origin(sequence)) / kTile + sequence;
    }
    return sequence * bound_tiles_;
  }
  /// Returns the number of slots of a sequence.
  ATTILE_HOST_DEVICE constexpr int slots(int sequence) const {
    return kIsPackedAlong<S, kAxis> ? first(sequence + 1) - first(sequence) : bound_tiles_;
  }

  /// Returns whose an item is. `per_slot`: the items of a slot. A packed sequence is found by
  /// bisection. Where offsets in device memory decrease, it finds all slots of a sequence or none.
  ATTILE_HOST_DEVICE constexpr Share find(int item, int per_slot) const {
    if constexpr (kIsPackedAlong<S, kAxis>) {
      const int slot = item / per_slot;
      int found = 0, past = batch_;
      int begun = 0, ended = INT_MAX;  // what the offsets before and behind say
      const auto look_at = [&](int sequence) {
        const int begin = first(sequence);
        if (begin <= slot) {
          found = sequence, begun = max(begun, begin);
        } else {
          past = sequence, ended = min(ended, begin);
        }
      };
      while (past - found > 1) look_at(found + (past - found) / 2);
      const int begin = first(found), end = first(found + 1);
      const bool is_sequence = begun <= begin && slot < end && end <= ended;
      return {found, end - begin, item - begin * per_slot, is_sequence};
    }
    const int of_sequence = per_slot * bound_tiles_;
    const int sequence = item / of_sequence;
    return {sequence, bound_tiles_, item - sequence * of_sequence, sequence < batch_};
  }

 private:
  ATTILE_HOST_DEVICE constexpr RowOrigin origin(int sequence) const {
    return kAxis == Axis::kRows ? sequences_.q_origin(sequence) : sequences_.kv_origin(sequence);
  }
  /// Returns the rows of the tensors, of all batches.
  constexpr std::int64_t rows() const {
    const RowShape shape = kAxis == Axis::kRows ? sequences_.q_shape(batch_, bound_)
                                                : sequences_.kv_shape(batch_, bound_);
    return shape.all_rows();
  }

  const S& sequences_;
  int batch_, bound_, bound_tiles_;
};

}  // namespace attile
