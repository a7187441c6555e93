// The blocks of a cluster that share a row: their barrier, and each other's shared memory. A block alone is a cluster of one.
//
// Compile-time: BLOCKS (of a cluster).
#pragma once
#include "keys.cuh"

#if BLOCKS > 1
#include <cooperative_groups.h>

__device__ __forceinline__ unsigned block_of() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() { cluster_arrive(), cluster_wait(); }

// Where another block has what this block has at an address of its shared memory.
template <class T> __device__ __forceinline__ T* of_block(T* address, unsigned block) {
  return cooperative_groups::this_cluster().map_shared_rank(address, block);
}
#else
__device__ __forceinline__ unsigned block_of() { return 0; }
__device__ __forceinline__ void cluster_arrive() {}
__device__ __forceinline__ void cluster_wait() {}
__device__ __forceinline__ void cluster_sync() { __syncthreads(); }
template <class T> __device__ __forceinline__ T* of_block(T* address, unsigned) { return address; }
#endif
