// Running a grid: groups of blocks that live together, one group after another.
#pragma once
#include <link.h>

#include "atomics.h"
#include "signals.h"

namespace simt {

// Ways that a block leaves while another one still needs its shared memory.
inline void check_exit(Block& block) {
  uint32_t grid_time = 0, phase = 0;
  for (unsigned i = 0; i < state.launch->threads; i++) {
    grid_time = std::max(grid_time, block.threads[i].grid_time);
    phase = std::max(phase, block.threads[i].clusters_waited);
  }
  check_signals(block, phase);
  for (const Thread& thread : state.threads) {
    uint32_t time = thread.remote_times[block.rank];
    if (thread.block == &block || thread.block->cluster != block.cluster || !time || time <= grid_time) continue;
    if (phase && time <= thread.arrive_times[(phase - 1) % 4]) continue;
    Text who;
    Place where;
    fail("block %u may exit before %s touches its shared memory, %s: no cluster barrier after that", block.index.x,
         describe(thread, who), place(thread.remote_code[block.rank], where));
  }
}

inline void check_meetings(const Warp& warp, const Thread& self) {
  Text who;
  for (const Meeting& meeting : warp.meetings)
    if (meeting.mask >> self.lane & 1)
      fail("%s exits while lanes of its warp wait for it at %s with mask 0x%x (deadlock)", describe(self, who),
           name_of(meeting.operation), meeting.mask);
}

inline void exit_thread() {
  Thread& self = *state.current;
  Block& block = *self.block;
  Cluster& cluster = *block.cluster;
  finish_copies(self.copies.size());
  self.done = true;
  state.alive--;
  block.alive--;
  cluster.alive--;
  Warp& warp = block.warps[self.warp];
  warp.alive &= ~(1u << self.lane);
  check_meetings(warp, self);
  if (!block.alive) check_exit(block);
  if (self.clusters_arrived == cluster.phase && --cluster.missing == 0 && cluster.alive) release_cluster(cluster);
  if (--state.grid_missing == 0 && state.alive) release_grid();
  if (block.barriers[0].arrived && block.barriers[0].arrived == block.alive) release_block(block);
}

inline void run_thread() {
  state.launch->entry(state.launch->arguments);
  exit_thread();
  switch_away();
  __builtin_unreachable();
}

inline char* stacks(uint64_t count) {
  static char* begin = nullptr;
  static uint64_t have = 0;
  if (count > have) {
    if (begin) munmap(begin, (have + 1) * STACK_BYTES);
    begin = map_zeros<char>((count + 1) * STACK_BYTES);
    have = begin ? count : 0;
  }
  return begin ? begin + STACK_BYTES : nullptr;  // a full stack reaches into the one below before it is seen
}

inline simt_index index_of(uint64_t block) {
  const uint32_t* grid = state.launch->grid;
  return {static_cast<unsigned>(block % grid[0]), static_cast<unsigned>(block / grid[0] % grid[1]),
          static_cast<unsigned>(block / grid[0] / grid[1])};
}

// Blocks first, first + 1, ... of the grid.
inline void make_group(uint64_t first, uint64_t count, char* stack) {
  simt_launch& launch = *state.launch;
  state.blocks.assign(count, Block());
  state.threads.assign(count * launch.threads, Thread());
  state.clusters.assign(count / launch.cluster, Cluster());
  state.ready.clear();
  state.ready_head = 0;
  state.signals.clear();
  state.on_the_way = 0;
  state.alive = state.grid_missing = static_cast<unsigned>(count * launch.threads);
  state.group_start = tick() + 1;
  for (uint64_t place = 0; place < count; place++) {
    Block& block = state.blocks[place];
    block.index = index_of(first + place);
    block.place = static_cast<unsigned>(place);
    block.rank = static_cast<int>(place % launch.cluster);
    block.cluster = &state.clusters[place / launch.cluster];
    block.threads = &state.threads[place * launch.threads];
    block.alive = launch.threads;
    block.votes = 0;
    block.warps.assign((launch.threads + 31) / 32, Warp());
    block.cluster->missing += launch.threads;
    block.cluster->alive += launch.threads;
    for (unsigned i = 0; i < launch.threads; i++) {
      Thread& thread = block.threads[i];
      thread.block = &block;
      thread.number = i;
      thread.index = {i, 0, 0};
      thread.lane = i % 32;
      thread.warp = i / 32;
      thread.id = static_cast<unsigned>(place * launch.threads + i);
      thread.stack = stack + thread.id * STACK_BYTES;
      thread.stack_pointer = fresh_fiber(thread.stack, STACK_BYTES, run_thread);
      block.warps[thread.warp].exists |= 1u << thread.lane;
      block.warps[thread.warp].alive |= 1u << thread.lane;
      state.ready.push_back(&thread);
    }
  }
  for (const Shared& buffer : arena.buffers) fill_with_garbage(buffer);
}

// Where the library that holds the kernel lies.
inline int find_image(dl_phdr_info* info, size_t, void*) {
  auto entry = reinterpret_cast<uint64_t>(state.launch->entry);
  uint64_t end = info->dlpi_addr;
  bool inside = false;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    uint64_t begin = info->dlpi_addr + part.p_vaddr;
    inside |= entry - begin < part.p_memsz;
    end = std::max(end, begin + part.p_memsz);
  }
  if (inside) state.image_begin = info->dlpi_addr, state.image_end = end;
  return inside;
}

inline int run(simt_launch* launch) {
  state.launch = launch;
  state.failed = false;
  dl_iterate_phdr(find_image, nullptr);
  state.random = launch->seed * 0x9E3779B97F4A7C15ull + 0x1234567;
  state.until_preempt = launch->preempt;
  uint64_t blocks = uint64_t{launch->grid[0]} * launch->grid[1] * launch->grid[2];
  uint64_t group = launch->cooperative ? blocks : launch->cluster;
  char* stack = stacks(group * launch->threads);
  if (!stack || !reserve_arena(group)) {
    record_failure("no memory for %lu blocks of %u threads at the same time", group, launch->threads);
    return 1;
  }
  std::vector<uint64_t> order(blocks / group);
  for (uint64_t i = 0; i < order.size(); i++) {
    order[i] = i;
    if (launch->preempt) std::swap(order[i], order[draw() % (i + 1)]);
  }
  for (uint64_t chosen : order) {
    make_group(chosen * group, group, stack);
    Thread* thread = pick();
    resume(thread);
    simt_switch(&state.main_stack_pointer, thread->stack_pointer);
    state.current = nullptr;
    if (state.failed) return 1;
  }
  return 0;
}

}  // namespace simt
