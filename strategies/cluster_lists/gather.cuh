// The best k of a row that the registers of a cluster hold: every block lists what reaches a cut of its own and sends it to
// all others; each then has the lists of all, and ranks and writes its share of the answer.
#pragma once
#include "again.cuh"
#include "few.cuh"
#include "listed.cuh"

// The cut of a block, and how many of its elements reach it: more than LIST_ROOM where they are not all listed.
struct Listed {
  Guess guess;
  unsigned count;
};

// Send `count` groups of words to where another block has what this block has at `place`, by `threads` threads of which this is number `own`.
__device__ __forceinline__ void send_words(unsigned* place, const unsigned* words, unsigned count, Signal* sent, unsigned to, unsigned own, unsigned threads) {
#pragma unroll 1
  for (unsigned at = own; at < count; at += threads) send(reinterpret_cast<uint4*>(place) + at, reinterpret_cast<const uint4*>(words)[at], sent, to);
}

// In how many groups of four words elements are sent.
__device__ __forceinline__ unsigned groups_of(unsigned count) { return (count + 3) / 4; }

// Send the elements of the block to all others.
template <class Blocks> __device__ __forceinline__ void send_listed(const Room& room, unsigned count) {
  constexpr unsigned SENDERS = THREADS / Blocks::COUNT;  // threads for each of the others
  const unsigned to = threadIdx.x / SENDERS, own = threadIdx.x % SENDERS, segment = Blocks::own() * SEGMENT<Blocks>;
  if (to == Blocks::own()) return;
  send_words(room.sent.bits + segment, room.listed.bits, groups_of(count), &room.told.sent, to, own, SENDERS);
  send_words(room.sent.columns + segment, room.listed.columns, groups_of(count), &room.told.sent, to, own, SENDERS);
}

// By one thread, before the others may tell or send.
template <class Blocks> __device__ __forceinline__ void expect_others(Told& told) {
  begin_signal(&told.told), begin_signal(&told.sent);
  expect(&told.told, Blocks::COUNT * (sizeof(unsigned) + 2 * sizeof(Key)));
}

// What all blocks have told.
struct All {
  Key cut, least;  // the highest and the lowest
  Key top;
  unsigned most;   // elements of one
};

// Tell all blocks how many elements this one has, its cut, and the largest key that it has looked at, and send them the elements if they
// fit; and wait for what the others tell and send.
template <class Blocks> __device__ __forceinline__ All tell_all(const Room& room, Listed listed) {
  Told& told = room.told;
  const unsigned own = Blocks::own();
  if constexpr (Blocks::COUNT == 1) return {listed.guess.cut, listed.guess.cut, listed.guess.top, listed.count};
  if (listed.count <= SEGMENT<Blocks>) send_listed<Blocks>(room, listed.count);
  if (threadIdx.x < Blocks::COUNT) {
    send(&told.counts[own], listed.count, &told.told, threadIdx.x);
    send(&told.cuts[own], listed.guess.cut, &told.told, threadIdx.x);
    send(&told.tops[own], listed.guess.top, &told.told, threadIdx.x);
  }
  wait_for(&told.told);
  if (threadIdx.x < 32) {
    const unsigned its = lane_of() < Blocks::COUNT && lane_of() != own ? told.counts[lane_of() % Blocks::COUNT] : 0;
    const unsigned all = __reduce_add_sync(~0u, its <= SEGMENT<Blocks> ? groups_of(its) : 0);
    if (lane_of() == 0) expect(&told.sent, all * 2 * sizeof(uint4));
  }
  wait_for(&told.sent);
  const unsigned block = lane_of() % Blocks::COUNT;
  const Key cut = told.cuts[block];
  return {largest_of_lanes(cut), least_of_lanes(cut), largest_of_lanes(told.tops[block]), largest_of_lanes(told.counts[block])};
}

// What a thread has of the elements of all blocks.
struct Own {
  Key keys[ITEMS];          // 0 where there is none
  unsigned intervals[ITEMS];  // ~0 where the key does not reach the cut
  unsigned columns[GROUPS];   // where those of a group are, in words behind the block's list
};

// Read them, and count what reaches a cut by intervals, which `interval_of(key, column)` tells, or of keys alone.
template <class Blocks, bool OF_COLUMNS, class IntervalOf>
__device__ __forceinline__ Own read_own(const Row& row, const Room& room, unsigned count, Key cut, IntervalOf interval_of) {
  const unsigned* words = listed_of<Blocks>(room).bits;
  Own own;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) own.keys[i] = 0, own.intervals[i] = ~0u;
#pragma unroll
  for (int g = 0; g < GROUPS; g++) {
    const Read group = group_at<Blocks, GROUP>(room, count, g * THREADS + threadIdx.x);
    own.columns[g] = group.columns;
    if (!group.count) continue;
    const Group<unsigned> bits = *reinterpret_cast<const Group<unsigned>*>(words + group.bits);
    Group<unsigned> columns = {};
    if (OF_COLUMNS || ELEMENT_BYTES == 2) columns = *reinterpret_cast<const Group<unsigned>*>(words + group.columns);
#pragma unroll
    for (int j = 0; j < GROUP; j++) {
      const int i = g * GROUP + j;
      const unsigned word = ELEMENT_BYTES == 2 && (columns.each[j] + row.skew) % 2 ? bits.each[j] >> 16 : bits.each[j];
      own.keys[i] = j < group.count ? settled_key(Element(word), row.order) : 0;
      const bool reaches = own.keys[i] >= cut;
      own.intervals[i] = reaches ? interval_of(own.keys[i], columns.each[j]) : ~0u;
      if (reaches) atomicAdd(&room.list.intervals[own.intervals[i]], 1u);
    }
  }
  return own;
}

__device__ __forceinline__ void clear_counts(const Room& room) {
  if (threadIdx.x < 3) room.exchange.found[threadIdx.x] = 0;
  if (threadIdx.x == 0) room.exchange.lines[0] = room.list.counters->count = 0;
}

// Elements better than none: behind the list.
__device__ __forceinline__ unsigned no_better_bits(Order order) { return order.turn ? 0x7F800000 : 0xFF800000; }

// What is behind the last of the list is read, and sent, with it.
template <class Blocks> __device__ __forceinline__ void clear_listed(const Room& room, Order order) {
  const unsigned word = no_better_bits(order);
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < groups_of(2 * LIST_ROOM<Blocks>); at += THREADS)
    reinterpret_cast<uint4*>(listed_of<Blocks>(room).bits)[at] = make_uint4(word, word, word, word);
}

// How many of one of `step` listed elements reach a limit. By a warp.
__device__ __forceinline__ unsigned count_reaching(const Row& row, Elements elements, unsigned count, unsigned step, Limit limit) {
  const bool half = ELEMENT_BYTES == 2 && row.order.half();
  unsigned sum = 0;
#pragma unroll 4
  for (unsigned at = lane_of() * step; at < count; at += 32 * step) {
    const unsigned element = elements.get(at, row);
    sum += half ? mask_at_most<true>(element, limit) & 1 : mask_at_most<false>(element, limit) & 1;
  }
  const unsigned counted = (count + step - 1) / step, those = __reduce_add_sync(~0u, sum);
  return limit.turned ? counted - those : those;
}

// Where more elements reach the cut of a block than it has room to send: leave those in the list that reach a higher one, for which each
// warp has a candidate, of drawn elements, and counts how many reach it. Where many keys are the cut, or too few reach any other, all stays
// as it is. `guess` tells its cut and `count` how many reach it. Has barriers.
template <class Blocks> __device__ __noinline__ Listed list_fewer(Row row, Room room, Listed listed, unsigned k) {
  constexpr unsigned COUNTED_ELEMENTS = 2048, ROOM = SEGMENT<Blocks>;
  Exchange& exchange = room.exchange;
  const Elements elements = listed_of<Blocks>(room);
  const unsigned own = lane_of() % WARPS, least = (k + Blocks::COUNT - 1) / Blocks::COUNT, count = listed.count;
  if (cut_is_common<false>(exchange, listed.guess.cut) || (ROOM < k && count > 2 * ROOM)) return listed;
  const unsigned drawn = (unsigned long long)(threadIdx.x * 0x9E3779B1u) * count >> 32;  // each warp's all over
  const Key key = settled_key(elements.get(drawn, row), row.order);
  const unsigned in_warp = min(unsigned(__fdividef(0.5f * float(least + ROOM) * 32, float(count))) + 1, 32u);
  const unsigned step = (count + COUNTED_ELEMENTS - 1) / COUNTED_ELEMENTS;
  const Key candidate = max(ranked_of_lanes(exchange.maxima[warp_of()], key, in_warp), listed.guess.cut);
  const unsigned reaching = step * count_reaching(row, elements, count, step, Limit(candidate, row.order));
  if (lane_of() == 0) exchange.tops[warp_of()] = candidate, room.told.ranks[warp_of()] = reaching;
  __syncthreads();
  const unsigned its = room.told.ranks[own], margin = step > 1 ? ROOM / 16 : 0;  // of what not all tell
  const unsigned most = largest_of_lanes(its <= ROOM - margin && its >= least ? its : 0u);
  if (!most) return listed;
  const Key cut = largest_of_lanes(its == most ? exchange.tops[own] : Key(0));
  constexpr int ITS = (LIST_ROOM<Blocks> + THREADS - 1) / THREADS;  // elements of a thread
  unsigned bits[ITS], columns[ITS], reaches = 0;
#pragma unroll
  for (int i = 0; i < ITS; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    if (at >= count) break;
    bits[i] = elements.bits[at], columns[i] = elements.columns[at];
    reaches |= unsigned(settled_key(elements.get(at, row), row.order) >= cut) << i;
  }
  unsigned slot = reserve_from(&exchange.found[1], __popc(reaches));
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ITS; i++)
    if (reaches >> i & 1) elements.bits[slot] = bits[i], elements.columns[slot] = columns[i], slot++;
  const unsigned found = exchange.found[1];
#pragma unroll 1
  for (unsigned at = found + threadIdx.x; at < count; at += THREADS) elements.bits[at] = no_better_bits(row.order);
  __syncthreads();
  return {{cut, listed.guess.top}, found};
}

// List the elements that reach the cut of this block, in no order. Ends with a barrier.
template <class Blocks> __device__ __forceinline__ Listed list_own(const Row& row, const Holding<Blocks>& holding, const Room& room, Aim aim, unsigned k) {
  const Guess guess = own_cut<false>(holding, room.exchange, room.told.ranks, aim, row.order, nullptr);
  const Listed listed = {guess, list_elements(row, holding, room, guess.cut, cut_is_common<false>(room.exchange, guess.cut))};
  if (listed.count > SEGMENT<Blocks> && listed.count <= LIST_ROOM<Blocks>) return list_fewer<Blocks>(row, room, listed, k);
  return listed;
}

// Call `answers.put(rank, key, column)` for the best k of a row, at least one, each by some thread of the cluster; its lines were
// asked for.
template <class Blocks, class Answers>
__device__ __forceinline__ void select_gathered(const Row& row, Holding<Blocks>& holding, unsigned k, bool smallest, Room room,
                                                const Answers& answers) {
  Aim aim = aim_of<Blocks>(k, row);
  asm volatile("" : "+r"(aim.in_block), "+r"(aim.in_warp));  // while lines are on their way
  clear_counts(room);
  if (threadIdx.x < 3) room.list.counters->crossing[threadIdx.x] = 0;  // a share may have no ranks, and no crowds
  if (Blocks::COUNT > 1 && threadIdx.x == 0) expect_others<Blocks>(room.told);
  if (Blocks::COUNT > 1) begin_rounds<Blocks>(room.told);
  clear_intervals(room.list);
  clear_listed<Blocks>(room, row.order);
  Blocks::arrive();  // waited for before anything is sent
  if constexpr (KEEPS) keep_lines(holding, room.kept);
  find_best(row, holding, aim.spread, smallest);
  const Listed listed = list_own(row, holding, room, aim, k);
  Blocks::wait();
  const All told = tell_all<Blocks>(room, listed);
  const Key cut = told.cut;
  const Share share = share_of<Blocks>(k);
  if (told.most <= SEGMENT<Blocks>) {
    if constexpr (FEW_EACH) {
      if (rank_few<Blocks>(row, room, listed.count, cut, told.top, k, share, answers)) return;
      __syncthreads();
      clear_intervals(room.list);
      __syncthreads();
    }
    const Even even = even_between(told.top, cut, row.cols, row.order);
    // Most often intervals are of keys alone, or with 16 bits, of which many are equal, of keys and columns.
    const bool usual = even.scale <= 0 && (ELEMENT_BYTES == 2 || even.own == 0);
    const auto of_usual = [&](Key key, unsigned column) {
      const unsigned below = (even.most - min(key, even.most)) >> even.shift;
      return ELEMENT_BYTES == 2 ? (below << even.own) + (key > even.most ? 0 : column >> even.column_shift) : below;
    };
    const auto of_all = [&](Key key, unsigned column) { return even.interval(key, column); };
    const Own own = usual ? read_own<Blocks, ELEMENT_BYTES == 2>(row, room, listed.count, cut, of_usual)
                          : read_own<Blocks, true>(row, room, listed.count, cut, of_all);
    __syncthreads();
    const Places places = add_up(room.list, share);
    if (places.total >= k) {
      if (share.first == share.end) return;
      const auto interval_of = [&](Pair its) { return even.interval(its.key, its.column); };
      const unsigned* words = listed_of<Blocks>(room).bits;
      const auto entry = [&](int i) { return Pair{own.keys[i], words[own.columns[i / GROUP] + i % GROUP]}; };
      return rank_share(room.list, share, places, interval_of, own.intervals, entry, answers);
    }
  }
  select_again(row, holding, k, room, told.least, told.top, answers);
}
