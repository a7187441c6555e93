// Entries that the blocks of a cluster send each other, each to the block whose range it is in: how many there are, and their order.
#pragma once
#include "pivots.cuh"
#include "room.cuh"

constexpr int SHARING = WARPS > BLOCKS ? WARPS / BLOCKS : 1;  // warps for a run, which is what one block was sent by another
constexpr int COUNTED_BITS = 7, COUNTED = 1 << COUNTED_BITS;  // intervals of a range

// What blocks tell each other of their runs.
struct Parts {
  unsigned counts[BLOCKS];          // of own entries in every block's range
  unsigned long long of[BLOCKS];    // of every block: 16 bits each of its entries in the range, those that are better, all in ranges, and
                                    // flags, 5 bits each so that the sum tells the sums of all
};

// What is told of a block's entries, by flags.
enum { LACKS, UNLISTED, COMMON };  // a run lacked room, not all are listed, many may have one key

// Tell every block how many it was sent, behind a barrier.
template <unsigned RUN> __device__ __forceinline__ void tell_parts(Parts& parts, Signal* counted, bool listed, bool common) {
  const int to = warp_of();
  if (to >= BLOCKS) return;
  const unsigned its = lane_of() < BLOCKS ? parts.counts[lane_of() % BLOCKS] : 0, all = __reduce_add_sync(~0u, its);
  const bool lacks = __any_sync(~0u, its > RUN);
  const unsigned before = __reduce_add_sync(~0u, lane_of() < to ? its : 0), own = __shfl_sync(~0u, its, to);
  const unsigned flags = unsigned(lacks) << 5 * LACKS | unsigned(!listed) << 5 * UNLISTED | unsigned(common) << 5 * COMMON;
  if (lane_of() == 0) send(&parts.of[block_of()], (unsigned long long)(flags << 16 | all) << 32 | before << 16 | own, counted, to);
}

// What a block was sent.
struct Received {
  unsigned first;  // rank of its best
  unsigned count;
  unsigned all;    // entries in all ranges
  unsigned flags;  // of all blocks
  unsigned run;    // entries of the run that this warp has

  __device__ __forceinline__ bool says(int flag) const { return flags >> 5 * flag & 31; }
  __device__ __forceinline__ bool complete() const { return !says(LACKS) && !says(UNLISTED); }
};

// Waits for all of it.
template <unsigned RUN> __device__ __forceinline__ Received received_of(const Parts& parts, Signal* counted, Signal* runs) {
  wait_for(counted);
  const unsigned long long part = lane_of() < BLOCKS ? parts.of[lane_of() % BLOCKS] : 0;
  const unsigned its = unsigned(part) & 0xFFFF, own = __reduce_add_sync(~0u, unsigned(part)), all = __reduce_add_sync(~0u, unsigned(part >> 32));
  if (warp_of() == 0) {
    const unsigned sent = __reduce_add_sync(~0u, min(its, RUN));
    if (lane_of() == 0) expect(runs, sent * sizeof(Entry));
  }
  wait_for(runs);
  return {own >> 16, own & 0xFFFF, all & 0xFFFF, all >> 16, __shfl_sync(~0u, its, warp_of() / SHARING)};
}

// The first ranks of intervals whose counts a warp knows, four a lane.
struct Starts {
  unsigned low, middle, high;  // of a lane's first two intervals, the other two, and behind the last; 16 bits each
  bool crowd;                  // whether an interval has so many that ranking among them takes too long

  __device__ __forceinline__ unsigned all() const { return __shfl_sync(~0u, high, 31); }
  __device__ __forceinline__ void find(unsigned interval, unsigned& begin, unsigned& end) const {
    const int lane = interval / 4;
    const unsigned two = __shfl_sync(~0u, low, lane), other = __shfl_sync(~0u, middle, lane), last = __shfl_sync(~0u, high, lane);
    const unsigned from = interval & 2 ? other : two, next = interval & 2 ? last : other;
    begin = interval & 1 ? from >> 16 : from & 0xFFFF, end = interval & 1 ? next & 0xFFFF : from >> 16;
  }
};

template <unsigned MOST> __device__ __forceinline__ Starts starts_of(const unsigned* counts) {
  const uint4 own = reinterpret_cast<const uint4*>(counts)[lane_of()];
  unsigned all, sum = own.x + own.y + own.z + own.w, start = scan_lanes(sum, all) - sum;
  const unsigned second = start + own.x, third = second + own.y, fourth = third + own.z;
  const bool crowd = __any_sync(~0u, max(max(own.x, own.y), max(own.z, own.w)) > MOST);
  return {second << 16 | start, fourth << 16 | third, start + sum, crowd};
}

// Call `answers.put(rank, key, column)` for the entries of the range below rank k, each by some thread: they are counted by the COUNTED
// intervals that `interval_of(entry)` tells, or where these crowd, by intervals between them, and ranked among the few of their own.
// Runs have places for RUN entries each, and more than MOST of an interval are a crowd; the first intervals of the list are clear.
template <unsigned RUN, unsigned MOST, class IntervalOf, class Answers>
__device__ __forceinline__ void rank_range(const List& list, const Entry* runs, Entry* places, const Received& received, IntervalOf interval_of,
                                           unsigned k, const Answers& answers) {
  constexpr int OF_RUN = (RUN + SHARING * 32 - 1) / (SHARING * 32), OF_THREAD = (BLOCKS * RUN + THREADS - 1) / THREADS;  // entries
  Entry entries[OF_RUN];  // 0 where there is none
  unsigned interval[OF_RUN], place[OF_RUN];
#pragma unroll
  for (int i = 0; i < OF_RUN; i++) {
    const unsigned first = (i * SHARING + warp_of() % SHARING) * 32, at = first + lane_of();
    entries[i] = 0;
    if (first >= received.run) continue;
    entries[i] = at < received.run ? runs[warp_of() / SHARING % BLOCKS * RUN + at] : 0;
    interval[i] = interval_of(entries[i]);
    if (entries[i]) place[i] = atomicAdd(&list.intervals[interval[i]], 1u);
  }
  __syncthreads();
  const Starts starts = starts_of<MOST>(list.intervals);
  unsigned begin[OF_RUN], end[OF_RUN];
#pragma unroll
  for (int i = 0; i < OF_RUN; i++) {
    if ((i * SHARING + warp_of() % SHARING) * 32 >= received.run) continue;
    starts.find(interval[i], begin[i], end[i]);
    if (entries[i]) places[begin[i] + place[i]] = entries[i];
  }
  __syncthreads();
  if (starts.crowd) {
    Entry* pivots = reinterpret_cast<Entry*>(list.intervals + INTERVALS / 2);
    const auto put = [&](unsigned rank, Entry entry) { put_entry(answers, received.first + rank, entry); };
    return rank_crowd<COUNTED, OF_THREAD>(places, received.count, 0, k - received.first, pivots, list.intervals, put);
  }
#pragma unroll
  for (int i = 0; i < OF_RUN; i++) {
    if (!entries[i]) continue;
    const unsigned rank = received.first + rank_among(places, begin[i], end[i], entries[i]);
    if (rank < k) put_entry(answers, rank, entries[i]);
  }
}
