// What a selector is asked about every answer, and where it goes: see docs/selector.md.
#pragma once
#include "lines.cuh"

// Flags: ends are lengths, columns are counted from a window's start, indices have 64 bits, answers need no order.
enum { OF_LENGTHS = 1, RELATIVE = 2, WIDE_INDICES = 4, ANY_ORDER = 8 };

// Pointers are null where nothing is given; a group shares a number.
struct Asked {
  const int *starts, *ends, *ks, *selected, *offsets, *page_table, *row_to_batch, *page_starts;
  int starts_group, ends_group, batch_group;
  int height, cols;  // of x
  int width;         // of the answers
  int compress_ratio, pages, batches, page_bits, flags;  // pages of 2^page_bits slots
  long long table_stride, fill;
};

struct Window {
  long long row;
  unsigned begin, length, k;
};

__device__ __forceinline__ long long floor_of(long long number, int by) {
  if (by == 1) return number;
  const long long part = number / by;
  return part - (number % by < 0);
}

__device__ __forceinline__ long long bounded(long long number, long long most) {
  return number < 0 ? 0 : number < most ? number : most;
}

// Which number of a group is an answer's: divisions take as long as a barrier.
__device__ __forceinline__ int group_number(int answer, int size) { return size > 1 ? answer / size : answer; }

__device__ __forceinline__ Window window_of(const Asked& asked, int answer, unsigned most) {
  const long long row = asked.selected ? asked.selected[answer] : answer;
  const long long start = asked.starts ? asked.starts[group_number(answer, asked.starts_group)] : 0;
  long long end = asked.cols, wanted = asked.ks ? asked.ks[answer] : asked.width;
  if (asked.ends) {
    end = asked.ends[group_number(answer, asked.ends_group)];
    if (asked.ends_group > 1) end += answer % asked.ends_group - asked.ends_group + 1;
    if (asked.flags & OF_LENGTHS) end = start + floor_of(end, asked.compress_ratio);
  }
  const long long begin = bounded(start, asked.cols);
  end = row >= 0 && row < asked.height ? bounded(end, asked.cols) : 0;
  const long long length = end > begin ? end - begin : 0;
  return {row, unsigned(begin), unsigned(length), unsigned(bounded(bounded(wanted, most), length))};
}

// Where the columns of one answer go, each to the place that its index has, and what is added to them.
struct Slots {
  char* places;
  int place_bits;  // the logarithm of the bytes of a place
  unsigned added;

  __device__ __forceinline__ void put(unsigned rank, Key, unsigned column) const {
    *reinterpret_cast<unsigned*>(places + ((unsigned long long)rank << place_bits)) = column + added;
  }
};

// The form of one answer: indices, and positions and values where they are asked for.
struct Form {
  const Asked& asked;
  int answer;
  unsigned begin;  // of the window
  const Element* data;
  Order order;
  Element* values;
  void *indices, *positions;

  // Whether nothing is asked for but a number of 32 bits that a column tells with an addition.
  __device__ __forceinline__ bool plain() const {
    return !values && !positions && !asked.page_table && !(asked.flags & WIDE_INDICES);
  }

  __device__ __forceinline__ long long added() const {
    return (asked.flags & RELATIVE ? 0ll : begin) + (asked.offsets ? asked.offsets[answer] : 0);
  }

  __device__ __forceinline__ Slots slots() const {
    return {static_cast<char*>(indices), asked.flags & WIDE_INDICES ? 3 : 2, plain() ? unsigned(added()) : 0u};
  }

  __device__ __forceinline__ void tell(void* to, unsigned rank, long long index) const {
    if (asked.flags & WIDE_INDICES) static_cast<long long*>(to)[rank] = index;
    else static_cast<int*>(to)[rank] = int(index);
  }

  __device__ __forceinline__ long long slot_of(unsigned position) const {
    const long long batch = asked.row_to_batch ? asked.row_to_batch[answer] : group_number(answer, asked.batch_group);
    const long long page = (position >> asked.page_bits) + (asked.page_starts ? asked.page_starts[answer] : 0);
    if (batch < 0 || batch >= asked.batches || page < 0 || page >= asked.pages) return asked.fill;
    const long long first = asked.page_table[batch * asked.table_stride + page];
    return (first << asked.page_bits) + (position & ((1u << asked.page_bits) - 1));
  }

  // Make of the columns of ranks 0 to `count` what is asked for; by all threads of the cluster.
  __device__ __forceinline__ void finish(unsigned count) const {
    if (plain()) return;
    cluster_sync();
    const Slots columns = slots();
#pragma unroll 1
    for (unsigned rank = block_of() * THREADS + threadIdx.x; rank < count; rank += BLOCKS * THREADS) {
      const unsigned column = *reinterpret_cast<const unsigned*>(columns.places + ((unsigned long long)rank << columns.place_bits));
      tell(indices, rank, asked.page_table ? slot_of(column) : column + added());
      if (positions) tell(positions, rank, column);
      if (values) values[rank] = data[column];
    }
  }

  // Behind the last, with the worst value; each by some thread of the block.
  __device__ __forceinline__ void pad(unsigned from) const {
    const Element worst = FLOAT ? Element(infinity_of(order) | (order.turn ? 0 : SIGN)) : element_of(0, order);
#pragma unroll 1
    for (unsigned rank = from + threadIdx.x; rank < asked.width; rank += THREADS) {
      tell(indices, rank, asked.fill);
      if (positions) tell(positions, rank, asked.fill);
      if (values) values[rank] = worst;
    }
  }
};
