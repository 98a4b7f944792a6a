// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>

#include <cstdint>

// Barriers in shared memory ("mbarrier" in the PTX ISA; these forms: compute capability 9.0). Such
// a barrier goes through phases: a phase ends when all its arrivals have happened and all expected
// bytes of copies have arrived. A thread waits for the end of the phase with a parity: 0 for the
// first phase, then 1, 0, ... alternately; the phase before the first counts as ended.

namespace attile::arch {

/// Is a barrier in shared memory.
struct alignas(8) Mbarrier {
  std::uint64_t state;
};

/// Initialises a barrier for phases of `arrivals` arrivals. Scope    one thread.
/// Barriers other threads, and copies, may use it after `mbarrier_publish` by this thread and a
///          barrier behind it: before that they could find it uninitialised.
ATTILE_DEVICE void mbarrier_init(Mbarrier* barrier, int arrivals) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
#else
  trap();
#endif
}

/// Makes the barriers that this thread has initialised visible to copies, which could otherwise
/// find them uninitialised.
ATTILE_DEVICE void mbarrier_publish() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  trap();
#endif
}

/// Arrives at the barrier. What this thread did in memory before comes before what others do after
/// their wait.
ATTILE_DEVICE void mbarrier_arrive(Mbarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
#else
  trap();
#endif
}

/// Arrives at the barrier with the same offset in the shared memory of block `rank` of the cluster,
/// which may be this block. The arrival comes after this thread's reads of shared memory; its
/// writes are not made visible to other blocks. The form that would do so, with the scope of the
/// cluster, slows a pipeline of multicast tiles down to a quarter to two fifths (H200,
/// 2026-11-21, a one-off program).
/// Scope    one thread, behind a `cluster_barrier` behind `mbarrier_init` in that block.
/// Hazards  that block must not end before the arrival: it waits for the phase, or in
///          `cluster_barrier`.
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
#else
  trap();
#endif
}

/// Makes this phase expect `bytes` more bytes of copies, and arrives.
ATTILE_DEVICE void mbarrier_arrive_expect(Mbarrier* barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#else
  trap();
#endif
}

/// Arrives at the barrier when all asynchronous copies (async_copy.cuh) that this thread has begun
/// have arrived: those who wait for the phase see their bytes. The arrival is one of those that
/// `mbarrier_init` counts.
ATTILE_DEVICE void mbarrier_arrive_behind_copies(Mbarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
#else
  trap();
#endif
}

/// Waits for the end of the phase with this parity. After it this thread sees what was done before
/// the arrivals, and what the copies have written. The barrier must be in that phase or the next.
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
#else
  trap();
#endif
}

}  // namespace attile::arch
