// The best of every window, a block for each, in the form that a selector is asked for: a window that the block holds is
// selected from by buckets where no order is asked for, any other is a stream.
//
// Compile-time: as of split.cu; HELD (lines of a thread that it has registers for), BLOCKS = 1, LINES = HELD.
#include "short_rows.cuh"
#include "stream.cuh"
#include "windows.cuh"

__device__ __forceinline__ bool answers_alone(const Row&, bool) { return true; }

__device__ __forceinline__ void answer_window(const Row& row, const Ahead& ahead, unsigned k, bool smallest, bool in_order, bool,
                                              unsigned char* dynamic, Counters& counters, Exchange& exchange, const Slots& slots) {
  if (is_held(row) && !in_order) {
    select_short(row, ahead, k, smallest, room_of(dynamic, counters, exchange), slots);
    return;
  }
  __shared__ __align__(16) Span span;
  List list = list_of(dynamic, &counters);
  const WholeRow data = {row.data(), row.cols, row.order};
  select_best<true>(list, span, data, 0, 0, 1, k, [](unsigned, unsigned) { return Found(); },
                    [&](unsigned rank, Key key, unsigned column) { slots.put(rank, key, column); });
}

#include "selector.cuh"
