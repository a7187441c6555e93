// The best k of a row, by a cluster that keeps the maximum of every 16 bytes in registers: a cut is guessed, lines whose
// maxima reach it are read again and their elements listed by the cluster's first block, once more where the guess misled,
// and put in order by it.
#pragma once
#include "guess.cuh"

#ifndef MAXIMA  // of several lines: see stream_maxima
typedef Maxima OfRow;
constexpr unsigned MOST_LISTED = CAPACITY;  // lines that are listed
#endif

constexpr int AGAIN = 4;  // lines of a thread that are read again at once

// Reserve `own` of what is counted at `count`. Returns the first, and how many the warp has, from `start` on.
__device__ __forceinline__ unsigned reserve_from(unsigned* count, unsigned own, unsigned& start, unsigned& all) {
  const unsigned upto = scan_lanes(own, all);
  start = 0;
  if (lane_of() == 0 && all) start = atomicAdd(count, all);
  start = __shfl_sync(~0u, start, 0);
  return start + upto - own;
}

// What is to be read again: lines, or of maxima that are listed by their first lines all.
struct Again {
  unsigned count;
  bool all;
};

// List the block's lines that may have elements that reach a cut, in no order; if more than MOST_LISTED, the maxima that do, and if these
// are more, not all of them. Has a barrier, or four.
__device__ __forceinline__ Again list_lines(const OfRow& maxima, unsigned* lines, unsigned* count, Key cut) {
  constexpr int EACH = OfRow::EACH;
  unsigned chosen = 0;
#pragma unroll
  for (int i = 0; i < OfRow::COUNT; i++) chosen |= unsigned(maxima.key(i) >= cut) << i;
  if (cut == 0) {
#pragma unroll
    for (int i = 0; i < OfRow::COUNT; i++) chosen &= ~(unsigned(!maxima.has(i * EACH)) << i);
  }
  const bool part = maxima.part >= cut && maxima.part_line != ~0u, several = maxima.several(cut);
  unsigned start, all, slot = reserve_from(count, __popc(chosen) * (several ? EACH : 1) + part, start, all);
  if (start + all <= MOST_LISTED) {
    if (!several) {
#pragma unroll 1
      for (unsigned left = chosen; left; left &= left - 1) lines[slot++] = maxima.best_line(__ffs(left) - 1);
    } else {
#pragma unroll 1
      for (unsigned left = chosen; left; left &= left - 1) {
        const int first = (__ffs(left) - 1) * EACH;
#pragma unroll 1
        for (int i = first; i < first + EACH; i++) lines[slot++] = maxima.has(i) ? maxima.line(i) : ~0u;
      }
    }
    if (part) lines[slot] = maxima.part_line;
  }
  __syncthreads();
  const unsigned listed = *count;
  if (EACH == 1 || listed <= MOST_LISTED) return {listed, false};
  __syncthreads();
  if (threadIdx.x == 0) *count = 0;
  __syncthreads();
  slot = reserve_from(count, __popc(chosen) + part, start, all);
  if (start + all <= MOST_LISTED) {
#pragma unroll 1
    for (; chosen; chosen &= chosen - 1) lines[slot++] = maxima.line((__ffs(chosen) - 1) * EACH);
    if (part) lines[slot] = maxima.part_line;
  }
  __syncthreads();
  return {*count, true};
}

// List the elements of lines that reach a cut with the first block, in no order, and count them there.
__device__ __forceinline__ void list_elements(const Row& row, const List& list, const unsigned* lines, Again again, unsigned end,
                                              unsigned* count, Key cut) {
  Key* keys = of_block(list.keys, 0);
  unsigned* columns = of_block(list.columns, 0);
  constexpr unsigned EACH = OfRow::EACH;
  const unsigned listed = again.all ? again.count * EACH : again.count;
  const auto line_at = [&](unsigned at) {
    const unsigned first = lines[again.all ? at / EACH : at], number = again.all ? at % EACH : 0, line = first + number * THREADS;
    return number == 0 || (row.whole(first) && line < end) ? line : ~0u;
  };
#pragma unroll 1
  for (unsigned first = 0; first < listed; first += AGAIN * THREADS) {
    unsigned line[AGAIN];
    uint4 bits[AGAIN];
#pragma unroll
    for (int i = 0; i < AGAIN; i++) {
      const unsigned at = first + i * THREADS + threadIdx.x;
      line[i] = at < listed ? line_at(at) : ~0u;
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
// CAPACITY: then not all are listed. Rounds count from 0; all have barriers of the cluster.
__device__ __forceinline__ unsigned list_reaching(const Row& row, const OfRow& maxima, const List& list, unsigned* lines,
                                                  Exchange& exchange, Key cut, unsigned round) {
  const unsigned turn = round % 3;
  const Again again = list_lines(maxima, lines, &exchange.lines[turn], cut);
  unsigned* count = of_block(&exchange.found[turn], 0);
  if (again.count <= MOST_LISTED) list_elements(row, list, lines, again, maxima.end, count, cut);
  else if (threadIdx.x == 0) atomicAdd(count, again.count);
  if (threadIdx.x == 0) exchange.lines[(turn + 1) % 3] = exchange.found[(turn + 1) % 3] = 0;  // unused since the last barrier
  cluster_sync();
  return *count;
}

// All that blocks of a cluster share, or a block keeps, beside the list.
struct Memory {
  List list;
  unsigned* lines;  // [MOST_LISTED]
  Exchange& exchange;
};

// Barriers of the cluster are between what `clear_memory` does and whatever uses the memory of another block.
__device__ __forceinline__ Memory memory_of(unsigned char* dynamic, Counters* counters, Exchange* exchange) {
  const List list = list_of(dynamic, counters);
  return {list, list.intervals + INTERVALS, *kept(exchange)};
}

__device__ __forceinline__ void clear_memory(Memory& memory) {
  cluster_arrive();  // waited for with the guess
  if (threadIdx.x == 0) memory.exchange.lines[0] = memory.exchange.found[0] = 0;
  clear_list(memory.list);
  clear_intervals(memory.list);
}

// Write the elements that have a key, the first `want` by columns, behind the `above` best. Lines whose maxima reach it are read again,
// and counted by chunks of 32 that lie side by side, where maxima were. Has a barrier of the cluster.
template <class Answers>
__device__ __forceinline__ void write_ties(const Row& row, const OfRow& maxima, const Memory& memory, Key tie, unsigned want,
                                           unsigned above, const Answers& answers) {
  constexpr int TILE = LINES < 32 ? LINES : 32, TILES = LINES / TILE;  // lines of a thread whose chunks have room
  constexpr unsigned CHUNKS = TILE * WARPS;
  static_assert(CHUNKS * sizeof(unsigned) <= sizeof(memory.exchange.maxima), "chunks have no room");
  unsigned* chunks = reinterpret_cast<unsigned*>(memory.exchange.maxima);
  unsigned chosen = 0, part = 0;
#pragma unroll
  for (int i = 0; i < OfRow::COUNT; i++) chosen |= unsigned(maxima.key(i) >= tie && maxima.has(i * OfRow::EACH)) << i;
  const auto is_chosen = [&](int number) { return (chosen >> number / OfRow::EACH & 1) && (OfRow::EACH == 1 || maxima.has(number)); };
  if (maxima.part_line != ~0u) {
    unsigned inside;
    const uint4 bits = row.part(maxima.part_line, inside);
    part = elements_equal(bits, inside, tie, row.order);
  }
  // Count those of a tile by chunks, and the block's before every chunk from `before` on. Returns how many there are then, to the first
  // warp. Has a barrier.
  unsigned found = 0;
  const auto count_tile = [&](int begin, unsigned before) {
    for (int i = lane_of(); i < TILE; i += 32) chunks[i * WARPS + warp_of()] = 0;
    __syncwarp();
#pragma unroll 1
    for (int first = 0; first < TILE && found < want; first += AGAIN) {
      uint4 bits[AGAIN];
#pragma unroll
      for (int i = 0; i < AGAIN; i++)
        bits[i] = first + i < TILE && is_chosen(begin + first + i) ? __ldg(row.lines + maxima.line(begin + first + i)) : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (int i = 0; i < AGAIN; i++) {
        const unsigned inside = first + i < TILE && is_chosen(begin + first + i) ? EVERY : 0;
        const unsigned own = __reduce_add_sync(~0u, __popc(elements_equal(bits[i], inside, tie, row.order)));
        if (lane_of() == 0 && first + i < TILE) chunks[(first + i) * WARPS + warp_of()] = own;
        found += own;
      }
    }
    __syncthreads();
    if (warp_of() == 0) {
#pragma unroll 1
      for (unsigned first = 0; first < CHUNKS; first += 32) {
        const bool has = first + lane_of() < CHUNKS;
        const unsigned own = has ? chunks[first + lane_of()] : 0;
        unsigned all, upto = before + scan_lanes(own, all);
        if (has) chunks[first + lane_of()] = upto - own;
        before += all;
      }
    }
    return before;
  };
  unsigned own_ties = __shfl_sync(~0u, maxima.part_line == 0 ? __popc(part) : 0, 0);
  const unsigned in_part = own_ties;
#pragma unroll 1
  for (int tile = 0; tile < TILES; tile++) {
    own_ties = count_tile(tile * TILE, own_ties);
    if (TILES > 1) __syncthreads();
  }
  if (warp_of() == 0 && lane_of() < BLOCKS) *of_block(&memory.exchange.block_ties[block_of()], lane_of()) = own_ties;
  cluster_sync();
  const unsigned its = lane_of() < BLOCKS ? memory.exchange.block_ties[lane_of() % BLOCKS] : 0, all = __reduce_add_sync(~0u, its);
  const unsigned before = __reduce_add_sync(~0u, lane_of() < block_of() ? its : 0);
  const auto put = [&](unsigned line, unsigned ties, unsigned place) {
#pragma unroll 1
    for (; ties && place < want; ties &= ties - 1) answers.put(above + place++, tie, row.column(line, __ffs(ties) - 1));
  };
  unsigned counted = in_part;
  found = 0;
#pragma unroll 1
  for (int i = 0; i <= LINES; i++) {
    if (i == LINES) {
      put(maxima.part_line, part, maxima.part_line ? all : 0);
      break;
    }
    if (TILES > 1 && i % TILE == 0) {  // again, now that the others' are known
      __syncthreads();
      counted = count_tile(i, counted);
      __syncthreads();
    }
    unsigned place = before + chunks[i % TILE * WARPS + warp_of()], own = 0, some;
    if (place >= want) continue;
    if (is_chosen(i)) own = elements_equal(__ldg(row.lines + maxima.line(i)), EVERY, tie, row.order);
    place += scan_lanes(__popc(own), some) - __popc(own);
    put(maxima.line(i), own, place);
  }
}

// Call `answers.put(rank, key, column)` for the best k of a row, at least one, each by some thread of the cluster.
template <class Answers>
__device__ __forceinline__ void select_best(const Row& row, unsigned k, bool smallest, Memory memory, const Answers& answers) {
  const Lines lines = lines_of_block(row);
  OfRow maxima;
  read_maxima(row, lines, smallest, maxima, [&] { clear_memory(memory); });
  const Guess guess = guess_cut(maxima, memory.exchange, k, row, lines);
  Range range = {0, ONES, 0, row.cols};
  Key cut = guess.cut;
  unsigned count, round = 0;
#pragma unroll 1
  for (;;) {
    count = list_reaching(row, maxima, memory.list, memory.lines, memory.exchange, cut, round++);
    if (count >= k && count <= CAPACITY) break;
    if (count >= k) range.bottom = cut, range.within = count - range.above;
    else range.top = cut - 1, range.within -= count - range.above, range.above = count;
    if (range.bottom == range.top) {
      write_ties(row, maxima, memory, range.top, k - range.above, range.above, answers);
      cut = range.top + 1, count = range.above;
      if (count) list_reaching(row, maxima, memory.list, memory.lines, memory.exchange, cut, round);
      break;
    }
    if (round == 1 && count >= k) cut = range.bottom + 1;  // perhaps most were ties
    else if (round % 3 == 0) cut = range.middle();
    else cut = range.between((k + CAPACITY) / 2, guess.top);
  }
  cluster_arrive();  // after the first block's memory was read
  if (block_of() == 0 && count > 0) {
    Held held = hold(memory.list, count);
    const Even even = cut > 1 ? even_between(guess.top, cut, row.cols, row.order)
                              : even_intervals(memory.list, held, count, row.cols, row.order);
    rank_held(memory.list, held, count, min(count, k), even,
              [&](unsigned rank, Key key, unsigned column) { answers.put(rank, key, column); });
  }
  cluster_wait();
}
