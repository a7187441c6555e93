// The best k where the blocks' own cuts misled: elements are counted against several cuts for all at once, until few enough reach one,
// or the k-th is known to be one of equals; every block then gets the list of all, and ranks its share.
#pragma once
#include "share.cuh"
#include "ties.cuh"

__device__ __forceinline__ Found sum_of_lanes(Found found) {
  Found sums = {};
#pragma unroll
  for (int i = 0; i < CUTS; i++) sums.of[i] = __reduce_add_sync(~0u, found.of[i]);
  return sums;
}

struct Counted {
  Found its, all;  // of the block with the lane's number, and of all
};

// What blocks are sent in a round.
template <class Blocks> __device__ __forceinline__ unsigned round_bytes(unsigned round) {
  return Blocks::COUNT * (sizeof(Found) + (round ? 0 : sizeof(Key)));
}

// Before others may send; by all threads of a block that is not alone.
template <class Blocks> __device__ __forceinline__ void begin_rounds(Told& told) {
  if (warp_of()) return;
  if (lane_of() < LATER) begin_signal(&told.later[lane_of()]);
  __syncwarp();
  if (lane_of() < ROUNDS) expect(&told.later[lane_of()], round_bytes<Blocks>(lane_of()));
}

// Sums over all threads of the cluster, and in the first round the least of their maxima. Has a barrier.
template <class Blocks>
__device__ __forceinline__ Counted add_all(const Room& room, const Around<Blocks, CUTS>& around, Key maximum, unsigned round) {
  Told& told = room.told;
  const bool signals = Blocks::COUNT > 1 && round < ROUNDS;
  Found* all = told.found[signals ? round : ROUNDS + round % 2];
  Found found = {};
#pragma unroll
  for (int i = 0; i < CUTS; i++) found.of[i] = around.of[i].count();
  found = sum_of_lanes(found);
  if (round == 0) maximum = least_of_lanes(maximum);
  if (lane_of() == 0) told.own[round % 2][warp_of()] = found;
  if (lane_of() == 0 && round == 0) told.own_lows[warp_of()] = maximum;
  __syncthreads();
  if (warp_of() == 0) {
    const Found own = sum_of_lanes(lane_of() < WARPS ? told.own[round % 2][lane_of() % WARPS] : Found{});
    const Key low = round ? Key(0) : least_of_lanes(told.own_lows[lane_of() % WARPS]);
    Found* sums = all + Blocks::own();
    Key* lows = &told.lows[Blocks::own()];
    if (lane_of() < Blocks::COUNT && signals) {
      Signal* signal = &told.later[round % ROUNDS];
      send(reinterpret_cast<uint4*>(sums), make_uint4(own.of[0], own.of[1], own.of[2], own.of[3]), signal, lane_of());
      if (round == 0) send(lows, low, signal, lane_of());
    } else if (lane_of() < Blocks::COUNT) {
      *Blocks::of(sums, lane_of()) = own;
      if (round == 0) *lows = low;
    }
  }
  if (signals) wait_for(&told.later[round % ROUNDS]);
  else Blocks::sync();
  const Found its = lane_of() < Blocks::COUNT ? all[lane_of() % Blocks::COUNT] : Found{};
  return {its, sum_of_lanes(its)};
}

// Where the blocks' entries go in the list of all: behind those of the blocks before it. They are found from a slot of the same parity
// on, so that two at a time have 16 aligned bytes here and there.
struct Sending {
  unsigned own;     // entries of this block
  unsigned before;  // entries of blocks before it
  unsigned odd;     // the slot of the first, 0 or 1
};

// `its`: entries of the block with the lane's number.
template <class Blocks> __device__ __forceinline__ Sending sending_of(unsigned its) {
  const unsigned own = Blocks::own(), before = __reduce_add_sync(~0u, lane_of() < own ? its : 0);
  return {__shfl_sync(~0u, its, own), before, before & 1};
}

// Store elements as entries: their columns first, whose keys are read again, one by each thread, for few threads have more than others
// then. A block alone has them in their places at once. Ends with a barrier, and has another.
template <class Blocks>
__device__ __forceinline__ void store_found(const Row& row, const Holding<Blocks>& holding, const Reaching<Blocks>& reaching, const Room& room,
                                            Sending sending) {
  constexpr int EACH = ITEMS < 4 ? ITEMS : 4;  // on their way at once
  const Entries<true> entries = Blocks::COUNT > 1 ? found_of(room) : places_of(room);
  const unsigned end = sending.odd + sending.own, slot = reserve_from(&room.list.counters->count, reaching.count()) + sending.odd;
  store_columns(row, holding, reaching, slot, [&](unsigned at, unsigned column) { entries.set(at, 0, column); });
  __syncthreads();
#pragma unroll 1
  for (unsigned first = sending.odd + threadIdx.x; first < end; first += EACH * THREADS) {
    unsigned columns[EACH];
    Key keys[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) columns[i] = first + i * THREADS < end ? entries.get(first + i * THREADS).column : 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) keys[i] = equal_key(row.data()[columns[i]], row.order);
#pragma unroll
    for (int i = 0; i < EACH; i++)
      if (first + i * THREADS < end) entries.set(first + i * THREADS, keys[i], columns[i]);
  }
  if (Blocks::COUNT > 1) before_copies();
  __syncthreads();
}

// Send all others the entries that this block has found, whole lines by copies; its own go to their places. Behind a barrier, and before
// another.
template <class Blocks> __device__ __forceinline__ void send_found(const Room& room, Sending sending, Signal* signal) {
  const Entries<true> found = found_of(room), places = places_of(room);
  const unsigned first = sending.odd, end = first + sending.own, begin = 2 * first;
  Entry *here = found.packed(), *there = places.packed() + sending.before - first;
#pragma unroll 1
  for (unsigned to = warp_of(); to < Blocks::COUNT; to += WARPS) {
    if (to == Blocks::own()) continue;
    if (lane_of() || !sending.own) continue;
    if (first) send(there + 1, here[1], signal, to);
    if (end / 2 * 2 > begin) send_copy(there + begin, here + begin, (end / 2 * 2 - begin) * sizeof(Entry), signal, to);
    if (end % 2 && end > begin) send(there + end - 1, here[end - 1], signal, to);
  }
  for (unsigned at = threadIdx.x; at < sending.own; at += THREADS) {
    const Pair own = found.get(first + at);
    places.set(sending.before + at, own.key, own.column);
  }
}

#if BOTH_SIGNS
// Of a number that may be none of the elements' kind: rounded.
__device__ __forceinline__ Key key_of_number(float number, Order order) {
  if (ELEMENT_BYTES == 4) return equal_key(Element(__float_as_uint(number)), order);
  return equal_key(Element(order.half() ? unsigned(__half_as_ushort(__float2half(number))) : __float_as_uint(number) >> 16), order);
}
#endif

// What is known of the cut: `above` elements have larger keys than `top`, fewer than wanted, and `within` reach `bottom`, enough of them.
struct Bracket {
  Key bottom, top;
  unsigned within, above;
  unsigned its_above;  // of the block with the lane's number

  __device__ __forceinline__ void add(Key cut, unsigned all, unsigned its, unsigned k) {
    if (all >= k) {
      if (cut >= bottom) bottom = cut, within = all;
    } else if (cut <= top) {
      top = cut - 1, above = all, its_above = its;
    }
  }
  // Where so much of the way from the bottom to the top, or to `most`, is done; more than the bottom. The way is in keys, or where it goes
  // through zero, in numbers, from no further below it than the end is above.
  __device__ __forceinline__ Key at(float part, Key most, Order order, bool in_keys = false) const {
    const Key end = most > bottom ? min(top, most) : top;
    part = fminf(fmaxf(part, 0.f), 0.9999f);
#if BOTH_SIGNS
    if (!in_keys && (bottom ^ end) & SIGN) {
      const float to = number_of(element_of(end, order), order), from = number_of(element_of(bottom, order), order);
      const float start = fabsf(from) < fabsf(to) ? from : -to, number = start + (to - start) * part;
      if (fabsf(number) < INFINITY) return min(max(key_of_number(number, order), bottom + 1), end);  // no NaN
    }
#endif
    const Key width = end - bottom, step = Key(float(width) * part);
    return bottom + (step < width ? step : width - 1) + 1;
  }
  // Where about `want` elements would be, were their number to fall by the same part from key to key, or by as many.
  __device__ __forceinline__ Key falling(unsigned want, Key most, Order order) const {
    return at(__fdividef(log2f(__fdividef(float(within), float(want))), log2f(__fdividef(float(within), float(max(above, 1u))))), most, order);
  }
  __device__ __forceinline__ Key evenly(unsigned want, Key most, Order order) const {
    return at(__fdividef(float(within) - float(want), float(within - above)), most, order);
  }
};

// What the best are, with every block's, and no others but at most CAPACITY - k; or where equals have the last places, what is above them.
template <class Blocks> struct Again {
  Reaching<Blocks> reaching, ties;
  bool tied;
  Key tie;
  unsigned count, its;  // entries that reach it, of all blocks, and of the block with the lane's number
};

// `least` is the least of the blocks' cuts, and above `top` there are few.
template <class Blocks>
__device__ __forceinline__ Again<Blocks> find_again(const Row& row, const Holding<Blocks>& holding, unsigned k, const Room& room, Key least,
                                                    Key top) {
  Bracket known = {0, ONES, row.cols, 0, 0}, likely = {least, ONES, row.cols, 0, 0};
  Key cuts[CUTS] = {least, least + (least < ONES), top > least ? likely.at(0.7f, top, row.order) : least};
  Around<Blocks, CUTS> around;
  unsigned count = 0, its = 0;  // entries of the list, and of the block with the lane's number
  bool tied = false;
#pragma unroll 1
  for (unsigned round = 0;; round++) {
    around = elements_around(row, holding, cuts);
    const Counted counted = add_all<Blocks>(room, around, holding.largest, round);
#pragma unroll
    for (int i = 0; i < CUTS; i++) {
      const unsigned all = counted.all.of[i], own = counted.its.of[i];
      known.add(cuts[i], all, own, k);
      if (all < k || all > CAPACITY || (count && all >= count)) continue;
      count = all, its = own;
      if (i) around.of[0] = around.of[i];
    }
    tied = known.bottom == known.top && cuts[0] == known.top && (cuts[1] == cuts[0] + 1 || cuts[0] == ONES);
    if (count || tied) break;
    const Key lowest = least_of_lanes(room.told.lows[lane_of() % Blocks::COUNT]);
    const Key last = known.bottom >= top ? known.top : 0;  // an infinity, perhaps, or NaN
    likely = known;
    if (known.bottom == known.top) {
      cuts[0] = known.bottom, cuts[1] = cuts[2] = cuts[0] + (cuts[0] < ONES);
    } else if (known.bottom == 0 && lowest && lowest <= known.top) {
      likely.bottom = lowest, likely.within = 8 * CAPACITY;
      cuts[0] = lowest, cuts[1] = lowest + (lowest < ONES), cuts[2] = lowest < known.top ? likely.falling((k + CAPACITY) / 2, top, row.order) : lowest;
    } else if (round % 3 == 2) {
      cuts[0] = known.at(0.25f, top, row.order, true), cuts[1] = known.at(0.5f, top, row.order, true);
      cuts[2] = last ? last : known.at(0.75f, top, row.order, true);
    } else {
      cuts[0] = known.falling(known.above ? (k + CAPACITY) / 2 : k, top, row.order), cuts[1] = known.evenly((k + CAPACITY) / 2, top, row.order);
      cuts[2] = last ? last : known.at(0.5f, top, row.order, true);
    }
  }
  tied = tied && !(count && count - known.above <= MOST_OF_INTERVAL);  // of fewer equals a list is sooner
  if (!tied) return {around.of[0], {}, false, 0, count, its};
  Again<Blocks> again = {known.bottom < ONES ? around.of[1] : Reaching<Blocks>{}, around.of[0], true, known.bottom, known.above, known.its_above};
  again.ties.leave_out(again.reaching);
  return again;
}

// Before entries are counted by intervals; a barrier is to follow.
__device__ __forceinline__ void begin_ranks(const Room& room) {
  clear_intervals(room.list);
  if (threadIdx.x == 0) *crowds_of(room.list).count = 0;
}

// Call `answers.put(rank, key, column)` for the ranks of the share, each by some thread. Intervals are clear.
template <class Answers>
__device__ __forceinline__ void rank_again(const Row& row, const Room& room, unsigned count, Key top, Share share, const Answers& answers) {
  share.end = min(share.end, count);
  if (share.first >= share.end) return;
  const Entries<true> entries = places_of(room);
  Pair own[ITEMS];
  Key most = 0, least = 0;  // the least as its complement
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    if (at >= count) break;
    own[i] = entries.get(at), most = max(most, own[i].key), least = max(least, Key(~own[i].key));
  }
  Counters& counters = *room.list.counters;
  most = largest_of_lanes(most), least = largest_of_lanes(least);
  if (lane_of() == 0) counters.keys[0][warp_of()] = most, counters.keys[1][warp_of()] = least;
  __syncthreads();
  most = largest_of_lanes(counters.keys[0][lane_of() % WARPS]), least = ~largest_of_lanes(counters.keys[1][lane_of() % WARPS]);
  const Even even = even_between(most > top && top > least ? top : most, least, row.cols, row.order);
  const auto interval_of = [&](Pair its) {  // what is beyond has one of its own
    return its.key > even.most ? 0 : min(even.interval(its.key, its.column) + 1, unsigned(INTERVALS - 1));
  };
  unsigned intervals[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    intervals[i] = ~0u;
    if (i * THREADS + threadIdx.x >= count) continue;
    intervals[i] = interval_of(own[i]);
    atomicAdd(&room.list.intervals[intervals[i]], 1u);
  }
  __syncthreads();
  const Places places = add_up(room.list, share);
  rank_share(room.list, share, places, interval_of, intervals, [&](int i) { return own[i]; }, answers);
}

// As `select_gathered`, where the blocks' own cuts misled: every block gets the list of all, and ranks its share.
template <class Blocks, class Answers>
__device__ __forceinline__ void select_again(const Row& row, const Holding<Blocks>& holding, unsigned k, const Room& room, Key least, Key top,
                                             const Answers& answers) {
  Signal* arrived = &room.told.later[AGAIN];
  const Again<Blocks> again = find_again(row, holding, k, room, least, top);
  if (again.tied) count_ties(holding, again.ties, room);
  const Sending sending = sending_of<Blocks>(again.its);
  begin_ranks(room);
  store_found(row, holding, again.reaching, room, sending);
  if (Blocks::COUNT > 1) {
    if (threadIdx.x == 0) expect(arrived, (again.tied ? TIES_BYTES<Blocks> : 0) + (again.count - sending.own) * sizeof(Entry));
    if (again.tied) send_ties<Blocks>(room);
    send_found<Blocks>(room, sending, arrived);
    wait_for(arrived);
    Blocks::arrive();  // others may still be sent what this block has found
    __syncthreads();
  }
  if (again.tied) write_ties(row, holding, again.ties, room, again.tie, k - again.count, again.count, answers);
  rank_again(row, room, again.count, top, share_of<Blocks>(k), answers);
  Blocks::wait();
}
