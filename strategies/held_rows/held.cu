// The best k of every row, by a cluster that holds the row in registers: a cut is guessed and what reaches it counted, again
// where the guess misled, and listed and put in order by the cluster's first block.
//
// Compile-time: see keys.cuh, list.cuh, cluster.cuh, held.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "guess.cuh"

// All above a key, and of those that have it the first `want` by columns. Has two barriers of the cluster.
__device__ __forceinline__ Chosen with_ties(const HeldRow& row, List& list, Exchange& exchange, Key tie, unsigned want,
                                             unsigned turn) {
  Chosen above = reaching(row, tie == ONES ? tie : tie + 1), ties;
  unsigned* counts = list.counters->bins[0];  // by loads, then warps, from the end
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
    if (lane_of() == 0) counts[BINS - 1 - (i * WARPS + warp_of())] = own;
  }
  const Sums sums = sum_up(exchange, counted, turn);
  if (threadIdx.x == 0) list.counters->crossing[0] = sums.before;
  __syncthreads();
  const unsigned before = list.counters->crossing[0], upto = before + sums.own;  // this block
  want = min(max(want, before), upto) - before;
  const Bin crossing = find_bin(counts, max(want, 1u));
  const unsigned last = want ? BINS - 1 - crossing.digit : 0;  // the load and warp that has the last of them
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    const unsigned place = i * WARPS + warp_of();
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
    for (int e = 0; e < VECTOR; e++)
      if (chosen.has(i, e)) list.keys[slot] = row.key(i, e), list.columns[slot] = row.column(i, e), slot++;
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
  __shared__ __align__(16) Exchange its_exchange;
  cluster_arrive();  // waited for before another block's memory is used
  const unsigned number = blockIdx.x / BLOCKS;
  const Element* data = x + number * row_stride;
  const Order order = order_of(smallest, is_signed, infinity);
  Exchange& exchange = *kept(&its_exchange);
  HeldRow row;
  row.read(data, cols);
  List list = make_list(memory, &counters);
  const int group = group_of(k, cols);
  const Ranks ranks = ranks_of(k, cols, elements_of(row.end - row.begin, group));
  row.take(order);
  row.take_edges(order);
  const Guess guess = guess_cut(row, exchange, group, ranks);
  Range range = {0, ONES, 0, unsigned(cols)};
  Key cut = guess.cut;
  Chosen chosen;
  Sums sums;
  unsigned round = 0;
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
    if (round == 0 && sums.all >= k) cut = range.bottom + 1;  // perhaps most were ties
    else if (round % 3 == 2) cut = range.middle();
    else cut = range.between((k + CAPACITY) / 2, guess.top);
  }
  list_chosen(row, list, chosen, sums);
  if (block_of() > 0) return;
  const Even even = round == 0 ? even_between(guess.top, guess.cut) : Even{0, -1};
  write_answer(list, sums.all, k, number, data, order, {values, indices}, even);
}
