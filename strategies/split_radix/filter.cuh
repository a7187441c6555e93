// A part of a row read once: loads that may hold what a cut chooses are known by few instructions, and wait in a queue of
// their warp until there is one for every lane; these are read again, while caches have them, and looked at exactly.
#pragma once
#include "row.cuh"

constexpr unsigned QUEUE = 32 * (LOADS + 1);  // of a warp, where intervals are later: those of a tile, and what was left

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

// Look at loads that wait, one a lane at most, and store what the cut chooses.
__device__ __forceinline__ void take(List& list, RowPart& part, const unsigned* queue, unsigned count, Cut cut) {
  __syncwarp();
  const unsigned at = lane_of() < count ? part.span.first + queue[lane_of()] : ~0u;
  const bool whole = at < part.span.last;  // what was asked for behind the end is what was there before
  part.offer_load(list, whole ? part.load(at) : make_uint4(0, 0, 0, 0), at, whole ? EVERY : 0, cut);
  __syncwarp();
}

template <bool SMALLEST, bool HALF>
__device__ __forceinline__ void filter_loads(List& list, RowPart& part, Cut cut) {
  typedef Sieve<SMALLEST, HALF> Test;
  const Test at_cut(cut.key, part.order), above(cut.key == ONES ? cut.key : cut.key + 1, part.order);
  const unsigned first = part.span.first, last = part.span.last, all = last > first ? last - first : 0;
  const unsigned own = all > threadIdx.x ? all - threadIdx.x : 0;  // loads from this thread's first one on
  const unsigned tie = cut.place ? (~cut.place + part.span.skew) / VECTOR : ~1u;  // the last load that may hold one
  const unsigned tied = tie < first ? 0 : tie - first + 1;
  const uint4* next = reinterpret_cast<const uint4*>(part.span.line) + first + threadIdx.x + LOADS * THREADS;
  unsigned* queue = list.intervals;
  const unsigned below = (1u << lane_of()) - 1;
  const unsigned front = warp_of() * QUEUE;
  unsigned end = front;
#pragma unroll 1
  for (unsigned done = 0; done < all; done += LOADS * THREADS, next += LOADS * THREADS) {
    const Test test = done < tied ? at_cut : above;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const bool any = test.lets_pass(part.coming[i]);
      if (done + (LOADS + i) * THREADS < own) part.coming[i] = __ldcs(next + i * THREADS);
      const unsigned votes = __ballot_sync(~0u, any);
      if (!votes) continue;
      if (any) queue[end + __popc(votes & below)] = done + i * THREADS + threadIdx.x;
      end += __popc(votes);
    }
    const bool ends = done + LOADS * THREADS >= all;
#pragma unroll 1
    while (end - front >= (ends ? 1 : 32)) {
      const unsigned count = min(end - front, 32u);
      end -= count;
      take(list, part, queue + end, count, cut);
    }
  }
}

// Read a part once, and store what the cut lets pass. No thread waits for another: a count above CAPACITY tells in the
// end that not all found room. The part was started.
__device__ __forceinline__ void filter(List& list, RowPart& part, Cut cut) {
  const Order order = part.order;
  const Span& span = part.span;
  const bool smallest = FLOAT && order.flip;
  if (!FLOAT || ELEMENT_BYTES == 8) filter_loads<false, false>(list, part, cut);
  else if (ELEMENT_BYTES == 2 && order.half())
    smallest ? filter_loads<true, true>(list, part, cut) : filter_loads<false, true>(list, part, cut);
  else smallest ? filter_loads<true, false>(list, part, cut) : filter_loads<false, false>(list, part, cut);
  const unsigned head = min(span.first * VECTOR, span.end), tail = max(head, span.last * VECTOR);
  for (unsigned at = threadIdx.x < 16 ? span.begin + threadIdx.x : tail + threadIdx.x - 16;
       threadIdx.x < 32 && at < (threadIdx.x < 16 ? head : span.end); at = span.end)
    store(list, equal_key(span.line[at], order), at - span.skew, cut);
}
