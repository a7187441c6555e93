// The best k of every row, by a cluster that holds the row in registers: a cut is guessed and what reaches it counted, again
// where the guess misled, and listed and put in order by the cluster's first block.
//
// Compile-time: see keys.cuh, list.cuh, cluster.cuh, held.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "guess.cuh"

// Turn counts into how many are before each; 32 warps or fewer have LOADS of them each. Begins and ends with a barrier.
__device__ __forceinline__ void count_before(const unsigned* counts, unsigned* before) {
  constexpr unsigned PLACES = LOADS * WARPS;
  __syncthreads();
  for (unsigned first = warp_of() * 32; first < PLACES; first += THREADS) {
    unsigned earlier = 0, all;
    for (unsigned place = lane_of(); place < first; place += 32) earlier += counts[place];
    const unsigned place = first + lane_of(), own = place < PLACES ? counts[place] : 0, upto = scan_lanes(own, all);
    earlier = __reduce_add_sync(~0u, earlier);
    if (place < PLACES) before[place] = earlier + upto - own;
  }
  __syncthreads();
}

// Write those that have a key, the first `want` by columns, behind the `above` best. Has barriers of the cluster.
__device__ __forceinline__ void write_ties(const HeldRow& row, List& list, Exchange& exchange, Key tie, unsigned want,
                                           unsigned above, unsigned turn, const Answer& answer) {
  unsigned *counts = list.counters->bins[0], *before = list.counters->bins[1], counted = 0;  // by loads, then warps
  static_assert(LOADS * WARPS <= BINS, "counts of loads and warps have no room");
  Chosen ties;
#pragma unroll
  for (int m = 0; m < MASKS; m++) ties.masks[m] = 0;
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    unsigned own = 0;
#pragma unroll
    for (int e = 0; e < VECTOR; e++) own |= unsigned(row.key(i, e) == tie && row.inside(i, e)) << e;
    ties.masks[i * VECTOR / 32] |= own << i * VECTOR % 32;
    counted += __popc(own);
    own = __reduce_add_sync(~0u, __popc(own));
    if (lane_of() == 0) counts[i * WARPS + warp_of()] = own;
  }
  const Sums sums = sum_up(exchange, counted, turn);
  if (threadIdx.x == 0) list.counters->crossing[0] = sums.before;  // in other blocks
  count_before(counts, before);
#pragma unroll 1
  for (int i = 0; i < LOADS; i++) {
    unsigned own = ties.masks[0] >> i * VECTOR % 32;
    if (MASKS > 1 && i * VECTOR >= 32) own = ties.masks[MASKS - 1] >> i * VECTOR % 32;
    own &= (1u << VECTOR) - 1;
    unsigned all, rank = list.counters->crossing[0] + before[i * WARPS + warp_of()];
    rank += scan_lanes(__popc(own), all) - __popc(own);
    for (; own && rank < want; own &= own - 1, rank++) answer.put(above + rank, tie, row.column(i, __ffs(own) - 1));
  }
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
  clear_intervals(list);
  const int group = group_of(k, cols);
  const Ranks ranks = ranks_of(k, cols, elements_of(row.end - row.begin, group));
  row.take(order);
  row.take_edges(order);
  const Guess guess = guess_cut(row, exchange, group, ranks);
  Range range = {0, ONES, 0, unsigned(cols)};
  Key cut = guess.cut;
  const Answer answer = {values, indices, (unsigned long long)number * k, data, order};
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
      write_ties(row, list, exchange, range.top, k - range.above, range.above, (round + 1) % 2, answer);
      chosen = range.top == ONES ? Chosen{} : reaching(row, range.top + 1);
      sums = sum_up(exchange, chosen.count(), round % 2);
      break;
    }
    if (round == 0 && sums.all >= k) cut = range.bottom + 1;  // perhaps most were ties
    else if (round % 3 == 2) cut = range.middle();
    else cut = range.between((k + CAPACITY) / 2, guess.top);
  }
  list_chosen(row, list, chosen, sums);
  if (block_of() > 0 || sums.all == 0) return;
  const Even even = round == 0 ? even_between(guess.top, guess.cut) : Even{0, -1};
  write_answer(list, sums.all, min(sums.all, unsigned(k)), answer, even);
}
