// The kernel of a selector, whose first arguments are those that are used first: what a window is made of lies in few lines of
// the constants' cache. For what a family has:
//
// - `answers_alone(row, in_order)`: whether the first block of a cluster answers alone;
// - `Ahead`: lines that `ask(row)` asks for before the window is known where nothing but an end is told and there are at most
//   `ROWS` rows, so that a window that ends sooner has the first of them, else as soon as it is known; `ALONE`: for blocks that
//   answer alone, not for the others; `HELPED`: a second block of the cluster may put a part of what that block would;
// - `answer_window(row, ahead, k, smallest, in_order, helped, dynamic, counters, exchange, slots)`: calls
//   `slots.put(rank, key, column)` for the best k of the row, at least one, and is called by all of a cluster, or by the block
//   that answers alone, and by the second where that is `helped`.
#pragma once

constexpr int PROCESSORS = 128;  // that GPUs have which have clusters: of so many blocks each runs alone

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, const int* __restrict__ ends, const int* __restrict__ starts,
           const int* __restrict__ selected, const int* __restrict__ ks, const int* __restrict__ offsets, long long row_stride,
           int cols, int k, int height, int width, int flags, int ends_group, int compress_ratio, int starts_group, int smallest,
           int is_signed, int infinity, void* indices, long long indices_stride, Element* values, void* positions,
           const int* __restrict__ page_table, const int* __restrict__ row_to_batch, const int* __restrict__ page_starts,
           int batch_group, int pages, int batches, int page_bits, long long table_stride, long long fill,
           long long values_stride, long long positions_stride) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ __align__(16) Counters counters;
  __shared__ __align__(16) Exchange exchange;
  const int answer = blockIdx.x / BLOCKS;
  const Asked asked = {starts,     ends,       ks,      selected,       offsets,          page_table,      row_to_batch,
                       page_starts, starts_group, ends_group, batch_group, height,         cols,             width,
                       compress_ratio, pages,      batches, page_bits,      flags,            table_stride,    fill,
                       values,     indices,    positions, values_stride, indices_stride,   positions_stride};
  const bool in_order = !(flags & ANY_ORDER);
  const Order order = order_of(smallest, is_signed, infinity);
  int offset = 0;
  Window window;
  Row row;
  Ahead ahead;
  if (flags & ENDS_ALONE) {  // all that is not asked for here costs 0.3 us
    row = row_of(x + answer * row_stride, cols, order);
    if (height <= Ahead::ROWS) {
      // No branch between the end, the lines and what is made of the end: behind one, a scoreboard counts all that is on its way,
      // and to wait for the end would be to wait for the lines.
      const int end = __ldg(ends + answer);
      ahead.ask(row);
      window = window_until(end, answer, cols, k);
      row.cut(window.length);
    } else {
      window = window_until(__ldg(ends + answer), answer, cols, k);
      row.cut(window.length);
      if (Ahead::ROWS && answers_alone(row, in_order) == Ahead::ALONE) ahead.ask(row);
    }
  } else {
    const Numbers numbers = numbers_of(asked, answer);
    offset = numbers.offset;
    window = window_of(asked, numbers, k);
    row = row_of(x + (window.length ? window.row * row_stride + window.begin : 0), window.length, order);
    if (Ahead::ROWS && answers_alone(row, in_order) == Ahead::ALONE) ahead.ask(row);
  }
  const Form form = {asked, answer, window.begin, offset, row.data(), row.order};
  if (window.k < asked.width && block_of() == BLOCKS - 1) form.pad(window.k);
  if (window.k == 0) return;  // all of the cluster
  const bool alone = answers_alone(row, in_order);
  const bool helped = BLOCKS > 1 && Ahead::HELPED && alone && gridDim.x <= PROCESSORS && form.plain() && window.k < row.cols;
  if (BLOCKS > 1 && alone && block_of() > helped) return;
  if (!in_order && window.k == row.cols) {
    const Slots slots = form.slots();
#pragma unroll 1
    for (unsigned at = block_of() * THREADS + threadIdx.x; at < window.k; at += (alone ? 1 : BLOCKS) * THREADS) slots.put(at, 0, at);
  } else {
    answer_window(row, ahead, window.k, smallest, in_order, helped, dynamic, counters, exchange, form.slots());
  }
  form.finish(window.k, alone);
}
