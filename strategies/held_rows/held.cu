// The best k of every row, by a cluster that holds the row in registers: a cut is guessed and counted, again where it
// misleads, and what reaches it is listed and put in order by the cluster's first block.
//
// Compile-time: see keys.cuh, list.cuh, cluster.cuh, held.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "guess.cuh"

constexpr unsigned GUESSES = 8;  // then halves of the range: a range of 2^64 keys ends

// All above a key, and of those that have it the first `want` by columns. Has two barriers of the cluster.
__device__ __forceinline__ Chosen with_ties(const HeldRow& row, List& list, Exchange& exchange, Key tie, unsigned want,
                                             unsigned turn) {
  Chosen above = reaching(row, tie == ONES ? tie : tie + 1), ties;
  unsigned* counts = list.counters->bins[0];  // by warps, then loads, from the end
  unsigned counted = 0;
  static_assert(LOADS * WARPS <= BINS, "counts of loads and warps have no room");
#pragma unroll
  for (int m = 0; m < MASKS; m++) ties.masks[m] = 0, above.masks[m] = tie == ONES ? 0 : above.masks[m];
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    unsigned own = 0;
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      if (row.key(i, e) != tie || !row.inside(i, e)) continue;
      ties.masks[(i * VECTOR + e) / 32] |= 1u << ((i * VECTOR + e) % 32), own++;
    }
    counted += own;
    own = __reduce_add_sync(~0u, own);
    if (lane_of() == 0) counts[BINS - 1 - (warp_of() * LOADS + i)] = own;
  }
  const Sums sums = sum_up(exchange, counted, turn);
  if (threadIdx.x == 0) list.counters->crossing[0] = sums.before;
  __syncthreads();
  const unsigned before = list.counters->crossing[0], upto = before + sums.own;  // this block
  want = min(max(want, before), upto) - before;
  const Bin crossing = find_bin(counts, max(want, 1u));
  const unsigned last = want ? BINS - 1 - crossing.digit : 0;  // the warp and load that has the last of them
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    const unsigned place = warp_of() * LOADS + i;
    const unsigned shift = i * VECTOR % 32, own = ties.masks[i * VECTOR / 32] >> shift & ((1u << VECTOR) - 1);
    unsigned sum, taken = place > last ? 0 : own, rank = crossing.before + scan_lanes(__popc(own), sum);
    for (; place == last && taken && (rank > want || !want); rank--) taken ^= 1u << (31 - __clz(taken));
    above.masks[i * VECTOR / 32] |= taken << shift;
  }
  return above;
}

// List the chosen, and bring what the blocks of a cluster have together. Ends with a barrier of the cluster.
__device__ __forceinline__ void list_chosen(const HeldRow& row, const List& list, const Chosen& chosen, const Sums& sums) {
  unsigned slot = sums.inside;
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      if (!chosen.has(i, e)) continue;
      list.keys[slot] = row.key(i, e), list.columns[slot] = row.column(i, e);
      slot++;
    }
  }
#if BLOCKS > 1
  __shared__ unsigned first;
  if (threadIdx.x == 0) first = sums.before;  // of the block
  __syncthreads();
  Key* keys = of_block(list.keys, 0) + first;
  unsigned* columns = of_block(list.columns, 0) + first;
  cluster_wait();
  if (block_of() > 0) {
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < sums.own; i += THREADS) keys[i] = list.keys[i], columns[i] = list.columns[i];
  }
#endif
  cluster_sync();
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, Element* __restrict__ values, void* __restrict__ indices, long long row_stride,
           int cols, int k, int smallest, int is_signed, int infinity) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ __align__(16) Counters counters;
  __shared__ __align__(16) Exchange exchange;
  cluster_arrive();  // waited for before another block's memory is used
  const unsigned number = blockIdx.x / BLOCKS;
  const Element* data = x + number * row_stride;
  const Order order = order_of(smallest, is_signed, infinity);
  HeldRow row;
  row.read(data, cols);
  List list = make_list(memory, &counters);
  row.take<0, SAMPLE>(order);
  const Guess guess = first_guess(row, exchange, k);
  row.take<SAMPLE, LOADS>(order);
  row.take_edges(order);
  Range range = {0, ONES, 0, unsigned(cols)};
  Key cut = guess.cut;
  Chosen chosen;
  Sums sums;
  unsigned round = 0;
  bool probes = false;
#pragma unroll 1
  for (;; round++) {
    chosen = reaching(row, cut);
    sums = sum_up(exchange, chosen.count(), round % 2);
    if (sums.all >= k && sums.all <= CAPACITY) break;
    if (sums.all >= k) range.bottom = cut, range.within = sums.all - range.above;
    else range.top = cut - 1, range.within -= sums.all - range.above, range.above = sums.all;
    if (range.bottom == range.top) {
      chosen = with_ties(row, list, exchange, range.top, k - range.above, (round + 1) % 2);
      sums = sum_up(exchange, chosen.count(), round % 2);
      break;
    }
    probes = sums.all >= k && !probes;
    if (probes) cut = range.bottom + 1;  // perhaps most were ties
    else cut = next_guess(row, exchange, range, k, (round + 1) % 2);
    if (round >= GUESSES) cut = range.bottom + (range.top - range.bottom) / 2 + 1;
  }
  list_chosen(row, list, chosen, sums);
  if (block_of() == 0) write_answer(list, sums.all, k, number, data, order, {values, indices});
}
