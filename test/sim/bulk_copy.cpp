// SPDX-License-Identifier: MIT
// Copies of boxes between device and shared memory. PTX ISA, "cp.async.bulk.tensor", "Tensors" and
// "Async proxy".
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine.h"
#include "sim/report.h"

namespace sim {
namespace {

constexpr int kUnitBytes = 16;
constexpr int kMostRowBytes = 128;

int element_bytes(const BoxedTensor& map) { return static_cast<int>(map.stride_bytes[0]); }

int row_bytes(const BoxedTensor& map) { return map.box[0] * element_bytes(map); }

int box_bytes(const BoxedTensor& map) {
  int bytes = element_bytes(map);
  for (const int elements : map.box) bytes *= elements;
  return bytes;
}

/// What the tensor has of a row of a box: bytes [begin, end) of it, the first of which is `from`.
struct Row {
  const unsigned char* from;
  int begin, end;

  int bytes() const { return end - begin; }
};

/// What a store writes of it: whole units, beyond the tensor's row where that ends inside of one.
Row whole_units(Row row) {
  row.end = (row.end + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  return row;
}

/// Calls f(row number, row) for each row of the box at that place.
template <class F>
void for_each_row(const BoxedTensor& map, const Coord& coord, F f) {
  const std::array<std::int64_t, 5> at{coord.c0, coord.c1, coord.c2, coord.c3, coord.c4};
  const int bytes = element_bytes(map);
  const auto begin = std::clamp<std::int64_t>(-at[0], 0, map.box[0]);
  const auto end = std::clamp<std::int64_t>(map.size[0] - at[0], begin, map.box[0]);
  const int rows = box_bytes(map) / row_bytes(map);
  for (int number = 0; number < rows; ++number) {
    auto address = reinterpret_cast<std::uintptr_t>(map.data) + (at[0] + begin) * bytes;
    bool inside = true;
    for (int d = 1, rest = number; d < 5; rest /= map.box[d++]) {
      const std::int64_t c = at[d] + rest % map.box[d];
      inside = inside && 0 <= c && c < map.size[d];
      // Addresses have 64 bits: what goes beyond them begins at 0 again.
      if (map.size[d] > 1) address += static_cast<std::uintptr_t>(c) * map.stride_bytes[d];
    }
    const auto* from = reinterpret_cast<const unsigned char*>(address);
    f(number, inside ? Row{from, static_cast<int>(begin) * bytes, static_cast<int>(end) * bytes}
                     : Row{from, 0, 0});
  }
}

/// The box as it lies in the tensor, row by row, with zeros for what is outside of it.
std::vector<unsigned char> gather(const BoxedTensor& map, const Coord& coord) {
  std::vector<unsigned char> bytes(box_bytes(map));
  for_each_row(map, coord, [&](int number, const Row& row) {
    unsigned char* const to = bytes.data() + number * row_bytes(map) + row.begin;
    std::memcpy(to, row.from, row.bytes());
  });
  return bytes;
}

/// Neighbouring bytes, as a box of rows of 16: those have no swizzle.
BoxedTensor rows_of(const void* data, int bytes) {
  const int rows = bytes / kUnitBytes;
  return {data, {8, rows, 1, 1, 1}, {2, 16, 16, 16, 16}, {8, rows, 1, 1, 1}};
}

/// Calls f(offset in the box, offset in shared memory) for each unit of a box there.
template <class F>
void for_each_unit(const BoxedTensor& map, std::uint32_t shared, F f) {
  for (int at = 0; at < box_bytes(map); at += kUnitBytes) {
    f(at, swizzled(shared + at, row_bytes(map)));
  }
}

}  // namespace

int Machine::unit(Block& block, UnitKind kind, int number) {
  const bool reads = kind == UnitKind::kProducts || kind == UnitKind::kStoredFrom;
  std::vector<Unit>& units = reads ? block.reading_units : block.writing_units;
  auto found = std::find_if(units.begin(), units.end(), [&](const Unit& unit) {
    return unit.kind == kind && unit.number == number;
  });
  if (found == units.end()) {
    if (units.size() == (reads ? kReadingUnits : kUnits - kReadingUnits)) {
      std::fprintf(stderr,
                   "sim: a block with more than %zu threads that store boxes, or barriers\n",
                   units.size());
      std::abort();
    }
    found = units.insert(units.end(), {kind, number});
  }
  const auto index = static_cast<int>(found - units.begin());
  return static_cast<int>(grid_.threads) + (reads ? 0 : kReadingUnits) + index;
}

void Machine::touch_as_unit(const UnitTouch& touch, const unsigned char* p, std::size_t bytes) {
  Block& block = touch.block != nullptr ? *touch.block : *current_->block;
  const bool in_shared = is_shared(p);
  Allocation* const allocation = in_shared ? nullptr : memory_.find(p, bytes);
  const std::size_t offset = in_shared               ? p - block.shared
                             : allocation != nullptr ? p - allocation->begin
                                                     : 0;
  const auto what = [&] {
    return touch.by + who() + (touch.access == Access::kRead ? " reads " : " writes ") +
           std::to_string(bytes) + " bytes of " +
           (in_shared ? shared_text(offset) + of_other(block)
                      : "device memory, at " + hex(reinterpret_cast<std::size_t>(p))) +
           " (" + place_of(touch.pc) + ")";
  };
  if (in_shared && offset + bytes > grid_.shared_bytes) {
    return report("bounds", what() + ", and the launch asked for " +
                                std::to_string(grid_.shared_bytes) + " bytes");
  }
  if (!in_shared && allocation == nullptr) {
    return report("bounds", what() + ", in no allocation");
  }
  if (!in_shared) allocation->traffic.written += bytes;
  const Toucher toucher{touch.unit,
                        block.id,
                        touch.epoch,
                        &touch.known,
                        first_unordered(touch.known),
                        touch.pc,
                        in_shared ? &block.fences : nullptr,
                        touch.fenced_behind};
  Shadow& shadow = in_shared ? block.shadow : allocation->shadow;
  if (const auto fault =
          shadow.touch(offset, bytes, {.access = touch.access, .way = touch.way}, toucher)) {
    report_fault(*fault, what());
  }
}

void Machine::check_box(const BoxedTensor& map, const Coord& coord, std::uint32_t shared,
                        const char* verb, const void* pc) {
  if (const int begin = coord.c0 * element_bytes(map); begin % kUnitBytes != 0) {
    report("misaligned", who() + verb + shared_text(shared) + " (" + place_of(pc) +
                             ") a box that begins at byte " + std::to_string(begin) +
                             " of the tensor's rows, which is no multiple of 16");
  }
  const bool unswizzled = row_bytes(map) == kUnitBytes;
  const auto boundary = static_cast<std::uint32_t>((unswizzled ? 1 : 8) * row_bytes(map));
  if (shared % boundary == 0) return;
  report("misaligned", who() + verb + shared_text(shared) + " (" + place_of(pc) +
                           ") a box with rows of " + std::to_string(row_bytes(map)) +
                           " bytes, which lies at multiples of " + std::to_string(boundary));
}

/// Whether a copy that knows so much may count at the barrier.
void Machine::check_published(Block& block, const void* address, const Known& known,
                              const void* pc) {
  const Mbarrier& barrier = mbarrier_at(block, address, " begins a copy for ", pc);
  const std::vector<Epoch>& published = block.publications[barrier.initialiser];
  const auto next = std::upper_bound(published.begin(), published.end(), barrier.epoch);
  const std::vector<Epoch>& seen = *known.of(current_->block->id, block.id);
  if (next == published.end() || *next > seen[barrier.initialiser]) {
    report("mbarrier", who() + " begins a copy (" + place_of(pc) + ") for the mbarrier at " +
                           shared_text(barrier.offset) + of_other(block) +
                           ", which its initialiser has not published before");
  }
}

/// To each of `blocks`; reads device memory once.
void Machine::bulk_load(std::uint32_t shared, const BoxedTensor& map, const Coord& coord,
                        const void* barrier, const std::vector<Block*>& blocks, const void* pc) {
  const Thread& me = *current_;
  const Known known = known_now();
  for (Block* const block : blocks) check_published(*block, barrier, known, pc);
  check_box(map, coord, shared, " brings to ", pc);
  for_each_row(map, coord, [&](int, const Row& row) {
    if (row.bytes() == 0) return;
    access(row.from, row.bytes(), {.access = Access::kRead, .way = Way::kBulk}, pc);
  });
  const auto offset =
      static_cast<std::uint32_t>(static_cast<const unsigned char*>(barrier) - me.block->shared);
  for (Block* const block : blocks) {
    const int unit = this->unit(*block, UnitKind::kLoads, static_cast<int>(offset));
    const Epoch epoch = ++now_;
    const Known there = seen_from(*block, known);
    const UnitTouch touch{unit,           epoch,          there,      pc,
                          "the copy of ", Access::kWrite, Way::kBulk, block};
    for_each_unit(map, shared, [&](int, std::uint32_t at) {
      touch_as_unit(touch, block->shared + at, kUnitBytes);
      std::memset(block->shared + at, kPoison, kUnitBytes);
    });
    loads_.push_back({block, map, coord, shared, offset, me.block, me.index, unit, epoch, pc,
                      gather(map, coord)});
  }
}

/// The box is there, and its barrier knows.
void Machine::bring_bytes(const Load& load) {
  Block& block = *load.block;
  if (gather(load.map, load.coord) != load.bytes) {
    report("in flight", "the copy of " + who(load.thread, load.from->index) + " (" +
                            place_of(load.pc) +
                            ") lands, and its source has changed since it began");
    return;
  }
  for_each_unit(load.map, load.shared, [&](int at, std::uint32_t to) {
    std::memcpy(block.shared + to, load.bytes.data() + at, kUnitBytes);
    block.shadow.land(to, kUnitBytes, load.epoch);
  });
  Mbarrier& barrier = block.mbarriers.at(load.barrier);
  barrier.bytes -= static_cast<std::int64_t>(load.bytes.size());
  auto epochs = std::make_shared<std::vector<Epoch>>(grid_.threads + kUnits);
  (*epochs)[load.unit] = load.epoch;
  barrier.arrived.learn(block.id, block.id, std::move(epochs));
  end_phase_if_over(barrier);
}

/// Copies land now and then, and where nothing else can go on.
void Machine::land_loads() {
  while (!failed() && !loads_.empty() && (ready_.empty() || random_() % lateness_ == 0)) {
    const auto which = loads_.begin() + static_cast<std::ptrdiff_t>(random_() % loads_.size());
    const Load load = std::move(*which);
    loads_.erase(which);
    bring_bytes(load);
  }
}

/// Its source is read at any time from now on; that it has arrived knows who has awaited its end.
void Machine::bulk_store(const BoxedTensor& map, const Coord& coord, std::uint32_t shared,
                         bool adds, const void* pc) {
  Thread& me = *current_;
  Block& block = *me.block;
  check_box(map, coord, shared, " stores from ", pc);
  if (std::min({coord.c0, coord.c1, coord.c2, coord.c3, coord.c4}) < 0) {
    report("out of bounds", who() + " stores from " + shared_text(shared) + " (" + place_of(pc) +
                                ") a box that begins before the tensor");
  }
  const Known known = known_now();
  const FencedBehind fenced_behind = [&](int writer, Epoch write) {
    return has_fenced(me.fenced, writer, write);
  };
  const UnitTouch reads{unit(block, UnitKind::kStoredFrom, me.index),
                        ++now_,
                        known,
                        pc,
                        "the store of ",
                        Access::kRead,
                        Way::kBulk,
                        nullptr,
                        &fenced_behind};
  for_each_unit(map, shared, [&](int, std::uint32_t at) {
    touch_as_unit(reads, block.shared + at, kUnitBytes);
  });
  const UnitTouch writes{
      unit(block, UnitKind::kStores, me.index), now_, known, pc, "the store of ", Access::kWrite,
      adds ? Way::kAtomic : Way::kBulk};
  for_each_row(map, coord, [&](int, const Row& row) {
    if (row.bytes() != 0) touch_as_unit(writes, row.from, whole_units(row).bytes());
  });
  me.stores.push_back({map, coord, shared, me.store_groups, reads.epoch, pc, adds});
}

/// The thread's stores, but for its `pending` latest groups and those that are in none, have read
/// shared memory.
void Machine::read_stores(int pending) {
  Thread& me = *current_;
  Block& block = *me.block;
  Epoch last = 0;
  std::erase_if(me.stores, [&](const Store& store) {
    if (store.group >= me.store_groups - pending) return false;
    std::vector<unsigned char> bytes(box_bytes(store.map));
    for_each_unit(store.map, store.shared, [&](int at, std::uint32_t from) {
      std::memcpy(bytes.data() + at, block.shared + from, kUnitBytes);
    });
    for_each_row(store.map, store.coord, [&](int number, const Row& part) {
      const Row row = whole_units(part);
      auto* const to = const_cast<unsigned char*>(row.from);
      const unsigned char* const from = bytes.data() + number * row_bytes(store.map) + row.begin;
      if (!store.adds) {
        std::memcpy(to, from, row.bytes());
        return;
      }
      for (int at = 0; at < row.bytes(); at += sizeof(float)) {
        float sum = 0.0f, x = 0.0f;
        std::memcpy(&sum, to + at, sizeof sum);
        std::memcpy(&x, from + at, sizeof x);
        sum += x;
        std::memcpy(to + at, &sum, sizeof sum);
      }
    });
    last = std::max(last, store.epoch);
    me.read_stores.push_back({store.group, store.epoch});
    return true;
  });
  if (last != 0) learn_of_unit(unit(block, UnitKind::kStoredFrom, me.index), last);
}

/// They have written device memory, too, and the thread knows of it.
void Machine::end_stores(int pending) {
  read_stores(pending);
  Thread& me = *current_;
  Epoch last = 0;
  std::erase_if(me.read_stores, [&](const auto& store) {
    if (store.first >= me.store_groups - pending) return false;
    last = std::max(last, store.second);
    return true;
  });
  if (last != 0) learn_of_unit(unit(*me.block, UnitKind::kStores, me.index), last);
}

void Machine::learn_of_unit(int unit, Epoch epoch) {
  auto epochs = std::make_shared<std::vector<Epoch>>(*current_->known.own);
  (*epochs)[unit] = std::max((*epochs)[unit], epoch);
  current_->known.own = std::move(epochs);
}

/// Accesses of this thread until now are seen by units that are ordered behind them, and those that
/// it knows of by units that it tells to.
void Machine::fence_proxy() {
  current_->fenced = current_->known.own;
  advance(*current_);
  current_->block->fences[current_->index].push_back(current_->epoch);
}

void bulk_load(std::uint32_t shared, const BoxedTensor& map, const Coord& coord, void* barrier) {
  Machine& machine = Machine::get();
  machine.bulk_load(shared, map, coord, barrier, {&machine.block()}, __builtin_return_address(0));
}
void bulk_load_multicast(std::uint32_t shared, const BoxedTensor& map, const Coord& coord,
                         void* barrier, std::uint32_t blocks) {
  Machine& machine = Machine::get();
  const void* const pc = __builtin_return_address(0);
  machine.bulk_load(shared, map, coord, barrier, machine.blocks_in(blocks, pc), pc);
}
void bulk_store(const BoxedTensor& map, const Coord& coord, std::uint32_t shared) {
  Machine::get().bulk_store(map, coord, shared, false, __builtin_return_address(0));
}
void bulk_store(float* to, std::uint32_t shared, int bytes) {
  Machine::get().bulk_store(rows_of(to, bytes), {}, shared, false, __builtin_return_address(0));
}
void bulk_add(float* to, std::uint32_t shared, int bytes) {
  Machine::get().bulk_store(rows_of(to, bytes), {}, shared, true, __builtin_return_address(0));
}
void bulk_commit() { Machine::get().close_stores(); }
void bulk_wait_read(int pending) { Machine::get().read_stores(pending); }
void bulk_wait(int pending) { Machine::get().end_stores(pending); }
void fence_async_proxy() { Machine::get().fence_proxy(); }

}  // namespace sim
