// The best k of a row that a block's registers hold, by bucket selection and a counting sort in one: elements that reach a
// guessed cut are counted by buckets, evenly wide intervals of keys; sums of the counts tell the bucket of the k-th and where
// each begins; elements of the buckets up to it go there, and rank among the few of their own.
#pragma once
#include "elements.cuh"
#include "sorting.cuh"

typedef Unsigned<ELEMENT_BYTES == 4 ? 8 : 4>::type Entry;  // a word and, where that tells no column, its complement

__device__ __forceinline__ Entry entry_of(Word word, unsigned column) {
  return COLUMN_BITS ? Entry(word) : Entry((unsigned long long)word << 32 | ~column);
}
__device__ __forceinline__ Word word_of(Entry entry) { return COLUMN_BITS ? Word(entry) : Word((unsigned long long)entry >> 32); }
__device__ __forceinline__ unsigned column_of(Entry entry) { return COLUMN_BITS ? ~Word(entry) & COLUMNS : ~Word(entry); }

// Evenly wide intervals, the best first: of words, or of numbers.
template <bool IN_ORDER> struct Buckets {
  static constexpr int COUNT = IN_ORDER || INTERVALS < 512 ? INTERVALS : 512;

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
    if (IN_ORDER) {
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
template <bool IN_ORDER>
__device__ __forceinline__ Buckets<IN_ORDER> buckets_of(Word top, Word least, bool numbers, Order order) {
  constexpr int COUNT = Buckets<IN_ORDER>::COUNT, COUNT_BITS = 31 - __builtin_clz(COUNT);
  const Word range = top - least;
  const Word step = IN_ORDER ? unsigned(fminf(__fdividef(COUNT * 4294967296.f * 0.99999f, float(range) + 1), 4294967040.f))
                             : max(bits_of(range) - COUNT_BITS, 0);
  Buckets<IN_ORDER> buckets = {top, top + 1, step, 0, 0, order};
  if (IN_ORDER && numbers && top > least) {
    buckets.number = number_of(element_of(key_of_word(top), order), order);
    const float width = buckets.number - number_of(element_of(key_of_word(least), order), order);
    if (fabsf(width) < 1e38f && fabsf(width) > 1e-30f) buckets.scale = (COUNT - 1) / width;  // no NaN, no infinity
  }
  return buckets;
}

constexpr unsigned MOST_OF_BUCKET = CAPACITY / 5 < 128 ? CAPACITY / 5 : 128;  // of the k-th, where there is no order

// The bucket of the k-th.
struct Crossing {
  unsigned bucket, before, count;  // entries in better ones, and in it
};

struct Room {
  Entry* entries;    // [CAPACITY]
  unsigned* counts;  // [INTERVALS + 1] of buckets
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

// The least word of the row's elements, but of keys that are 0. Has two barriers.
template <int OWN> __device__ __forceinline__ Word lowest_word(const Elements<OWN>& elements, const Room& room) {
  const Word lowest = lowest_of(elements);
  __syncthreads();
  if (lane_of() == 0) room.counters.keys[0][warp_of()] = lowest;
  __syncthreads();
  return least_of_lanes(unsigned(room.counters.keys[0][lane_of() < WARPS ? lane_of() : 0]));
}

// Elements that are less than `least` are counted behind the last bucket: that is cheaper than to leave them out.
template <int COUNT, int OWN, class BucketOf>
__device__ __forceinline__ void count_elements(const Elements<OWN>& elements, const Room& room, Word least, BucketOf bucket_of) {
  elements.visit([&](Word word, unsigned) {
    const unsigned bucket = bucket_of(word);
    atomicAdd(&room.counts[word >= least ? bucket : COUNT], 1u);
  });
}

// Those of buckets up to `last` to the places that their buckets have.
template <int OWN, class BucketOf>
__device__ __forceinline__ void place_elements(const Elements<OWN>& elements, const Room& room, Word least, unsigned last,
                                               BucketOf bucket_of) {
  elements.visit_batches([&](const Word* words, const unsigned* columns) {
    unsigned places[VISITED];
#pragma unroll
    for (int i = 0; i < VISITED; i++) {
      const unsigned bucket = bucket_of(words[i]);
      places[i] = words[i] >= least && bucket <= last ? atomicAdd(&room.counts[bucket], 1u) : ~0u;
    }
#pragma unroll
    for (int i = 0; i < VISITED; i++)
      if (places[i] != ~0u) room.entries[places[i]] = entry_of(words[i], columns[i]);
  });
}

template <class Answers>
__device__ __forceinline__ void put_word(const Answers& answers, unsigned rank, Entry entry) {
  const Key key = key_of_word(word_of(entry));
  answers.put(rank, key == SIGN - 1 ? SIGN : key, column_of(entry));
}

// Call `answers.put(rank, key, column)` for the best `want` of the first `count` entries, each by some thread.
template <class BucketOf, class Answers>
__device__ __forceinline__ void rank_entries(const Room& room, unsigned count, unsigned want, bool in_order, BucketOf bucket_of,
                                             const Answers& answers) {
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < count; at += THREADS) {
    const Entry entry = room.entries[at];
    const Word word = word_of(entry);
    unsigned rank = at;
    if (!in_order) {
      const unsigned bucket = bucket_of(word), end = room.counts[bucket];
      rank = bucket ? room.counts[bucket - 1] : 0;
      if (rank >= want) break;
#pragma unroll 1
      for (unsigned first = rank; first < end; first += 4) {
#pragma unroll
        for (int i = 0; i < 4; i++)
          if (first + i < end) rank += room.entries[first + i] > entry;
      }
    }
    if (rank < want) put_word(answers, rank, entry);
  }
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

struct Placed {
  unsigned above, some;
};

// Words that `below` is below to the first places, thread by thread, and others from `least` on to the last MOST_OF_BUCKET. Of few lines
// both are counted first, at once; of many, counting the others takes longer than to place them by a counter. Has a barrier.
template <int OWN>
__device__ __forceinline__ Placed place_unordered(const Elements<OWN>& elements, const Room& room, Word least, Word below) {
  unsigned above = 0, reaching = 0, all;
  Entry* others = room.entries + CAPACITY - MOST_OF_BUCKET;
  if constexpr (OWN <= 2) {
    static_assert(THREADS * Elements<OWN>::COUNT + EDGES < 1 << 16, "two counts share a word");
    const Word bound = min(least, below == ALL_KEYS ? below : below + 1);
    elements.visit([&](Word word, unsigned) { above += word > below, reaching += word >= bound; });
    const unsigned before = sum_before(room, above | (reaching - above) << 16, all);
    unsigned place = before & 0xFFFF, other = before >> 16;
    elements.visit([&](Word word, unsigned column) {
      if (word > below) room.entries[place++] = entry_of(word, column);
      else if (word >= bound) others[other++] = entry_of(word, column);
    });
    return {all & 0xFFFF, all >> 16};
  } else {
    if (threadIdx.x == 0) room.counters.count = 0;
    elements.visit([&](Word word, unsigned) { above += word > below; });
    unsigned place = sum_before(room, above, all);
    elements.visit([&](Word word, unsigned column) {
      if (word > below) room.entries[place++] = entry_of(word, column);
      else if (word >= least) others[atomicAdd(&room.counters.count, 1u)] = entry_of(word, column);
    });
    return {all, 0};
  }
}

// Call `answers.put(place, key, column)` for all words that `below` is below, thread by thread, and for the best of those from `least`
// on, so that there are `want`.
template <int OWN, class Answers>
__device__ __forceinline__ void put_in_any_order(const Elements<OWN>& elements, const Room& room, unsigned want, Word least, Word below,
                                                 const Answers& answers) {
  const Placed placed = place_unordered(elements, room, least, below);
  __syncthreads();
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < placed.above; at += THREADS) put_word(answers, at, room.entries[at]);
  const Entry* some = room.entries + CAPACITY - MOST_OF_BUCKET;
  const unsigned count = OWN <= 2 ? placed.some : room.counters.count;
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < count; at += THREADS) {
    const Entry entry = some[at];
    unsigned rank = placed.above;
#pragma unroll 4
    for (unsigned other = 0; other < count; other++) rank += some[other] > entry;
    if (rank < want) put_word(answers, rank, entry);
  }
}

// Call `answers.put(rank, key, column)` for the best k of a row of which every thread has at most so many lines, at least one, each by
// some thread.
template <bool IN_ORDER, int OWN, int ASKED, class Answers>
__device__ __forceinline__ void select_held(const Row& row, const First<ASKED>& asked, unsigned k, bool smallest, const Room& room,
                                            const Answers& answers) {
  constexpr int COUNT = Buckets<IN_ORDER>::COUNT;
  clear_buckets<COUNT>(room);
  Elements<OWN> elements = ask_for_elements<OWN>(row, asked);
  Plan plan = plan_of<Elements<OWN>::COUNT>(k, row);
  if (OWN <= 2) asm volatile("" : "+r"(plan.group), "+r"(plan.ranks.in_warp), "+r"(plan.ranks.in_block));  // while lines are on their way
  make_keys(elements, row, smallest);
  const bool most_wanted = OWN <= 4 && 2 * k > row.cols;  // of more lines a thread has no registers for that
  const Guess guess = most_wanted ? extremes_of(elements, room.exchange, row.order) : guess_of(elements, room.exchange, k, row, plan);
  const Word most = least_word(guess.top) | COLUMNS;
  Word least = least_word(guess.cut), top = most, below = 0;
  bool numbers = IN_ORDER && (guess.cut == 0 || ((guess.cut ^ guess.top) & SIGN) || guess.top - guess.cut > FEW_OCTAVES);
  unsigned want = k, crowds = 0;
  Crossing crossing;
  Buckets<IN_ORDER> buckets;
  bool crowd;
#pragma unroll 1
  for (;;) {
    const bool all = least < least_word(1);
    if (all) least = most_wanted ? lowest_left(room.exchange) : lowest_word(elements, room);
    if (top < least) top = ALL_KEYS;
    buckets = buckets_of<IN_ORDER>(top, least, numbers, row.order);
    if (!IN_ORDER || buckets.scale == 0) count_elements<COUNT>(elements, room, least, [&](Word word) { return buckets.of_word(word); });
    else count_elements<COUNT>(elements, room, least, [&](Word word) { return buckets.of_number(word); });
    __syncthreads();
    const Added added = add_buckets<COUNT>(room, want);
    crossing = added.crossing, crowd = added.crowd;
    if (crossing.bucket == COUNT && all) {  // all others are NaN
      write_ties<1>(row, room.exchange, 0, want - added.total, added.total, answers);
      if (added.total == 0) return;
      want = added.total, crossing = {COUNT - 1, want, 0}, below = least - 1;
      break;
    }
    if (crossing.bucket == COUNT) {  // the guess was too high
      least = 0;
    } else if (IN_ORDER ? crossing.before + crossing.count > CAPACITY : crossing.count > MOST_OF_BUCKET) {
      const Word first = crossing.bucket ? buckets.last_word(crossing.bucket - 1, least) - 1 : top;
      const Word last = buckets.last_word(crossing.bucket, least);
      if (IN_ORDER && buckets.scale != 0) {
        numbers = false;
      } else if (crossing.bucket == 0 && top != ALL_KEYS) {  // perhaps of what is above the top
        least = last, top = ALL_KEYS;
      } else if (first > last) {
        least = last, top = crossing.bucket ? first + 1 : top;
      } else {
        const Key tie = key_of_word(first);
        write_ties<1>(row, room.exchange, tie == SIGN - 1 ? SIGN : tie, want - crossing.before, crossing.before, answers);
        want = crossing.before;
        if (!want) return;
        below = first;
        if (!IN_ORDER) break;
        least = first + 1, top = most;
      }
    } else if (IN_ORDER && crowd && crowds < 2) {
      crowds++;
      if (buckets.scale == 0) least = buckets.last_word(crossing.bucket, least);
      numbers = buckets.scale == 0, top = most;
    } else {
      break;
    }
    __syncthreads();
    clear_buckets<COUNT>(room);
    __syncthreads();
  }
  if (IN_ORDER) {
    const unsigned count = crossing.before + crossing.count, last = crossing.bucket;
    if (buckets.scale == 0) place_elements(elements, room, least, last, [&](Word word) { return buckets.of_word(word); });
    else place_elements(elements, room, least, last, [&](Word word) { return buckets.of_number(word); });
    if (crowd) sort_entries(room.entries, count);
    else __syncthreads();
    if (buckets.scale == 0) rank_entries(room, count, want, crowd, [&](Word word) { return buckets.of_word(word); }, answers);
    else rank_entries(room, count, want, crowd, [&](Word word) { return buckets.of_number(word); }, answers);
  } else {
    Word last = ALL_KEYS;
    if (below == 0) {
      last = buckets.last_word(crossing.bucket, least);
      below = crossing.bucket ? buckets.last_word(crossing.bucket - 1, least) - 1 : ALL_KEYS;
    }
    put_in_any_order(elements, room, want, last, below, answers);
  }
}
