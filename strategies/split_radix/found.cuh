// What the parts of a row found, in scratch memory, and these entries as a stream: tiles of LOADS entries a thread.
#pragma once
#include "best.cuh"

constexpr unsigned SHARE = 512;  // places in scratch memory for each part, or as many times as make k

// Of one row: what its parts found, in the order of their coming.
struct Found {
  Key* keys;
  unsigned* columns;
  unsigned long long* state;  // entries found and, in the upper half, parts that came; zero between launches
  unsigned parts, room;
};

// What a part may hand on.
__device__ __forceinline__ unsigned share_of(unsigned k) { return (k + SHARE - 1) / SHARE * SHARE; }

__device__ __forceinline__ Found found_in_row(Key* keys, unsigned* columns, unsigned long long* state, unsigned row,
                                              unsigned parts, unsigned k) {
  const unsigned places = share_of(k) * parts;
  const unsigned long long first = (unsigned long long)row * places;
  return {keys + first, columns + first, state + row, parts, places};
}

// Add the list of a part to what was found.
__device__ __forceinline__ void hand_on(List& list, const Found& found) {
  const unsigned count = list.counters->count;
  if (threadIdx.x == 0) list.counters->found = unsigned(atomicAdd(found.state, count));
  __syncthreads();
  const unsigned start = list.counters->found;
#pragma unroll 2
  for (unsigned i = threadIdx.x; i < count && start + i < found.room; i += THREADS) {
    found.keys[start + i] = list.keys[i];
    found.columns[start + i] = list.columns[i];
  }
}

// Whether all other parts of the row have handed on, for all threads alike. Then the list is empty, and counters->found is
// the number of entries found. One thread between two barriers says for all of the block that what they wrote is there for
// the device, and that what others wrote is there for them.
__device__ __forceinline__ bool comes_last(List& list, const Found& found) {
  Counters& counters = *list.counters;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const unsigned long long before = atomicAdd(found.state, 1ull << 32);
    __threadfence();
    counters.finishes = before >> 32 == found.parts - 1, counters.found = unsigned(before), counters.count = 0;
    if (counters.finishes) *found.state = 0;  // as the next launch needs it
  }
  __syncthreads();
  return counters.finishes;
}

struct Candidates {
  Found found;
  unsigned count;
  unsigned tile;    // the next one
  unsigned asking;  // entries of the last tile that are not stored yet, a bit each

  __device__ __forceinline__ void start() { tile = 0; }
  __device__ __forceinline__ bool more() const { return tile * LOADS * THREADS < count; }

  // From the L2 cache: other processors wrote them.
  __device__ __forceinline__ Key key(unsigned i) const { return __ldcg(found.keys + i); }
  __device__ __forceinline__ unsigned column(unsigned i) const { return __ldcg(found.columns + i); }

  __device__ __forceinline__ bool offer(List& list, Cut cut) {
    asking = (1u << LOADS) - 1;
    tile++;
    return offer_again(list, cut);
  }

  // Read anew: no register holds an entry while the list is made shorter.
  __device__ __forceinline__ bool offer_again(List& list, Cut cut) {
    Key keys[LOADS];
    unsigned columns[LOADS], from = (tile - 1) * LOADS * THREADS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const unsigned at = min(from + i * THREADS, count - 1);
      keys[i] = key(at), columns[i] = column(at);
    }
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      bool asks = from + i * THREADS < count && asking >> i & 1;
      if (!::offer(list, asks, keys[i], columns[i], cut)) asking &= ~(1u << i);
    }
    return asking;
  }
};

// The list of all that parts found, for which it has room; ends with a barrier.
__device__ __forceinline__ void copy(List& list, const Found& found, unsigned count) {
  const Candidates candidates = {found, count};
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < count; i += THREADS)
    list.keys[i] = candidates.key(i), list.columns[i] = candidates.column(i);
  __syncthreads();
}

// The list with at least the best k of what the parts found, all of which the cut chooses, and how many it then has; 0 where
// there was not room for all in scratch memory, and fewer than k where parts found fewer. Ends with a barrier.
__device__ __forceinline__ unsigned gather(List& list, const Found& found, unsigned k, Cut& cut) {
  const unsigned count = list.counters->found;
  if (count > found.room) return 0;
  if (count > CAPACITY) {
    Candidates candidates = {found, count};
    return best(list, candidates, k, cut);
  }
  copy(list, found, count);
  return count;
}
