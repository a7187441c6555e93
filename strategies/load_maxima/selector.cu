// The best of every window, a cluster for each, in the form that a selector is asked for.
//
// Compile-time: as of maxima.cu; HELD (lines of a thread that it has registers for, of windows that one block holds).
#include "maxima.cuh"
#include "buckets.cuh"
#include "windows.cuh"

typedef Nothing Ahead;

__device__ __forceinline__ bool answers_alone(const Row& row, bool in_order) {
  const unsigned lines = ELEMENT_BYTES == 2 ? row.all_lines() : row.end - row.begin;  // words of 16-bit floats tell columns
  return !in_order && lines <= THREADS * HELD;
}

__device__ __forceinline__ void answer_window(const Row& row, Ahead, unsigned k, bool smallest, bool in_order, unsigned char* dynamic,
                                              Counters& counters, Exchange& exchange, const Slots& slots) {
  if (answers_alone(row, in_order)) select_held<false>(row, k, smallest, room_of(dynamic, counters, exchange), slots);
  else select_best(row, k, smallest, memory_of(dynamic, &counters, &exchange), slots);
}

#include "selector.cuh"
