// The best k of a row that the registers of a cluster hold: every block tells all others a cut and some of its maxima, by which all
// agree on splitters that give each a range of entries of its own; it is sent what the others have in that, and ranks it.
#pragma once
#include "gather.cuh"
#include "spread.cuh"

constexpr unsigned PART = CAPACITY / BLOCKS;                      // of all entries that there is room for
constexpr unsigned RUN = (BLOCKS > 8 ? 3 : 2) * PART / BLOCKS;    // entries of a block in another's range, of which half a PART is likely
constexpr int WARP_BITS = log_of(WARPS);

// Shared memory of a block, beside the list, where places are, and its intervals.
struct Owners {
  Entry runs[BLOCKS][RUN];             // of this block's range, from each block
  unsigned quantiles[BLOCKS][BLOCKS];  // of each block's maxima, by their numbers; as words
  alignas(16) unsigned splitters[BLOCKS];  // the least of every block's range; as words
  Key maxima[WARPS][32];               // of every warp's threads, in order
  Key cuts[BLOCKS], tops[BLOCKS];      // of every block
  alignas(16) Parts parts;
};
constexpr unsigned TOLD_BYTES = BLOCKS * (BLOCKS + 2) * 4;

static_assert(!OWNED || (sizeof(Owners) <= CAPACITY * 8 && INTERVALS >= 4 * COUNTED), "what is shared lies where the lists of all would");

__device__ __forceinline__ Owners& owners_of(const Room& room) { return *reinterpret_cast<Owners*>(room.sent.bits); }

__device__ __forceinline__ void clear_owners(const Room& room) {
  Owners& owners = owners_of(room);
  if (threadIdx.x < BLOCKS) owners.parts.counts[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    begin_signal(&room.told.told), begin_signal(&room.told.counted), begin_signal(&room.told.sent);
    expect(&room.told.told, TOLD_BYTES), expect(&room.told.counted, sizeof(owners.parts.of));
  }
  if (threadIdx.x < COUNTED) room.list.intervals[threadIdx.x] = 0;
}

// What tells entries apart in 32 bits, in the same order: the key, or one of 16 bits and most of the column.
__device__ __forceinline__ unsigned word_of(Key key, unsigned rest) { return ELEMENT_BYTES == 4 ? unsigned(key) : unsigned(key) << 16 | rest; }
__device__ __forceinline__ unsigned rest_of(unsigned column) { return (~column & 0x1FFFFF) >> 5; }
__device__ __forceinline__ unsigned word_of(Entry entry) { return word_of(Key(entry >> 32), rest_of(~unsigned(entry))); }

// Which maxima of a block divide them into ranges, so that all ranges together hold k and some more: of every warp those of a rank,
// or, where a warp has not as many, what is beyond them.
struct Divide {
  float rank;    // from 0; of warps some round up
  float beyond;  // how much of the way from the mean of the best to the best of all
};

// Of the range with a number, from 0.
__device__ __forceinline__ Divide divide_of(const Aim& aim, int number) {
  const float all = 1.08f * aim.wanted + 1.5f * sqrtf(aim.wanted) + 2;
  const float maxima = aim.maxima_of(all * float(number + 1) * (1.f / BLOCKS));
  const float beyond = fmaxf(log2f(__fdividef(WARPS, fmaxf(maxima, 1))), 0.f) * (1.f / (WARP_BITS + 1));  // as tails mostly are
  return {fmaxf(maxima * (33.f / 32) - WARPS, 0.f) * (1.f / WARPS), beyond};  // the best of a warp is one of WARPS, on average
}

// Tell all blocks words that divide the maxima into ranges, a warp each: means over the warps; and the cut.
__device__ __forceinline__ void tell_quantiles(Owners& owners, Signal* told, Divide divide, Guess own) {
  const int number = warp_of();
  if (number >= BLOCKS) return;
  const unsigned rank = unsigned(divide.rank + (float(lane_of()) + 0.5f) * (1.f / WARPS)), cut = word_of(own.cut, 0);
  const unsigned word = lane_of() < WARPS ? owners.maxima[lane_of() % WARPS][min(rank, 31u)] / WARPS : 0, to = lane_of() % BLOCKS;
  unsigned mean = __reduce_add_sync(~0u, word);
  const unsigned top = max(word_of(own.top, 0xFFFF), mean);
  mean += unsigned(float(top - mean) * divide.beyond);
  if (number == BLOCKS - 1 && divide.beyond > 0) mean = cut;  // what is beyond is not known so well that k are sure to reach it
  if (lane_of() >= BLOCKS) return;
  send(&owners.quantiles[block_of()][number], max(mean, cut), told, to);
  if (number == 0) send(&owners.cuts[block_of()], own.cut, told, to), send(&owners.tops[block_of()], own.top, told, to);
}

// The splitters: the mean of what blocks told, but no less than what is complete. Ends with a barrier.
__device__ __forceinline__ void find_splitters(Owners& owners, Key complete) {
  const int number = warp_of();
  if (number < BLOCKS) {
    const unsigned mean = __reduce_add_sync(~0u, owners.quantiles[lane_of() % BLOCKS][number] / 32);
    if (lane_of() == 0) owners.splitters[number] = max(mean, word_of(complete, 0));
  }
  __syncthreads();
}

__device__ __forceinline__ Entry listed_entry(const Row& row, const Room& room, unsigned at) {
  return entry_of(settled_key(room.listed.get(at, row), row.order), room.listed.columns[at]);
}

// Send every block the listed elements that are in its range, and how many. Has a barrier.
__device__ __forceinline__ void send_elements(const Row& row, const Room& room, unsigned listed, bool common) {
  Owners& owners = owners_of(room);
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < (listed <= LISTED ? listed : 0); at += THREADS) {  // else all list again
    const Entry entry = listed_entry(row, room, at);
    const unsigned word = word_of(entry);
    unsigned better[4] = {};
#pragma unroll
    for (int i = 0; i < BLOCKS; i++) better[i % 4] += owners.splitters[i] > word;
    const unsigned owner = better[0] + better[1] + better[2] + better[3];
    if (owner == BLOCKS) continue;
    const unsigned slot = atomicAdd(&owners.parts.counts[owner], 1u);
    if (slot < RUN) send(&owners.runs[block_of()][slot], entry, &room.told.sent, owner);
  }
  __syncthreads();
  tell_parts<RUN>(owners.parts, &room.told.counted, listed <= LISTED, common);
}

// Store listed elements that reach a cut as entries. Returns how many there are. Has two barriers.
__device__ __forceinline__ unsigned store_listed(const Row& row, const Room& room, unsigned listed, Key cut) {
  Entry* found = found_of(room).packed();
  unsigned* count = &room.list.counters->count;
  __syncthreads();  // what is shared for the first try lies there
#pragma unroll 1
  for (unsigned at = threadIdx.x; at - lane_of() < listed; at += THREADS) {
    const Entry entry = at < listed ? listed_entry(row, room, at) : 0;
    const bool reaches = pair_of(entry).key >= cut;
    const unsigned slot = reserve_from(count, reaches);
    if (reaches) found[slot] = entry;
  }
  __syncthreads();
  return *count;
}
static_assert(!OWNED || LISTED <= CAPACITY, "listed elements have room as entries");

// Where the first try lacked room, or had too few: what it listed is spread out over the blocks by other splitters, or if not all was, or
// many are equal, a list that is made again.
template <class Answers>
__device__ __forceinline__ void select_spread(const Row& row, const Holding<Together>& holding, unsigned k, const Room& room, unsigned listed,
                                              const Received& received, Key complete, Key least, Key top, const Answers& answers) {
  const Entry* found = found_of(room).packed();
  bool again = received.says(UNLISTED) || (received.says(COMMON) && received.all > CAPACITY) || received.all < k, spreads = true;
  unsigned all = received.all, own = 0;
  Sending sending = {};
#pragma unroll 1
  for (;;) {
    if (again) {
      const Again<Together> its = find_again(row, holding, k, room, least, top);
      all = its.count, sending = sending_of<Together>(its.its), own = sending.own;
      if (its.tied) count_ties(holding, its.ties, room);
      store_found(row, holding, its.reaching, room, sending);
      if (spreads && all) draw(room, found + sending.odd, own);
      if (its.tied) {
        if (threadIdx.x == 0) expect(&room.told.later[AGAIN], TIES_BYTES<Together>);
        send_ties<Together>(room);
        wait_for(&room.told.later[AGAIN]);
        write_ties(row, holding, its.ties, room, its.tie, k - all, all, answers);
        if (all == 0) return;
      }
    } else {
      own = store_listed(row, room, listed, complete);
      draw(room, found, own);
    }
    if (!spreads) break;
    if (rank_spread_out(room, found + sending.odd, own, all, again ? all : CAPACITY, min(k, all), top, row.cols, answers)) return;
    if (threadIdx.x == 0) room.list.counters->count = 0;
    Together::sync();
    if (again) break;
    again = true, spreads = false;
  }
  Signal* entries = room.told.later + REST;  // all get the list of all
  if (threadIdx.x == 0) expect(entries, (all - own) * sizeof(Entry));
  begin_ranks(room);
  send_found<Together>(room, sending, entries);
  wait_for(entries);
  Together::arrive();
  __syncthreads();
  rank_again(row, room, all, top, share_of<Together>(k), answers);
  Together::wait();
}

// As `select_gathered`.
template <class Answers>
__device__ __forceinline__ void select_owned(const Row& row, Holding<Together>& holding, unsigned k, bool smallest, Room room,
                                             const Answers& answers) {
  Aim aim = aim_of<Together>(k, row);
  Divide divide = divide_of(aim, warp_of());
  asm volatile("" : "+f"(divide.rank), "+f"(divide.beyond), "+r"(aim.in_block), "+r"(aim.in_warp));  // while lines are on their way
  Owners& owners = owners_of(room);
  clear_counts(room);
  clear_owners(room);
  begin_rounds<Together>(room.told);
  Together::arrive();  // waited for before anything is told
  if constexpr (KEEPS) keep_lines(holding, room.kept);
  find_best(row, holding, aim.spread, smallest);
  const Guess own = own_cut<true>(holding, room.exchange, room.told.ranks, aim, row.order, owners.maxima);
  cluster_wait();
  tell_quantiles(owners, &room.told.told, divide, own);
  const bool common = cut_is_common<true>(room.exchange, own.cut);
  const unsigned listed = list_elements(row, holding, room, own.cut, common);
  wait_for(&room.told.told);
  const unsigned block = lane_of() % BLOCKS;
  const Key complete = largest_of_lanes(owners.cuts[block]), top = largest_of_lanes(owners.tops[block]);
  find_splitters(owners, complete);
  send_elements(row, room, listed, common);
  const Received received = received_of<RUN>(owners.parts, &room.told.counted, &room.told.sent);
  if (__builtin_expect(received.complete() && received.all >= k, 1)) {  // next to what is behind it
    const unsigned least = owners.splitters[block_of()], most = max(block_of() ? owners.splitters[block_of() - 1] : word_of(top, 0xFFFF), least);
    const int shift = max(bits_of(most - least) - COUNTED_BITS, 0);
    const auto interval_of = [&](Entry entry) { return most - min(max(word_of(entry), least), most) >> shift; };
    if (received.first < k)
      rank_range<RUN, CROWD>(room.list, owners.runs[0], reinterpret_cast<Entry*>(room.list.keys), received, interval_of, k, answers);
    return;
  }
  const Key least = least_of_lanes(owners.cuts[block]);
  select_spread(row, holding, k, room, listed, received, complete, least, top, answers);
}

// Call `answers.put(rank, key, column)` for the best k of a row, at least one, each by some thread of the cluster; its lines were
// asked for.
template <class Answers>
__device__ __forceinline__ void select_together(const Row& row, Holding<Together>& holding, unsigned k, bool smallest, Room room,
                                                const Answers& answers) {
  if constexpr (OWNED) select_owned(row, holding, k, smallest, room, answers);
  else select_gathered(row, holding, k, smallest, room, answers);
}
