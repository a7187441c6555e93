// How a block shares a row out among its warps: LOADS lines of a thread at a time, of which the first are a sample of all of the row.
//
// Compile-time: LOADS, SPREAD (which of two ways).
#pragma once
#include "reaching.cuh"

// Lines of a thread: line `i` is `begin` and `i` steps further, if that is before the end of the row.
struct Batch {
  unsigned begin, step;

  __device__ __forceinline__ unsigned line(int i) const { return begin + i * step; }
  __device__ __forceinline__ unsigned column(const Row& row, int i) const { return row.column(begin, 0) + i * (step * VECTOR); }
};

template <class Batch> __device__ __forceinline__ void fetch(const Row& row, Batch batch, uint4 (&bits)[LOADS]) {
#pragma unroll
  for (int i = 0; i < LOADS; i++) bits[i] = line_past(row.lines + batch.line(i), batch.line(i) < row.end);
}

// A number without a pattern, for each of another.
__device__ __forceinline__ unsigned mixed(unsigned number) {
  number *= 0x9E3779B1u;
  return (number ^ number >> 15) * 0x2C1B3C6Du;
}

// Where a row is read from on follows from where it is in memory: rows lie at powers of two.
__device__ __forceinline__ unsigned seed_of(const Row& row) {
  return mixed(unsigned(reinterpret_cast<unsigned long long>(row.lines) >> 7) + 1);
}

#if SPREAD

// Short rows: a row has LOADS equal stretches, and lines of all threads side by side are a round: all batches have a round of each stretch; the
// last have what is left of these. By numbers alone, which takes few registers.
struct Sharing {
  unsigned begin;    // of the row's lines
  unsigned stretch;  // lines, of the last one some fewer
  unsigned each;     // whole rounds of every stretch
  unsigned turn;     // the round of each that the warp's sample is from

  __device__ __forceinline__ unsigned batches() const { return (stretch + THREADS - 1) / THREADS; }
  __device__ __forceinline__ Batch batch(unsigned number) const {
    constexpr unsigned NONE = 1u << 30;
    unsigned thread = threadIdx.x;
    asm volatile("" : "+r"(thread));  // else the sum is kept, and spilled: spills come back from DRAM, behind all that is on its way
    const unsigned turned = turn + number, round = number >= each ? number : turned < each ? turned : turned - each;
    const unsigned within = round * THREADS + thread;
    return {within < stretch ? begin + within : NONE, stretch};
  }
};

__device__ __forceinline__ Sharing sharing_of(const Row& row) {
  const unsigned lines = row.end - row.begin, stretch = (lines + LOADS - 1) / LOADS, each = (lines - (LOADS - 1) * stretch) / THREADS;
  const unsigned turn = __umulhi(seed_of(row), each) + warp_of() * each / WARPS;
  return {row.begin, stretch, each, turn < each ? turn : turn - each};
}

__device__ __forceinline__ Sharing sharing_again(const Row& row, Sharing&) { return sharing_of(row); }

// What a warp has not looked at yet: batches from one on.
struct Left {
  unsigned number;
};

__device__ __forceinline__ Left all_left(Sharing&) { return {0}; }
__device__ __forceinline__ bool is_left(const Sharing& sharing, Left left) { return left.number < sharing.batches(); }
__device__ __forceinline__ Batch first_left(const Row&, const Sharing& sharing, Left left) { return sharing.batch(left.number); }
__device__ __forceinline__ Batch second_left(const Row&, const Sharing& sharing, Left left) { return sharing.batch(left.number + 1); }
__device__ __forceinline__ void move(Sharing&, Left& left) { left.number++; }

#else

// Longer rows: LOADS lines of all lanes of a warp side by side are a chunk. The row has as many stretches as the block has warps, whose first
// chunks are the sample: lines of a lane are of different ones. All others are handed out as warps ask for them, in the order of the row; the last has
// what is left.
constexpr unsigned CHUNK = 32 * LOADS;  // lines

struct Chunks {
  unsigned whole;    // chunks
  unsigned between;  // those of a stretch that are no sample
  float inverse;     // of as many
  unsigned start;    // where the first stretch begins

  __device__ __forceinline__ unsigned none() const { return whole + 1; }
  __device__ __forceinline__ unsigned sample() const { return whole + 2; }
  __device__ __forceinline__ unsigned turned(unsigned chunk) const {
    if (chunk >= whole) return min(chunk, none());
    chunk += start;
    return chunk < whole ? chunk : chunk - whole;
  }
  // That of a number among those that are no sample.
  __device__ __forceinline__ unsigned other(unsigned number) const {
    const unsigned stretch = unsigned((float(number) + 0.5f) * inverse);
    return turned(number + min(stretch, unsigned(WARPS - 1)) + 1);
  }
};

// Of a row of twice as many as there are warps, or more.
__device__ __forceinline__ Chunks chunks_of(const Row& row) {
  const unsigned whole = (row.end - row.begin) / CHUNK, between = whole / WARPS - 1;
  return {whole, between, __fdividef(1.f, float(between)), __umulhi(seed_of(row), whole)};
}

__device__ __forceinline__ Batch batch_of(const Row& row, unsigned chunk) { return {row.begin + chunk * CHUNK + lane_of(), 32}; }

constexpr unsigned FIRSTS = WARPS < LOADS ? WARPS : LOADS;  // chunks that the sample of a lane is from

// A batch of lines a step apart, and as many next to these; what would be beyond the last whole chunk is at the beginning of the row.
struct Turned {
  unsigned begin, step, further, end, whole;  // lines

  __device__ __forceinline__ unsigned line(int i) const {
    const unsigned its = begin + i % FIRSTS * step + i / FIRSTS * further;
    return its < end ? its : its - whole;
  }
  __device__ __forceinline__ unsigned column(const Row& row, int i) const { return row.column(line(i), 0); }
};

// The sample of a warp: of every first chunk, or of one in a few, a line for each lane, or a few.
__device__ __forceinline__ Turned sample_of(const Row& row, const Chunks& chunks) {
  constexpr unsigned SETS = WARPS / FIRSTS;  // of first chunks
  const unsigned first = chunks.turned(warp_of() % SETS * (chunks.between + 1)), whole = chunks.whole * CHUNK;
  const unsigned within = warp_of() / SETS * (LOADS / FIRSTS) * 32 + lane_of();
  return {row.begin + first * CHUNK + within, SETS * (chunks.between + 1) * CHUNK, 32, row.begin + whole, whole};
}

__device__ __forceinline__ Turned any_of(const Row& row, const Chunks& chunks, unsigned chunk) {
  if (chunk == chunks.sample()) return sample_of(row, chunks);
  return {batch_of(row, chunk).begin, 32, FIRSTS * 32, ~0u, 0};
}

// The chunks that are handed out; in shared memory.
struct Sharing {
  Chunks chunks;
  unsigned number;  // of the next, of those that are no sample

  // By one lane.
  __device__ __forceinline__ unsigned next() { return chunks.other(atomicAdd(&number, 1u)); }
};

__device__ __forceinline__ Sharing& sharing_again(const Row&, Sharing& handed_out) { return handed_out; }

// What a warp has not looked at yet, of what was handed out to it.
struct Left {
  unsigned chunk, next, after;
};

__device__ __forceinline__ Left all_left(Sharing& sharing) {
  __syncthreads();
  if (threadIdx.x == 0) sharing.number = 0;
  __syncthreads();
  unsigned one = 0, other = 0;
  if (lane_of() == 0) one = sharing.next(), other = sharing.next();
  return {sharing.chunks.sample(), __shfl_sync(~0u, one, 0), __shfl_sync(~0u, other, 0)};
}
__device__ __forceinline__ bool is_left(const Sharing& sharing, Left left) { return left.chunk != sharing.chunks.none(); }
__device__ __forceinline__ Turned first_left(const Row& row, const Sharing& sharing, Left left) { return any_of(row, sharing.chunks, left.chunk); }
__device__ __forceinline__ Batch second_left(const Row& row, const Sharing&, Left left) { return batch_of(row, left.next); }
__device__ __forceinline__ void move(Sharing& sharing, Left& left) {
  left.chunk = left.next, left.next = left.after;
  if (lane_of() == 0 && left.next != sharing.chunks.none()) left.after = sharing.next();
  left.after = __shfl_sync(~0u, left.after, 0);
}

#endif
