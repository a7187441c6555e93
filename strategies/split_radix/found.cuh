// What the parts of a row found, in scratch memory, and these entries as a stream: tiles of LOADS entries a thread.
#pragma once
#include "selection.cuh"

constexpr unsigned SHARE = 512;  // places in scratch memory for each part, times as many as k takes

// Of one row: what its parts found, in the order of their coming.
struct Found {
  Key* keys;
  unsigned* columns;
  unsigned* state;  // entries found, parts that came; zero between launches
  unsigned parts, room;
};

// Entries that a part has room for in scratch memory.
__device__ __forceinline__ unsigned most_handed_on(unsigned k) { return SHARE * ((k + SHARE - 1) / SHARE); }

__device__ __forceinline__ Found found_in_row(Key* keys, unsigned* columns, unsigned* state, unsigned row, unsigned parts,
                                              unsigned k) {
  const unsigned places = most_handed_on(k) * parts;
  const unsigned long long first = (unsigned long long)row * places;
  return {keys + first, columns + first, state + 2 * row, parts, places};
}

// Add the list of a part to what was found.
__device__ __forceinline__ void hand_on(List& list, const Found& found) {
  const unsigned count = list.counters->count;
  if (threadIdx.x == 0) list.counters->found = atomicAdd(found.state, count);
  __syncthreads();
  const unsigned start = list.counters->found;
#pragma unroll 2
  for (unsigned i = threadIdx.x; i < count && start + i < found.room; i += THREADS) {
    found.keys[start + i] = list.keys[i];
    found.columns[start + i] = list.columns[i];
  }
}

// Whether all other parts of the row have handed on, for all threads alike. Then the list is empty, and counters->found is
// the number of entries found.
__device__ __forceinline__ bool comes_last(List& list, const Found& found) {
  Counters& counters = *list.counters;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    counters.finishes = atomicAdd(found.state + 1, 1u) == found.parts - 1;
    if (counters.finishes) {  // and leaves the state as the next launch needs it
      counters.found = atomicExch(found.state, 0u);
      found.state[1] = 0;
    }
    counters.count = 0;
  }
  __syncthreads();
  __threadfence();
  return counters.finishes;
}

// What the parts found, as a stream. From the L2 cache: other processors wrote it.
struct Candidates {
  Found found;
  unsigned count;
  unsigned next;  // this thread's next entry
  unsigned done;  // entries of this thread's that it needs not look at from there on, being stored
};

// Store what the cut lets pass of what is left, until this thread finds no room. Returns whether it did not.
__device__ __forceinline__ bool filter(List& list, Candidates& candidates, Cut cut) {
  const Found& found = candidates.found;
#pragma unroll 1
  for (; candidates.next < candidates.count; candidates.next += LOADS * THREADS) {
    Key keys[LOADS];
    unsigned columns[LOADS], stored = ~0u;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const unsigned at = min(candidates.next + i * THREADS, candidates.count - 1);
      keys[i] = __ldcg(found.keys + at), columns[i] = __ldcg(found.columns + at);
    }
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const bool asks = candidates.next + i * THREADS < candidates.count && i >= candidates.done && stored == ~0u;
      if (asks && !store(list, keys[i], columns[i], cut)) stored = i;
    }
    candidates.done = stored == ~0u ? 0 : stored;
    if (stored != ~0u) return true;
  }
  return false;
}
