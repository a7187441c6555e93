// A cut from a sample of the row that k entries almost surely reach, and few more: the best entries of its pieces are ranked
// among each other. A piece is a few loads of 16 bytes from all over the row.
#pragma once
#include "row.cuh"

constexpr unsigned ROOM = ELEMENT_BYTES == 8 ? CAPACITY / 2 : CAPACITY;  // pieces that the list's memory holds
constexpr unsigned PIECES = ROOM < 128 ? ROOM : 128;
constexpr int PIECE_BITS = 3;             // of the number of a piece's loads each time, one a lane
constexpr unsigned PIECE = 1 << PIECE_BITS;
constexpr int MOST_TIME_BITS = 2;         // of how many times as many loads are looked at
constexpr unsigned SPARED = 1 << 19;      // elements of a row for each time, so that the last block gets few entries
constexpr unsigned EACH = THREADS < 256 ? 4 : THREADS < 1024 ? 1024 / THREADS : 1;  // pieces of a thread at once
constexpr unsigned AT_ONCE = EACH < 4 ? 2 / EACH : 1;  // times at once

// Of how many pieces the best should reach the cut, where every piece has `elements` of the row's. So many pieces hold one
// of the best k, and four deviations more.
__device__ __forceinline__ unsigned likely_rank(unsigned k, unsigned cols, unsigned pieces, unsigned elements) {
  const float expected = elements * __fdividef(float(k), float(cols));
  const float holds = expected < 0.01f ? expected : 1 - exp2f(-1.442695f * expected), mean = pieces * holds;
  const float variance = mean * (1 - holds) + 1e-9f;
  return unsigned(mean + 4 * variance * rsqrtf(variance)) + 4;
}

// The logarithm of how many loads of a piece are looked at: it is likely, but not sure, that one of the best k is there.
__device__ __forceinline__ int load_bits(unsigned k, unsigned cols) {
  const unsigned most = cols / (VECTOR * k);
  return most < PIECE ? max(31 - __clz(most), 0) : PIECE_BITS;
}

// The key of the best element of a load, or nearly so: NaN may hide another. Of the first element where not `all` count.
__device__ __forceinline__ Key best_key(uint4 bits, bool all, Order order) {
#if FLOAT && ELEMENT_BYTES == 2
  bits = flipped(bits, order);
  const unsigned two = order.half() ? larger_halves(larger_halves(bits.x, bits.y), larger_halves(bits.z, bits.w))
                                    : larger_bfloats(larger_bfloats(bits.x, bits.y), larger_bfloats(bits.z, bits.w));
  return max(equal_key(Element(two ^ order.flip), order), equal_key(Element((two ^ order.flip) >> 16), order));
#else
  Key best = equal_key(element(bits, 0), order);
  if (VECTOR < 16 || all) {
#pragma unroll
    for (int e = 1; e < VECTOR; e++) best = max(best, equal_key(element(bits, e), order));
  }
  return best;
#endif
}

// The best of a piece: the position of its load tells equal keys apart.
#if ELEMENT_BYTES == 8
struct Piece {
  Key key;
  unsigned position;
};
__device__ __forceinline__ Piece piece_of(Key key, unsigned position) { return {key, position}; }
__device__ __forceinline__ Key key_of(Piece piece) { return piece.key; }
__device__ __forceinline__ unsigned position_of(Piece piece) { return piece.position; }
__device__ __forceinline__ bool is_better(Piece piece, Piece than) {
  return piece.key > than.key || (piece.key == than.key && piece.position < than.position);
}
#else
typedef unsigned long long Piece;  // in one comparison
__device__ __forceinline__ Piece piece_of(Key key, unsigned position) { return Piece(key) << 32 | ~position; }
__device__ __forceinline__ Key key_of(Piece piece) { return Key(piece >> 32); }
__device__ __forceinline__ unsigned position_of(Piece piece) { return ~unsigned(piece); }
__device__ __forceinline__ bool is_better(Piece piece, Piece than) { return piece > than; }
#endif
static_assert(ROOM * sizeof(Piece) <= CAPACITY * (sizeof(Key) + sizeof(unsigned)), "pieces have no room");

// How a row is sampled; worked out before anything is known of parts.
struct Sampling {
  unsigned loads;                        // whole ones of the row
  int piece_bits, load_bits, time_bits;  // of the numbers of pieces, of their loads each time, of times
  unsigned rank;                         // of the piece whose best is the cut, from 1; 0 where nothing can be told
  bool all;                              // whether all elements of a load count
};

__device__ __forceinline__ Sampling sampling_of(const WholeRow& row, unsigned k) {
  const unsigned first = row.first_load(), last = row.last_load(), loads = last > first ? last - first : 0;
  if (loads < PIECE) return {};
  const int pieces = 31 - __clz(min(loads / PIECE, PIECES)), lanes = load_bits(k, row.cols);
  const int times = min(31 - __clz(row.cols / SPARED | 1), MOST_TIME_BITS);
  const bool all = VECTOR < 16 || (unsigned long long)VECTOR * k <= row.cols;
  const unsigned rank = likely_rank(k, row.cols, 1u << pieces, (all ? VECTOR : 1) << lanes << times);
  return {loads, pieces, lanes, times, rank >> pieces ? 0 : rank, all};
}

// What is looked at: a load of each of as many equal stretches of the row, at no stride. Those of a piece are far from
// each other; where a block has a row of its own, four are together, as DRAM sends them. Where in a stretch follows
// from where the row is in memory, too: no input is misread wherever it lies.
struct Places {
  const Span& span;
  Sampling sampling;
  int together;  // of the number of loads of a stretch

  __device__ __forceinline__ unsigned at(unsigned piece, unsigned number, unsigned time) const {
    const int bits = sampling.piece_bits + sampling.load_bits + sampling.time_bits - together;
    const unsigned stretch = (((time << sampling.load_bits | number) >> together) << sampling.piece_bits) + piece;
    const unsigned seed = *const_cast<const volatile unsigned*>(&span.seed);  // no register is left to keep it
    unsigned hash = (stretch + seed) * 0x9E3779B1u;
    hash = (hash ^ hash >> 15) * 0x2C1B3C6Du;
    const unsigned all = sampling.loads >> together;
    const unsigned place = __umulhi(stretch << (31 - bits) << 1, all) + __umulhi(hash ^ hash >> 13, all >> bits);
    return span.row_first + (place << together) + (number & ((1u << together) - 1));
  }
};

// The pieces of the list's memory. A round's loads are all in flight at once.
__device__ __forceinline__ Piece* pieces_of(const List& list) { return reinterpret_cast<Piece*>(list.keys); }

__device__ __forceinline__ void sample_pieces(const List& list, const Places& places, Order order) {
  const Sampling& sampling = places.sampling;
  const unsigned number = threadIdx.x % PIECE, pieces = 1u << sampling.piece_bits;
#pragma unroll 1
  for (unsigned first = threadIdx.x / PIECE; first < PIECES; first += EACH * THREADS / PIECE) {
    Key keys[EACH];
    unsigned positions[EACH];
#pragma unroll
    for (unsigned i = 0; i < EACH; i++) keys[i] = 0, positions[i] = ~0u;
#pragma unroll 1
    for (unsigned time = 0; time < 1u << sampling.time_bits; time += AT_ONCE) {
      uint4 coming[EACH * AT_ONCE];
      unsigned at[EACH * AT_ONCE];
#pragma unroll
      for (unsigned i = 0; i < EACH * AT_ONCE; i++) {
        const unsigned piece = first + i % EACH * (THREADS / PIECE), now = time + i / EACH;
        at[i] = ~0u;
        if (piece >= pieces || number >> sampling.load_bits || now >> sampling.time_bits) continue;
        at[i] = places.at(piece, number, now);
        coming[i] = __ldg(reinterpret_cast<const uint4*>(places.span.line) + at[i]);
      }
#pragma unroll
      for (unsigned i = 0; i < EACH * AT_ONCE; i++) {
        if (at[i] == ~0u) continue;
        const Key key = best_key(coming[i], sampling.all, order);
        if (key > keys[i % EACH] || positions[i % EACH] == ~0u) keys[i % EACH] = key, positions[i % EACH] = at[i];
      }
    }
#pragma unroll
    for (unsigned i = 0; i < EACH; i++) {
#pragma unroll
      for (int distance = PIECE / 2; distance; distance /= 2) {
        const Key other = __shfl_xor_sync(~0u, keys[i], distance);
        const unsigned its = __shfl_xor_sync(~0u, positions[i], distance);
        if (other > keys[i] || (other == keys[i] && its < positions[i])) keys[i] = other, positions[i] = its;
      }
      const unsigned piece = first + i * (THREADS / PIECE);
      if (number == 0 && piece < pieces) pieces_of(list)[piece] = piece_of(keys[i], positions[i]);
    }
  }
}

// The same cut for all blocks of a row. Everything passes where nothing can be told. The part is asked for as soon as what
// was looked at is there: the one would wait for the other, and ranks take as long as the first tile. Ends with a barrier.
__device__ __forceinline__ void find_cut(List& list, RowPart& part, const Sampling& sampling, unsigned parts) {
  Span& span = part.span;
  if (sampling.rank == 0) {
    part.fetch(0);
    if (threadIdx.x == 0) list.counters->cut = span.cut = {0, 0};
    __syncthreads();
    return;
  }
  sample_pieces(list, {span, sampling, parts == 1 ? min(sampling.load_bits, 2) : 0}, part.order);
  part.fetch(0);
  __syncthreads();
  constexpr unsigned LANES = THREADS / PIECES > 32 ? 32 : THREADS / PIECES > 1 ? THREADS / PIECES : 1;  // rank a piece
  const unsigned pieces = 1u << sampling.piece_bits;
#pragma unroll 1
  for (unsigned number = threadIdx.x / LANES; number < PIECES; number += THREADS / LANES) {
    const Piece piece = pieces_of(list)[min(number, pieces - 1)];
    unsigned better = 0;
#pragma unroll 8
    for (unsigned other = threadIdx.x % LANES; other < pieces; other += LANES) better += is_better(pieces_of(list)[other], piece);
#pragma unroll
    for (unsigned distance = LANES / 2; distance; distance /= 2) better += __shfl_xor_sync(~0u, better, distance);
    const unsigned column = position_of(piece) * VECTOR + VECTOR - 1 - span.skew;
    if (better == sampling.rank - 1 && number < pieces && threadIdx.x % LANES == 0)
      list.counters->cut = span.cut = {key_of(piece), ~column};
  }
  __syncthreads();
}
