// SPDX-License-Identifier: MIT
// Barriers in shared memory. PTX ISA, "Parallel Synchronization and Communication Instructions:
// mbarrier".
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <source_location>
#include <string>
#include <utility>

#include "sim/engine.h"
#include "sim/report.h"

namespace sim {
namespace {

constexpr std::size_t kBarrierBytes = 8;
constexpr std::int64_t kMostArrivals = (1 << 20) - 1, kMostBytes = (1 << 20) - 1;

}  // namespace

void Machine::init_barrier(void* address, int arrivals, const void* pc) {
  Thread& me = *current_;
  Block& block = *me.block;
  const auto offset =
      static_cast<std::uint32_t>(static_cast<unsigned char*>(address) - block.shared);
  const auto wrong = [&](const std::string& why) {
    report("mbarrier", who() + " initialises the mbarrier at " + shared_text(offset) + " (" +
                           place_of(pc) + ") " + why);
  };
  if (block.mbarriers.contains(offset)) wrong("for the second time");
  if (arrivals < 1 || arrivals > kMostArrivals) {
    wrong("for " + std::to_string(arrivals) + " arrivals: from 1 to 2^20 - 1");
  }
  access(address, kBarrierBytes, {.access = Access::kWrite}, pc);
  block.shadow.make_barrier(offset, kBarrierBytes);
  Mbarrier& barrier = block.mbarriers[offset];
  barrier.offset = offset;
  barrier.arrivals = barrier.pending = arrivals;
  barrier.initialiser = me.index;
  barrier.epoch = me.epoch;
  barrier.seen.assign(block.size, -1);
}

/// For the copy unit, what a fence of this thread's accesses is.
void Machine::publish_barriers() {
  advance(*current_);
  current_->block->publications[current_->index].push_back(current_->epoch);
}

/// The barrier that lies in that block where `address` does in the running thread's, which knows
/// it to be initialised.
Mbarrier& Machine::mbarrier_at(Block& block, const void* address, const char* verb,
                               const void* pc) {
  const Thread& me = *current_;
  const auto offset =
      static_cast<std::uint32_t>(static_cast<const unsigned char*>(address) - me.block->shared);
  const auto found = block.mbarriers.find(offset);
  const auto wrong = [&](const std::string& why) {
    report("mbarrier", who() + verb + "the mbarrier at " + shared_text(offset) + of_other(block) +
                           " (" + place_of(pc) + "), " + why);
  };
  if (found == block.mbarriers.end()) wrong("which nobody has initialised");
  const Mbarrier& barrier = found->second;
  const std::vector<Epoch>* const known = me.known.of(me.block->id, block.id);
  if ((&block != me.block || barrier.initialiser != me.index) &&
      (known == nullptr || (*known)[barrier.initialiser] < barrier.epoch)) {
    wrong("and nothing orders that behind its initialisation by thread " +
          std::to_string(barrier.initialiser));
  }
  return found->second;
}

void Machine::arrive_at(Block& block, const void* address, std::int64_t bytes, const void* pc) {
  const Thread& me = *current_;
  Mbarrier& barrier = mbarrier_at(block, address, " arrives at ", pc);
  const auto wrong = [&](const std::string& why) {
    report("mbarrier", who() + " arrives at the mbarrier at " + shared_text(barrier.offset) +
                           of_other(block) + " (" + place_of(pc) + "), " + why);
  };
  if (barrier.pending == 0) {
    wrong("to whose phase " + std::to_string(barrier.phase) + " all its " +
          std::to_string(barrier.arrivals) + " have come, and " + std::to_string(barrier.bytes) +
          " bytes have not");
  }
  barrier.bytes += bytes;
  if (bytes < 0 || bytes > kMostBytes || std::abs(barrier.bytes) > kMostBytes) {
    wrong("which counts up to 2^20 - 1 bytes");
  }
  --barrier.pending;
  barrier.arrived.learn(block.id, me.block->id, known_now());
  if (&block != me.block) {
    block.remote_arrivals[{me.block->id, me.index}] = {me.epoch, barrier.offset, pc};
  }
  advance(me);
  end_phase_if_over(barrier);
}

/// Here all copies that the thread has begun, also those of no group, have landed by then: who
/// waits for the phase is told of them as of writes of the thread.
void Machine::arrive_behind_copies(const void* address, const void* pc) {
  land_groups_before(current_->groups + 1);
  arrive_at(*current_->block, address, 0, pc);
}

void Machine::end_phase_if_over(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  barrier.over = std::exchange(barrier.arrived, {});
  barrier.before = barrier.after = nullptr;
  for (Thread* const thread : std::exchange(barrier.waiters, {})) {
    thread->state = State::kReady;
    ready_.push_back(thread);
  }
  progress_ = true;
}

void Machine::wait_for_phase(void* address, int parity, const std::source_location& at,
                             const void* pc) {
  Thread& me = *current_;
  Mbarrier& barrier = mbarrier_at(*me.block, address, " waits at ", pc);
  if (random_() % 2 == 0) {
    ready_.push_back(&me);
    switch_out(State::kReady);
  }
  // The phase with that parity which is not over, or the one before it.
  const int phase = barrier.phase % 2 == parity ? barrier.phase : barrier.phase - 1;
  const auto missed = [&](int wanted) {
    report("mbarrier", who() + " waits for the end of phase " + std::to_string(wanted) +
                           " of the mbarrier at " + shared_text(barrier.offset) + " (" +
                           place_of(pc) + "), which is in phase " + std::to_string(barrier.phase) +
                           " already, of the same parity");
  };
  int& seen = barrier.seen[me.index];
  if (const int next = seen + 1; next % 2 == parity && phase > next) missed(next);
  if (phase == barrier.phase) {
    barrier.waiters.push_back(&me);
    wait(State::kWaiting, {.at = at, .mbarrier = &barrier});
    if (barrier.phase > phase + 1) missed(phase);
  }
  seen = phase;
  if (barrier.over.own == nullptr) {
    me.known.learn(me.block->id, me.block->id, barrier.over);
    return;
  }
  if (barrier.before != me.known.own) {
    barrier.before = me.known.own;
    Known known = me.known;
    known.learn(me.block->id, me.block->id, barrier.over);
    barrier.after = known.own;
  }
  me.known.own = barrier.after;
  me.known.learn(me.block->id, me.block->id, Known{nullptr, barrier.over.others});
}

void mbarrier_init(void* barrier, int arrivals) {
  Machine::get().init_barrier(barrier, arrivals, __builtin_return_address(0));
}
void mbarrier_publish() { Machine::get().publish_barriers(); }
void mbarrier_arrive(void* barrier, std::int64_t bytes) {
  Machine& machine = Machine::get();
  machine.arrive_at(machine.block(), barrier, bytes, __builtin_return_address(0));
}
void mbarrier_arrive_behind_copies(void* barrier) {
  Machine::get().arrive_behind_copies(barrier, __builtin_return_address(0));
}
void mbarrier_arrive_in(int rank, void* barrier) {
  Machine::get().arrive_in(rank, barrier, __builtin_return_address(0));
}
void mbarrier_wait(void* barrier, int parity, std::source_location at) {
  Machine::get().wait_for_phase(barrier, parity, at, __builtin_return_address(0));
}

}  // namespace sim
