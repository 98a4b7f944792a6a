// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "sim/coalescing.h"
#include "sim/machine.h"
#include "sim/memory.h"

// A block that runs on the machine, and what its threads wait for.

namespace sim {

struct Block;
struct Mbarrier;

inline constexpr int kWarpgroupSize = 128;

enum class State { kReady, kWaiting, kPolling, kEnded };

/// What a thread waits for: a sentence is made of it for a deadlock alone.
struct Wait {
  const char* what = "";
  std::source_location at;
  int barrier = 0;
  unsigned count = 0;
  const Mbarrier* mbarrier = nullptr;
  std::string caller = {};  ///< the line that calls the function of tile/ where it waits
};

/// An asynchronous copy. Its group: how many the thread had closed when it began.
struct Copy {
  unsigned char* to;
  const void* from;   ///< null: zeros
  std::size_t bytes;  ///< up to 16
  int group;
  const void* pc;
  std::array<unsigned char, 16> data;  ///< of the source, when it began
};

/// A box on its way to shared memory.
struct Load {
  Block* block;  ///< that it goes to
  BoxedTensor map;
  Coord coord;
  std::uint32_t shared;
  std::uint32_t barrier;  ///< its offset in shared memory
  const Block* from;      ///< the block of `thread`
  int thread;             ///< that began it
  int unit;
  Epoch epoch;
  const void* pc;
  std::vector<unsigned char> bytes;  ///< of the source, when it began
};

/// A box on its way to device memory.
struct Store {
  BoxedTensor map;
  Coord coord;
  std::uint32_t shared;
  int group;  ///< how many the thread had closed when it began
  Epoch epoch;
  const void* pc;
  bool adds;  ///< floats to what is there
};

/// What was last done to each word of a thread's stack: the number of the fence of registers behind
/// which the program touched it, or one of these.
inline constexpr std::uint32_t kReadByProduct = 0xFFFFFFFEu, kWrittenByProduct = 0xFFFFFFFFu;
struct FreeWords {
  void operator()(std::uint32_t* words) const { std::free(words); }
};
using StackWords = std::unique_ptr<std::uint32_t[], FreeWords>;

/// What the lanes brought to a meeting.
struct Brought {
  std::array<Operands, kWarpSize> values;
  int users = 0;  ///< lanes that have not met others since
};

struct Thread {
  boost::context::fiber context;
  Block* block = nullptr;
  int index = 0;
  State state = State::kEnded;
  Known known;
  Epochs fenced;  ///< what it knew of its block when it last made a fence_async_proxy
  Epoch epoch = 0;
  Wait wait;
  Brought* lanes = nullptr;     ///< what its last meeting gave
  std::vector<Copy> copies;     ///< asynchronous ones, under way
  int groups = 0;               ///< of them, that were closed
  bool any_at_barrier = false;  ///< what its last vote found
  const int* polled = nullptr;
  int polled_value = 0;
  std::vector<Store> stores;                       ///< that have not read shared memory
  int store_groups = 0;                            ///< of them, that were closed
  std::vector<std::pair<int, Epoch>> read_stores;  ///< group and epoch of those that have

  bool reads_early = false;  ///< begin_early_reads

  int registers = 0;         ///< each thread of its warp may use
  int register_changes = 0;  ///< setmaxnreg, so far
  const unsigned char* stack = nullptr;
  StackWords words;                           ///< of it, once the thread deals with products
  std::uint32_t register_fence = 0;           ///< the number of the last one, through all launches
  bool has_fenced = false;                    ///< in this block
  std::uint64_t products = 0;                 ///< begun
  std::uint64_t retired = 0;                  ///< of them, whose sums it has
  std::vector<std::uint64_t> product_groups;  ///< how many products were begun when each closed

  int cluster_arrivals = 0, cluster_waits = 0;  ///< at its cluster's barrier, so far
  Known told_cluster;                           ///< what it knew when it last arrived there

  int warp() const { return index / kWarpSize; }
  int lane() const { return index % kWarpSize; }
};

inline bool has_fenced(const Epochs& fenced, int writer, Epoch write) {
  return fenced != nullptr && (*fenced)[writer] >= write;
}

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
  Brought* brought = nullptr;
};

/// A barrier with a number. Whole warps come to it.
struct Barrier {
  unsigned count = 0;                        ///< that those who came have announced
  bool votes = false;                        ///< so have they that they vote there
  bool any = false;                          ///< of those who came, has voted yes
  std::vector<Arrival> arrivals;             ///< since the barrier was last complete
  std::vector<std::uint32_t> lanes;          ///< of each warp, that are among them
  std::vector<std::source_location> places;  ///< of each warp
  std::vector<Arrival> last;                 ///< those who made it complete, the last time
  std::vector<std::uint32_t> released;       ///< of each warp, those of them who waited
};

/// The barrier of a cluster.
struct ClusterBarrier {
  int phase = 0;                  ///< how many are over
  std::vector<Arrival> arrivals;  ///< in this one
  std::vector<Thread*> waiters;
  std::map<BlockId, Known> over;  ///< what a block's threads learn that wait for the last one
};

/// An arrival at an mbarrier of a block, from another block.
struct RemoteArrival {
  Epoch epoch;
  std::uint32_t barrier;
  const void* pc;
};

/// A barrier in shared memory.
struct Mbarrier {
  std::uint32_t offset = 0;
  int arrivals = 0, pending = 0;  ///< of a phase, and those yet to come
  std::int64_t bytes = 0;         ///< announced, and yet to come
  int phase = 0;                  ///< how many are over
  int initialiser = -1;
  Epoch epoch = 0;               ///< of the initialisation
  Known arrived;                 ///< what those know who have come in this phase
  Known over;                    ///< what those knew who came in the last one
  Epochs before, after;          ///< what a thread knew that learnt it, and knows now
  std::vector<Thread*> waiters;  ///< for the end of this phase
  std::vector<int> seen;         ///< the last phase that each thread has waited for; -1: none
};

/// A product of a warpgroup.
struct Product {
  ProductForm form;
  std::source_location at;
  const void* pc;
  Epoch epoch = 0;
  int came = 0, retired = 0;  ///< threads
  struct Part {
    float* sums;
    const std::uint32_t* a;
    std::shared_ptr<std::vector<float>> values;  ///< of the sums, until the thread gets them
  };
  std::array<Part, kWarpgroupSize> parts{};
  /// What the threads of each warp knew when they came, and how many of them, one of which is
  /// `thread`, knew the same.
  struct Knower {
    Epochs epochs, fenced;
    int thread, count;
  };
  std::array<std::vector<Knower>, kWarpgroupSize / kWarpSize> knowers;

  Product(const ProductForm& its_form, const std::source_location& its_at, const void* its_pc)
      : form(its_form), at(its_at), pc(its_pc) {}
};

struct RegisterChange {
  int count;
  bool more;
  std::source_location at;
};

struct Warpgroup {
  std::deque<Product> products;  ///< that not all threads have the sums of
  std::uint64_t first = 0;       ///< the number of the first of them
  std::uint64_t complete = 0;    ///< how many products are
  std::vector<Thread*> waiters;
  std::vector<RegisterChange> register_changes;
  Epochs before, after;  ///< what a thread knew that learnt of the last wait, and knows now
  Epoch learnt = 0;

  Product& product(std::uint64_t number) { return products[number - first]; }
};

/// What a unit is, beside the block's threads; the number of its thread or warpgroup, or its
/// barrier's offset.
enum class UnitKind { kProducts, kStoredFrom, kLoads, kStores };
struct Unit {
  UnitKind kind;
  int number;
};

struct Block {
  int index = -1;
  BlockId id = -1;
  unsigned char* shared = nullptr;
  Shadow shadow{0};
  std::vector<std::unique_ptr<Thread>> threads;  ///< as many as any launch has needed
  unsigned size = 0;                             ///< threads of this launch; 0: no block runs here
  unsigned ended = 0;
  std::array<Barrier, kBarriers> barriers;
  std::vector<std::vector<Meeting>> meetings;  ///< of each warp, those that are not complete
  std::vector<WarpRecord> records;             ///< of each warp
  std::unordered_set<std::uint64_t> sectors;   ///< of device memory, that were read

  std::map<std::uint32_t, Mbarrier> mbarriers;  ///< by their offset
  Fences fences, publications;                  ///< epochs that began with one
  std::vector<Unit> reading_units, writing_units;
  std::vector<Warpgroup> warpgroups;
  int free_registers = 0;
  std::vector<Thread*> register_waiters;

  int rank = 0;                                                      ///< in its cluster
  Block* first = nullptr;                                            ///< the one with rank 0
  ClusterBarrier cluster;                                            ///< of the first one
  std::map<std::pair<BlockId, int>, RemoteArrival> remote_arrivals;  ///< the last of each thread
  Known known_at_end;  ///< what its threads that have ended knew of other blocks

  bool is_over() const { return size != 0 && ended == size; }
};

/// Where a unit of 16 bytes lies that a tile without swizzle has at this address: rows of 128, 64
/// or 32 bytes, whose units are permuted in the pattern of 8 rows.
inline std::uint32_t swizzled(std::uint32_t address, int row_bytes) {
  return address ^ (address >> 3 & static_cast<std::uint32_t>(row_bytes - 16));
}

}  // namespace sim
