// The best k of a row that the registers of a cluster hold: every block lists what reaches a cut of its own and sends it to
// all others; each then has the lists of all, and ranks and writes its share of the answer.
#pragma once
#include "again.cuh"

// List the block's lines that reach a cut, of which none is 0, in no order. Returns how many there are: if more than LISTED, not all
// are listed. Has a barrier.
template <class Blocks>
__device__ __forceinline__ unsigned list_lines(const Holding<Blocks>& holding, const Room& room, unsigned* count, Key cut) {
  unsigned chosen = 0;
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) chosen |= unsigned(holding.best[i] >= cut) << i;
  const bool part = holding.part >= cut;
  unsigned slot = reserve_from(count, __popc(chosen) + part);
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) {
    if ((chosen >> i & 1) && slot < LISTED) room.bits[slot] = holding.bits[i], room.lines[slot] = holding.line(i);
    slot += chosen >> i & 1;
  }
  if (part && slot < LISTED) room.lines[slot] = holding.part_line;
  __syncthreads();
  return *count;
}

// Call `store(slot, key, column)` for the elements of the block's first lines that reach a cut, and count them: for no more than a
// segment.
template <class Blocks, class Store>
__device__ __forceinline__ void list_elements(const Row& row, const Room& room, unsigned listed, unsigned* count, Key cut, Store store) {
  constexpr int COUNT = AT_ONCE<Blocks>;
#pragma unroll 1
  for (unsigned first = threadIdx.x; first - lane_of() < listed; first += COUNT * THREADS) {
    uint4 bits[COUNT];
    unsigned line[COUNT], chosen[COUNT], own = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const unsigned at = first + i * THREADS;
      line[i] = at < listed ? room.lines[at] : ~0u, bits[i] = make_uint4(0, 0, 0, 0);
      unsigned inside = row.whole(line[i]) ? EVERY : 0;
      if (inside) bits[i] = room.bits[at];
      else if (line[i] != ~0u) bits[i] = row.part(line[i], inside);
      chosen[i] = elements_reaching(bits[i], inside, cut, row.order);
      own += __popc(chosen[i]);
    }
    unsigned slot = reserve_from(count, own);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
#pragma unroll
      for (int e = 0; e < VECTOR; e++) {
        if ((chosen[i] >> e & 1) && slot < SEGMENT<Blocks>) store(slot, equal_key(element(bits[i], e), row.order), row.column(line[i], e));
        slot += chosen[i] >> e & 1;
      }
    }
  }
}

// The cut of a block, and how many of its elements reach it: more than a segment where they are not all listed.
struct Listed {
  Guess guess;
  unsigned count;
};

// Send this block's segment of an array to the block `to`, by `threads` threads of which this is number `own`.
template <class Blocks, class T>
__device__ __forceinline__ void send_array(T* array, unsigned count, Signal* sent, unsigned to, unsigned own, unsigned threads) {
  constexpr unsigned GROUPED = 16 / sizeof(T);
  array += Blocks::own() * SEGMENT<Blocks>;
  uint4* groups = reinterpret_cast<uint4*>(array);
#pragma unroll 1
  for (unsigned at = own; at < count / GROUPED; at += threads) send(groups + at, groups[at], sent, to);
  if (own < count % GROUPED) send(array + (count - 1 - own), array[count - 1 - own], sent, to);
}

// Send the block's entries to all others.
template <class Blocks> __device__ __forceinline__ void send_entries(const Room& room, unsigned count) {
  constexpr unsigned SENDERS = THREADS / Blocks::COUNT;  // threads for each of the others
  const unsigned to = threadIdx.x / SENDERS, own = threadIdx.x % SENDERS;
  if (to == Blocks::own()) return;
  send_array<Blocks>(room.keys, count, &room.told.sent, to, own, SENDERS);
  send_array<Blocks>(room.columns, count, &room.told.sent, to, own, SENDERS);
}

// By one thread, before the others may tell or send.
template <class Blocks> __device__ __forceinline__ void expect_others(Told& told) {
  begin_signal(&told.told), begin_signal(&told.sent);
  expect(&told.told, Blocks::COUNT * (sizeof(unsigned) + 2 * sizeof(Key)));
}

// Tell all blocks how many entries this one has, its cut, and the largest key that it has looked at, and send them the entries if they
// are all listed; and wait for what the others tell and send.
template <class Blocks> __device__ __forceinline__ void tell_all(const Room& room, Listed listed) {
  Told& told = room.told;
  const unsigned own = Blocks::own();
  if constexpr (Blocks::COUNT == 1) {
    if (threadIdx.x == 0) told.counts[0] = listed.count, told.cuts[0] = listed.guess.cut, told.tops[0] = listed.guess.top;
    __syncthreads();
  } else {
    if (listed.count <= SEGMENT<Blocks>) send_entries<Blocks>(room, listed.count);
    if (threadIdx.x < Blocks::COUNT) {
      send(&told.counts[own], listed.count, &told.told, threadIdx.x);
      send(&told.cuts[own], listed.guess.cut, &told.told, threadIdx.x);
      send(&told.tops[own], listed.guess.top, &told.told, threadIdx.x);
    }
    wait_for(&told.told);
    if (threadIdx.x < 32) {
      const unsigned its = lane_of() < Blocks::COUNT && lane_of() != own ? told.counts[lane_of() % Blocks::COUNT] : 0;
      const unsigned all = __reduce_add_sync(~0u, its <= SEGMENT<Blocks> ? its : 0);
      if (lane_of() == 0) expect(&told.sent, all * (sizeof(Key) + sizeof(unsigned)));
    }
    wait_for(&told.sent);
  }
}

// Entries of all blocks: thread t has every THREADS-th group of as many as it reads at once.
constexpr int GROUP = ITEMS < 4 ? ITEMS : 4;

template <class T> struct alignas(GROUP * sizeof(T)) Group {
  T each[GROUP];
};

__device__ __forceinline__ unsigned place_of(int item) { return (item / GROUP * THREADS + threadIdx.x) * GROUP + item % GROUP; }

__device__ __forceinline__ void read_keys(const Room& room, Key (&keys)[ITEMS]) {
#pragma unroll
  for (int i = 0; i < ITEMS; i += GROUP) {
    Group<Key> group = {};
    if (place_of(i) < CAPACITY) group = reinterpret_cast<const Group<Key>*>(room.keys)[place_of(i) / GROUP];
#pragma unroll
    for (int j = 0; j < GROUP; j++) keys[i + j] = group.each[j];
  }
}

// Count entries of all blocks that reach a cut by intervals, of this thread's ~0 where they do not.
__device__ __forceinline__ void count_entries(const Room& room, const Key (&keys)[ITEMS], Key cut, Even even, unsigned (&intervals)[ITEMS]) {
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const bool reaches = keys[i] >= cut;
    const unsigned column = reaches && even.own > 0 ? room.columns[place_of(i)] : 0;
    intervals[i] = reaches ? even.interval(keys[i], column) : ~0u;
    if (reaches) atomicAdd(&room.list.intervals[intervals[i]], 1u);
  }
}

__device__ __forceinline__ void clear_counts(const Room& room) {
  if (threadIdx.x < 3) room.exchange.found[threadIdx.x] = 0;
  if (threadIdx.x == 0) room.exchange.lines[0] = room.list.counters->count = 0;
}

// How many elements of the listed lines reach a cut; of one of `step` lines, without a pattern. By a warp.
__device__ __forceinline__ unsigned count_reaching(const Row& row, const Room& room, unsigned lines, unsigned step, Key cut) {
  const Limit limit(cut, row.order);
  unsigned sum = 0;
#pragma unroll 4
  for (unsigned number = lane_of(); number * step < lines; number += 32) {
    const unsigned at = min(number * step + (number * 40503 >> 4 & 0xFFF) * step / 4096, lines - 1), line = room.lines[at];
    unsigned inside = EVERY;
    const uint4 bits = row.whole(line) ? room.bits[at] : row.part(line, inside);
    sum += __popc((at_most<false>(bits, limit, row.order) ^ limit.turned()) & inside);
  }
  return __reduce_add_sync(~0u, sum);
}

// Whether a block with too many makes its cut higher by itself: with 16 bits more keys are equal, and with more blocks all wait for one that
// fails. `_listed` has more room for lines then.
constexpr bool LISTS_FEWER = ELEMENT_BYTES == 4 && BLOCKS <= 4;

// Where more elements reach the cut of a block than it has room for: list those that reach a higher one, for which each warp has a
// candidate, of drawn elements, and counts all of the listed lines that reach it. Where many keys are the cut, or too few reach any other,
// all stays as it is. `guess` tells its cut and `count` how many reach it. Has barriers.
template <class Blocks> __device__ __noinline__ Listed list_fewer(Row row, Room room, unsigned lines, Listed listed, unsigned k) {
  constexpr unsigned COUNTED_LINES = 1024, ROOM = SEGMENT<Blocks>;
  Exchange& exchange = room.exchange;
  const unsigned own = lane_of() % WARPS, segment = Blocks::own() * ROOM, least = (k + Blocks::COUNT - 1) / Blocks::COUNT;
  const bool ties = __popc(__ballot_sync(~0u, exchange.guesses[own] == listed.guess.cut)) > 8 + 32 / WARPS;  // a quarter of the warps, and one
  if (ties || (ROOM < k && listed.count > 2 * ROOM)) return listed;
  const unsigned number = (unsigned long long)(threadIdx.x * 0x9E3779B1u) * lines >> 32, line = room.lines[number];  // each warp's all over
  unsigned inside = EVERY;
  const uint4 bits = row.whole(line) ? room.bits[number] : row.part(line, inside);
  const unsigned drawn = (threadIdx.x * 40503 & 0xFFFF) * VECTOR >> 16;  // without a pattern
  Key key = 0;
#pragma unroll
  for (int e = 0; e < VECTOR; e++)
    if (e == drawn && (inside >> e & 1)) key = equal_key(element(bits, e), row.order);
  const float want = 0.5f * float(least + ROOM) * 32;
  const unsigned in_warp = min(unsigned(__fdividef(want, float(lines * VECTOR))) + 1, 32u), step = (lines + COUNTED_LINES - 1) / COUNTED_LINES;
  const Key candidate = max(ranked_of_lanes(exchange.maxima[warp_of()], key, in_warp), listed.guess.cut);
  const unsigned reaching = step * count_reaching(row, room, lines, step, candidate);
  if (lane_of() == 0) exchange.tops[warp_of()] = candidate, room.told.ranks[warp_of()] = reaching;
  __syncthreads();
  const unsigned its = room.told.ranks[own], margin = step > 1 ? ROOM / 16 : 0;  // of what not all lines tell
  const unsigned most = largest_of_lanes(its <= ROOM - margin && its >= least ? its : 0u);
  if (!most) return listed;
  listed.guess.cut = largest_of_lanes(its == most ? exchange.tops[own] : Key(0));
  unsigned* found = &exchange.found[1];
  list_elements<Blocks>(row, room, lines, found, listed.guess.cut, [&](unsigned slot, Key its, unsigned column) {
    room.keys[segment + slot] = its, room.columns[segment + slot] = column;
  });
  __syncthreads();
  listed.count = *found;
#pragma unroll 1
  for (unsigned slot = listed.count + threadIdx.x; slot < ROOM; slot += THREADS) room.keys[segment + slot] = 0;
  __syncthreads();
  return listed;
}

// Store the elements that reach the cut of this block as entries of its segment, in no order. Ends with a barrier.
template <class Blocks> __device__ __forceinline__ Listed list_own(const Row& row, const Holding<Blocks>& holding, const Room& room, Aim aim, unsigned k) {
  const Guess guess = own_cut<false>(holding, room.exchange, room.told.ranks, aim, row.order, nullptr);
  const unsigned lines = list_lines(holding, room, &room.exchange.lines[0], guess.cut), segment = Blocks::own() * SEGMENT<Blocks>;
  unsigned* found = &room.exchange.found[0];
  if (lines <= LISTED)
    list_elements<Blocks>(row, room, lines, found, guess.cut, [&](unsigned slot, Key key, unsigned column) {
      room.keys[segment + slot] = key, room.columns[segment + slot] = column;
    });
  __syncthreads();
  const Listed listed = {guess, lines <= LISTED ? *found : CAPACITY + 1};
  if constexpr (LISTS_FEWER)
    if (lines <= LISTED && listed.count > SEGMENT<Blocks>) return list_fewer<Blocks>(row, room, lines, listed, k);
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
#pragma unroll
  for (int i = 0; i < ITEMS; i += GROUP)
    if (place_of(i) < CAPACITY) reinterpret_cast<Group<Key>*>(room.keys)[place_of(i) / GROUP] = {};
  Blocks::arrive();  // waited for before anything is sent
  find_best(row, holding, smallest);
  const Listed listed = list_own(row, holding, room, aim, k);
  Blocks::wait();
  tell_all<Blocks>(room, listed);
  const unsigned block = lane_of() % Blocks::COUNT;
  const Key cut = largest_of_lanes(room.told.cuts[block]), top = largest_of_lanes(room.told.tops[block]);
  const Share share = share_of<Blocks>(k);
  if (largest_of_lanes(room.told.counts[block]) <= SEGMENT<Blocks>) {
    const Even even = even_between(top, cut, row.cols, row.order);
    Key keys[ITEMS];
    unsigned intervals[ITEMS];
    read_keys(room, keys);
    Even of_keys = even;
    of_keys.scale = 0;
    if (even.scale > 0) count_entries(room, keys, cut, even, intervals);
    else count_entries(room, keys, cut, of_keys, intervals);
    __syncthreads();
    const Places places = add_up(room.list, share);
    if (places.total >= k) {
      if (share.first == share.end) return;
      const auto interval_of = [&](Pair its) { return even.interval(its.key, its.column); };
      return rank_share(room.list, share, places, interval_of, intervals,
                         [&](int i) { return Pair{keys[i], room.columns[place_of(i)]}; }, answers);
    }
  }
  select_again(row, holding, k, room, least_of_lanes(room.told.cuts[block]), top, answers);
}
