// The kernel of a selector, for `answer_window(row, k, smallest, in_order, dynamic, counters, exchange, slots)` of a family,
// which calls `slots.put(rank, key, column)` for the best k of the row, at least one, and is called by all of a cluster.
#pragma once

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, Element* values, void* indices, void* positions, const int* __restrict__ starts,
           const int* __restrict__ ends, const int* __restrict__ ks, const int* __restrict__ selected,
           const int* __restrict__ offsets, const int* __restrict__ page_table, const int* __restrict__ row_to_batch,
           const int* __restrict__ page_starts, int starts_group, int ends_group, int batch_group, int height, int width,
           int compress_ratio, int pages, int batches, int page_bits, int flags, long long table_stride, long long fill,
           long long values_stride, long long indices_stride, long long positions_stride, long long row_stride, int cols,
           int k, int smallest, int is_signed, int infinity) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ __align__(16) Counters counters;
  __shared__ __align__(16) Exchange exchange;
  const int answer = blockIdx.x / BLOCKS;
  const Asked asked = {starts,     ends,      ks,     selected, offsets,        page_table, row_to_batch, page_starts,
                       starts_group, ends_group, batch_group, height, cols,  width, compress_ratio, pages, batches,
                       page_bits,  flags,     table_stride, fill};
  const Window window = window_of(asked, answer, k);
  const Row row = row_of(x + (window.length ? window.row * row_stride + window.begin : 0), window.length,
                         order_of(smallest, is_signed, infinity));
  const long long bytes = flags & WIDE_INDICES ? 8 : 4;
  const Form form = {asked,
                     answer,
                     window.begin,
                     row.data(),
                     row.order,
                     values ? values + answer * values_stride : nullptr,
                     static_cast<char*>(indices) + answer * indices_stride * bytes,
                     positions ? static_cast<char*>(positions) + answer * positions_stride * bytes : nullptr};
  if (block_of() == BLOCKS - 1) form.pad(window.k);
  if (window.k == 0) return;  // all of the cluster
  answer_window(row, window.k, smallest, !(flags & ANY_ORDER), dynamic, counters, exchange, form.slots());
  form.finish(window.k);
}
