// The best of a block's elements where more reach its cut than there is room for: they are counted by intervals of keys, and
// those that have the least key by intervals of columns, until the intervals that fit tell another cut.
#pragma once
#include "holding.cuh"
#include "share.cuh"

constexpr unsigned OF_KEYS = INTERVALS / 2;  // intervals; as many are of columns
constexpr int OF_KEYS_BITS = log_of(OF_KEYS);

// Of the best keys of the block's lines.
struct Extent {
  Key least, most;
};

// Has a barrier.
template <class Blocks> __device__ __forceinline__ Extent extent_of(const Row& row, Exchange& exchange) {
  Extent extent = {~Key(0), 0};
  visit_again<Blocks>(row, [&](const uint4* bits, const unsigned*, const unsigned* inside) {
#pragma unroll
    for (int i = 0; i < AGAIN; i++) {
      Key best = 0;
#pragma unroll
      for (int e = 0; e < VECTOR; e++)
        if (inside[i] >> e & 1) best = max(best, equal_key(element(bits[i], e), row.order));
      if (inside[i]) extent.least = min(extent.least, best), extent.most = max(extent.most, best);
    }
  });
  extent = {least_of_lanes(extent.least), largest_of_lanes(extent.most)};
  if (lane_of() == 0) exchange.guesses[warp_of()] = extent.least, exchange.tops[warp_of()] = extent.most;
  __syncthreads();
  const int warp = lane_of() % WARPS;
  return {least_of_lanes(exchange.guesses[warp]), largest_of_lanes(exchange.tops[warp])};
}

// A cut that at least `enough` of the block's elements reach, or all of them, and no more than `room`; `top` is their largest
// key, and few are looked at that do not reach `low`. Intervals are clear. Ends with a barrier.
template <class Blocks>
__device__ __forceinline__ Cut cut_to_fit(const Row& row, const List& list, Key low, Key top, unsigned enough,
                                          unsigned room) {
  unsigned above = 0;                       // elements that are better than those that are counted; they fit
  unsigned first = 0, last = row.cols - 1;  // columns that are counted, of elements whose key is `low`
#pragma unroll 1
  for (;;) {
    const int shift = max(bits_of(Key(top - low)) - OF_KEYS_BITS, 0);
    const int column_shift = max(bits_of(last - first) - OF_KEYS_BITS, 0);
    visit_elements_again<Blocks>(row, [&](Key key, unsigned column) {
      const bool ties = key == low;
      if (key < low || key > top || (ties && column - first > last - first)) return;
      atomicAdd(&list.intervals[ties ? OF_KEYS + ((column - first) >> column_shift) : unsigned((top - key) >> shift)], 1u);
    });
    __syncthreads();
    const unsigned left = room - above;
    const Places places = add_up(list, {left, left});
    clear_intervals(list);
    __syncthreads();
    if (places.total <= left) {  // only where nothing is known yet
      if (low == 0 || places.total == left) return {low, 0};
      low = 0;
      continue;
    }
    const unsigned interval = places.first;  // the first that does not fit
    above += places.begin;
    if (interval < OF_KEYS) {
      top -= Key(interval) << shift;
      if (above >= enough) return {top + 1, 0};
      low = top - min((Key(1) << shift) - 1, Key(top - low - 1));
    } else {
      const unsigned column = first + ((interval - OF_KEYS) << column_shift);
      if (above >= enough) return column ? Cut{low, ~(column - 1)} : Cut{low + 1, 0};
      top = low;
      first = column, last = min(last, column + (1u << column_shift) - 1);
    }
  }
}
