// Barriers of blocks, parts of blocks, clusters and grids.
#pragma once
#include "memory.h"

namespace simt {

// A thread that has seen a cluster's or the grid's barrier tells those that it meets.
inline void join(Thread& thread, uint32_t grid_time, uint32_t clusters_waited) {
  thread.grid_time = std::max(thread.grid_time, grid_time);
  thread.clusters_waited = std::max(thread.clusters_waited, clusters_waited);
}

inline void release_block(Block& block) {
  Barrier& barrier = block.barriers[0];
  uint32_t time = tick(), grid_time = 0, clusters_waited = 0;
  int result = block.vote == SIMT_AND ? block.votes == static_cast<int>(barrier.arrived)
               : block.vote == SIMT_OR ? block.votes != 0
                                       : block.votes;
  for (Thread* thread : barrier.waiting) {
    grid_time = std::max(grid_time, thread->grid_time);
    clusters_waited = std::max(clusters_waited, thread->clusters_waited);
  }
  for (Thread* thread : barrier.waiting) {
    thread->block_time = time;
    join(*thread, grid_time, clusters_waited);
    thread->result = static_cast<uint64_t>(result);
    make_ready(thread);
  }
  state.launch->barriers++;
  barrier.waiting.clear();
  barrier.arrived = 0;
  block.votes = 0;
}

inline int sync_block(simt_vote vote, int predicate, int line) {
  Thread& self = *state.current;
  Block& block = *self.block;
  Barrier& barrier = block.barriers[0];
  Text who;
  if (!barrier.arrived) {
    barrier.line = line;
    block.vote = vote;
  } else if (barrier.line != line) {
    fail("%s comes to __syncthreads at line %d while others wait at the one at line %d", describe(self, who), line,
         barrier.line);
  }
  block.votes += predicate != 0;
  barrier.arrived++;
  barrier.waiting.push_back(&self);
  if (barrier.arrived == block.alive) {
    release_block(block);  // makes this thread ready too, so that it waits its turn
    switch_away();
  } else {
    wait_at("__syncthreads", line);
  }
  return static_cast<int>(self.result);
}

inline void release_named(Block& block, Barrier& barrier) {
  uint32_t time = tick(), times[32], grid_time = 0, clusters_waited = 0, block_time = 0;
  for (unsigned warp = 0; warp < 32; warp++)
    times[warp] = barrier.warps >> warp & 1 ? std::min(barrier.arrive_times[warp], time) : 0;
  for (Thread* thread : barrier.waiting) {
    for (unsigned warp = 0; warp < 32; warp++) times[warp] = std::max(times[warp], thread->warp_times[warp]);
    grid_time = std::max(grid_time, thread->grid_time);
    clusters_waited = std::max(clusters_waited, thread->clusters_waited);
    block_time = std::max(block_time, thread->block_time);
  }
  for (Thread* thread : barrier.waiting) {
    std::copy(times, times + 32, thread->warp_times);
    thread->meet_times[thread->meets++ % 4] = time;
    thread->block_time = block_time;
    join(*thread, grid_time, clusters_waited);
    make_ready(thread);
  }
  block.partial = true;
  state.launch->barriers++;
  barrier.waiting.clear();
  barrier.arrived = 0;
}

inline void sync_named(int id, int threads, bool wait, int line) {
  Thread& self = *state.current;
  Block& block = *self.block;
  Text who;
  if (id < 0 || id > 15) fail("%s uses barrier %d at line %d, not one of 0 to 15", describe(self, who), id, line);
  if (id == 0 && wait && (!threads || static_cast<unsigned>(threads) == state.launch->threads)) {
    sync_block(SIMT_NONE, 0, line);
    return;
  }
  unsigned needed = threads ? static_cast<unsigned>(threads) : state.launch->threads;
  if (threads < 0 || needed % 32 || needed > state.launch->threads)
    fail("%s comes to barrier %d for %d threads at line %d: not a multiple of 32 up to the block's %u",
         describe(self, who), id, threads, line, state.launch->threads);
  Barrier& barrier = block.barriers[id];
  if (!barrier.arrived) {
    barrier.needed = needed;
    barrier.warps = 0;
    barrier.line = line;
  } else if (barrier.needed != needed) {
    fail("%s comes to barrier %d for %u threads at line %d while others wait for %u at line %d", describe(self, who),
         id, needed, line, barrier.needed, barrier.line);
  }
  uint32_t time = wait ? ~0u : tick();
  if (!wait) self.meet_times[self.meets++ % 4] = time;
  barrier.arrive_times[self.warp] =
      barrier.warps >> self.warp & 1 ? std::max(barrier.arrive_times[self.warp], time) : time;
  barrier.warps |= 1u << self.warp;
  barrier.arrived++;
  if (wait) barrier.waiting.push_back(&self);
  if (barrier.arrived == needed) {
    release_named(block, barrier);
    if (wait) switch_away();
  } else if (wait) {
    wait_at("named barrier", line, id);
  }
}

inline void release_cluster(Cluster& cluster) {
  cluster.phase++;
  cluster.missing = cluster.alive;
  state.launch->barriers++;
  for (Thread& thread : state.threads)
    if (thread.block->cluster == &cluster && !thread.done && thread.wait.what && thread.wait.id == -1 &&
        thread.clusters_arrived == cluster.phase)
      make_ready(&thread);
}

inline void cluster_arrive(bool relaxed, int line) {
  Thread& self = *state.current;
  Cluster& cluster = *self.block->cluster;
  Text who;
  if (self.clusters_arrived != self.clusters_waited)
    fail("%s arrives at the cluster barrier at line %d again, without a wait between", describe(self, who), line);
  uint32_t before = self.arrive_times[(self.clusters_arrived - 1) % 4];
  self.arrive_times[self.clusters_arrived++ % 4] = relaxed ? before : tick();
  if (--cluster.missing == 0) release_cluster(cluster);
}

inline void cluster_wait(int line) {
  Thread& self = *state.current;
  Text who;
  if (self.clusters_arrived == self.clusters_waited)
    fail("%s waits at the cluster barrier at line %d without having arrived", describe(self, who), line);
  if (self.block->cluster->phase < self.clusters_arrived) wait_at("the cluster barrier", line, -1);
  self.clusters_waited++;
}

inline void release_grid() {
  uint32_t time = tick();
  state.grid_missing = state.alive;
  state.launch->barriers++;
  for (Thread& thread : state.threads)
    if (!thread.done && thread.wait.what && thread.wait.id == -2) {
      thread.grid_time = time;
      make_ready(&thread);
    }
}

inline void sync_grid(int line) {
  Text who;
  if (!state.launch->cooperative)
    fail("%s waits for the grid at line %d, which needs a cooperative launch", describe(*state.current, who), line);
  state.current->wait = {"the grid barrier", -2, 0, line};
  if (--state.grid_missing == 0) release_grid();
  switch_away();
}

}  // namespace simt
