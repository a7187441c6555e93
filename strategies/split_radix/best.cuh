// The best of a stream of entries, in one pass: a bound from a sample, a list of what passes it, a tighter bound
// whenever the list is full.
//
// A stream has: size() entries; sample(list) -> how many keys of distinct entries it wrote to the list's first places
// (losing keys may stand in for none); start() before its first tile; more() tiles; offer(list, cut) the next tile ->
// whether entries of it that the cut chooses are not stored yet; offer_again(list, cut) those. The later the tile, the
// larger its columns.
#pragma once
#include "selection.cuh"

// How far down a sample to look so that `want` of `size` entries almost surely pass: five deviations below the mean.
__device__ __forceinline__ unsigned likely_rank(unsigned want, unsigned sampled, unsigned size) {
  float mean = float(want) * float(sampled) / float(size);
  return unsigned(mean + 5 * sqrtf(mean)) + 4;
}

// A key that at least `want` entries reach, surely or, where not `surely`, most likely; 0 where none is known.
template <class Stream>
__device__ __forceinline__ Key sampled_bound(List& list, Stream& stream, unsigned want, bool surely) {
  unsigned sampled = stream.sample(list);
  __syncthreads();
  unsigned rank = surely ? want : min(want, likely_rank(want, sampled, stream.size()));
  if (rank >= sampled) return 0;
  Key bound;
  narrow_keys(list, sampled, rank, rank / 4 + 2, bound);
  return bound;
}

// Leaves at least `want` and at most CAPACITY entries in the list, the best among them, and returns how many; `want` is
// at most the stream's size and below CAPACITY. Ends with a barrier.
template <class Stream>
__device__ __forceinline__ unsigned best(List& list, Stream& stream, unsigned want) {
  for (bool surely = false;; surely = true) {
    stream.start();
    Cut cut = {0, 0};
    if (stream.size() > CAPACITY) cut.key = sampled_bound(list, stream, want, surely);
    bool open = true;  // whether anything can still pass
    while (open && stream.more()) {
      bool left = stream.offer(list, cut);
      while (__syncthreads_or(left)) {
        cut = tighten(list, CAPACITY, want);
        open = cut.place == 0 || cut.key != ONES;
        left = stream.offer_again(list, cut);
      }
    }
    __syncthreads();
    unsigned count = list.counters->count;
    if (count >= want) return count;
    __syncthreads();
    if (threadIdx.x == 0) list.counters->count = 0;  // the bound was too high: once more with one that is not
    __syncthreads();
  }
}
