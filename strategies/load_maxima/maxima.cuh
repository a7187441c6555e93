// The best k of a row, by a cluster that keeps the maximum of every 16 bytes in registers: a cut is guessed, lines whose
// maxima reach it are read again and their elements listed by the cluster's first block, once more where the guess misled,
// and put in order by it.
#pragma once
#include "guess.cuh"

#ifndef MAXIMA  // of several lines: see stream_maxima
typedef Maxima OfRow;
constexpr unsigned MOST_LISTED = CAPACITY;  // lines that are listed
#endif

#include "another.cuh"

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

// List the elements of lines that reach a cut with the first block, in no order, and count them there; of all lines of maxima until they
// are more than CAPACITY.
__device__ __forceinline__ void list_elements(const Row& row, const List& list, const unsigned* lines, Again again, unsigned end,
                                              unsigned* count, Key cut) {
  Key* keys = of_block(list.keys, 0);
  unsigned* columns = of_block(list.columns, 0);
  constexpr unsigned EACH = OfRow::EACH;
  const unsigned listed = again.all ? again.count * EACH : again.count;
  const auto line_at = [&](unsigned at) {
    const unsigned first = lines[again.all ? at / EACH : at], number = again.all ? at % EACH : 0, line = first + number * STRIDE;
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
      bits[i] = line_past(row.lines + line[i], row.whole(line[i]));
    }
#pragma unroll
    for (int i = 0; i < AGAIN; i++) {
      if (first + i * THREADS + warp_of() * 32 >= listed) break;
      unsigned inside = row.whole(line[i]) ? EVERY : 0;
      if (!inside && line[i] != ~0u) bits[i] = row.part(line[i], inside);
      unsigned chosen = elements_reaching(bits[i], inside, cut, row.order);
      unsigned start, all, slot = reserve_from(count, __popc(chosen), start, all);
      if (start + all > CAPACITY) {
        if (again.all) return;
        continue;
      }
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
  if (again.count <= (again.all ? CAPACITY : MOST_LISTED)) list_elements(row, list, lines, again, maxima.end, count, cut);
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
// a tile of every thread's after the other, the first a small one, until there are enough: those of a chunk, the 32 lines that a warp has
// side by side, are counted, and have their places behind those of all blocks' chunks before. Has barriers of the cluster.
template <class Answers>
__device__ __forceinline__ void write_ties(const Row& row, const OfRow& maxima, Exchange& exchange, Key tie, unsigned want,
                                           unsigned above, const Answers& answers) {
  constexpr int TILE = LINES < 16 ? LINES : 16;  // lines of a thread
  constexpr unsigned CHUNKS = TILE * WARPS;
  static_assert(2 * CHUNKS * sizeof(unsigned) <= sizeof(exchange.maxima) && CHUNKS <= THREADS, "chunks have no room");
  unsigned* counts = reinterpret_cast<unsigned*>(exchange.maxima);  // [CHUNKS]
  unsigned* places = counts + CHUNKS;                               // [CHUNKS]
  unsigned chosen = 0, inside;
#pragma unroll
  for (int i = 0; i < OfRow::COUNT; i++) chosen |= unsigned(maxima.key(i) >= tie && maxima.has(i * OfRow::EACH)) << i;
  const auto is_chosen = [&](int number) { return (chosen >> number / OfRow::EACH & 1) && (OfRow::EACH == 1 || maxima.has(number)); };
  const auto put = [&](unsigned line, unsigned ties, unsigned place) {
#pragma unroll 1
    for (; ties && place < want; ties &= ties - 1) answers.put(above + place++, tie, row.column(line, __ffs(ties) - 1));
  };
  const auto ties_of_part = [&](unsigned line) {
    const uint4 bits = row.part(line, inside);
    return elements_equal(bits, inside, tie, row.order);
  };
  unsigned before = row.whole(0) ? 0 : __popc(ties_of_part(0));  // of all tiles before
  if (maxima.part_line == 0) put(0, ties_of_part(0), 0);
#pragma unroll 1
  for (int begin = 0, end; begin < LINES && before < want; begin = end) {
    end = begin ? begin / TILE * TILE + TILE : min(TILE, AGAIN);
    for (int i = lane_of(); i < TILE; i += 32) counts[i * WARPS + warp_of()] = 0;
    __syncwarp();
    unsigned found = 0;
#pragma unroll 1
    for (int first = begin; first < end && found < want; first += AGAIN) {
      uint4 bits[AGAIN];
#pragma unroll
      for (int i = 0; i < AGAIN; i++)
        bits[i] = line_past(row.lines + maxima.line(first + i), i < TILE && is_chosen(first + i));
#pragma unroll
      for (int i = 0; i < AGAIN && i < TILE; i++) {
        const unsigned ties = elements_equal(bits[i], is_chosen(first + i) ? EVERY : 0, tie, row.order);
        const unsigned own = __reduce_add_sync(~0u, __popc(ties));
        if (lane_of() == 0) counts[(first - begin + i) * WARPS + warp_of()] = own;
        found += own;
      }
    }
    cluster_sync();
    unsigned all = 0, place = before, total;
    if (threadIdx.x < CHUNKS) {
#pragma unroll
      for (int block = 0; block < BLOCKS; block++) {
        const unsigned its = *of_block(&counts[threadIdx.x], block);
        all += its, place += block < block_of() ? its : 0;
      }
    }
    cluster_arrive();  // before others count again
    place += scan_lanes(all, total) - all;
    if (lane_of() == 0) exchange.ties[warp_of()] = total;
    __syncthreads();
    total = lane_of() < WARPS ? exchange.ties[lane_of() % WARPS] : 0;
    place += __reduce_add_sync(~0u, lane_of() < warp_of() ? total : 0), before += __reduce_add_sync(~0u, total);
    if (threadIdx.x < CHUNKS) places[threadIdx.x] = place;
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < end - begin; i++) {
      place = places[i * WARPS + warp_of()];
      if (place >= want) continue;
      unsigned ties = 0, some;
      if (is_chosen(begin + i)) ties = elements_equal(line_past(row.lines + maxima.line(begin + i), is_chosen(begin + i)), EVERY, tie, row.order);
      place += scan_lanes(__popc(ties), some) - __popc(ties);
      put(maxima.line(begin + i), ties, place);
    }
    cluster_wait();
  }
  if (maxima.part_line != ~0u && maxima.part_line) put(maxima.part_line, ties_of_part(maxima.part_line), before);
}

// Call `answers.put(rank, key, column)` for the best k of a row, at least one, each by some thread of the cluster.
template <class Answers>
__device__ __forceinline__ void select_best(const Row& row, unsigned k, bool smallest, Memory memory, const Answers& answers) {
  OfRow maxima;
  read_maxima(row, smallest, maxima, [&] { clear_memory(memory); });
  const Guess guess = guess_cut(maxima, memory.exchange, k, row);
  Range range = {0, ONES, 0, guess.top, 0, 1};
  Key cut = guess.cut;
  unsigned count;
  bool ties = false;
#pragma unroll 1
  for (unsigned round = 0;; round++) {
    count = list_reaching(row, maxima, memory.list, memory.lines, memory.exchange, cut, round);
    const bool enough = count >= k;
    if (enough && count <= CAPACITY) break;
    if (enough) range.bottom = cut, range.reached = count;
    else range.top = cut - 1, range.above = count;
    if (range.bottom < range.top) {
      if (round == 0 && enough) cut++;  // perhaps most were ties
      else if (round % 8 == 7) cut = range.middle();
      else cut = another_cut(maxima, memory.exchange, range, (k + CAPACITY) / 2);
      if (range.bottom < range.top) continue;
    }
    write_ties(row, maxima, memory.exchange, range.top, k - range.above, range.above, answers);
    count = range.above, ties = true;
    if (enough && count) list_reaching(row, maxima, memory.list, memory.lines, memory.exchange, range.top + 1, round + 1);
    break;
  }
  cluster_arrive();  // after the first block's memory was read
  if (block_of() == 0 && count > 0) {
    Held held = hold(memory.list, count);
    const bool known = cut > 1 && !ties && guess.top < least_special(row.order);
    const Even even = known ? even_between(guess.top, cut, row.cols, row.order)
                            : even_intervals(memory.list, held, count, row.cols, row.order);
    rank_held(memory.list, held, count, min(count, k), even,
              [&](unsigned rank, Key key, unsigned column) { answers.put(rank, key, column); });
  }
  cluster_wait();
}
