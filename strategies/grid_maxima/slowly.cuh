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
  unsigned slot = listed + scan_lanes(own, all) - own;
  if (lane_of() == 0) exchange.ties[warp_of()] = all;
  __syncthreads();
  slot += __reduce_add_sync(~0u, lane_of() < warp_of() ? exchange.ties[lane_of() % WARPS] : 0);
#pragma unroll
  for (int i = 0; i < MOST_MESSAGES; i++)
    if (is_tie(i)) {
      const unsigned place = Message::place(known.messages[i].first);
      if (slot < want) numbers.put(list, slot, numbers.floor, messages.column(row, i * THREADS + threadIdx.x, place));
      slot++;
    }
}

// The whole lines of some senders, one after another; behind them those that are the row's in part.
struct LinesOf {
  const Row& row;
  const Messages& messages;
  const unsigned* senders;  // [count], by the numbers of their messages
  unsigned count, each;     // lines of a thread

  __device__ __forceinline__ unsigned whole() const { return count * LANES * each; }
  __device__ __forceinline__ unsigned all() const { return whole() + 2; }

  // Line `at`; ~0 where there is none.
  __device__ __forceinline__ unsigned line(unsigned at) const {
    if (at == whole() && row.begin) return 0;
    if (at == whole() + 1 && row.end > 0 && row.end < row.all_lines()) return row.end;
    if (at >= whole()) return ~0u;
    const unsigned thread = at / each, first = messages.line(row, senders[thread / LANES]) + thread % LANES;
    const unsigned line = first + at % each * messages.parts * THREADS;
    return line < row.end ? line : ~0u;
  }
};

// Their elements as a stream of entries, see best.cuh.
struct ElementsOf {
  LinesOf lines;
  unsigned tile, asking;

  __device__ __forceinline__ void start() { tile = 0; }
  __device__ __forceinline__ bool more() const { return tile * THREADS < lines.all(); }
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
      all = list_all_more(row, messages, senders, more, list, numbers, k);
      found = list.counters->count;
    }
    if (all && found < k) {
      list_ties(row, messages, list, numbers, exchange, found, k);
      found = k;
      __syncthreads();
    }
  }
  const auto put = [&](unsigned rank, unsigned key, unsigned column) { answers.put(rank, key, column); };
  if (all) {
    Held held = hold(list, found);
    rank_held(list, held, found, k, even_intervals(list, held, found, row.cols, row.order), put);
    return;
  }
  __syncthreads();  // all know how many were found
  if (threadIdx.x == 0) list.counters->cut = {0, 0};
  clear_list(list);
  MessagesOf bests = {messages};
  found = best(list, bests, k, list.counters->cut);
  if (found > k) shorten(list, found, k, k, list.counters->cut, 0);
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < k; i += THREADS) senders[i] = list.columns[i];
  if (threadIdx.x == 0) list.counters->cut.place = 0;
  empty_list(list);
  const unsigned stride = messages.parts * THREADS;
  ElementsOf elements = {{row, messages, senders, k, (row.end - row.begin + stride - 1) / stride}};
  found = best(list, elements, k, list.counters->cut);
  rank_list(list, found, k, row.cols, row.order, put);
}
