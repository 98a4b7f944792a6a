// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <boost/context/fiber.hpp>
#include <cstdint>
#include <memory>
#include <source_location>
#include <unordered_set>
#include <vector>

#include "sim/coalescing.h"
#include "sim/machine.h"
#include "sim/memory.h"

// A block that runs on the machine, and what its threads wait for.

namespace sim {

struct Block;

enum class State { kReady, kWaiting, kPolling, kEnded };

/// What a thread waits for: a sentence is made of it for a deadlock alone.
struct Wait {
  const char* what = "";
  std::source_location at;
  int barrier = 0;
  unsigned count = 0;
};

/// An asynchronous copy. Its group: how many the thread had closed when it began.
struct Copy {
  unsigned char* to;
  const void* from;  ///< null: zeros
  int group;
  const void* pc;
  std::array<unsigned char, 16> bytes;  ///< of the source, when it began
};

struct Thread {
  boost::context::fiber context;
  Block* block = nullptr;
  int index = 0;
  State state = State::kEnded;
  Known known;
  Epoch epoch = 0;
  Wait wait;
  std::shared_ptr<const std::array<Operands, kWarpSize>> lanes;  ///< what its last meeting gave
  std::vector<Copy> copies;                                      ///< asynchronous ones, under way
  int groups = 0;                                                ///< of them, that were closed
  const int* polled = nullptr;
  int polled_value = 0;

  int warp() const { return index / kWarpSize; }
  int lane() const { return index % kWarpSize; }
};

/// A thread that came somewhere, with what it knew then.
struct Arrival {
  Thread* thread;
  Known known;
  Epoch epoch;
  bool waits;
};

/// Where lanes of a warp meet.
struct Meeting {
  unsigned mask = 0;
  std::source_location at;
  std::vector<Arrival> arrivals;
  std::shared_ptr<std::array<Operands, kWarpSize>> values;
};

/// A barrier with a number. Whole warps come to it.
struct Barrier {
  unsigned count = 0;                        ///< that those who came have announced
  std::vector<Arrival> arrivals;             ///< since the barrier was last complete
  std::vector<std::uint32_t> lanes;          ///< of each warp, that are among them
  std::vector<std::source_location> places;  ///< of each warp
  std::vector<Arrival> last;                 ///< those who made it complete, the last time
  std::vector<std::uint32_t> released;       ///< of each warp, those of them who waited
};

struct Block {
  int index = -1;
  BlockId id = -1;
  unsigned char* shared = nullptr;
  Shadow shadow{kMaxSharedBytes};
  std::vector<std::unique_ptr<Thread>> threads;  ///< as many as any launch has needed
  unsigned size = 0;                             ///< threads of this launch; 0: no block runs here
  unsigned ended = 0;
  std::array<Barrier, kBarriers> barriers;
  std::vector<std::vector<Meeting>> meetings;  ///< of each warp, those that are not complete
  std::vector<WarpRecord> records;             ///< of each warp
  std::unordered_set<std::uint64_t> sectors;   ///< of device memory, that were read
};

}  // namespace sim
