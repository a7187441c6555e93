// Elements that have the key of the k-th, of which the first by columns are wanted: their places come from how many each chunk has, in
// all blocks.
#pragma once
#include "room.cuh"

// Count those of each chunk of this block. By all its threads; has no barrier.
template <class Blocks>
__device__ __forceinline__ void count_ties(const Holding<Blocks>& holding, const Reaching<Blocks>& ties, const Room& room) {
  unsigned short* own = room.chunks + Blocks::own() * COUNTED_CHUNKS;
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) {
    const unsigned all = __reduce_add_sync(~0u, __popc(ties.of_line(i)));
    if (lane_of() == 0) own[i * WARPS + warp_of()] = all;
  }
  if (threadIdx.x < COUNTED_CHUNKS - CHUNKS) own[CHUNKS + threadIdx.x] = holding.part_line == 0 ? __popc(ties.part) : 0;  // before all whole lines
}

// Tell all others; behind a barrier.
template <class Blocks> __device__ __forceinline__ void send_ties(const Room& room) {
  constexpr unsigned GROUPS = COUNTED_CHUNKS / 8;
  uint4* own = reinterpret_cast<uint4*>(room.chunks + Blocks::own() * COUNTED_CHUNKS);
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < Blocks::COUNT * GROUPS; at += THREADS) {
    const unsigned to = at / GROUPS, group = at % GROUPS;
    if (to != Blocks::own()) send(own + group, own[group], &room.told.later[AGAIN], to);
  }
}
template <class Blocks> constexpr unsigned TIES_BYTES = (Blocks::COUNT - 1) * COUNTED_CHUNKS * 2;  // that a block is sent

// Write the first `want` of them by columns, behind the `above` best. By all blocks, behind a barrier. Has two.
template <class Blocks, class Answers>
__device__ __forceinline__ void write_ties(const Row& row, const Holding<Blocks>& holding, const Reaching<Blocks>& ties, const Room& room,
                                           Key tie, unsigned want, unsigned above, const Answers& answers) {
  constexpr unsigned OWN_CHUNKS = Blocks::HOLDS * WARPS;
  static_assert(OWN_CHUNKS <= THREADS, "a thread for each chunk");
  Key* places = room.exchange.maxima[0];
  unsigned sum = 0, before = 0, all;
  if (threadIdx.x < OWN_CHUNKS) {
#pragma unroll
    for (unsigned block = 0; block < Blocks::COUNT; block++) {
      const unsigned its = room.chunks[block * COUNTED_CHUNKS + threadIdx.x];
      before += block < Blocks::own() ? its : 0, sum += its;
    }
  }
  before += scan_lanes(sum, all) - sum;
  if (lane_of() == 0) room.list.counters->totals[0][warp_of()] = all;
  __syncthreads();
  const unsigned its = lane_of() < WARPS ? room.list.counters->totals[0][lane_of()] : 0, first = room.chunks[CHUNKS];
  before += first + __reduce_add_sync(~0u, lane_of() < warp_of() ? its : 0);
  const unsigned last = first + __reduce_add_sync(~0u, its);  // behind all whole lines
  if (threadIdx.x < OWN_CHUNKS) places[threadIdx.x] = before;
  __syncthreads();
  const auto put = [&](unsigned line, unsigned its, unsigned place) {
#pragma unroll 1
    for (; its && place < want; its &= its - 1) answers.put(above + place++, tie, row.column(line, __ffs(its) - 1));
  };
#pragma unroll 1
  for (int i = 0; i < Blocks::HOLDS; i++) {
    unsigned place = unsigned(places[i * WARPS + warp_of()]);
    if (place >= want) break;
    const unsigned own = ties.of_line(i);
    place += scan_lanes(__popc(own), all) - __popc(own);
    put(holding.line(i), own, place);
  }
  if (ties.part) put(holding.part_line, ties.part, holding.part_line ? last : 0);
}
