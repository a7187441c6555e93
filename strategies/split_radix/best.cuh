// The best of a stream of entries, whatever they are, in one pass: a list of what passes a cut, and a tighter cut whenever
// the list is full.
//
// A stream has: start() before its first tile; more() tiles; offer(list, cut) the next tile -> whether entries of it that
// the cut chooses are not stored yet; offer_again(list, cut) those.
#pragma once
#include "shorter.cuh"

// Leaves the best `want` entries of the stream, or all if there are fewer, and at most CAPACITY in the list, which is empty,
// and returns how many; `want` is at most half of CAPACITY. The cut, in shared
// memory, chooses at least the best `want`, and in the end all that is listed. Ends with a barrier.
template <class Stream>
__device__ __forceinline__ unsigned best(List& list, Stream& stream, unsigned want, Cut& cut) {
  stream.start();
  while (stream.more()) {
    bool left = stream.offer(list, cut);
    while (__syncthreads_or(left)) {
      shorten(list, CAPACITY, want, CAPACITY / 2, cut, 0);
      left = stream.offer_again(list, cut);
    }
  }
  __syncthreads();
  return list.counters->count;
}
