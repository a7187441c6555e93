// Stable sorting of a row's entries from the lowest digit on, the largest first: equal keys stay in order of columns.
#pragma once
#include "select.cuh"

constexpr unsigned SORT_BINS = 256;
constexpr unsigned GROUP_PARTS = 16;  // parts whose counts are also summed, for those far behind them
constexpr unsigned ITEMS = ELEMENT_BYTES == 8 ? 6 : 8;  // entries that a thread holds, as registers suffice for
constexpr unsigned TILE = THREADS * ITEMS;
constexpr unsigned WARP_TILE = 32 * ITEMS;

// k entries (key, column) of a row. Those of narrow keys are of 8 bytes, as an index is, so that the answer's indices
// have room for them; wide keys lie apart from their columns.
#if ELEMENT_BYTES == 8
struct Entries {
  Key* keys;
  unsigned* columns;
  __device__ __forceinline__ void get(unsigned i, Key& key, unsigned& column) const {
    key = keys[i], column = columns[i];
  }
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
  __device__ __forceinline__ void get(unsigned i, Key& key, unsigned& column) const {
    const uint2 entry = both[i];
    key = entry.x, column = entry.y;
  }
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

// What a pass reads: entries, or where all of a row is sorted, at first the row itself.
struct Source {
  Entries entries;
  Row row;  // its data are null where entries are read

  __device__ __forceinline__ void get(unsigned i, Key& key, unsigned& column) const {
    if (row.data) key = key_of(row.data[i], row.order), column = i;
    else entries.get(i, key, column);
  }
};

// Entries of a tile that a thread holds: in every warp's share, those of its lane.
struct Items {
  Key keys[ITEMS];
  unsigned columns[ITEMS];
};

// A number of a tile for each of them, two in a register.
struct Places {
  unsigned pairs[ITEMS / 2];
  __device__ __forceinline__ unsigned get(unsigned i) const { return pairs[i / 2] >> (16 * (i % 2)) & 0xFFFF; }
  __device__ __forceinline__ void add(unsigned i, unsigned number) { pairs[i / 2] += number << (16 * (i % 2)); }
};

// Shared memory of a pass.
struct Sorting {
  union {
    unsigned long long exchange[TILE];         // entries, or wide keys and then their columns
    unsigned digits[WARPS * SORT_BINS];        // of a part, of every warp apart
  };
  unsigned short counts[WARPS][SORT_BINS];     // of a tile: entries of a warp, then those of the warps before it
  unsigned starts[SORT_BINS];                  // of bins in the tile
  unsigned offsets[SORT_BINS];                 // from a place in the tile to the place in the row
  unsigned bases[SORT_BINS];                   // of bins in the row, what earlier tiles have taken included
  unsigned next[SORT_BINS];                    // of rows that a block has to itself: how often the next digit is there
  unsigned groups[SORT_BINS / 32];
};

// Where a thread's items are in a tile: a warp's are adjacent, and each of its loads is of adjacent entries.
__device__ __forceinline__ unsigned slot_of(unsigned item) { return warp_of() * WARP_TILE + 32 * item + lane_of(); }

// Load a tile. Beyond its end are the least keys: they come last in every order, as nothing else is behind them.
__device__ __forceinline__ void load_tile(const Source& source, Span tile, Items& items) {
#pragma unroll
  for (unsigned i = 0; i < ITEMS; i++) {
    const unsigned at = tile.begin + slot_of(i);
    items.keys[i] = 0, items.columns[i] = 0;
    if (at < tile.end) source.get(at, items.keys[i], items.columns[i]);
  }
}

// The bin of digit number `pass` of a key, the largest digit first.
__device__ __forceinline__ unsigned bin_of(Key key, unsigned pass) {
  return ~unsigned(key >> (8 * pass)) & (SORT_BINS - 1);
}

// Count the digits of a block's entries, of every warp apart. Ends with a barrier.
__device__ __forceinline__ void count_digits(const Source& source, Span block, unsigned pass, Sorting& sorting) {
  for (unsigned i = threadIdx.x; i < WARPS * SORT_BINS / 4; i += THREADS)
    reinterpret_cast<uint4*>(sorting.digits)[i] = make_uint4(0, 0, 0, 0);
  __syncthreads();
  unsigned* own = sorting.digits + warp_of() * SORT_BINS;
#pragma unroll 1
  for (unsigned begin = block.begin; begin < block.end; begin += TILE) {
    Items items;
    load_tile(source, {begin, block.end}, items);
#pragma unroll
    for (unsigned i = 0; i < ITEMS; i++)
      if (begin + slot_of(i) < block.end) atomicAdd(&own[bin_of(items.keys[i], pass)], 1u);
  }
  __syncthreads();
}

// How many of a block's entries are in a bin, by `count_digits`.
__device__ __forceinline__ unsigned sum_digits(const Sorting& sorting, unsigned bin) {
  unsigned sum = 0;
#pragma unroll 4
  for (unsigned warp = 0; warp < WARPS; warp++) sum += sorting.digits[warp * SORT_BINS + bin];
  return sum;
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
__device__ __forceinline__ void write_digits(const Sorting& sorting, const Tables& tables, unsigned pass,
                                             unsigned number) {
  for (unsigned bin = threadIdx.x; bin < SORT_BINS; bin += THREADS) {
    const unsigned sum = sum_digits(sorting, bin);
    tables.parts[(unsigned long long)number * SORT_BINS + bin] = sum;
    if (sum) atomicAdd(&tables.sum(number / GROUP_PARTS, pass, bin), sum);
  }
}

// Turn counts of bins into sums of all lower ones. Each thread has, before and after, what is in the bins with its
// number; all threads of a block come.
__device__ __forceinline__ void sum_bins(unsigned* bins, unsigned* groups) {
  for (unsigned bin = threadIdx.x; bin < SORT_BINS; bin += THREADS) {
    const unsigned count = bins[bin], upto = scan_lanes(count);
    bins[bin] = upto - count;
    if (lane_of() == 31) groups[bin / 32] = upto;
  }
  __syncthreads();
  for (unsigned bin = threadIdx.x; bin < SORT_BINS; bin += THREADS)
    bins[bin] += __reduce_add_sync(~0u, lane_of() < bin / 32 ? groups[lane_of()] : 0);
}

// Lanes with the same bin, this one among them: a vote for every bit is faster than one instruction that compares all.
__device__ __forceinline__ unsigned peers_of(unsigned bin) {
  unsigned peers = ~0u;
#pragma unroll
  for (unsigned bit = 1; bit < SORT_BINS; bit *= 2) {
    const unsigned votes = __ballot_sync(~0u, bin & bit);
    peers &= bin & bit ? votes : ~votes;
  }
  return peers;
}

// The rank of every item among those of its warp and bin, and the warp's counts. No warp needs another.
__device__ __forceinline__ void rank_items(const Items& items, bool any, unsigned pass, unsigned short* counts,
                                           Places& ranks) {
  reinterpret_cast<uint4*>(counts)[lane_of()] = make_uint4(0, 0, 0, 0);
  __syncwarp();
  if (!any) return;
#pragma unroll
  for (unsigned i = 0; i < ITEMS; i++) {
    const unsigned bin = bin_of(items.keys[i], pass), peers = peers_of(bin), before = counts[bin];
    const unsigned lower = __popc(peers & ((1u << lane_of()) - 1));
    __syncwarp();
    if (lower == 0) counts[bin] = before + __popc(peers);
    __syncwarp();
    ranks.add(i, before + lower);
  }
}

// From counts of every warp the places of bins: in the tile those of lower bins, then of earlier warps come before.
__device__ __forceinline__ void place_bins(Sorting& sorting) {
  __syncthreads();
  for (unsigned bin = threadIdx.x; bin < SORT_BINS; bin += THREADS) {
    unsigned before = 0;
#pragma unroll 1
    for (unsigned warp = 0; warp < WARPS; warp += 4) {
      unsigned counts[4];
#pragma unroll
      for (unsigned i = 0; i < 4 && i < WARPS; i++) counts[i] = sorting.counts[warp + i][bin];
#pragma unroll
      for (unsigned i = 0; i < 4 && i < WARPS; i++) {
        sorting.counts[warp + i][bin] = before;
        before += counts[i];
      }
    }
    sorting.starts[bin] = sorting.offsets[bin] = before;
  }
  sum_bins(sorting.starts, sorting.groups);
  for (unsigned bin = threadIdx.x; bin < SORT_BINS; bin += THREADS) {
    const unsigned count = sorting.offsets[bin], base = sorting.bases[bin];
    sorting.offsets[bin] = base - sorting.starts[bin];
    sorting.bases[bin] = base + count;
  }
  __syncthreads();
}

// Put items at their places in the tile of `size` entries, and take those at the thread's own, as `load_tile` does.
__device__ __forceinline__ void exchange(Items& items, const Places& places, unsigned size, Sorting& sorting) {
  const bool any = warp_of() * WARP_TILE < size;
#if ELEMENT_BYTES == 8
  unsigned long long* keys = sorting.exchange;
  unsigned* columns = reinterpret_cast<unsigned*>(sorting.exchange);
#pragma unroll
  for (unsigned i = 0; i < ITEMS; i++)
    if (any) keys[places.get(i)] = items.keys[i];
  __syncthreads();
#pragma unroll
  for (unsigned i = 0; i < ITEMS; i++) items.keys[i] = slot_of(i) < size ? keys[slot_of(i)] : 0;
  __syncthreads();
#pragma unroll
  for (unsigned i = 0; i < ITEMS; i++)
    if (any) columns[places.get(i)] = items.columns[i];
  __syncthreads();
#pragma unroll
  for (unsigned i = 0; i < ITEMS; i++) items.columns[i] = slot_of(i) < size ? columns[slot_of(i)] : 0;
#else
  uint2* entries = reinterpret_cast<uint2*>(sorting.exchange);
#pragma unroll
  for (unsigned i = 0; i < ITEMS; i++)
    if (any) entries[places.get(i)] = make_uint2(items.keys[i], items.columns[i]);
  __syncthreads();
#pragma unroll
  for (unsigned i = 0; i < ITEMS; i++) {
    const uint2 entry = slot_of(i) < size ? entries[slot_of(i)] : make_uint2(0, 0);
    items.keys[i] = entry.x, items.columns[i] = entry.y;
  }
#endif
}

// Order a tile of `size` entries by a digit; the first barrier is behind the ranks.
__device__ __forceinline__ void order_tile(Items& items, unsigned size, unsigned pass, Sorting& sorting) {
  const bool any = warp_of() * WARP_TILE < size;
  unsigned short* counts = sorting.counts[warp_of()];
  Places places = {};
  rank_items(items, any, pass, counts, places);
  place_bins(sorting);
#pragma unroll
  for (unsigned i = 0; i < ITEMS; i++) {
    const unsigned bin = bin_of(items.keys[i], pass);
    if (any) places.add(i, sorting.starts[bin] + counts[bin]);
  }
  exchange(items, places, size, sorting);
}
