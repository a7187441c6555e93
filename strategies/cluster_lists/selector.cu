// The best of every window, a cluster for each, or a block where that holds it, in the form that a selector is asked for.
//
// Compile-time: as of lists.cu; HELD (lines of a thread, of windows that a block selects from sooner than a cluster).
#include "gather.cuh"
#include "windows.cuh"

__device__ __forceinline__ void answer_window(const Row& row, unsigned k, bool smallest, bool, unsigned char* dynamic,
                                              Counters& counters, Exchange& exchange, const Slots& slots) {
  const Room room = room_of(dynamic, counters, exchange);
  if (BLOCKS == 1 || row.end - row.begin > THREADS * HELD) select_gathered<Together>(row, k, smallest, room, slots);
  else if (block_of() == 0) select_gathered<Alone>(row, k, smallest, room, slots);
}

#include "selector.cuh"
