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

// How many entries threads before have, and the whole block. Has a barrier.
__device__ __forceinline__ unsigned scan_block(unsigned own, unsigned& all, Exchange& exchange) {
  unsigned of_lanes;
  const unsigned upto = scan_lanes(own, of_lanes);
  if (lane_of() == 0) exchange.ties[warp_of()] = of_lanes;
  __syncthreads();
  const unsigned of_warp = lane_of() < WARPS ? exchange.ties[lane_of()] : 0;
  all = __reduce_add_sync(~0u, of_warp);
  return upto - own + __reduce_add_sync(~0u, lane_of() < warp_of() ? of_warp : 0);
}

// Keep what is above a key, or what reaches it, if that is `want` entries or more of the list's `count`: whether it is. The key is not 0.
// Has barriers; ends with one if so.
__device__ __forceinline__ bool keep_best(const List& list, unsigned count, unsigned want, unsigned key, Exchange& exchange) {
  const Held held = hold(list, count);
  unsigned own = 0, all;  // above the key; that reach it, 16 bits each
#pragma unroll
  for (int i = 0; i < ITEMS; i++) own += (held.keys[i] > key) | unsigned(held.keys[i] >= key) << 16;
  const unsigned before = scan_block(own, all, exchange);
  if (all >> 16 < want) return false;
  const bool enough_above = (all & 0xFFFF) >= want;
  const unsigned least = key + enough_above;
  unsigned slot = enough_above ? before & 0xFFFF : before >> 16;
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (held.keys[i] >= least) list.keys[slot] = held.keys[i], list.columns[slot] = held.columns[i], slot++;
  if (threadIdx.x == 0) list.counters->count = enough_above ? all & 0xFFFF : all >> 16;
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
    for (unsigned other = 0; other < count; other++) rank += better(keys[other], senders[other], own, sender);
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
    shorten(list, listed, want, min(want + want / 2, CAPACITY / 2), list.counters->cut, 0);
    listed = list.counters->count, least = list.counters->cut.key + 1;  // there are enough of its key
    __syncthreads();
  };
  if (listed > min(CAPACITY / 2, 4 * want)) shorten_list();  // many tell of the same keys, or more than two have room
#pragma unroll 1
  for (unsigned done = 0, next; done < count && least && sorted_keys[done] >= least;) {
    next = 1u << top_bit_of(min(min(TOGETHER, count - done), max((CAPACITY - listed) / each, 1u)));
    list_more(row, messages, sorted + done, next, list, numbers, least);
    __syncthreads();
    const unsigned found = list.counters->count, its = max(found, listed) - listed;
    __syncthreads();
    each = max((its + next - 1) / next, 1u);
    if (found > CAPACITY) {  // as many of these as have room
      if (next == 1) return false;
      if (threadIdx.x == 0) list.counters->count = listed;
      __syncthreads();
      continue;
    }
    listed = found, done += next;
    if (done == count || found < want) continue;
    if (keep_best(list, found, want, sorted_keys[done], exchange)) return true;  // the others have nothing better
    if (found >= want + want / 2) shorten_list();
  }
  return true;
}
