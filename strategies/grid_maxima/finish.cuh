// What is left when all of a row was read: a floor that about as many of what warps told are above as are wanted, what is above it listed
// with what some have besides, and put in order.
#pragma once
#include "few.cuh"
#include "floor.cuh"
#include "slowly.cuh"

constexpr unsigned SOME = 4;  // senders that have more than they told, above a floor that is of use

__device__ __forceinline__ void clear_messages(const Messages& messages) {
  uint4* pairs = reinterpret_cast<uint4*>(messages.words);
#pragma unroll
  for (int i = 0; i < MOST_MESSAGES; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    if (at < messages.count) pairs[at] = make_uint4(0, 0, 0, 0);
  }
}

// Call `answers.put(rank, key, column)` for the best k of the row.
template <class Answers>
__device__ __forceinline__ void finish(const Row& row, unsigned k, const Messages& messages, List list, Exchange& exchange,
                                       const Answers& answers) {
  unsigned* senders = senders_of(list);
  Ranking ranking;
  const Known known = known_of(row, messages, [&] { ranking = ranking_of(k, messages.count); });
  const Numbers numbers = numbers_above(row, list, guess_floor(exchange, known.largest(), ranking), exchange);
  list_above(row, known, messages, list, numbers, senders, exchange);
  __syncthreads();
  unsigned found = list.counters->count;
  const unsigned more = exchange.lines[0];
  const auto few = [&] { return found <= RANKED && !exchange.lines[1]; };
  const auto rank = [&] {
    rank_few(list, numbers, found, k, [&](unsigned rank, unsigned key, unsigned column) {
      answers.put(rank, key, column);
      if (more && rank == k - 1) atomicExch(&list.counters->found, key);
    });
  };
  const bool listed = found >= k && more <= SOME;
  bool again = !listed || !few();
  if (!again) {
    if (!more) clear_messages(messages);
    rank();
    if (!more) return;
  }
  __syncthreads();
  // Who has more, but nothing better than the last of the wanted, need not be read.
  const unsigned floor = again ? numbers.floor : list.counters->found;
  if (listed)
#pragma unroll 1
    for (unsigned i = 0; i < more; i++)
      if (senders[MOST_MORE + i] > floor) list_more(row, messages, senders + i, 1, list, numbers, floor + 1), again = true;
  clear_intervals(list);
  __syncthreads();
  if (again) {
    found = list.counters->count;
    if (listed && few()) {
      rank();
    } else {
      const bool told = found >= k && found <= CAPACITY && more <= MOST_MORE;
      finish_slowly(row, k, messages, list, &exchange, numbers.floor, answers, told ? listed ? Listed::ALL : Listed::TOLD : Listed::NOTHING);
    }
  }
  clear_messages(messages);
}
