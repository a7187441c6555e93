// The best k of a row that the registers of a cluster hold: every block tells all others a cut and some of its maxima, by which all
// agree on splitters that give each a range of entries of its own; it is sent what the others have in that, and ranks it.
#pragma once
#include "gather.cuh"

constexpr unsigned PART = CAPACITY / BLOCKS;                      // of all entries that there is room for
constexpr unsigned RUN = 3 * PART / BLOCKS;                       // entries of a block in another's range, of which a fourth is likely
constexpr int SHARING = WARPS > BLOCKS ? WARPS / BLOCKS : 1;      // warps for a run
constexpr int OF_RUN = (RUN + SHARING * 32 - 1) / (SHARING * 32);  // entries of a thread
constexpr int OF_THREAD = (BLOCKS * RUN + THREADS - 1) / THREADS;  // of a range
constexpr int LIKELY = PART * VECTOR / THREADS;                   // elements of a thread that it looks at
constexpr int AT_A_TIME = LIKELY < 1 ? 1 : LIKELY < 4 ? LIKELY : 4;
constexpr int WARP_BITS = log_of(WARPS), COUNTED_BITS = 7, COUNTED = 1 << COUNTED_BITS;  // intervals of a range

// Shared memory of a block, beside the list, where places are, and its intervals.
struct Owners {
  Entry runs[BLOCKS][RUN];             // of this block's range, from each block
  unsigned quantiles[BLOCKS][BLOCKS];  // of each block's maxima, by their numbers; as words
  alignas(16) unsigned splitters[BLOCKS];  // the least of every block's range; as words
  Key maxima[WARPS][32];               // of every warp's threads, in order
  unsigned counts[BLOCKS];             // of own entries in every block's range
  Key cuts[BLOCKS], tops[BLOCKS];      // of every block
  unsigned long long parts[BLOCKS];    // of every block: 16 bits each of its entries in the range, those that are better, all in
                                       // ranges, and whether one lacked room. The sum tells the sums of all.
  Signal told, counted, sent;          // quantiles, cuts and tops; parts; runs
};
constexpr unsigned TOLD_BYTES = BLOCKS * (BLOCKS + 2) * 4;

// Whether there are so many blocks that it is sooner, and warps and room: what is shared lies where the lists of all blocks would.
constexpr bool OWNED = BLOCKS >= 8 && PART >= 256 && (ELEMENT_BYTES == 2 || ELEMENT_BYTES == 4) && WARPS >= BLOCKS &&
                       INTERVALS >= 4 * COUNTED && sizeof(Owners) <= CAPACITY * 8;

__device__ __forceinline__ Owners& owners_of(const Room& room) { return *reinterpret_cast<Owners*>(room.keys); }

__device__ __forceinline__ void clear_owners(const Room& room) {
  Owners& owners = owners_of(room);
  if (threadIdx.x < BLOCKS) owners.counts[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    begin_signal(&owners.told), begin_signal(&owners.counted), begin_signal(&owners.sent);
    expect(&owners.told, TOLD_BYTES), expect(&owners.counted, sizeof(owners.parts));
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
__device__ __forceinline__ void tell_quantiles(Owners& owners, Divide divide, Guess own) {
  const int number = warp_of();
  if (number >= BLOCKS) return;
  const unsigned rank = unsigned(divide.rank + (float(lane_of()) + 0.5f) * (1.f / WARPS)), cut = word_of(own.cut, 0);
  const unsigned word = lane_of() < WARPS ? owners.maxima[lane_of() % WARPS][min(rank, 31u)] / WARPS : 0, to = lane_of() % BLOCKS;
  unsigned mean = __reduce_add_sync(~0u, word);
  const unsigned top = max(word_of(own.top, 0xFFFF), mean);
  mean += unsigned(float(top - mean) * divide.beyond);
  if (number == BLOCKS - 1 && divide.beyond > 0) mean = cut;  // what is beyond is not known so well that k are sure to reach it
  if (lane_of() >= BLOCKS) return;
  send(&owners.quantiles[block_of()][number], max(mean, cut), &owners.told, to);
  if (number == 0) send(&owners.cuts[block_of()], own.cut, &owners.told, to), send(&owners.tops[block_of()], own.top, &owners.told, to);
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

// Send every block the elements of listed lines that are in its range, and how many. Has a barrier.
__device__ __forceinline__ void send_elements(const Row& row, const Room& room, unsigned listed, Key complete) {
  Owners& owners = owners_of(room);
  const Element* elements = reinterpret_cast<const Element*>(room.bits);
  const unsigned all_elements = listed <= LISTED ? listed * VECTOR : 0;  // else all list again
#pragma unroll 1
  for (unsigned first = threadIdx.x; first - lane_of() < all_elements; first += AT_A_TIME * THREADS) {
    Entry entry[AT_A_TIME];
    unsigned owner[AT_A_TIME], slot[AT_A_TIME];
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++) {
      const unsigned at = first + i * THREADS;
      owner[i] = BLOCKS;
      if (at >= all_elements) continue;
      const unsigned line = room.lines[at / VECTOR], column = row.column(line, at % VECTOR);
      if (!row.whole(line) && column >= row.cols) continue;
      const Key key = equal_key(row.whole(line) ? elements[at] : row.data()[column], row.order);
      const unsigned word = word_of(key, rest_of(column));
      entry[i] = entry_of(key, column);
      unsigned better[4] = {};
#pragma unroll
      for (int j = 0; j < BLOCKS; j++) better[j % 4] += owners.splitters[j] > word;
      owner[i] = better[0] + better[1] + better[2] + better[3];
    }
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++)
      if (owner[i] < BLOCKS) slot[i] = atomicAdd(&owners.counts[owner[i]], 1u);
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++)
      if (owner[i] < BLOCKS && slot[i] < RUN) send(&owners.runs[block_of()][slot[i]], entry[i], &owners.sent, owner[i]);
  }
  __syncthreads();
  const int to = warp_of();
  if (to >= BLOCKS) return;
  const unsigned its = lane_of() < BLOCKS ? owners.counts[lane_of() % BLOCKS] : 0, all = __reduce_add_sync(~0u, its);
  const bool lacks = __any_sync(~0u, its > RUN) || listed > LISTED;
  const unsigned before = __reduce_add_sync(~0u, lane_of() < to ? its : 0), own = __shfl_sync(~0u, its, to);
  if (lane_of() == 0)
    send(&owners.parts[block_of()], (unsigned long long)(unsigned(lacks) << 16 | all) << 32 | before << 16 | own, &owners.counted, to);
}

// What a block was sent.
struct Received {
  unsigned first;  // rank of its best
  unsigned count;
  unsigned all;    // entries in all ranges
  bool complete;   // whether nothing lacked room
  unsigned run;    // entries of the run that this warp has
};

// Waits for all of it.
__device__ __forceinline__ Received received_of(Owners& owners) {
  wait_for(&owners.counted);
  const unsigned long long part = lane_of() < BLOCKS ? owners.parts[lane_of() % BLOCKS] : 0;
  const unsigned its = unsigned(part) & 0xFFFF, own = __reduce_add_sync(~0u, unsigned(part)), all = __reduce_add_sync(~0u, unsigned(part >> 32));
  if (warp_of() == 0) {
    const unsigned sent = __reduce_add_sync(~0u, min(its, RUN));
    if (lane_of() == 0) expect(&owners.sent, sent * sizeof(Entry));
  }
  wait_for(&owners.sent);
  return {own >> 16, own & 0xFFFF, all & 0xFFFF, all >> 16 == 0, __shfl_sync(~0u, its, warp_of() / SHARING)};
}

// The first ranks of intervals whose counts a warp knows, four a lane.
struct Starts {
  unsigned low, middle, high;  // of a lane's first two intervals, the other two, and behind the last; 16 bits each
  bool crowd;                  // whether an interval has so many that ranking among them takes too long

  __device__ __forceinline__ void find(unsigned interval, unsigned& begin, unsigned& end) const {
    const int lane = interval / 4;
    const unsigned two = __shfl_sync(~0u, low, lane), other = __shfl_sync(~0u, middle, lane), last = __shfl_sync(~0u, high, lane);
    const unsigned from = interval & 2 ? other : two, next = interval & 2 ? last : other;
    begin = interval & 1 ? from >> 16 : from & 0xFFFF, end = interval & 1 ? next & 0xFFFF : from >> 16;
  }
};

__device__ __forceinline__ Starts starts_of(const unsigned* counts) {
  const uint4 own = reinterpret_cast<const uint4*>(counts)[lane_of()];
  unsigned all, sum = own.x + own.y + own.z + own.w, start = scan_lanes(sum, all) - sum;
  const unsigned second = start + own.x, third = second + own.y, fourth = third + own.z;
  const bool crowd = __any_sync(~0u, max(max(own.x, own.y), max(own.z, own.w)) > CROWD);
  return {second << 16 | start, fourth << 16 | third, start + sum, crowd};
}

// Call `answers.put(rank, key, column)` for the entries of the range below rank k, each by some thread: they are counted by evenly
// wide intervals of words, or where these crowd, by intervals between them, and ranked among the few of their own.
template <class Answers>
__device__ __forceinline__ void rank_range(const Room& room, const Received& received, Key top, unsigned k, const Answers& answers) {
  const Owners& owners = owners_of(room);
  Entry* places = reinterpret_cast<Entry*>(room.list.keys);
  const unsigned least = owners.splitters[block_of()];
  const unsigned most = max(block_of() ? owners.splitters[block_of() - 1] : word_of(top, 0xFFFF), least);
  const int shift = max(bits_of(most - least) - COUNTED_BITS, 0);
  Entry entries[OF_RUN];  // 0 where there is none
  unsigned interval[OF_RUN], place[OF_RUN];
#pragma unroll
  for (int i = 0; i < OF_RUN; i++) {
    const unsigned first = (i * SHARING + warp_of() % SHARING) * 32, at = first + lane_of();
    entries[i] = 0;
    if (first >= received.run) continue;
    entries[i] = at < received.run ? owners.runs[warp_of() / SHARING % BLOCKS][at] : 0;
    interval[i] = most - min(max(word_of(entries[i]), least), most) >> shift;
    if (entries[i]) place[i] = atomicAdd(&room.list.intervals[interval[i]], 1u);
  }
  __syncthreads();
  const Starts starts = starts_of(room.list.intervals);
  unsigned begin[OF_RUN], end[OF_RUN];
#pragma unroll
  for (int i = 0; i < OF_RUN; i++) {
    if ((i * SHARING + warp_of() % SHARING) * 32 >= received.run) continue;
    starts.find(interval[i], begin[i], end[i]);
    if (entries[i]) places[begin[i] + place[i]] = entries[i];
  }
  __syncthreads();
  if (starts.crowd) {
    Entry* pivots = reinterpret_cast<Entry*>(room.list.intervals + INTERVALS / 2);
    const auto put = [&](unsigned rank, Entry entry) { put_entry(answers, received.first + rank, entry); };
    return rank_crowd<COUNTED, OF_THREAD>(places, received.count, 0, k - received.first, pivots, room.list.intervals, put);
  }
#pragma unroll
  for (int i = 0; i < OF_RUN; i++) {
    if (!entries[i]) continue;
    unsigned rank = received.first + begin[i];
#pragma unroll 1
    for (unsigned first = begin[i]; first < end[i]; first += 4) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (first + j < end[i]) rank += places[first + j] > entries[i];
    }
    if (rank < k) put_entry(answers, rank, entries[i]);
  }
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
  cluster_arrive();  // waited for before anything is told
  find_best(row, holding, smallest);
  const Guess own = own_cut<true>(holding, room.exchange, room.told.ranks, aim, row.order, owners.maxima);
  cluster_wait();
  tell_quantiles(owners, divide, own);
  const unsigned listed = list_lines(holding, room, &room.exchange.lines[0], own.cut);
  wait_for(&owners.told);
  const unsigned block = lane_of() % BLOCKS;
  const Key complete = largest_of_lanes(owners.cuts[block]), top = largest_of_lanes(owners.tops[block]);
  find_splitters(owners, complete);
  send_elements(row, room, listed, complete);
  const Received received = received_of(owners);
  if (received.complete && received.all >= k) {
    if (received.first < k) rank_range(room, received, top, k, answers);
    return;
  }
  const ListedAgain again = list_again(row, holding, k, room, least_of_lanes(owners.cuts[block]), top, answers);
  rank_again(row, room, again, top, share_of<Together>(k), answers);
  Together::wait();
}

// Call `answers.put(rank, key, column)` for the best k of a row, at least one, each by some thread of the cluster; its lines were
// asked for.
template <class Answers>
__device__ __forceinline__ void select_together(const Row& row, Holding<Together>& holding, unsigned k, bool smallest, Room room,
                                                const Answers& answers) {
  if constexpr (OWNED) select_owned(row, holding, k, smallest, room, answers);
  else select_gathered(row, holding, k, smallest, room, answers);
}
