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
             ///< once, or where all rows have as many keys each row's alike: a row's bits then
             ///< depend on the batch, on the device and on max_blocks
    kFixed,  ///< each part has `keys` keys, counted from key 0, and the first and the last what a
             ///< row sees beyond those of head 0: a row's bits then depend on its own sequence
             ///< alone
  };

  Kind kind = Kind::kNone;
  int keys = 0;  ///< of kFixed: a positive multiple of the kernel's Bc, which default tiles have of
                 ///< at most 128

  static constexpr Splits none() { return {}; }
  static constexpr Splits fill() { return {Kind::kFill, 0}; }
  static constexpr Splits fixed(int keys) { return {Kind::kFixed, keys}; }

  friend constexpr bool operator==(const Splits&, const Splits&) = default;
};

/// Cuts `units` equal pieces of work, in order, into `runs` of nearly equal lengths: the first
/// `longer` runs have one piece more than the others. With fewer units than runs some are empty.
struct EvenCut {
  unsigned length = 0;  ///< of the others
  unsigned longer = 0;

  constexpr EvenCut() = default;
  ATTILE_HOST_DEVICE constexpr EvenCut(unsigned units, unsigned runs)
      : length(units / runs), longer(units - length * runs) {}

  /// Returns the first unit of a run, which ends where the next one begins.
  ATTILE_HOST_DEVICE constexpr unsigned first(unsigned run) const {
    return length * run + min(run, longer);
  }
  /// Returns the run that has a unit.
  ATTILE_HOST_DEVICE constexpr unsigned run_of(unsigned unit) const {
    const unsigned shorter_from = (length + 1) * longer;
    const bool is_longer = unit < shorter_from;
    const unsigned before = is_longer ? unit : unit - shorter_from;
    return (is_longer ? 0 : longer) + before / (is_longer ? length + 1 : length);
  }
};

}  // namespace attile
