// The order of a block's share of the answer: all entries are counted by intervals; those of the intervals that have the share's
// ranks go to their places, and rank among the few of their interval or, where that is a crowd, of intervals between some of them.
#pragma once
#include "pivots.cuh"
#include "room.cuh"

constexpr unsigned MOST_OF_INTERVAL = 128;  // entries above which ranking within it takes too long

struct Share {
  unsigned first, end;  // ranks
};

template <class Blocks> __device__ __forceinline__ Share share_of(unsigned k) {
  const unsigned each = (k + Blocks::COUNT - 1) / Blocks::COUNT, first = min(Blocks::own() * each, k);
  return {first, min(first + each, k)};
}

// An interval and a place, 16 bits each.
__device__ __forceinline__ unsigned packed(unsigned interval, unsigned place) { return interval << 16 | place; }
static_assert(INTERVALS <= 1 << 16 && CAPACITY < 1 << 16, "intervals and places share a word");

// Of the intervals that have the ranks of a share.
struct Places {
  unsigned first, last;  // intervals
  unsigned begin, end;   // places of their entries
  unsigned total;        // entries in all
  bool crowd;            // whether one of them holds a crowd
};

// Counts to the numbers of entries in better intervals. Has two barriers, and ends with one.
__device__ __forceinline__ Places add_up(const List& list, Share share) {
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
  before += __reduce_add_sync(~0u, lane_of() < warp_of() ? total : 0);
  all = __reduce_add_sync(~0u, total);
  bool crowd = false;
#pragma unroll
  for (int i = 0; i < OWN; i++) {
    const unsigned count = counts.each[i], behind = before + count;
    crowd |= count > MOST_OF_INTERVAL && before < share.end && behind > share.first;
    if (before <= share.first && share.first < behind) list.counters->crossing[0] = packed(threadIdx.x * OWN + i, before);
    if (before < share.end && share.end <= behind) list.counters->crossing[1] = packed(threadIdx.x * OWN + i, behind);
    counts.each[i] = before;
    before = behind;
  }
  if (has) *own = counts;
  crowd = __syncthreads_or(crowd);
  const unsigned first = list.counters->crossing[0], last = list.counters->crossing[1];
  return {first >> 16, last >> 16, first & 0xFFFF, last & 0xFFFF, all, crowd};
}

// Call `answers.put(rank + above, key, column)` for the ranks of the share, each by some thread, but of crowds. The thread's entries are of
// these intervals, ~0 where there is none, and `entry(i)` tells them; where they are read from, places are not, or behind a barrier. Where
// some crowd, entries are packed. Has a barrier.
template <bool PACKS, class IntervalOf, class EntryOf, class Answers>
__device__ __forceinline__ void rank_places(const List& list, Entries<PACKS> entries, Share share, const Places& places, IntervalOf interval_of,
                                            const unsigned (&intervals)[ITEMS], EntryOf entry, unsigned above, const Answers& answers) {
  unsigned slots[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const bool shares = intervals[i] >= places.first && intervals[i] <= places.last;
    slots[i] = shares ? atomicAdd(&list.intervals[intervals[i]], 1u) : ~0u;
  }
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (slots[i] == ~0u) continue;
    const Pair its = entry(i);
    entries.set(slots[i], its.key, its.column);
  }
  __syncthreads();
#pragma unroll 1
  for (unsigned at = places.begin + threadIdx.x; at < places.end; at += THREADS) {
    const Pair own = entries.get(at);
    const unsigned interval = interval_of(own), end = list.intervals[interval];
    const unsigned begin = interval ? max(list.intervals[interval - 1], places.begin) : 0;
    if (PACKS && end - begin > MOST_OF_INTERVAL) continue;  // a crowd
    const unsigned rank = begin + entries.better_than(own, begin, end);
    if (rank >= share.first && rank < share.end) answers.put(above + rank, own.key, own.column);
  }
}

// Intervals that hold a crowd and have ranks of the share.
struct Crowds {
  unsigned* count;   // cleared before a barrier
  unsigned* places;  // [BINS] first and end, 16 bits each
  unsigned* depths;  // [BINS] of how many intervals they were divided
  Entry* extremes;   // [2][WARPS]
};

static_assert(CAPACITY / MOST_OF_INTERVAL * 4 <= BINS && WARPS * 4 <= BINS, "crowds have no room");

__device__ __forceinline__ Crowds crowds_of(const List& list) {
  Counters& counters = *list.counters;
  return {&counters.crossing[2], counters.bins[1], counters.bins[2], reinterpret_cast<Entry*>(counters.bins[0])};
}

// Add those of intervals whose entries are in their places, from place `above` on.
__device__ __forceinline__ void add_crowds(const List& list, const Places& places, unsigned above, unsigned depth) {
  const Crowds crowds = crowds_of(list);
#pragma unroll 1
  for (unsigned interval = places.first + threadIdx.x; interval <= places.last; interval += THREADS) {
    const unsigned end = list.intervals[interval], begin = interval > places.first ? list.intervals[interval - 1] : places.begin;
    if (end - begin <= MOST_OF_INTERVAL) continue;
    const unsigned at = atomicAdd(crowds.count, 1u);
    crowds.places[at] = packed(above + begin, above + end), crowds.depths[at] = depth;
  }
}

// The same for a crowd's `count` entries: by intervals evenly wide between their extremes, in keys and columns.
template <class Answers>
__device__ __forceinline__ void rank_spread(const List& list, Entry* entries, unsigned count, Share share, unsigned above, unsigned depth,
                                            const Answers& answers) {
  Entry* extremes = crowds_of(list).extremes;
  Entry most = 0, least = 0;  // the least as its complement
  Entry own[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    if (at >= count) break;
    own[i] = entries[at], most = max(most, own[i]), least = max(least, ~own[i]);
  }
  most = largest_entry(most), least = largest_entry(least);
  if (lane_of() == 0) extremes[warp_of()] = most, extremes[WARPS + warp_of()] = least;
  clear_intervals(list);
  __syncthreads();
  most = largest_entry(extremes[lane_of() % WARPS]), least = ~largest_entry(extremes[WARPS + lane_of() % WARPS]);
  const int shift = max(bits_of(most - least) - INTERVAL_BITS, 0);
  unsigned intervals[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    intervals[i] = ~0u;
    if (i * THREADS + threadIdx.x >= count) continue;
    intervals[i] = unsigned((most - own[i]) >> shift);
    atomicAdd(&list.intervals[intervals[i]], 1u);
  }
  __syncthreads();
  const Places places = add_up(list, share);
  const auto interval_of = [&](Pair its) { return unsigned((most - entry_of(its.key, its.column)) >> shift); };
  rank_places(list, Entries<true>{reinterpret_cast<Key*>(entries), nullptr}, share, places, interval_of, intervals, [&](int i) { return pair_of(own[i]); },
              above, answers);
  if (places.crowd) add_crowds(list, places, above, depth);
}

// Call `answers.put(rank, key, column)` for the ranks of the share that crowds have, each by some thread: a few are divided once and again.
// What still crowds is ranked by intervals between some of its entries, or if there are more crowds, all that have places.
template <class Answers>
__device__ __forceinline__ void rank_crowds(const List& list, Entry* entries, Share share, const Places& places, const Answers& answers) {
  constexpr unsigned FEW = 3, DEPTH = 2, PIVOTS = INTERVALS / 4 < 128 ? INTERVALS / 4 : 128;
  const Crowds crowds = crowds_of(list);
  add_crowds(list, places, 0, 0);
  __syncthreads();
  if (*crowds.count > FEW) {
    __syncthreads();
    if (threadIdx.x == 0) *crowds.count = 1, crowds.places[0] = packed(places.begin, places.end), crowds.depths[0] = DEPTH;
  }
#pragma unroll 1
  for (unsigned i = 0;; i++) {
    __syncthreads();
    if (i >= *crowds.count) break;
    const unsigned begin = crowds.places[i] >> 16, end = crowds.places[i] & 0xFFFF, depth = crowds.depths[i];
    const Share its = {max(share.first, begin) - begin, min(share.end, end) - begin};
    Entry* first = entries + begin;
    if (depth < DEPTH) {
      rank_spread(list, first, end - begin, its, begin, depth + 1, answers);
    } else {
      Entry* pivots = reinterpret_cast<Entry*>(list.intervals + INTERVALS / 2);
      rank_crowd<PIVOTS, ITEMS>(first, end - begin, its.first, its.end, pivots, list.intervals,
                                [&](unsigned rank, Entry entry) { put_entry(answers, begin + rank, entry); });
    }
  }
}

// The same of all, by what has room for places.
template <class IntervalOf, class EntryOf, class Answers>
__device__ __forceinline__ void rank_share(const List& list, Share share, const Places& places, IntervalOf interval_of,
                                           const unsigned (&intervals)[ITEMS], EntryOf entry, const Answers& answers) {
  if (places.crowd) {
    const Entries<true> entries = {list.keys, list.columns};
    rank_places(list, entries, share, places, interval_of, intervals, entry, 0, answers);
    return rank_crowds(list, entries.packed(), share, places, answers);
  }
  rank_places(list, Entries<false>{list.keys, list.columns}, share, places, interval_of, intervals, entry, 0, answers);
}
