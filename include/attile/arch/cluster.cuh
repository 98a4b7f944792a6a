// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>

// Clusters are neighbouring blocks of a grid that run at the same time and can access each other's
// shared memory (compute capability 9.0; `launch_clusters`). Elsewhere each block is a cluster.
//
// The shared memory of a block, including its barriers, exists for the others from the block's
// first instruction to its last. Therefore no thread copies to another block, or arrives at a
// barrier there, before a `cluster_barrier` behind the initialisation of that barrier; and no block
// ends before the others have finished with its memory, which it knows from `cluster_barrier` or
// from waits for all copies to it and all arrivals at its barriers.

namespace attile::arch {

/// The largest cluster that every device with clusters takes. Units: blocks.
inline constexpr int kMaxClusterBlocks = 8;

/// Returns the rank of this block in its cluster: block_index() % n in a cluster of n blocks.
ATTILE_DEVICE int cluster_rank() {
#if __CUDA_ARCH__ >= 900
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  return 0;
#endif
}

/// Returns the number of blocks of this cluster; 1 where the kernel was launched without clusters.
ATTILE_DEVICE int cluster_size() {
#if __CUDA_ARCH__ >= 900
  int size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
#else
  return 1;
#endif
}

/// Arrives at the cluster's barrier: what this thread did in memory comes before what others do
/// behind their `cluster_wait`.
/// Scope    each thread of the cluster that has not ended, once before its next `cluster_wait`.
ATTILE_DEVICE void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive;" ::: "memory");
#else
  // The cluster is this block, all of which `cluster_wait` waits for.
#endif
}

/// Waits until all threads of the cluster that have not ended have arrived. Without the wait a
/// thread could access the memory of a block that has not begun, has ended, or has not written it
/// yet.
/// Scope    threads behind their `cluster_arrive`.
ATTILE_DEVICE void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait;" ::: "memory");
#else
  barrier();  // the cluster is this block
#endif
}

/// Waits for all threads of the cluster, and orders their accesses of shared and global memory.
/// Scope    each thread of the cluster that has not ended.
ATTILE_DEVICE void cluster_barrier() {
  cluster_arrive();
  cluster_wait();
}

}  // namespace attile::arch
