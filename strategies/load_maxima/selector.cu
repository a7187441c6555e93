// The best of every window, a cluster for each, in the form that a selector is asked for.
//
// Compile-time: as of maxima.cu; HELD (lines of a thread that it has registers for, of windows that one block holds).
#include "maxima.cuh"
#include "short_rows.cuh"
#include "windows.cuh"

__device__ __forceinline__ bool answers_alone(const Row& row, bool in_order) {
  const unsigned lines = ELEMENT_BYTES == 2 ? row.all_lines() : row.end - row.begin;  // words of 16-bit floats tell columns
  return !in_order && lines <= THREADS * HELD;
}

__device__ __forceinline__ void answer_window(const Row& row, const Ahead& ahead, unsigned k, bool smallest, bool in_order, unsigned char* dynamic,
                                              Counters& counters, Exchange& exchange, const Slots& slots) {
  if (answers_alone(row, in_order)) select_short(row, ahead, k, smallest, room_of(dynamic, counters, exchange), slots);
  else {
    Row its = row;  // of which the compiler is not to know where it came from: it would keep more of that than it has registers for
    asm volatile("" : "+l"(its.lines), "+r"(its.skew), "+r"(its.cols), "+r"(its.begin), "+r"(its.end), "+r"(k));
    select_best(its, k, smallest, memory_of(dynamic, &counters, &exchange), slots);
  }
}

#include "selector.cuh"
