// A cut that at least k elements of a held row reach, and few more: at least k groups have a maximum that reaches it. Where
// too many elements do, all of them are counted instead, and of equal ones the columns.
#pragma once
#include "held.cuh"

constexpr unsigned GROUPS_A_K = 4;   // groups for each of the k, at least, where the row has so many elements
constexpr unsigned MOST_GROUP = 64;  // elements

struct Crossing {
  unsigned interval;  // in which the entry of a rank is
  unsigned before;    // entries in better ones
  unsigned count;
};

// The interval of rank `want` (from 1) among counted intervals, for all threads alike; has two barriers.
__device__ __forceinline__ Crossing find_crossing(const List& list, unsigned want) {
  const unsigned* own = list.intervals + threadIdx.x * OWN;
  const bool has = threadIdx.x * OWN < INTERVALS;
  unsigned counts[OWN], sum = 0, all;
#pragma unroll
  for (int i = 0; i < OWN; i++) counts[i] = has ? own[i] : 0u, sum += counts[i];
  unsigned before = scan_lanes(sum, all) - sum;
  if (lane_of() == 0) list.counters->totals[0][warp_of()] = all;
  __syncthreads();
  const unsigned total = lane_of() < WARPS ? list.counters->totals[0][lane_of()] : 0;
  before += __shfl_sync(~0u, scan_lanes(total, all) - total, warp_of());
#pragma unroll
  for (int i = 0; i < OWN; i++) {
    if (before < want && before + counts[i] >= want) {
      list.counters->crossing[0] = threadIdx.x * OWN + i, list.counters->crossing[1] = before;
      list.counters->crossing[2] = counts[i];
    }
    before += counts[i];
  }
  __syncthreads();
  return {list.counters->crossing[0], list.counters->crossing[1], list.counters->crossing[2]};
}

// Between two barriers of its own.
__device__ __forceinline__ void clear_intervals(const List& list) {
  __syncthreads();
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < INTERVALS; i += THREADS) list.intervals[i] = 0;
  __syncthreads();
}

__device__ __forceinline__ int shift_of(Key distance) {
  const int bits = bits_of(distance);
  return bits > INTERVAL_BITS ? bits - INTERVAL_BITS : 0;
}

// Call `take(maximum)` for every group of `group` elements, a power of two: of neighbours, or of several loads of a thread.
// Places outside of the row count as its worst elements do.
template <class Take> __device__ __forceinline__ void each_maximum(const HeldRow& row, unsigned group, Take take) {
  if (group < VECTOR) {
    row.each_load([&](unsigned, uint4 bits) {
      Key maximum = 0;
#pragma unroll
      for (int e = 0; e < VECTOR; e++) {
        maximum = max(maximum, key_of(element(bits, e), row.order));
        if ((e + 1) % group == 0) take(maximum), maximum = 0;
      }
    });
    return;
  }
  const unsigned loads = group / VECTOR;
  unsigned seen = 0;
  Key maximum = 0;
  row.each_load([&](unsigned, uint4 bits) {
#pragma unroll
    for (int e = 0; e < VECTOR; e++) maximum = max(maximum, key_of(element(bits, e), row.order));
    if (++seen % loads == 0) take(maximum), maximum = 0;
  });
  if (seen % loads) take(maximum);
}

// The place of a cut that chooses `want` of the elements that are equal to `tie`, of the lowest columns.
__device__ __forceinline__ unsigned narrow_columns(const List& list, const HeldRow& row, Key tie, unsigned want) {
  for (unsigned low = 0, high = row.cols - 1;;) {
    const int shift = shift_of(high - low);
    clear_intervals(list);
    row.each([&](Key key, unsigned column) {
      if (column >= low && column <= high && key == tie) atomicAdd(&list.intervals[(column - low) >> shift], 1u);
    });
    __syncthreads();
    const Crossing crossing = find_crossing(list, want);
    want -= crossing.before, low += crossing.interval << shift;
    high = min(high, low + (1u << shift) - 1);
    if (shift == 0) return ~high;
  }
}

// All elements from `least` to `most` are counted, until few enough are left.
__device__ __forceinline__ Cut narrow_held(const List& list, const HeldRow& row, Key least, Key most, unsigned k) {
  for (unsigned above = 0;;) {
    const int shift = shift_of(most - least);
    clear_intervals(list);
    row.each([&](Key key, unsigned) {
      if (key >= least && key <= most) atomicAdd(&list.intervals[unsigned((most - key) >> shift)], 1u);
    });
    __syncthreads();
    const Crossing crossing = find_crossing(list, k - above);
    above += crossing.before;
    most -= Key(crossing.interval) << shift;
    const Key width = (Key(1) << shift) - 1;
    least = most - least > width ? most - width : least;
    if (above + crossing.count <= CAPACITY) return {least, 0};
    if (shift == 0) return {most, narrow_columns(list, row, most, k - above)};
  }
}

// By the maxima of groups; `least` and `most` are the smallest and the largest of them.
__device__ __forceinline__ Cut cut_of_groups(const List& list, const HeldRow& row, unsigned group, Key least, Key most,
                                             unsigned k) {
  const int shift = shift_of(most - least);
  each_maximum(row, group, [&](Key maximum) { atomicAdd(&list.intervals[unsigned((most - maximum) >> shift)], 1u); });
  __syncthreads();
  const Key width = Key(find_crossing(list, k).interval) << shift | ((Key(1) << shift) - 1);
  return {most - least > width ? most - width : least, 0};
}
