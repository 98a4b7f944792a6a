// SPDX-License-Identifier: MIT
#pragma once

#if !defined(__GNUC__)
#include <atomic>
#endif

namespace attile {

/// Holds a number that threads read and write at the same time: a thread that loads it sees what
/// another one stored before. It is a std::atomic with acquire and release, without that header,
/// which is slow to compile. A static one begins as zeros.
/// Units   T: an integer of a word or less.
template <class T>
class SharedWord {
 public:
  SharedWord() = default;
  SharedWord(const SharedWord&) = delete;
  SharedWord& operator=(const SharedWord&) = delete;

#if defined(__GNUC__)
  T load() const { return __atomic_load_n(&value_, __ATOMIC_ACQUIRE); }
  void store(T value) { __atomic_store_n(&value_, value, __ATOMIC_RELEASE); }
  /// Sets the number to `desired` if it is `expected`, and returns whether it was.
  bool exchange_if(T expected, T desired) {
    return __atomic_compare_exchange_n(&value_, &expected, desired, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
  }

 private:
  T value_{};
#else
  T load() const { return value_.load(std::memory_order_acquire); }
  void store(T value) { value_.store(value, std::memory_order_release); }
  bool exchange_if(T expected, T desired) {
    return value_.compare_exchange_strong(expected, desired, std::memory_order_acq_rel);
  }

 private:
  std::atomic<T> value_{};
#endif
};

}  // namespace attile
