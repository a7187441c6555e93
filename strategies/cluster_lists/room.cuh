// What a block of a cluster shares: its list, lines that reach its cut, and what blocks tell each other.
#pragma once
#include "entries.cuh"
#include "reaching.cuh"

template <class Blocks> constexpr unsigned SEGMENT = CAPACITY / Blocks::COUNT;  // of entries, for each block
// Lines that a thread takes elements from.
template <class Blocks> constexpr int AT_ONCE = LISTED < 2 * THREADS || SEGMENT<Blocks> < 2 * THREADS ? 1 : 2;

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
constexpr bool OWNED = BLOCKS >= 8 && CAPACITY / BLOCKS >= 256 && WARPS >= BLOCKS && (ELEMENT_BYTES == 2 || ELEMENT_BYTES == 4);
constexpr int LATER = OWNED ? REST + 1 : AGAIN + 1;

// What blocks tell all others, by their numbers.
struct Told {
  unsigned counts[BLOCKS];
  Key cuts[BLOCKS], tops[BLOCKS];
  unsigned ranks[WARPS];   // of the block's own warps
  Signal told, sent;       // counts, cuts and tops; entries
  Signal later[LATER];     // found, and lows, of each round; see above
  Found own[2][WARPS];     // of the block's own warps; rounds take turns
  Found found[ROUNDS + 2][BLOCKS];  // of a round that is waited for by a signal; others take turns
  Key own_lows[WARPS];     // the least of the threads' maxima
  Key lows[BLOCKS];
};

struct Room {
  List list;          // of entries in their places
  Key* keys;          // [CAPACITY] of the entries of all blocks, in a segment for each; 0 where there is none
  unsigned* columns;  // [CAPACITY]
  uint4* bits;        // [LISTED] lines that reach the block's cut
  unsigned* lines;    // [LISTED] which
  unsigned short* chunks;  // [BLOCKS][COUNTED_CHUNKS] of elements of a key
  Told& told;
  Exchange& exchange;
};

// The entries of the answer, in their places; and those that blocks have found, beside them.
__device__ __forceinline__ Entries<PACKED> places_of(const Room& room) { return {room.list.keys, room.list.columns}; }
__device__ __forceinline__ Entries<PACKED> found_of(const Room& room) { return {room.keys, room.columns}; }

__device__ __forceinline__ Room room_of(unsigned char* dynamic, Counters& counters, Exchange& exchange) {
  const List list = list_of(dynamic, &counters);
  uint4* bits = reinterpret_cast<uint4*>(list.intervals + INTERVALS);
  Key* keys = reinterpret_cast<Key*>(bits + LISTED);
  unsigned* columns = reinterpret_cast<unsigned*>(keys + CAPACITY);
  unsigned* lines = columns + CAPACITY;
  unsigned short* chunks = reinterpret_cast<unsigned short*>(lines + LISTED);
  return {list, keys, columns, bits, lines, chunks, *reinterpret_cast<Told*>(chunks + BLOCKS * COUNTED_CHUNKS), *kept(&exchange)};
}

// Reserve `own` of what is counted at `count`. Returns the first.
__device__ __forceinline__ unsigned reserve_from(unsigned* count, unsigned own) {
  unsigned all, start = 0, upto = scan_lanes(own, all);
  if (lane_of() == 0 && all) start = atomicAdd(count, all);
  return __shfl_sync(~0u, start, 0) + upto - own;
}
