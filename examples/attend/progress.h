// SPDX-License-Identifier: MIT
// What attend says on stderr during long work.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace attend {

/// Says from time to time how far one piece of work is, as long as it lives. On a terminal that is
/// one line, which is written over and cleared at the end; else lines at doubling distances. Short
/// work says nothing.
class Progress {
 public:
  /// `seconds`: until the first word; nothing: 1 on a terminal, else 10; 0: never.
  Progress(std::string what, std::optional<double> seconds)
      : what_(std::move(what)),
        terminal_(isatty(STDERR_FILENO) == 1),
        first_(seconds.value_or(terminal_ ? 1 : 10)) {
    if (first_ == 0) return;
    try {
      speaker_ = std::thread([this] { speak(); });
    } catch (const std::system_error&) {  // the work is done without words
    }
  }
  ~Progress() {
    if (!speaker_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    speaker_.join();
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The work has so many steps; 0: it is not known how many.
  void expect(std::int64_t steps) { steps_ = steps; }
  /// So many more are done. Can be called from every thread.
  void advance(std::int64_t steps = 1) { done_.fetch_add(steps, std::memory_order_relaxed); }

 private:
  using Seconds = std::chrono::duration<double>;

  void speak() {
    constexpr double kMost = 1e9;  // some 30 years
    const auto start = std::chrono::steady_clock::now();
    bool spoke = false;
    std::unique_lock lock(mutex_);
    for (double next = first_;; next = terminal_ ? next + 0.25 : 2 * next) {
      const auto then = start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                    Seconds(std::min(next, kMost)));
      if (changed_.wait_until(lock, then, [this] { return over_; })) break;
      const Seconds elapsed = std::chrono::steady_clock::now() - start;
      std::fprintf(stderr, terminal_ ? "\r\x1b[K%s" : "%s\n", text(elapsed.count()).c_str());
      std::fflush(stderr);
      spoke = true;
    }
    if (terminal_ && spoke) std::fputs("\r\x1b[K", stderr);
  }

  std::string text(double elapsed) const {
    const std::int64_t steps = steps_, done = done_;
    char numbers[96];
    if (steps > 0 && done > 0) {
      const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(steps));
      std::snprintf(numbers, sizeof numbers, "%.0f %% after %.0f s, about %.0f s to go", 100 * part,
                    elapsed, elapsed * (1 - part) / part);
    } else {
      std::snprintf(numbers, sizeof numbers, "%.0f s so far", elapsed);
    }
    return "attend: " + what_ + ": " + numbers;
  }

  const std::string what_;
  const bool terminal_;
  const double first_;
  std::atomic<std::int64_t> steps_ = 0, done_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread speaker_;
};

}  // namespace attend
