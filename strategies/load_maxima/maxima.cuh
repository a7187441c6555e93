// The best k of a row, by a cluster that keeps the maximum of every 16 bytes in registers: a cut is guessed, lines whose
// maxima reach it are read again and their elements listed by the cluster's first block, once more where the guess misled,
// and put in order by it.
#pragma once
#include "fitting.cuh"

constexpr int AGAIN = 4;  // lines of a thread that are read again at once

// Reserve `own` of what is counted at `count`. Returns the first, and how many the warp has, from `start` on.
__device__ __forceinline__ unsigned reserve_from(unsigned* count, unsigned own, unsigned& start, unsigned& all) {
  const unsigned upto = scan_lanes(own, all);
  start = 0;
  if (lane_of() == 0 && all) start = atomicAdd(count, all);
  start = __shfl_sync(~0u, start, 0);
  return start + upto - own;
}

// List the block's lines that reach a cut, in no order. Returns how many there are: if more than CAPACITY, not all are
// listed. Has a barrier.
__device__ __forceinline__ unsigned list_lines(const Maxima& maxima, unsigned* lines, unsigned* count, Key cut) {
  unsigned chosen = 0;
#pragma unroll
  for (int i = 0; i < LINES; i++) chosen |= unsigned(maxima.keys[i] >= cut) << i;
  if (cut == 0) {
#pragma unroll
    for (int i = 0; i < LINES; i++) chosen &= ~(unsigned(!maxima.has(i)) << i);
  }
  const bool part = maxima.part >= cut && maxima.part_line != ~0u;
  unsigned start, all, slot = reserve_from(count, __popc(chosen) + part, start, all);
  if (start + all <= CAPACITY) {
#pragma unroll 1
    for (; chosen; chosen &= chosen - 1) lines[slot++] = maxima.line(__ffs(chosen) - 1);
    if (part) lines[slot] = maxima.part_line;
  }
  __syncthreads();
  return *count;
}

// List the elements of lines that reach a cut with the first block, in no order, and count them there.
__device__ __forceinline__ void list_elements(const Row& row, const List& list, const unsigned* lines, unsigned listed,
                                              unsigned* count, Key cut) {
  Key* keys = of_block(list.keys, 0);
  unsigned* columns = of_block(list.columns, 0);
#pragma unroll 1
  for (unsigned first = 0; first < listed; first += AGAIN * THREADS) {
    unsigned line[AGAIN];
    uint4 bits[AGAIN];
#pragma unroll
    for (int i = 0; i < AGAIN; i++) {
      const unsigned at = first + i * THREADS + threadIdx.x;
      line[i] = at < listed ? lines[at] : ~0u;
      bits[i] = row.whole(line[i]) ? __ldg(row.lines + line[i]) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < AGAIN; i++) {
      if (first + i * THREADS + warp_of() * 32 >= listed) break;
      unsigned inside = row.whole(line[i]) ? EVERY : 0;
      if (!inside && line[i] != ~0u) bits[i] = row.part(line[i], inside);
      unsigned chosen = elements_reaching(bits[i], inside, cut, row.order);
      unsigned start, all, slot = reserve_from(count, __popc(chosen), start, all);
      if (start + all > CAPACITY) continue;
#pragma unroll 1
      for (; chosen; chosen &= chosen - 1, slot++) {
        const int e = __ffs(chosen) - 1;
        keys[slot] = equal_key(element(bits[i], e), row.order), columns[slot] = row.column(line[i], e);
      }
    }
  }
}

// List all elements that reach a cut with the first block. Returns how many there are, or reach it at least, if more than
// CAPACITY: then not all are listed. Has a barrier of the cluster.
__device__ __forceinline__ unsigned list_reaching(const Row& row, const Maxima& maxima, const List& list, unsigned* lines,
                                                  Exchange& exchange, Key cut) {
  const unsigned listed = list_lines(maxima, lines, &exchange.lines[0], cut);
  unsigned* count = of_block(&exchange.found[0], 0);
  if (listed <= CAPACITY) list_elements(row, list, lines, listed, count, cut);
  else if (threadIdx.x == 0) atomicAdd(count, listed);
  cluster_sync();
  return *count;
}

// All that blocks of a cluster share, or a block keeps, beside the list.
struct Memory {
  List list;
  unsigned* lines;  // [CAPACITY]
  Exchange& exchange;
};

// Barriers of the cluster are between what `clear_memory` does and whatever uses the memory of another block.
__device__ __forceinline__ Memory memory_of(unsigned char* dynamic, Counters* counters, Exchange* exchange) {
  const List list = list_of(dynamic, counters);
  return {list, list.intervals + INTERVALS, *kept(exchange)};
}

__device__ __forceinline__ void clear_memory(Memory& memory) {
  cluster_arrive();  // waited for with the guess
  if (threadIdx.x == 0) memory.exchange.lines[0] = memory.exchange.found[0] = memory.exchange.found[1] = 0;
  clear_list(memory.list);
  clear_intervals(memory.list);
}

// Count elements of all blocks by intervals that are clear. Tells all what fits; ends with a barrier of the cluster.
__device__ __forceinline__ Fits count_fitting(const Row& row, Again again, const List& list, Fitting fitting,
                                              unsigned left) {
  visit_elements(row, again, [&](Key key, unsigned column) {
    if (fitting.counts(key, column)) atomicAdd(&list.intervals[fitting.interval(key, column)], 1u);
  });
  __syncthreads();
#if BLOCKS > 1
  unsigned* first = of_block(list.intervals, 0);
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < INTERVALS && block_of(); i += THREADS) {
    if (list.intervals[i]) atomicAdd(first + i, list.intervals[i]);
    list.intervals[i] = 0;
  }
  cluster_sync();
#endif
  unsigned* told = list.counters->crossing;
  if (block_of() == 0) {
    const Places places = add_up(list, {left, left});
    clear_intervals(list);
    __syncthreads();
    if (threadIdx.x < BLOCKS) {
      unsigned* its = of_block(told, threadIdx.x);
      its[0] = places.first, its[1] = places.begin, its[2] = places.total;
    }
  }
  cluster_sync();
  return {told[0], told[1], told[2]};
}

// List the best of the row with the first block where the guess misled: `count` elements reach it, or more. Returns how
// many, k or more; all of the block's shared memory but the exchange is clear. Has barriers of the cluster.
__device__ __forceinline__ unsigned list_again(const Row& row, const Maxima& maxima, unsigned k, const Memory& memory,
                                               Cut& cut, Key& top, unsigned count) {
  Exchange& exchange = memory.exchange;
  if (threadIdx.x < 3) memory.list.counters->crossing[threadIdx.x] = 0;  // where all fits, nothing tells it
  const Again again = {maxima.first, THREADS, maxima.end, maxima.part_line};
  const bool part = maxima.part_line != ~0u;
  Extent extent = {part ? maxima.part : ~Key(0), part ? maxima.part : 0};
#pragma unroll
  for (int i = 0; i < LINES; i++)
    if (maxima.has(i)) extent.least = min(extent.least, maxima.keys[i]), extent.most = max(extent.most, maxima.keys[i]);
  extent = extent_of_block(exchange, extent);
#if BLOCKS > 1
  if (threadIdx.x < BLOCKS) {
    *of_block(&exchange.block_guesses[block_of()], threadIdx.x) = extent.least;
    *of_block(&exchange.block_tops[block_of()], threadIdx.x) = extent.most;
  }
  cluster_sync();
  extent = {least_of_lanes(exchange.block_guesses[lane_of() % BLOCKS]),
            largest_of_lanes(exchange.block_tops[lane_of() % BLOCKS])};
#endif
  const auto counts = [&](Fitting by, unsigned left) { return count_fitting(row, again, memory.list, by, left); };
  const bool few = count < k;
  cut = cut_to_fit(few ? extent.least : cut.key, extent.most, row.cols, few ? 0 : count, k, CAPACITY, counts);
  Key* keys = of_block(memory.list.keys, 0);
  unsigned* columns = of_block(memory.list.columns, 0);
  unsigned* found = of_block(&exchange.found[1], 0);
  const auto store = [&](unsigned slot, Key key, unsigned column) { keys[slot] = key, columns[slot] = column; };
  store_elements(row, again, cut, 0, found, store);
  cluster_sync();
  top = extent.most;
  return *found;
}

// Call `answers.put(rank, key, column)` for the best k of a row, at least one, each by some thread of the cluster.
template <class Answers>
__device__ __forceinline__ void select_best(const Row& row, unsigned k, bool smallest, Memory memory, const Answers& answers) {
  const Lines lines = lines_of_block(row);
  clear_memory(memory);
  const Maxima maxima = read_maxima(row, lines, smallest);
  const Guess guess = guess_cut(maxima, memory.exchange, k, row, lines);
  Cut cut = {guess.cut, 0};
  Key top = guess.top;
  unsigned count = list_reaching(row, maxima, memory.list, memory.lines, memory.exchange, cut.key);
  if (count < k || count > CAPACITY) count = list_again(row, maxima, k, memory, cut, top, count);
  cluster_arrive();  // after the first block's memory was read
  if (block_of() == 0) {
    Held held = hold(memory.list, count);
    const unsigned cols = cut.place && top == cut.key ? ~cut.place + 1 : row.cols;  // above all that are listed
    const Even even = cut.key > 1 ? even_between(top, cut.key, cols, row.order)
                              : even_intervals(memory.list, held, count, row.cols, row.order);
    rank_held<true>(memory.list, held, count, k, even,
                    [&](unsigned rank, Key key, unsigned column) { answers.put(rank, key, column); });
  }
  cluster_wait();
}
