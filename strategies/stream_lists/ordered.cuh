// The list in order: bits become keys as they are read.
#pragma once
#include "few.cuh"
#include "taken.cuh"

constexpr int FEW_ITEMS = SPREAD ? 2 : 4;  // entries of a thread that few intervals suffice for, and registers

__device__ __forceinline__ Held hold_listed(const List& list, unsigned count, Order order) {
  Held held;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    held.keys[i] = at < count ? settled_key(Element(list.keys[at]), order) : Key(0), held.columns[i] = at < count ? list.columns[at] : 0;
  }
  return held;
}

// Call `put(rank, key, column)` for the best `want` of the list's `count` entries. Returns whether it did: not where they crowd.
template <class Put>
__device__ __forceinline__ bool put_in_order(const Row& row, const List& list, unsigned count, unsigned want, Put put) {
  Held held = hold_listed(list, count, row.order);
  const Even even = even_intervals(list, held, count, row.cols, row.order);
  if (count_intervals(list, held, count, want, even)) return false;
  rank_intervals(list, held, count, want, even, put);
  return true;
}

// The same where threads have an entry or two: by intervals that every warp adds up for itself. Begins behind a barrier.
template <class Put>
__device__ __forceinline__ bool put_few_in_order(const Row& row, const List& list, Exchange& exchange, unsigned count, Key cut, unsigned want, Put put) {
  Entry entries[ITEMS];  // 0 where there is none
  Key top = 0;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    entries[i] = 0;
    if (at >= count) continue;
    const Key key = settled_key(Element(list.keys[at]), row.order);
    entries[i] = entry_of(key, list.columns[at]);
    if (key < (SIGN | infinity_of(row.order))) top = max(top, key);  // keys beyond are far from all others
  }
  top = largest_of_lanes(top);
  if (lane_of() == 0) exchange.tops[warp_of()] = top;
  __syncthreads();
  const Narrow narrow = narrow_between(largest_of_lanes(exchange.tops[lane_of() % WARPS]), cut, row);
  unsigned interval[ITEMS], place[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    interval[i] = 0;
    if (!entries[i]) continue;
    const Pair its = pair_of(entries[i]);
    interval[i] = narrow.interval(its.key, its.column), place[i] = atomicAdd(&list.intervals[interval[i]], 1u);
  }
  __syncthreads();
  const Starts starts = starts_of<CROWD>(list.intervals);
  if (starts.crowd) return false;
  Entry* places = reinterpret_cast<Entry*>(list.keys);
  unsigned begin[ITEMS], end[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    starts.find(interval[i], begin[i], end[i]);
    if (!entries[i] || begin[i] >= want) end[i] = 0;
    else places[begin[i] + place[i]] = entries[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (!end[i]) continue;
    const unsigned rank = rank_of_few(places, begin[i], end[i], entries[i]);
    if (rank < want) put(rank, pair_of(entries[i]).key, pair_of(entries[i]).column);
  }
  return true;
}
