// Warp operations: the lanes of a mask wait for one another, then all get their results at once.
#pragma once
#include "barriers.h"

namespace simt {

inline const char* name_of(simt_operation operation) {
  static const char* const names[] = {
      "__syncwarp",     "__shfl_sync",         "__shfl_up_sync",     "__shfl_down_sync",  "__shfl_xor_sync",
      "__ballot_sync",  "__any_sync",          "__all_sync",         "__match_any_sync",  "__match_all_sync",
      "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync", "__reduce_max_sync",
      "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync"};
  return names[operation];
}

// The lane that a shuffle reads, its own where CUDA says that the value stays.
inline unsigned source_lane(const Thread& thread) {
  int lane = static_cast<int>(thread.lane), width = thread.width, source = lane;
  int first = lane & ~(width - 1), last = lane | (width - 1);
  switch (thread.operation) {
    case SIMT_SHFL: source = first | (thread.argument & (width - 1)); break;
    case SIMT_SHFL_UP: source = lane - thread.argument; break;
    case SIMT_SHFL_DOWN: source = lane + thread.argument; break;
    default: source = lane ^ thread.argument;
  }
  if (thread.operation == SIMT_SHFL_UP) return static_cast<unsigned>(source < first ? lane : source);
  return static_cast<unsigned>(source > last || source < 0 ? lane : source);
}

inline uint64_t reduce(simt_operation operation, uint64_t a, uint64_t b) {
  auto x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
  auto i = static_cast<int32_t>(x), j = static_cast<int32_t>(y);
  switch (operation) {
    case SIMT_REDUCE_ADD: return x + y;
    case SIMT_REDUCE_MIN: return std::min(x, y);
    case SIMT_REDUCE_MAX: return std::max(x, y);
    case SIMT_REDUCE_MIN_SIGNED: return static_cast<uint32_t>(std::min(i, j));
    case SIMT_REDUCE_MAX_SIGNED: return static_cast<uint32_t>(std::max(i, j));
    case SIMT_REDUCE_AND: return x & y;
    case SIMT_REDUCE_OR: return x | y;
    default: return x ^ y;
  }
}

// Only __syncwarp orders memory; shuffles and votes do not.
inline void order_lanes(Thread* lanes, Warp& warp, unsigned mask, Block& block) {
  uint32_t time = tick(), grid_time = 0, clusters_waited = 0, block_time = 0, lane_times[32] = {}, warp_times[32] = {};
  bool all = mask == warp.exists;
  warp.partial |= !all;
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    Thread& thread = lanes[__builtin_ctz(rest)];
    grid_time = std::max(grid_time, thread.grid_time);
    clusters_waited = std::max(clusters_waited, thread.clusters_waited);
    block_time = std::max(block_time, thread.block_time);
    if (block.partial)
      for (int i = 0; i < 32; i++) warp_times[i] = std::max(warp_times[i], thread.warp_times[i]);
    if (warp.partial)
      for (int i = 0; i < 32; i++) lane_times[i] = std::max({lane_times[i], thread.lane_times[i], thread.warp_time});
  }
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    Thread& thread = lanes[__builtin_ctz(rest)];
    join(thread, grid_time, clusters_waited);
    thread.block_time = block_time;
    if (block.partial) std::copy(warp_times, warp_times + 32, thread.warp_times);
    if (all) {
      thread.warp_time = time;
    } else {
      std::copy(lane_times, lane_times + 32, thread.lane_times);
      for (unsigned others = mask; others; others &= others - 1) thread.lane_times[__builtin_ctz(others)] = time;
    }
  }
}

inline void finish(simt_operation operation, unsigned mask, Thread* lanes, Block& block) {
  Text who;
  uint64_t common = 0;
  bool first = true;
  if (operation == SIMT_SYNCWARP) order_lanes(lanes, block.warps[lanes[0].warp], mask, block);
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    Thread& thread = lanes[__builtin_ctz(rest)];
    bool vote = operation == SIMT_BALLOT || operation == SIMT_ANY || operation == SIMT_ALL;
    if (vote)
      common |= thread.value ? uint64_t{1} << thread.lane : 0;
    else if (operation == SIMT_MATCH_ALL)
      common = first ? mask : common & (thread.value == lanes[__builtin_ctz(mask)].value ? ~0ull : 0);
    else if (operation >= SIMT_REDUCE_ADD)
      common = first ? thread.value : reduce(operation, common, thread.value);
    first = false;
  }
  if (operation == SIMT_ANY) common = common != 0;
  if (operation == SIMT_ALL) common = common == mask;
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    Thread& thread = lanes[__builtin_ctz(rest)];
    thread.result = common;
    if (operation >= SIMT_SHFL && operation <= SIMT_SHFL_XOR) {
      unsigned source = source_lane(thread);
      if (!(mask >> source & 1))
        fail("%s reads lane %u with %s at line %d, which is not in mask 0x%x", describe(thread, who), source,
             name_of(operation), thread.wait.line, mask);
      thread.result = lanes[source].value;
    } else if (operation == SIMT_MATCH_ANY) {
      thread.result = 0;
      for (unsigned others = mask; others; others &= others - 1)
        if (lanes[__builtin_ctz(others)].value == thread.value) thread.result |= others & -others;
    }
  }
}

inline uint64_t warp_operation(simt_operation operation, unsigned mask, uint64_t value, int argument, int width,
                               int line) {
  Thread& self = *state.current;
  Block& block = *self.block;
  Warp& warp = block.warps[self.warp];
  Thread* lanes = &block.threads[self.warp * 32];
  Text who;
  const char* name = name_of(operation);
  if (!(mask >> self.lane & 1))
    fail("%s calls %s at line %d with mask 0x%x, which lacks its own lane %u", describe(self, who), name, line, mask,
         self.lane);
  mask &= warp.exists;  // lanes that the block does not have count as exited
  if (unsigned exited = mask & ~warp.alive)
    fail("%s calls %s at line %d with mask 0x%x, but lane %d has exited", describe(self, who), name, line, mask,
         __builtin_ctz(exited));
  if (width < 1 || width > 32 || width & (width - 1))
    fail("%s calls %s at line %d with width %d, not a power of two up to 32", describe(self, who), name, line, width);
  self.operation = operation, self.value = value, self.argument = argument, self.width = width;
  self.wait.line = line;
  auto meeting = std::find_if(warp.meetings.begin(), warp.meetings.end(), [&](const Meeting& other) {
    return other.operation == operation && other.mask == mask;
  });
  if (meeting == warp.meetings.end()) meeting = warp.meetings.insert(meeting, {operation, mask, 0});
  meeting->arrived |= 1u << self.lane;
  if (meeting->arrived == mask) {
    warp.meetings.erase(meeting);
    finish(operation, mask, lanes, block);
    for (unsigned rest = mask & ~(1u << self.lane); rest; rest &= rest - 1) make_ready(&lanes[__builtin_ctz(rest)]);
  } else {
    wait_at(name, line, 0, mask);
  }
  return self.result;
}

}  // namespace simt
