// What a block of a cluster shares: its list, elements that reach its cut, and what blocks tell each other.
#pragma once
#include "entries.cuh"
#include "reaching.cuh"

template <class Blocks> constexpr unsigned SEGMENT = CAPACITY / Blocks::COUNT;  // of elements, for each block

// How many elements reach each cut.
struct alignas(16) Found {
  unsigned of[4];
};
static_assert(CUTS <= 4, "counts are sent together");

// The 32 lines that a warp of a block holds side by side are a chunk; how many of its elements are of a key is counted.
constexpr int CHUNKS = LINES * WARPS;
constexpr int COUNTED_CHUNKS = (CHUNKS + 8) / 8 * 8;  // and the line that begins with the row in part; 16 bytes at a time

constexpr int ROUNDS = 4;  // of counting that are waited for by signals; later ones by barriers
// Signals behind those of rounds: entries and counts of chunks; and where entries are spread out, what is drawn, how many they are, they
// themselves, and those that have no room there.
enum { AGAIN = ROUNDS, DRAWS, COUNTS, RUNS, REST };

// Whether every block owns a range: there are so many that it is sooner than to have the lists of all, and room, and warps. See `_owns`.
constexpr bool OWNED = BLOCKS >= 8 && CAPACITY / BLOCKS >= 256 && WARPS >= BLOCKS;
constexpr int LATER = OWNED ? REST + 1 : AGAIN + 1;

// What blocks tell all others, by their numbers.
struct Told {
  unsigned counts[BLOCKS];
  Key cuts[BLOCKS], tops[BLOCKS];
  unsigned ranks[WARPS];   // of the block's own warps
  Signal told, counted, sent;  // counts, cuts and tops; of owners, cuts and tops, and counts; elements
  Signal later[LATER];     // found, and lows, of each round; see above
  Found own[2][WARPS];     // of the block's own warps; rounds take turns
  Found found[ROUNDS + 2][BLOCKS];  // of a round that is waited for by a signal; others take turns
  Key own_lows[WARPS];     // the least of the threads' maxima
  Key lows[BLOCKS];
};

// Elements as they were read: of 16 bits, the words that they are in, whose upper half has the odd ones.
struct Elements {
  unsigned* bits;
  unsigned* columns;

  __device__ __forceinline__ Element get(unsigned at, const Row& row) const {
    const unsigned word = bits[at];
    return Element(ELEMENT_BYTES == 2 && (columns[at] + row.skew) % 2 ? word >> 16 : word);
  }
};

constexpr unsigned LINE_ROOM = HELD_LINES<Together> ? 0 : LISTED;

// Whether the lines of a thread are in shared memory, too, where elements are found by their numbers.
constexpr bool KEEPS = KEPT > 0;
static_assert(KEPT == 0 || (KEPT == LINES * THREADS && HELD_LINES<Together>), "lines that are read again are not kept");

struct Room {
  List list;        // of entries in their places
  Elements sent;    // [CAPACITY] of all blocks, in a segment for each, where there are several
  Elements listed;  // [LISTED] that reach the block's cut
  unsigned* lines;  // [LINE_ROOM] that have some
  unsigned short* chunks;  // [BLOCKS][COUNTED_CHUNKS] of elements of a key
  uint4* kept;      // [KEPT] lines of all threads
  Told& told;
  Exchange& exchange;
};

// The entries of the answer, in their places; and those that blocks have found, beside them.
__device__ __forceinline__ Entries<true> places_of(const Room& room) { return {room.list.keys, room.list.columns}; }
__device__ __forceinline__ Entries<true> found_of(const Room& room) { return {room.sent.bits, room.sent.columns}; }

// The elements that a block lists, and for how many there is room. A block that has a window alone needs as much as a cluster.
template <class Blocks> __device__ __forceinline__ Elements listed_of(const Room& room) {
  return Blocks::COUNT == 1 && BLOCKS > 1 ? room.sent : room.listed;
}
template <class Blocks> constexpr unsigned LIST_ROOM = Blocks::COUNT == 1 && BLOCKS > 1 ? CAPACITY : LISTED;

__device__ __forceinline__ Room room_of(unsigned char* dynamic, Counters& counters, Exchange& exchange) {
  const List list = list_of(dynamic, &counters);
  unsigned* listed = list.intervals + INTERVALS;
  unsigned *lines = listed + 2 * LISTED, *sent = lines + LINE_ROOM;
  unsigned short* chunks = reinterpret_cast<unsigned short*>(sent + (BLOCKS > 1 ? 2 * CAPACITY : 0));
  uint4* kept_lines = reinterpret_cast<uint4*>(chunks + BLOCKS * COUNTED_CHUNKS);
  Told& told = *reinterpret_cast<Told*>(kept_lines + KEPT);
  return {list, {sent, sent + CAPACITY}, {listed, listed + LISTED}, lines, chunks, kept_lines, told, *kept(&exchange)};
}

// The sum over the lanes up to this one: where all numbers are small, from votes on their bits, none of which waits for another.
__device__ __forceinline__ unsigned scan_small(unsigned own) {
  constexpr int BITS = 3;
  unsigned all;
  if (__any_sync(~0u, own >> BITS)) return scan_lanes(own, all);
  const unsigned upto = 0xFFFFFFFFu >> (31 - lane_of());
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < BITS; i++) sum += __popc(__ballot_sync(~0u, own >> i & 1) & upto) << i;
  return sum;
}

// Reserve `own` of what is counted at `count`. Returns the first.
__device__ __forceinline__ unsigned reserve_from(unsigned* count, unsigned own) {
  unsigned start = 0, upto = scan_small(own);
  if (lane_of() == 31 && upto) start = atomicAdd(count, upto);  // one lane, which the compiler would not know of a sum over all
  return __shfl_sync(~0u, start, 31) + upto - own;
}
