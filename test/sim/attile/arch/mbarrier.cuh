// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <source_location>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/mbarrier.cuh: what a barrier is in is not in
// its memory.

namespace attile::arch {

struct alignas(8) Mbarrier {
  std::uint64_t state;
};

[[gnu::always_inline]] inline void mbarrier_init(Mbarrier* barrier, int arrivals) {
  sim::mbarrier_init(barrier, arrivals);
}

inline void mbarrier_publish() { sim::mbarrier_publish(); }

[[gnu::always_inline]] inline void mbarrier_arrive(Mbarrier* barrier) {
  sim::mbarrier_arrive(barrier, 0);
}

[[gnu::always_inline]] inline void mbarrier_arrive(Mbarrier* barrier, int rank) {
  sim::mbarrier_arrive_in(rank, barrier);
}

[[gnu::always_inline]] inline void mbarrier_arrive_behind_copies(Mbarrier* barrier) {
  sim::mbarrier_arrive_behind_copies(barrier);
}

[[gnu::always_inline]] inline void mbarrier_arrive_expect(Mbarrier* barrier, int bytes) {
  sim::mbarrier_arrive(barrier, bytes);
}

[[gnu::always_inline]] inline void mbarrier_wait(
    Mbarrier* barrier, int parity, std::source_location at = std::source_location::current()) {
  sim::mbarrier_wait(barrier, parity, at);
}

}  // namespace attile::arch
