// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/math.h>

namespace attile {

/// Says how a kernel of `decode` splits the keys of a row over blocks. The states (m, l, O) of the
/// parts are merged in the order of the keys. [Flash-Decoding; FlashAttention-1, section 3.1]
struct Splits {
  enum class Kind {
    kNone,   ///< one block has all keys of a row; the only kind that needs no scratch memory
    kFill,   ///< the kv tiles of all rows are cut into as many nearly equal runs as blocks run at
             ///< once, wherever that cuts a row's keys: a row's bits then depend on the batch, on
             ///< the device and on max_blocks
    kFixed,  ///< each part has `keys` keys, counted from key 0: a row's bits then depend on its own
             ///< sequence alone
  };

  Kind kind = Kind::kNone;
  int keys = 0;  ///< of kFixed: a positive multiple of the kernel's Bc, which default tiles have of
                 ///< at most 128

  static constexpr Splits none() { return {}; }
  static constexpr Splits fill() { return {Kind::kFill, 0}; }
  static constexpr Splits fixed(int keys) { return {Kind::kFixed, keys}; }

  friend constexpr bool operator==(const Splits&, const Splits&) = default;
};

/// Cuts `units` equal pieces of work, in order, into `blocks` runs: the first `longer` runs have
/// one piece more than the others. With fewer units than blocks some runs are empty.
struct EvenCut {
  int length = 0;  ///< of the others
  int longer = 0;

  constexpr EvenCut() = default;
  ATTILE_HOST_DEVICE constexpr EvenCut(int units, int blocks)
      : length(units / blocks), longer(units - length * blocks) {}

  /// Returns the first unit of a block's run, which ends where the next one's begins.
  ATTILE_HOST_DEVICE constexpr int first(int block) const {
    return length * block + min(block, longer);
  }
  /// Returns the block whose run has a unit.
  ATTILE_HOST_DEVICE constexpr int block_of(int unit) const {
    const int shorter_from = (length + 1) * longer;
    if (unit < shorter_from) return unit / (length + 1);
    return longer + (unit - shorter_from) / length;
  }
};

}  // namespace attile
