// The order of a block's share of the answer: all entries are counted by intervals; those of the intervals that have the share's
// ranks go to their places, and rank among the few of their interval.
#pragma once
#include "order.cuh"

constexpr unsigned MOST_OF_INTERVAL = 128;  // entries above which ranking within it takes too long

struct Share {
  unsigned first, end;  // ranks
};

template <class Blocks> __device__ __forceinline__ Share share_of(unsigned k) {
  const unsigned each = (k + Blocks::COUNT - 1) / Blocks::COUNT, first = min(Blocks::own() * each, k);
  return {first, min(first + each, k)};
}

// An interval and a place, 16 bits each.
__device__ __forceinline__ unsigned packed(unsigned interval, unsigned place) { return interval << 16 | place; }
static_assert(INTERVALS <= 1 << 16 && CAPACITY < 1 << 16, "intervals and places share a word");

// Of the intervals that have the ranks of a share.
struct Places {
  unsigned first, last;  // intervals
  unsigned begin, end;   // places of their entries
  unsigned total;        // entries in all
  bool crowd;            // whether one of them holds a crowd
};

// Counts to the numbers of entries in better intervals. Has two barriers, and ends with one.
__device__ __forceinline__ Places add_up(const List& list, Share share) {
  Counts* own = reinterpret_cast<Counts*>(list.intervals) + threadIdx.x;
  const bool has = threadIdx.x * OWN < INTERVALS;
  Counts counts = {};
  if (has) counts = *own;
  unsigned sum = 0, all;
#pragma unroll
  for (int i = 0; i < OWN; i++) sum += counts.each[i];
  unsigned before = scan_lanes(sum, all) - sum;
  if (lane_of() == 0) list.counters->totals[0][warp_of()] = all;
  __syncthreads();
  const unsigned total = lane_of() < WARPS ? list.counters->totals[0][lane_of()] : 0;
  before += __reduce_add_sync(~0u, lane_of() < warp_of() ? total : 0);
  all = __reduce_add_sync(~0u, total);
  bool crowd = false;
#pragma unroll
  for (int i = 0; i < OWN; i++) {
    const unsigned count = counts.each[i], behind = before + count;
    crowd |= count > MOST_OF_INTERVAL && before < share.end && behind > share.first;
    if (before <= share.first && share.first < behind) list.counters->crossing[0] = packed(threadIdx.x * OWN + i, before);
    if (before < share.end && share.end <= behind) list.counters->crossing[1] = packed(threadIdx.x * OWN + i, behind);
    counts.each[i] = before;
    before = behind;
  }
  if (has) *own = counts;
  crowd = __syncthreads_or(crowd);
  const unsigned first = list.counters->crossing[0], last = list.counters->crossing[1];
  return {first >> 16, last >> 16, first & 0xFFFF, last & 0xFFFF, all, crowd};
}

// Call `put(rank, key, column)` for the ranks of the share, each by some thread: of entries that are in their places, with
// numbers where intervals end.
template <class Put>
__device__ __forceinline__ void rank_places(const List& list, Share share, Places places, Even even, Put put) {
#pragma unroll 1
  for (unsigned at = places.begin + threadIdx.x; at < places.end; at += THREADS) {
    const Key key = list.keys[at];
    const unsigned column = list.columns[at], interval = even.interval(key, column), end = list.intervals[interval];
    unsigned rank = interval ? max(list.intervals[interval - 1], places.begin) : 0;
#pragma unroll 1
    for (unsigned first = rank; first < end; first += 4) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (first + i < end) rank += better(list.keys[first + i], list.columns[first + i], key, column);
    }
    if (rank >= share.first && rank < share.end) put(rank, key, column);
  }
}
