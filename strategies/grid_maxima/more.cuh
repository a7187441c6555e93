// What warps have above a floor beyond what they told: their lines are read again.
#pragma once
#include "listed.cuh"
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

// The same of all senders, those with the best elements first, as long as these may be among the best `want`: the list is made shorter
// in between. Returns whether it had room. Begins and ends with a barrier.
__device__ __forceinline__ bool list_all_more(const Row& row, const Messages& messages, unsigned* senders, unsigned count, List& list,
                                              const Numbers& numbers, unsigned want) {
  constexpr unsigned TOGETHER = THREADS / LANES;
  unsigned *keys = senders + MOST_MORE, *sorted = keys + MOST_MORE, *sorted_keys = sorted + MOST_MORE;
  __syncthreads();
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < count; i += THREADS) keys[i] = Message::key(messages.first(senders[i]));
  __syncthreads();
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < count; i += THREADS) {  // the best first
    const unsigned own = keys[i], sender = senders[i];
    unsigned rank = 0;
#pragma unroll 4
    for (unsigned other = 0; other < count; other++) rank += keys[other] > own || (keys[other] == own && senders[other] < sender);
    sorted[rank] = sender, sorted_keys[rank] = own;
  }
  __syncthreads();
  unsigned least = numbers.floor + 1;
  if (threadIdx.x == 0) list.counters->cut = {least, 0};
#pragma unroll 1
  for (unsigned done = 0, next; done < count && sorted_keys[done] >= least; done += next) {
    next = done == 0 ? 1 : min(TOGETHER, 1u << top_bit_of(count - done));
    list_more(row, messages, sorted + done, next, list, numbers, least);
    __syncthreads();
    const unsigned found = list.counters->count;
    __syncthreads();
    if (found > CAPACITY) return false;
    if (done + next == count || found < want + want / 2) continue;
    shorten(list, found, want, CAPACITY / 2, list.counters->cut, 0);
    least = list.counters->cut.key + 1;  // there are enough of its key
    if (least == 0) break;
  }
  return true;
}
