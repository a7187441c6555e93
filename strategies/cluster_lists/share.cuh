// The order of a block's share of the answer: all entries are counted by intervals; those of the intervals that have the share's
// ranks go to their places, and rank among the few of their interval.
#pragma once
#include "fitting.cuh"

template <class Blocks> __device__ __forceinline__ Share share_of(unsigned k) {
  const unsigned each = (k + Blocks::COUNT - 1) / Blocks::COUNT, first = min(Blocks::own() * each, k);
  return {first, min(first + each, k)};
}

// Call `put(rank, key, column)` for the ranks of the share, each by some thread: of entries that are in their places, with
// numbers where intervals end.
template <class Intervals, class Put>
__device__ __forceinline__ void rank_places(const List& list, Share share, Places places, Intervals by, Put put) {
#pragma unroll 1
  for (unsigned at = places.begin + threadIdx.x; at < places.end; at += THREADS) {
    const Key key = list.keys[at];
    const unsigned column = list.columns[at], interval = by.interval(key, column), end = list.intervals[interval];
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
