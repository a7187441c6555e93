// The best of a stream of entries, whatever they are, in one pass: a list of what passes a cut, and a tighter cut whenever
// the list is full.
//
// A stream has: start() before its first tile; more() tiles; offer(list, cut) the next tile -> whether entries of it that
// the cut chooses are not stored yet; offer_again(list, cut) those; IN_ORDER: the later the tile, the larger its columns.
#pragma once
#include "selection.cuh"

// Leaves the best `want` entries of the stream, or all if there are fewer, and at most CAPACITY in the list, which is empty,
// and returns how many; `want` is below CAPACITY. The cut chooses at least the best `want`. Ends with a barrier.
template <class Stream>
__device__ __forceinline__ unsigned best(List& list, Stream& stream, unsigned want, Cut cut) {
  stream.start();
  bool open = true;  // whether anything can still pass
  while (open && stream.more()) {
    bool left = stream.offer(list, cut);
    while (__syncthreads_or(left)) {
      cut = tighten(list, CAPACITY, want);
      open = !Stream::IN_ORDER || cut.place == 0 || cut.key != ONES;
      left = stream.offer_again(list, cut);
    }
  }
  __syncthreads();
  return list.counters->count;
}
