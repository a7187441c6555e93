// The best k of every row, for any k: their keys' bound by counting digits, their places by counting what reaches it,
// and stable sorting by digits. Of the k-th alone the digits are counted.
//
// One kernel, launched once for each step of rows that many blocks share: `state` says which step is next. Where `state`
// is null a block takes all steps of a row, and then those of its next row.
//
// Compile-time: see keys.cuh, row.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "sort.cuh"

// The steps of a row: COUNTS times a digit and a tally where not all columns are chosen, placing, and where sorted, for
// each byte of a key a count and a scattering. Of the k-th alone only the digits.
struct Steps {
  unsigned selecting, sorting;
  bool kth;
  __device__ __forceinline__ unsigned all() const { return kth ? COUNTS : selecting + 1 + sorting; }
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
  unsigned* nearest;                // [BINS], zero: of the last digit the complements of lowest columns
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
  Tally tallies[WARPS];
  union __align__(16) {
    struct {
      unsigned bins[BINS * COPIES];
      unsigned nearest[BINS];
    };
    Sorting sorting;
  };
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

// Count one digit of the row's keys; who comes last takes it into the bound, and writes the k-th with its last digit.
__device__ __forceinline__ void count_step(Memory& memory, const Work& work, bool kth, bool ends) {
  if (memory.bound.all && !kth) return;
  uint4* copies = reinterpret_cast<uint4*>(memory.bins);  // of every bin
  for (unsigned bin = threadIdx.x; bin < BINS; bin += THREADS) copies[bin] = make_uint4(0, 0, 0, 0), memory.nearest[bin] = 0;
  __syncthreads();
  count_share(find_share(work.row, work.part * WARPS + warp_of(), work.parts * WARPS), work.row.order, memory.bound,
              memory.bins, ends ? memory.nearest : nullptr);
  __syncthreads();
  unsigned sums[BINS / THREADS];
#pragma unroll
  for (unsigned i = 0; i < BINS / THREADS; i++) {
    const uint4 four = copies[i * THREADS + threadIdx.x];
    sums[i] = four.x + four.y + four.z + four.w;
  }
  __syncthreads();
#pragma unroll
  for (unsigned i = 0; i < BINS / THREADS; i++) {  // sums are written where copies were read before
    const unsigned bin = i * THREADS + threadIdx.x;
    memory.bins[bin] = sums[i];
    if (work.counts && sums[i]) atomicAdd(&work.counts[bin], sums[i]);
    if (work.counts && ends && sums[i]) atomicMax(&work.nearest[bin], memory.nearest[bin]);
  }
  if (work.counts) {
    if (!comes_last(memory, &work.bound->arrived, work.parts)) return;
    for (unsigned bin = threadIdx.x; bin < BINS; bin += THREADS)
      memory.bins[bin] = __ldcg(work.counts + bin), work.counts[bin] = 0;
  }
  __syncthreads();
  const unsigned digit = take_digit(memory.bound, memory.bins, memory.groups, work.answer.k);
  if (work.bound && threadIdx.x == 0) *work.bound = memory.bound;
  if (ends && threadIdx.x == 0) {
    const unsigned column = ~(work.counts ? __ldcg(work.nearest + digit) : memory.nearest[digit]);
    work.answer.put(work.number, work.row.data[column], column);
  }
  __syncthreads();
  if (ends && work.counts)
    for (unsigned bin = threadIdx.x; bin < BINS; bin += THREADS) work.nearest[bin] = 0;
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

// Whether a block sorts a row in shared memory, all digits at once.
__device__ __forceinline__ bool is_resident(const Work& work) { return !work.tables.parts && work.answer.k <= TILE; }

// What the first pass of sorting reads, where not all columns are chosen.
__device__ __forceinline__ Entries first_entries(Memory& memory, const Work& work) {
  Entries entries = ELEMENT_BYTES % 2 ? work.entries : work.others;
#if ELEMENT_BYTES == 8
  if (is_resident(work)) entries.keys = memory.sorting.exchange;
#else
  if (is_resident(work)) entries.both = reinterpret_cast<uint2*>(memory.sorting.exchange);
#endif
  return entries;
}

// What a pass reads.
__device__ __forceinline__ Source source_of(Memory& memory, const Work& work, unsigned pass) {
  Row none = {nullptr, 0, work.row.order};
  if (pass == 0 && work.answer.k == work.row.cols) return {work.entries, work.row};
  if (pass == 0) return {first_entries(memory, work), none};
  return {(ELEMENT_BYTES - 1 - pass) % 2 ? work.others : work.entries, none};
}

// Place what is chosen: as the answer, in no order, or as entries to be sorted, in the order of columns. Rows of which all is to be
// sorted are sorted as they are.
__device__ __forceinline__ void place_step(Memory& memory, const Work& work, bool sorts) {
  const unsigned k = work.answer.k;
  if (sorts && work.tables.parts) work.tables.clear(0, work.part, work.parts);
  if (sorts && k == work.row.cols) return;
  const Share share = find_share(work.row, work.part * WARPS + warp_of(), work.parts * WARPS);
  Tally before = {0, share.first ? share.first * VECTOR - share.skew : 0};  // where all are chosen
  if (k < work.row.cols) before = tally_before(memory, work);
  const Entries entries = first_entries(memory, work);
  const Answer answer = work.answer;
  const unsigned long long answers = work.number * k;
  place_share(share, work.row.order, memory.bound, before, k, sorts, [&](unsigned place, Element bits, unsigned column) {
    if (sorts) entries.put(place, key_of(bits, work.row.order), column);
    else answer.put(answers + place, bits, column);
  });
  __syncthreads();
}

// Count a digit, for blocks behind this one; of a row that it has to itself, only the first: passes count the next ones.
__device__ __forceinline__ void digits_step(Memory& memory, const Work& work, unsigned pass) {
  if (!work.tables.parts && (pass || is_resident(work))) return;
  Sorting& sorting = memory.sorting;
  count_digits(source_of(memory, work, pass), span_of(work.answer.k, work.part, work.parts), pass, sorting);
  if (work.tables.parts) return write_digits(sorting, work.tables, pass, work.part);
  for (unsigned bin = threadIdx.x; bin < SORT_BINS; bin += THREADS) sorting.next[bin] = sum_digits(sorting, bin);
}

// Where the entries of this block begin in every bin of the row. Each thread has the bins with its number.
__device__ __forceinline__ void find_bases(Sorting& sorting, const Work& work, unsigned pass) {
  for (unsigned bin = threadIdx.x; bin < SORT_BINS; bin += THREADS) {
    unsigned all = 0, before = 0;
    if (work.tables.parts) before = work.tables.before(pass, work.part, work.parts, bin, all);
    else if (!is_resident(work)) all = sorting.next[bin];
    sorting.next[bin] = 0;
    sorting.offsets[bin] = before, sorting.bases[bin] = all;
  }
  sum_bins(sorting.bases, sorting.groups);
  for (unsigned bin = threadIdx.x; bin < SORT_BINS; bin += THREADS) sorting.bases[bin] += sorting.offsets[bin];
}

// A pass of sorting, the last one into the answer; of a row that a tile holds all of them at once. A tile is put in order
// in shared memory, so that what is written next to each other lies next to each other.
__device__ __forceinline__ void sort_step(Memory& memory, const Work& work, unsigned pass) {
  const bool whole = !work.tables.parts, resident = is_resident(work);
  if (resident && pass) return;
  const unsigned end = resident ? ELEMENT_BYTES : pass + 1;
  const Span span = span_of(work.answer.k, work.part, work.parts);
  Sorting& sorting = memory.sorting;
  if (!whole) work.tables.clear(pass + 1, work.part, work.parts);
  find_bases(sorting, work, pass);
#pragma unroll 1
  for (unsigned begin = span.begin; begin < span.end; begin += TILE) {
    const unsigned size = min(TILE, span.end - begin);
    Items items;
    load_tile(source_of(memory, work, pass), {begin, begin + size}, items);
#pragma unroll 1
    for (unsigned digit = pass; digit < end; digit++) order_tile(items, size, digit, sorting);
    const Entries to = (ELEMENT_BYTES - 1 - pass) % 2 ? work.entries : work.others;
#pragma unroll
    for (unsigned i = 0; i < ITEMS; i++) {
      if (slot_of(i) >= size) continue;
      const Key key = items.keys[i];
      const unsigned place = slot_of(i) + (resident ? 0 : sorting.offsets[bin_of(key, pass)]);
      if (end == ELEMENT_BYTES) {
        work.answer.put_key(work.number * work.answer.k + place, key, items.columns[i], work.row);
      } else {
        to.put(place, key, items.columns[i]);
        if (whole) atomicAdd(&sorting.next[bin_of(key, pass + 1)], 1u);
      }
    }
  }
  __syncthreads();
}

__device__ __forceinline__ void take_step(Memory& memory, const Work& work, Steps steps, unsigned step) {
  if (steps.kth || step + 1 < steps.selecting) {
    count_step(memory, work, steps.kth, steps.kth && step + 1 == COUNTS);
  } else if (step < steps.selecting) {
    tally_step(memory, work);
  } else if (step == steps.selecting) {
    place_step(memory, work, steps.sorting > 0);
  } else {
    const unsigned sorting = step - steps.selecting - 1;
    if (sorting % 2 == 0) digits_step(memory, work, sorting / 2);
    else sort_step(memory, work, sorting / 2);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, void* entries, State* state, Bound* bounds, unsigned* counts, unsigned* nearest,
           Tally* tallies, unsigned* tables, unsigned* sums, Element* values, void* indices, long long row_stride, int rows,
           int cols, int k, int smallest, int is_signed, int infinity, int sorted, int kth) {
  __shared__ __align__(16) Memory memory;
#if PROGRAMMATIC
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  const Steps steps = {unsigned(k) < unsigned(cols) ? COUNTS + 1 : 0, sorted ? 2u * ELEMENT_BYTES : 0, kth != 0};
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
          state && kth ? nearest + (unsigned long long)row * BINS : nullptr,
          state ? tallies + (unsigned long long)row * parts * WARPS : nullptr,
          {state ? tables + (unsigned long long)row * parts * SORT_BINS : nullptr,
           state ? sums + 2ull * row * SORT_BINS : nullptr, 2ull * rows * SORT_BINS},
      };
    if (threadIdx.x == 0) memory.bound = state ? bounds[row] : Bound{0, 0, 0, 0, 0};
    __syncthreads();
    const unsigned last = state ? step : steps.all() - 1;
#pragma unroll 1
    for (unsigned next = step; next <= last; next++) take_step(memory, memory.work, steps, next);
  }
  if (!state || !comes_last(memory, &state->arrived, gridDim.x)) return;
  const bool ends = step + 1 == steps.all();
  if (threadIdx.x == 0) state->step = ends ? 0 : step + 1;
  for (unsigned row = threadIdx.x; ends && row < unsigned(rows); row += THREADS) bounds[row] = Bound{0, 0, 0, 0, 0};
}
