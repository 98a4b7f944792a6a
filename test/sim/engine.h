// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "sim/block.h"
#include "sim/coalescing.h"
#include "sim/device_memory.h"
#include "sim/machine.h"
#include "sim/memory.h"

// What the functions of machine.h are made of.

namespace sim {

using boost::context::fiber;

inline constexpr std::size_t kSharedRange = 2 * kMaxSharedBytes;  ///< of addresses, for each block
inline constexpr std::size_t kStackBytes = 256 << 10;

/// What each thread of a block of so many may use from the beginning.
int registers_at_start(unsigned threads);

std::string hex(std::size_t x);
bool same_place(const std::source_location& a, const std::source_location& b);

class Machine {
 public:
  static Machine& get() {
    static Machine machine;
    return machine;
  }

  cudaError_t launch(const Grid& grid, const std::function<void()>& kernel);
  void access(const void* address, std::size_t bytes, Touch touch, const void* pc);
  /// How a thread comes to a barrier; who votes waits, too.
  struct Coming {
    bool waits;
    bool votes = false, yes = false;
  };
  /// Whether any of those who came has voted yes.
  bool meet_threads(int id, unsigned count, Coming coming, const char* what,
                    const std::source_location& at);
  /// What each lane brought, until the lane meets others again.
  const std::array<Operands, kWarpSize>& meet_lanes(unsigned mask, const Operands& mine,
                                                    bool orders, const std::source_location& at);
  std::uint32_t shuffle(unsigned mask, std::uint32_t value, int from,
                        const std::source_location& at);
  int acquire(const int* address, const std::source_location& at, const void* pc);
  void release(int* address, int value, const void* pc);
  int add_acq_rel(int* address, int x, const void* pc);
  void learn_released(const int* address);
  void copy(unsigned char* to, const void* from, std::size_t bytes, const void* pc);
  void close_group() { ++current_->groups; }
  void land(int pending) { land_groups_before(current_->groups - pending); }
  void land_groups_before(int end);

  // Compute capability 9.0: mbarrier.cpp, bulk_copy.cpp, warpgroup.cpp.
  void init_barrier(void* address, int arrivals, const void* pc);
  void publish_barriers();
  void arrive_at(Block& block, const void* address, std::int64_t bytes, const void* pc);
  void arrive_behind_copies(const void* address, const void* pc);
  void arrive_in(int rank, const void* address, const void* pc);
  void wait_for_phase(void* address, int parity, const std::source_location& at, const void* pc);
  void bulk_load(std::uint32_t shared, const BoxedTensor& map, const Coord& coord,
                 const void* barrier, const std::vector<Block*>& blocks, const void* pc);
  std::vector<Block*> blocks_in(std::uint32_t mask, const void* pc);
  void bulk_store(const BoxedTensor& map, const Coord& coord, std::uint32_t shared, bool adds,
                  const void* pc);
  void close_stores() { ++current_->store_groups; }
  void read_stores(int pending);
  void end_stores(int pending);
  void fence_proxy();
  void await_dependencies();
  void read_early(bool begins) { current_->reads_early = begins; }
  bool is_late() const { return current_->warp() == late_warp_; }
  void set_registers(int count, bool more, const std::source_location& at);
  void fence_registers(const std::source_location& at);
  void begin_product(const ProductForm& form, float* sums, const std::uint32_t* a,
                     const std::source_location& at, const void* pc);
  void close_products(const std::source_location& at);
  void wait_for_products(int pending, const std::source_location& at);
  void arrive_at_cluster(const std::source_location& at);
  void wait_for_cluster(const std::source_location& at);
  void touch_stack(const unsigned char* p, std::size_t bytes, Access access, const void* pc);

  bool is_shared(const unsigned char* p) const {
    return shared_ <= p && p < shared_ + kSlots * kSharedRange;
  }
  bool runs() const { return current_ != nullptr; }
  int blocks() const { return static_cast<int>(grid_.blocks); }
  int cluster() const { return static_cast<int>(grid_.cluster); }
  const Thread& current() const { return *current_; }
  Block& block() { return *current_->block; }
  DeviceMemory& memory() { return memory_; }
  void seed(std::uint64_t seed) { random_.seed(seed); }
  void set_residency(unsigned clusters) { residency_ = clusters; }
  void count_instructions(bool on) { counting_ = on; }
  std::vector<LaunchCounts> take_launches() { return std::exchange(launches_, {}); }
  Counters& counters() { return counters_; }
  std::vector<Report> take_reports() { return std::exchange(reports_, {}); }
  bool failed() const { return !reports_.empty(); }

 private:
  Machine();

  void begin_cluster(Block* first, int index);
  void begin_block(Block& block, int index);
  void begin_thread(Block& block, unsigned index, const Epochs& begin);
  Thread* next_ready();
  void resume(Thread& thread);
  void switch_out(State state);
  void wait(State state, const Wait& wait);
  void advance(const Thread& thread);
  void order(const std::vector<Arrival>& arrivals);
  void wake(const std::vector<Arrival>& arrivals);
  Arrival arrive(bool waits);
  void check_barrier(const Barrier& barrier, int id, unsigned count, bool votes,
                     const std::source_location& at);
  Meeting& meeting_of(unsigned mask, const std::source_location& at);
  void end_meeting(Meeting& meeting);
  void keep_counts();

  void watch_stack();
  Known known_now() const;
  int unit(Block& block, UnitKind kind, int number);
  void learn_of_unit(int unit, Epoch epoch);
  /// What a unit does for the running thread.
  struct UnitTouch {
    int unit;
    Epoch epoch;
    const Known& known;
    const void* pc;
    const char* by;  ///< "the copy of " that thread
    Access access;
    Way way = Way::kBulk;
    Block* block = nullptr;  ///< whose unit it is, and whose shared memory; null: the thread's
    const FencedBehind* fenced_behind = nullptr;
  };
  void touch_as_unit(const UnitTouch& touch, const unsigned char* p, std::size_t bytes);
  Mbarrier& mbarrier_at(Block& block, const void* address, const char* verb, const void* pc);
  void end_phase_if_over(Mbarrier& barrier);
  void bring_bytes(const Load& load);
  void land_loads();
  void check_published(Block& block, const void* barrier, const Known& known, const void* pc);
  Known seen_from(const Block& block, const Known& known) const;
  Block& block_in(int rank, const char* verb, const void* pc);
  void end_cluster_phase_if_over(Block& first);
  void check_others_are_done(const Block& block);
  std::string of_other(const Block& block) const;
  void check_box(const BoxedTensor& map, const Coord& coord, std::uint32_t shared, const char* verb,
                 const void* pc);
  void multiply(const Block& block, Product& product);
  void touch_operands(Warpgroup& group, Product& product);
  void claim_registers(Product& product, Product::Part& part);
  void mark_words(const void* p, std::size_t bytes, std::uint32_t mark);
  void retire(Warpgroup& group, std::uint64_t end);
  void end_thread();
  void end_block(Block& block);
  void leave(Block& block);
  std::string shared_text(std::size_t offset) const;

  BlockId first_unordered(const Known& known) const;
  void report(std::string kind, const std::string& text);
  void report_fault(const Fault& fault, const std::string& what);
  void report_deadlock();
  void ask_for_callers();
  std::string waits_of(const Block& block) const;
  std::string who(int thread, std::int64_t block) const;
  std::string who() const { return who(current_->index, current_->block->index); }

  std::mt19937_64 random_{1};
  unsigned residency_ = 0;
  std::vector<Report> reports_;
  Counters counters_;
  bool counting_ = false;
  std::FILE* counts_file_ = nullptr;
  MemoryCounts counts_;
  std::vector<LaunchCounts> launches_;
  int launch_count_ = 0;
  DeviceMemory memory_;
  unsigned char* shared_;

  Grid grid_{};
  const std::function<void()>* kernel_ = nullptr;
  BlockId block_count_ = 0, launch_begin_ = 0;
  bool any_has_awaited_ = false;           ///< of this launch's blocks, the kernel before
  BlockId dependency_begin_ = 0;           ///< of the first launch that may still run
  std::vector<BlockId> dependent_begins_;  ///< of the launches behind that one
  struct Released {
    BlockId block;
    Known known;
  };
  std::map<const void*, Released> released_;  ///< what the last release of each address told
  Epoch now_ = 0;
  bool asks_ = false;      ///< where those who wait were called
  bool progress_ = false;  ///< since those who poll last ran

  // Lanes meet so often that the memory for it is not returned.
  std::deque<Brought> brought_;
  std::vector<Brought*> free_brought_;
  std::vector<std::vector<Arrival>> free_arrivals_;

  fiber host_;
  std::array<Block, kSlots> blocks_;
  Thread* current_ = nullptr;
  std::vector<Load> loads_;  ///< that have not landed
  unsigned lateness_ = 1;    ///< one in so many steps, a copy lands without need
  int late_warp_ = 0;        ///< of every block; in half of the launches there is none
  std::vector<Thread*> ready_, polling_;
};

}  // namespace sim
