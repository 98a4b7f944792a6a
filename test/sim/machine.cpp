// SPDX-License-Identifier: MIT
#include "sim/machine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <boost/context/fiber.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine.h"
#include "sim/report.h"

namespace sim {

namespace {

constexpr std::size_t kMostCounted = 16;  ///< bytes of one instruction

/// Where device and shared memory lie: most of a program's accesses are elsewhere.
unsigned char* watched = nullptr;

bool is_watched(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(watched) <
         kAddresses;
}

/// The stack of the running thread, once it has made a fence of registers.
const unsigned char* watched_stack = nullptr;

}  // namespace

std::string hex(std::size_t x) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%zx", x);
  return text;
}

bool same_place(const std::source_location& a, const std::source_location& b) {
  const bool same_file = a.file_name() == b.file_name() ||  // as it mostly is, in one program
                         std::strcmp(a.file_name(), b.file_name()) == 0;
  return same_file && a.line() == b.line() && a.column() == b.column();
}

Machine::Machine() : shared_(memory_.reserve(kSlots * kSharedRange)) {
  watched = memory_.begin();
  if (const char* const seed = std::getenv("ATTILE_SIM_SEED")) random_.seed(std::atoll(seed));
  if (const char* const path = std::getenv("ATTILE_SIM_COUNTERS")) {
    counts_file_ = std::fopen(path, "w");
    counting_ = counts_file_ != nullptr;
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i].shared = shared_ + i * kSharedRange;
}

// ---- a launch -----------------------------------------------------------------------------------

cudaError_t Machine::launch(const Grid& grid, const std::function<void()>& kernel) {
  if (failed()) return cudaErrorLaunchFailure;
  const unsigned most = most_clusters(grid.cluster);
  if (grid.blocks == 0 || grid.threads == 0 || grid.threads > kMaxThreads ||
      grid.threads % kWarpSize != 0 || grid.shared_bytes > kMaxSharedBytes || most == 0 ||
      grid.blocks % grid.cluster != 0) {
    return cudaErrorInvalidConfiguration;
  }
  grid_ = grid;
  kernel_ = &kernel;
  launch_begin_ = block_count_;
  if (grid.dependent) {
    dependent_begins_.push_back(launch_begin_);
  } else {
    dependency_begin_ = launch_begin_;
    dependent_begins_.clear();
    released_.clear();
  }
  any_has_awaited_ = false;
  ready_.clear();
  polling_.clear();
  progress_ = true;
  loads_.clear();
  const std::size_t clusters = residency_ != 0 ? std::min(residency_, most) : 1 + random_() % most;
  lateness_ = std::array{4u, 64u, 1u << 30}[random_() % 3];
  late_warp_ = static_cast<int>(random_() % (2 * (grid.threads / kWarpSize)));
  int next = 0;
  while (!failed()) {
    bool any = false;
    for (std::size_t i = 0; i < clusters; ++i) {
      Block* const first = &blocks_[i * grid.cluster];
      if (first->size == 0 && next < static_cast<int>(grid.blocks)) {
        begin_cluster(first, next);
        next += static_cast<int>(grid.cluster);
      }
      any = any || first->size != 0;
    }
    if (!any) break;
    Thread* const thread = next_ready();
    if (failed()) break;
    if (thread == nullptr) {
      report_deadlock();
      break;
    }
    resume(*thread);
    if (!failed() && thread->state == State::kEnded) leave(*thread->block);
  }
  for (Block& block : blocks_) {
    // Fibers that stand in the middle of a kernel have no end to be led to.
    if (failed()) {
      for (auto& thread : block.threads) new fiber(std::move(thread->context));
      block.threads.clear();
    }
    block.size = 0;
  }
  if (grid.dependent && !any_has_awaited_ && !failed()) {
    report("dependency",
           "the kernel ends, and none of its blocks has come to await_dependencies: who waits for "
           "it has not waited for the one before");
  }
  if (counting_) keep_counts();
  ++launch_count_;
  return cudaSuccess;
}

/// One of its threads has ended. The places of a cluster's blocks become free together.
void Machine::leave(Block& block) {
  ++block.ended;
  end_cluster_phase_if_over(*block.first);
  if (!block.is_over()) return;
  end_block(block);
  for (WarpRecord& record : block.records) record.flush(counts_);
  counts_.add_l2_reads(block.sectors.size());
  ++counters_.blocks;
  const auto end = block.first + grid_.cluster;
  if (!std::all_of(block.first, end, [](const Block& other) { return other.is_over(); })) return;
  for (Block* other = block.first; other != end; ++other) other->size = 0;
}

void Machine::begin_cluster(Block* first, int index) {
  for (int rank = 0; rank < static_cast<int>(grid_.cluster); ++rank) {
    first[rank].first = first;
    first[rank].rank = rank;
    begin_block(first[rank], index + rank);
  }
}

void Machine::begin_block(Block& block, int index) {
  block.index = index;
  block.id = block_count_++;
  block.size = grid_.threads;
  block.ended = 0;
  std::memset(block.shared, kPoison, grid_.shared_bytes);
  block.shadow.clear(grid_.shared_bytes);
  const std::size_t warps = grid_.threads / kWarpSize;
  for (Barrier& barrier : block.barriers) {
    barrier.arrivals.clear();
    barrier.last.clear();
    barrier.lanes.assign(warps, 0);
    barrier.places.assign(warps, {});
    barrier.released.assign(warps, 0);
  }
  block.meetings.assign(warps, {});
  block.records.assign(warps, {});
  block.sectors.clear();
  block.mbarriers.clear();
  block.fences.assign(grid_.threads, {});
  block.publications.assign(grid_.threads, {});
  block.reading_units.clear();
  block.writing_units.clear();
  block.warpgroups.assign(grid_.threads / kWarpgroupSize, {});
  block.free_registers = 0;
  block.register_waiters.clear();
  block.cluster = {};
  block.remote_arrivals.clear();
  block.known_at_end = {};
  ++now_;
  const auto begin = std::make_shared<const std::vector<Epoch>>(grid_.threads + kUnits, now_ - 1);
  for (unsigned t = 0; t < grid_.threads; ++t) begin_thread(block, t, begin);
}

void Machine::begin_thread(Block& block, unsigned index, const Epochs& begin) {
  if (index == block.threads.size()) {
    // Fibers live on, and run the kernel once for each block.
    block.threads.push_back(std::make_unique<Thread>());
    boost::context::fixedsize_stack stacks(kStackBytes);
    const boost::context::stack_context stack = stacks.allocate();
    block.threads[index]->stack = static_cast<unsigned char*>(stack.sp) - stack.size;
    block.threads[index]->context =
        fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack), stacks,
              [this](fiber&& host) {
                host_ = std::move(host);
                for (;;) {
                  (*kernel_)();
                  end_thread();
                  switch_out(State::kEnded);
                }
                return std::move(host_);
              });
  }
  Thread& thread = *block.threads[index];
  thread.block = &block;
  thread.index = static_cast<int>(index);
  thread.state = State::kReady;
  thread.known = {begin, nullptr};
  thread.fenced = nullptr;
  thread.epoch = now_;
  thread.polled = nullptr;
  thread.copies.clear();
  thread.groups = 0;
  thread.stores.clear();
  thread.store_groups = 0;
  thread.read_stores.clear();
  thread.registers = registers_at_start(grid_.threads);
  thread.register_changes = 0;
  thread.has_fenced = false;
  thread.products = thread.retired = 0;
  thread.product_groups.clear();
  thread.cluster_arrivals = thread.cluster_waits = 0;
  thread.told_cluster = {};
  ready_.push_back(&thread);
}

/// Nobody can wait for what is still under way for a thread that has ended.
void Machine::end_thread() {
  Thread& me = *current_;
  if (!me.stores.empty()) {
    report("in flight", who() + " ends, and its store (" + place_of(me.stores.front().pc) +
                            ") may still have to read shared memory");
  }
  if (me.retired != me.products) {
    const Product& product = me.block->warpgroups[me.index / kWarpgroupSize].product(me.retired);
    report("in flight",
           who() + " ends, and has not waited for its product (" + place_of(product.pc) + ")");
  }
  if (grid_.cluster == 1) return;
  me.block->known_at_end.learn(me.block->id, me.block->id, Known{nullptr, me.known.others});
}

void Machine::end_block(Block& block) {
  for (const Load& load : loads_) {
    if (load.block != &block) continue;
    report("in flight", "block " + std::to_string(block.index) + " ends, and the copy of thread " +
                            std::to_string(load.thread) + " of block " +
                            std::to_string(load.from->index) + " (" + place_of(load.pc) +
                            ") is still on its way to its shared memory");
    return;
  }
  check_others_are_done(block);
  for (unsigned t = 0; t < block.warpgroups.size() * kWarpgroupSize; ++t) {
    const Thread& thread = *block.threads[t];
    const Warpgroup& group = block.warpgroups[t / kWarpgroupSize];
    const auto changes = static_cast<std::size_t>(thread.register_changes);
    if (changes == group.register_changes.size()) continue;
    report("divergence", who(thread.index, block.index) + " has not come to the setmaxnreg at " +
                             place_of(group.register_changes[changes].at) +
                             ", and others of its warpgroup have");
    return;
  }
}

/// Any thread that can go on, of the late warp hardly while there is another one. Those that poll
/// run again when there is no other, as long as that changes anything.
Thread* Machine::next_ready() {
  land_loads();
  if (ready_.empty() && progress_) {
    progress_ = false;
    ready_.swap(polling_);
  }
  if (ready_.empty()) return nullptr;
  std::size_t at = random_() % ready_.size();
  for (int again = 0; again < 8 && ready_[at]->warp() == late_warp_; ++again) {
    at = random_() % ready_.size();
  }
  Thread* const thread = std::exchange(ready_[at], ready_.back());
  ready_.pop_back();
  return thread;
}

void Machine::resume(Thread& thread) {
  current_ = &thread;
  watched_stack = thread.has_fenced ? thread.stack : nullptr;
  thread.context = std::move(thread.context).resume();
  current_ = nullptr;
  watched_stack = nullptr;
}

/// From here on the thread's accesses of its own stack are seen.
void Machine::watch_stack() {
  Thread& me = *current_;
  me.has_fenced = true;
  watched_stack = me.stack;
  if (me.words == nullptr) {
    me.words.reset(static_cast<std::uint32_t*>(std::calloc(kStackBytes / 4, 4)));
  }
}

void Machine::switch_out(State state) {
  current_->state = state;
  if (state == State::kPolling) {
    polling_.push_back(current_);
  } else {
    progress_ = true;
  }
  Thread* const thread = current_;
  host_ = std::move(host_).resume();
  current_ = thread;
}

void Machine::wait(State state, const Wait& wait) {
  current_->wait = wait;
  switch_out(state);
  while (asks_) {
    current_->wait.caller = calling_line();
    switch_out(state);
  }
}

void Machine::keep_counts() {
  LaunchCounts counts = counts_.take(grid_);
  if (counts_file_ != nullptr) print_counts(counts_file_, launch_count_, counts);
  launches_.push_back(std::move(counts));
}

// ---- meetings -----------------------------------------------------------------------------------

/// What the thread does from now on is later than what it has told anyone; so for its warp, whose
/// lanes are in one epoch.
void Machine::advance(const Thread& thread) {
  ++now_;
  const auto first = thread.block->threads.begin() + thread.warp() * kWarpSize;
  std::for_each(first, first + kWarpSize, [&](auto& lane) { lane->epoch = now_; });
}

/// What the running thread knows, and of itself.
Known Machine::known_now() const {
  auto epochs = std::make_shared<std::vector<Epoch>>(*current_->known.own);
  (*epochs)[current_->index] = current_->epoch;
  return {std::move(epochs), current_->known.others};
}

Arrival Machine::arrive(bool waits) { return {current_, current_->known, current_->epoch, waits}; }

/// What any of them did until it came happened before what those who waited do from now on.
void Machine::order(const std::vector<Arrival>& arrivals) {
  const BlockId block = arrivals.front().thread->block->id;
  Known together;
  std::set<std::pair<const void*, const void*>> merged;
  for (const Arrival& a : arrivals) {
    if (merged.emplace(a.known.own.get(), a.known.others.get()).second) {
      together.learn(block, block, a.known);
    }
  }
  auto epochs = std::make_shared<std::vector<Epoch>>(*together.own);
  for (const Arrival& a : arrivals) {
    Epoch& epoch = (*epochs)[a.thread->index];
    epoch = std::max(epoch, a.epoch);
  }
  together.own = std::move(epochs);
  ++now_;
  for (const Arrival& a : arrivals) {
    if (!a.waits) continue;
    a.thread->known = together;
    a.thread->epoch = now_;
  }
}

/// Those who waited go on, in any order; the running thread is not among those to choose from.
void Machine::wake(const std::vector<Arrival>& arrivals) {
  for (const Arrival& a : arrivals) {
    if (!a.waits) continue;
    a.thread->state = State::kReady;
    if (a.thread != current_) ready_.push_back(a.thread);
  }
}

/// What is wrong with a thread's coming to a barrier.
void Machine::check_barrier(const Barrier& barrier, int id, unsigned count, bool votes,
                            const std::source_location& at) {
  const Thread& me = *current_;
  const auto wrong = [&](const std::string& why, const char* kind = "barrier") {
    report(kind, who() + " comes to barrier " + std::to_string(id) + " of " +
                     std::to_string(count) + " threads at " + place_of(at) + why);
  };
  if (id < 0 || id >= kBarriers) wrong(": they are numbered from 0 to 15");
  if (count == 0 || count % kWarpSize != 0 || count > me.block->size) {
    wrong(": a count is a multiple of 32, up to the block's " + std::to_string(me.block->size));
  }
  const auto& last = barrier.last;
  if (!last.empty() && (barrier.released[me.warp()] >> me.lane() & 1u) == 0 &&
      std::any_of(last.begin(), last.end(), [&](const Arrival& a) {
        return a.thread != &me && (*me.known.own)[a.thread->index] < a.epoch;
      })) {
    wrong(", where others have met already, and nothing orders the two: who meets is chance");
  }
  if (barrier.arrivals.empty()) return;
  const std::uint32_t lanes = barrier.lanes[me.warp()];
  if (barrier.count != count) {
    wrong(", which thread " + std::to_string(barrier.arrivals.front().thread->index) +
          " came to as one of " + std::to_string(barrier.count));
  } else if (barrier.votes != votes) {
    wrong(", where some vote and some do not");
  } else if ((lanes >> me.lane() & 1u) != 0) {
    wrong(" for the second time, and the others have not come yet");
  } else if (lanes != 0 && !same_place(barrier.places[me.warp()], at)) {
    wrong(", and lanes of its warp to it at " + place_of(barrier.places[me.warp()]), "divergence");
  } else if (lanes == 0) {
    const auto warps = std::count_if(barrier.lanes.begin(), barrier.lanes.end(),
                                     [](std::uint32_t others) { return others != 0; });
    if ((warps + 1) * kWarpSize > static_cast<long>(count)) {
      wrong(", which as many have come to already");
    }
  }
}

bool Machine::meet_threads(int id, unsigned count, Coming coming, const char* what,
                           const std::source_location& at) {
  Thread& me = *current_;
  Block& block = *me.block;
  static const Barrier kNone;
  check_barrier(id < 0 || id >= kBarriers ? kNone : block.barriers[id], id, count, coming.votes,
                at);
  Barrier& barrier = block.barriers[id];
  barrier.count = count;
  barrier.votes = coming.votes;
  barrier.any |= coming.yes;
  barrier.arrivals.push_back(arrive(coming.waits));
  barrier.lanes[me.warp()] |= 1u << me.lane();
  barrier.places[me.warp()] = at;
  if (barrier.arrivals.size() < count) {
    if (coming.waits) {
      wait(State::kWaiting, {what, at, id, count});
    } else {
      advance(me);
    }
    return me.any_at_barrier;
  }
  if (count == block.size) ++counters_.barriers;
  order(barrier.arrivals);
  wake(barrier.arrivals);
  std::fill(barrier.released.begin(), barrier.released.end(), 0);
  const bool any = std::exchange(barrier.any, false);
  for (const Arrival& a : barrier.arrivals) {
    if (!a.waits) continue;
    a.thread->any_at_barrier = any;
    barrier.released[a.thread->warp()] |= 1u << a.thread->lane();
    if (a.thread->lane() == 0) block.records[a.thread->warp()].flush(counts_);
  }
  barrier.last = std::exchange(barrier.arrivals, {});
  std::fill(barrier.lanes.begin(), barrier.lanes.end(), 0);
  if (coming.waits) {
    ready_.push_back(&me);
    switch_out(State::kReady);
  } else {
    advance(me);
  }
  return any;
}

/// The meeting of those lanes; reports a lane that has no place in it.
Meeting& Machine::meeting_of(unsigned mask, const std::source_location& at) {
  std::vector<Meeting>& meetings = current_->block->meetings[current_->warp()];
  if ((mask >> current_->lane() & 1u) == 0) {
    report("divergence",
           who() + " is none of the lanes " + hex(mask) + " that meet at " + place_of(at));
  }
  for (Meeting& meeting : meetings) {
    if (meeting.mask == mask && same_place(meeting.at, at)) return meeting;
    // Lanes may wait here until others have met among themselves, but not for each other.
    const bool here_waits = (meeting.mask >> current_->lane() & 1u) != 0;
    const bool there_waits =
        std::any_of(meeting.arrivals.begin(), meeting.arrivals.end(),
                    [&](const Arrival& a) { return (mask >> a.thread->lane() & 1u) != 0; });
    if (!here_waits || !there_waits) continue;
    report("divergence", who() + " comes to " + place_of(at) + " with the lanes " + hex(mask) +
                             ", while lanes of its warp wait at " + place_of(meeting.at) +
                             " for the lanes " + hex(meeting.mask) + ", thread " +
                             std::to_string(meeting.arrivals.front().thread->index) + " first");
  }
  if (free_brought_.empty()) free_brought_.push_back(&brought_.emplace_back());
  if (free_arrivals_.empty()) free_arrivals_.emplace_back();
  meetings.push_back({mask, at, std::move(free_arrivals_.back()), free_brought_.back()});
  free_arrivals_.pop_back();
  free_brought_.pop_back();
  meetings.back().brought->values = {};
  return meetings.back();
}

/// All lanes have come, and get what the others brought.
void Machine::end_meeting(Meeting& meeting) {
  for (const Arrival& a : meeting.arrivals) {
    Brought*& lanes = a.thread->lanes;
    if (lanes != nullptr && --lanes->users == 0) free_brought_.push_back(lanes);
    lanes = meeting.brought;
  }
  meeting.brought->users = static_cast<int>(meeting.arrivals.size());
  meeting.arrivals.clear();
  free_arrivals_.push_back(std::move(meeting.arrivals));
  std::vector<Meeting>& meetings = current_->block->meetings[current_->warp()];
  meetings.erase(meetings.begin() + (&meeting - meetings.data()));
}

const std::array<Operands, kWarpSize>& Machine::meet_lanes(unsigned mask, const Operands& mine,
                                                           bool orders,
                                                           const std::source_location& at) {
  Thread& me = *current_;
  Meeting& meeting = meeting_of(mask, at);
  // What a lane knows is of use where they are ordered alone.
  meeting.arrivals.push_back(orders ? arrive(true) : Arrival{&me, {}, me.epoch, true});
  meeting.brought->values[me.lane()] = mine;
  if (static_cast<int>(meeting.arrivals.size()) < std::popcount(mask)) {
    wait(State::kWaiting, {"the lanes of its warp at ", at});
    return me.lanes->values;
  }
  if (orders) order(meeting.arrivals);
  wake(meeting.arrivals);
  if (mask == kAllLanes) me.block->records[me.warp()].flush(counts_);
  end_meeting(meeting);
  return me.lanes->values;
}

std::uint32_t Machine::shuffle(unsigned mask, std::uint32_t value, int from,
                               const std::source_location& at) {
  if (from < 0 || from >= kWarpSize || (mask >> from & 1u) == 0) {
    report("divergence", who() + " reads lane " + std::to_string(from) + " at " + place_of(at) +
                             ", which is none of the lanes " + hex(mask));
  }
  return meet_lanes(mask, {value}, false, at)[from][0];
}

// ---- what kernels do to memory ------------------------------------------------------------------

void Machine::access(const void* address, std::size_t bytes, Touch touch, const void* pc) {
  const auto* const p = static_cast<const unsigned char*>(address);
  const bool in_shared = is_shared(p);
  if (!is_watched(p)) return;  // the thread's own, or a constant
  if (current_->reads_early) return;
  const Thread& me = *current_;
  Block& block = *me.block;
  Shadow* shadow = nullptr;
  std::size_t offset = 0;
  if (in_shared) {
    offset = p - block.shared;  // large for another block's
    if (offset + bytes <= grid_.shared_bytes) shadow = &block.shadow;
  } else if (Allocation* const allocation = memory_.find(p, bytes)) {
    offset = p - allocation->begin;
    shadow = &allocation->shadow;
    const bool reads = touch.access == Access::kRead || touch.way == Way::kAtomic;
    if (touch.counts && reads) allocation->traffic.read += bytes;
    if (touch.counts && touch.access == Access::kWrite) allocation->traffic.written += bytes;
  }
  const char* const verb = touch.access == Access::kRead ? " reads " : " writes ";
  const auto what = [&] {
    const std::string space = in_shared ? "shared memory + " : "device memory, at ";
    return who() + verb + std::to_string(bytes) + " bytes of " + space +
           hex(shadow != nullptr || in_shared ? offset : reinterpret_cast<std::size_t>(p)) + " (" +
           place_here(pc) + ")";
  };
  if (shadow == nullptr) {
    report("bounds", what() + (in_shared ? ": the launch asked for " +
                                               std::to_string(grid_.shared_bytes) + " bytes"
                                         : ", which is in no allocation"));
    return;
  }
  const bool bulk = touch.way == Way::kBulk;
  if (!bulk && std::has_single_bit(bytes) && bytes <= 16 &&
      reinterpret_cast<std::size_t>(p) % bytes != 0) {
    report("misaligned", what());
    return;
  }
  if (counting_ && touch.counts && !bulk && bytes <= kMostCounted) {
    const Space space = in_shared ? Space::kShared : Space::kDevice;
    const std::uint64_t at = in_shared ? offset : reinterpret_cast<std::uint64_t>(p);
    block.records[me.warp()].touch(
        me.lane(), {pc, space, touch.access, touch.way, static_cast<unsigned>(bytes), 0, 0, 0, 0},
        at);
    if (!in_shared && touch.access == Access::kRead) block.sectors.insert(at / kSectorBytes);
  }
  if (!touch.happens) return;
  const Toucher toucher{me.index, block.id, me.epoch, &me.known, first_unordered(me.known), pc};
  touch.may_reach_padding = touch.may_reach_padding && in_shared;
  if (const auto fault = shadow->touch(offset, bytes, touch, toucher)) {
    report_fault(*fault, what());
  }
}

/// The first block with which something has to order whoever knows so much.
BlockId Machine::first_unordered(const Known& known) const {
  for (auto begin = dependent_begins_.rbegin(); begin != dependent_begins_.rend(); ++begin) {
    if (known.of(launch_begin_, all_before(*begin)) != nullptr) return *begin;
  }
  return dependency_begin_;
}

void Machine::await_dependencies() {
  static const auto kEnded = std::make_shared<const std::vector<Epoch>>();
  any_has_awaited_ = true;
  if (!grid_.dependent) return;
  current_->known.learn(current_->block->id, all_before(launch_begin_), kEnded);
}

int Machine::acquire(const int* address, const std::source_location& at, const void* pc) {
  Thread& me = *current_;
  access(address, sizeof *address, {Access::kRead, Way::kAtomic}, pc);
  if (me.polled == address && me.polled_value == *address) {
    wait(State::kPolling, {", polled at ", at});
  }
  if (me.polled != address || me.polled_value != *address) progress_ = true;
  me.polled = address;
  me.polled_value = *address;
  learn_released(address);
  return *address;
}

void Machine::learn_released(const int* address) {
  if (const auto found = released_.find(address); found != released_.end()) {
    current_->known.learn(current_->block->id, found->second.block, found->second.known);
  }
}

int Machine::add_acq_rel(int* address, int x, const void* pc) {
  const int before = *address;
  learn_released(address);
  release(address, before + x, pc);
  return before;
}

void Machine::release(int* address, int value, const void* pc) {
  access(address, sizeof *address, {Access::kWrite, Way::kAtomic}, pc);
  const Thread& me = *current_;
  released_[address] = {me.block->id, known_now()};
  advance(me);
  progress_ = true;
  *address = value;
}

/// The target is poisoned, and neither read nor written, until the thread has waited.
void Machine::copy(unsigned char* to, const void* from, std::size_t bytes, const void* pc) {
  if (from != nullptr) access(from, bytes, {Access::kRead, Way::kAsynchronous}, pc);
  access(to, bytes, {Access::kWrite, Way::kAsynchronous}, pc);
  std::memset(to, kPoison, bytes);
  Copy copy{to, from, bytes, current_->groups, pc, {}};
  if (from != nullptr) std::memcpy(copy.data.data(), from, bytes);
  current_->copies.push_back(copy);
}

/// Waits for the thread's copies of the groups before number `end`.
void Machine::land_groups_before(int end) {
  Thread& me = *current_;
  Block& block = *me.block;
  std::erase_if(me.copies, [&](const Copy& copy) {
    if (copy.group >= end) return false;
    if (copy.from != nullptr) {
      // It was read at any time until now.
      access(copy.from, copy.bytes,
             {.access = Access::kRead, .way = Way::kAsynchronous, .counts = false}, copy.pc);
      if (std::memcmp(copy.data.data(), copy.from, copy.bytes) != 0) {
        report("in flight", who() + " waits for its copy (" + place_of(copy.pc) +
                                "), whose source has changed since it began");
      }
    }
    std::memcpy(copy.to, copy.data.data(), copy.bytes);
    block.shadow.land(copy.to - block.shared, copy.bytes, me.epoch);
    return true;
  });
}

// ---- reports ------------------------------------------------------------------------------------

std::string Machine::who(int thread, std::int64_t block) const {
  const std::string of_block = " of block " + std::to_string(block);
  const int number = thread - static_cast<int>(grid_.threads);
  if (number < 0) return "thread " + std::to_string(thread) + of_block;
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& other) {
    return other.size != 0 && other.index == block;
  });
  if (found == blocks_.end()) return "a copy unit" + of_block;
  const Unit unit = number < kReadingUnits ? found->reading_units[number]
                                           : found->writing_units[number - kReadingUnits];
  switch (unit.kind) {
    case UnitKind::kProducts:
      return "a product of warpgroup " + std::to_string(unit.number) + of_block;
    case UnitKind::kStoredFrom:
      return "a store of thread " + std::to_string(unit.number) + of_block;
    case UnitKind::kLoads:
      return "a copy that the mbarrier at " + shared_text(unit.number) + of_block + " counts";
    default:
      return "a store" + of_block;
  }
}

std::string Machine::shared_text(std::size_t offset) const {
  return "shared memory + " + hex(offset);
}

/// The thread that is reported never goes on.
void Machine::report(std::string kind, const std::string& text) {
  reports_.push_back({std::move(kind), text});
  std::fprintf(stderr, "sim: %s: %s\n", reports_.back().kind.c_str(), text.c_str());
  if (runs()) switch_out(State::kWaiting);
}

void Machine::report_fault(const Fault& fault, const std::string& what) {
  const bool read = fault.access == Access::kRead;
  if (fault.kind == Fault::Kind::kRace && fault.block < launch_begin_) {
    return report("dependency", what + ", which the kernel before has " +
                                    (read ? "read (" : "written (") + place_of(fault.pc) +
                                    "), and no await_dependencies lies between");
  }
  const auto other = [&] { return who(fault.thread, fault.block - launch_begin_) + " "; };
  const bool is_thread = fault.thread < static_cast<int>(grid_.threads);
  const std::string where = "(" + place_of(fault.pc) + ")";
  switch (fault.kind) {
    case Fault::Kind::kUninitialised:
      return report("uninitialised", what + ", some of which nobody has written");
    case Fault::Kind::kInFlight:
      return report("in flight", what + ", which " + (is_thread ? "the copy of " : "") + other() +
                                     where + " is still writing: nothing has waited for it");
    case Fault::Kind::kProxy:
      return report("proxy", what + ", which " + other() + "has written " + where +
                                 ", and no fence_async_proxy of that thread, or of those who told "
                                 "it to read, lies between");
    case Fault::Kind::kBarrier:
      return report("mbarrier",
                    what + ", where an mbarrier lies that " + other() + "has initialised " + where);
    case Fault::Kind::kRace:
      return report("race", what + ", which " + other() + (read ? "has read " : "has written ") +
                                where + ", and nothing orders the two");
  }
}

/// Each thread that waits in a function of tile/ goes on for as long as it takes to say who called
/// that.
void Machine::ask_for_callers() {
  asks_ = true;
  for (Block& block : blocks_) {
    for (unsigned t = 0; t < block.size; ++t) {
      Thread& thread = *block.threads[t];
      const bool waits = thread.state == State::kWaiting || thread.state == State::kPolling;
      if (waits && std::strstr(thread.wait.at.file_name(), "/attile/tile/") != nullptr) {
        resume(thread);
      }
    }
  }
  asks_ = false;
}

/// What the threads of a block wait for.
std::string Machine::waits_of(const Block& block) const {
  std::map<std::string, std::vector<int>> waits;
  for (unsigned t = 0; t < block.size; ++t) {
    const Thread& thread = *block.threads[t];
    if (thread.state == State::kEnded) continue;
    std::string what = thread.wait.what;
    if (thread.state == State::kPolling) {
      what = "another value than " + std::to_string(thread.polled_value) + what;
    } else if (thread.wait.barrier != 0) {
      what = "barrier " + std::to_string(thread.wait.barrier) + " of " +
             std::to_string(thread.wait.count) + " threads at ";
    } else if (const Mbarrier* const barrier = thread.wait.mbarrier) {
      what = "the end of phase " + std::to_string(barrier->phase) + " of the mbarrier at " +
             shared_text(barrier->offset) + ", to which " + std::to_string(barrier->pending) +
             " arrivals and " + std::to_string(barrier->bytes) + " bytes have yet to come, at ";
    }
    what += place_of(thread.wait.at);
    if (!thread.wait.caller.empty()) what += ", from " + thread.wait.caller;
    waits[what].push_back(thread.index);
  }
  std::string text;
  for (const auto& [what, threads] : waits) {
    text += " " + std::to_string(threads.size()) + " threads (" + std::to_string(threads.front()) +
            " first) wait for " + what + ";";
  }
  return text + " " + std::to_string(block.ended) + " have ended. ";
}

void Machine::report_deadlock() {
  ask_for_callers();
  std::vector<std::pair<std::string, std::string>> blocks;  // their numbers, and what they wait for
  int last = -1;
  for (const Block& block : blocks_) {
    if (block.size == 0) continue;
    last = std::max(last, block.index);
    const std::string waits = waits_of(block), number = std::to_string(block.index);
    const auto same = std::find_if(blocks.begin(), blocks.end(),
                                   [&](const auto& other) { return other.second == waits; });
    if (same == blocks.end()) {
      blocks.emplace_back("block " + number, waits);
    } else {
      same->first += ", and block " + number + " alike";
    }
  }
  std::string text;
  for (const auto& [numbers, waits] : blocks) text += numbers + ":" + waits;
  const int later = static_cast<int>(grid_.blocks) - last - 1;
  report("deadlock", text + std::to_string(later) + " later blocks have not begun");
}

// ---- the functions of the header ----------------------------------------------------------------

cudaError_t launch(const Grid& grid, const std::function<void()>& kernel) {
  return Machine::get().launch(grid, kernel);
}
void set_seed(std::uint64_t seed) { Machine::get().seed(seed); }
void set_residency(unsigned clusters) { Machine::get().set_residency(clusters); }
std::vector<Report> take_reports() { return Machine::get().take_reports(); }

Counters counters() { return Machine::get().counters(); }
void reset_counters() { Machine::get().counters() = {}; }
void count_exp() {
  Machine& machine = Machine::get();
  if (machine.runs()) ++machine.counters().exps;
}
Traffic traffic(const void* allocation) {
  const auto* const p = static_cast<const unsigned char*>(allocation);
  const Allocation* const found = Machine::get().memory().find(p, 1);
  return found != nullptr ? found->traffic : Traffic{};
}
void count_instructions(bool on) { Machine::get().count_instructions(on); }
std::vector<LaunchCounts> take_launches() { return Machine::get().take_launches(); }

int thread_index() { return Machine::get().current().index; }
int block_index() { return Machine::get().current().block->index; }
void await_dependencies() { Machine::get().await_dependencies(); }
void begin_early_reads() { Machine::get().read_early(true); }
bool end_early_reads() {
  Machine::get().read_early(false);
  return !Machine::get().is_late();
}
int block_count() { return Machine::get().blocks(); }
int cluster_size() { return Machine::get().cluster(); }
int cluster_rank() { return Machine::get().current().block->rank; }
unsigned char* dynamic_shared() { return Machine::get().current().block->shared; }

void block_barrier(std::source_location at) {
  Machine& machine = Machine::get();
  machine.meet_threads(0, machine.current().block->size, {true}, "the barrier of the block at ",
                       at);
}
void named_barrier(int id, int threads, bool waits, std::source_location at) {
  const unsigned count = static_cast<unsigned>(threads);
  Machine::get().meet_threads(id, count, {waits}, "barrier 0 at ", at);
}
bool barrier_vote(int id, int threads, bool x, std::source_location at) {
  const unsigned count = static_cast<unsigned>(threads);
  return Machine::get().meet_threads(id, count, {true, true, x}, "barrier 0 at ", at);
}
void warp_barrier(unsigned lanes, std::source_location at) {
  static_cast<void>(Machine::get().meet_lanes(lanes, {}, true, at));
}
std::uint32_t shuffle(unsigned lanes, std::uint32_t value, int from, std::source_location at) {
  return Machine::get().shuffle(lanes, value, from, at);
}
std::uint32_t vote(unsigned lanes, bool value, std::source_location at) {
  const auto& votes = Machine::get().meet_lanes(lanes, {value}, false, at);
  std::uint32_t found = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) found |= votes[lane][0] << lane;
  return found;
}

void atomic_add(float* address, float x, std::source_location) {
  Machine::get().access(address, sizeof *address, {Access::kWrite, Way::kAtomic},
                        __builtin_return_address(0));
  *address += x;
}
void atomic_add(float* address, const attile::Float4& x, std::source_location) {
  Machine::get().access(address, sizeof x, {Access::kWrite, Way::kAtomic},
                        __builtin_return_address(0));
  for (int i = 0; i < 4; ++i) address[i] += x[i];
}
void atomic_max(float* address, float x, std::source_location) {
  Machine::get().access(address, sizeof *address, {Access::kWrite, Way::kAtomic},
                        __builtin_return_address(0));
  *address = std::max(*address, x);
}
int fetch_add(int* address, int x, std::source_location) {
  Machine::get().access(address, sizeof *address, {Access::kWrite, Way::kAtomic},
                        __builtin_return_address(0));
  return std::exchange(*address, *address + x);
}
const std::array<Operands, kWarpSize>& exchange(const Operands& mine, std::source_location at) {
  return Machine::get().meet_lanes(kAllLanes, mine, false, at);
}

std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(static_cast<const unsigned char*>(p) - dynamic_shared());
}
unsigned char* at_shared(std::uint32_t address) { return dynamic_shared() + address; }
void async_copy(std::uint32_t shared, const void* from, std::size_t bytes, bool there) {
  Machine::get().copy(at_shared(shared), there ? from : nullptr, bytes,
                      __builtin_return_address(0));
}
void async_commit() { Machine::get().close_group(); }
void async_wait(int pending) { Machine::get().land(pending); }

void load(void* to, const void* address, std::size_t bytes) {
  if (Machine& machine = Machine::get(); machine.runs()) {
    machine.access(address, bytes, {.access = Access::kRead, .may_reach_padding = true},
                   __builtin_return_address(0));
  }
  std::memcpy(to, address, bytes);
}
void store(void* address, const void* from, std::size_t bytes) {
  if (Machine& machine = Machine::get(); machine.runs()) {
    machine.access(address, bytes, {.access = Access::kWrite}, __builtin_return_address(0));
  }
  std::memcpy(address, from, bytes);
}
int fetch_add_acq_rel(int* address, int x, std::source_location) {
  return Machine::get().add_acq_rel(address, x, __builtin_return_address(0));
}
int load_acquire(const int* address, std::source_location at) {
  return Machine::get().acquire(address, at, __builtin_return_address(0));
}
void store_release(int* address, int x, std::source_location) {
  Machine::get().release(address, x, __builtin_return_address(0));
}

namespace {

[[gnu::noinline]] void watched_access(const void* address, std::size_t bytes, Access access,
                                      const void* pc) {
  Machine& machine = Machine::get();
  if (machine.runs()) machine.access(address, bytes, {.access = access}, pc);
}

}  // namespace

/// Most accesses are of memory that nobody watches. The rest is another function, so that this one
/// has few registers to save.
void access(const void* address, std::size_t bytes, Access access, const void* pc) {
  if (is_watched(address)) return watched_access(address, bytes, access, pc);
  const auto* const p = static_cast<const unsigned char*>(address);
  if (watched_stack != nullptr && static_cast<std::size_t>(p - watched_stack) < kStackBytes) {
    Machine::get().touch_stack(p, bytes, access, pc);
  }
}

void* allocate(std::size_t bytes) { return Machine::get().memory().allocate(bytes); }
bool release_memory(void* address) { return Machine::get().memory().release(address); }
void initialise(const void* address, std::size_t bytes) {
  const auto* const p = static_cast<const unsigned char*>(address);
  if (Allocation* const allocation = Machine::get().memory().find(p, bytes)) {
    allocation->shadow.initialise(p - allocation->begin, bytes);
  }
}

void matrix_row(const void* address, Access access, const void* pc) {
  Machine::get().access(address, 16, {.access = access, .way = Way::kMatrix, .happens = false}, pc);
}
void matrix_element(const void* address, std::size_t bytes, Access access, const void* pc) {
  Machine::get().access(address, bytes, {.access = access, .way = Way::kMatrix, .counts = false},
                        pc);
}
void count_flops(std::uint64_t flops) { Machine::get().counters().mma_flops += flops; }

cudaError_t last_error() { return Machine::get().failed() ? cudaErrorLaunchFailure : cudaSuccess; }

}  // namespace sim
