// The list in order where a key crowds it: NaN and infinities, the ties of the cut, and what is between have evenly wide
// intervals of their own, from the best of them to the last, of columns where there are few keys.
#pragma once
#include "order.cuh"
#include "row.cuh"
#include "shorter.cuh"

constexpr unsigned SEEN_CROWD = 8;  // of the entries of a warp: as many as no interval of most lists has in all

// Ends of what is listed of a class, its intervals' number to a power of two, and where these begin.
struct Class {
  Key most, least;
  unsigned first, last;  // columns
  int shift, own, column_shift;
  unsigned begin;

  __device__ __forceinline__ unsigned interval(Key key, unsigned column) const {
    return begin + (unsigned((most - key) >> shift) << own) + ((column - first) >> column_shift);
  }
};

// Intervals of three classes, half of them for the second.
struct Classes {
  const Class* each;
  Key top, tie;

  __device__ __forceinline__ int number(Key key) const { return key == tie ? 2 : key < top; }
  __device__ __forceinline__ unsigned interval(Key key, unsigned column) const {
    return each[number(key)].interval(key, column);
  }
};

// Over the list's `count` entries; where counters of digits were: these are of no more use. Has barriers.
__device__ __forceinline__ Classes classes_of(const List& list, unsigned count, Key tie, Order order) {
  Class* each = reinterpret_cast<Class*>(list.counters->bins);
  const Classes classes = {each, least_special(order), tie};
  __syncthreads();
  if (threadIdx.x < 3) each[threadIdx.x] = {0, ONES, ~0u, 0, 0, 0, 0, 0};
  __syncthreads();
#pragma unroll 1
  for (int number = 0; number < 3; number++) {
    Key most = 0, least = 0;  // the least as its complement, as are columns, so that all are largest
    unsigned first = 0, last = 0;
#pragma unroll 2
    for (unsigned at = threadIdx.x; at < count; at += THREADS) {
      const Key key = list.keys[at];
      const unsigned column = list.columns[at];
      if (classes.number(key) != number) continue;
      most = max(most, key), least = max(least, Key(~key));
      last = max(last, column), first = max(first, ~column);
    }
    most = largest_of_lanes(most), least = largest_of_lanes(least);
    last = largest_of_lanes(last), first = largest_of_lanes(first);
    if (lane_of() || !first) continue;
    atomicMax(&each[number].most, most), atomicMin(&each[number].least, Key(~least));
    atomicMax(&each[number].last, last), atomicMin(&each[number].first, ~first);
  }
  __syncthreads();
  if (threadIdx.x < 3) {
    Class& its = each[threadIdx.x];
    const int room = INTERVAL_BITS - (threadIdx.x == 1 ? 1 : 2);
    const int key_bits = its.most > its.least ? bits_of(Key(its.most - its.least)) : 0;
    const int column_bits = its.last > its.first ? bits_of(its.last - its.first) : 0;
    its.shift = max(key_bits - room, 0), its.own = max(room - key_bits, 0);
    its.column_shift = max(column_bits - its.own, 0);
    its.begin = threadIdx.x == 0 ? 0 : threadIdx.x == 1 ? INTERVALS / 4 : INTERVALS / 4 * 3;
  }
  __syncthreads();
  return classes;
}

// Call `put(rank, key, column)` for the best `want` of the list's `count` entries, all of which the cut chooses, each by
// some thread, where even intervals crowd or may. Changes the order of the list and its counters.
template <class Put>
__device__ __forceinline__ void rank_crowds(List& list, Cut& cut, unsigned count, unsigned want, Order order, bool crowds,
                                            Put put) {
  const Key key = threadIdx.x < count ? list.keys[threadIdx.x] : Key(0);
  const bool special = threadIdx.x < count && (key == cut.key || key >= least_special(order));
  const bool told = __syncthreads_or(__popc(__ballot_sync(~0u, special)) >= SEEN_CROWD);
  if (crowds && !told) {  // what is not wanted may lie so far away that the rest crowds
    shorten(list, count, want, count, cut, 0);
    count = list.counters->count;
  }
  clear_intervals(list);
  const Classes classes = classes_of(list, count, cut.key, order);
  Held held = hold(list, count);
  if (!count_intervals(list, held, count, want, classes)) {
    rank_intervals(list, held, count, want, classes, put);
    return;
  }
  clear_intervals(list);
  const Split split = split_intervals(list, count);
  held = hold(list, count);
  count_intervals(list, held, count, want, split);
  rank_intervals(list, held, count, want, split, put);
}
