// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sim/machine.h"

// What is known of every two bytes of memory: which of them were written, and who touched them
// last.

namespace sim {

/// Time: it goes on by one wherever threads meet, arrive or release. A thread's accesses carry the
/// epoch in which it is.
using Epoch = std::uint32_t;

/// What moves data beside a block's threads. Each such unit has an entry behind those of the
/// threads wherever epochs are kept: first those that read shared memory (a warpgroup's products, a
/// thread's stores), then those that write (copies which one mbarrier counts; a thread's stores).
inline constexpr int kReadingUnits = 32, kUnits = 64;

/// Blocks are counted through all launches.
using BlockId = std::int32_t;
/// Stands among what a thread knows for all blocks of the kernels before the one that begins with
/// block `begin`.
constexpr BlockId all_before(BlockId begin) { return -2 - begin; }

/// Up to which epoch each thread of a block is known to have come: what it did until then happened
/// before. Null: nothing of that block is known.
using Epochs = std::shared_ptr<const std::vector<Epoch>>;

/// What a thread knows: of its own block, and of others that it has acquired something from.
struct Known {
  Epochs own;
  std::shared_ptr<const std::map<BlockId, Epochs>> others;

  /// Adds what is known of one block.
  void learn(BlockId me, BlockId block, const Epochs& epochs);
  /// Adds all that a thread of `block` knew.
  void learn(BlockId me, BlockId block, const Known& known);
  const std::vector<Epoch>* of(BlockId me, BlockId block) const;
};

/// For each thread of a block, the epochs that began with a fence_async_proxy of it.
using Fences = std::vector<std::vector<Epoch>>;

/// Whether those who told a unit to touch memory have made a fence_async_proxy behind that write.
using FencedBehind = std::function<bool(int writer, Epoch write)>;

/// The thread or unit that touches memory.
struct Toucher {
  int thread;
  BlockId block;
  Epoch epoch;
  const Known* known;
  BlockId launch_begin;  ///< the first block of this launch, or of one that may still run
  const void* pc;
  const Fences* fences = nullptr;  ///< Way::kBulk in shared memory: of its block
  const FencedBehind* fenced_behind = nullptr;
};

struct Touch {
  Access access;
  Way way = Way::kFastPath;
  /// A vector of shared memory: what a tile's last row or column brings of the padding behind it
  /// was never written. Nobody uses it; if anyone did, it is NaN.
  bool may_reach_padding = false;
  bool counts = true;   ///< among the instructions, and as traffic
  bool happens = true;  ///< or is only looked at for its bounds and alignment
};

/// Why an access is wrong, and who it collides with.
struct Fault {
  enum class Kind { kUninitialised, kRace, kInFlight, kProxy, kBarrier } kind;
  int thread = -1;  ///< the other one
  BlockId block = -1;
  Access access = Access::kRead;
  const void* pc = nullptr;
};

/// Two bytes: neighbours of 16 bits may belong to different threads.
inline constexpr std::size_t kGranule = 2;

/// The history of a piece of memory: for each granule the last write, and the reads since of the
/// last block that read (FastTrack: Flanagan and Freund, PLDI 2009; reads by warp, whose lanes are
/// in one epoch, and by each unit).
class Shadow {
 public:
  explicit Shadow(std::size_t bytes);

  void initialise(std::size_t offset, std::size_t bytes);
  /// Forgets who touched the first `bytes` and that they were written; it may have been smaller.
  void clear(std::size_t bytes);
  /// The write that was asynchronous is done, and the thread that began it knows.
  void land(std::size_t offset, std::size_t bytes, Epoch epoch);
  /// An mbarrier lies there: nobody else may touch it.
  void make_barrier(std::size_t offset, std::size_t bytes);
  /// Remembers the access, or says why it is wrong.
  std::optional<Fault> touch(std::size_t offset, std::size_t bytes, Touch touch,
                             const Toucher& who);

 private:
  struct Cell {
    const void* write_pc = nullptr;
    const void* read_pc = nullptr;
    Epoch write_epoch = 0;
    BlockId write_block = -1, read_block = -1;  ///< -1: nobody has
    std::int16_t writer = -1;
    std::uint8_t initialised = 0;  ///< a bit for each byte
    bool atomic : 1 = false;       ///< that write was
    bool in_flight : 1 = false;    ///< that write still is
    bool barrier : 1 = false;      ///< an mbarrier
    bool unit_read : 1 = false;    ///< so that its entries among unit_readers_ mean something
  };
  struct Readers {
    Epoch epoch;
    std::uint32_t lanes;
  };

  bool initialised(std::size_t offset, std::size_t bytes, bool may_reach_padding) const;
  bool reads_as_before(std::size_t i, const Toucher& who);
  std::optional<Fault> touch_cell(std::size_t i, Touch touch, const Toucher& who);
  std::optional<Fault> readers_fault(std::size_t i, const Toucher& who) const;
  void make_room(std::size_t warps);
  void make_room_for_units(std::size_t units);
  void remember_unit(std::size_t i, const Toucher& who);
  void forget_readers(std::size_t i);
  Readers* readers_of(std::size_t i) { return readers_.get() + i * warps_; }
  const Readers* readers_of(std::size_t i) const { return readers_.get() + i * warps_; }

  std::size_t warps_ = 0;  ///< of the largest block that has touched it
  std::size_t units_ = 0;  ///< that have read it, at least
  std::vector<Cell> cells_;
  // Garbage up to a cell's first reader and its first unit: a page that nobody needs costs nothing.
  std::unique_ptr<Readers[]> readers_;     ///< warps_ for each cell, once anyone touches one
  std::unique_ptr<Epoch[]> unit_readers_;  ///< units_ for each cell, once a unit reads
};

}  // namespace sim
