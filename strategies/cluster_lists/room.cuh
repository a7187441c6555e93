// What a block of a cluster shares: its list, lines that reach its cut, and what blocks tell each other.
#pragma once
#include "holding.cuh"

template <class Blocks> constexpr unsigned SEGMENT = CAPACITY / Blocks::COUNT;  // of entries, for each block
// Lines that a thread takes elements from.
template <class Blocks> constexpr int AT_ONCE = LISTED < 2 * THREADS || SEGMENT<Blocks> < 2 * THREADS ? 1 : 2;

// How many elements reach a cut, and how many are beyond it.
struct Found {
  unsigned reaching, beyond;
};

// What blocks tell all others, by their numbers.
struct Told {
  unsigned counts[BLOCKS];
  Key cuts[BLOCKS], tops[BLOCKS];
  unsigned ranks[WARPS];   // of the block's own warps
  Signal told, sent;       // counts, cuts and tops; entries
  Found found[2][BLOCKS];  // by another cut; rounds take turns
  Found own[WARPS];        // of the block's own warps
};

struct Room {
  List list;          // of entries in their places
  Key* keys;          // [CAPACITY] of the entries of all blocks, in a segment for each; 0 where there is none
  unsigned* columns;  // [CAPACITY]
  uint4* bits;        // [LISTED] lines that reach the block's cut
  unsigned* lines;    // [LISTED] which
  Told& told;
  Exchange& exchange;
};

__device__ __forceinline__ Room room_of(unsigned char* dynamic, Counters& counters, Exchange& exchange) {
  const List list = list_of(dynamic, &counters);
  uint4* bits = reinterpret_cast<uint4*>(list.intervals + INTERVALS);
  Key* keys = reinterpret_cast<Key*>(bits + LISTED);
  unsigned* columns = reinterpret_cast<unsigned*>(keys + CAPACITY);
  unsigned* lines = columns + CAPACITY;
  return {list, keys, columns, bits, lines, *reinterpret_cast<Told*>(lines + LISTED), *kept(&exchange)};
}

// Reserve `own` of what is counted at `count`. Returns the first.
__device__ __forceinline__ unsigned reserve_from(unsigned* count, unsigned own) {
  unsigned all, start = 0, upto = scan_lanes(own, all);
  if (lane_of() == 0 && all) start = atomicAdd(count, all);
  return __shfl_sync(~0u, start, 0) + upto - own;
}
