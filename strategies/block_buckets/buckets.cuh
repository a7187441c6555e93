// Elements as entries of a list, and buckets, evenly wide intervals that they are counted by.
#pragma once
#include "elements.cuh"
#include "pivots.cuh"

typedef Unsigned<ELEMENT_BYTES == 4 ? 8 : 4>::type Entry;  // a word and, where that tells no column, its complement

__device__ __forceinline__ Entry entry_of(Word word, unsigned column) {
  return COLUMN_BITS ? Entry(word) : Entry((unsigned long long)word << 32 | ~column);
}
__device__ __forceinline__ Word word_of(Entry entry) { return COLUMN_BITS ? Word(entry) : Word((unsigned long long)entry >> 32); }
__device__ __forceinline__ unsigned column_of(Entry entry) { return COLUMN_BITS ? ~Word(entry) & COLUMNS : ~Word(entry); }

// Evenly wide intervals, the best first: of words, or of numbers.
template <bool IN_ORDER> constexpr int BUCKETS = IN_ORDER || INTERVALS < 512 ? INTERVALS : 512;

template <bool IN_ORDER, int COUNT = BUCKETS<IN_ORDER>> struct Buckets {

  Word top;      // in the first bucket with all above it
  Word behind;   // the top and 1
  Word step;     // of words: how many buckets 2^32 of them have, or the logarithm of how many words a bucket has
  float number;  // of the top
  float scale;   // buckets of a number, or 0 where they are of words
  Order order;

  // From the word behind the top.
  __device__ __forceinline__ unsigned of_distance(Word distance) const {
    return IN_ORDER ? __umulhi(distance, step) : (distance - 1) >> step;
  }

  __device__ __forceinline__ unsigned of_word(Word word) const { return of_distance(behind - min(word, top)); }

  // The last word of a bucket; `least` where the bucket goes on below it.
  __device__ __forceinline__ Word last_word(unsigned bucket, Word least) const {
    Word distance = 0;
    if (IN_ORDER) {  // no division of 64 bits, which is a call
#pragma unroll 1
      for (Word bit = Word(1) << 31; bit; bit /= 2)
        if (of_distance((distance | bit) + 1) <= bucket) distance |= bit;
    } else {
      distance = (Word(bucket + 1) << step) - 1;
      if (distance >> step != bucket) distance = ~0u;
    }
    return distance < top - least ? top - distance : least;
  }

  __device__ __forceinline__ unsigned of_number(Word word) const {
    const float below = number - number_of(element_of(key_of_word(word), order), order);
    return min(unsigned(fmaxf(below * scale, 0.f)), COUNT - 1);
  }

  __device__ __forceinline__ unsigned operator()(Word word) const { return scale != 0 ? of_number(word) : of_word(word); }
};

// From `least` on; few are above the top. Of numbers where that is asked for and possible.
template <bool IN_ORDER, int COUNT = BUCKETS<IN_ORDER>>
__device__ __forceinline__ Buckets<IN_ORDER, COUNT> buckets_of(Word top, Word least, bool numbers, Order order) {
  constexpr int COUNT_BITS = 31 - __builtin_clz(COUNT);
  const Word range = top - least;
  const Word step = IN_ORDER ? unsigned(fminf(__fdividef(COUNT * 4294967296.f * 0.99999f, float(range) + 1), 4294967040.f))
                             : max(bits_of(range) - COUNT_BITS, 0);
  Buckets<IN_ORDER, COUNT> buckets = {top, top + 1, step, 0, 0, order};
  if (IN_ORDER && numbers && top > least) {
    buckets.number = number_of(element_of(key_of_word(top), order), order);
    const float width = buckets.number - number_of(element_of(key_of_word(least), order), order);
    if (fabsf(width) < 1e38f && fabsf(width) > 1e-30f) buckets.scale = (COUNT - 1) / width;  // no NaN, no infinity
  }
  return buckets;
}

// The bucket of the k-th.
struct Crossing {
  unsigned bucket, before, count;  // entries in better ones, and in it
};

struct Room {
  Entry* entries;    // [CAPACITY]
  unsigned* counts;  // [INTERVALS + 1] of buckets; and [32] of lanes, which do not matter, where elements are numbers
  Exchange& exchange;
  Counters& counters;
};

__device__ __forceinline__ Room room_of(unsigned char* dynamic, Counters& counters, Exchange& exchange) {
  unsigned char* memory = kept(dynamic);
  return {reinterpret_cast<Entry*>(memory), reinterpret_cast<unsigned*>(memory + CAPACITY * sizeof(Entry)), *kept(&exchange),
          *kept(&counters)};
}

template <int COUNT> __device__ __forceinline__ void clear_buckets(const Room& room) {
#pragma unroll 1
  for (unsigned i = threadIdx.x; i <= COUNT; i += THREADS) room.counts[i] = 0;
}

struct Added {
  Crossing crossing;  // its bucket is COUNT where there are too few
  unsigned total;
  bool crowd;         // whether a bucket that matters holds too many to be ranked among each other
};

// Counts to the numbers of entries in better buckets. Ends with a barrier.
template <int COUNT> __device__ __forceinline__ Added add_buckets(const Room& room, unsigned want) {
  constexpr int OWN = COUNT > THREADS ? COUNT / THREADS : 1;  // of a thread
  struct alignas(OWN % 4 ? OWN * 4 : 16) Counts {
    unsigned each[OWN];
  };
  Counts* own = reinterpret_cast<Counts*>(room.counts) + threadIdx.x;
  const bool has = threadIdx.x * OWN < COUNT;
  Counts counts = {};
  if (has) counts = *own;
  unsigned sum = 0, all;
#pragma unroll
  for (int i = 0; i < OWN; i++) sum += counts.each[i];
  unsigned before = scan_lanes(sum, all) - sum;
  if (lane_of() == 0) room.counters.totals[0][warp_of()] = all;
  if (threadIdx.x < 3) room.counters.crossing[threadIdx.x] = threadIdx.x ? 0 : COUNT;
  __syncthreads();
  const unsigned total = lane_of() < WARPS ? room.counters.totals[0][lane_of()] : 0;
  before += __reduce_add_sync(~0u, lane_of() < warp_of() ? total : 0);
  all = __reduce_add_sync(~0u, total);
  bool crowd = false;
#pragma unroll
  for (int i = 0; i < OWN; i++) {
    const unsigned count = counts.each[i];
    crowd |= count > CROWD && before < want;
    if (before < want && want <= before + count) {
      room.counters.crossing[0] = threadIdx.x * OWN + i;
      room.counters.crossing[1] = before, room.counters.crossing[2] = count;
    }
    counts.each[i] = before;
    before += count;
  }
  if (has) *own = counts;
  crowd = __syncthreads_or(crowd);
  const unsigned* crossing = room.counters.crossing;
  return {{crossing[0], crossing[1], crossing[2]}, all, crowd};
}

template <class Answers>
__device__ __forceinline__ void put_word(const Answers& answers, unsigned rank, Entry entry) {
  answers.put(rank, equal_key_of(key_of_word(word_of(entry))), column_of(entry));
}
