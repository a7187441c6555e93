// Elements to the places of their buckets, and from there to their ranks.
#pragma once
#include "crowds.cuh"

// Elements that are less than `least` are counted behind the last bucket: that is cheaper than to leave them out.
template <int COUNT, int OWN, class BucketOf>
__device__ __forceinline__ void count_elements(const Elements<OWN>& elements, const Room& room, Word least, BucketOf bucket_of) {
  elements.visit([&](Word word, unsigned) {
    const unsigned bucket = bucket_of(word);
    atomicAdd(&room.counts[word >= least ? bucket : COUNT], 1u);
  });
}

// Those of buckets up to `last` to the places that their buckets have: all at once, since a counter's answer takes long.
template <int SIZE, class BucketOf>
__device__ __forceinline__ void place_visited(const Visited<SIZE>& visited, const Room& room, Word least, unsigned last, BucketOf bucket_of) {
  unsigned places[SIZE];
#pragma unroll
  for (int i = 0; i < SIZE; i++) {
    const unsigned bucket = bucket_of(visited.words[i]);
    places[i] = visited.words[i] >= least && bucket <= last ? atomicAdd(&room.counts[bucket], 1u) : ~0u;
  }
#pragma unroll
  for (int i = 0; i < SIZE; i++)
    if (places[i] != ~0u) room.entries[places[i]] = entry_of(visited.words[i], visited.columns[i]);
}

template <int OWN, class BucketOf>
__device__ __forceinline__ void place_elements(const Elements<OWN>& elements, const Room& room, Word least, unsigned last,
                                               BucketOf bucket_of) {
  constexpr int AT_ONCE = OWN > 4 ? VISITED : Elements<OWN>::COUNT < 16 ? Elements<OWN>::COUNT : 16;
  elements.template visit_batches<AT_ONCE>([&](const auto& visited) { place_visited(visited, room, least, last, bucket_of); });
}

// As `rank_placed`, by words.
template <class BucketOf, class Answers>
__device__ __forceinline__ void rank_entries(const Room& room, unsigned count, unsigned want, BucketOf bucket_of, const Answers& answers) {
  rank_placed(room, count, want, [&](Entry entry) { return bucket_of(word_of(entry)); }, answers);
}

// Call `answers.put(rank, key, column)` for the best `want` of a list of few entries, at most half as many as threads, by comparing all.
template <class Answers> __device__ __forceinline__ void rank_few(const Room& room, unsigned count, unsigned want, const Answers& answers) {
  const unsigned shift = min(bits_of(THREADS / max(count, 1u)) - 1, 5), lane = threadIdx.x & ((1u << shift) - 1);  // of 2^shift lanes of an entry
  const unsigned at = threadIdx.x >> shift;
  const Entry entry = at < count ? room.entries[at] : 0;
  unsigned rank = 0;
#pragma unroll 1
  for (unsigned first = lane; first < count; first += 8 << shift) {
    Entry others[8];
#pragma unroll
    for (int i = 0; i < 8; i++) others[i] = first + (i << shift) < count ? room.entries[first + (i << shift)] : 0;
#pragma unroll
    for (int i = 0; i < 8; i++) rank += others[i] > entry;
  }
#pragma unroll 1
  for (int distance = 1; distance < 1 << shift; distance *= 2) rank += __shfl_xor_sync(~0u, rank, distance);
  if (at < count && lane == 0 && rank < want) put_word(answers, rank, entry);
}

// Evenly wide intervals of keys and, within each, of columns: of few keys that are neighbours each has several.
struct KeysAndColumns {
  Word top;
  float scale;

  __device__ __forceinline__ unsigned operator()(Word word, unsigned column) const {
    const float below = float(top - word) + float(min(column, ALL_COLUMNS - 1)) * (1.f / ALL_COLUMNS);
    return min(unsigned(below * scale), unsigned(BUCKETS<true> - 1));
  }
};

// The same of a list of any length, by buckets if there are more. Begins behind a barrier.
template <class Answers>
__device__ __noinline__ void rank_list(Room its, unsigned count, unsigned want, Order order, Answers answers) {
  const Room room = kept_room(its);
  if (count <= THREADS / 2) return rank_few(room, count, want, answers);
  Own own;
  Word top = 0, bottom = ALL_KEYS;
  clear_buckets<BUCKETS<true>>(room);
#pragma unroll
  for (int i = 0; i < LISTED; i++) own.entries[i] = i * THREADS + threadIdx.x < count ? room.entries[i * THREADS + threadIdx.x] : 0;
  own.visit(count, [&](Entry entry, unsigned) { top = max(top, word_of(entry)), bottom = min(bottom, word_of(entry)); });
  top = largest_of_lanes(top), bottom = least_of_lanes(bottom);
  if (lane_of() == 0) room.exchange.tops[warp_of()] = top, room.exchange.guesses[warp_of()] = bottom;
  __syncthreads();
  const int warp = lane_of() < WARPS ? lane_of() : 0;
  top = largest_of_lanes(unsigned(room.exchange.tops[warp])), bottom = least_of_lanes(unsigned(room.exchange.guesses[warp]));
  const bool numbers = (top ^ bottom) >> 31;
  const Buckets<true> buckets = buckets_of<true>(top, bottom, numbers, order);
  const KeysAndColumns both = {top, __fdividef(BUCKETS<true> * 0.999f, float(top - bottom) + 1)};
  const auto bucket_of = [&](Entry entry) { return numbers || COLUMN_BITS ? buckets(word_of(entry)) : both(word_of(entry), column_of(entry)); };
  own.visit(count, [&](Entry entry, unsigned& bucket) { bucket = bucket_of(entry); });
  if (place_own(own, count, want, room)) rank_crowds_of(room, bucket_of, count, want, answers);
  else rank_placed(room, count, want, bucket_of, answers);
}

// And of a list that crowds in buckets.
template <class Answers> __device__ __noinline__ void rank_mixed(Room its, unsigned count, unsigned want, Answers answers) {
  const Room room = kept_room(its);
  if (count <= THREADS / 2) rank_few(room, count, want, answers);
  else rank_between(room, 0, count, want, answers);
}

// Of the threads before this one, and of all. Has a barrier.
__device__ __forceinline__ unsigned sum_before(const Room& room, unsigned own, unsigned& all) {
  const unsigned before = scan_lanes(own, all) - own;
  if (lane_of() == 0) room.counters.totals[1][warp_of()] = all;
  __syncthreads();
  const unsigned total = lane_of() < WARPS ? room.counters.totals[1][lane_of()] : 0;
  all = __reduce_add_sync(~0u, total);
  return before + __reduce_add_sync(~0u, lane_of() < warp_of() ? total : 0);
}

// Who puts what where two blocks select from the same row, each in full: what is better than what is compared, and the best of that.
// Of a crowd of equals both put the same.
struct Part {
  bool above, compared;
};

constexpr Part WHOLE = {true, true};
