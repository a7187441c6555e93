// The best of a row once more, where more reach a cut than there is room for, or too few: its lines are read again, and
// elements counted by intervals of keys, those that have the least key by intervals of columns, until the intervals
// that fit tell a cut.
#pragma once
#include "ties.cuh"

struct Share {
  unsigned first, end;  // ranks
};

// An interval and a place, 16 bits each.
__device__ __forceinline__ unsigned packed(unsigned interval, unsigned place) { return interval << 16 | place; }
static_assert(INTERVALS <= 1 << 16 && CAPACITY < 1 << 16, "intervals and places share a word");

// Entries above which ranking within an interval takes longer than other intervals do, and longer than anything else.
constexpr unsigned MOST_OF_INTERVAL = 128, MOST_AMID_TIES = 512;

// Of the intervals that have the ranks of a share.
struct Places {
  unsigned first, last;  // intervals
  unsigned begin, end;   // places of their entries
  unsigned total;        // entries in all
  bool crowd;            // whether one of them holds a crowd
};

// Counts to the numbers of entries in better intervals. Has two barriers, and ends with one.
__device__ __forceinline__ Places add_up(const List& list, Share share, unsigned most = MOST_OF_INTERVAL) {
  Counts* own = reinterpret_cast<Counts*>(list.intervals) + threadIdx.x;
  const bool has = threadIdx.x * OWN < INTERVALS;
  Counts counts = {};
  if (has) counts = *own;
  unsigned sum = 0, all;
#pragma unroll
  for (int i = 0; i < OWN; i++) sum += counts.each[i];
  unsigned before = scan_lanes(sum, all) - sum;
  if (lane_of() == 0) list.counters->totals[0][warp_of()] = all;
  __syncthreads();
  const unsigned total = lane_of() < WARPS ? list.counters->totals[0][lane_of()] : 0;
  before += __reduce_add_sync(~0u, lane_of() < warp_of() ? total : 0);
  all = __reduce_add_sync(~0u, total);
  bool crowd = false;
#pragma unroll
  for (int i = 0; i < OWN; i++) {
    const unsigned count = counts.each[i], behind = before + count;
    crowd |= count > most && before < share.end && behind > share.first;
    if (before <= share.first && share.first < behind)
      list.counters->crossing[0] = packed(threadIdx.x * OWN + i, before);
    if (before < share.end && share.end <= behind) list.counters->crossing[1] = packed(threadIdx.x * OWN + i, behind);
    counts.each[i] = before;
    before = behind;
  }
  if (has) *own = counts;
  crowd = __syncthreads_or(crowd);
  const unsigned first = list.counters->crossing[0], last = list.counters->crossing[1];
  return {first >> 16, last >> 16, first & 0xFFFF, last & 0xFFFF, all, crowd};
}

// What a thread reads again: lines `first`, `first + stride`, ..., and one that is the row's in part, or ~0.
struct Again {
  unsigned first, stride, end, part;
};

constexpr int AT_A_TIME = LINES < 2 ? LINES : 2;  // lines of a thread

// Call `visit(bits, lines, inside)` for AT_A_TIME lines of every thread, by whole warps; no elements are inside where
// there is no line.
template <class Visit> __device__ __forceinline__ void visit_lines(const Row& row, Again again, Visit visit) {
  bool whole = true;
#pragma unroll 1
  for (unsigned line = again.first; whole; line += AT_A_TIME * again.stride) {
    uint4 bits[AT_A_TIME];
    unsigned lines[AT_A_TIME], inside[AT_A_TIME];
    whole = __any_sync(~0u, line < again.end);
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++) {
      lines[i] = line + i * again.stride;
      inside[i] = lines[i] < again.end ? EVERY : 0;
      bits[i] = inside[i] ? __ldg(row.lines + lines[i]) : make_uint4(0, 0, 0, 0);
    }
    if (!whole && again.part != ~0u) bits[0] = row.part(lines[0] = again.part, inside[0]);
    visit(bits, lines, inside);
  }
}

// Call `visit(key, column)` for the elements of the lines.
template <class Visit> __device__ __forceinline__ void visit_elements(const Row& row, Again again, Visit visit) {
  visit_lines(row, again, [&](const uint4* bits, const unsigned* lines, const unsigned* inside) {
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++) {
#pragma unroll
      for (int e = 0; e < VECTOR; e++)
        if (inside[i] >> e & 1) visit(equal_key(element(bits[i], e), row.order), row.column(lines[i], e));
    }
  });
}

// Reserve `own` of what is counted at `count`. Returns the first.
__device__ __forceinline__ unsigned reserve_from(unsigned* count, unsigned own) {
  unsigned all, start = 0, upto = scan_lanes(own, all);
  if (lane_of() == 0 && all) start = atomicAdd(count, all);
  return __shfl_sync(~0u, start, 0) + upto - own;
}

// Call `store(slot, key, column)` for the elements that a cut chooses, by slots from `first` on, counted at `count`.
template <class Store>
__device__ __forceinline__ void store_elements(const Row& row, Again again, Cut cut, unsigned first, unsigned* count,
                                               Store store) {
  visit_lines(row, again, [&](const uint4* bits, const unsigned* lines, const unsigned* inside) {
    unsigned stays[AT_A_TIME], own = 0;
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++) {
      stays[i] = 0;
#pragma unroll
      for (int e = 0; e < VECTOR; e++)
        stays[i] |= unsigned(chosen(equal_key(element(bits[i], e), row.order), row.column(lines[i], e), cut)) << e;
      stays[i] &= inside[i];
      own += __popc(stays[i]);
    }
    if (!__any_sync(~0u, own)) return;
    unsigned slot = first + reserve_from(count, own);
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++) {
#pragma unroll
      for (int e = 0; e < VECTOR; e++)
        if (stays[i] >> e & 1) store(slot++, equal_key(element(bits[i], e), row.order), row.column(lines[i], e));
    }
  });
}

// Of the best keys of lines.
struct Extent {
  Key least, most;
};

// Of all threads'; has a barrier.
__device__ __forceinline__ Extent extent_of_block(Exchange& exchange, Extent own) {
  own = {least_of_lanes(own.least), largest_of_lanes(own.most)};
  if (lane_of() == 0) exchange.guesses[warp_of()] = own.least, exchange.tops[warp_of()] = own.most;
  __syncthreads();
  const int warp = lane_of() % WARPS;
  return {least_of_lanes(exchange.guesses[warp]), largest_of_lanes(exchange.tops[warp])};
}

// The same where nothing is known of lines.
__device__ __forceinline__ Extent extent_of(const Row& row, Again again, Exchange& exchange) {
  Extent extent = {~Key(0), 0};
  visit_lines(row, again, [&](const uint4* bits, const unsigned*, const unsigned* inside) {
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++) {
      Key best = 0;
#pragma unroll
      for (int e = 0; e < VECTOR; e++)
        if (inside[i] >> e & 1) best = max(best, equal_key(element(bits[i], e), row.order));
      if (inside[i]) extent.least = min(extent.least, best), extent.most = max(extent.most, best);
    }
  });
  return extent_of_block(exchange, extent);
}

constexpr unsigned OF_KEYS = INTERVALS / 2;  // intervals; as many are of columns
constexpr int OF_KEYS_BITS = log_of(OF_KEYS);

// Intervals of keys above `low`, and of columns of those that have it.
struct Fitting {
  Key low, top;
  int shift, column_shift;
  unsigned first, last;  // columns

  __device__ __forceinline__ bool counts(Key key, unsigned column) const {
    return key >= low && key <= top && (key > low || column - first <= last - first);
  }
  __device__ __forceinline__ unsigned interval(Key key, unsigned column) const {
    return key > low ? unsigned((top - key) >> shift) : OF_KEYS + ((column - first) >> column_shift);
  }
};

struct Fits {
  unsigned interval, before;  // the first that does not fit, and how many are in better ones
  unsigned total;
};

// A cut that at least `enough` elements reach, or all of them, and no more than `room`; `top` is the largest key, and
// about as many as `likely` reach `low`. `count(fitting, left)` counts elements, and tells what fits where there is
// room for so many.
template <class Count>
__device__ __forceinline__ Cut cut_to_fit(Key low, Key top, unsigned cols, unsigned likely, unsigned enough,
                                          unsigned room, Count count) {
  unsigned above = 0;  // elements that are better than those that are counted; they fit
  unsigned first = 0, last = min(2ull * cols * room / max(likely, 1u), cols - 1ull);
#pragma unroll 1
  for (;;) {
    const Fitting fitting = {low, top, max(bits_of(Key(top - low)) - OF_KEYS_BITS, 0),
                             max(bits_of(last - first) - OF_KEYS_BITS, 0), first, last};
    const unsigned left = room - above;
    const Fits fits = count(fitting, left);
    if (fits.total <= left) {  // only where nothing is known yet
      above += fits.total;
      if (low == 0 && last == cols - 1) return {0, 0};
      if (above >= enough) return {low, ~last};
      if (last < cols - 1) top = low, first = last + 1;
      else top = low - 1, low = 0, first = 0;
      last = cols - 1;
      continue;
    }
    above += fits.before;
    if (fits.interval < OF_KEYS) {
      top -= Key(fits.interval) << fitting.shift;
      if (above >= enough) return {top + 1, 0};
      low = top - min((Key(1) << fitting.shift) - 1, Key(top - low - 1));
      first = 0, last = cols - 1;
    } else {
      const unsigned column = first + ((fits.interval - OF_KEYS) << fitting.column_shift);
      if (above >= enough) return column ? Cut{low, ~(column - 1)} : Cut{low + 1, 0};
      top = low;
      first = column, last = min(last, column + (1u << fitting.column_shift) - 1);
    }
  }
}
