// The list of a block: entries (key, column) in shared memory that may be among the best of what the block has read.
//
// Compile-time: THREADS (of a block), CAPACITY (of the list, entries), INTERVALS (of order.cuh).
#pragma once
#include "keys.cuh"

constexpr int WARPS = THREADS / 32;
constexpr int BINS = 256;

// Entries are ranked by key, equal keys by column, the lower the better. Those at or above a cut are chosen:
// larger keys, and the same key with ~column >= place.
struct Cut {
  Key key;
  unsigned place;
};

__device__ __forceinline__ bool chosen(Key key, unsigned column, Cut cut) {
  return key > cut.key || (key == cut.key && ~column >= cut.place);
}

// Shared memory beside the entries. Rounds of counting take turns with three sets of counters: one is counted in, the
// next is cleared, and the one before may still be read by warps that are late; so a round takes one barrier.
struct Counters {
  unsigned bins[3][BINS];
  unsigned differ[3][2];      // bits in which keys differ, by 32 bits
  unsigned totals[2][WARPS];  // chosen entries of every warp
  Key keys[2][WARPS];         // the largest and the smallest of every warp
  Cut cut;                    // that a sample tells
  unsigned crossing[3];       // the interval of a rank, entries before it, entries in it
  unsigned count;             // entries asked to be stored; only CAPACITY are
  unsigned found;             // of all parts of the row
  bool finishes;              // whether this block is the last of its row
};

struct List {
  Key* keys;            // [CAPACITY]
  unsigned* columns;    // [CAPACITY]
  unsigned* intervals;  // [INTERVALS]
  Counters* counters;
  int round;
};

__device__ __forceinline__ int lane_of() { return threadIdx.x % 32; }
__device__ __forceinline__ int warp_of() { return threadIdx.x / 32; }

// Where one of so many pivots is taken from: somewhere in its part of the entries, whose order may have a pattern.
template <unsigned PIVOTS> __device__ __forceinline__ unsigned place_of_pivot(unsigned number, unsigned count) {
  const unsigned within = (number * 40503 & 0xFFFF) * count >> 16;
  return (number * count + within) / PIVOTS;
}

// All counters of the next round are zero after the barrier that follows.
__device__ __forceinline__ void clear_counters(List& list) {
  for (int i = threadIdx.x; i < BINS; i += THREADS) list.counters->bins[list.round][i] = 0;
  if (threadIdx.x < 2) list.counters->differ[list.round][threadIdx.x] = 0;
}

// Begin a round: its counters are list.round's, and those of the next are cleared.
__device__ __forceinline__ int begin_round(List& list) {
  int current = list.round;
  list.round = current == 2 ? 0 : current + 1;
  clear_counters(list);
  return current;
}

// An address of shared memory that the compiler keeps: it would find out anew where shared memory begins at every use.
template <class T> __device__ __forceinline__ T* kept(T* address) {
  asm volatile("" : "+l"(address));
  __builtin_assume(__isShared(address));
  return address;
}

__device__ __forceinline__ List list_of(unsigned char* dynamic, Counters* counters) {
  unsigned char* memory = kept(dynamic);
  unsigned* columns = reinterpret_cast<unsigned*>(memory + CAPACITY * sizeof(Key));
  return {reinterpret_cast<Key*>(memory), columns, columns + CAPACITY, kept(counters), 0};
}

// Ends with a barrier.
__device__ __forceinline__ void clear_list(List& list) {
  clear_counters(list);
  if (threadIdx.x == 0) list.counters->count = 0;
  __syncthreads();
}

// The sum over the lanes up to this one, and over all.
__device__ __forceinline__ unsigned scan_lanes(unsigned value, unsigned& all) {
  unsigned upto = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    unsigned other = __shfl_up_sync(~0u, upto, distance);
    if (lane_of() >= distance) upto += other;
  }
  all = __shfl_sync(~0u, upto, 31);
  return upto;
}

// The first of `count` new slots for this lane, one atomic operation for the warp; slots from CAPACITY on are no slots.
__device__ __forceinline__ unsigned reserve(List& list, unsigned count) {
  unsigned all, upto = scan_lanes(count, all), start = 0;
  if (lane_of() == 0) start = atomicAdd(&list.counters->count, all);
  return __shfl_sync(~0u, start, 0) + upto - count;
}

// Forget all entries; between barriers of the caller's.
__device__ __forceinline__ void empty_list(List& list) {
  __syncthreads();
  if (threadIdx.x == 0) list.counters->count = 0;
  __syncthreads();
}

// Store the entry of every lane that asks and whose entry the cut chooses. Returns whether there was no room for it.
__device__ __forceinline__ bool offer(List& list, bool asks, Key key, unsigned column, Cut cut) {
  bool passes = asks && chosen(key, column, cut);
  unsigned votes = __ballot_sync(~0u, passes), start = 0;
  if (!votes) return false;
  if (lane_of() == 0) start = atomicAdd(&list.counters->count, __popc(votes));
  unsigned slot = __shfl_sync(~0u, start, 0) + __popc(votes & ((1u << lane_of()) - 1));
  bool stored = passes && slot < CAPACITY;
  if (stored) list.keys[slot] = key, list.columns[slot] = column;
  return passes && !stored;
}
