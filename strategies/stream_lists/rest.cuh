// What is rare. Where the list was full, or too few elements reached the cut, lines from all over the row tell another, and warps go on where they
// were, or from the beginning; where most have the cut's key, what is above it is listed, and the first of its equals by columns are looked for.
// Where that is not enough, lists that are full are made shorter until the row is read.
#pragma once
#include "ranks.cuh"
#include "taken.cuh"

// What a warp has not looked at yet: batches, the first of them from a line on, and lines that are the row's in part.
struct Progress {
  Left left;
  unsigned line;
  bool edges;
};

// On from there. Returns whether there was no room.
__device__ __forceinline__ bool stream_again(const Row& row, Sharing& sharing, const List& list, Filled& filled, Progress& at) {
  const Cut cut = filled.cut;
#pragma unroll 1
  for (; is_left(sharing, at.left); move(sharing, at.left), at.line = 0) {
    const auto batch = first_left(row, sharing, at.left);
    uint4 bits[LOADS];
    fetch(row, batch, bits);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      if (i < at.line) continue;
      const unsigned column = row.column(batch.line(i), 0);
      unsigned passing = 0;
#pragma unroll
      for (int e = 0; e < VECTOR; e++) passing |= unsigned(chosen(equal_key(element(bits[i], e), row.order), column + e, cut)) << e;
      if (batch.line(i) >= row.end) passing = 0;
      if (!__any_sync(~0u, passing)) continue;
      unsigned slot;
      if (!claim(list, filled, __popc(passing), slot)) {
        at.line = i;
        return true;
      }
#pragma unroll
      for (int e = 0; e < VECTOR; e++) {
        if (!(passing >> e & 1)) continue;
        list.keys[slot] = equal_key(element(bits[i], e), row.order), list.columns[slot] = column + e;
        slot++;
      }
    }
  }
  if (at.edges && !take_edges(row, list, filled, cut, true)) return true;
  at.edges = false;
  return false;
}

// Keep what of the list's `count` entries, which are bits, reaches a cut. Begins behind a barrier, and ends with one.
__device__ __forceinline__ void keep_reaching(List& list, unsigned count, Key cut, Order order) {
  unsigned words[ITEMS], columns[ITEMS], stays = 0;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    if (at >= count) continue;
    words[i] = unsigned(list.keys[at]), columns[i] = list.columns[at];
    stays |= unsigned(equal_key(Element(words[i]), order) >= cut) << i;
  }
  empty_list(list);
  unsigned slot = reserve(list, __popc(stays));
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (stays >> i & 1) list.keys[slot] = words[i], list.columns[slot] = columns[i], slot++;
  __syncthreads();
}

// Call `put(rank, key, column)` for the first `want` elements of a key by columns, ranks from `first` on. Returns whether there are as many.
// Begins behind a barrier.
template <class Put>
__device__ __forceinline__ bool put_ties(const Row& row, unsigned* counts, Key tie, unsigned first, unsigned want, Put put) {
  unsigned before = 0;
#pragma unroll 1
  for (unsigned begin = 0; begin < row.all_lines() && before < want; begin += THREADS) {
    const unsigned line = begin + threadIdx.x;
    unsigned inside = row.whole(line) ? EVERY : 0, all;
    uint4 bits = line_past(row.lines + line, inside);
    if (!inside && line < row.all_lines()) bits = row.part(line, inside);
    unsigned ties = elements_equal(bits, inside, tie, row.order);
    const unsigned upto = scan_lanes(__popc(ties), all);
    if (lane_of() == 0) counts[warp_of()] = all;
    __syncthreads();
    const unsigned its = lane_of() < WARPS ? counts[lane_of()] : 0;
    unsigned place = before + __reduce_add_sync(~0u, lane_of() < warp_of() ? its : 0) + upto - __popc(ties);
    before += __reduce_add_sync(~0u, its);
#pragma unroll 1
    for (; ties && place < want; ties &= ties - 1) put(first + place++, tie, row.column(line, __ffs(ties) - 1));
    __syncthreads();
  }
  return before >= want;
}

__device__ __forceinline__ void make_keys(const List& list, unsigned count, Order order) {
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < count; i += THREADS) list.keys[i] = equal_key(Element(list.keys[i]), order);
  __syncthreads();
}

constexpr unsigned MOST_RANKED = ITEMS * THREADS < CAPACITY ? ITEMS * THREADS : CAPACITY;

// The sum over the block. Begins behind a barrier of who read the counts before.
__device__ __forceinline__ unsigned sum_of_block(unsigned* counts, unsigned own) {
  const unsigned all = __reduce_add_sync(~0u, own);
  if (lane_of() == 0) counts[warp_of()] = all;
  __syncthreads();
  const unsigned sum = __reduce_add_sync(~0u, lane_of() < WARPS ? counts[lane_of()] : 0);
  __syncthreads();
  return sum;
}

// A line of each of as many equal stretches of the row as threads look at lines; those of a warp are from all over it.
__device__ __forceinline__ unsigned drawn_line(const Row& row, int number) {
  const unsigned stretch = number * THREADS + lane_of() * WARPS + warp_of(), lines = row.end - row.begin;
  const unsigned within = __umulhi(mixed(stretch + seed_of(row)), lines / (LOADS * THREADS));
  return row.begin + unsigned((unsigned long long)lines * stretch / (LOADS * THREADS)) + within;
}

constexpr int MOST_TRIES = 4;

struct Another {
  Key cut, tie;
  bool tied;  // the cut is the next key above that of many
};

// What lines from all over the row tell.
__device__ __forceinline__ Another another_cut(const Row& row, Exchange& exchange, unsigned* counts, unsigned want, Key old, bool full, bool smallest) {
  uint4 bits[LOADS];
#pragma unroll
  for (int i = 0; i < LOADS; i++) bits[i] = line_past(row.lines + drawn_line(row, i), true);
  const Key maximum = best_of_lines(bits, row.order, smallest);
  // How many elements would reach a cut is known of the sample: of lines whose elements are alike, as in a row in order, more than of others.
  const float scale = __fdividef(float(row.cols), float(LOADS * VECTOR * THREADS)), most = 0.9f * CAPACITY, least = 1.25f * want;
  const float usual = maxima_of(want, row.cols);
  const auto common = [&](Key key) { return unsigned(__syncthreads_count(maximum == key)) > usual / 2 + 4; };
  if (full && unsigned(__syncthreads_count(maximum > old)) <= usual + 1 && common(old)) return {old != ONES ? old + 1 : old, old, true};
  float maxima = usual, few = 0, many = THREADS;  // between which enough and not too many are
  Key cut = 0, low = 0;                           // that too many reach, which make a list shorter now and then, while too few begin the row again
  bool enough = false;
#pragma unroll 1
  for (int tries = 0; tries < MOST_TRIES; tries++) {
    cut = cut_of_sample(exchange, counts, maximum, ranked_of(maxima, false));
    if (common(cut)) return {cut != ONES ? cut + 1 : cut, cut, true};
    const Limit limit(cut, row.order);
    unsigned elements = 0;
#pragma unroll
    for (int i = 0; i < LOADS; i++) elements += __popc(elements_at<1>(limit, bits + i, row.order));
    const float all = float(sum_of_block(counts, elements)) * scale;
    enough = all >= least;
    if (enough && all <= most) break;
    if (enough && all <= 4.f * CAPACITY) low = cut;
    (enough ? many : few) = maxima;
    maxima *= __fdividef(sqrtf(least * most), all);
    if (maxima <= few || maxima >= many) maxima = (few + many) / 2;
  }
  if (!enough && low) cut = low;
  return {cut, cut, false};
}

// What the block shares beside its list.
struct Shared {
  alignas(16) Counters counters;
  alignas(16) Exchange exchange;
  alignas(16) Filled filled;
  unsigned counts[WARPS];
  Progress stopped[WARPS];  // where the warps are
  Sharing sharing;          // of chunks that are handed out
  Another another;
};

// What follows is done by functions that the kernel calls one after the other, each of which begins with what is in memory, so that none keeps a register
// for another. First: another cut where the list was full, or too few reach the cut, and what of the list reaches it. Returns whether there is one.
__device__ __noinline__ bool cut_anew(const Element* data, unsigned cols, unsigned want, bool smallest, bool is_signed, unsigned infinity,
                                      unsigned char* dynamic, Shared* of_block) {
  const Row row = row_of(data, cols, order_of(smallest, is_signed, infinity));
  Shared& shared = *kept(of_block);
  List list = list_of(dynamic, &shared.counters);
  Filled& filled = shared.filled;
  __syncthreads();
  const unsigned count = min(list.counters->count, filled.listed);
  const bool full = filled.listed != ~0u;
  if (!full && count >= want) return false;
  const Key old = filled.cut.key;
  const Another another = another_cut(row, shared.exchange, shared.counts, want, old, full, smallest);
  const bool none = another.tied && another.tie == ONES;  // nothing is above
  if (!none && (full ? another.cut <= old : another.cut >= old)) return false;
  if (!full || none) {
    empty_list(list);
    auto&& sharing = sharing_again(row, shared.sharing);
    const Left left = all_left(sharing);
    if (lane_of() == 0) shared.stopped[warp_of()] = {left, 0, threadIdx.x < 32};
  } else {
    keep_reaching(list, count, another.cut, row.order);
  }
  if (threadIdx.x == 0) filled = {{another.cut, 0}, ~0u}, shared.another = another;
  __syncthreads();
  return true;
}

// On from where warps are, with what all elements that reach the cut are listed as: bits. Two batches are on their way.
__device__ __noinline__ void stream_on(const Element* data, unsigned cols, bool smallest, bool is_signed, unsigned infinity, unsigned char* dynamic,
                                       Shared* of_block) {
  const Row row = row_of(data, cols, order_of(smallest, is_signed, infinity));
  Shared& shared = *kept(of_block);
  if (shared.another.tied && shared.another.tie == ONES) return;
  auto&& sharing = sharing_again(row, shared.sharing);
  const List list = list_of(dynamic, &shared.counters);
  Filled& filled = shared.filled;
  const Limit limit(filled.cut.key, row.order);
  Progress at = shared.stopped[warp_of()];
  bool full = false;
  uint4 one[LOADS], other[LOADS];
  fetch(row, first_left(row, sharing, at.left), other);
#pragma unroll 1
  for (; is_left(sharing, at.left); move(sharing, at.left)) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) one[i] = other[i];
    fetch(row, second_left(row, sharing, at.left), other);
    full = !take(row, list, filled, limit, first_left(row, sharing, at.left), one);
    if (full) break;
  }
  if (!full && at.edges) at.edges = !take_edges(row, list, filled, filled.cut, false);
  __syncwarp();
  if (lane_of() == 0) shared.stopped[warp_of()] = at;
}

// The best `want` of a row of which as much is listed, as bits, as is told; by `another` cut or not.
__device__ __noinline__ void select_again(const Element* data, unsigned cols, unsigned want, bool smallest, bool is_signed, unsigned infinity,
                                          Element* values, void* indices, unsigned char* dynamic, Shared* of_block, bool by_another) {
  const Row row = row_of(data, cols, order_of(smallest, is_signed, infinity));
  Shared& shared = *kept(of_block);
  auto&& sharing = sharing_again(row, shared.sharing);
  List list = list_of(dynamic, &shared.counters);
  Filled& filled = shared.filled;
  const Answer answer = {values, indices, (unsigned long long)blockIdx.x * want, data, row.order};
  const auto put = [&](unsigned rank, Key key, unsigned column) { answer.put(rank, key, column); };
  __syncthreads();
  unsigned count = min(list.counters->count, filled.listed);
  bool full = filled.listed != ~0u;
  const bool tied = by_another && shared.another.tied, ranked = !full && count <= MOST_RANKED;
  if (by_another && ranked && (count >= want || tied)) {
    const unsigned listed = min(count, want);
    if (listed == want || put_ties(row, shared.counts, shared.another.tie, listed, want - listed, put)) {
      if (listed == 0) return;
      make_keys(list, count, row.order);
      return rank_crowds(list, filled.cut, count, listed, row.order, false, put);
    }
  }
  const bool crowds = !by_another && ranked && count >= want;
  Progress at = shared.stopped[warp_of()];
  __syncthreads();
  make_keys(list, count, row.order);
#pragma unroll 1
  for (;;) {
    while (full) {
      __syncthreads();
      if (count >= CAPACITY / 2) shorten(list, count, want, CAPACITY / 2, filled.cut, 0);
      else if (threadIdx.x == 0) list.counters->count = count;
      __syncthreads();
      if (threadIdx.x == 0) filled.listed = ~0u;
      __syncthreads();
      full = __syncthreads_or(stream_again(row, sharing, list, filled, at));
      count = full ? filled.listed : list.counters->count;
    }
    if (count >= want) break;
    __syncthreads();
    if (threadIdx.x == 0) list.counters->count = 0, filled.cut = {0, 0};
    at = {all_left(sharing), 0, threadIdx.x < 32}, full = true, count = 0;
  }
  __syncthreads();
  if (count > MOST_RANKED) shorten(list, count, want, MOST_RANKED, filled.cut, 0), count = list.counters->count;
  rank_crowds(list, filled.cut, count, want, row.order, crowds, put);
}
