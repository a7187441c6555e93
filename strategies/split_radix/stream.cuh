// The best of a row that blocks read once, a part each: what passes a cut that a sample of the row tells, the same for all
// parts, is listed; the last block to come has it all, and puts it in order.
#pragma once
#include "filter.cuh"
#include "found.cuh"
#include "ranks.cuh"
#include "sample.cuh"

constexpr unsigned MOST_RANKED = ITEMS * THREADS < CAPACITY ? ITEMS * THREADS : CAPACITY;

// What a part that lists `count` may hand on: were all parts like this one, there might be no room for all, in scratch memory
// or in the list of the last.
__device__ __forceinline__ unsigned most_of_part(unsigned count, unsigned want, unsigned parts) {
  if (parts == 1) return MOST_RANKED;
  const bool many = count > want && count * parts > CAPACITY && want * parts <= CAPACITY;
  return many ? min(share_of(want), CAPACITY / parts) : share_of(want);
}

// Reads on while the list is full, and makes it as short as a part's may be.
__device__ __forceinline__ void fit(List& list, Span& span, Order order, Progress at, unsigned want, unsigned parts) {
  const unsigned from = span.begin - span.skew;
#pragma unroll 1
  for (bool full = span.listed != ~0u;;) {
    const unsigned count = full ? span.listed : list.counters->count;
    const unsigned most = full ? CAPACITY / 2 : most_of_part(count, want, parts);
    if (count > most) shorten(list, count, want, most, span.cut, from);
    if (!full) return;
    full = __syncthreads_or(filter_again(list, span, order, at));
  }
}

// The best of a row, of which the sample misled: this block reads it once more.
__device__ __forceinline__ void read_whole(List& list, Span& span, const WholeRow& row, unsigned want) {
  empty_list(list);
  if (threadIdx.x == 0) row.find_part(span, 0, 1), span.cut = {0, 0}, span.listed = 0;
  __syncthreads();
}

// All that is rare, from a stage on.
template <bool ALONE, class FoundOf, class Put>
__device__ __forceinline__ void select_again(List& list, Span& span, const WholeRow& row, Progress at, unsigned want,
                                             FoundOf found_of, Put put) {
  unsigned parts = ALONE ? 1 : span.parts;
  __syncthreads();
  Stage stage = span.stage;
#pragma unroll 1
  for (;;) {
    if (stage == PART) fit(list, span, row.order, at, want, parts);
    if (parts > 1 && threadIdx.x == 0) span.cut = list.counters->cut;  // that of all parts
    if (parts > 1 && stage == PART) {
      const Found found = found_of(span.row, parts);
      hand_on(list, found);
      if (!comes_last(list, found)) return;
    }
    __syncthreads();
    unsigned count = parts > 1 ? list.counters->found : list.counters->count;
    if (parts > 1 && stage <= ROW) count = gather(list, found_of(span.row, parts), want, span.cut);
    if (count >= want) {
      if (count > MOST_RANKED) shorten(list, count, want, MOST_RANKED, span.cut, 0), count = list.counters->count;
      rank_crowds(list, span.cut, count, want, row.order, stage == ORDER, put);
      return;
    }
    read_whole(list, span, row, want);
    parts = 1, stage = PART, at = beginning();
  }
}

// Calls `put(rank, key, column)` for the best `want` of a row, at least one, each by some thread of the block that comes
// last. `found_of(row, parts)` is where parts hand on what they found, if there are several. What is needed when the part was
// read is in shared memory: a register would be spilled for it, and spills come back from DRAM then, microseconds late.
template <bool ALONE, class FoundOf, class Put>
__device__ __forceinline__ void select_best(List& list, Span& span, const WholeRow& whole, unsigned number, unsigned row,
                                            unsigned its_parts, unsigned want, FoundOf found_of, Put put) {
  if (threadIdx.x == 0) whole.find_part(span, number, its_parts), span.row = row, span.parts = its_parts, span.stage = PART;
  const Sampling sampling = sampling_of(whole, want);  // while that thread does
  clear_list(list);                                    // with a barrier
  RowPart part = {span, whole.order};
  find_cut(list, part, sampling, its_parts);
  Progress at = beginning();
  const bool full = __syncthreads_or(filter<false>(list, part, at));
  const unsigned parts = ALONE ? 1 : span.parts;
  unsigned count = list.counters->count;
  const unsigned most = most_of_part(count, want, parts);
  if (!full && (count <= most || count <= MOST_COMPARED)) {
    at = {};  // of no more use
    if (count > most) keep_of_few(list, count, want), count = want;  // of a hundred million columns
    if (threadIdx.x == 0) span.stage = ROW;
    bool listed = parts == 1;
    if (parts > 1) {
      const Found found = found_of(span.row, parts);
      hand_on(list, found);
      if (!comes_last(list, found)) return;
      count = list.counters->found;
      listed = count <= CAPACITY && count <= found.room;
      if (listed) copy(list, found, count);
    }
    if (listed) {
      if (threadIdx.x == 0) span.stage = LIST;
      if (count >= want && count <= MOST_RANKED) {
        if (threadIdx.x == 0) span.stage = ORDER;
        Held held = hold(list, count);
        clear_intervals(list);
        const Even even = even_intervals(list, held, count, whole.cols, whole.order);
        if (!count_intervals(list, held, count, want, even)) {
          rank_intervals(list, held, count, want, even, put);
          return;
        }
      }
    }
  }
  select_again<ALONE>(list, span, whole, at, want, found_of, put);
}
