// A row in the registers of a cluster, and a cut for each block that about as many of its elements as are among the wanted
// reach, and some more.
//
// Lines are dealt out to the blocks by turns, 32 at a time, so that what is concentrated somewhere in a row is all blocks' alike.
#pragma once
#include "signals.cuh"

// The blocks of a cluster that share a row.
struct Together {
  static constexpr int HOLDS = LINES;  // lines of a thread
  static constexpr unsigned COUNT = BLOCKS;
  static __device__ __forceinline__ unsigned own() { return block_of(); }
  static __device__ __forceinline__ void wait() { cluster_wait(); }
  static __device__ __forceinline__ void arrive() { cluster_arrive_relaxed(); }
  static __device__ __forceinline__ void sync() { cluster_sync(); }
  template <class T> static __device__ __forceinline__ T* of(T* address, unsigned block) { return of_block(address, block); }
};

// Whether a thread keeps its lines to the end: of more, registers would be spilled for that, and they are read again.
template <class Blocks> constexpr bool HELD_LINES = Blocks::HOLDS <= 8;

static_assert(FLOAT && (ELEMENT_BYTES == 2 || ELEMENT_BYTES == 4), "elements are compared as floats, two of 16 bits together");

// So many ones from the lowest bit on; none of less than one.
__device__ __forceinline__ unsigned lowest_bits(int count) { return count < 32 ? (1u << max(count, 0)) - 1 : ~0u; }

// What a thread holds: lines `first`, `first + STRIDE`, ...
template <class Blocks> struct Holding {
  static constexpr unsigned STRIDE = Blocks::COUNT * THREADS;

  uint4 bits[Blocks::HOLDS];
  unsigned best[Blocks::HOLDS];  // element of a line, or of its lower and its upper halves; for what is read again
  unsigned first, end;
  Key looked_at, largest;  // the best of the lines that the cut is made from, and of all
  Key part;                // of a line that is the row's in part, of two threads
  unsigned part_line;      // ~0 where there is none

  __device__ __forceinline__ unsigned line(int number) const { return first + number * STRIDE; }
  __device__ __forceinline__ bool has(int number) const { return line(number) < end; }
  __device__ __forceinline__ int count() const { return (max(end, first) - first + STRIDE - 1) / STRIDE; }
};

template <class Blocks> __device__ __forceinline__ void ask_for_lines(const Row& row, Holding<Blocks>& holding, unsigned own = Blocks::own()) {
  holding.first = row.begin + (warp_of() * Blocks::COUNT + own) * 32 + lane_of(), holding.end = row.end;
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) holding.bits[i] = row.line_or_last(holding.line(i));
}

// The best of all lines, and of one word in `spread`, a power of two. They are compared as floats, and have keys last.
template <bool SMALLEST, bool HALF, class Blocks> __device__ __forceinline__ void find_best(Holding<Blocks>& holding, Order order, int spread) {
  constexpr int HOLDS = Blocks::HOLDS;
  constexpr unsigned WORST = SMALLEST ? 0x7FFFFFFF : ELEMENT_BYTES == 4 ? 0xFF800000 : HALF ? 0xFC00FC00 : 0xFF80FF80;  // NaN, -infinity
  constexpr unsigned NONE = SMALLEST && ELEMENT_BYTES == 2 ? 0x7FFF7FFF : WORST;
  const auto better = better_bits<SMALLEST, HALF>;
  unsigned largest, looked_at;
  if (HELD_LINES<Blocks> && spread > 1) {
    // Words of lines of even numbers and of odd ones, each the best of its kind; or of all, where there are few. Every lane looks at some of these, so that
    // padding, or whatever else a part of a row has, is looked at as often as it is there.
    constexpr int KINDS = HOLDS >= 8 ? 8 : 4;
    unsigned kinds[KINDS], looked[KINDS];
#pragma unroll
    for (int i = 0; i < KINDS; i++) kinds[i] = NONE;
#pragma unroll
    for (int i = 0; i < HOLDS; i++) {
      const uint4 bits = holding.bits[i];
      const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
      if (!holding.has(i)) continue;
#pragma unroll
      for (int w = 0; w < 4; w++) kinds[(4 * i + w) % KINDS] = better(kinds[(4 * i + w) % KINDS], words[w]);
    }
#pragma unroll
    for (int i = 0; i < KINDS; i++) looked[i] = kinds[i];
#pragma unroll
    for (int step = KINDS / 2; step; step /= 2) {
#pragma unroll
      for (int i = 0; i < step; i++) {
        kinds[i] = better(kinds[i], kinds[i + step]);
        looked[i] = spread <= step ? kinds[i] : lane_of() & step ? looked[i + step] : looked[i];
      }
    }
    largest = kinds[0], looked_at = looked[0];
  } else {
#pragma unroll
    for (int i = 0; i < HOLDS; i++) {
      const uint4 bits = holding.bits[i];
      const unsigned best = better(better(bits.x, bits.y), better(bits.z, bits.w));
      holding.best[i] = holding.has(i) ? best : NONE;
    }
    largest = looked_at = holding.best[0];
#pragma unroll
    for (int step = HOLDS / 2; step; step /= 2) {  // of so many lines that they are not held, every `spread`-th
#pragma unroll
      for (int i = step; i < HOLDS; i += 2 * step) largest = better(largest, holding.best[i]);
      if (HELD_LINES<Blocks> || spread <= step) looked_at = largest;
    }
  }
  if (ELEMENT_BYTES == 2) largest = better(largest, largest >> 16) & 0xFFFF, looked_at = better(looked_at, looked_at >> 16) & 0xFFFF;
  holding.largest = holding.has(0) ? equal_key(Element(largest), order) : Key(0);
  holding.looked_at = holding.has(0) ? equal_key(Element(looked_at), order) : Key(0);
}

template <class Blocks> __device__ __forceinline__ void find_best(const Row& row, Holding<Blocks>& holding, int spread, bool smallest) {
  if (ELEMENT_BYTES == 2 && row.order.half())
    smallest ? find_best<true, true>(holding, row.order, spread) : find_best<false, true>(holding, row.order, spread);
  else smallest ? find_best<true, false>(holding, row.order, spread) : find_best<false, false>(holding, row.order, spread);
  holding.part = 0, holding.part_line = ~0u;
  if (row.begin == 0 && row.end == row.all_lines()) return;
  const bool has = threadIdx.x == 0 ? !row.whole(0) : threadIdx.x == 1 && row.end > 0 && row.end < row.all_lines();
  if (has && Blocks::own() == 0) {
    holding.part_line = threadIdx.x ? row.end : 0;
    unsigned inside;
    const uint4 bits = row.part(holding.part_line, inside);
#pragma unroll
    for (int e = 0; e < VECTOR; e++)
      if (inside >> e & 1) holding.part = max(holding.part, equal_key(element(bits, e), row.order));
  }
}

// One word in so many, or one line, is looked at for a thread's maximum, so that half of the maxima are none of the wanted.
template <class Blocks> __device__ __forceinline__ int spread_of(unsigned want, unsigned cols) {
  int spread = 1;
#pragma unroll
  for (int group = Blocks::HOLDS / 2; group; group /= 2)
    if (3 * VECTOR * group * (unsigned long long)want > cols) spread = Blocks::HOLDS / group;
  return spread;
}

// What the cut of a block is to be: of the threads' maxima one that as many reach as if the block had its part of the wanted and
// four deviations more.
struct Aim {
  int spread;
  unsigned in_block, in_warp;  // ranks of maxima, from 1
  float elements, wanted;      // of the lines that are looked at; the wanted among them, on average
  float each, threads;         // elements of a maximum; maxima

  // How many maxima so many of the elements reach, on average.
  __device__ __forceinline__ float maxima_of(float target) const {
    const float reached = fminf(__fdividef(target, fmaxf(elements, 1)), 0.9999f);
    return threads * (1 - exp2f(log2f(1 - reached) * each));
  }
};

// Of what reaches a cut. The highest cut of several blocks is what counts.
constexpr float DEVIATIONS = BLOCKS > 1 ? 4.5f : 4.f;

template <class Blocks> __device__ __forceinline__ Aim aim_of(unsigned want, const Row& row) {
  const int spread = spread_of<Blocks>(want, row.cols), total = row.end - row.begin;
  unsigned looked_at = 0, threads = 0;  // lines of the block, and threads that have any
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) {
    const unsigned left = max(total - int(Blocks::own() * 32 + i * Holding<Blocks>::STRIDE), 0), turns = left / (32 * Blocks::COUNT);
    const unsigned lines = min(32 * turns + min(left % (32 * Blocks::COUNT), 32u), unsigned(THREADS));
    if (HELD_LINES<Blocks> || (i & (spread - 1)) == 0) looked_at += lines;
    if (i == 0) threads = lines;
  }
  const float elements = __fdividef(float(looked_at * VECTOR), HELD_LINES<Blocks> ? float(spread) : 1.f), wanted = __fdividef(float(want), float(row.cols)) * elements;
  Aim aim = {spread, 0, 0, elements, wanted, __fdividef(elements, float(max(threads, 1u))), float(threads)};
  const float hits = aim.maxima_of(wanted + DEVIATIONS * sqrtf(wanted) + 4);
  aim.in_block = min(unsigned(hits) + 1, max(threads, 1u));
  const float in_warp = __fdividef(hits * 33, float(max(threads, 32u)));  // the best of 32 is one of 33, on average; of warps some round up
  aim.in_warp = min(max(unsigned(in_warp + (float(warp_of()) + 0.5f) * (1.f / WARPS)), 1u), 32u);
  return aim;
}

// Keys of 16 bits with a number of the thread below them, so that no two maxima are equal.
constexpr int BELOW_KEY = ELEMENT_BYTES < 4 ? 16 : 0;

// Whether half of the warps' candidates are the cut, so that it may be the key of many elements.
template <bool ORDERED> __device__ __forceinline__ bool cut_is_common(const Exchange& exchange, Key cut) {
  return __popc(__ballot_sync(~0u, exchange.guesses[lane_of() % WARPS] >> (ORDERED ? BELOW_KEY : 0) == cut)) >= 16;
}

// The mean of the warps' candidates, which about as many maxima reach as each warp was asked for; 0 where it may mislead: one of them is far
// from the others, or most are the two around it, as where few keys are different.
template <bool ORDERED> __device__ __forceinline__ Key mean_of_candidates(const Exchange& exchange) {
  constexpr bool ALL_BITS = ELEMENT_BYTES == 4 || ORDERED;  // 32 of them have no room in a sum
  constexpr int BELOW = ORDERED ? BELOW_KEY : 0;
  const Key its = exchange.guesses[lane_of() % WARPS], least = least_of_lanes(its), most = largest_of_lanes(its);
  const Key sum = __reduce_add_sync(~0u, ALL_BITS ? its / 32 : its), mean = max(ALL_BITS ? sum : sum / 32, least);
  const Key below = largest_of_lanes(its <= mean ? its : least), above = least_of_lanes(its >= mean ? its : most);
  const int around = __popc(__ballot_sync(~0u, its >> BELOW == below >> BELOW || its >> BELOW == above >> BELOW));
  const bool few = least != most && (around > 16 || (ALL_BITS && most - least < 1024));  // of which the mean tells 32
  const bool far = (above == most && mean - below > below - least) || (below == least && above - mean > most - above);
  return few || far ? 0 : mean >> BELOW;
}

// The cut of this block. The maxima of every warp's threads tell one candidate. The cut is their mean; where that may mislead, all of the block's
// maxima tell how many reach each, and the highest that enough reach is. Where they are to be ordered, the maxima of every warp are put in order,
// with what is below keys. Has a barrier, or two.
template <bool ORDERED, class Blocks>
__device__ __forceinline__ Guess own_cut(const Holding<Blocks>& holding, Exchange& exchange, unsigned* ranks, Aim aim, Order order,
                                         Key (*ordered)[32]) {
  constexpr int BELOW = ORDERED ? BELOW_KEY : 0;
  Key maximum = holding.looked_at;
  const bool finite = holding.largest < (SIGN | infinity_of(order));  // keys beyond are far from all others
  const Key top = largest_of_lanes(finite ? holding.largest : Key(0));
  if (BELOW) maximum = maximum << BELOW | (threadIdx.x * 40503 & 0xFFFF);
  if (ORDERED) ordered[warp_of()][lane_of()] = maximum;  // of equal ones, places but the first keep what they have
  const unsigned larger = larger_of_lanes(exchange.maxima[warp_of()], maximum);
  float(&rounded)[WARPS][32] = reinterpret_cast<float(&)[WARPS][32]>(exchange.maxima);
  rounded[warp_of()][lane_of()] = __uint2float_rn(maximum);
  if (ORDERED) atomicExch(&ordered[warp_of()][larger], maximum);
  const Key candidate = least_of_lanes(larger < aim.in_warp ? maximum : ~Key(0));
  if (lane_of() == 0) exchange.guesses[warp_of()] = candidate, exchange.tops[warp_of()] = top;
  __syncthreads();
  if (const Key mean = mean_of_candidates<ORDERED>(exchange)) return {mean, largest_of_lanes(exchange.tops[lane_of() % WARPS])};
  const float limit = __uint2float_rn(candidate);
  float below[4] = {};  // how many maxima, rounded, which are integers: see `larger_of_lanes`
#pragma unroll
  for (int i = 0; i < WARPS; i++) below[i % 4] += __saturatef(limit - rounded[i][lane_of()]);
  const unsigned reaching = THREADS - __reduce_add_sync(~0u, unsigned((below[0] + below[1]) + (below[2] + below[3])));
  if (lane_of() == 0) ranks[warp_of()] = reaching;
  __syncthreads();
  const int warp = lane_of() % WARPS;
  const Key cut = largest_of_lanes(ranks[warp] >= aim.in_block ? exchange.guesses[warp] : Key(0));
  return {max(Key(cut >> BELOW), Key(1)), largest_of_lanes(exchange.tops[warp])};
}
