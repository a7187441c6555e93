// A cut from a sample of the row that k entries almost surely reach, and few more: the best entries of its pieces are ranked
// among each other. A piece is 128 bytes, or of long rows several times 128 bytes, far from each other.
#pragma once
#include "row.cuh"

constexpr unsigned PIECES = CAPACITY < 128 ? CAPACITY : 128;
constexpr unsigned PIECE = 8;         // loads of 128 bytes
constexpr unsigned MOST_TIMES = 8;
constexpr unsigned LONG = 1 << 17;    // elements of a row for each time: of shorter ones few enough pass
constexpr unsigned SPARED = 16384;    // elements of a part for each time, so that samples take little beside what is read

// Of how many pieces the best should reach the cut, where every piece has `elements` of the row's. So many pieces hold one
// of the best k, and five deviations more.
__device__ __forceinline__ unsigned likely_rank(unsigned k, unsigned cols, unsigned pieces, unsigned elements) {
  const float part = float(k) / float(cols), exponent = elements * part * (1 + part * (0.5f + part / 3));
  const float holds = exponent < 0.01f ? exponent : 1 - expf(-exponent), mean = pieces * holds;
  return unsigned(mean + 5 * sqrtf(mean * (1 - holds))) + 3;
}

// Loads of 128 bytes that are looked at: as many as make it likely, but not sure, that one of the best k is among them.
__device__ __forceinline__ unsigned loads_of_piece(unsigned k, unsigned cols) {
  unsigned loads = PIECE;
  while (loads > 1 && (unsigned long long)loads * VECTOR * k > cols) loads /= 2;
  return loads;
}

// The logarithm of how many times 128 bytes a piece is.
__device__ __forceinline__ int times_of_piece(unsigned k, unsigned cols, unsigned parts) {
  const unsigned times = min(min(cols / (SPARED * parts), cols / (4 * PIECE * VECTOR * k)), min(cols / LONG, MOST_TIMES));
  return times > 1 ? 31 - __clz(times) : 0;
}

// The better of an entry and the best of the first `elements` of a load, which is further on in the row.
__device__ __forceinline__ void take_best(uint4 bits, unsigned position, unsigned elements, const Span& span, Order order,
                                          Key& key, unsigned& column) {
#pragma unroll
  for (unsigned e = 0; e < VECTOR; e++) {
    const Key other = key_of(element(bits, e), order);
    if (e < elements && (other > key || column == ~0u)) key = other, column = position * VECTOR + e - span.skew;
  }
}

// The same cut for all blocks of a row. Everything passes where nothing can be told. Has two barriers.
__device__ __forceinline__ Cut sampled_cut(List& list, const Span& span, Order order, unsigned k, unsigned cols,
                                           unsigned parts) {
  const unsigned whole = span.row_last > span.row_first ? (span.row_last - span.row_first) / PIECE : 0;
  if (whole == 0) return {0, 0};
  const int bits = 31 - __clz(min(whole, PIECES));
  const unsigned pieces = 1u << bits, loads = loads_of_piece(k, cols);
  const unsigned elements = VECTOR * (unsigned long long)k > cols ? 1 : VECTOR;  // of a load
  const int times = times_of_piece(k, cols, parts);
  const unsigned rank = likely_rank(k, cols, pieces, loads * elements << times);
  if (rank >= pieces) return {0, 0};
#pragma unroll 1
  for (unsigned first = 0; first < pieces * PIECE; first += THREADS) {
    const unsigned i = first + threadIdx.x, piece = min(i / PIECE, pieces - 1), number = i % PIECE;
    Key key = 0;
    unsigned column = ~0u;
#pragma unroll 2
    for (unsigned part = piece; number < loads && part < pieces << times; part += pieces) {
      const unsigned from = unsigned((unsigned long long)part * whole >> (bits + times));
      const unsigned to = unsigned((unsigned long long)(part + 1) * whole >> (bits + times));
      unsigned hash = (part + 1) * 0x9E3779B1u;  // 128 bytes of each of as many equal stretches, at no stride
      hash = (hash ^ hash >> 15) * 0x2C1B3C6Du;
      const unsigned position = span.row_first + (from + __umulhi(hash ^ hash >> 13, to - from)) * PIECE + number;
      const uint4 load = __ldg(reinterpret_cast<const uint4*>(span.line) + position);
      take_best(load, position, elements, span, order, key, column);
    }
#pragma unroll
    for (int distance = PIECE / 2; distance; distance /= 2) {
      const Key other = __shfl_xor_sync(~0u, key, distance);
      const unsigned its = __shfl_xor_sync(~0u, column, distance);
      if (other > key || (other == key && its < column)) key = other, column = its;
    }
    if (number == 0 && i < pieces * PIECE) list.keys[piece] = key, list.columns[piece] = column;
  }
  __syncthreads();
  constexpr unsigned LANES = THREADS / PIECES > 32 ? 32 : THREADS / PIECES > 1 ? THREADS / PIECES : 1;  // rank a piece
#pragma unroll 1
  for (unsigned piece = threadIdx.x / LANES; piece < PIECES; piece += THREADS / LANES) {
    const unsigned own = min(piece, pieces - 1), column = list.columns[own];
    const Key key = list.keys[own];
    unsigned better = 0;
#pragma unroll 8
    for (unsigned other = threadIdx.x % LANES; other < pieces; other += LANES)
      better += list.keys[other] > key || (list.keys[other] == key && list.columns[other] < column);
#pragma unroll
    for (unsigned distance = LANES / 2; distance; distance /= 2) better += __shfl_xor_sync(~0u, better, distance);
    if (better == rank - 1 && piece < pieces && threadIdx.x % LANES == 0) list.counters->cut = {key, ~column};
  }
  __syncthreads();
  return list.counters->cut;
}
