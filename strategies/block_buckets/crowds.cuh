// Buckets that crowd: where most entries have one of few keys, crowds are divided key by key and by columns, and else all that is listed by
// intervals between some of it. Out of line: what other rows need is all that lies together, and that registers are found for.
#pragma once
#include "buckets.cuh"

constexpr int LISTED = (CAPACITY + THREADS - 1) / THREADS;  // entries of a thread
constexpr unsigned CROWD_PIVOTS = INTERVALS / 4 < 128 ? INTERVALS / 4 : 128;
static_assert(CROWD_PIVOTS * (sizeof(Entry) + sizeof(unsigned)) <= sizeof(Counters::bins), "pivots have no room");

__device__ __forceinline__ Room kept_room(const Room& room) {
  return {kept(room.entries), kept(room.counts), *kept(&room.exchange), *kept(&room.counters)};
}

// By intervals between some of them, whatever they are.
template <class Answers>
__device__ __forceinline__ void rank_between(const Room& room, unsigned begin, unsigned end, unsigned want, const Answers& answers) {
  Entry* pivots = reinterpret_cast<Entry*>(room.counters.bins[0]);
  rank_crowd<CROWD_PIVOTS, LISTED>(room.entries + begin, end - begin, 0, want - begin, pivots, reinterpret_cast<unsigned*>(pivots + CROWD_PIVOTS),
                                   [&](unsigned rank, Entry entry) { put_word(answers, begin + rank, entry); });
}

// The most entries of a bucket that has some of the best `want`. Begins behind a barrier, and has one.
__device__ __forceinline__ unsigned most_crowded(const Room& room, unsigned want) {
  unsigned most = 0;
#pragma unroll 1
  for (unsigned bucket = threadIdx.x; bucket < BUCKETS<true>; bucket += THREADS) {
    const unsigned begin = bucket ? room.counts[bucket - 1] : 0;
    if (begin < want) most = max(most, room.counts[bucket] - begin);
  }
  most = largest_of_lanes(most);
  if (lane_of() == 0) room.counters.keys[1][warp_of()] = most;
  __syncthreads();
  return largest_of_lanes(unsigned(room.counters.keys[1][lane_of() < WARPS ? lane_of() : 0]));
}

constexpr unsigned ALL_COLUMNS = THREADS * HELD * VECTOR;

// Where an entry would be among those of its crowd, had most one key and their columns the same distance from each other: no better one is behind it.
__device__ __forceinline__ unsigned likely_place(unsigned begin, unsigned end, Key usual, Entry entry) {
  const Key key = key_of_word(word_of(entry));
  if (key != usual) return key > usual ? begin : end - 1;
  return begin + min(column_of(entry), ALL_COLUMNS - 1) * (end - begin) / ALL_COLUMNS;
}

// Entries of a thread, and the bucket of each. What the i-th of all are, in the order of the list, is for thread i % THREADS.
struct Own {
  Entry entries[LISTED];
  unsigned buckets[LISTED];

  template <class Visit> __device__ __forceinline__ void visit(unsigned count, Visit visit) {
#pragma unroll
    for (int i = 0; i < LISTED; i++)
      if (i * THREADS + threadIdx.x < count) visit(entries[i], buckets[i]);
  }
};

// To the places that buckets have, whose ends are counts then. Returns whether some crowd. Begins behind a barrier, with counts of 0, and ends with one.
__device__ __forceinline__ bool place_own(Own& own, unsigned count, unsigned want, const Room& room) {
  own.visit(count, [&](Entry, unsigned bucket) { atomicAdd(&room.counts[bucket], 1u); });
  __syncthreads();
  const bool crowd = add_buckets<BUCKETS<true>>(room, want).crowd;
  own.visit(count, [&](Entry entry, unsigned bucket) { room.entries[atomicAdd(&room.counts[bucket], 1u)] = entry; });
  __syncthreads();
  return crowd;
}

// Call `answers.put(rank, key, column)` for the best `want` of the first `count` entries, that are where `bucket_of` tells, each by some thread. Threads side by
// side take entries of one bucket.
template <class BucketOf, class Answers>
__device__ __forceinline__ void rank_placed(const Room& room, unsigned count, unsigned want, const BucketOf& bucket_of, const Answers& answers) {
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < count; at += THREADS) {
    const Entry entry = room.entries[at];
    const unsigned bucket = bucket_of(entry), end = room.counts[bucket];
    unsigned rank = bucket ? room.counts[bucket - 1] : 0;
    if (rank >= want) break;
    rank = rank_among(room.entries, rank, end, entry);
    if (rank < want) put_word(answers, rank, entry);
  }
}

// Crowds are divided so often where most entries have one of few keys.
constexpr int DIVISIONS = 3;

// The same where buckets crowd. If there are more of one than are compared, crowds are divided by likely places; but not of words that have columns, so
// that no two are equal. Begins behind a barrier.
template <class BucketOf, class Answers>
__device__ __forceinline__ void rank_crowds_of(const Room& room, const BucketOf& bucket_of, unsigned count, unsigned want, const Answers& answers) {
  if (most_crowded(room, want) <= 2 * CROWD) return rank_placed(room, count, want, bucket_of, answers);
  if (COLUMN_BITS) return rank_between(room, 0, count, want, answers);
  Own own;
#pragma unroll
  for (int i = 0; i < LISTED; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    own.entries[i] = at < count ? room.entries[at] : 0, own.buckets[i] = at < count ? bucket_of(own.entries[i]) : 0;
  }
#pragma unroll 1
  for (int division = 0; division < DIVISIONS; division++) {
    unsigned crowded = 0, unlike = 0;
    own.visit(count, [&](Entry entry, unsigned& bucket) {
      const unsigned begin = bucket ? room.counts[bucket - 1] : 0, end = room.counts[bucket];
      const Key usual = key_of_word(word_of(room.entries[(begin + end) / 2]));
      unsigned place = begin;
      if (end - begin > CROWD) place = likely_place(begin, end, usual, entry), crowded++, unlike += usual != key_of_word(word_of(entry));
      bucket = place * BUCKETS<true> / CAPACITY;
    });
    const unsigned both = __reduce_add_sync(~0u, crowded << 16 | unlike);  // CAPACITY at most
    if (lane_of() == 0) room.counters.totals[1][warp_of()] = both;
    __syncthreads();
    const unsigned all = __reduce_add_sync(~0u, lane_of() < WARPS ? room.counters.totals[1][lane_of()] : 0);
    if ((all & 0xFFFF) * 5 > (all >> 16) * 4) break;
    clear_buckets<BUCKETS<true>>(room);
    __syncthreads();
    if (place_own(own, count, want, room) && most_crowded(room, want) > 2 * CROWD) continue;
    return own.visit(count, [&](Entry entry, unsigned bucket) {
      const unsigned begin = bucket ? room.counts[bucket - 1] : 0;
      const unsigned rank = begin < want ? rank_among(room.entries, begin, room.counts[bucket], entry) : want;
      if (rank < want) put_word(answers, rank, entry);
    });
  }
  rank_between(room, 0, count, want, answers);
}

template <class Answers>
__device__ __noinline__ void rank_crowds(Room its, Buckets<true> buckets, unsigned count, unsigned want, Answers answers) {
  rank_crowds_of(kept_room(its), [&](Entry entry) { return buckets(word_of(entry)); }, count, want, answers);
}
