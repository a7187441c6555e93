// Where the cuts of blocks were too high for one another: every block lists as many of its best as there is room for;
// if that is not enough, since most of the best are of few blocks, cuts for all are tried.
#pragma once
#include "gather.cuh"

// Every block lists as many of its best as there is room for, and sends them to all. Returns the highest of their cuts,
// not 0.
template <class Blocks> __device__ __forceinline__ Cut list_again(const Row& row, unsigned k, const Room& room) {
  clear_entries(room);
  clear_intervals(room.list);
  Blocks::arrive();  // before others send
  const Extent extent = extent_of(row, lines_again<Blocks>(row), room.exchange);
  Cut cut = {extent.least, 0};  // which at least one of every line reaches
  const unsigned own = list_fitting<Blocks>(row, k, room, &room.exchange.lines[2], extent.most, SEGMENT<Blocks>, cut);
  Blocks::wait();
  send_entries<Blocks>(room, own);
  tell_cut<Blocks>(room, cut, extent.most);
  Blocks::sync();
  cut = highest_cut<Blocks>(room);
  return cut.key ? cut : Cut{1, 0};  // keys of 0 are none; if they are wanted, too, there are too few
}

// Tell all blocks how many entries this one has; before a barrier of the cluster.
template <class Blocks> __device__ __forceinline__ void tell_count(const Room& room, unsigned turn, unsigned count) {
  if (threadIdx.x < Blocks::COUNT) Blocks::of(&room.told, threadIdx.x)->counts[turn][Blocks::own()] = count;
}

// List all elements that reach a cut with every block. Returns how many there are: if more than CAPACITY, none is
// listed. Rounds count from 0; all have barriers of the cluster.
template <class Blocks>
__device__ __forceinline__ unsigned list_reaching(const Row& row, const Room& room, Key cut, unsigned round) {
  const unsigned turn = round % 3;
  unsigned own = 0;
  visit_elements(row, lines_again<Blocks>(row), [&](Key key, unsigned) { own += key >= cut; });
  own = __reduce_add_sync(~0u, own);
  if (lane_of() == 0) atomicAdd(&room.exchange.found[turn], own);
  __syncthreads();
  tell_count<Blocks>(room, round % 2, room.exchange.found[turn]);
  Blocks::sync();
  unsigned total = 0, before = 0;
#pragma unroll 1
  for (unsigned block = 0; block < Blocks::COUNT; block++) {
    if (block == Blocks::own()) before = total;
    total += room.told.counts[round % 2][block];
  }
  if (total <= CAPACITY)
    store_elements(row, lines_again<Blocks>(row), {cut, 0}, before, &room.exchange.lines[turn],
                   [&](unsigned at, Key key, unsigned column) {
#pragma unroll 1
                     for (unsigned to = 0; to < Blocks::COUNT; to++)
                       *Blocks::of(room.list.keys + at, to) = key, *Blocks::of(room.list.columns + at, to) = column;
                   });
  // unused since the last barrier
  if (threadIdx.x == 0) room.exchange.found[(turn + 1) % 3] = room.exchange.lines[(turn + 1) % 3] = 0;
  Blocks::sync();
  return total;
}

// List the best k with every block by cuts for all. Returns how many are listed, at most CAPACITY; the others of
// the best are written.
template <class Blocks, class Answers>
__device__ __forceinline__ unsigned list_by_turns(const Row& row, unsigned k, const Room& room,
                                                  const Answers& answers) {
  const unsigned block = lane_of() % Blocks::COUNT;
  const Key top = largest_of_lanes(room.told.tops[block]);
  Key cut = least_of_lanes(room.told.cuts[block]);
  Range range = {0, ONES, 0, row.cols};
  unsigned round = 0;
  if (threadIdx.x == 0) room.exchange.found[0] = room.exchange.lines[0] = 0;
  __syncthreads();
#pragma unroll 1
  for (;;) {
    const unsigned count = list_reaching<Blocks>(row, room, cut, round++);
    if (count >= k && count <= CAPACITY) return count;
    if (range.bottom == range.top) return count;  // those above the ties
    if (count >= k) range.bottom = cut, range.within = count - range.above;
    else range.top = cut - 1, range.within -= count - range.above, range.above = count;
    if (range.bottom == range.top) {
      write_ties<Blocks::COUNT>(row, room.exchange, range.top, k - range.above, range.above, answers);
      if (!range.above) return 0;
      cut = range.top + 1;
    } else if (round == 1 && count >= k) cut = range.bottom + 1;  // perhaps most were ties
    else if (round % 3 == 0) cut = range.middle();
    else cut = range.between((k + CAPACITY) / 2, top);
  }
}
