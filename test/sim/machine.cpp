// SPDX-License-Identifier: MIT
#include "sim/machine.h"

#include <algorithm>
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

#include "sim/device_memory.h"
#include "sim/memory.h"
#include "sim/report.h"

namespace sim {

namespace {

using boost::context::fiber;

constexpr std::size_t kStackBytes = 256 << 10;

std::string hex(std::size_t x) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%zx", x);
  return text;
}

// ---- threads ------------------------------------------------------------------------------------

enum class State { kReady, kWaiting, kPolling, kEnded };

struct Thread {
  fiber context;
  State state = State::kEnded;
  std::shared_ptr<const Known> known;
  Epoch epoch = 0;
  const char* waits_for = "";  ///< and where: a sentence is made of them for a deadlock alone
  std::source_location waits_at;
  Lanes lanes{};  ///< what its last meeting gave
  const int* polled = nullptr;
  int polled_value = 0;
};

/// Where the lanes of a warp, or all threads of a block, meet.
struct Meeting {
  std::vector<int> threads;
  std::source_location at;
  bool orders = false;
  Lanes values{};
};

class Machine {
 public:
  static Machine& get() {
    static Machine machine;
    return machine;
  }

  cudaError_t launch(const Grid& grid, const std::function<void()>& kernel);
  void access(const void* address, std::size_t bytes, Touch touch, const void* pc);
  void meet_block(const std::source_location& at);
  Lanes meet_warp(unsigned mask, std::uint32_t value, bool orders, const std::source_location& at);
  int acquire(const int* address, const std::source_location& at, const void* pc);
  void release(int* address, int value, const void* pc);

  bool runs() const { return current_ >= 0; }
  int thread() const { return current_; }
  int block() const { return block_; }
  unsigned char* shared() { return shared_; }
  DeviceMemory& memory() { return memory_; }
  void seed(std::uint64_t seed) { random_.seed(seed); }
  Counters& counters() { return counters_; }
  std::vector<Report> take_reports() { return std::exchange(reports_, {}); }
  bool failed() const { return !reports_.empty(); }

 private:
  Machine()
      : shared_(static_cast<unsigned char*>(std::aligned_alloc(1024, 2 * kMaxSharedBytes))),
        shared_shadow_(kMaxSharedBytes) {
    if (const char* const seed = std::getenv("ATTILE_SIM_SEED")) random_.seed(std::atoll(seed));
  }

  void run_block();
  void make_threads(unsigned count);
  void resume(int thread);
  void switch_out(State state);
  void wait(State state, const char* what, const std::source_location& at);
  void order(const std::vector<int>& threads);
  void wake(Meeting& meeting);
  void report(std::string kind, const std::string& text);
  void report_fault(const Fault& fault, const std::string& what);
  void report_deadlock();
  bool anything_ready();
  std::string who(int thread, std::int64_t block) const;

  std::mt19937_64 random_{1};
  std::vector<Report> reports_;
  Counters counters_;
  DeviceMemory memory_;
  unsigned char* shared_;
  Shadow shared_shadow_;

  Grid grid_{};
  const std::function<void()>* kernel_ = nullptr;
  int block_ = -1, current_ = -1;
  std::int64_t block_count_ = 0, launch_begin_ = 0;  ///< through all launches
  std::set<std::int64_t> acquired_;                  ///< blocks that this one came after
  std::map<const void*, std::set<std::int64_t>> released_;
  Epoch now_ = 0;
  bool progress_ = false;

  fiber host_;
  std::vector<Thread> threads_;
  std::vector<int> ready_, polling_;
  Meeting block_meeting_;
  std::vector<Meeting> warp_meetings_;
};

cudaError_t Machine::launch(const Grid& grid, const std::function<void()>& kernel) {
  if (failed()) return cudaErrorLaunchFailure;
  if (grid.blocks == 0 || grid.threads == 0 || grid.threads > kMaxThreads ||
      grid.threads % kWarpSize != 0 || grid.shared_bytes > kMaxSharedBytes) {
    return cudaErrorInvalidConfiguration;
  }
  grid_ = grid;
  kernel_ = &kernel;
  launch_begin_ = block_count_;
  released_.clear();
  make_threads(grid.threads);
  for (block_ = 0; block_ < static_cast<int>(grid.blocks) && !failed(); ++block_) {
    run_block();
    ++block_count_;
    ++counters_.blocks;
  }
  block_ = -1;
  return cudaSuccess;
}

/// Fibers live on, and run the kernel once for each block.
void Machine::make_threads(unsigned count) {
  while (threads_.size() < count) {
    threads_.emplace_back();
    threads_.back().context = fiber(
        std::allocator_arg, boost::context::fixedsize_stack(kStackBytes), [this](fiber&& host) {
          host_ = std::move(host);
          for (;;) {
            (*kernel_)();
            switch_out(State::kEnded);
          }
          return std::move(host_);
        });
  }
}

void Machine::run_block() {
  std::memset(shared_, kPoison, grid_.shared_bytes);
  shared_shadow_.clear(grid_.shared_bytes);
  acquired_.clear();
  ++now_;
  const auto begin = std::make_shared<const Known>(grid_.threads, now_ - 1);
  ready_.clear();
  polling_.clear();
  block_meeting_ = {};
  warp_meetings_.assign(grid_.threads / kWarpSize, {});
  for (unsigned t = 0; t < grid_.threads; ++t) {
    threads_[t].known = begin;
    threads_[t].epoch = now_;
    threads_[t].polled = nullptr;
    ready_.push_back(static_cast<int>(t));
  }
  progress_ = true;
  while (!failed() && anything_ready()) {
    const std::size_t pick = random_() % ready_.size();
    const int thread = std::exchange(ready_[pick], ready_.back());
    ready_.pop_back();
    resume(thread);
  }
  if (failed()) {
    // Fibers that stand in the middle of a kernel have no end to be led to.
    for (Thread& t : threads_) new fiber(std::move(t.context));
    threads_.clear();
  }
}

/// Threads that poll run again when there is no other, as long as that changes anything.
bool Machine::anything_ready() {
  if (!ready_.empty()) return true;
  if (!polling_.empty() && progress_) {
    progress_ = false;
    ready_.swap(polling_);
    return true;
  }
  for (unsigned t = 0; t < grid_.threads; ++t) {
    if (threads_[t].state != State::kEnded) {
      report_deadlock();
      break;
    }
  }
  return false;
}

void Machine::resume(int thread) {
  current_ = thread;
  threads_[thread].context = std::move(threads_[thread].context).resume();
  current_ = -1;
}

void Machine::switch_out(State state) {
  threads_[current_].state = state;
  if (state == State::kPolling) {
    polling_.push_back(current_);
  } else {
    progress_ = true;
  }
  const int thread = current_;
  host_ = std::move(host_).resume();
  current_ = thread;
}

void Machine::wait(State state, const char* what, const std::source_location& at) {
  threads_[current_].waits_for = what;
  threads_[current_].waits_at = at;
  switch_out(state);
}

// ---- meetings -----------------------------------------------------------------------------------

/// What any of them did until now happened before what any of them does from now on.
void Machine::order(const std::vector<int>& threads) {
  auto together = std::make_shared<Known>(*threads_[threads.front()].known);
  const Known* merged = threads_[threads.front()].known.get();
  for (const int t : threads) {
    const Known& known = *threads_[t].known;
    if (&known == merged) continue;
    merged = &known;
    std::transform(known.begin(), known.end(), together->begin(), together->begin(),
                   [](Epoch a, Epoch b) { return std::max(a, b); });
  }
  for (const int t : threads) (*together)[t] = threads_[t].epoch;
  ++now_;
  for (const int t : threads) {
    threads_[t].known = together;
    threads_[t].epoch = now_;
  }
}

/// Ends a meeting: all of them go on, in any order, the last one to come among them.
void Machine::wake(Meeting& meeting) {
  if (meeting.orders) order(meeting.threads);
  for (const int t : meeting.threads) {
    threads_[t].state = State::kReady;
    threads_[t].lanes = meeting.values;
    if (t != current_) ready_.push_back(t);
  }
  meeting.threads.clear();
}

void Machine::meet_block(const std::source_location& at) {
  block_meeting_.threads.push_back(current_);
  block_meeting_.orders = true;
  if (block_meeting_.threads.size() < grid_.threads) {
    wait(State::kWaiting, "the barrier of the block at ", at);
    return;
  }
  ++counters_.barriers;
  wake(block_meeting_);
  ready_.push_back(current_);
  switch_out(State::kReady);
}

Lanes Machine::meet_warp(unsigned mask, std::uint32_t value, bool orders,
                         const std::source_location& at) {
  const int warp = current_ / kWarpSize;
  const int lane = current_ % kWarpSize;
  Meeting& meeting = warp_meetings_[warp];
  if (meeting.threads.empty()) {
    meeting.at = at;
    meeting.orders = orders;
  } else if (meeting.at.line() != at.line() || meeting.at.column() != at.column() ||
             std::strcmp(meeting.at.file_name(), at.file_name()) != 0) {
    report("divergence", who(current_, block_) + " comes to " + place_of(at) +
                             ", while lanes of its warp wait at " + place_of(meeting.at) +
                             ", thread " + std::to_string(meeting.threads.front()) + " first");
  }
  meeting.threads.push_back(current_);
  meeting.values[lane] = value;
  if (meeting.threads.size() < static_cast<std::size_t>(__builtin_popcount(mask))) {
    wait(State::kWaiting, "the lanes of its warp at ", at);
  } else {
    wake(meeting);
  }
  return threads_[current_].lanes;
}

// ---- what kernels do to memory ------------------------------------------------------------------

void Machine::access(const void* address, std::size_t bytes, Touch touch, const void* pc) {
  const auto* const p = static_cast<const unsigned char*>(address);
  const bool in_shared = shared_ <= p && p < shared_ + 2 * kMaxSharedBytes;
  if (!in_shared && !memory_.contains(p)) return;  // the thread's own, or a constant
  Shadow* shadow = nullptr;
  std::size_t offset = 0;
  if (in_shared) {
    offset = p - shared_;
    if (offset + bytes <= grid_.shared_bytes) shadow = &shared_shadow_;
  } else if (Allocation* const allocation = memory_.find(p, bytes)) {
    offset = p - allocation->begin;
    shadow = &allocation->shadow;
    if (touch.access == Access::kRead || touch.atomic) allocation->traffic.read += bytes;
    if (touch.access == Access::kWrite) allocation->traffic.written += bytes;
  }
  const char* const verb = touch.access == Access::kRead ? " reads " : " writes ";
  const auto what = [&] {
    const std::string space = in_shared ? "shared memory + " : "device memory, at ";
    return who(current_, block_) + verb + std::to_string(bytes) + " bytes of " + space +
           hex(shadow != nullptr || in_shared ? offset : reinterpret_cast<std::size_t>(p)) + " (" +
           place_of(pc) + ")";
  };
  if (shadow == nullptr) {
    report("bounds", what() + (in_shared ? ": the launch asked for " +
                                               std::to_string(grid_.shared_bytes) + " bytes"
                                         : ", which is in no allocation"));
    return;
  }
  if ((bytes & (bytes - 1)) == 0 && bytes <= 16 && reinterpret_cast<std::size_t>(p) % bytes != 0) {
    report("misaligned", what());
    return;
  }
  const Thread& me = threads_[current_];
  const Toucher toucher{current_,      me.epoch, me.known.get(), &acquired_, block_count_,
                        launch_begin_, pc};
  if (const auto fault = shadow->touch(offset, bytes, touch, toucher)) {
    report_fault(*fault, what());
  }
}

int Machine::acquire(const int* address, const std::source_location& at, const void* pc) {
  Thread& me = threads_[current_];
  access(address, sizeof *address, {Access::kRead, true}, pc);
  if (me.polled == address && me.polled_value == *address) {
    wait(State::kPolling, ", polled at ", at);
  }
  me.polled = address;
  me.polled_value = *address;
  if (const auto found = released_.find(address); found != released_.end()) {
    acquired_.insert(found->second.begin(), found->second.end());
  }
  return *address;
}

void Machine::release(int* address, int value, const void* pc) {
  access(address, sizeof *address, {Access::kWrite, true}, pc);
  *address = value;
  std::set<std::int64_t>& blocks = released_[address];
  blocks = acquired_;
  blocks.insert(block_count_);
}

// ---- reports ------------------------------------------------------------------------------------

std::string Machine::who(int thread, std::int64_t block) const {
  return "thread " + std::to_string(thread) + " of block " + std::to_string(block);
}

/// The thread that is reported never goes on.
void Machine::report(std::string kind, const std::string& text) {
  reports_.push_back({std::move(kind), text});
  std::fprintf(stderr, "sim: %s: %s\n", reports_.back().kind.c_str(), text.c_str());
  if (runs()) switch_out(State::kWaiting);
}

void Machine::report_fault(const Fault& fault, const std::string& what) {
  if (fault.kind == Fault::Kind::kUninitialised) {
    report("uninitialised", what + ", which nobody has written");
    return;
  }
  const bool blocks = fault.kind == Fault::Kind::kRaceOfBlocks;
  const std::int64_t block = blocks ? fault.block - launch_begin_ : block_;
  const std::string other =
      fault.thread >= 0 ? who(fault.thread, block) : "a thread of block " + std::to_string(block);
  report("race", what + ", which " + other +
                     (fault.access == Access::kRead ? " has read (" : " has written (") +
                     place_of(fault.pc) + "), and nothing orders the two");
}

void Machine::report_deadlock() {
  std::map<std::string, std::vector<int>> waits;
  int ended = 0;
  for (unsigned t = 0; t < grid_.threads; ++t) {
    if (threads_[t].state == State::kEnded) {
      ++ended;
    } else {
      const Thread& thread = threads_[t];
      const std::string value = thread.state == State::kPolling
                                    ? "another value than " + std::to_string(thread.polled_value)
                                    : "";
      waits[value + thread.waits_for + place_of(thread.waits_at)].push_back(static_cast<int>(t));
    }
  }
  std::string text = "block " + std::to_string(block_) + ":";
  for (const auto& [what, threads] : waits) {
    text += " " + std::to_string(threads.size()) + " threads (" + std::to_string(threads.front()) +
            " first) wait for " + what + ";";
  }
  report("deadlock", text + " " + std::to_string(ended) + " have ended");
}

}  // namespace

// ---- the functions of the header ----------------------------------------------------------------

cudaError_t launch(const Grid& grid, const std::function<void()>& kernel) {
  return Machine::get().launch(grid, kernel);
}
void set_seed(std::uint64_t seed) { Machine::get().seed(seed); }
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

int thread_index() { return Machine::get().thread(); }
int block_index() { return Machine::get().block(); }
unsigned char* dynamic_shared() { return Machine::get().shared(); }

void block_barrier(std::source_location at) { Machine::get().meet_block(at); }
void warp_barrier(unsigned mask, std::source_location at) {
  static_cast<void>(Machine::get().meet_warp(mask, 0, true, at));
}
Lanes exchange(unsigned mask, std::uint32_t value, std::source_location at) {
  return Machine::get().meet_warp(mask, value, false, at);
}

void atomic_add(float* address, float x, std::source_location) {
  Machine::get().access(address, sizeof *address, {Access::kWrite, true},
                        __builtin_return_address(0));
  *address += x;
}
int fetch_add(int* address, int x, std::source_location) {
  Machine::get().access(address, sizeof *address, {Access::kWrite, true},
                        __builtin_return_address(0));
  return std::exchange(*address, *address + x);
}
int load_acquire(const int* address, std::source_location at) {
  return Machine::get().acquire(address, at, __builtin_return_address(0));
}
void store_release(int* address, int x, std::source_location) {
  Machine::get().release(address, x, __builtin_return_address(0));
}

void access(const void* address, std::size_t bytes, Access access, const void* pc) {
  Machine& machine = Machine::get();
  if (machine.runs()) machine.access(address, bytes, {access, false}, pc);
}

void* allocate(std::size_t bytes) { return Machine::get().memory().allocate(bytes); }
bool release_memory(void* address) { return Machine::get().memory().release(address); }
void initialise(const void* address, std::size_t bytes) {
  const auto* const p = static_cast<const unsigned char*>(address);
  if (Allocation* const allocation = Machine::get().memory().find(p, bytes)) {
    allocation->shadow.initialise(p - allocation->begin, bytes);
  }
}

cudaError_t last_error() { return Machine::get().failed() ? cudaErrorLaunchFailure : cudaSuccess; }

}  // namespace sim
