// A part of a row read once: loads that may hold what a cut chooses are known by few instructions, and wait in a queue of
// their warp until there is one for every lane; these are read again, while caches have them, and looked at exactly. When
// the list is full, warps stop one by one, the list is made shorter, and they go on with a better cut.
#pragma once
#include "row.cuh"
#include "shorter.cuh"

constexpr unsigned QUEUE = 32 * (LOADS + 1);  // of a warp, where intervals are later: those of a tile, and what was left
constexpr unsigned MOST_TAKEN = CAPACITY / 2 / VECTOR < 32 ? CAPACITY / 2 / VECTOR : 32;  // there is room in a short list

// Tells whether a load may hold an element whose key is at least that of a cut; it may say so of others.
template <bool SMALLEST, bool HALF> struct Sieve {
#if FLOAT && ELEMENT_BYTES == 2
  unsigned bound;  // twice

  __device__ __forceinline__ Sieve(Key key, Order order) {
    const Key bits = bound_bits(key, order) ^ (order.turn & SIGN);
    bound = ((bits & (SIGN - 1)) > infinity_of(order) ? 0xFFFFu : bits) * 0x10001u;  // the better of NaN is another NaN
  }
  __device__ __forceinline__ bool lets_pass(uint4 bits) const {
    const auto better = better_bits<SMALLEST, HALF>;
    return better(better(better(bits.x, bits.y), bits.z), better(bits.w, bound)) != bound;
  }
#elif FLOAT && ELEMENT_BYTES == 4
  float bound;

  __device__ __forceinline__ Sieve(Key key, Order order)
      : bound(__uint_as_float(bound_bits(key, order) ^ (order.turn & SIGN))) {}

  __device__ __forceinline__ bool lets_pass(uint4 bits) const {
    bool any = false;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const float number = __uint_as_float(element(bits, e));
      any |= SMALLEST ? !(number >= bound) : !(number <= bound);
    }
    return any;
  }
#else
  Number bound;
  Order order;

  __device__ __forceinline__ Sieve(Key key, Order order) : bound(bound_of(key, order)), order(order) {}
  __device__ __forceinline__ bool lets_pass(uint4 bits) const { return reaches(flipped(bits, order), bound, order); }
#endif
};

constexpr unsigned EDGES_LEFT = 1u << 31;  // beside the number of loads that wait: the part's edges were not looked at yet

// How far a warp has read a part: the next tile, and how many loads wait in its queue.
struct Progress {
  unsigned tile, waiting;
};

__device__ __forceinline__ Progress beginning() { return {0, threadIdx.x < 32 ? EDGES_LEFT : 0}; }

// The first place of the warp's queue; its last is never needed, and tells whether there was no room for what it found.
__device__ __forceinline__ unsigned front_of_queue() { return (threadIdx.x & ~31u) * (QUEUE / 32); }

// The first of so many slots for a warp. Returns whether there is room; if not, there is none for anyone any more, and what
// is listed ends where the first of those would have begun that found none.
__device__ __forceinline__ bool claim(List& list, RowPart& part, unsigned count, unsigned& start) {
  start = 0;
  if (lane_of() == 0) {
    start = atomicAdd(&list.counters->count, count);
    const bool none = start + count > CAPACITY;
    list.intervals[front_of_queue() + QUEUE - 1] = none;
    if (none) atomicMin(&part.span.listed, start);
  }
  start = __shfl_sync(~0u, start, 0);
  return start + count <= CAPACITY;
}

// Look at loads that wait, one a lane at most, and store what the cut chooses, or nothing. Returns whether there was no room.
// That comes through memory: loops that end as an atomic operation tells are compiled as loops that wait.
__device__ __forceinline__ bool take(List& list, RowPart& part, const unsigned* queue, unsigned count) {
  __syncwarp();
  const unsigned at = lane_of() < count ? part.span.first + queue[lane_of()] : ~0u, column = at * VECTOR - part.span.skew;
  const bool whole = at < part.span.last;  // what was asked for behind the end is what was there before
  const uint4 bits = part.load(at);
  const Cut cut = part.cut();
#if ELEMENT_BYTES >= 4  // few elements: votes on each
  Key keys[VECTOR];
  unsigned places[VECTOR], passing = 0, all = 0;
#pragma unroll
  for (int e = 0; e < VECTOR; e++) {
    keys[e] = equal_key(element(bits, e), part.order);
    const bool passes = whole && chosen(keys[e], column + e, cut);
    const unsigned votes = __ballot_sync(~0u, passes);
    passing |= unsigned(passes) << e;
    places[e] = all + __popc(votes & ((1u << lane_of()) - 1)), all += __popc(votes);
  }
  unsigned start;
  if (claim(list, part, all, start)) {
#pragma unroll
    for (int e = 0; e < VECTOR; e++)
      if (passing >> e & 1) list.keys[start + places[e]] = keys[e], list.columns[start + places[e]] = column + e;
  }
#else
  unsigned passing = 0, all, start;
#pragma unroll
  for (int e = 0; e < VECTOR; e++)
    passing |= unsigned(chosen(equal_key(element(bits, e), part.order), column + e, cut)) << e;
  if (!whole) passing = 0;
  const unsigned upto = scan_lanes(__popc(passing), all);
  if (!claim(list, part, all, start)) passing = 0;
  unsigned slot = start + upto - __popc(passing);
  for (unsigned rest = passing; rest; rest &= rest - 1, slot++) {
    const int e = __ffs(rest) - 1;
    list.keys[slot] = equal_key(element(bits, e), part.order), list.columns[slot] = column + e;
  }
#endif
  __syncwarp();
  return list.intervals[front_of_queue() + QUEUE - 1];
}

// Read on. Returns whether there was no room for what was found; the same of all lanes.
template <bool AGAIN, bool SMALLEST, bool HALF>
__device__ __forceinline__ bool filter_loads(List& list, RowPart& part, Progress& at) {
  typedef Sieve<SMALLEST, HALF> Test;
  const Cut cut = part.cut();
  const Test at_cut(cut.key, part.order), above(cut.key == ONES ? cut.key : cut.key + 1, part.order);
  const unsigned first = part.span.first, last = part.span.last;
  const unsigned tie = cut.place ? (~cut.place + part.span.skew) / VECTOR : ~1u;  // the last load that may hold one
  const unsigned tied = tie < first ? 0 : tie - first + 1;
  unsigned all = last > first ? last - first : 0;
  if (cut.key == ONES) all = min(all, tied);                    // nothing is above
  const unsigned own = all > threadIdx.x ? all - threadIdx.x : 0;  // loads from this thread's first one on
  unsigned done = at.tile * (LOADS * THREADS);
  const uint4* next = reinterpret_cast<const uint4*>(part.span.line) + first + threadIdx.x + LOADS * THREADS + done;
  unsigned* queue = list.intervals;
  const unsigned below = (1u << lane_of()) - 1;
  const unsigned front = front_of_queue();
  unsigned end = front + at.waiting, stop = all;  // 0 where there is no room
  const auto take_some = [&](bool ends) {
    unsigned least = ends ? 1 : MOST_TAKEN;
#pragma unroll 1
    while (end - front >= least) {
      const unsigned count = min(end - front, MOST_TAKEN);
      end -= count;
      if (take(list, part, queue + end, count)) end += count, least = ~0u, stop = 0;
    }
  };
#pragma unroll 1
  for (;; done += LOADS * THREADS, next += LOADS * THREADS) {
    if (AGAIN) take_some(done >= all);
    if (done >= stop) break;
    const Test test = done < tied ? at_cut : above;
    if (AGAIN) part.fetch(done / (LOADS * THREADS));
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const bool any = test.lets_pass(part.coming[i]);
      if (!AGAIN && done + (LOADS + i) * THREADS < own) part.coming[i] = __ldcs(next + i * THREADS);
      const unsigned votes = __ballot_sync(~0u, any);
      if (!votes) continue;
      if (any) queue[end + __popc(votes & below)] = done + i * THREADS + threadIdx.x;
      end += __popc(votes);
    }
    if (!AGAIN) take_some(done + LOADS * THREADS >= all);
  }
  at = {done / (LOADS * THREADS), end - front};
  return end > front;
}

// The elements of a part that no whole load covers, by its first warp, as filter_loads.
__device__ __forceinline__ bool filter_edges(List& list, RowPart& part) {
  const Span& span = part.span;
  const unsigned head = min(span.first * VECTOR, span.end), tail = max(head, span.last * VECTOR);
  const unsigned at = lane_of() < 16 ? span.begin + lane_of() : tail + lane_of() - 16, end = lane_of() < 16 ? head : span.end;
  if (!__any_sync(~0u, at < end)) return false;
  __syncwarp();
  const Key key = at < end ? equal_key(span.line[at], part.order) : Key(0);
  const bool passes = at < end && chosen(key, at - span.skew, span.cut);
  const unsigned votes = __ballot_sync(~0u, passes);
  unsigned start;
  if (!claim(list, part, __popc(votes), start)) return true;
  const unsigned slot = start + __popc(votes & ((1u << lane_of()) - 1));
  if (passes) list.keys[slot] = key, list.columns[slot] = at - span.skew;
  return false;
}

template <bool AGAIN>
__device__ __forceinline__ bool filter_some(List& list, RowPart& part, Progress& at) {
  const Order order = part.order;
  const bool smallest = FLOAT && order.flip;
  if (!FLOAT || ELEMENT_BYTES == 8) return filter_loads<AGAIN, false, false>(list, part, at);
  if (ELEMENT_BYTES == 2 && order.half())
    return smallest ? filter_loads<AGAIN, true, true>(list, part, at) : filter_loads<AGAIN, false, true>(list, part, at);
  return smallest ? filter_loads<AGAIN, true, false>(list, part, at) : filter_loads<AGAIN, false, false>(list, part, at);
}

// Lists what of a part its cut chooses, on from there. Returns whether the list is full.
template <bool AGAIN>
__device__ __forceinline__ bool filter(List& list, RowPart& part, Progress& at) {
  const bool edges = at.waiting >= EDGES_LEFT;
  at.waiting %= EDGES_LEFT;
  bool full = filter_some<AGAIN>(list, part, at);
  if (!edges) return full;
  if (!full) full = filter_edges(list, part);
  if (full) at.waiting += EDGES_LEFT;
  return full;
}

// On from where it ended, with a list that was made shorter.
__device__ __forceinline__ bool filter_again(List& list, Span& span, Order order, Progress& at) {
  RowPart part = {span, order};
  __syncthreads();
  if (threadIdx.x == 0) span.listed = ~0u;
  __syncthreads();
  return filter<true>(list, part, at);
}
