// The best k of every row, by as many blocks as there are for each: all read, and the last to start finishes.
//
// Compile-time: see keys.cuh, list.cuh, order.cuh, lines.cuh, streamed.cuh, messages.cuh, listed.cuh; RESIDENT (blocks of a processor
// that registers must suffice for).
#include "answer.cuh"
#include "finish.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, unsigned long long* messages, unsigned* started, Element* __restrict__ values,
           void* __restrict__ indices, long long row_stride, int rows, int cols, int k, int smallest, int is_signed, int infinity) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ __align__(16) Counters counters;
  __shared__ __align__(16) Exchange exchange;
  const unsigned parts = gridDim.x / rows, number = blockIdx.x / parts, part = blockIdx.x % parts;
  const Row row = row_of(x + number * row_stride, cols, order_of(smallest, is_signed, infinity));
  const Messages its = {messages + 2ull * number * parts * SENDERS, parts, parts * SENDERS};
  // Who is the last to start can wait for all others: they have a processor.
  const unsigned before = threadIdx.x == 0 ? atomicAdd(&started[number], 1u) : 0;
  const List list = list_of(dynamic, &counters);
  const unsigned first = first_line(row, part) + threadIdx.x;
  ask_for_first(row, parts, first);
  ask_for_edges(row);
  ask_for_memory(its, part);
  clear_memory(list, exchange);
  const BestOfThread best = best_of_thread(row, parts, first, smallest);
  if (threadIdx.x == 0) counters.finishes = before == parts - 1;
  send(its, part, best);
  if (!counters.finishes) return;
  if (threadIdx.x == 0) started[number] = 0;
  const Answer answer = {values, indices, (unsigned long long)number * k, row.data(), row.order};
  finish(row, k, its, list, *kept(&exchange), answer);
}
