// Stable sorting of a row's entries from the lowest digit on, the largest first: equal keys stay in order of columns.
#pragma once
#include "select.cuh"

constexpr unsigned SORT_BINS = 256;
constexpr unsigned GROUP_PARTS = 16;  // parts whose counts are also summed, for those far behind them

// k entries (key, column) of a row. Those of narrow keys are of 8 bytes, as an index is, so that the answer's indices
// have room for them; wide keys lie apart from their columns.
#if ELEMENT_BYTES == 8
struct Entries {
  Key* keys;
  unsigned* columns;
  __device__ __forceinline__ Key key(unsigned i) const { return keys[i]; }
  __device__ __forceinline__ unsigned column(unsigned i) const { return columns[i]; }
  __device__ __forceinline__ void put(unsigned i, Key key, unsigned column) const {
    keys[i] = key, columns[i] = column;
  }
};
__device__ __forceinline__ Entries entries_at(void* keys, void* columns, unsigned long long first,
                                              unsigned long long column) {
  return {static_cast<Key*>(keys) + first, static_cast<unsigned*>(columns) + column};
}
#else
struct Entries {
  uint2* both;
  __device__ __forceinline__ Key key(unsigned i) const { return both[i].x; }
  __device__ __forceinline__ unsigned column(unsigned i) const { return both[i].y; }
  __device__ __forceinline__ void put(unsigned i, Key key, unsigned column) const { both[i] = make_uint2(key, column); }
};
__device__ __forceinline__ Entries entries_at(void* both, void*, unsigned long long first, unsigned long long) {
  return {static_cast<uint2*>(both) + first};
}
#endif

// A block's part of a row's entries, of which each warp has a share.
struct Span {
  unsigned begin, end;
};

__device__ __forceinline__ Span span_of(unsigned size, unsigned number, unsigned parts) {
  unsigned each = ((size + 31) / 32 + parts - 1) / parts * 32;
  unsigned begin = unsigned(min((unsigned long long)number * each, (unsigned long long)size));
  return {begin, unsigned(min((unsigned long long)begin + each, (unsigned long long)size))};
}

__device__ __forceinline__ Span warp_span(Span block) {
  Span own = span_of(block.end - block.begin, warp_of(), WARPS);
  return {block.begin + own.begin, block.begin + own.end};
}

// Call `use(has, key, column)` for a warp's share of a block's entries in their order, all lanes at once.
template <class Use>
__device__ __forceinline__ void read_entries(const Entries& entries, Span block, Use use) {
  constexpr unsigned BATCH = 4;  // loads that a thread has in flight
  const Span span = warp_span(block);
#pragma unroll 1
  for (unsigned base = span.begin + lane_of(); base - lane_of() < span.end; base += 32 * BATCH) {
    Key keys[BATCH];
    unsigned columns[BATCH];
#pragma unroll
    for (unsigned i = 0; i < BATCH; i++) {
      const bool has = base + 32 * i < span.end;
      keys[i] = has ? entries.key(base + 32 * i) : Key(0);
      columns[i] = has ? entries.column(base + 32 * i) : 0;
    }
#pragma unroll
    for (unsigned i = 0; i < BATCH; i++) use(base + 32 * i < span.end, keys[i], columns[i]);
  }
}

// The bin of digit number `pass` of a key, the largest digit first.
__device__ __forceinline__ unsigned bin_of(Key key, unsigned pass) {
  return ~unsigned(key >> (8 * pass)) & (SORT_BINS - 1);
}

// Count the digits of a block's entries, of every warp apart: bins[WARPS][SORT_BINS]. Ends with a barrier.
__device__ __forceinline__ void count_digits(const Entries& entries, Span block, unsigned pass, unsigned* bins) {
  for (unsigned i = threadIdx.x; i < WARPS * SORT_BINS; i += THREADS) bins[i] = 0;
  __syncthreads();
  unsigned* own = bins + warp_of() * SORT_BINS;
  read_entries(entries, block, [&](bool has, Key key, unsigned) {
    if (has) atomicAdd(&own[bin_of(key, pass)], 1u);
  });
  __syncthreads();
}

// What the parts of a row tell one another of a pass: counts of every part, and their sums over groups of parts. Sums of
// even and of odd passes take turns, so that one can be cleared while the other is read.
struct Tables {
  unsigned* parts;                // [parts][SORT_BINS]; null where the row has one part
  unsigned* sums;                 // [parts / GROUP_PARTS][stride], of which [2][SORT_BINS] are the row's
  unsigned long long stride;

  __device__ __forceinline__ unsigned& sum(unsigned group, unsigned pass, unsigned bin) const {
    return sums[group * stride + pass % 2 * SORT_BINS + bin];
  }

  // By all blocks of a row.
  __device__ __forceinline__ void clear(unsigned pass, unsigned number, unsigned count) const {
    for (unsigned group = number; group * GROUP_PARTS < count; group += count)
      for (unsigned bin = threadIdx.x; bin < SORT_BINS; bin += THREADS) sum(group, pass, bin) = 0;
  }

  // How many entries with a digit are in the parts before one, and in all.
  __device__ __forceinline__ unsigned before(unsigned pass, unsigned number, unsigned count, unsigned bin,
                                             unsigned& all) const {
    const unsigned own = number / GROUP_PARTS;
    unsigned found = 0;
    all = 0;
#pragma unroll 2
    for (unsigned group = 0; group * GROUP_PARTS < count; group++) {
      unsigned entries = sum(group, pass, bin);
      all += entries;
      if (group < own) found += entries;
    }
#pragma unroll 2
    for (unsigned part = own * GROUP_PARTS; part < number; part++)
      found += parts[(unsigned long long)part * SORT_BINS + bin];
    return found;
  }
};

// Write how many of a block's entries are in each bin, for the blocks after it.
__device__ __forceinline__ void write_digits(const unsigned* bins, const Tables& tables, unsigned pass,
                                             unsigned number) {
  for (unsigned bin = threadIdx.x; bin < SORT_BINS; bin += THREADS) {
    unsigned sum = 0;
    for (unsigned warp = 0; warp < WARPS; warp++) sum += bins[warp * SORT_BINS + bin];
    tables.parts[(unsigned long long)number * SORT_BINS + bin] = sum;
    if (sum) atomicAdd(&tables.sum(number / GROUP_PARTS, pass, bin), sum);
  }
}

// Turn the counts of every warp into the places of its entries: those of lower bins, then of earlier parts, then of
// earlier warps come before. `totals` is room for SORT_BINS numbers. Ends with a barrier.
__device__ __forceinline__ void place_digits(unsigned* bins, const Tables& tables, unsigned pass, unsigned number,
                                             unsigned count, unsigned* totals) {
  for (unsigned bin = threadIdx.x; bin < SORT_BINS; bin += THREADS) {
    unsigned before = 0, all = 0;
    if (tables.parts) before = tables.before(pass, number, count, bin, all);
    for (unsigned warp = 0; warp < WARPS; warp++) {
      unsigned own = bins[warp * SORT_BINS + bin];
      bins[warp * SORT_BINS + bin] = before;
      before += own;
    }
    totals[bin] = tables.parts ? all : before;
  }
  __syncthreads();
  if (warp_of() == 0) {
    unsigned before = 0;
    for (unsigned base = 0; base < SORT_BINS; base += 32) {
      unsigned count = totals[base + lane_of()], upto = scan_lanes(count);
      totals[base + lane_of()] = before + upto - count;
      before += __shfl_sync(~0u, upto, 31);
    }
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < WARPS * SORT_BINS; i += THREADS) bins[i] += totals[i % SORT_BINS];
  __syncthreads();
}

// Call `put(place, key, column)` for all entries of a block, from their places on. No warp needs another.
template <class Put>
__device__ __forceinline__ void scatter(const Entries& entries, Span block, unsigned pass, unsigned* bins, Put put) {
  unsigned* places = bins + warp_of() * SORT_BINS;
  read_entries(entries, block, [&](bool has, Key key, unsigned column) {
    const unsigned bin = has ? bin_of(key, pass) : SORT_BINS, peers = __match_any_sync(~0u, bin);
    const unsigned rank = __popc(peers & ((1u << lane_of()) - 1)), place = has ? places[bin] + rank : 0;
    __syncwarp();
    if (has && rank == 0) places[bin] += __popc(peers);
    __syncwarp();
    if (has) put(place, key, column);
  });
}
