// Buckets that crowd: what has one key is put in order by a map of its columns, key by key while there are many of each, and the rest by
// intervals between some of it. Out of line: what other rows need is all that lies together, and that registers are found for.
#pragma once
#include "buckets.cuh"

constexpr int LISTED = (CAPACITY + THREADS - 1) / THREADS;  // entries of a thread
constexpr unsigned CROWD_PIVOTS = INTERVALS / 4 < 128 ? INTERVALS / 4 : 128;
constexpr int MAP = (THREADS * HELD * 16 < 1 << 15 ? THREADS * HELD * 16 : 1 << 15) / ELEMENT_BYTES / 32;  // words; rows have 32 KB at most
constexpr int MAPPED = (MAP + THREADS - 1) / THREADS;                                                       // words of a thread
static_assert(MAP * 6 <= sizeof(Counters::bins), "a map has no room");
static_assert(CROWD_PIVOTS * (sizeof(Entry) + sizeof(unsigned)) <= sizeof(Counters::bins), "pivots have no room");

__device__ __forceinline__ Room kept_room(const Room& room) {
  return {kept(room.entries), kept(room.counts), *kept(&room.exchange), *kept(&room.counters)};
}

// Columns, a bit each, and how many there are before each word.
struct ColumnMap {
  unsigned* words;         // [MAP]
  unsigned short* before;  // [MAP]

  __device__ __forceinline__ void clear() const {
    for (int i = threadIdx.x; i < MAP; i += THREADS) words[i] = 0;
  }
  __device__ __forceinline__ void add(unsigned column) const { atomicOr(&words[column / 32], 1u << column % 32); }

  // Returns how many there are. Begins behind a barrier, and ends with one.
  __device__ __forceinline__ unsigned count(unsigned* totals) const {
    unsigned counts[MAPPED], sum = 0, all;
#pragma unroll
    for (int i = 0; i < MAPPED; i++) {
      const int word = threadIdx.x * MAPPED + i;
      sum += counts[i] = word < MAP ? __popc(words[word]) : 0;
    }
    unsigned upto = scan_lanes(sum, all) - sum;
    if (lane_of() == 0) totals[warp_of()] = all;
    __syncthreads();
    const unsigned total = lane_of() < WARPS ? totals[lane_of()] : 0;
    upto += __reduce_add_sync(~0u, lane_of() < warp_of() ? total : 0);
#pragma unroll
    for (int i = 0; i < MAPPED; i++) {
      if (threadIdx.x * MAPPED + i < MAP) before[threadIdx.x * MAPPED + i] = upto;
      upto += counts[i];
    }
    __syncthreads();
    return __reduce_add_sync(~0u, total);
  }

  __device__ __forceinline__ unsigned rank(unsigned column) const {
    return before[column / 32] + __popc(words[column / 32] & ((1u << column % 32) - 1));
  }
};

// By intervals between some of them, whatever they are.
template <class Answers>
__device__ __forceinline__ void rank_between(const Room& room, unsigned begin, unsigned end, unsigned want, const Answers& answers) {
  Entry* pivots = reinterpret_cast<Entry*>(room.counters.bins[0]);
  rank_crowd<CROWD_PIVOTS, LISTED>(room.entries + begin, end - begin, 0, want - begin, pivots, reinterpret_cast<unsigned*>(pivots + CROWD_PIVOTS),
                                   [&](unsigned rank, Entry entry) { put_word(answers, begin + rank, entry); });
}

// Call `answers.put(rank, key, column)` for those of the entries from `begin` to `end` whose ranks, which are places as well, are less
// than `want`. Begins behind a barrier.
template <class Answers>
__device__ __forceinline__ void rank_crowded(const Room& room, unsigned begin, unsigned end, unsigned want, const Answers& answers) {
  const ColumnMap map = {room.counters.bins[0], reinterpret_cast<unsigned short*>(room.counters.bins[0] + MAP)};
  Entry own[LISTED];  // without a place, else 0
#pragma unroll
  for (int i = 0; i < LISTED; i++) {
    const unsigned at = begin + i * THREADS + threadIdx.x;
    own[i] = at < end ? room.entries[at] : 0;
  }
  unsigned first = begin;  // behind those that are in their places
  bool few = false;        // whether there were few of a key
#pragma unroll 1
  while (end - first > CROWD && first < want) {
    Key top = 0;
#pragma unroll
    for (int i = 0; i < LISTED; i++) top = max(top, key_of_word(word_of(own[i])));
    top = largest_of_lanes(top);
    if (lane_of() == 0) room.counters.keys[0][warp_of()] = top;
    map.clear();
    __syncthreads();
    top = largest_of_lanes(room.counters.keys[0][lane_of() < WARPS ? lane_of() : 0]);
#pragma unroll
    for (int i = 0; i < LISTED; i++)
      if (key_of_word(word_of(own[i])) == top) map.add(column_of(own[i]));
    __syncthreads();
    const unsigned count = map.count(room.counters.totals[0]);
    if (few && count < CROWD / 4) break;
    few = count < CROWD / 4;
#pragma unroll
    for (int i = 0; i < LISTED; i++)
      if (key_of_word(word_of(own[i])) == top) room.entries[first + map.rank(column_of(own[i]))] = own[i], own[i] = 0;
    first += count;
    __syncthreads();
  }
  if (threadIdx.x == 0) room.counters.count = first;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < LISTED; i++)
    if (own[i]) room.entries[atomicAdd(&room.counters.count, 1u)] = own[i];
  __syncthreads();
  const bool crowd = end - first > CROWD && first < want;
#pragma unroll 1
  for (unsigned at = begin + threadIdx.x; at < (crowd ? first : end); at += THREADS) {
    const Entry entry = room.entries[at];
    const unsigned rank = at < first ? at : rank_among(room.entries, first, end, entry);
    if (rank < want) put_word(answers, rank, entry);
  }
  if (!crowd) return;
  rank_between(room, first, end, want, answers);
}

// Crowded buckets that are put in order one by one; of more, entries are compared where none has more than twice a crowd, or all that is
// listed is put in order at once.
constexpr unsigned MOST_CROWDS = 4;

struct Crowds {
  unsigned first;  // bucket, or COUNT
  unsigned count;
  unsigned most;  // entries of one
};

// From a bucket on, those of which some are among the best `want`. Begins behind a barrier, and has one.
__device__ __forceinline__ Crowds crowds_from(unsigned bucket, const Room& room, unsigned want) {
  constexpr unsigned COUNT = BUCKETS<true>;
  Crowds own = {COUNT, 0, 0};
#pragma unroll 1
  for (unsigned its = bucket + threadIdx.x; its < COUNT; its += THREADS) {
    const unsigned begin = its ? room.counts[its - 1] : 0, count = room.counts[its] - begin;
    if (begin < want && count > CROWD) own = {min(own.first, its), own.count + 1, max(own.most, count)};
  }
  own = {__reduce_min_sync(~0u, own.first), __reduce_add_sync(~0u, own.count), largest_of_lanes(own.most)};
  if (lane_of() == 0)
    room.counters.totals[0][warp_of()] = own.count, room.counters.totals[1][warp_of()] = own.first, room.counters.keys[1][warp_of()] = own.most;
  __syncthreads();
  const int warp = lane_of() < WARPS ? lane_of() : 0;
  return {__reduce_min_sync(~0u, room.counters.totals[1][warp]), __reduce_add_sync(~0u, lane_of() < WARPS ? room.counters.totals[0][warp] : 0),
          largest_of_lanes(unsigned(room.counters.keys[1][warp]))};
}

// Call `answers.put(rank, key, column)` for the best `want` of the first `count` entries, each by some thread, where counts tell where each
// bucket ends, and some crowd. Begins behind a barrier.
template <class BucketOf, class Answers>
__device__ __forceinline__ void rank_crowds_of(const Room& room, const BucketOf& bucket_of, unsigned count, unsigned want, const Answers& answers) {
  Crowds crowds = crowds_from(0, room, want);
  const bool many = crowds.count > MOST_CROWDS;
  if (many && crowds.most > 2 * CROWD) return rank_between(room, 0, count, want, answers);
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < count; at += THREADS) {
    const Entry entry = room.entries[at];
    const unsigned bucket = bucket_of(word_of(entry)), end = room.counts[bucket];
    unsigned rank = bucket ? room.counts[bucket - 1] : 0;
    if (rank >= want) break;
    if (!many && end - rank > CROWD) continue;
    rank = rank_among(room.entries, rank, end, entry);
    if (rank < want) put_word(answers, rank, entry);
  }
  if (many) return;
  __syncthreads();
#pragma unroll 1
  while (crowds.count) {
    rank_crowded(room, crowds.first ? room.counts[crowds.first - 1] : 0, room.counts[crowds.first], want, answers);
    if (crowds.count == 1) return;
    __syncthreads();
    crowds = crowds_from(crowds.first + 1, room, want);
  }
}

template <class Answers>
__device__ __noinline__ void rank_crowds(Room its, Buckets<true> buckets, unsigned count, unsigned want, Answers answers) {
  rank_crowds_of(kept_room(its), buckets, count, want, answers);
}
