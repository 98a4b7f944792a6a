// SPDX-License-Identifier: MIT
#include "sim/memory.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace sim {
namespace {

/// The later one for each thread.
Epochs later(const Epochs& a, const Epochs& b) {
  if (a == b || b == nullptr) return a;
  if (a == nullptr) return b;
  auto both = std::make_shared<std::vector<Epoch>>(*a);
  std::transform(b->begin(), b->end(), both->begin(), both->begin(),
                 [](Epoch x, Epoch y) { return std::max(x, y); });
  return both;
}

constexpr std::uint8_t kWhole = (1u << kGranule) - 1;  ///< a bit for each byte

/// Among a block's epochs, where its threads end and its units begin.
int first_unit(const std::vector<Epoch>& epochs) {
  return static_cast<int>(epochs.size()) - kUnits;
}

/// Bits for those bytes of granule i that lie in [begin, end).
std::uint8_t bytes_of_granule(std::size_t i, std::size_t begin, std::size_t end) {
  if (begin <= i * kGranule && (i + 1) * kGranule <= end) return kWhole;
  unsigned bits = 0;
  for (std::size_t b = 0; b < kGranule; ++b) {
    const std::size_t at = i * kGranule + b;
    if (begin <= at && at < end) bits |= 1u << b;
  }
  return static_cast<std::uint8_t>(bits);
}

}  // namespace

// ---- what a thread knows ------------------------------------------------------------------------

void Known::learn(BlockId me, BlockId block, const Epochs& epochs) {
  if (block == me) {
    own = later(own, epochs);
    return;
  }
  if (others != nullptr) {
    const auto found = others->find(block);
    if (found != others->end() && found->second == epochs) return;
  }
  auto more = others == nullptr ? std::make_shared<std::map<BlockId, Epochs>>()
                                : std::make_shared<std::map<BlockId, Epochs>>(*others);
  Epochs& entry = (*more)[block];
  entry = later(entry, epochs);
  others = std::move(more);
}

void Known::learn(BlockId me, BlockId block, const Known& known) {
  learn(me, block, known.own);
  if (known.others == nullptr || known.others == others) return;
  if (others == nullptr && block == me) {
    others = known.others;
    return;
  }
  for (const auto& [other, epochs] : *known.others) learn(me, other, epochs);
}

const std::vector<Epoch>* Known::of(BlockId me, BlockId block) const {
  if (block == me) return own.get();
  if (others == nullptr) return nullptr;
  const auto found = others->find(block);
  return found == others->end() ? nullptr : found->second.get();
}

// ---- what happened to memory --------------------------------------------------------------------

Shadow::Shadow(std::size_t bytes) : cells_((bytes + kGranule - 1) / kGranule) {}

void Shadow::initialise(std::size_t offset, std::size_t bytes) {
  const std::size_t end = (offset + bytes + kGranule - 1) / kGranule;
  for (std::size_t i = offset / kGranule; i < end; ++i) {
    cells_[i].initialised |= bytes_of_granule(i, offset, offset + bytes);
  }
}

void Shadow::land(std::size_t offset, std::size_t bytes, Epoch epoch) {
  for (std::size_t i = offset / kGranule; i * kGranule < offset + bytes; ++i) {
    cells_[i].in_flight = false;
    cells_[i].write_epoch = epoch;
  }
}

void Shadow::make_barrier(std::size_t offset, std::size_t bytes) {
  for (std::size_t i = offset / kGranule; i * kGranule < offset + bytes; ++i) {
    cells_[i].barrier = true;
  }
}

void Shadow::clear(std::size_t bytes) {
  const std::size_t count = (bytes + kGranule - 1) / kGranule;
  if (count > cells_.size()) *this = Shadow(bytes);
  std::fill_n(cells_.begin(), count, Cell{});
}

/// Whether all of the bytes were written; with `may_reach_padding` the first 4 and what follows up
/// to a gap, if nothing after the gap was.
bool Shadow::initialised(std::size_t offset, std::size_t bytes, bool may_reach_padding) const {
  const std::size_t begin = offset / kGranule;
  const std::size_t end = (offset + bytes + kGranule - 1) / kGranule;
  if (std::all_of(cells_.begin() + begin, cells_.begin() + end,
                  [](const Cell& cell) { return cell.initialised == kWhole; })) {
    return true;
  }
  bool gap = false;
  for (std::size_t i = begin; i < end; ++i) {
    const std::uint8_t wanted = bytes_of_granule(i, offset, offset + bytes);
    const std::uint8_t written = cells_[i].initialised & wanted;
    if (written == wanted && !gap) continue;
    if (!may_reach_padding || i * kGranule < offset + sizeof(float) || written != 0) return false;
    gap = true;
  }
  return true;
}

/// Remembers the most frequent kind of access: a thread reads a granule that its block was the last
/// to read, and that was written in order with it. Of any other kind, returns false.
bool Shadow::reads_as_before(std::size_t i, const Toucher& who) {
  Cell& cell = cells_[i];
  if (cell.read_block != who.block || cell.initialised != kWhole) return false;
  Readers& warp = readers_of(i)[who.thread / kWarpSize];
  const std::uint32_t lane = 1u << who.thread % kWarpSize;
  if (warp.epoch == who.epoch && (warp.lanes & lane) != 0) return true;  // nobody has written since
  if (cell.barrier || cell.in_flight) return false;
  const bool in_order =
      cell.write_block < who.launch_begin ||
      (cell.write_block == who.block &&
       (cell.writer == who.thread || (*who.known->own)[cell.writer] >= cell.write_epoch));
  if (!in_order) return false;
  cell.read_pc = who.pc;
  warp = {who.epoch, (warp.epoch == who.epoch ? warp.lanes : 0) | lane};
  return true;
}

std::optional<Fault> Shadow::touch(std::size_t offset, std::size_t bytes, Touch touch,
                                   const Toucher& who) {
  make_room(first_unit(*who.known->own) / kWarpSize);
  std::size_t begin = offset / kGranule;
  const std::size_t end = (offset + bytes + kGranule - 1) / kGranule;
  if (touch.access == Access::kRead && touch.way != Way::kAtomic && touch.way != Way::kBulk) {
    while (begin < end && reads_as_before(begin, who)) ++begin;
    if (begin == end) return std::nullopt;
  }
  const bool reads = touch.access == Access::kRead || touch.way == Way::kAtomic;
  if (reads && !initialised(offset, bytes, touch.may_reach_padding)) {
    return Fault{Fault::Kind::kUninitialised};
  }
  for (std::size_t i = begin; i < end; ++i) {
    if (const auto fault = touch_cell(i, touch, who)) return fault;
  }
  if (touch.access == Access::kWrite) initialise(offset, bytes);
  return std::nullopt;
}

/// For readers of so many warps.
void Shadow::make_room(std::size_t warps) {
  if (warps <= warps_) return;
  auto more = std::make_unique_for_overwrite<Readers[]>(cells_.size() * warps);
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    if (cells_[i].read_block < 0) continue;
    const auto end = std::copy_n(readers_of(i), warps_, more.get() + i * warps);
    std::fill_n(end, warps - warps_, Readers{});
  }
  readers_ = std::move(more);
  warps_ = warps;
}

void Shadow::forget_readers(std::size_t i) {
  cells_[i].read_block = -1;
  cells_[i].unit_read = false;
  std::fill_n(readers_of(i), warps_, Readers{});
}

/// For readers that are the first so many units: few blocks have many, and memory takes time.
void Shadow::make_room_for_units(std::size_t units) {
  if (units <= units_) return;
  units = std::bit_ceil(units);
  auto more = std::make_unique_for_overwrite<Epoch[]>(cells_.size() * units);
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    if (!cells_[i].unit_read) continue;
    const auto end = std::copy_n(unit_readers_.get() + i * units_, units_, more.get() + i * units);
    std::fill_n(end, units - units_, Epoch{0});
  }
  unit_readers_ = std::move(more);
  units_ = units;
}

void Shadow::remember_unit(std::size_t i, const Toucher& who) {
  const auto unit = static_cast<std::size_t>(who.thread - first_unit(*who.known->own));
  make_room_for_units(unit + 1);
  Epoch* const epochs = unit_readers_.get() + i * units_;
  if (!cells_[i].unit_read) std::fill_n(epochs, units_, Epoch{0});
  cells_[i].unit_read = true;
  epochs[unit] = who.epoch;
}

namespace {

/// Whether the thread has made a fence behind the write, which is known to have come before.
bool is_fenced(const Fences* fences, int thread, Epoch write, const std::vector<Epoch>& known) {
  if (fences == nullptr) return false;
  const std::vector<Epoch>& made = (*fences)[thread];
  const auto next = std::upper_bound(made.begin(), made.end(), write);
  return next != made.end() && *next <= known[thread];
}

}  // namespace

std::optional<Fault> Shadow::touch_cell(std::size_t i, Touch touch, const Toucher& who) {
  Cell& cell = cells_[i];
  const bool writes = touch.access == Access::kWrite;
  const bool atomic = touch.way == Way::kAtomic;
  const auto fault = [&](Fault::Kind kind) {
    return Fault{kind, cell.writer, cell.write_block, Access::kWrite, cell.write_pc};
  };
  if (cell.barrier) return fault(Fault::Kind::kBarrier);
  if (cell.in_flight) return fault(Fault::Kind::kInFlight);
  const bool written = cell.write_block >= who.launch_begin;
  const bool mine = cell.write_block == who.block && cell.writer == who.thread;
  const bool is_unit = who.thread >= first_unit(*who.known->own);
  const std::vector<Epoch>* const known =
      written ? who.known->of(who.block, cell.write_block) : nullptr;
  if (written && !(mine && !is_unit) && !(atomic && cell.atomic)) {
    if (known == nullptr || (*known)[cell.writer] < cell.write_epoch) {
      return fault(Fault::Kind::kRace);
    }
  }
  if (written && touch.way == Way::kBulk && cell.writer < first_unit(*known) &&
      !is_fenced(who.fences, cell.writer, cell.write_epoch, *known) &&
      !(who.fenced_behind != nullptr && cell.write_block == who.block &&
        (*who.fenced_behind)(cell.writer, cell.write_epoch))) {
    return fault(Fault::Kind::kProxy);
  }
  if (!writes && atomic) return std::nullopt;  // orders, and is ordered by whoever needs it
  if (!writes) {
    if (cell.read_block != who.block) forget_readers(i);
    cell.read_block = who.block;
    cell.read_pc = who.pc;
    if (is_unit) {
      remember_unit(i, who);
      return std::nullopt;
    }
    Readers& warp = readers_of(i)[who.thread / kWarpSize];
    if (warp.epoch != who.epoch) warp = {who.epoch, 0};
    warp.lanes |= 1u << (who.thread % kWarpSize);
    return std::nullopt;
  }
  if (cell.read_block >= 0) {
    if (const auto fault = readers_fault(i, who)) return fault;
    forget_readers(i);
  }
  cell.writer = static_cast<std::int16_t>(who.thread);
  cell.write_block = who.block;
  cell.write_epoch = who.epoch;
  cell.write_pc = who.pc;
  cell.atomic = atomic;
  cell.in_flight =
      touch.way == Way::kAsynchronous || (touch.way == Way::kBulk && who.fences != nullptr);
  return std::nullopt;
}

std::optional<Fault> Shadow::readers_fault(std::size_t i, const Toucher& who) const {
  const BlockId block = cells_[i].read_block;
  if (block < who.launch_begin) return std::nullopt;
  const std::vector<Epoch>* const known = who.known->of(who.block, block);
  for (std::size_t w = 0; w < warps_; ++w) {
    const Readers& readers = readers_of(i)[w];
    for (std::uint32_t lanes = readers.lanes; lanes != 0; lanes &= lanes - 1) {
      const int thread = static_cast<int>(w) * kWarpSize + std::countr_zero(lanes);
      if (block == who.block && thread == who.thread) continue;
      if (known == nullptr || (*known)[thread] < readers.epoch) {
        return Fault{Fault::Kind::kRace, thread, block, Access::kRead, cells_[i].read_pc};
      }
    }
  }
  for (std::size_t unit = 0; cells_[i].unit_read && unit < units_; ++unit) {
    // Of this launch: it is shared memory.
    const int thread = first_unit(*who.known->own) + static_cast<int>(unit);
    if ((known == nullptr ? 0 : (*known)[thread]) < unit_readers_[i * units_ + unit]) {
      return Fault{Fault::Kind::kRace, thread, block, Access::kRead, cells_[i].read_pc};
    }
  }
  return std::nullopt;
}

}  // namespace sim
