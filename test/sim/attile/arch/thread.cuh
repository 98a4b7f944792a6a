// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/thread.cuh.

namespace attile::arch {

inline constexpr int kWarpSize = sim::kWarpSize;
inline constexpr unsigned kAllLanes = sim::kAllLanes;

inline int thread_index() { return sim::thread_index(); }
inline int block_index() { return sim::block_index(); }
inline int block_count() { return sim::block_count(); }

inline int multiprocessor_bound() { return static_cast<int>(sim::kMostResident); }

[[noreturn]] inline void trap() { std::abort(); }

inline void barrier(std::source_location at = std::source_location::current()) {
  sim::block_barrier(at);
}

inline void barrier(int id, int threads,
                    std::source_location at = std::source_location::current()) {
  sim::named_barrier(id, threads, true, at);
}

inline bool barrier_any(int id, int threads, bool x,
                        std::source_location at = std::source_location::current()) {
  return sim::barrier_vote(id, threads, x, at);
}

inline void barrier_arrive(int id, int threads,
                           std::source_location at = std::source_location::current()) {
  sim::named_barrier(id, threads, false, at);
}

inline void warp_barrier(unsigned lanes = kAllLanes,
                         std::source_location at = std::source_location::current()) {
  sim::warp_barrier(lanes, at);
}

inline float shuffle_xor(float x, int mask, unsigned lanes = kAllLanes,
                         std::source_location at = std::source_location::current()) {
  const int from = (sim::thread_index() % kWarpSize) ^ mask;
  return std::bit_cast<float>(sim::shuffle(lanes, std::bit_cast<std::uint32_t>(x), from, at));
}

inline std::uint32_t shuffle_xor(std::uint32_t x, int mask, unsigned lanes = kAllLanes,
                                 std::source_location at = std::source_location::current()) {
  return sim::shuffle(lanes, x, (sim::thread_index() % kWarpSize) ^ mask, at);
}

inline float shuffle(float x, int from, std::source_location at = std::source_location::current()) {
  return std::bit_cast<float>(sim::shuffle(kAllLanes, std::bit_cast<std::uint32_t>(x), from, at));
}

inline int shuffle(int x, int from, std::source_location at = std::source_location::current()) {
  return std::bit_cast<int>(sim::shuffle(kAllLanes, std::bit_cast<std::uint32_t>(x), from, at));
}

inline int uniform(int x, std::source_location at = std::source_location::current()) {
  return std::bit_cast<int>(sim::shuffle(kAllLanes, std::bit_cast<std::uint32_t>(x), 0, at));
}

template <class T>
T shuffle_words(T x, int from, std::source_location at = std::source_location::current()) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(int) == 0,
                "sim: shuffle_words takes whole words");
  int words[sizeof(T) / sizeof(int)];
  std::memcpy(words, &x, sizeof(T));
  for (int& word : words) word = shuffle(word, from, at);
  std::memcpy(&x, words, sizeof(T));
  return x;
}

inline bool any_lane(bool x, unsigned lanes = kAllLanes,
                     std::source_location at = std::source_location::current()) {
  return sim::vote(lanes, x, at) != 0;
}

inline int first_lane(bool x, unsigned lanes = kAllLanes,
                      std::source_location at = std::source_location::current()) {
  const std::uint32_t votes = sim::vote(lanes, x, at);
  return votes == 0 ? kWarpSize : std::countr_zero(votes);
}

inline int count_lanes(bool x, unsigned lanes = kAllLanes,
                       std::source_location at = std::source_location::current()) {
  return std::popcount(sim::vote(lanes, x, at));
}

}  // namespace attile::arch
