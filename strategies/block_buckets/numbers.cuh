// Rows of 32-bit floats by the numbers that they are: operations of floats, which are issued twice as fast as those of integers, tell the interval
// of an element, and keys are made of what is wanted alone. Where that misleads, keys are made of all.
#pragma once
#include "listed.cuh"

constexpr unsigned MOST_OF_BUCKET = CAPACITY / 5 < 128 ? CAPACITY / 5 : 128;  // of the k-th, where there is no order

// Call `answers.put(rank, key, column)` for the best of what is compared behind the `above` best, so that there are `want`.
template <class Answers>
__device__ __forceinline__ void put_best_of(const Room& room, unsigned count, unsigned want, unsigned above, const Answers& answers) {
  const Entry* some = room.entries + CAPACITY - MOST_OF_BUCKET;
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < count; at += THREADS) {
    const Entry entry = some[at];
    unsigned rank = above;
#pragma unroll 4
    for (unsigned other = 0; other < count; other++) rank += some[other] > entry;
    if (rank < want) put_word(answers, rank, entry);
  }
}

// Evenly wide intervals of numbers between a top and a cut, the best first: all above the top is in the first, and what the cut is no worse than in
// one behind the last.
template <bool IN_ORDER> struct NumberBuckets {
  static constexpr int COUNT = BUCKETS<IN_ORDER>;
  static constexpr float TWO = 2, UNIT = 1.f / (1 << 22);  // from two on a float's bits are as many more as it has units more
  static constexpr unsigned FIRST = 0x40000000;            // the bits of two, of which four times are no bits

  // How far an element is on the way: from the top to the cut, or of the smallest back, since 0 is made of NaN, which is the best or the worst.
  float slope, offset;
  float turn, from;  // units of the way, and of its start
  float sign;        // by which the largest is the best
  Order order;

  __device__ __forceinline__ float way(Word bits) const { return __saturatef(fmaf(__uint_as_float(bits), slope, offset)); }

  // FIRST and the interval.
  __device__ __forceinline__ unsigned mark(Word bits) const { return __float_as_uint(__fmaf_rz(way(bits), turn, TWO + from)); }

  // Negative where an element's interval is before one.
  __device__ __forceinline__ float before(Word bits, float units) const { return fmaf(way(bits), turn, from - units); }

  __device__ __forceinline__ unsigned* counter(const Room& room, unsigned mark) const {
    return reinterpret_cast<unsigned*>(reinterpret_cast<char*>(room.counts) + 4 * mark);
  }

  // The key of an element that is no NaN where the smallest are the best. A sum with 0 makes +0 of -0, and all NaN one.
  __device__ __forceinline__ Key key(Word bits) const {
    float number;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(number) : "f"(__uint_as_float(bits)), "f"(sign), "f"(0.f));
    return __float_as_uint(number) ^ (unsigned(__float_as_int(number) >> 31) | SIGN);
  }

  __device__ __forceinline__ unsigned mark_of_key(Key key) const { return mark(element_of(key, order)); }

  // As `Buckets` tell it.
  __device__ __forceinline__ unsigned operator()(Word word) const { return mark_of_key(key_of_word(word)) - FIRST; }
};

// The numbers of a top and a cut, below which there is to be a part more of what is between them.
struct Ends {
  float top, cut;
};

__device__ __forceinline__ Ends ends_of(Guess guess, float more, Order order) {
  const float top = number_of(element_of(guess.top, order), order), cut = number_of(element_of(guess.cut, order), order);
  return {top, cut - more * (top - cut)};
}

// Whether there are such intervals: numbers have room between the two, and so much that rounding moves none by more than a part of it. What is the same
// for all threads is kept in uniform registers, of which an instruction has one: factors are read from memory that each warp has for itself, so that
// they are in others.
template <bool IN_ORDER>
__device__ __forceinline__ bool numbers_between(Ends ends, Order order, bool smallest, Exchange& exchange, NumberBuckets<IN_ORDER>& numbers) {
  const float width = ends.top - ends.cut, inverse = __fdividef(1.f, width), units = numbers.COUNT * numbers.UNIT;
  if (smallest) numbers = {inverse, -ends.cut * inverse, -units, units, -1, order};
  else numbers = {-inverse, ends.top * inverse, units, 0, 1, order};
  float* own = reinterpret_cast<float*>(exchange.maxima[warp_of()]);
  if (lane_of() == 0) own[0] = numbers.slope, own[1] = numbers.turn;
  __syncwarp();
  numbers.slope = own[0], numbers.turn = own[1];
  return fabsf(width) < 1e37f && fabsf(width) > 1e-30f && fabsf(numbers.offset) < 1e5f;  // no inverse is 0
}

// What all that intervals hold reaches, however its way is rounded.
__device__ __forceinline__ Key surely_reached(Ends ends, float offset, Order order) {
  const float cut = ends.cut - (ends.top - ends.cut) * (1e-5f + 1e-6f * fabsf(offset));
  return keys_of(__float_as_uint(cut), order);
}

// An infinity, which no cut is worse than.
__device__ __forceinline__ Word worst_number(bool smallest) { return smallest ? 0x7F800000 : 0xFF800000; }

// The least and the largest that are no infinities, if there are any, in place of a guess. Has a barrier.
template <int OWN> __device__ __forceinline__ Guess extremes_of_numbers(const Elements<OWN>& elements, Exchange& exchange, Order order) {
  const float infinity = __uint_as_float(0x7F800000);
  float least = infinity, most = -infinity;
  elements.visit([&](Word bits, unsigned) {
    const float number = __uint_as_float(bits);
    if (fabsf(number) < infinity) least = fminf(least, number), most = fmaxf(most, number);
  });
  const Key one = keys_of(__float_as_uint(least), order), other = keys_of(__float_as_uint(most), order);
  const Key top = largest_of_lanes(least <= most ? max(one, other) : Key(0)), cut = least_of_lanes(least <= most ? min(one, other) : ONES);
  if (lane_of() == 0) exchange.guesses[warp_of()] = cut, exchange.tops[warp_of()] = top;
  __syncthreads();
  const int warp = lane_of() < WARPS ? lane_of() : 0;
  return {least_of_lanes(exchange.guesses[warp]), largest_of_lanes(exchange.tops[warp])};
}

template <int OWN, bool IN_ORDER>
__device__ __forceinline__ Added count_numbers(const Elements<OWN>& elements, const NumberBuckets<IN_ORDER>& numbers, const Room& room, unsigned want) {
  elements.visit([&](Word bits, unsigned) { atomicAdd(numbers.counter(room, numbers.mark(bits)), 1u); });
  __syncthreads();
  return add_buckets<NumberBuckets<IN_ORDER>::COUNT>(room, want);
}

// Those of intervals up to the `last` mark to the places that these have, as `place_visited` does. A lane that has none asks a counter that does
// not matter: a branch takes longer.
template <int SIZE>
__device__ __forceinline__ void place_numbers(const Visited<SIZE>& visited, const NumberBuckets<true>& numbers, const Room& room, unsigned last) {
  unsigned places[SIZE];
  bool takes[SIZE];
#pragma unroll
  for (int i = 0; i < SIZE; i++) {
    const unsigned mark = numbers.mark(visited.words[i]);
    takes[i] = mark <= last;
    places[i] = atomicAdd(numbers.counter(room, takes[i] ? mark : numbers.FIRST + numbers.COUNT + 1 + lane_of()), 1u);
  }
#pragma unroll
  for (int i = 0; i < SIZE; i++)
    if (takes[i]) room.entries[places[i]] = entry_of(numbers.key(visited.words[i]), visited.columns[i]);
}

constexpr int COMPARED = 4;  // entries at once

// As `rank_entries`. Behind an interval are others, whose entries are worse, and behind the last COMPARED of 0: none is better.
template <class Answers>
__device__ __forceinline__ void rank_numbers(const Room& room, const NumberBuckets<true>& numbers, unsigned count, unsigned want, const Answers& answers) {
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < count; at += THREADS) {
    const Entry entry = room.entries[at];
    const unsigned mark = numbers.mark_of_key(key_of_word(word_of(entry)));
    const unsigned* upto = numbers.counter(room, mark);
    unsigned first = mark != numbers.FIRST ? upto[-1] : 0, rank = first;
    if (first >= want) break;
    const unsigned end = *upto;
#pragma unroll 1
    do {
#pragma unroll
      for (int i = 0; i < COMPARED; i++) rank += room.entries[first + i] > entry;
      first += COMPARED;
    } while (first < end);
    if (rank < want) put_word(answers, rank, entry);
  }
}

template <class Answers>
__device__ __noinline__ void rank_crowded_numbers(Room its, NumberBuckets<true> numbers, unsigned count, unsigned want, Answers answers) {
  rank_crowds_of(kept_room(its), [&](Entry entry) { return numbers(word_of(entry)); }, count, want, answers);
}

// Which elements reach a cut, as `ByKeys` tells: by the sign of a sum that is the same for both zeros, and not negative of NaN, which is the best or the
// worst.
struct ByNumbers {
  float less;   // what is added to numbers, so that the sign tells
  Word others;  // ONES where those that are not negative then reach the cut

  __device__ __forceinline__ ByNumbers(Key cut, Order order, bool smallest) : others(smallest ? 0 : ONES) {
    less = 0.f - number_of(element_of(cut - smallest, order), order);  // of the smallest those do that are less than the next
  }

  // Not where what is no element would reach the cut, too, or all NaN.
  __device__ __forceinline__ bool possible() const { return less < __uint_as_float(0x7F800000); }

  __device__ __forceinline__ unsigned sum(Word bits) const {
    float sum;
    asm("add.f32 %0, %1, %2;" : "=f"(sum) : "f"(__uint_as_float(bits)), "f"(less));
    return __float_as_uint(sum);
  }

  template <int OWN> __device__ __forceinline__ unsigned among(const Elements<OWN>& elements, int) const {
    constexpr int COUNT = Elements<OWN>::COUNT;
    static_assert(COUNT <= 32, "an element has a bit");
    unsigned negative = 0, upper = 0;  // two, since each waits for the one before
#pragma unroll
    for (int i = COUNT / 2 - 1; i >= 0; i--) {
      negative = __funnelshift_l(sum(elements.words[i]), negative, 1);
      upper = __funnelshift_l(sum(elements.words[i + COUNT / 2]), upper, 1);
    }
    return ((upper << COUNT / 2 | negative) ^ others) & ~0u >> (32 - COUNT);
  }
  template <int OWN> __device__ __forceinline__ bool edge(const Elements<OWN>& elements) const {
    return threadIdx.x < EDGES && (sum(elements.edge) ^ others) >> 31;
  }
};

// Where too few reach the cut, another is tried that is lower by half of its distance to the top: of more lines a thread alone, whose code is no slower
// for it.
template <int OWN> constexpr bool TRIES_ANOTHER = OWN > 4;

// Call `answers.put(rank, key, column)` for the best k, few enough to be listed first, each by some thread. Returns whether enough reach a cut. Begins with
// a count of 0.
template <int OWN, class Answers>
__device__ __forceinline__ bool list_numbers(const Row& row, const Elements<OWN>& elements, Guess guess, unsigned k, bool smallest, const Room& room,
                                             const Answers& answers) {
#pragma unroll 1
  for (bool last = !TRIES_ANOTHER<OWN>;; last = true) {
    const ByNumbers reach(guess.cut, row.order, smallest);
    if (!reach.possible()) return false;
    if (select_listed(row, elements, reach, guess.cut, guess.top, better_by_numbers(guess.top, guess.cut), k, room, answers)) return true;
    if (last) return false;
    guess.cut = keys_of(__float_as_uint(ends_of(guess, 0.5f, row.order).cut), row.order);
    __syncthreads();
    if (threadIdx.x == 0) room.counters.count = 0;
    __syncthreads();
  }
}

// The same of any k, by counts of all, between extremes or a guess, below which there is a part more than between them. Where more are counted than the
// list has room for, a key is told that enough reach.
template <int OWN, class Answers>
__device__ __forceinline__ bool count_and_place(const Row& row, const Elements<OWN>& elements, Guess guess, float more, unsigned k, bool smallest,
                                                const Room& room, const Answers& answers, Key& reached) {
  NumberBuckets<true> numbers;
  Ends ends = ends_of(guess, more, row.order);
#pragma unroll 1
  for (bool last = !TRIES_ANOTHER<OWN>;; last = true) {
    if (!numbers_between(ends, row.order, smallest, room.exchange, numbers)) return false;
    if (threadIdx.x < 32) room.counts[numbers.COUNT + 1 + threadIdx.x] = 0;
    const Added added = count_numbers(elements, numbers, room, k);
    const unsigned bucket = added.crossing.bucket, count = added.crossing.before + added.crossing.count;
    if (bucket < numbers.COUNT && count <= CAPACITY - COMPARED) {
      elements.template visit_batches<VISITED>([&](const auto& visited) { place_numbers(visited, numbers, room, numbers.FIRST + bucket); });
      if (threadIdx.x < COMPARED) room.entries[count + threadIdx.x] = 0;
      __syncthreads();
      if (added.crowd) rank_crowded_numbers(room, numbers, count, k, answers);
      else rank_numbers(room, numbers, count, k, answers);
      return true;
    }
    if (bucket < numbers.COUNT) {
      reached = surely_reached(ends, numbers.offset, row.order);
      return false;
    }
    if (last) return false;
    ends.cut -= 0.5f * (ends.top - ends.cut);
    __syncthreads();
    clear_buckets<numbers.COUNT>(room);
    __syncthreads();
  }
}

// The same in one way or the other. Of more than half of the row there is no guess: intervals are between its extremes, for which more lines a thread leave
// no registers. What misleads numbers is left to `select_again`.
template <int OWN, class Answers>
__device__ __forceinline__ void select_numbers_in_order(const Row& row, const Elements<OWN>& elements, const Plan& plan, unsigned k, bool smallest,
                                                        const Room& room, const Answers& answers) {
  const bool all = OWN <= 4 && 2 * k > row.cols;
  Guess guess = all ? extremes_of_numbers(elements, room.exchange, row.order)
                    : guess_of<true>(elements, room.exchange, k, row, plan, smallest);
  guess.cut = min(guess.cut, SIGN | infinity_of(row.order));  // which NaN reach, too
  Key reached = 0;
  const bool listed = MOST_LISTED > 0 && k <= MOST_LISTED && !all;
  if (listed ? list_numbers(row, elements, guess, k, smallest, room, answers)
             : count_and_place(row, elements, guess, all ? 0.001f : 0.1f, k, smallest, room, answers, reached))
    return;
  const ByNumbers reach(guess.cut, row.order, smallest);
  unsigned count = 0;
  if (reach.possible()) sum_before(room, __popc(reach.among(elements, 0)) + reach.edge(elements), count);
  if (count >= k) reached = guess.cut, count = 0;  // an element's, perhaps of many
  select_again<OWN>(row, {count ? least_word(guess.cut) - 1 : ALL_KEYS, least_word(reached ? reached : Key(1)), reached != 0, false, count}, k, room, answers);
}

// As `put`, of an element and not of its key.
template <class Answers>
__device__ __forceinline__ void put_as_it_is(const Answers& answer, unsigned rank, Word bits, unsigned column) {
  if (answer.values) {
    answer.values[answer.first + rank] = Element(bits);
    static_cast<long long*>(answer.indices)[answer.first + rank] = column;
  } else {
    static_cast<int*>(answer.indices)[answer.first + rank] = int(column);
  }
}

// In any order: what is better than the interval of the k-th goes out thread by thread, and of that interval the best. Returns whether it did: not
// where too many or too few reach the cut, as `crossing` tells.
template <int OWN, class Answers>
__device__ __forceinline__ bool put_unordered_numbers(const Row& row, const Elements<OWN>& elements, const NumberBuckets<false>& numbers, unsigned k,
                                                      const Room& room, const Answers& answers, Crossing& crossing) {
  crossing = count_numbers(elements, numbers, room, k).crossing;
  if (crossing.bucket == numbers.COUNT || crossing.count > MOST_OF_BUCKET) return false;
  constexpr int COUNT = Elements<OWN>::COUNT;
  static_assert(COUNT <= 32, "an element has a bit");
  const float first = float(crossing.bucket) * numbers.UNIT, end = first + numbers.UNIT;
  unsigned above = 0, reaching = 0;  // the first element's bit is the highest
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    above = __funnelshift_l(__float_as_uint(numbers.before(elements.words[i], first)), above, 1);
    reaching = __funnelshift_l(__float_as_uint(numbers.before(elements.words[i], end)), reaching, 1);
  }
  unsigned some = reaching & ~above, edge_above = 0, edge_some = 0, all;
  if (elements.edges && threadIdx.x < EDGES) {
    edge_above = numbers.before(elements.edge, first) < 0;
    edge_some = !edge_above && numbers.before(elements.edge, end) < 0;
  }
  if (threadIdx.x == 0) room.counters.count = 0;
  unsigned place = sum_before(room, __popc(above) + edge_above, all);
  unsigned* columns = reinterpret_cast<unsigned*>(room.entries);
  if (answers.values) {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      if (above >> (COUNT - 1 - i) & 1) room.entries[place++] = entry_of(elements.words[i], elements.column(i));
    if (edge_above) room.entries[place] = entry_of(elements.edge, elements.edge_column);
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      if (above >> (COUNT - 1 - i) & 1) columns[place++] = elements.column(i);
    if (edge_above) columns[place] = elements.edge_column;
  }
  Entry* others = room.entries + CAPACITY - MOST_OF_BUCKET;
  const auto compare = [&](unsigned column) {  // the caches have it
    others[atomicAdd(&room.counters.count, 1u)] = entry_of(keys_of(row.data()[column], row.order), column);
  };
#pragma unroll 1
  for (; some; some &= some - 1) compare(elements.column(COUNT - __ffs(some)));
  if (edge_some) compare(elements.edge_column);
  __syncthreads();
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < all; at += THREADS) {
    if (answers.values) put_as_it_is(answers, at, word_of(room.entries[at]), column_of(room.entries[at]));
    else put_as_it_is(answers, at, 0, columns[at]);
  }
  put_best_of(room, room.counters.count, k, all, answers);
  return true;
}

// The same of a guess. Returns whether numbers suffice: if not, counts are clear, and the guess is 0 where too few reached it.
template <int OWN, class Answers>
__device__ __forceinline__ bool select_numbers_in_any_order(const Row& row, const Elements<OWN>& elements, Guess& guess, unsigned k, bool smallest,
                                                            const Room& room, const Answers& answers) {
  NumberBuckets<false> numbers;
  if (!numbers_between(ends_of(guess, 0, row.order), row.order, smallest, room.exchange, numbers)) return false;
  Crossing crossing;
  if (put_unordered_numbers(row, elements, numbers, k, room, answers, crossing)) return true;
  if (crossing.bucket == numbers.COUNT) guess.cut = 0;  // that was too high
  __syncthreads();
  clear_buckets<numbers.COUNT>(room);
  __syncthreads();
  return false;
}
