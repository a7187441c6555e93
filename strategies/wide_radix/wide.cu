// The best k of every row, for any k: their keys' bound by counting digits, their places by counting what reaches it,
// and stable sorting by digits.
//
// One kernel, launched once for each step of rows that many blocks share: `state` says which step is next. Where `state`
// is null a block takes all steps of a row, and then those of its next row.
//
// Compile-time: see keys.cuh, row.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "sort.cuh"

// The steps of a row: COUNTS times a digit and a tally where not all columns are chosen, placing, and where sorted, for
// each byte of a key a count and a scattering.
struct Steps {
  unsigned selecting, sorting;
  __device__ __forceinline__ unsigned all() const { return selecting + 1 + sorting; }
};

// Of launches that share rows; all zero between programs.
struct State {
  unsigned step, arrived;
  unsigned unused[2];
};

struct Answer {
  Element* values;
  void* indices;
  unsigned k;

  __device__ __forceinline__ void put(unsigned long long place, Element value, unsigned column) const {
    if (values) {
      values[place] = value;
      static_cast<long long*>(indices)[place] = column;
    } else {
      static_cast<int*>(indices)[place] = int(column);
    }
  }

  // The element of a key. NaNs have one key and many bits: they are read anew.
  __device__ __forceinline__ void put_key(unsigned long long place, Key key, unsigned column, const Row& row) const {
    key ^= row.order.turn;
    Element value = Element(FLOAT ? key ^ (key & SIGN ? SIGN : ONES) : key);
    if (FLOAT && values && key == ONES) value = row.data[column];
    put(place, value, column);
  }
};

// A row, and this block's part in it.
struct Work {
  Row row;
  Answer answer;
  unsigned long long number;        // of the row
  unsigned part, parts;
  Entries entries, others;          // by turns the source of a pass of sorting
  Bound* bound;                     // of the row; this and the next two are null where the block has it to itself
  unsigned* counts;                 // [BINS], zero
  Tally* tallies;                   // [parts * WARPS]
  Tables tables;
};

// Shared memory.
struct Memory {
  Work work;
  Bound bound;
  Tally sum;
  unsigned last;
  unsigned groups[32];
  unsigned totals[SORT_BINS];
  Tally tallies[WARPS];
  unsigned bins[BINS * COPIES > WARPS * SORT_BINS ? BINS * COPIES : WARPS * SORT_BINS];
};

// Whether all `blocks` but this one have come, for all threads alike.
__device__ __forceinline__ bool comes_last(Memory& memory, unsigned* arrived, unsigned blocks) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    memory.last = atomicAdd(arrived, 1u) == blocks - 1;
    if (memory.last) *arrived = 0;
  }
  __syncthreads();
  __threadfence();
  return memory.last;
}

// Count one digit of the row's keys; who comes last takes it into the bound.
__device__ __forceinline__ void count_step(Memory& memory, const Work& work) {
  if (memory.bound.all) return;
  for (unsigned i = threadIdx.x; i < BINS * COPIES; i += THREADS) memory.bins[i] = 0;
  __syncthreads();
  count_share(find_share(work.row, work.part * WARPS + warp_of(), work.parts * WARPS), work.row.order, memory.bound,
              memory.bins);
  __syncthreads();
  for (unsigned base = 0; base < BINS; base += THREADS) {  // sums are written where copies were read before
    const unsigned bin = base + threadIdx.x;
    unsigned sum = 0;
    if (bin < BINS)
      for (unsigned copy = 0; copy < COPIES; copy++) sum += memory.bins[bin * COPIES + copy];
    __syncthreads();
    if (bin < BINS) memory.bins[bin] = sum;
    if (bin < BINS && work.counts && sum) atomicAdd(&work.counts[bin], sum);
  }
  if (work.counts) {
    if (!comes_last(memory, &work.bound->arrived, work.parts)) return;
    for (unsigned bin = threadIdx.x; bin < BINS; bin += THREADS)
      memory.bins[bin] = __ldcg(work.counts + bin), work.counts[bin] = 0;
  }
  __syncthreads();
  take_digit(memory.bound, memory.bins, memory.groups, work.answer.k);
  if (work.bound && threadIdx.x == 0) *work.bound = memory.bound;
}

__device__ __forceinline__ void tally_step(Memory& memory, const Work& work) {
  const unsigned number = work.part * WARPS + warp_of();
  Tally found = tally_share(find_share(work.row, number, work.parts * WARPS), work.row.order, memory.bound);
  if (lane_of() == 0) (work.tallies ? work.tallies[number] : memory.tallies[warp_of()]) = found;
  __syncthreads();
}

// What is chosen before this warp's share of the row. All threads of the block come.
__device__ __forceinline__ Tally tally_before(Memory& memory, const Work& work) {
  const Tally* own = work.tallies ? work.tallies + work.part * WARPS : memory.tallies;
  if (threadIdx.x == 0) memory.sum = {0, 0};
  __syncthreads();
  Tally sum = {0, 0};
  for (unsigned i = threadIdx.x; i < work.part * WARPS; i += THREADS)
    sum.above += work.tallies[i].above, sum.equal += work.tallies[i].equal;
  if (work.part) {
    sum = {__reduce_add_sync(~0u, sum.above), __reduce_add_sync(~0u, sum.equal)};
    if (lane_of() == 0) atomicAdd(&memory.sum.above, sum.above), atomicAdd(&memory.sum.equal, sum.equal);
  }
  __syncthreads();
  sum = lane_of() < warp_of() ? own[lane_of()] : Tally{0, 0};
  return {memory.sum.above + __reduce_add_sync(~0u, sum.above), memory.sum.equal + __reduce_add_sync(~0u, sum.equal)};
}

// Place what is chosen, in the order of columns: as the answer, or as entries to be sorted.
__device__ __forceinline__ void place_step(Memory& memory, const Work& work, bool sorts) {
  const unsigned k = work.answer.k;
  const Share share = find_share(work.row, work.part * WARPS + warp_of(), work.parts * WARPS);
  Tally before = {0, share.first ? share.first * VECTOR - share.skew : 0};  // where all are chosen
  if (k < work.row.cols) before = tally_before(memory, work);
  if (sorts && work.tables.parts) work.tables.clear(0, work.part, work.parts);
  const Entries entries = ELEMENT_BYTES % 2 ? work.entries : work.others;  // the source of the first pass
  place_share(share, work.row.order, memory.bound, before, k, [&](unsigned place, Element bits, unsigned column) {
    if (sorts) entries.put(place, key_of(bits, work.row.order), column);
    else work.answer.put(work.number * k + place, bits, column);
  });
  __syncthreads();
}

__device__ __forceinline__ void digits_step(Memory& memory, const Work& work, unsigned pass) {
  const bool even = (ELEMENT_BYTES - 1 - pass) % 2 == 0;
  count_digits(even ? work.entries : work.others, span_of(work.answer.k, work.part, work.parts), pass, memory.bins);
  if (work.tables.parts) write_digits(memory.bins, work.tables, pass, work.part);
}

// One pass of sorting, the last one into the answer.
__device__ __forceinline__ void scatter_step(Memory& memory, const Work& work, unsigned pass) {
  const bool even = (ELEMENT_BYTES - 1 - pass) % 2 == 0, last = pass == ELEMENT_BYTES - 1;
  const Entries from = even ? work.entries : work.others, to = even ? work.others : work.entries;
  const Span span = span_of(work.answer.k, work.part, work.parts);
  if (work.tables.parts) {
    count_digits(from, span, pass, memory.bins);
    work.tables.clear(pass + 1, work.part, work.parts);
  }
  place_digits(memory.bins, work.tables, pass, work.part, work.parts, memory.totals);
  scatter(from, span, pass, memory.bins, [&](unsigned place, Key key, unsigned column) {
    if (last) work.answer.put_key(work.number * work.answer.k + place, key, column, work.row);
    else to.put(place, key, column);
  });
  __syncthreads();
}

__device__ __forceinline__ void take_step(Memory& memory, const Work& work, Steps steps, unsigned step) {
  if (step + 1 < steps.selecting) {
    count_step(memory, work);
  } else if (step < steps.selecting) {
    tally_step(memory, work);
  } else if (step == steps.selecting) {
    place_step(memory, work, steps.sorting > 0);
  } else {
    const unsigned sorting = step - steps.selecting - 1;
    if (sorting % 2 == 0) digits_step(memory, work, sorting / 2);
    else scatter_step(memory, work, sorting / 2);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, void* entries, State* state, Bound* bounds, unsigned* counts, Tally* tallies,
           unsigned* tables, unsigned* sums, Element* values, void* indices, long long row_stride, int rows, int cols,
           int k, int smallest, int is_signed, int infinity, int sorted) {
  __shared__ __align__(16) Memory memory;
  const Steps steps = {unsigned(k) < unsigned(cols) ? COUNTS + 1 : 0, sorted ? 2u * ELEMENT_BYTES : 0};
  const unsigned parts = state ? gridDim.x / rows : 1, slots = state ? rows : gridDim.x;
  const unsigned long long room = (unsigned long long)slots * k;
  unsigned step = state ? state->step : 0;
  for (unsigned row = blockIdx.x / parts; row < unsigned(rows); row += slots) {
    const unsigned slot = state ? row : blockIdx.x;
    const unsigned long long mine = (unsigned long long)slot * k, answers = (unsigned long long)row * k;
    void* columns = static_cast<Key*>(entries) + (values ? room : 2 * room);  // of wide keys
    __syncthreads();
    if (threadIdx.x == 0)
      memory.work = {
          {x + row * row_stride, unsigned(cols), order_of(smallest, is_signed, infinity)},
          {values, indices, unsigned(k)},
          row,
          blockIdx.x % parts,
          parts,
          entries_at(entries, columns, mine, mine),
          values ? entries_at(ELEMENT_BYTES == 8 ? values : indices, indices, answers, 2 * answers)
                 : entries_at(entries, columns, room + mine, room + mine),
          state ? bounds + row : nullptr,
          state ? counts + (unsigned long long)row * BINS : nullptr,
          state ? tallies + (unsigned long long)row * parts * WARPS : nullptr,
          {state ? tables + (unsigned long long)row * parts * SORT_BINS : nullptr,
           state ? sums + 2ull * row * SORT_BINS : nullptr, 2ull * rows * SORT_BINS},
      };
    if (threadIdx.x == 0) memory.bound = state ? bounds[row] : Bound{0, 0, 0, 0, 0};
    __syncthreads();
    if (state) {
      take_step(memory, memory.work, steps, step);
    } else {
      for (step = 0; step < steps.all(); step++) take_step(memory, memory.work, steps, step);
    }
  }
  if (!state || !comes_last(memory, &state->arrived, gridDim.x)) return;
  const bool ends = step + 1 == steps.all();
  if (threadIdx.x == 0) state->step = ends ? 0 : step + 1;
  for (unsigned row = threadIdx.x; ends && row < unsigned(rows); row += THREADS) bounds[row] = Bound{0, 0, 0, 0, 0};
}
