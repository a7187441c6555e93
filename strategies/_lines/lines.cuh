// A row as lines of 16 aligned bytes, the first and the last of which may be the row's in part, and the best key of every
// line. The blocks of a cluster take 32 whole lines by turns, so that what is concentrated somewhere in a row is all blocks' alike; a
// thread has every STRIDE-th.
//
// Compile-time: LINES (of a thread); RESIDENT (blocks of a processor).
#pragma once
#define BOTH_SIGNS (FLOAT && ELEMENT_BYTES <= 4)
#include "answer.cuh"
#include "cluster.cuh"

constexpr unsigned STRIDE = BLOCKS * THREADS;
constexpr int TOGETHER = RESIDENT > 1 || THREADS > 512 ? 8192 : 4096;  // lines of a block on their way at once
constexpr int BATCH = LINES * THREADS > TOGETHER ? TOGETHER / THREADS : LINES;  // of a thread

// A line, or zeros where it is not to be read. It is read once, so that the L1 cache makes no room for it: what many threads have on
// their way is more than it holds. Volatile, or the compiler moves it to where the line is looked at, and one waits for another.
__device__ __forceinline__ uint4 line_past(const uint4* line, bool reads) {
  uint4 bits = make_uint4(0, 0, 0, 0);
  asm volatile("{\n"
               ".reg .pred reads;\n"
               "setp.ne.u32 reads, %5, 0;\n"
               "@reads ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               "}"
               : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w)
               : "l"(line), "r"(unsigned(reads)));
  return bits;
}

struct Row {
  const uint4* lines;
  unsigned skew;  // elements before the row in its first line
  unsigned cols;
  Order order;
  unsigned begin, end;  // whole lines

  __device__ __forceinline__ const Element* data() const { return reinterpret_cast<const Element*>(lines) + skew; }
  __device__ __forceinline__ bool whole(unsigned line) const { return line >= begin && line < end; }
  __device__ __forceinline__ unsigned column(unsigned line, int e) const { return line * VECTOR + e - skew; }
  __device__ __forceinline__ unsigned all_lines() const { return (skew + cols + VECTOR - 1) / VECTOR; }

  // Past the L1 cache; behind the whole lines the last of them, since what all lanes read is asked for sooner.
  __device__ __forceinline__ uint4 line_or_last(unsigned line) const { return line_past(lines + min(line, end - 1), end > begin); }

  // Its first columns alone.
  __device__ __forceinline__ void cut(unsigned length) { cols = length, end = max((skew + cols) / VECTOR, begin); }

  // A line that is the row's in part; elements that are not are 0.
  __device__ __forceinline__ uint4 part(unsigned line, unsigned& inside) const {
    uint4 bits = make_uint4(0, 0, 0, 0);
    unsigned* words = &bits.x;
    inside = 0;
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      if (column(line, e) >= cols) continue;
      const Element its = data()[column(line, e)];
      const int bit = 8 * ELEMENT_BYTES * e;
      words[bit / 32] |= unsigned(its) << bit % 32;
      if (ELEMENT_BYTES == 8) words[bit / 32 + 1] = unsigned((unsigned long long)its >> 32);
      inside |= 1u << e;
    }
    return bits;
  }
};

__device__ __forceinline__ Row row_of(const Element* data, unsigned cols, Order order) {
  const unsigned skew = unsigned(reinterpret_cast<unsigned long long>(data) % 16 / ELEMENT_BYTES), begin = skew > 0;
  return {reinterpret_cast<const uint4*>(data - skew), skew, cols, order, begin, max((skew + cols) / VECTOR, begin)};
}

// Which elements of a line have keys of at least `cut`, a bit each.
__device__ __forceinline__ unsigned elements_reaching(uint4 bits, unsigned inside, Key cut, Order order) {
  unsigned chosen = 0;
#pragma unroll
  for (int e = 0; e < VECTOR; e++) chosen |= unsigned(equal_key(element(bits, e), order) >= cut) << e;
  return chosen & inside;
}

// And which have a key.
__device__ __forceinline__ unsigned elements_equal(uint4 bits, unsigned inside, Key key, Order order) {
  unsigned chosen = 0;
#pragma unroll
  for (int e = 0; e < VECTOR; e++) chosen |= unsigned(equal_key(element(bits, e), order) == key) << e;
  return chosen & inside;
}

// The best key of a line.
template <bool SMALLEST, bool HALF> __device__ __forceinline__ Key best_of(uint4 bits, Order order) {
#if FLOAT && ELEMENT_BYTES <= 4
  const auto better = better_bits<SMALLEST, HALF>;
  unsigned best = better(better(bits.x, bits.y), better(bits.z, bits.w));
  if (ELEMENT_BYTES == 2) best = better(best, best >> 16) & 0xFFFF;
  return equal_key(Element(best), order);
#else
  Key best = 0;
#pragma unroll
  for (int e = 0; e < VECTOR; e++) best = max(best, equal_key(element(bits, e), order));
  return best;
#endif
}

// The lines of a thread.
struct OwnLines {
  unsigned first;
  unsigned end;        // behind the last of the row
  Key part;            // the best of a line that is the row's in part, of two threads
  unsigned part_line;  // ~0 where there is none

  __device__ __forceinline__ unsigned line(int number) const { return first + number * STRIDE; }
  __device__ __forceinline__ bool has(int number) const { return line(number) < end; }
};

// What a thread knows of them.
struct Maxima : OwnLines {
  static constexpr int COUNT = LINES, EACH = 1;  // maxima of a thread, and lines of each
  Key keys[LINES];                               // 0 where there is no line

  __device__ __forceinline__ Key key(int number) const { return keys[number]; }
  __device__ __forceinline__ unsigned best_line(int number) const { return line(number); }
  __device__ __forceinline__ bool several(Key) const { return false; }
};

template <bool SMALLEST, bool HALF> __device__ __forceinline__ void read_lines(const Row& row, Maxima& maxima) {
#pragma unroll
  for (int begin = 0; begin < LINES; begin += BATCH) {
    uint4 bits[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      bits[i] = row.line_or_last(maxima.line(begin + i));
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const Key best = best_of<SMALLEST, HALF>(bits[i], row.order);
      maxima.keys[begin + i] = maxima.has(begin + i) ? best : Key(0);
    }
  }
}

// How many whole lines this block has.
__device__ __forceinline__ unsigned lines_of_block(const Row& row) {
  const unsigned all = row.end - row.begin, last = all % (BLOCKS * 32), before = block_of() * 32;
  return BLOCKS == 1 ? all : all / (BLOCKS * 32) * 32 + min(last - min(last, before), 32u);
}

__device__ __forceinline__ void ask_for_first(const Row&, const Maxima&) {}

// The maxima of the block's lines, and of those that are the row's in part. `meanwhile()` is called before any is known.
template <class Maxima, class Meanwhile>
__device__ __forceinline__ void read_maxima(const Row& row, bool smallest, Maxima& maxima, Meanwhile meanwhile) {
  maxima.first = row.begin + (warp_of() * BLOCKS + block_of()) * 32 + lane_of(), maxima.end = row.end;
  ask_for_first(row, maxima);
  meanwhile();
  if (!FLOAT || ELEMENT_BYTES == 8) read_lines<false, false>(row, maxima);
  else if (ELEMENT_BYTES == 2 && row.order.half())
    smallest ? read_lines<true, true>(row, maxima) : read_lines<false, true>(row, maxima);
  else smallest ? read_lines<true, false>(row, maxima) : read_lines<false, false>(row, maxima);
  maxima.part = 0, maxima.part_line = ~0u;
  const bool has = threadIdx.x == 0 ? !row.whole(0) : threadIdx.x == 1 && row.end > 0 && row.end < row.all_lines();
  if (has && block_of() == 0) {
    maxima.part_line = threadIdx.x ? row.end : 0;
    unsigned inside;
    const uint4 bits = row.part(maxima.part_line, inside);
#pragma unroll
    for (int e = 0; e < VECTOR; e++)
      if (inside >> e & 1) maxima.part = max(maxima.part, equal_key(element(bits, e), row.order));
  }
}
