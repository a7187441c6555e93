// A part of a row as a stream: tiles of LOADS aligned loads of 16 bytes a thread, the next tile in flight while one is
// looked at. The elements before the first aligned load and behind the last come with the first and the last tile.
//
// Compile-time: LOADS.
#pragma once
#include "selection.cuh"

constexpr int LINE = 128 / ELEMENT_BYTES;  // elements; parts begin at lines

// What all threads know of a part; in shared memory, which has more room than registers.
struct Span {
  const Element* line;           // the line that the row begins in; positions are counted from it
  unsigned skew;                 // position of the row's first element
  unsigned begin, end;           // positions of the part
  unsigned first, last;          // its whole loads
  unsigned row_first, row_last;  // those of the row
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
  const Span& span;
  Order order;
  unsigned tile;        // the next one
  unsigned done;        // elements of this thread's that it needs not look at there, being stored
  bool edge;            // whether this thread's element at the part's edges is not stored yet
  uint4 coming[LOADS];  // of the next tile

  __device__ __forceinline__ unsigned tiles() const {
    return span.first < span.last ? (span.last - span.first + LOADS * THREADS - 1) / (LOADS * THREADS) : 0;
  }

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
    tile = 0, done = 0;
    edge = edge_at() < span.end;
    fetch();
  }

  // The position of this thread's element before the first whole load or behind the last; the part's end where it has none.
  __device__ __forceinline__ unsigned edge_at() const {
    const unsigned head = min(span.first * VECTOR, span.end), rest = max(head, span.last * VECTOR);
    const unsigned at = threadIdx.x < 16 ? span.begin + threadIdx.x : rest + threadIdx.x - 16;
    return threadIdx.x < 16 ? (at < head ? at : span.end) : threadIdx.x < 32 ? at : span.end;
  }
};

// Store what the cut lets pass of what is left of a part, whose next tile is fetched; no thread waits for another, but a warp
// stops where one of its threads finds no room. Returns whether it did; then the rest, once fetched, can go on with a cut
// that made room.
__device__ __forceinline__ bool filter(List& list, RowPart& part, Cut cut) {
  const Order order = part.order;
  const Span& span = part.span;
  const Bounds bounds = bounds_of(cut, order, span.skew);
#pragma unroll 1
  for (const unsigned tiles = part.tiles(); part.tile < tiles; part.tile++) {
    unsigned stored = ~0u;  // all, or so many
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const uint4 bits = part.coming[i];
      const unsigned at = part.at(part.tile, i);
      part.coming[i] = part.load(part.at(part.tile + 1, i));
      if (!reaches(flipped(bits, order), bounds.at(at), order) || at >= span.last) continue;
      for (unsigned passing = reaching(flipped(bits, order), bounds.at(at), order); passing; passing &= passing - 1) {
        const unsigned e = __ffs(passing) - 1, number = i * VECTOR + e;
        if (number < part.done || stored != ~0u) continue;
        if (!store(list, key_of(element(bits, e), order), at * VECTOR + e - span.skew, cut)) stored = number;
      }
    }
    part.done = stored;
    if (__any_sync(~0u, stored != ~0u)) return true;
    part.done = 0;
  }
  if (part.edge) {
    const unsigned at = part.edge_at();
    part.edge = !store(list, key_of(span.line[at], order), at - span.skew, cut);
  }
  return part.edge;
}

struct Row {
  const Element* data;
  unsigned cols;
  Order order;

  // Elements of the line that the row begins in, before the row.
  __device__ __forceinline__ unsigned skew() const {
    return unsigned(reinterpret_cast<unsigned long long>(data) % 128 / ELEMENT_BYTES);
  }

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
    span.row_first = (span.skew + VECTOR - 1) / VECTOR;
    span.row_last = (cols + span.skew) / VECTOR;
  }
};
