// SPDX-License-Identifier: MIT
// Blocks that run together. PTX ISA, "Cluster of Cooperative Thread Arrays", "barrier.cluster".
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine.h"
#include "sim/report.h"

namespace sim {

/// For a place in shared memory, unless it is the running thread's own block's.
std::string Machine::of_other(const Block& block) const {
  return current_ == nullptr || &block == current_->block
             ? ""
             : " of block " + std::to_string(block.index);
}

/// The block with that place in the running thread's cluster.
Block& Machine::block_in(int rank, const char* verb, const void* pc) {
  Block* const first = current_->block->first;
  const auto wrong = [&](const std::string& why) {
    report("cluster", who() + verb + "block " + std::to_string(rank) + " of its cluster (" +
                          place_of(pc) + "), which has " + why);
  };
  if (rank < 0 || rank >= static_cast<int>(grid_.cluster)) wrong(std::to_string(grid_.cluster));
  if (first[rank].is_over()) wrong("ended");
  return first[rank];
}

void Machine::arrive_in(int rank, const void* address, const void* pc) {
  arrive_at(block_in(rank, " arrives at an mbarrier of ", pc), address, 0, pc);
}

std::vector<Block*> Machine::blocks_in(std::uint32_t mask, const void* pc) {
  std::vector<Block*> blocks;
  for (int rank = 0; mask >> rank != 0; ++rank) {
    if ((mask >> rank & 1u) == 0) continue;
    blocks.push_back(&block_in(rank, " begins a copy to ", pc));
  }
  return blocks;
}

/// What a thread of another block knows, as something knows it that belongs to `block`.
Known Machine::seen_from(const Block& block, const Known& known) const {
  const BlockId me = current_->block->id;
  if (block.id == me) return known;
  Known there{std::make_shared<const std::vector<Epoch>>(known.own->size()), nullptr};
  there.learn(block.id, me, known);
  return there;
}

// ---- the cluster's barrier ----------------------------------------------------------------------

void Machine::arrive_at_cluster(const std::source_location& at) {
  Thread& me = *current_;
  if (me.cluster_arrivals != me.cluster_waits) {
    report("cluster", who() + " arrives at its cluster's barrier at " + place_of(at) +
                          " for the second time, and has not waited for the first");
  }
  ++me.cluster_arrivals;
  me.told_cluster = me.known;
  me.block->first->cluster.arrivals.push_back(arrive(false));
  advance(me);
  end_cluster_phase_if_over(*me.block->first);
}

/// What those of each block did until they arrived happened before what those do who wait.
void Machine::end_cluster_phase_if_over(Block& first) {
  ClusterBarrier& barrier = first.cluster;
  if (barrier.arrivals.empty()) return;
  unsigned running = 0;
  for (const Block* block = &first; block != &first + grid_.cluster; ++block) {
    running += block->size - block->ended;
  }
  const auto arrived =
      std::count_if(barrier.arrivals.begin(), barrier.arrivals.end(),
                    [](const Arrival& a) { return a.thread->state != State::kEnded; });
  if (arrived < static_cast<long>(running)) return;
  std::map<BlockId, std::vector<Epoch>> epochs;
  std::map<BlockId, Known> known;
  std::set<std::pair<const void*, const void*>> merged;
  for (const Arrival& a : barrier.arrivals) {
    const BlockId id = a.thread->block->id;
    if (merged.emplace(a.known.own.get(), a.known.others.get()).second) {
      known[id].learn(id, id, a.known);
    }
    epochs[id].resize(a.known.own->size());
    epochs[id][a.thread->index] = a.epoch;
  }
  for (auto& [id, its] : known) {
    its.learn(id, id, std::make_shared<const std::vector<Epoch>>(std::move(epochs[id])));
  }
  barrier.over.clear();
  for (const auto& [id, its] : known) {
    Known& together = barrier.over[id];
    for (const auto& [other, theirs] : known) together.learn(id, other, theirs);
  }
  barrier.arrivals.clear();
  ++barrier.phase;
  for (Thread* const thread : std::exchange(barrier.waiters, {})) {
    thread->state = State::kReady;
    ready_.push_back(thread);
  }
  progress_ = true;
}

void Machine::wait_for_cluster(const std::source_location& at) {
  Thread& me = *current_;
  ClusterBarrier& barrier = me.block->first->cluster;
  if (me.cluster_arrivals == me.cluster_waits) {
    report("cluster", who() + " waits at its cluster's barrier at " + place_of(at) +
                          " and has not arrived there");
  }
  if (barrier.phase == me.cluster_waits) {
    barrier.waiters.push_back(&me);
    wait(State::kWaiting, {"the threads of its cluster at ", at});
  }
  ++me.cluster_waits;
  const Known& over = barrier.over.at(me.block->id);
  if (me.known.own == me.told_cluster.own && me.known.others == me.told_cluster.others) {
    me.known = over;
  } else {
    me.known.learn(me.block->id, me.block->id, over);
  }
}

/// Of a block that ends: nobody arrives at it any more, and its copies have come to the others.
void Machine::check_others_are_done(const Block& block) {
  const std::string what = "block " + std::to_string(block.index) + " ends, and ";
  for (const auto& [from, arrival] : block.remote_arrivals) {
    const std::vector<Epoch>* const known = block.known_at_end.of(block.id, from.first);
    if (known != nullptr && (*known)[from.second] >= arrival.epoch) continue;
    report("cluster", what + "nothing orders that behind the arrival of " +
                          who(from.second, from.first - launch_begin_) + " at its mbarrier at " +
                          shared_text(arrival.barrier) + " (" + place_of(arrival.pc) + ")");
    return;
  }
  for (const Load& load : loads_) {
    if (load.from != &block) continue;
    report("cluster", what + "the copy of its thread " + std::to_string(load.thread) + " (" +
                          place_of(load.pc) + ") is still on its way to block " +
                          std::to_string(load.block->index));
    return;
  }
}

void cluster_arrive(std::source_location at) { Machine::get().arrive_at_cluster(at); }
void cluster_wait(std::source_location at) { Machine::get().wait_for_cluster(at); }

}  // namespace sim
