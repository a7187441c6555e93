// A list of which every block has found a part: each entry is sent to the block that owns its range, and that ranks what it was sent.
// Splitters are drawn entries, so that equal keys are divided by their columns.
#pragma once
#include "again.cuh"
#include "ranges.cuh"

constexpr unsigned DRAWN = 64, OF_BLOCK = DRAWN / BLOCKS;  // entries that tell splitters
constexpr unsigned SPREAD_RUN = CAPACITY / BLOCKS;          // entries of a block in another's range

// Shared memory of a block, behind what blocks tell each other.
struct alignas(16) Spread {
  Entry drawn[DRAWN];         // of every block's part, no two alike; 0 where it has none
  Entry sorted[DRAWN + 1];    // those in order, behind one that is better than all
  Entry extremes[WARPS];      // of the range, of each warp
  Parts parts;
};

__device__ __forceinline__ Spread& spread_of(const Room& room) { return *reinterpret_cast<Spread*>(&room.told + 1); }

// Tell all blocks some of this block's `own` entries; behind a barrier.
__device__ __forceinline__ void draw(const Room& room, const Entry* found, unsigned own) {
  Spread& spread = spread_of(room);
  Signal* signal = room.told.later + DRAWS;
  if (threadIdx.x == 0) expect(signal, sizeof(spread.drawn)), expect(room.told.later + COUNTS, sizeof(spread.parts.of));
  if (threadIdx.x >= DRAWN) return;
  const unsigned number = threadIdx.x % OF_BLOCK, drawn = block_of() * OF_BLOCK + number;
  const unsigned within = (drawn * 40503 & 0xFFFF) * (own / OF_BLOCK) >> 16;  // without a pattern
  const unsigned at = own > OF_BLOCK ? number * own / OF_BLOCK + within : number;
  send(&spread.drawn[drawn], at < own ? found[at] : 0, signal, threadIdx.x / OF_BLOCK);
}

// Sort what was drawn; returns how much that is. Ends with a barrier.
__device__ __forceinline__ unsigned sort_drawn(Spread& spread, Signal* drew) {
  constexpr unsigned LANES = THREADS / DRAWN;
  if (threadIdx.x < BLOCKS) spread.parts.counts[threadIdx.x] = 0;
  wait_for(drew);
  const unsigned first = threadIdx.x % LANES;
  const Entry own = spread.drawn[threadIdx.x / LANES];
  unsigned rank = 0;
#pragma unroll 8
  for (unsigned pair = first; pair < DRAWN / 2; pair += LANES) {
    const ulonglong2 two = reinterpret_cast<const ulonglong2*>(spread.drawn)[pair];
    rank += two.x > own, rank += two.y > own;
  }
#pragma unroll
  for (unsigned distance = LANES / 2; distance; distance /= 2) rank += __shfl_xor_sync(~0u, rank, distance);
  if (first == 0 && own) spread.sorted[1 + rank] = own;
  if (threadIdx.x == 0) spread.sorted[0] = ~Entry(0);
  return __syncthreads_count(first == 0 && own);
}

// The best, or the least, of what this block was sent. Has a barrier.
__device__ __forceinline__ Entry extreme_of(Spread& spread, const Entry* runs, unsigned run, bool best) {
  Entry extreme = 0;  // the least as its complement
#pragma unroll 1
  for (unsigned at = warp_of() % SHARING * 32 + lane_of(); at < run; at += SHARING * 32) {
    const Entry entry = runs[warp_of() / SHARING % BLOCKS * SPREAD_RUN + at];
    extreme = max(extreme, best ? entry : ~entry);
  }
  extreme = largest_entry(extreme);
  if (lane_of() == 0) spread.extremes[warp_of()] = extreme;
  __syncthreads();
  extreme = largest_entry(spread.extremes[lane_of() % WARPS]);
  return best ? extreme : ~extreme;
}

// Call `answers.put(rank, key, column)` for the best k of a list, each by some thread of the cluster. Of its `all` entries, of which this
// block has `own`, about `likely` are sent to their owners, or all. Returns false, and calls nothing, where fewer than k are, or a block has
// too many of another's range. Finite keys above `top` are few; the row has `columns`. What was drawn was told. Has barriers.
template <class Answers>
__device__ __forceinline__ bool rank_spread_out(const Room& room, const Entry* found, unsigned own, unsigned all, unsigned likely,
                                                unsigned k, Key top, unsigned columns, const Answers& answers) {
  Spread& spread = spread_of(room);
  Entry *runs = places_of(room).packed(), *places = found_of(room).packed();
  const unsigned drawn = sort_drawn(spread, room.told.later + DRAWS), used = all > likely ? max(drawn * likely / all, 1u) : drawn;
  const auto splitter = [&](unsigned number) { return spread.sorted[number * used / BLOCKS]; };  // behind so many ranges
  const Entry last = all > likely ? splitter(BLOCKS) : 0;
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < own; at += THREADS) {
    const Entry entry = found[at];
    if (entry < last) continue;
    unsigned owner = 0;
#pragma unroll
    for (unsigned step = BLOCKS / 2; step; step /= 2)
      if (splitter(owner + step) > entry) owner += step;
    const unsigned slot = atomicAdd(&spread.parts.counts[owner], 1u);
    if (slot < SPREAD_RUN) send(&runs[block_of() * SPREAD_RUN + slot], entry, room.told.later + RUNS, owner);
  }
  if (threadIdx.x < COUNTED) room.list.intervals[threadIdx.x] = 0;
  __syncthreads();
  tell_parts<SPREAD_RUN>(spread.parts, room.told.later + COUNTS, true, false);
  const Received received = received_of<SPREAD_RUN>(spread.parts, room.told.later + COUNTS, room.told.later + RUNS);
  if (!received.complete() || received.all < k) return false;
  if (received.first >= k || !received.count) return true;
  // Those beyond what was drawn are some dozens.
  const Entry most = block_of() ? splitter(block_of()) : extreme_of(spread, runs, received.run, true);
  const Entry least = block_of() < BLOCKS - 1 || last ? splitter(block_of() + 1) : extreme_of(spread, runs, received.run, false);
  // Keys above the top, as NaN's, are far from all others: in a range of both, half of the intervals are theirs, by columns.
  const Entry bound = entry_of(top, 0);
  const bool both = most > bound && least <= bound;
  const Entry best = both ? bound : most;
  const unsigned above = both ? COUNTED / 2 : 0, others = COUNTED - above;
  const float scale = __fdividef(float(others), float(max(best, least) - least) + 1);
  const float scale_above = __fdividef(float(above), float(columns - min(columns, pair_of(most).column)) + 1);
  const auto interval_of = [&](Entry entry) {
    if (entry <= best) return above + unsigned(fminf(float(best - entry) * scale, float(others - 1)));
    return above ? unsigned(fminf(float(most - min(entry, most)) * scale_above, float(above - 1))) : 0u;
  };
  rank_range<SPREAD_RUN, MOST_OF_INTERVAL>(room.list, runs, places, received, interval_of, k, answers);
  return true;
}
