// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/machine.h"

// What the lanes of a warp do together, put together again: fibers run one after another, so the
// n-th time that a lane comes to an instruction since its warp last met belongs to the n-th time of
// the other lanes.

namespace sim {

/// One access of all lanes. Addresses of lanes that are not in `lanes` mean nothing.
struct WarpAccess {
  std::uint32_t lanes = 0;
  std::array<std::uint64_t, kWarpSize> address{};
};

inline constexpr unsigned kSectorBytes = 32;

/// The sectors of device memory that the lanes touch.
unsigned sectors(const WarpAccess& access, unsigned bytes);

/// The passes that an access of shared memory takes through its 32 banks of 4 bytes, and how few
/// they could be for lanes and sizes like these. `halves`: 16 bytes may go by half warps.
struct Wavefronts {
  unsigned taken, ideal;
};
Wavefronts wavefronts(const WarpAccess& access, unsigned bytes, bool halves);

/// What the instructions of one launch have done so far.
class MemoryCounts {
 public:
  void add(const Instruction& kind, const WarpAccess& access);
  void add_l2_reads(std::uint64_t sectors) { l2_read_sectors_ += sectors; }
  LaunchCounts take(const Grid& grid);

 private:
  std::map<std::pair<const void*, Space>, Instruction> instructions_;
  std::uint64_t l2_read_sectors_ = 0;
};

/// The accesses of one warp since it last met.
class WarpRecord {
 public:
  void touch(int lane, const Instruction& kind, std::uint64_t address);
  /// The warp meets: what its lanes have not done together until now they never will.
  void flush(MemoryCounts& counts);

 private:
  struct Stream {
    Instruction kind;
    std::array<std::uint32_t, kWarpSize> times{};  ///< that each lane has come here
    std::vector<WarpAccess> accesses;
  };

  std::map<std::pair<const void*, Space>, Stream> streams_;
};

}  // namespace sim
