// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/shared_memory.cuh>
#include <attile/core/config.h>

#include <cstdint>

// Barriers in shared memory ("mbarrier" in the PTX ISA; these forms: compute capability 9.0). One
// goes through phases: a phase ends when all arrivals have come and all bytes have that copies were
// announced to bring. Waiting is for the end of the phase with a parity: 0 for the first one, then
// 1, 0, ... in turn; that of the phase before the first counts as over.

namespace attile::arch {

struct alignas(8) Mbarrier {
  std::uint64_t state;
};

/// Before its first use, by one thread. The others, and copies, may use it after
/// `mbarrier_publish` by that thread and a barrier behind it.
ATTILE_DEVICE void mbarrier_init(Mbarrier* barrier, int arrivals) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
#endif
}

/// Lets copies see the barriers that this thread has initialised.
ATTILE_DEVICE void mbarrier_publish() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/// Arrives, after all that this thread has done.
ATTILE_DEVICE void mbarrier_arrive(Mbarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}

/// Arrives at the barrier that lies at the same place in the shared memory of block `rank` of the
/// cluster, its own one too. It counts after what this thread has read of shared memory; what the
/// thread has written is told to nobody in another block. The form that would tell it, with the
/// cluster's scope, slows a ring of multicast tiles down to a quarter to two fifths (H200).
/// Scope    one thread, behind a `cluster_barrier` behind `mbarrier_init` in that block.
/// Hazards  that block must not end before: it waits for the phase, or in `cluster_barrier`.
ATTILE_DEVICE void mbarrier_arrive(Mbarrier* barrier, int rank) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
#endif
}

/// Announces that copies will bring `bytes` more in this phase, and arrives.
ATTILE_DEVICE void mbarrier_arrive_expect(Mbarrier* barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}

/// Waits for the end of the phase with this parity; what was done before the arrivals, and what
/// copies brought, is seen after it. The barrier is in that phase or in the one after it.
ATTILE_DEVICE void mbarrier_wait(Mbarrier* barrier, int parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra again;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
#endif
}

}  // namespace attile::arch
