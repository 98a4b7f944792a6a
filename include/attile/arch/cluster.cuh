// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

// Clusters: neighbouring blocks of a grid that run at the same time and reach each other's shared
// memory (compute capability 9.0; `launch_clusters`). Elsewhere a block is a cluster of its own.
//
// The shared memory of a block, its barriers too, is there for the others from the block's first
// instruction to its last. So nobody copies to another block, or arrives at a barrier there, before
// `cluster_barrier` behind that barrier's initialisation; and no block ends before it knows, from
// `cluster_barrier` or from waits for all that was sent to it, that the others are done with it.

namespace attile::arch {

/// The largest cluster that every device with clusters takes. Units: blocks.
inline constexpr int kMaxClusterBlocks = 8;

/// This block's place in its cluster: of those with size n, block_index() % n.
ATTILE_DEVICE int cluster_rank() {
  int rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

/// How many blocks its cluster has; 1 where it was launched without clusters.
ATTILE_DEVICE int cluster_size() {
  int size = 1;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
  return size;
}

/// Arrives at the cluster's barrier: what this thread did in memory comes before what others do
/// behind their `cluster_wait`. Scope    each thread of the cluster that has not ended, once
/// before its next `cluster_wait`.
ATTILE_DEVICE void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive;" ::: "memory");
#endif
}

/// Waits until all threads of the cluster that have not ended have arrived.
/// Scope    threads behind their `cluster_arrive`.
ATTILE_DEVICE void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait;" ::: "memory");
#endif
}

/// Waits for all threads of the cluster; orders their accesses of shared and global memory.
/// Scope    each thread of the cluster that has not ended.
ATTILE_DEVICE void cluster_barrier() {
  cluster_arrive();
  cluster_wait();
}

}  // namespace attile::arch
