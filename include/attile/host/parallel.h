// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/math.h>
#include <attile/core/status.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace attile::host {

/// Cuts one piece of memory into arrays. An arena without memory counts how much would be needed.
class Arena {
 public:
  static constexpr std::size_t kAlignment = 64;

  Arena() = default;
  explicit Arena(std::byte* memory) : memory_(memory) {}

  /// Returns an array of n values of a trivial type, uninitialised; null where there is no memory.
  template <class Value>
  Value* take(std::int64_t n) {
    std::byte* const at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += round_up(static_cast<std::size_t>(n) * sizeof(Value), kAlignment);
    return reinterpret_cast<Value*>(at);
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t used_ = 0;
};

/// Owns the memory of arenas; `data` is null when it could not be allocated.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes)
      : data(static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow))) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { ::operator delete(data, kAlignment); }

  std::byte* const data;

 private:
  static constexpr std::align_val_t kAlignment{Arena::kAlignment};
};

constexpr Check out_of_memory() {
  return {cudaErrorMemoryAllocation, "the scratch memory of the CPU executor cannot be allocated"};
}

/// Runs body(0) ... body(threads - 1) side by side, body(0) on the calling thread.
/// Errors   a thread that cannot be started: then no body runs at all. Bodies must not throw.
inline Check run_threads(int threads, const std::function<void(int)>& body) {
  enum : int { kWait, kRun, kCancel };
  std::atomic<int> gate{kWait};
  std::vector<std::thread> helpers;
  const auto open = [&](int state) {
    gate = state;
    gate.notify_all();
  };
  const auto join = [&] {
    // The threads use `gate` and `body`, which are destroyed after this.
    for (std::thread& helper : helpers) helper.join();
  };
  try {
    helpers.reserve(static_cast<std::size_t>(threads - 1));
    for (int i = 1; i < threads; ++i) {
      helpers.emplace_back([&gate, &body, i] {
        // A body waits until all threads have started: if one cannot be started, none may have run.
        gate.wait(kWait);
        if (gate == kRun) body(i);
      });
    }
  } catch (const std::system_error&) {
    open(kCancel);
    join();
    return {cudaErrorOperatingSystem, "a thread of the CPU executor cannot be started"};
  } catch (const std::bad_alloc&) {
    open(kCancel);
    join();
    return out_of_memory();
  }
  open(kRun);
  body(0);
  join();
  return {};
}

/// Calls worker(item) for 0 <= item < items. Each thread has a Worker of its own, made from the
/// problem and an arena. A first Worker is made without memory to count how much one takes, so that
/// its constructor must not access its arrays. Threads take the items in order.
template <class Worker, class Problem>
Check run_items(const Problem& problem, std::int64_t items, int most_threads) {
  if (items == 0) return {};
  const int threads = static_cast<int>(min<std::int64_t>(most_threads, items));
  Arena count;
  Worker(problem, count);
  constexpr std::size_t kPage = 4096;  // no two threads write to one cache line
  const std::size_t each = round_up(count.used(), kPage);
  const Scratch scratch(each * static_cast<std::size_t>(threads));
  if (scratch.data == nullptr) return out_of_memory();
  std::atomic<std::int64_t> next{0};
  const auto body = [&](int thread) {
    Arena arena(scratch.data + each * static_cast<std::size_t>(thread));
    Worker worker(problem, arena);
    for (std::int64_t item = next++; item < items; item = next++) worker(item);
  };
  return run_threads(threads, std::ref(body));  // a reference takes no memory that could be missing
}

}  // namespace attile::host
