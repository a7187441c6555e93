// The best of every window, a block for each, in the form that a selector is asked for.
//
// Compile-time: as of buckets.cu, but SORTED.
#include "held.cuh"
#include "windows.cuh"

typedef Nothing Ahead;

__device__ __forceinline__ bool answers_alone(const Row&, bool) { return true; }

__device__ __forceinline__ void answer_window(const Row& row, Ahead, unsigned k, bool smallest, bool in_order, bool,
                                              unsigned char* dynamic, Counters& counters, Exchange& exchange, const Slots& slots) {
  const Room room = room_of(dynamic, counters, exchange);
  if (in_order) select_held<true, HELD>(row, First<0>(), k, smallest, room, slots);
  else select_held<false, HELD>(row, First<0>(), k, smallest, room, slots);
}

#include "selector.cuh"
