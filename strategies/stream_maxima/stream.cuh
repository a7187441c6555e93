// Rows of so many lines that maxima are of several of them. Of each is kept which line it is of, and of a thread the best of all other
// lines: so what is read again is mostly one line for each.
//
// Compile-time: LINES (of a thread), MAXIMA (of a thread), LISTED (lines that a block lists to read again).
#pragma once
#include "lines.cuh"

constexpr unsigned MOST_LISTED = LISTED;
constexpr int STREAM_BATCH = THREADS < 512 ? 16 : 8;  // lines of a thread on their way at once
static_assert(MAXIMA == 16 && LINES / MAXIMA <= 256, "numbers of lines have 8 bits, and four words");

struct Streamed : OwnLines {
  static constexpr int COUNT = MAXIMA, EACH = LINES / COUNT;  // as of Maxima

  Key keys[COUNT];            // 0 where there is no line
  unsigned which[COUNT / 4];  // the line that a maximum is of, 8 bits each
  Key others;                 // the best of all other lines

  __device__ __forceinline__ Key key(int number) const { return keys[number]; }

  // The line that has the maximum.
  __device__ __forceinline__ unsigned best_line(int number) const {
    const unsigned low = number & 4 ? which[1] : which[0], high = number & 4 ? which[3] : which[2], word = number & 8 ? high : low;
    return line(number * EACH + (word >> number % 4 * 8 & 0xFF));
  }
  // Whether more than one line of a maximum may reach a cut.
  __device__ __forceinline__ bool several(Key cut) const { return others >= cut; }

  // Maxima move up, and there is one more.
  __device__ __forceinline__ void push(Key key, unsigned of) {
#pragma unroll
    for (int i = 1; i < COUNT; i++) keys[i - 1] = keys[i];
    keys[COUNT - 1] = key;
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) which[i] = which[i] >> 8 | (i + 1 < COUNT / 4 ? which[(i + 1) % (COUNT / 4)] : of) << 24;
  }
};

// The best elements of lines: of the best of them, with its number, and of all others.
template <bool SMALLEST, bool HALF> struct BestLine {
#if FLOAT && ELEMENT_BYTES <= 4
  typedef unsigned Its;
  static __device__ __forceinline__ Its of(uint4 bits, Order) {
    const auto better = better_bits<SMALLEST, HALF>;
    const unsigned best = better(better(bits.x, bits.y), better(bits.z, bits.w));
    return ELEMENT_BYTES == 2 ? better(best, best >> 16) & 0xFFFF : best;
  }
  static __device__ __forceinline__ Its better(Its a, Its b) { return better_bits<SMALLEST, HALF>(a, b); }
  static __device__ __forceinline__ Its worse(Its a, Its b) { return better_bits<!SMALLEST, HALF>(a, b); }
  static __device__ __forceinline__ Its worst(Order order) { return infinity_of(order) | (SMALLEST ? 0 : SIGN); }
  static __device__ __forceinline__ Key key(Its its, Order order) { return equal_key(Element(its), order); }
#else
  typedef Key Its;
  static __device__ __forceinline__ Its of(uint4 bits, Order order) { return best_of<SMALLEST, HALF>(bits, order); }
  static __device__ __forceinline__ Its better(Its a, Its b) { return max(a, b); }
  static __device__ __forceinline__ Its worse(Its a, Its b) { return min(a, b); }
  static __device__ __forceinline__ Its worst(Order) { return 0; }
  static __device__ __forceinline__ Key key(Its its, Order) { return its; }
#endif
};

// Ask the L2 cache for a thread's first lines.
__device__ __forceinline__ void ask_for_first(const Row& row, const Streamed& maxima) {
#pragma unroll
  for (int i = 0; i < STREAM_BATCH; i++)
    if (maxima.has(i)) asm volatile("prefetch.global.L2 [%0];" ::"l"(row.lines + maxima.line(i)));
}

template <bool SMALLEST, bool HALF> __device__ __forceinline__ void read_lines(const Row& row, Streamed& maxima) {
  typedef BestLine<SMALLEST, HALF> Line;
  constexpr int EACH = Streamed::EACH, BATCH = STREAM_BATCH, OF_BATCH = EACH < BATCH ? BATCH / EACH : 1;  // maxima
#pragma unroll
  for (int i = 0; i < Streamed::COUNT; i++) maxima.keys[i] = 0;
  typename Line::Its best[OF_BATCH] = {}, others = Line::worst(row.order);
  unsigned which[OF_BATCH] = {};
#pragma unroll 1
  for (int begin = 0; begin < LINES; begin += BATCH) {
    if (maxima.line(begin) - lane_of() < maxima.end) {  // lines of the warp
      uint4 bits[BATCH];
#pragma unroll
      for (int i = 0; i < BATCH; i++) bits[i] = row.line_or_last(maxima.line(begin + i));
      __syncwarp();  // all are asked for before the first is looked at
#pragma unroll
      for (int i = 0; i < BATCH; i++) {
        const int number = begin % EACH + i, its_maximum = EACH < BATCH ? i / EACH : 0;
        const bool starts = EACH < BATCH ? i % EACH == 0 : i == 0 && number == 0;
        const typename Line::Its its = Line::of(bits[i], row.order), before = best[its_maximum];
        if (starts || maxima.has(begin + i)) {
          if (!starts) others = Line::better(others, Line::worse(before, its));
          best[its_maximum] = starts ? its : Line::better(before, its);
          if (starts || best[its_maximum] != before) which[its_maximum] = number % EACH;
        }
      }
    }
    if (EACH > BATCH && (begin + BATCH) % EACH) continue;
#pragma unroll
    for (int i = 0; i < OF_BATCH; i++) {
      const int first = EACH < BATCH ? begin + i * EACH : begin / EACH * EACH;
      maxima.push(maxima.has(first) ? Line::key(best[i], row.order) : Key(0), which[i]);
    }
  }
  maxima.others = Line::key(others, row.order);
}

typedef Streamed OfRow;
