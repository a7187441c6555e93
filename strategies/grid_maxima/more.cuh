// What warps have above a floor beyond what they told: their lines are read again.
#pragma once
#include "listed.cuh"
#include "order.cuh"
#include "shorter.cuh"

constexpr int AGAIN = 4;  // lines of a thread that are read again at once

// List the elements above the floor, and no lower than `least`, of some senders that have more of them than they told; as many threads
// for each as there are for all.
__device__ __forceinline__ void list_more(const Row& row, const Messages& messages, const unsigned* senders, unsigned count, List& list,
                                          const Numbers& numbers, unsigned least) {
  const unsigned own = THREADS / count, rounds = own / LANES, stride = messages.parts * THREADS;
  const unsigned sender = senders[threadIdx.x / own], first = messages.line(row, sender) + threadIdx.x % LANES;
  const Message told = messages.message(sender);
#pragma unroll 1
  for (unsigned begin = first + threadIdx.x % own / LANES * stride; begin < row.end; begin += AGAIN * rounds * stride) {
    uint4 bits[AGAIN];
#pragma unroll
    for (int i = 0; i < AGAIN; i++) bits[i] = row.line_or_last(begin + i * rounds * stride);
#pragma unroll
    for (int i = 0; i < AGAIN; i++) {
      const unsigned line = begin + i * rounds * stride;
      unsigned chosen = elements_reaching(bits[i], line < row.end ? EVERY : 0, least, row.order);
#pragma unroll 1
      for (; chosen; chosen &= chosen - 1) {
        const unsigned e = __ffs(chosen) - 1, place = messages.place(line - first, e);
        if (place != Message::place(told.first) && place != Message::place(told.second))
          numbers.add(list, equal_key(element(bits[i], e), row.order), row.column(line, e));
      }
    }
  }
}

// Keep what is above a key, if that is `want` entries or more of the list's `count`: whether it is. Has barriers; ends with one if so.
__device__ __forceinline__ bool keep_above(const List& list, unsigned count, unsigned want, unsigned key, Exchange& exchange) {
  const Held held = hold(list, count);
  unsigned own = 0, all;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) own += held.keys[i] > key;
  unsigned slot = scan_lanes(own, all) - own;
  if (lane_of() == 0) exchange.ties[warp_of()] = all;
  __syncthreads();
  const unsigned of_warp = lane_of() < WARPS ? exchange.ties[lane_of()] : 0, total = __reduce_add_sync(~0u, of_warp);
  if (total < want) return false;
  slot += __reduce_add_sync(~0u, lane_of() < warp_of() ? of_warp : 0);
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (held.keys[i] > key) list.keys[slot] = held.keys[i], list.columns[slot] = held.columns[i], slot++;
  if (threadIdx.x == 0) list.counters->count = total;
  __syncthreads();
  return true;
}

// Senders by their keys, the largest first. Between barriers.
__device__ __forceinline__ void sort_senders(const unsigned* keys, const unsigned* senders, unsigned count, unsigned* sorted_keys,
                                             unsigned* sorted) {
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < count; i += THREADS) {
    const unsigned own = keys[i], sender = senders[i];
    unsigned rank = 0;
#pragma unroll 4
    for (unsigned other = 0; other < count; other++) rank += keys[other] > own || (keys[other] == own && senders[other] < sender);
    sorted[rank] = sender, sorted_keys[rank] = own;
  }
}

// The same of all senders, those with the best elements first, as long as these may be among the best `want`: the list is made shorter
// in between. Returns whether it had room. Begins and ends with a barrier.
__device__ __forceinline__ bool list_all_more(const Row& row, const Messages& messages, unsigned* senders, unsigned count, List& list,
                                              const Numbers& numbers, unsigned want, Exchange& exchange) {
  constexpr unsigned TOGETHER = THREADS / LANES;
  unsigned *keys = senders + MOST_MORE, *sorted = keys + MOST_MORE, *sorted_keys = sorted + MOST_MORE;
  __syncthreads();
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < count; i += THREADS) keys[i] = Message::key(messages.first(senders[i]));
  __syncthreads();
  sort_senders(keys, senders, count, sorted_keys, sorted);
  unsigned listed = list.counters->count, least = numbers.floor + 1, each = CAPACITY;  // at most; that a sender may have, as those before
  if (threadIdx.x == 0) list.counters->cut = {least, 0};
  __syncthreads();
  const auto shorten_list = [&] {
    const unsigned most = min(want + want / 4, CAPACITY / 2);
    shorten(list, listed, want, most, list.counters->cut, 0);
    listed = most, least = list.counters->cut.key + 1;  // there are enough of its key
  };
  if (listed > min(CAPACITY / 2, 4 * want)) shorten_list();  // many tell of the same keys, or more than two have room
#pragma unroll 1
  for (unsigned done = 0, next; done < count && least && sorted_keys[done] >= least; done += next) {
    next = 1u << top_bit_of(min(min(TOGETHER, count - done), max((CAPACITY - listed) / each, 1u)));
    list_more(row, messages, sorted + done, next, list, numbers, least);
    __syncthreads();
    const unsigned found = list.counters->count;
    __syncthreads();
    if (found > CAPACITY) return false;
    each = max((max(found, listed) - listed) / next, 1u), listed = found;
    if (done + next == count || found < want) continue;
    if (keep_above(list, found, want, sorted_keys[done + next], exchange)) return true;  // the others have nothing better
    if (found >= want + want / 2) shorten_list();
  }
  return true;
}
