// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <map>

#include "sim/memory.h"

namespace sim {

/// What unwritten memory holds: NaN as any float.
inline constexpr unsigned char kPoison = 0xFF;

struct Allocation {
  unsigned char* begin;
  std::size_t bytes;
  Shadow shadow;
  Traffic traffic{};
};

inline constexpr std::size_t kAddresses = std::size_t{1} << 34;  // pages come when touched

/// Device memory: a range of addresses of its own, so that an access tells by its address what it
/// belongs to. Addresses are given out once, with a gap around each allocation, so that an access
/// beyond one, or after its end, lies in none.
class DeviceMemory {
 public:
  DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  unsigned char* begin() const { return begin_; }
  /// Addresses that belong to no allocation, for shared memory.
  unsigned char* reserve(std::size_t bytes);
  void* allocate(std::size_t bytes);
  /// Whether it was an allocation's begin.
  bool release(void* address);
  /// The allocation that holds all of these bytes, or null.
  Allocation* find(const unsigned char* p, std::size_t bytes);

 private:
  unsigned char* begin_;
  unsigned char* next_;
  std::map<const unsigned char*, Allocation> allocations_;
  Allocation* last_ = nullptr;  ///< the last one found
};

}  // namespace sim
