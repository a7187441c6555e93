// The list in order, by intervals of evenly wide keys: as many as make most hold one entry or none. An entry's rank is the
// number of entries in better intervals, and of better ones in its own.
//
// Compile-time: ITEMS (entries of a thread; lists of more than ITEMS * THREADS are not ordered).
#pragma once
#include "selection.cuh"

constexpr unsigned CROWD = 64;  // entries of an interval above which ranking within it takes too long

constexpr int INTERVAL_BITS = 31 - __builtin_clz(INTERVALS);
constexpr int OWN = INTERVALS > THREADS ? INTERVALS / THREADS : 1;  // intervals of a thread that adds their counts up

// How far entries are from the best: by key, or where all keys are the same by column.
struct Distance {
  Key most;
  unsigned lowest;  // column
  bool by_column;
  int shift;  // of a distance, to the number of its interval

  __device__ __forceinline__ unsigned interval(Key key, unsigned column) const {
    return unsigned((by_column ? Key(column - lowest) : Key(most - key)) >> shift);
  }
};

__device__ __forceinline__ unsigned largest_of_lanes(unsigned word) { return __reduce_max_sync(~0u, word); }
__device__ __forceinline__ unsigned long long largest_of_lanes(unsigned long long word) {
#pragma unroll
  for (int distance = 16; distance; distance /= 2) word = max(word, __shfl_xor_sync(~0u, word, distance));
  return word;
}

__device__ __forceinline__ int bits_of(unsigned word) { return 32 - __clz(word); }
__device__ __forceinline__ int bits_of(unsigned long long word) { return 64 - __clzll(word); }

// Entries of the list that a thread holds while they change places.
struct Held {
  Key keys[ITEMS];
  unsigned columns[ITEMS];
  unsigned before[(ITEMS + 3) / 4];  // a byte each: entries of the same interval that were counted before
};

// The same where all keys are.
__device__ __forceinline__ Distance measure_columns(const List& list, const Held& held, unsigned count) {
  Counters& counters = *list.counters;
  unsigned highest = 0, lowest = 0;  // the lowest as its complement
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (i * THREADS + threadIdx.x >= count) break;
    highest = max(highest, held.columns[i]), lowest = max(lowest, ~held.columns[i]);
  }
  highest = largest_of_lanes(highest), lowest = largest_of_lanes(lowest);
  if (lane_of() == 0) counters.columns[0][warp_of()] = highest, counters.columns[1][warp_of()] = lowest;
  __syncthreads();
  const int warp = lane_of() < WARPS ? lane_of() : 0;
  highest = largest_of_lanes(counters.columns[0][warp]), lowest = ~largest_of_lanes(counters.columns[1][warp]);
  const int bits = bits_of(highest - lowest);
  return {0, lowest, true, bits > INTERVAL_BITS ? bits - INTERVAL_BITS : 0};
}

// Over the list's `count` entries, at least one; has a barrier.
__device__ __forceinline__ Distance measure(const List& list, const Held& held, unsigned count) {
  Counters& counters = *list.counters;
  Key most = 0, least = 0;  // the least as its complement, so that both are largest
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (i * THREADS + threadIdx.x >= count) break;
    most = max(most, held.keys[i]), least = max(least, Key(~held.keys[i]));
  }
  most = largest_of_lanes(most), least = largest_of_lanes(least);
  if (lane_of() == 0) counters.keys[0][warp_of()] = most, counters.keys[1][warp_of()] = least;
  __syncthreads();
  const int warp = lane_of() < WARPS ? lane_of() : 0;
  most = largest_of_lanes(counters.keys[0][warp]), least = ~largest_of_lanes(counters.keys[1][warp]);
  if (most == least) return measure_columns(list, held, count);
  const int bits = bits_of(Key(most - least));
  return {most, 0, false, bits > INTERVAL_BITS ? bits - INTERVAL_BITS : 0};
}

// Counts to the numbers of entries in better intervals. Returns whether one holds a crowd that matters to the best `want`;
// ends with a barrier.
__device__ __forceinline__ bool add_up(const List& list, unsigned want) {
  unsigned* own = list.intervals + threadIdx.x * OWN;
  const bool has = threadIdx.x * OWN < INTERVALS;
  unsigned counts[OWN], sum = 0, all;
#pragma unroll
  for (int i = 0; i < OWN; i++) counts[i] = has ? own[i] : 0u, sum += counts[i];
  unsigned before = scan_lanes(sum, all) - sum;
  if (lane_of() == 0) list.counters->totals[0][warp_of()] = all;
  __syncthreads();
  const unsigned total = lane_of() < WARPS ? list.counters->totals[0][lane_of()] : 0;
  before += __shfl_sync(~0u, scan_lanes(total, all) - total, warp_of());
  bool crowd = false;
#pragma unroll
  for (int i = 0; i < OWN; i++) {
    crowd |= counts[i] > CROWD && before < want;
    if (has) own[i] = before;
    before += counts[i];
  }
  return __syncthreads_or(crowd);
}

// Call `put(rank, key, column)` for the best `want` of the list's `count` entries, of which some thread did all; returns
// false, without a call, where keys crowd. Changes the order of the list. Begins and ends without a barrier.
template <class Put>
__device__ __forceinline__ bool rank_list(const List& list, unsigned count, unsigned want, Put put) {
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < INTERVALS; i += THREADS) list.intervals[i] = 0;
  Held held;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    held.keys[i] = at < count ? list.keys[at] : Key(0), held.columns[i] = at < count ? list.columns[at] : 0;
  }
  const Distance distance = measure(list, held, count);  // has a barrier
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (i % 4 == 0) held.before[i / 4] = 0;
    if (i * THREADS + threadIdx.x < count) {
      const unsigned before = atomicAdd(&list.intervals[distance.interval(held.keys[i], held.columns[i])], 1u);
      held.before[i / 4] |= (before & 255) << (i % 4 * 8);
    }
  }
  __syncthreads();
  if (add_up(list, want)) return false;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (i * THREADS + threadIdx.x >= count) break;
    const unsigned interval = distance.interval(held.keys[i], held.columns[i]);
    const unsigned slot = list.intervals[interval] + (held.before[i / 4] >> (i % 4 * 8) & 255);
    if (slot < CAPACITY) list.keys[slot] = held.keys[i], list.columns[slot] = held.columns[i];
  }
  __syncthreads();
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < count; at += THREADS) {
    const Key key = list.keys[at];
    const unsigned column = list.columns[at], interval = distance.interval(key, column);
    unsigned rank = list.intervals[interval];
    if (rank >= want) break;
    const unsigned end = interval + 1 < INTERVALS ? list.intervals[interval + 1] : count;
    for (unsigned other = rank; other < end; other++)
      rank += list.keys[other] > key || (list.keys[other] == key && list.columns[other] < column);
    if (rank < want) put(rank, key, column);
  }
  return true;
}
