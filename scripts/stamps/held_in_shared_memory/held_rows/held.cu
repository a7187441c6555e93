// The best k of every row, by a cluster that holds the row in shared memory: a cut is guessed from a part of it while others
// are on their way, what reaches it is counted, again where the guess misled, and listed and put in order by the cluster's
// first block.
//
// Compile-time: see keys.cuh, list.cuh, cluster.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "guess.cuh"

constexpr unsigned GUESSES = 8;  // then halves of the range: a range of 2^64 keys ends

// All above a key, and of those that have it the first `want` by columns. Has a barrier of the cluster.
__device__ __forceinline__ Mask with_ties(const HeldRow& row, Exchange& exchange, Key tie, unsigned want) {
  const Mask above = tie == ONES ? 0 : reaching_key(row, tie + 1);
  const Mask ties = reaching_key(row, tie) & ~above;
  const unsigned own = __reduce_add_sync(~0u, __popcll(ties)), place = warp_of() * BLOCKS + block_of();
  cluster_wait();
  if (lane_of() < BLOCKS) *of_block(&exchange.ties[place], lane_of()) = own;
  cluster_sync();
  unsigned before = 0;
#pragma unroll 1
  for (unsigned other = lane_of(); other < place; other += 32) before += exchange.ties[other];
  before = __reduce_add_sync(~0u, before);
  cluster_arrive();
  Mask taken = 0;
#pragma unroll 1
  for (int bit = 0; bit < 64 && before < want; bit += VECTOR) {  // line by line
    unsigned line = unsigned(ties >> bit) & LINE_MASK, all, upto = before + scan_lanes(__popc(line), all);
    for (; line && upto > want; upto--) line ^= 1u << (31 - __clz(line));
    taken |= Mask(line) << bit, before += all;
  }
  return above | taken;
}

// List the chosen, and bring what the blocks of a cluster have together. Ends with a barrier of the cluster.
__device__ __forceinline__ void list_chosen(const HeldRow& row, const List& list, Mask chosen, const Sums& sums) {
  unsigned slot = sums.inside;
  row.each(chosen, [&](Key key, unsigned column) { list.keys[slot] = key, list.columns[slot] = column, slot++; });
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
  row.read(reinterpret_cast<uint4*>(memory + CAPACITY * (sizeof(Key) + 4) + INTERVALS * 4), data, cols, order);
  List list = make_list(memory, &counters);
  const int group = group_of(k, cols);
  const Ranks ranks = ranks_of(k, cols, group);
  __pipeline_wait_prior(1);
  const Guess guess = first_guess(row, exchange, group, ranks);
  __pipeline_wait_prior(0);
  Range range = {0, ONES, 0, unsigned(cols)};
  Key cut = guess.cut;
  Mask chosen = reaching(row, cut);
  Sums sums;
  unsigned round = 0;
  bool probes = false;
#pragma unroll 1
  for (;; round++) {
    sums = sum_up(exchange, __popcll(chosen), round % 2);
    if (sums.all >= k && sums.all <= CAPACITY) break;
    if (sums.all >= k) range.bottom = cut, range.within = sums.all - range.above;
    else range.top = cut - 1, range.within -= sums.all - range.above, range.above = sums.all;
    if (range.bottom == range.top) {
      chosen = with_ties(row, exchange, range.top, k - range.above);
      sums = sum_up(exchange, __popcll(chosen), (round + 1) % 2);
      break;
    }
    probes = sums.all >= k && !probes;
    if (probes) cut = range.bottom + 1;  // perhaps most were ties
    else cut = next_guess(row, exchange, range, k, (round + 1) % 2);
    if (round >= GUESSES) cut = range.bottom + (range.top - range.bottom) / 2 + 1;
    chosen = reaching_key(row, cut);
  }
  list_chosen(row, list, chosen, sums);
  if (block_of() > 0) return;
  const Even even = round == 0 ? even_between(guess.top, guess.cut) : Even{0, -1};
  write_answer(list, sums.all, k, number, data, order, {values, indices}, even);
}
