// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>

#include <cuda.h>

#include <cstdint>

// Copies of boxes of tensors with five dimensions between device and shared memory. One thread
// begins a copy, and the Tensor Memory Accelerator of the multiprocessor executes it (TMA; compute
// capability 9.0, "cp.async.bulk.tensor" in the PTX ISA). It accesses memory through the "async
// proxy": `fence_async_proxy`, a wait on an Mbarrier, or `bulk_wait_read` orders generic accesses
// of shared memory with it.

namespace attile::arch {

/// Describes a tensor for copies. The host makes it (tensor_map.cuh), and a kernel takes it as a
/// parameter under ATTILE_GRID_CONSTANT.
using TensorMap = CUtensorMap;

/// Begins to load a box to `shared`; `barrier` counts its bytes. Scope    one thread.
/// Units    `shared` as `shared_address` gives it, aligned to 128 bytes; to 1024, 512, 256 with a
///          swizzle of 128, 64, 32 bytes. `at.c0` is a multiple of 16 bytes.
ATTILE_DEVICE void bulk_load(std::uint32_t shared, const TensorMap& map, const TmaCoord& at,
                             Mbarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared),
      "l"(&map), "r"(at.c0), "r"(at.c1), "r"(at.c2), "r"(at.c3), "r"(at.c4),
      "r"(shared_address(barrier))
      : "memory");
#else
  trap();
#endif
}

/// Begins to load a box to `shared` in each of `blocks` of the cluster; it is read once for all of
/// them. In each block its bytes count at the barrier with the same offset as `barrier` in this
/// one.
/// Scope    one thread, behind a `cluster_barrier` behind `mbarrier_publish` in those blocks.
/// Units    `shared` as for `bulk_load`; blocks: a bit for each, by its `cluster_rank`.
/// Hazards  none of those blocks may have ended, or still read the memory, when the box arrives: an
///          Mbarrier in this block at which all their readers arrive ensures that. A barrier there
///          may get the bytes before it expects them, as long as an arrival is still missing.
ATTILE_DEVICE void bulk_load_multicast(std::uint32_t shared, const TensorMap& map,
                                       const TmaCoord& at, Mbarrier* barrier,
                                       std::uint16_t blocks) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(shared),
      "l"(&map), "r"(at.c0), "r"(at.c1), "r"(at.c2), "r"(at.c3), "r"(at.c4),
      "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
#else
  trap();
#endif
}

/// Prefetches the map itself, for which the first copy with it would otherwise wait.
ATTILE_DEVICE void prefetch_map(const TensorMap& map) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#else
  trap();
#endif
}

/// Begins to load `bytes` contiguous bytes to `shared`; `barrier` counts them.
/// Units    `bytes` and both addresses are multiples of 16.
ATTILE_DEVICE void bulk_load(std::uint32_t shared, const void* from, int bytes, Mbarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#else
  trap();
#endif
}

/// Begins to store a box from `shared`; the store belongs to this thread's open commit group.
/// Units    as in `bulk_load`, and no coordinate may be negative: such a box stops an H200 with an
///          illegal instruction.
ATTILE_DEVICE void bulk_store(const TensorMap& map, const TmaCoord& at, std::uint32_t shared) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], "
      "[%6];" ::"l"(&map),
      "r"(at.c0), "r"(at.c1), "r"(at.c2), "r"(at.c3), "r"(at.c4), "r"(shared)
      : "memory");
#else
  trap();
#endif
}

/// Begins to store `bytes` contiguous bytes; the store belongs to this thread's open commit
/// group. Units    `bytes` and both addresses are multiples of 16.
ATTILE_DEVICE void bulk_store(float* to, std::uint32_t shared, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(to)),
               "r"(shared), "r"(bytes)
               : "memory");
#else
  trap();
#endif
}

/// Begins to add `bytes` bytes of floats in `shared` to those from `to` on, each as by
/// `atomic_add`; the addition belongs to this thread's open commit group.
/// Units    `bytes` and both addresses are multiples of 16.
ATTILE_DEVICE void bulk_add(float* to, std::uint32_t shared, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(to)),
               "r"(shared), "r"(bytes)
               : "memory");
#else
  trap();
#endif
}

/// Closes this thread's commit group of stores.
ATTILE_DEVICE void bulk_commit() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
  trap();
#endif
}

/// Waits until all but kPending of this thread's latest commit groups have read their shared
/// memory, which could otherwise be overwritten before it is read. What they write is visible in
/// device memory at the end of the kernel.
template <int kPending>
ATTILE_DEVICE void bulk_wait_read() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
#else
  trap();
#endif
}

/// Waits until all but kPending of this thread's latest commit groups are complete. A thread that
/// acquires what this one releases after the wait sees in device memory what the groups have
/// written; without the wait it could read too early.
template <int kPending>
ATTILE_DEVICE void bulk_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
#else
  trap();
#endif
}

/// Orders generic accesses of shared memory before the accesses of later copies and warpgroup
/// products, which could otherwise read it before it is written, or overwrite it before it is read.
/// The generic accesses are those of this thread, and those of others that are ordered before the
/// fence. Either the threads that wrote call it before a barrier, or the thread that begins the
/// copy or product calls it behind one. (The order runs through the fence, in the block of the
/// copy: Lustig, Cooksey and Giroux, "Mixed-proxy extensions for the NVIDIA PTX memory consistency
/// model", 2022.)
ATTILE_DEVICE void fence_async_proxy() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  trap();
#endif
}

/// Orders accesses of device memory in the same way, for a copy that adds to what threads have
/// written in this kernel, and could otherwise add before that is written.
ATTILE_DEVICE void fence_async_proxy_global() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#else
  trap();
#endif
}

}  // namespace attile::arch
