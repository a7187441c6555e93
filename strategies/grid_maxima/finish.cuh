// What is left when all of a row was read: a floor is guessed that about as many of what warps told are above as are wanted, that is listed
// with what some have besides, and put in order.
#pragma once
#include "few.cuh"
#include "slowly.cuh"

constexpr unsigned SOME = 4;  // senders that have more than they told, above a floor that is of use

// Call `answers.put(rank, key, column)` for the best k of the row.
template <class Answers>
__device__ __forceinline__ void finish(const Row& row, unsigned k, const Messages& messages, List list, Exchange& exchange,
                                       const Answers& answers) {
  const unsigned count = messages.count;
  unsigned* senders = senders_of(list);
  const Edge edge = edge_of_thread(row);
  const unsigned asked = min(count, unsigned(THREADS));
  const Ranks ranks = ranks_of(k, count, __fdividef(float(count), float(asked)), asked);
  Message its[MOST_MESSAGES];
#pragma unroll
  for (int i = 0; i < MOST_MESSAGES; i++) its[i] = messages.read_or(i * THREADS + threadIdx.x);
  unsigned maximum = edge.key;
#pragma unroll
  for (int i = 0; i < MOST_MESSAGES; i++) {
    while (!its[i].there()) {
      __nanosleep(20);
      its[i] = messages.message(i * THREADS + threadIdx.x);
    }
    maximum = max(maximum, Message::key(its[i].first));
  }
  const Guess guess = guess_from(exchange, maximum, ranks);
  const Numbers numbers = {numbers_of(list), max(guess.cut, 1u) - 1, &exchange.lines[1]};
  list_above(its, edge, list, numbers, senders, exchange);
  __syncthreads();
  unsigned found = list.counters->count;
  const unsigned more = exchange.lines[0];
  if (more && more <= SOME && found <= CAPACITY) {
    __syncthreads();
#pragma unroll 1
    for (unsigned i = 0; i < more; i++) list_more(row, messages, senders + i, 1, list, numbers, numbers.floor + 1);
    __syncthreads();
    found = list.counters->count;
  }
  if (found >= k && found <= RANKED && more <= SOME && !exchange.lines[1])
    rank_few(list, numbers, found, k,
             [&](unsigned rank, unsigned key, unsigned told) { answers.put(rank, key, column_of(row, messages, told)); });
  else finish_slowly(row, k, messages, list, &exchange, edge, guess, answers, found >= k && found <= CAPACITY && more <= SOME, found);
#pragma unroll
  for (int i = 0; i < MOST_MESSAGES; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    if (at < count) messages.words[at] = messages.words[count + at] = 0;
  }
}
