// The best k of a row that a block's registers hold, by bucket selection and a counting sort in one: elements that reach a
// guessed cut are counted by buckets; sums of the counts tell the bucket of the k-th and where each begins; elements of the
// buckets up to it go there, and rank among the few of their own.
#pragma once
#include "numbers.cuh"

// The least word of the row's elements, but of padding. Has two barriers.
template <int OWN> __device__ __forceinline__ Word lowest_word(const Elements<OWN>& elements, const Room& room, Order order) {
  const Word lowest = lowest_of(elements, order);
  __syncthreads();
  if (lane_of() == 0) room.counters.keys[0][warp_of()] = lowest;
  __syncthreads();
  return least_of_lanes(unsigned(room.counters.keys[0][lane_of() < WARPS ? lane_of() : 0]));
}

struct Placed {
  unsigned above, some;
};

// Words that `below` is below to the first places, thread by thread, and others from `least` on to the last MOST_OF_BUCKET. Of few lines
// both are counted first, at once, and those of the part alone are put; of many, counting the others takes longer than to place them by a
// counter. Has a barrier.
template <int OWN>
__device__ __forceinline__ Placed place_unordered(const Elements<OWN>& elements, const Room& room, Word least, Word below, Part part) {
  unsigned above = 0, reaching = 0, all;
  Entry* others = room.entries + CAPACITY - MOST_OF_BUCKET;
  if constexpr (OWN <= 2) {
    static_assert(THREADS * Elements<OWN>::COUNT + EDGES < 1 << 16, "two counts share a word");
    const Word bound = min(least, below == ALL_KEYS ? below : below + 1);
    elements.visit([&](Word word, unsigned) { above += word > below, reaching += word >= bound; });
    const unsigned before = sum_before(room, above | (reaching - above) << 16, all);
    unsigned place = before & 0xFFFF, other = before >> 16;
    if (part.above && part.compared) {
      elements.visit([&](Word word, unsigned column) {
        if (word > below) room.entries[place++] = entry_of(word, column);
        else if (word >= bound) others[other++] = entry_of(word, column);
      });
    } else if (part.above) {
      elements.visit([&](Word word, unsigned column) {
        if (word > below) room.entries[place++] = entry_of(word, column);
      });
    } else {
      elements.visit([&](Word word, unsigned column) {
        if (word <= below && word >= bound) others[other++] = entry_of(word, column);
      });
    }
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
// on, so that there are `want`; or for a part of these.
template <int OWN, class Answers>
__device__ __forceinline__ void put_in_any_order(const Elements<OWN>& elements, const Room& room, unsigned want, Word least, Word below,
                                                 const Answers& answers, Part part) {
  const Placed placed = place_unordered(elements, room, least, below, part);
  __syncthreads();
  if (part.above) {
#pragma unroll 1
    for (unsigned at = threadIdx.x; at < placed.above; at += THREADS) put_word(answers, at, room.entries[at]);
  }
  if (!part.compared) return;
  put_best_of(room, OWN <= 2 ? placed.some : room.counters.count, want, placed.above, answers);
}

// What selection knows when keys are made.
template <int OWN> struct HeldRow {
  Elements<OWN> elements;
  Guess guess;
  bool most_wanted;  // what is found about extremes is left in the exchange

  __device__ __forceinline__ Word most() const { return least_word(guess.top) | COLUMNS; }
  __device__ __forceinline__ Word lowest(const Room& room, Order order) const {
    return most_wanted ? lowest_left(room.exchange) : lowest_word(elements, room, order);
  }
};

// Call `answers.put(rank, key, column)` for the best k, each by some thread. What is misled is left to `select_again`.
template <int OWN, class Answers>
__device__ __forceinline__ void select_in_order(const Row& row, const HeldRow<OWN>& held, unsigned k, const Room& room, const Answers& answers) {
  constexpr int COUNT = BUCKETS<true>;
  const Key cut = held.guess.cut, top = held.guess.top;
  Word least = least_word(cut);
  bool numbers = better_by_numbers(top, cut), all = cut == 0;
  if (all) least = held.lowest(room, row.order);
  if (MOST_LISTED > 0 && !all && k <= MOST_LISTED) {
    if (select_listed(row, held.elements, ByKeys{cut}, cut, held.most(), numbers, k, room, answers)) return;
    least = lowest_word(held.elements, room, row.order), all = numbers = true;
  }
  bool crowd;
  Crossing crossing;
  Buckets<true> buckets;
#pragma unroll 1
  for (;;) {
    buckets = buckets_of<true>(held.most() < least ? ALL_KEYS : held.most(), least, numbers, row.order);
    if (buckets.scale == 0) count_elements<COUNT>(held.elements, room, least, [&](Word word) { return buckets.of_word(word); });
    else count_elements<COUNT>(held.elements, room, least, [&](Word word) { return buckets.of_number(word); });
    __syncthreads();
    const Added added = add_buckets<COUNT>(room, k);
    crossing = added.crossing, crowd = added.crowd;
    if (crossing.bucket < COUNT || all) break;
    least = lowest_word(held.elements, room, row.order), all = numbers = true;  // the guess was too high
    __syncthreads();
    clear_buckets<COUNT>(room);
    __syncthreads();
  }
  const bool certain = crossing.bucket < COUNT;
  const unsigned count = crossing.before + crossing.count, last = crossing.bucket;
  if (certain && count <= CAPACITY) {
    if (buckets.scale == 0) place_elements(held.elements, room, least, last, [&](Word word) { return buckets.of_word(word); });
    else place_elements(held.elements, room, least, last, [&](Word word) { return buckets.of_number(word); });
    __syncthreads();
    if (crowd && numbers) rank_list(room, count, k, row.order, answers);  // of fewer elements other buckets may do
    else if (crowd) rank_crowds(room, buckets, count, k, answers);
    else if (buckets.scale == 0) rank_entries(room, count, k, [&](Word word) { return buckets.of_word(word); }, answers);
    else rank_entries(room, count, k, [&](Word word) { return buckets.of_number(word); }, answers);
    return;
  }
  Within within = {ALL_KEYS, certain ? least : least_word(1), certain, false, 0};
  if (certain && buckets.scale == 0) {
    within.bottom = buckets.last_word(last, least);
    if (last) within.top = buckets.last_word(last - 1, least) - 1;
    within.before = crossing.before;
  }
  select_again<OWN>(row, within, k, room, answers);
}

// The same in no order, perhaps for a part of them.
template <int OWN, class Answers>
__device__ __forceinline__ void select_in_any_order(const Row& row, const HeldRow<OWN>& held, unsigned k, const Room& room,
                                                    const Answers& answers, Part part) {
  constexpr int COUNT = BUCKETS<false>;
  Word least = least_word(held.guess.cut), top = held.most(), below = 0;
  unsigned want = k;
  Crossing crossing;
  Buckets<false> buckets;
#pragma unroll 1
  for (;;) {
    const bool all = least < least_word(1);
    if (all) least = held.lowest(room, row.order);
    if (top < least) top = ALL_KEYS;
    buckets = buckets_of<false>(top, least, false, row.order);
    count_elements<COUNT>(held.elements, room, least, [&](Word word) { return buckets.of_word(word); });
    __syncthreads();
    const Added added = add_buckets<COUNT>(room, want);
    crossing = added.crossing;
    if (crossing.bucket == COUNT && least == least_word(1)) {  // all others are NaN
      write_ties(row, room.exchange, 0, want - added.total, added.total, answers);
      if (added.total == 0) return;
      want = added.total, crossing = {COUNT - 1, want, 0}, below = least - 1;
      break;
    }
    if (crossing.bucket == COUNT) {  // the guess was too high, or some of the padding is wanted
      least = all ? least_word(1) : 0;
    } else if (crossing.count > MOST_OF_BUCKET) {
      const Word first = crossing.bucket ? buckets.last_word(crossing.bucket - 1, least) - 1 : top;
      const Word last = buckets.last_word(crossing.bucket, least);
      if (crossing.bucket == 0 && top != ALL_KEYS) {  // perhaps of what is above the top
        least = last, top = ALL_KEYS;
      } else if (first > last) {
        least = last, top = crossing.bucket ? first + 1 : top;
      } else {
        write_ties(row, room.exchange, equal_key_of(key_of_word(first)), want - crossing.before, crossing.before, answers);
        want = crossing.before;
        if (!want) return;
        below = first;
        break;
      }
    } else {
      break;
    }
    __syncthreads();
    clear_buckets<COUNT>(room);
    __syncthreads();
  }
  Word last = ALL_KEYS;
  if (below == 0) {
    last = buckets.last_word(crossing.bucket, least);
    below = crossing.bucket ? buckets.last_word(crossing.bucket - 1, least) - 1 : ALL_KEYS;
  }
  put_in_any_order(held.elements, room, want, last, below, answers, part);
}

// Call `answers.put(rank, key, column)` for the best k of a row of which every thread has at most so many lines, at least one, each by
// some thread; in no order perhaps for a part of them.
template <bool IN_ORDER, int OWN, int ASKED, class Answers>
__device__ __forceinline__ void select_held(const Row& row, const First<ASKED>& asked, unsigned k, bool smallest, const Room& room,
                                            const Answers& answers, Part part = WHOLE) {
  HeldRow<OWN> held;
  held.elements = ask_for_elements<OWN>(row, asked, NUMBERS ? worst_number(smallest) : 0);
  clear_buckets<BUCKETS<IN_ORDER>>(room);  // while lines are on their way
  if (MOST_LISTED > 0 && threadIdx.x == 0) room.counters.count = 0;
  Plan plan = plan_of<Elements<OWN>::COUNT>(k, row);
  if (OWN <= 2) asm volatile("" : "+r"(plan.looks.each), "+r"(plan.looks.step), "+r"(plan.ranks.in_warp), "+r"(plan.ranks.in_block));  // while lines are on their way
  bool guessed = false;
  if constexpr (NUMBERS) {
    find_edge(held.elements, row, worst_number(smallest), [](Element bits) { return bits; });
    if constexpr (IN_ORDER) {
      return select_numbers_in_order(row, held.elements, plan, k, smallest, room, answers);
    } else if (OWN > 4 || 2 * k <= row.cols) {
      held.guess = guess_of<true>(held.elements, room.exchange, k, row, plan, smallest), guessed = true;
      if (select_numbers_in_any_order(row, held.elements, held.guess, k, smallest, room, answers)) return;
    }
  }
  make_keys(held.elements, row, smallest);
  held.most_wanted = OWN <= 4 && 2 * k > row.cols;  // of more lines a thread has no registers for that
  if (!guessed)
    held.guess = held.most_wanted ? extremes_of(held.elements, room.exchange, row.order)
                                  : guess_of<false>(held.elements, room.exchange, k, row, plan);
  if (IN_ORDER) select_in_order(row, held, k, room, answers);
  else select_in_any_order(row, held, k, room, answers, part);
}
