// The list in order, by intervals: an entry's rank is the number of entries in better intervals, and of better ones in its
// own. Intervals are evenly wide in keys, as many as make most hold one entry or none, or in numbers where floats of both
// signs are listed, most of whose keys lie around zero; where keys crowd in one of them, intervals are what lies between
// entries of the list itself.
//
// Compile-time: ITEMS (entries of a thread; lists of more than ITEMS * THREADS are not ordered), BOTH_SIGNS (whether lists
// often hold floats of both signs), APART (whether NaN, or infinities, have intervals of their own; 0 by default).
#pragma once
#include "selection.cuh"

#ifndef BOTH_SIGNS
#define BOTH_SIGNS 0
#endif
#ifndef APART
#define APART 0
#endif

constexpr unsigned CROWD = 64;  // entries of an interval above which ranking within it takes too long

constexpr int INTERVAL_BITS = 31 - __builtin_clz(INTERVALS);
constexpr int OWN = INTERVALS > THREADS ? INTERVALS / THREADS : 1;  // intervals of a thread that adds their counts up
constexpr unsigned SPLITTERS = INTERVALS / 2 < BINS ? INTERVALS / 2 : BINS;

__device__ __forceinline__ bool better(Key key, unsigned column, Key than, unsigned its) {
  return key > than || (key == than && column < its);
}

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
  unsigned before[(ITEMS + 1) / 2];  // 16 bits each: entries of the same interval that were counted before
};

// Evenly wide intervals of keys; where there are fewer keys than intervals, of columns as well. Keys above the most are few, or
// one that has the first half of the intervals, by columns.
struct Even {
  Key most;
  int shift;         // of keys
  int own;           // bits of an interval that columns tell
  int column_shift;
  float number;      // of the most
  float scale;       // intervals of a number, or 0 where they are of keys
  Order order;
  unsigned begin;    // of the most's interval
  int above_shift;   // of columns above it

  __device__ __forceinline__ unsigned interval(Key key, unsigned column) const {
    const unsigned first = APART ? begin : 0;
    if (key > most) return APART ? column >> above_shift : 0;
#if BOTH_SIGNS
    if (scale > 0) {
      const float below = fabsf(number - number_of(element_of(key, order), order));
      return first + min(unsigned(below * scale), INTERVALS - 1 - first);
    }
#endif
    return first + (unsigned((most - key) >> shift) << own) + (column >> column_shift);
  }
};

// Of keys from `least` on and `cols` columns; above `most` are few, or where it is `half`, they have half of the intervals.
__device__ __forceinline__ Even even_between(Key most, Key least, unsigned cols, Order order, bool half = false) {
  const int bits = most > least ? bits_of(Key(most - least)) : 0, room = INTERVAL_BITS - half, left = room - bits;
  const int own = left > 0 ? left : 0, column_bits = bits_of(cols - 1);
  const unsigned begin = half ? INTERVALS / 2 : 0;
  const int above_shift = !half ? 31 : column_bits > room ? column_bits - room : 0;
  Even even = {most, left < 0 ? -left : 0, own, column_bits > own ? column_bits - own : 0, 0, 0, order, begin, above_shift};
#if BOTH_SIGNS
  if ((most ^ least) & SIGN) {
    even.number = number_of(element_of(most, order), order);
    const float width = fabsf(even.number - number_of(element_of(least, order), order));
    if (width < 1e38f && width > 1e-30f) even.scale = (INTERVALS - 1 - begin) / width;  // no NaN, no infinity
  }
#endif
  return even;
}

// Over the list's `count` entries, at least one; has barriers.
__device__ __forceinline__ Even even_intervals(const List& list, const Held& held, unsigned count, unsigned cols,
                                               Order order) {
  Key most = 0, least = 0;  // the least as its complement, so that both are largest
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (i * THREADS + threadIdx.x >= count) break;
    most = max(most, held.keys[i]), least = max(least, Key(~held.keys[i]));
  }
  most = largest_of_lanes(most), least = largest_of_lanes(least);
  auto& keys = list.counters->keys;
  if (lane_of() == 0) keys[0][warp_of()] = most, keys[1][warp_of()] = least;
  __syncthreads();
  const int warp = lane_of() < WARPS ? lane_of() : 0;
  most = largest_of_lanes(keys[0][warp]), least = ~largest_of_lanes(keys[1][warp]);
  if (!APART || !FLOAT || most < least_special(order)) return even_between(most, least, cols, order);
  Key next = least;  // NaN, or infinities, are far from all others
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (i * THREADS + threadIdx.x < count && held.keys[i] < most) next = max(next, held.keys[i]);
  next = largest_of_lanes(next);
  __syncthreads();
  if (lane_of() == 0) keys[0][warp_of()] = next;
  __syncthreads();
  next = largest_of_lanes(keys[0][warp]);
  return even_between(next, least, cols, order, next < most);
}

// Intervals between entries, the best first.
struct Split {
  const Key* keys;          // [SPLITTERS]
  const unsigned* columns;  // [SPLITTERS]

  // How many of them are better.
  __device__ __forceinline__ unsigned interval(Key key, unsigned column) const {
    unsigned found = 0;
#pragma unroll 1
    for (unsigned step = SPLITTERS; step; step /= 2)
      if (found + step <= SPLITTERS && better(keys[found + step - 1], columns[found + step - 1], key, column)) found += step;
    return found;
  }
};

// Entries from all over the list, in order, where counters of digits were: these are of no more use. Has two barriers.
__device__ __forceinline__ Split split_intervals(const List& list, unsigned count) {
  Key* keys = reinterpret_cast<Key*>(list.counters->bins);
  unsigned* columns = reinterpret_cast<unsigned*>(keys + SPLITTERS);
  static_assert(SPLITTERS * (sizeof(Key) + sizeof(unsigned)) <= sizeof(list.counters->bins), "splitters have no room");
  constexpr unsigned LANES = THREADS / SPLITTERS > 32 ? 32 : THREADS / SPLITTERS > 1 ? THREADS / SPLITTERS : 1;
  __syncthreads();
#pragma unroll 1
  for (unsigned number = threadIdx.x / LANES; number < SPLITTERS; number += THREADS / LANES) {
    const unsigned at = place_of_pivot<SPLITTERS>(number, count), column = list.columns[at];
    const Key key = list.keys[at];
    unsigned rank = 0;
#pragma unroll 4
    for (unsigned other = threadIdx.x % LANES; other < SPLITTERS; other += LANES) {
      const unsigned its = place_of_pivot<SPLITTERS>(other, count);
      rank += its == at ? other < number : better(list.keys[its], list.columns[its], key, column);
    }
#pragma unroll
    for (unsigned distance = LANES / 2; distance; distance /= 2) rank += __shfl_xor_sync(~0u, rank, distance);
    if (threadIdx.x % LANES == 0) keys[rank] = key, columns[rank] = column;
  }
  __syncthreads();
  return {keys, columns};
}

struct alignas(OWN % 4 ? OWN * 4 : 16) Counts {
  unsigned each[OWN];
};

// Counts to the numbers of entries in better intervals. Returns whether one holds a crowd that matters to the best `want`;
// ends with a barrier.
__device__ __forceinline__ bool add_up(const List& list, unsigned want) {
  Counts* own = reinterpret_cast<Counts*>(list.intervals) + threadIdx.x;
  const bool has = threadIdx.x * OWN < INTERVALS;
  Counts counts = {};
  if (has) counts = *own;
  unsigned sum = 0, all;
#pragma unroll
  for (int i = 0; i < OWN; i++) sum += counts.each[i];
  unsigned before = scan_lanes(sum, all) - sum;
  if (lane_of() == 0) list.counters->totals[0][warp_of()] = all;
  __syncthreads();
  const unsigned total = lane_of() < WARPS ? list.counters->totals[0][lane_of()] : 0;
  before += __shfl_sync(~0u, scan_lanes(total, all) - total, warp_of());
  bool crowd = false;
#pragma unroll
  for (int i = 0; i < OWN; i++) {
    const unsigned count = counts.each[i];
    crowd |= count > CROWD && before < want;
    counts.each[i] = before;
    before += count;
  }
  if (has) *own = counts;
  return __syncthreads_or(crowd);
}

__device__ __forceinline__ void clear_intervals(const List& list) {
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < INTERVALS; i += THREADS) list.intervals[i] = 0;
}

// Count the entries of every interval, which were cleared before a barrier; returns whether they crowd. Ends with a barrier.
template <class Intervals>
__device__ __forceinline__ bool count_intervals(const List& list, Held& held, unsigned count, unsigned want,
                                                Intervals intervals) {
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (i % 2 == 0) held.before[i / 2] = 0;
    if (i * THREADS + threadIdx.x >= count) continue;
    const unsigned before = atomicAdd(&list.intervals[intervals.interval(held.keys[i], held.columns[i])], 1u);
    held.before[i / 2] |= before << (i % 2 * 16);
  }
  __syncthreads();
  return add_up(list, want);
}

// Bring the entries of every interval together, and call `put(rank, key, column)` for the best `want`, each by some thread.
template <class Intervals, class Put>
__device__ __forceinline__ void rank_intervals(const List& list, const Held& held, unsigned count, unsigned want,
                                               Intervals intervals, Put put) {
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (i * THREADS + threadIdx.x >= count) break;
    const unsigned interval = intervals.interval(held.keys[i], held.columns[i]);
    const unsigned slot = list.intervals[interval] + (held.before[i / 2] >> (i % 2 * 16) & 0xFFFF);
    if (slot < CAPACITY) list.keys[slot] = held.keys[i], list.columns[slot] = held.columns[i];
  }
  __syncthreads();
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < count; at += THREADS) {
    const Key key = list.keys[at];
    const unsigned column = list.columns[at], interval = intervals.interval(key, column);
    unsigned rank = list.intervals[interval];
    if (rank >= want) break;
    const unsigned end = interval + 1 < INTERVALS ? list.intervals[interval + 1] : count;
#pragma unroll 1
    for (unsigned first = rank; first < end; first += 4) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (first + i < end) rank += better(list.keys[first + i], list.columns[first + i], key, column);
    }
    if (rank < want) put(rank, key, column);
  }
}

// Call `put(rank, key, column)` for the best `want` of the list's `count` entries, which threads hold as well, each by some
// thread. Counts of intervals must be clear. Changes the order of the list and its counters. Begins and ends without a
// barrier.
template <class Put>
__device__ __forceinline__ void rank_held(const List& list, Held& held, unsigned count, unsigned want, Even even, Put put) {
  if (!count_intervals(list, held, count, want, even)) {
    rank_intervals(list, held, count, want, even, put);
    return;
  }
  clear_intervals(list);
  const Split split = split_intervals(list, count);
  count_intervals(list, held, count, want, split);
  rank_intervals(list, held, count, want, split, put);
}

__device__ __forceinline__ Held hold(const List& list, unsigned count) {
  Held held;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    held.keys[i] = at < count ? list.keys[at] : Key(0), held.columns[i] = at < count ? list.columns[at] : 0;
  }
  return held;
}

// The same where nothing is known of the entries.
template <class Put>
__device__ __forceinline__ void rank_list(const List& list, unsigned count, unsigned want, unsigned cols, Order order, Put put) {
  Held held = hold(list, count);
  clear_intervals(list);
  rank_held(list, held, count, want, even_intervals(list, held, count, cols, order), put);
}
