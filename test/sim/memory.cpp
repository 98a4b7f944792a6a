// SPDX-License-Identifier: MIT
#include "sim/memory.h"

#include <algorithm>
#include <bit>

namespace sim {

Shadow::Shadow(std::size_t bytes) : cells_((bytes + kGranule - 1) / kGranule) {}

void Shadow::initialise(std::size_t offset, std::size_t bytes) {
  const std::size_t end = (offset + bytes + kGranule - 1) / kGranule;
  for (std::size_t i = offset / kGranule; i < end; ++i) cells_[i].initialised = true;
}

void Shadow::clear(std::size_t bytes) {
  const std::size_t count = (bytes + kGranule - 1) / kGranule;
  std::fill_n(cells_.begin(), count, Cell{});
  std::fill_n(readers_.begin(), std::min(readers_.size(), count * warps_), Readers{});
}

std::optional<Fault> Shadow::touch(std::size_t offset, std::size_t bytes, Touch touch,
                                   const Toucher& who) {
  if (const std::size_t warps = (who.known->size() + kWarpSize - 1) / kWarpSize; warps != warps_) {
    warps_ = warps;  // another launch, so no reader of the last one matters
    readers_.assign(cells_.size() * warps_, {});
  }
  const std::size_t begin = offset / kGranule;
  const std::size_t end = (offset + bytes + kGranule - 1) / kGranule;
  // A vector may reach from a tile's last column into its padding: then some of it was written.
  const bool reads = touch.access == Access::kRead || touch.atomic;
  if (reads && std::none_of(cells_.begin() + begin, cells_.begin() + end,
                            [](const Cell& cell) { return cell.initialised; })) {
    return Fault{Fault::Kind::kUninitialised};
  }
  for (std::size_t i = begin; i < end; ++i) {
    if (const auto fault = touch_cell(i, touch, who)) return fault;
  }
  return std::nullopt;
}

/// Blocks run one after another: what an earlier one did is no race of threads.
void Shadow::enter_block(std::size_t i, std::int64_t block) {
  Cell& cell = cells_[i];
  cell.block = block;
  cell.writer = -1;
  cell.write_epoch = 0;
  cell.atomic = cell.read = false;
  std::fill_n(readers_of(i), warps_, Readers{});
}

std::optional<Fault> Shadow::touch_cell(std::size_t i, Touch touch, const Toucher& who) {
  Cell& cell = cells_[i];
  const bool writes = touch.access == Access::kWrite;
  if (cell.block != who.block) {
    const bool same_launch = cell.block >= who.launch_begin;
    const bool written = cell.writer >= 0 && !(touch.atomic && cell.atomic);
    const bool collides = written || (writes && cell.read);
    if (same_launch && collides && !who.acquired_blocks->contains(cell.block)) {
      return Fault{Fault::Kind::kRaceOfBlocks, cell.writer, cell.block,
                   written ? Access::kWrite : Access::kRead,
                   written ? cell.write_pc : cell.read_pc};
    }
    enter_block(i, who.block);
  }
  const bool both_atomic = touch.atomic && cell.atomic;
  if (cell.writer >= 0 && cell.writer != who.thread && !both_atomic &&
      (*who.known)[cell.writer] < cell.write_epoch) {
    return Fault{Fault::Kind::kRace, cell.writer, who.block, Access::kWrite, cell.write_pc};
  }
  if (!writes && touch.atomic) return std::nullopt;  // orders, and is ordered by whoever needs it
  if (!writes) {
    Readers& mine = readers_of(i)[who.thread / kWarpSize];
    if (mine.epoch != who.epoch) mine = {who.epoch, 0};
    mine.lanes |= 1u << (who.thread % kWarpSize);
    cell.read = true;
    cell.read_pc = who.pc;
    return std::nullopt;
  }
  if (cell.read) {
    if (const auto fault = readers_fault(i, who)) return fault;
    std::fill_n(readers_of(i), warps_, Readers{});
    cell.read = false;
  }
  cell.writer = static_cast<std::int16_t>(who.thread);
  cell.write_epoch = who.epoch;
  cell.write_pc = who.pc;
  cell.atomic = touch.atomic;
  cell.initialised = true;
  return std::nullopt;
}

std::optional<Fault> Shadow::readers_fault(std::size_t i, const Toucher& who) const {
  for (std::size_t w = 0; w < warps_; ++w) {
    const Readers& readers = readers_of(i)[w];
    for (std::uint32_t lanes = readers.lanes; lanes != 0; lanes &= lanes - 1) {
      const int thread = static_cast<int>(w) * kWarpSize + std::countr_zero(lanes);
      if (thread != who.thread && (*who.known)[thread] < readers.epoch) {
        return Fault{Fault::Kind::kRace, thread, who.block, Access::kRead, cells_[i].read_pc};
      }
    }
  }
  return std::nullopt;
}

}  // namespace sim
