// A part of a row as a stream: tiles of LOADS aligned loads of 16 bytes a thread, the next tile in flight while one is
// looked at. The elements before the first aligned load and behind the last come with the first and the last tile.
//
// Compile-time: LOADS.
#pragma once
#include "best.cuh"

constexpr int LINE = 128 / ELEMENT_BYTES;  // elements; parts begin at lines
constexpr int ASKING = (LOADS * VECTOR + 31) / 32;

// What all threads know of a part; in shared memory, which has more room than registers.
struct Span {
  const Element* line;           // the line that the row begins in; positions are counted from it
  unsigned skew;                 // position of the row's first element
  unsigned begin, end;           // positions of the part
  unsigned first, last;          // its whole loads
  unsigned row_first;            // that of the row
  unsigned seed;                 // of where the sample looks
};

// A cut among elements as numbers: loads up to `ties_end` may hold ties that the cut chooses.
struct Bounds {
  Number bound, above;
  unsigned ties_end;

  __device__ __forceinline__ Number at(unsigned load) const { return load > ties_end ? above : bound; }
};

__device__ __forceinline__ Bounds bounds_of(Cut cut, Order order, unsigned skew) {
  const Number bound = bound_of(cut.key, order);
  return {bound, cut.key == ONES ? bound : bound_of(cut.key + 1, order),
          cut.place ? (~cut.place + skew) / VECTOR : ~0u};
}

struct RowPart {
  static constexpr bool IN_ORDER = true;

  const Span& span;
  Order order;
  unsigned tile;           // the next one
  uint4 coming[LOADS];     // of the next tile
  unsigned asking[ASKING];  // elements of the last tile's loads that are not stored yet, a bit each
  bool edge;               // likewise, of the element of this thread at the part's edges

  __device__ __forceinline__ unsigned tiles() const {
    return span.first < span.last ? (span.last - span.first + LOADS * THREADS - 1) / (LOADS * THREADS) : 1;
  }
  __device__ __forceinline__ bool more() const { return tile < tiles(); }

  __device__ __forceinline__ unsigned at(unsigned number, int load) const {
    return span.first + (number * LOADS + load) * THREADS + threadIdx.x;
  }

  __device__ __forceinline__ uint4 load(unsigned position) const {
    const uint4* loads = reinterpret_cast<const uint4*>(span.line);
    return position < span.last ? __ldcs(loads + position) : make_uint4(0, 0, 0, 0);
  }

  __device__ __forceinline__ void fetch() {
#pragma unroll
    for (int i = 0; i < LOADS; i++) coming[i] = load(at(tile, i));
  }

  __device__ __forceinline__ void start() {
    tile = 0;
    fetch();
  }

  __device__ __forceinline__ bool offer(List& list, Cut cut) {
    const Bounds bounds = bounds_of(cut, order, span.skew);
#pragma unroll
    for (int i = 0; i < ASKING; i++) asking[i] = 0;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const uint4 bits = coming[i];
      coming[i] = load(at(tile + 1, i));
      bool any = reaches(flipped(bits, order), bounds.at(at(tile, i)), order) && at(tile, i) < span.last;
      if (__any_sync(~0u, any)) keep_asking(i, offer_load(list, bits, at(tile, i), any ? EVERY : 0, cut));
    }
    edge = edge_at() < span.end;
    offer_edge(list, cut);
    tile++;
    return asks();
  }

  // What is not stored is read once more, and so is the next tile: no register holds an element meanwhile.
  __device__ __forceinline__ bool offer_again(List& list, Cut cut) {
    tile--;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      unsigned& word = asking[i * VECTOR / 32];
      unsigned asks = word >> (i * VECTOR % 32) & EVERY;
      word ^= asks << (i * VECTOR % 32);
      if (__any_sync(~0u, asks)) keep_asking(i, offer_load(list, load(at(tile, i)), at(tile, i), asks, cut));
    }
    offer_edge(list, cut);
    tile++;
    fetch();
    return asks();
  }

  __device__ __forceinline__ void keep_asking(int load, unsigned elements) {
    asking[load * VECTOR / 32] |= elements << (load * VECTOR % 32);
  }

  __device__ __forceinline__ bool asks() const {
    bool any = edge;
#pragma unroll
    for (int i = 0; i < ASKING; i++) any |= asking[i] != 0;
    return any;
  }

  // The position of this thread's element at the edges that come with the tile; the part's end where it has none.
  __device__ __forceinline__ unsigned edge_at() const {
    unsigned head = min(span.first * VECTOR, span.end), rest = max(head, span.last * VECTOR);
    unsigned position = threadIdx.x < 16 ? span.begin + threadIdx.x : rest + threadIdx.x - 16;
    bool has = threadIdx.x < 16 ? tile == 0 && position < head : threadIdx.x < 32 && tile + 1 == tiles();
    return has ? position : span.end;
  }

  __device__ __forceinline__ void offer_edge(List& list, Cut cut) {
    if (warp_of()) return;
    unsigned position = edge_at();
    edge = ::offer(list, edge, edge ? equal_key(span.line[position], order) : Key(0), position - span.skew, cut);
  }

  // Store those of a load's elements that ask and that the cut chooses. Returns those for which there was no room.
  __device__ __forceinline__ unsigned offer_load(List& list, uint4 bits, unsigned position, unsigned asks, Cut cut) {
    unsigned column = position * VECTOR - span.skew, passing = 0;
#pragma unroll
    for (int e = 0; e < VECTOR; e++)
      passing |= unsigned(chosen(equal_key(element(bits, e), order), column + e, cut)) << e;
    passing &= asks;
    unsigned slot = reserve(list, __popc(passing)), left = passing;
    for (unsigned rest = passing; rest && slot < CAPACITY; rest &= rest - 1, slot++) {
      int e = __ffs(rest) - 1;
      list.keys[slot] = equal_key(element(bits, e), order), list.columns[slot] = column + e;
      left ^= 1u << e;
    }
    return left;
  }
};

struct WholeRow {
  const Element* data;
  unsigned cols;
  Order order;

  // Elements of the line that the row begins in, before the row.
  __device__ __forceinline__ unsigned skew() const {
    return unsigned(reinterpret_cast<unsigned long long>(data) % 128 / ELEMENT_BYTES);
  }

  // The first of the whole loads of the row, and the end of the last.
  __device__ __forceinline__ unsigned first_load() const { return (skew() + VECTOR - 1) / VECTOR; }
  __device__ __forceinline__ unsigned last_load() const { return (cols + skew()) / VECTOR; }

  // Where part `number` of `parts` begins, as a position; that is also where the one before ends. Later ones are empty.
  __device__ __forceinline__ unsigned begin(unsigned number, unsigned parts) const {
    unsigned total = cols + skew(), size = ((total + LINE - 1) / LINE + parts - 1) / parts * LINE;
    return number ? min(number * size, total) : skew();
  }

  // Part `number` of `parts`, by one thread.
  __device__ __forceinline__ void find_part(Span& span, unsigned number, unsigned parts) const {
    span.skew = skew();
    span.line = data - span.skew;
    span.begin = begin(number, parts);
    span.end = begin(number + 1, parts);
    span.first = (span.begin + VECTOR - 1) / VECTOR;
    span.last = span.end / VECTOR;
    span.row_first = first_load();
    span.seed = 1 + unsigned(reinterpret_cast<unsigned long long>(span.line) >> 7);
  }
};
