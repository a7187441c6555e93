// Where a guess was of no use: another floor, by all first keys; ties of it; and where lists have no room, a stream of entries.
#pragma once
#include "best.cuh"
#include "more.cuh"

// The largest key of the block. Has a barrier.
__device__ __forceinline__ unsigned largest_of_block(Exchange& exchange, unsigned key) {
  const unsigned largest = largest_of_lanes(key);
  if (lane_of() == 0) exchange.tops[warp_of()] = largest;
  __syncthreads();
  return largest_of_lanes(lane_of() < WARPS ? exchange.tops[lane_of()] : 0);
}

// A floor above which the first keys of exactly `want` messages are, or the largest key that so many reach, and are more. The first that
// is tried is a guess.
__device__ __forceinline__ unsigned floor_of(const Known& known, unsigned want, unsigned guess, Exchange& exchange) {
  unsigned low = 0, high = largest_of_block(exchange, known.largest()), middle = min(guess, high), at_low = ~0u;
#pragma unroll 1
  for (unsigned round = 0; low < high; round++) {
    unsigned own = 0;
#pragma unroll
    for (int i = 0; i < MOST_MESSAGES; i++) own += known.first_key(i) >= middle;
    own = __reduce_add_sync(~0u, own);
    if (lane_of() == 0) atomicAdd(&exchange.found[round % 3], own);
    if (threadIdx.x == 0) exchange.found[(round + 1) % 3] = 0;
    __syncthreads();
    const unsigned reach = exchange.found[round % 3];
    if (reach >= want) low = middle, at_low = reach;
    else high = middle - 1;
    if (reach == want) break;
    middle = round == 0 && reach > want ? low + 1 : low + (high - low) / 2 + (high > low);  // perhaps all that reach the guess are ties
  }
  return at_low == want && low ? low - 1 : low;
}

// List first keys that are at the floor until there are `want` entries, the messages of the first threads first. Begins with a barrier.
__device__ __forceinline__ void list_ties(const Row& row, const Messages& messages, const List& list, const Numbers& numbers,
                                          Exchange& exchange, unsigned listed, unsigned want) {
  const Known known = known_of(row, messages, [] {});
  const auto is_tie = [&](int i) { return i * THREADS + threadIdx.x < messages.count && known.first_key(i) == numbers.floor; };
  unsigned own = 0, all;
#pragma unroll
  for (int i = 0; i < MOST_MESSAGES; i++) own += is_tie(i);
  unsigned slot = listed + scan_block(own, all, exchange);
#pragma unroll
  for (int i = 0; i < MOST_MESSAGES; i++)
    if (is_tie(i)) {
      const unsigned place = Message::place(known.messages[i].first);
      if (slot < want) numbers.put(list, slot, numbers.floor, messages.column(row, i * THREADS + threadIdx.x, place));
      slot++;
    }
}

// The lines that are the row's in part, and behind them the whole lines of some senders, one after another.
struct LinesOf {
  static constexpr unsigned PARTS = 2;

  const Row& row;
  const Messages& messages;
  const unsigned *senders, *keys;  // [count], by the numbers of their messages; of these, the largest first
  unsigned count, each;            // lines of a thread

  __device__ __forceinline__ unsigned all() const { return PARTS + count * LANES * each; }
  // The key of the sender that line `at` is of, from the third line on: neither it nor any line behind has a better one.
  __device__ __forceinline__ unsigned bound(unsigned at) const { return keys[(at - PARTS) / LANES / each]; }

  // Line `at`; ~0 where there is none.
  __device__ __forceinline__ unsigned line(unsigned at) const {
    if (at == 0) return row.begin ? 0 : ~0u;
    if (at == 1) return row.end > 0 && row.end < row.all_lines() ? row.end : ~0u;
    if (at >= all()) return ~0u;
    const unsigned lane = (at - PARTS) % LANES, of_lane = (at - PARTS) / LANES, first = messages.line(row, senders[of_lane / each]) + lane;
    const unsigned line = first + of_lane % each * messages.parts * THREADS;
    return line < row.end ? line : ~0u;
  }
};

// Their elements that may reach a cut, which others change, as a stream of entries, see best.cuh.
struct ElementsOf {
  LinesOf lines;
  const Cut& its;
  unsigned tile, asking;

  __device__ __forceinline__ void start() { tile = 0; }
  __device__ __forceinline__ bool more() const {
    const unsigned at = tile * THREADS;
    return at < lines.all() && (tile == 0 || lines.bound(at) >= its.key);
  }
  __device__ __forceinline__ bool offer(List& list, Cut cut) {
    tile++, asking = EVERY;
    return offer_again(list, cut);
  }
  __device__ __forceinline__ bool offer_again(List& list, Cut cut) {
    const unsigned line = lines.line((tile - 1) * THREADS + threadIdx.x);
    uint4 bits = line_past(lines.row.lines + line, lines.row.whole(line));
    unsigned inside = lines.row.whole(line) ? EVERY : 0;
    if (!inside && line != ~0u) bits = lines.row.part(line, inside);
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      const bool asks = asking >> e & inside >> e & 1;
      if (!::offer(list, asks, equal_key(element(bits, e), lines.row.order), lines.row.column(line, e), cut)) asking &= ~(1u << e);
    }
    return asking;
  }
};

// Messages as a stream of entries, by their first keys; their numbers are columns.
struct MessagesOf {
  const Messages& messages;
  unsigned tile;
  bool asking;

  __device__ __forceinline__ void start() { tile = 0; }
  __device__ __forceinline__ bool more() const { return tile * THREADS < messages.count; }
  __device__ __forceinline__ bool offer(List& list, Cut cut) {
    tile++, asking = true;
    return offer_again(list, cut);
  }
  __device__ __forceinline__ bool offer_again(List& list, Cut cut) {
    const unsigned at = (tile - 1) * THREADS + threadIdx.x;
    const unsigned key = Message::key(messages.first(min(at, messages.count - 1)));
    return asking = ::offer(list, asking && at < messages.count, key, at, cut);
  }
};

// Call `put(rank, key, column)` for the best `want` of the list's `count` entries, at most RANKED, each of which is compared with all.
// Behind a barrier.
template <class Put> __device__ __forceinline__ void rank_compared(const List& list, unsigned count, unsigned want, Put put) {
  constexpr unsigned EACH = 4, TOGETHER = EACH * THREADS / RANKED;  // entries of a thread; threads that have the same, see few.cuh
  const unsigned lane = threadIdx.x % TOGETHER, first = threadIdx.x / TOGETHER * EACH;
  if (threadIdx.x / 32 * 32 / TOGETHER * EACH >= count) return;
  unsigned own[EACH], places[EACH], ranks[EACH] = {};
#pragma unroll
  for (unsigned i = 0; i < EACH; i++) own[i] = list.keys[min(first + i, count - 1)], places[i] = list.columns[min(first + i, count - 1)];
  const auto compare = [&](unsigned key, unsigned column) {
#pragma unroll
    for (unsigned i = 0; i < EACH; i++) ranks[i] += better(key, column, own[i], places[i]);
  };
  const uint4 *keys = reinterpret_cast<const uint4*>(list.keys), *columns = reinterpret_cast<const uint4*>(list.columns);
#pragma unroll 2
  for (unsigned four = lane; four < count / 4; four += TOGETHER) {
    const uint4 key = keys[four], column = columns[four];
    compare(key.x, column.x), compare(key.y, column.y), compare(key.z, column.z), compare(key.w, column.w);
  }
  if (lane < count % 4) compare(list.keys[count / 4 * 4 + lane], list.columns[count / 4 * 4 + lane]);
  unsigned packed = ranks[0] | ranks[1] << 8 | ranks[2] << 16 | ranks[3] << 24;  // all are below RANKED
#pragma unroll
  for (unsigned distance = TOGETHER / 2; distance; distance /= 2) packed += __shfl_xor_sync(~0u, packed, distance);
  const unsigned at = first + lane, rank = packed >> (8 * lane % 32) & 0xFF;
  if (lane < EACH && at < count && rank < want) put(rank, list.keys[at], list.columns[at]);
}

// What is listed of what is above a floor: nothing that is of use, what messages tell, or all.
enum class Listed { NOTHING, TOLD, ALL };

// The same as `finish` where the floor is of no use, or where there is too much above it to rank it.
template <class Answers>
__device__ __noinline__ void finish_slowly(Row row, unsigned k, Messages messages, List list, Exchange* of_block, unsigned floor,
                                           Answers answers, Listed listed) {
  Exchange& exchange = *kept(of_block);
  list = {kept(list.keys), kept(list.columns), kept(list.intervals), kept(list.counters), list.round};
  unsigned* senders = senders_of(list);
  bool all = true;
  if (listed == Listed::NOTHING) {
    const Known known = known_of(row, messages, [] {});
    floor = floor_of(known, k, floor + 1, exchange);
    __syncthreads();
    clear_listed(list, exchange);
    __syncthreads();
    list_above(row, known, messages, list, numbers_above(row, list, floor, exchange), senders, exchange);
    __syncthreads();
  }
  const Numbers numbers = numbers_above(row, list, floor, exchange);
  unsigned found = list.counters->count;
  if (listed != Listed::ALL) {
    const unsigned more = exchange.lines[0];
    all = more <= MOST_MORE && found <= CAPACITY;
    if (more && all) {
      all = list_all_more(row, messages, senders, more, list, numbers, k, exchange);
      found = list.counters->count;
    }
    if (all && found < k) {
      list_ties(row, messages, list, numbers, exchange, found, k);
      found = k;
      __syncthreads();
    }
  }
  const auto put = [&](unsigned rank, unsigned key, unsigned column) { answers.put(rank, key, column); };
  if (all && found <= RANKED) {
    rank_compared(list, found, k, put);
    return;
  }
  if (all) {
    Held held = hold(list, found);
    rank_held(list, held, found, k, even_intervals(list, held, found, row.cols, row.order), put);
    return;
  }
  __syncthreads();  // all know how many were found
  // Of what messages tell there are enough above the floor, or first keys that reach it.
  if (threadIdx.x == 0) list.counters->cut = {listed == Listed::NOTHING ? floor : floor + 1, 0};
  clear_list(list);
  MessagesOf bests = {messages};
  found = best(list, bests, k, list.counters->cut);
  if (found > k) shorten(list, found, k, k, list.counters->cut, 0), found = k;
  sort_senders(list.keys, list.columns, found, senders + MOST_MORE, senders);
  if (threadIdx.x == 0) list.counters->cut.place = 0;
  empty_list(list);
  const unsigned stride = messages.parts * THREADS;
  const LinesOf lines = {row, messages, senders, senders + MOST_MORE, found, (row.end - row.begin + stride - 1) / stride};
  ElementsOf elements = {lines, list.counters->cut};
  found = best(list, elements, k, list.counters->cut);
  rank_list(list, found, k, row.cols, row.order, put);
}
