// A row and its parts: tiles of LOADS aligned loads of 16 bytes a thread, the next tile in flight while one is looked at.
//
// Compile-time: LOADS.
#pragma once
#include "list.cuh"

constexpr int LINE = 128 / ELEMENT_BYTES;  // elements; parts begin at lines

// Where what most rows need ends: a part's list is full, or longer than it may be; parts found too much for the list; the
// row's list is too short or too long; its intervals crowd.
enum Stage { PART, ROW, LIST, ORDER };

// What all threads know of a part; in shared memory, which has more room than registers.
struct Span {
  const Element* line;           // the line that the row begins in; positions are counted from it
  unsigned skew;                 // position of the row's first element
  unsigned begin, end;           // positions of the part
  unsigned first, last;          // its whole loads
  unsigned row_first;            // that of the row
  unsigned seed;                 // of where the sample looks
  unsigned row, parts;           // the row's number, and its parts
  Stage stage;                   // that is reached
  Cut cut;                       // that all that is listed reaches
  unsigned listed;               // entries of a list that is full, of one that is not ~0
};

// A part as a thread reads it.
struct RowPart {
  Span& span;
  Order order;
  uint4 coming[LOADS];  // of the next tile

  // Read anew: no register is left to keep it. Not volatile, which makes a loop that depends on it one that waits.
  __device__ __forceinline__ Cut cut() const { return *kept(&span.cut); }

  __device__ __forceinline__ uint4 load(unsigned position) const {
    const uint4* loads = reinterpret_cast<const uint4*>(span.line);
    return position < span.last ? __ldcs(loads + position) : make_uint4(0, 0, 0, 0);
  }

  __device__ __forceinline__ void fetch(unsigned tile) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) coming[i] = load(span.first + (tile * LOADS + i) * THREADS + threadIdx.x);
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
    span.listed = ~0u;
    span.seed = 1 + unsigned(reinterpret_cast<unsigned long long>(span.line) >> 7);
  }
};
