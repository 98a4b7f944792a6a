// SPDX-License-Identifier: MIT
// What the four warps of a warpgroup do together. PTX ISA, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Instructions" and "setmaxnreg".
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine.h"
#include "sim/report.h"

namespace sim {
namespace {

constexpr int kRows = 64, kDepthBytes = 32;
constexpr int kWarps = kWarpgroupSize / kWarpSize;
constexpr int kUnitRowBytes = 16;

/// An operand in shared memory, from its descriptor's bits. Rows of depth: those of 8 rows lie
/// behind each other, `stride` from one eight to the next. Columns of depth: the same of 8 steps of
/// depth, in panels that are `leading` apart.
struct Operand {
  std::uint32_t start, leading, stride;
  int row_bytes;  ///< 0 without a swizzle
  bool has_base_offset;

  explicit Operand(std::uint64_t descriptor) {
    const auto field = [&](int bit) {
      return static_cast<std::uint32_t>(descriptor >> bit & 0x3FFFu) << 4;
    };
    start = field(0);
    leading = field(16);
    stride = field(32);
    has_base_offset = (descriptor >> 49 & 7u) != 0;
    row_bytes = std::array{0, 128, 64, 32}[descriptor >> 62];
  }

  /// Of 16 bytes: at a row of depth, its unit `unit`; or the units of a step of depth.
  std::uint32_t unit(int row, int unit, bool transposed) const {
    const int panel_units = row_bytes / kUnitRowBytes;
    const int panel = transposed ? unit / panel_units : 0;
    const int in_panel = transposed ? unit % panel_units : unit;
    return swizzled(start + panel * leading + row / 8 * stride +
                        static_cast<std::uint32_t>(row % 8 * row_bytes + in_panel * kUnitRowBytes),
                    row_bytes);
  }
};

float element(const void* p, int bytes, const float* values) {
  std::uint16_t bits = 0;  // little-endian, as the device is
  std::memcpy(&bits, p, bytes);
  return values[bits];
}

/// Adds the products of a row of A and of B's columns, which are exact, to sums. `cuts`: each term
/// is cut off, towards zero, below 2^-13 of the largest, as sums of fp8 are.
void add_terms(const double* a, const std::vector<double>& b, std::vector<double>& sums,
               bool cuts) {
  const std::size_t columns = sums.size(), depth = b.size() / columns;
  const auto for_each_term = [&](auto f) {
    for (std::size_t k = 0; k < depth; ++k) {
      for (std::size_t n = 0; n < columns; ++n) f(n, a[k] * b[k * columns + n]);
    }
  };
  if (!cuts) return for_each_term([&](std::size_t n, double term) { sums[n] += term; });
  std::vector<double> largest(columns), plain = sums;
  for (std::size_t n = 0; n < columns; ++n) largest[n] = std::abs(sums[n]);
  for_each_term([&](std::size_t n, double term) {
    plain[n] += term;
    largest[n] = std::max(largest[n], std::abs(term));
  });
  for (std::size_t n = 0; n < columns; ++n) {
    // The power of two that the largest one begins with, over 2^13.
    largest[n] =
        std::bit_cast<double>(std::bit_cast<std::uint64_t>(largest[n]) & 0x7FF0ull << 48) * 0x1p-13;
    sums[n] = std::trunc(sums[n] / largest[n]);
  }
  for_each_term([&](std::size_t n, double term) { sums[n] += std::trunc(term / largest[n]); });
  for (std::size_t n = 0; n < columns; ++n) {
    const bool is_number = largest[n] > 0 && std::isfinite(plain[n]);
    sums[n] = is_number ? sums[n] * largest[n] : plain[n];
  }
}

/// The earlier one for each thread.
void keep_earlier(std::vector<Epoch>& epochs, const std::vector<Epoch>& others) {
  std::transform(epochs.begin(), epochs.end(), others.begin(), epochs.begin(),
                 [](Epoch a, Epoch b) { return std::min(a, b); });
}

/// What all of them knew when they came, of others and of each other.
void meet_knowledge(std::vector<Epoch>& together, const std::vector<Product::Knower>& knowers) {
  for (const Product::Knower& knower : knowers) {
    const Epoch own = together[knower.thread];
    keep_earlier(together, *knower.epochs);
    // A thread has come as far as it has come; the others have to know.
    if (knower.count == 1) together[knower.thread] = own;
  }
}

}  // namespace

int registers_at_start(unsigned threads) {
  return std::min(255, static_cast<int>(65536 / threads / 8 * 8));
}

// ---- registers ----------------------------------------------------------------------------------

void Machine::set_registers(int count, bool more, const std::source_location& at) {
  Thread& me = *current_;
  Block& block = *me.block;
  const std::size_t number = me.index / kWarpgroupSize;
  const auto wrong = [&](const char* kind, const std::string& why) {
    report(kind, who() + " comes to setmaxnreg." + (more ? "inc" : "dec") + " of " +
                     std::to_string(count) + " at " + place_of(at) + why);
  };
  meet_lanes(kAllLanes, {static_cast<std::uint32_t>(count)}, false, at);
  if (number >= block.warpgroups.size()) wrong("divergence", ", and its warpgroup is not whole");
  std::vector<RegisterChange>& changes = block.warpgroups[number].register_changes;
  const auto index = static_cast<std::size_t>(me.register_changes++);
  if (index == changes.size()) changes.push_back({count, more, at});
  if (changes[index].count != count || changes[index].more != more) {
    wrong("divergence", ", and others of its warpgroup to that at " + place_of(changes[index].at));
  }
  if (count < 24 || count > 256 || count % 8 != 0) {
    wrong("registers", ": a multiple of 8 from 24 to 256");
  }
  if (more ? count < me.registers : count > me.registers) {
    wrong("registers", ", and has " + std::to_string(me.registers));
  }
  const int change = count - me.registers;
  while (change > block.free_registers) {
    block.register_waiters.push_back(&me);
    wait(State::kWaiting, {more ? "more registers than the block has left, at " : "", at});
  }
  block.free_registers -= change;
  me.registers = count;
  for (Thread* const thread : std::exchange(block.register_waiters, {})) {
    thread->state = State::kReady;
    ready_.push_back(thread);
  }
}

/// Bytes of the running thread's stack.
void Machine::touch_stack(const unsigned char* p, std::size_t bytes, Access access,
                          const void* pc) {
  const Thread& me = *current_;
  const auto begin = static_cast<std::size_t>(p - me.stack) / 4;
  const auto end = (static_cast<std::size_t>(p - me.stack) + bytes + 3) / 4;
  for (std::size_t i = begin; i < std::min(end, kStackBytes / 4); ++i) {
    if (me.words[i] >= kReadByProduct) {
      report("in flight", who() + (access == Access::kRead ? " reads " : " writes ") +
                              (me.words[i] == kReadByProduct ? "an operand" : "a sum") + " (" +
                              place_of(pc) + ") of a product that it has not waited for");
    }
    me.words[i] = me.register_fence;
  }
}

void Machine::mark_words(const void* p, std::size_t bytes, std::uint32_t mark) {
  const Thread& me = *current_;
  const auto begin = static_cast<std::size_t>(static_cast<const unsigned char*>(p) - me.stack) / 4;
  std::fill_n(me.words.get() + begin, bytes / 4, mark);
}

void Machine::fence_registers(const std::source_location& at) {
  meet_lanes(kAllLanes, {}, false, at);
  watch_stack();
  ++current_->register_fence;
}

/// The product has the thread's sums, and its part of the left operand, from here on.
void Machine::claim_registers(Product& product, Product::Part& part) {
  const Thread& me = *current_;
  Warpgroup& group = me.block->warpgroups[me.index / kWarpgroupSize];
  const std::size_t count = product.form.n / 2;
  const auto check = [&](const void* p, std::size_t bytes, const char* what, bool in_chain) {
    const auto begin = static_cast<std::size_t>(static_cast<const unsigned char*>(p) - me.stack);
    const auto wrong = [&](const char* kind, const std::string& why) {
      report(kind, who() + " begins a product (" + place_of(product.pc) + ") with " + what + why);
    };
    if (!me.has_fenced) return wrong("registers", ", and has made no wgmma_fence");
    if (begin + bytes > kStackBytes) return wrong("registers", " that are no variables of its own");
    for (std::size_t i = begin / 4; i < (begin + bytes) / 4; ++i) {
      if (me.words[i] == me.register_fence) {
        return wrong("registers", " that were touched since the last wgmma_fence");
      }
      if (me.words[i] == kWrittenByProduct ? !in_chain
                                           : me.words[i] == kReadByProduct && part.a != p) {
        return wrong("in flight", " of another product that it has not waited for");
      }
    }
  };
  // Products of one shape may add to the same sums, one after another.
  const Product::Part* before = nullptr;
  for (std::uint64_t i = me.retired; i + 1 < me.products; ++i) {
    const Product& other = group.product(i);
    const Product::Part& its = other.parts[me.index % kWarpgroupSize];
    if (its.sums == part.sums && other.form.n == product.form.n) before = &its;
  }
  check(part.sums, count * sizeof(float), "sums", before != nullptr);
  if (part.a != nullptr) check(part.a, 4 * sizeof *part.a, "operands", false);
  part.values = before != nullptr
                    ? before->values
                    : std::make_shared<std::vector<float>>(part.sums, part.sums + count);
  mark_words(part.sums, count * sizeof(float), kWrittenByProduct);
  if (part.a != nullptr) mark_words(part.a, 4 * sizeof *part.a, kReadByProduct);
  std::memset(part.sums, kPoison, count * sizeof(float));
}

// ---- products -----------------------------------------------------------------------------------

void Machine::begin_product(const ProductForm& form, float* sums, const std::uint32_t* a,
                            const std::source_location& at, const void* pc) {
  Thread& me = *current_;
  Block& block = *me.block;
  const auto diverge = [&](const std::string& why) {
    report("divergence", who() + " begins a product (" + place_of(pc) + ")" + why);
  };
  meet_lanes(kAllLanes, {}, false, at);
  const std::size_t index = me.index / kWarpgroupSize;
  if (index >= block.warpgroups.size()) diverge(", and its warpgroup is not whole");
  Warpgroup& group = block.warpgroups[index];
  const std::uint64_t number = me.products++;
  if (number == group.first + group.products.size()) {
    group.products.emplace_back(form, at, pc);
  }
  Product& product = group.product(number);
  if (!(product.form == form) || !same_place(product.at, at)) {
    diverge(", and others of its warpgroup another one (" + place_of(product.pc) +
            "), or with other operands");
  }
  Product::Part& part = product.parts[me.index % kWarpgroupSize];
  part = {sums, a, nullptr};
  claim_registers(product, part);
  auto& knowers = product.knowers[me.index % kWarpgroupSize / kWarpSize];
  const auto same = std::find_if(knowers.begin(), knowers.end(), [&](const auto& knower) {
    return knower.epochs == me.known.own && knower.fenced == me.fenced;
  });
  if (same == knowers.end()) {
    knowers.push_back({me.known.own, me.fenced, me.index, 1});
  } else {
    ++same->count;
  }
  if (++product.came < kWarpgroupSize) return;
  product.epoch = ++now_;
  touch_operands(group, product);
  for (Thread* const thread : std::exchange(group.waiters, {})) {
    thread->state = State::kReady;
    ready_.push_back(thread);
  }
}

/// The reads of shared memory: each warp's of its 16 rows on the left, and everyone's on the right.
void Machine::touch_operands(Warpgroup& group, Product& product) {
  const ProductForm& form = product.form;
  const int unit_elements = kUnitRowBytes / form.element_bytes;
  const int depth = kDepthBytes / form.element_bytes, units = kDepthBytes / kUnitRowBytes;
  Block& block = *current_->block;
  const int unit =
      this->unit(block, UnitKind::kProducts, static_cast<int>(&group - block.warpgroups.data()));
  const auto check = [&](const Operand& operand, const char* which) {
    const auto boundary = static_cast<std::uint32_t>(8 * operand.row_bytes);
    if (boundary != 0 && !operand.has_base_offset &&
        operand.start % boundary < static_cast<std::uint32_t>(operand.row_bytes)) {
      return;
    }
    report("misaligned", who() + " begins a product (" + place_of(product.pc) + ") whose " + which +
                             " operand lies at " + shared_text(operand.start) +
                             ", or without a swizzle: it begins with a multiple of 8 rows");
  };
  // For each writer, the epoch up to which all threads of the warpgroup have made a fence.
  std::vector<Epoch> fenced(block.size + kUnits, std::numeric_limits<Epoch>::max());
  for (const auto& knowers : product.knowers) {
    for (const Product::Knower& knower : knowers) {
      if (knower.fenced == nullptr) {
        std::fill(fenced.begin(), fenced.end(), Epoch{0});
      } else {
        keep_earlier(fenced, *knower.fenced);
      }
    }
  }
  const FencedBehind fenced_behind = [&](int writer, Epoch write) {
    return fenced[writer] >= write;
  };
  const auto touch = [&](const Operand& operand, int rows, int units, bool transposed, int first,
                         const std::vector<Epoch>& epochs) {
    const Known known{std::make_shared<const std::vector<Epoch>>(epochs), nullptr};
    const UnitTouch touch{unit,          product.epoch, known,   product.pc,    "the product of ",
                          Access::kRead, Way::kBulk,    nullptr, &fenced_behind};
    for (int row = first; row < first + rows; ++row) {
      for (int u = 0; u < units; ++u) {
        touch_as_unit(touch, block.shared + operand.unit(row, u, transposed), kUnitRowBytes);
      }
    }
  };
  std::vector<Epoch> everyone(block.size + kUnits, std::numeric_limits<Epoch>::max());
  for (int warp = 0; warp < kWarps; ++warp) {
    std::vector<Epoch> together(everyone.size(), std::numeric_limits<Epoch>::max());
    meet_knowledge(together, product.knowers[warp]);
    keep_earlier(everyone, together);
    if (form.a_in_registers) continue;
    const Operand a(form.a);
    if (warp == 0) check(a, "left");
    if (form.transposed_a) {
      touch(a, depth, kRows / unit_elements, true, 0, together);
    } else {
      touch(a, kRows / kWarps, units, false, warp * kRows / kWarps, together);
    }
  }
  const Operand b(form.b);
  check(b, "right");
  if (form.transposed_b) {
    touch(b, depth, form.n / unit_elements, true, 0, everyone);
  } else {
    touch(b, form.n, units, false, 0, everyone);
  }
}

/// Operands are read here.
void Machine::multiply(const Block& block, Product& product) {
  const ProductForm& form = product.form;
  const int bytes = form.element_bytes;
  const int unit_elements = kUnitRowBytes / bytes, depth = kDepthBytes / bytes;
  const int word_elements = 4 / bytes;
  std::vector<double> a(kRows * depth), b(depth * form.n), row(form.n);
  // Calls take(row, column, x) for each element x of an operand in shared memory.
  const auto for_each_element = [&](const Operand& operand, const float* values, bool transposed,
                                    int rows, int columns, auto take) {
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; c += unit_elements) {
        const unsigned char* const p =
            block.shared + operand.unit(r, c / unit_elements, transposed);
        for (int i = 0; i < unit_elements; ++i)
          take(r, c + i, element(p + i * bytes, bytes, values));
      }
    }
  };
  if (form.a_in_registers) {
    for (int m = 0; m < kRows; ++m) {
      for (int k = 0; k < depth; ++k) {
        // A word of a lane is a quarter of 16 bytes of a row.
        const int lane = m % 8 * 4 + k % unit_elements / word_elements;
        const Product::Part& part = product.parts[m / 16 * kWarpSize + lane];
        const int word = k / unit_elements * 2 + m % 16 / 8;
        a[m * depth + k] =
            element(reinterpret_cast<const char*>(part.a + word) + k % word_elements * bytes, bytes,
                    form.values_a);
      }
    }
  } else if (form.transposed_a) {
    for_each_element(Operand(form.a), form.values_a, true, depth, kRows,
                     [&](int k, int m, float x) { a[m * depth + k] = x; });
  } else {
    for_each_element(Operand(form.a), form.values_a, false, kRows, depth,
                     [&](int m, int k, float x) { a[m * depth + k] = x; });
  }
  if (form.transposed_b) {
    for_each_element(Operand(form.b), form.values_b, true, depth, form.n,
                     [&](int k, int n, float x) { b[k * form.n + n] = x; });
  } else {
    for_each_element(Operand(form.b), form.values_b, false, form.n, depth,
                     [&](int n, int k, float x) { b[k * form.n + n] = x; });
  }
  for (int m = 0; m < kRows; ++m) {
    std::array<float*, 4> of_lane;  // the sums of the row: two neighbours of each eight
    for (int lane = 0; lane < 4; ++lane) {
      const Product::Part& part = product.parts[m / 16 * kWarpSize + m % 8 * 4 + lane];
      of_lane[lane] = part.values->data() + m % 16 / 8 * (form.n / 4);
    }
    const auto sum = [&](int n) -> float& { return of_lane[n % 8 / 2][n / 8 * 2 + n % 2]; };
    for (int n = 0; n < form.n; ++n) row[n] = form.accumulate ? sum(n) : 0.0;
    add_terms(&a[m * depth], b, row, bytes == 1);
    for (int n = 0; n < form.n; ++n) sum(n) = static_cast<float>(row[n]);
  }
  counters_.mma_flops += 2ull * kRows * form.n * depth;
}

void Machine::close_products(const std::source_location& at) {
  meet_lanes(kAllLanes, {}, false, at);
  current_->product_groups.push_back(current_->products);
}

/// A group is the warpgroup's: it is complete for one of its threads when it is for all, but each
/// has its sums from its own wait on.
void Machine::wait_for_products(int pending, const std::source_location& at) {
  Thread& me = *current_;
  meet_lanes(kAllLanes, {}, false, at);
  const auto groups = static_cast<int>(me.product_groups.size());
  if (groups <= pending) return;
  const std::uint64_t end = me.product_groups[groups - 1 - pending];
  if (end <= me.retired) return;
  Warpgroup& group = me.block->warpgroups[me.index / kWarpgroupSize];
  while (group.product(end - 1).came < kWarpgroupSize) {
    group.waiters.push_back(&me);
    wait(State::kWaiting, {"the products of its warpgroup, which not all have begun, at ", at});
  }
  for (; group.complete < end; ++group.complete) {
    multiply(*me.block, group.product(group.complete));
  }
  retire(group, end);
}

/// The thread gets the sums of products up to `end`.
void Machine::retire(Warpgroup& group, std::uint64_t end) {
  Thread& me = *current_;
  const auto part = [&](std::uint64_t number) -> Product::Part& {
    return group.product(number).parts[me.index % kWarpgroupSize];
  };
  const Epoch epoch = group.product(end - 1).epoch;
  for (std::uint64_t i = me.retired; i < end; ++i) {
    const Product::Part& mine = part(i);
    std::copy(mine.values->begin(), mine.values->end(), mine.sums);
    mark_words(mine.sums, mine.values->size() * sizeof(float), 0);
    if (mine.a != nullptr) mark_words(mine.a, 4 * sizeof *mine.a, 0);
    ++group.product(i).retired;
  }
  for (std::uint64_t i = end; i < me.products; ++i) {
    const Product::Part& mine = part(i);
    mark_words(mine.sums, mine.values->size() * sizeof(float), kWrittenByProduct);
    std::memset(mine.sums, kPoison, mine.values->size() * sizeof(float));
    if (mine.a != nullptr) mark_words(mine.a, 4 * sizeof *mine.a, kReadByProduct);
  }
  me.retired = end;
  while (!group.products.empty() && group.products.front().retired == kWarpgroupSize) {
    group.products.pop_front();
    ++group.first;
  }
  if (group.learnt != epoch || group.before != me.known.own) {
    group.learnt = epoch;
    group.before = me.known.own;
    Block& block = *me.block;
    const auto number = static_cast<int>(&group - block.warpgroups.data());
    learn_of_unit(unit(block, UnitKind::kProducts, number), epoch);
    group.after = me.known.own;
  }
  me.known.own = group.after;
}

void begin_product(const ProductForm& form, float* sums, const std::uint32_t* a,
                   std::source_location at) {
  Machine::get().begin_product(form, sums, a, at, __builtin_return_address(0));
}
void fence_registers(std::source_location at) { Machine::get().fence_registers(at); }
void close_products(std::source_location at) { Machine::get().close_products(at); }
void wait_for_products(int pending, std::source_location at) {
  Machine::get().wait_for_products(pending, at);
}
void set_registers(int count, bool more, std::source_location at) {
  Machine::get().set_registers(count, more, at);
}

}  // namespace sim
