// Barriers, clusters, cooperative groups, and the launch that precedes this one.
#pragma once
#include "warp.h"

SIMT_DEVICE void __syncthreads(int line = __builtin_LINE()) { simt_sync_block(SIMT_NONE, 0, line); }
SIMT_DEVICE int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  return simt_sync_block(SIMT_AND, predicate, line);
}
SIMT_DEVICE int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  return simt_sync_block(SIMT_OR, predicate, line);
}
SIMT_DEVICE int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  return simt_sync_block(SIMT_COUNT, predicate, line);
}

// Fibers see one another's writes at once; the race detector asks for barriers, not for fences.
SIMT_DEVICE void __threadfence() {}
SIMT_DEVICE void __threadfence_block() {}
SIMT_DEVICE void __threadfence_system() {}

SIMT_DEVICE void cudaGridDependencySynchronize() { simt_programmatic_sync(); }
SIMT_DEVICE void cudaTriggerProgrammaticLaunchCompletion() { simt_programmatic_trigger(); }

namespace cooperative_groups {

struct cluster_group {
  SIMT_DEVICE static void sync(int line = __builtin_LINE()) {
    simt_cluster_arrive(false, line);
    simt_cluster_wait(line);
  }
  SIMT_DEVICE static void barrier_arrive(int line = __builtin_LINE()) { simt_cluster_arrive(false, line); }
  SIMT_DEVICE static void barrier_wait(int line = __builtin_LINE()) { simt_cluster_wait(line); }
  SIMT_DEVICE static unsigned block_rank() { return static_cast<unsigned>(simt_cluster_rank()); }
  SIMT_DEVICE static unsigned num_blocks() { return static_cast<unsigned>(simt_cluster_size()); }
  SIMT_DEVICE static unsigned thread_rank() { return block_rank() * simt_block_size().x + simt_thread_index().x; }
  SIMT_DEVICE static unsigned num_threads() { return num_blocks() * simt_block_size().x; }
  SIMT_DEVICE static dim3 block_index() { return {block_rank(), 0, 0}; }
  SIMT_DEVICE static dim3 dim_blocks() { return {num_blocks(), 1, 1}; }
  template <class T>
  SIMT_DEVICE static T* map_shared_rank(T* address, int rank) {
    return static_cast<T*>(simt_map_shared(address, rank));
  }
};
SIMT_DEVICE cluster_group this_cluster() { return {}; }

struct grid_group {
  SIMT_DEVICE static void sync(int line = __builtin_LINE()) { simt_sync_grid(line); }
};
SIMT_DEVICE grid_group this_grid() { return {}; }

struct thread_block {
  SIMT_DEVICE static void sync(int line = __builtin_LINE()) { simt_sync_block(SIMT_NONE, 0, line); }
  SIMT_DEVICE static unsigned thread_rank() { return simt_thread_index().x; }
  SIMT_DEVICE static unsigned num_threads() { return simt_block_size().x; }
};
SIMT_DEVICE thread_block this_thread_block() { return {}; }

}  // namespace cooperative_groups
