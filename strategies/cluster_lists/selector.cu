// The best of every window, a cluster for each, or a block where that holds it, in the form that a selector is asked for.
//
// Compile-time: as of lists.cu; HELD (lines of a thread, of windows that a block selects from sooner than a cluster).
#include "gather.cuh"
#include "windows.cuh"

typedef Holding<Together> Ahead;
constexpr unsigned AHEAD = BLOCKS * THREADS * LINES * 16;

__device__ __forceinline__ bool answers_alone(const Row& row, bool) { return BLOCKS > 1 && row.end - row.begin <= THREADS * HELD; }

__device__ __forceinline__ Ahead ask_ahead(Row row, bool in_order, bool whole) {
  Ahead ahead;
  if (!whole && answers_alone(row, in_order)) row.end = row.begin;  // a block alone deals its lines out in another way
  ask_for_lines(row, ahead);
  return ahead;
}

__device__ __forceinline__ void answer_window(const Row& row, Ahead& ahead, unsigned k, bool smallest, bool in_order,
                                              unsigned char* dynamic, Counters& counters, Exchange& exchange, const Slots& slots) {
  const Room room = room_of(dynamic, counters, exchange);
  if (answers_alone(row, in_order)) {
    Holding<Alone> holding;
    ask_for_lines(row, holding);
    select_gathered(row, holding, k, smallest, room, slots);
  } else {
    ahead.end = row.end;
    select_gathered(row, ahead, k, smallest, room, slots);
  }
}

#include "selector.cuh"
