// What a selector is asked about every answer, and where it goes: see docs/selector.md.
#pragma once
#include "lines.cuh"

// Flags: ends are lengths, columns are counted from a window's start, indices have 64 bits, answers need no order, nothing is asked
// for but a number of 32 bits that a column tells with an addition, nothing is told but an end for every row.
enum { OF_LENGTHS = 1, RELATIVE = 2, WIDE_INDICES = 4, ANY_ORDER = 8, PLAIN = 16, ENDS_ALONE = 32 };

// Pointers are null where nothing is given; a group shares a number.
struct Asked {
  const int *starts, *ends, *ks, *selected, *offsets, *page_table, *row_to_batch, *page_starts;
  int starts_group, ends_group, batch_group;
  int height, cols;  // of x
  int width;         // of the answers
  int compress_ratio, pages, batches, page_bits, flags;  // pages of 2^page_bits slots
  long long table_stride, fill;
  Element* values;  // of all answers, as indices and positions
  void *indices, *positions;
  long long values_stride, indices_stride, positions_stride;  // of numbers
};

// What is told of one answer: all of it is asked for before any of it is looked at.
struct Numbers {
  int row, start, end, k, offset;
  int group;    // which of the ends is the answer's
  int behind;   // columns before it that the answer does not have
};

struct Window {
  int row;
  unsigned begin, length, k;
};

// Which number of a group is an answer's: divisions take as long as a barrier.
__device__ __forceinline__ int group_number(int answer, int size) { return size > 1 ? answer / size : answer; }

__device__ __forceinline__ Numbers numbers_of(const Asked& asked, int answer) {
  Numbers numbers = {answer, 0, asked.cols, asked.width, 0, answer, 0};
  if (asked.ends_group > 1) {
    numbers.group = answer / asked.ends_group;
    numbers.behind = (numbers.group + 1) * asked.ends_group - 1 - answer;
  }
  if (asked.ends) numbers.end = __ldg(asked.ends + numbers.group);
  if (asked.starts) numbers.start = asked.starts[group_number(answer, asked.starts_group)];
  if (asked.selected) numbers.row = asked.selected[answer];
  if (asked.ks) numbers.k = asked.ks[answer];
  if (asked.offsets) numbers.offset = asked.offsets[answer];
  return numbers;
}

// The first columns of a row.
__device__ __forceinline__ Window window_until(int end, int answer, unsigned cols, unsigned most) {
  const unsigned length = min(unsigned(max(end, 0)), cols);
  return {answer, 0, length, min(most, length)};
}

__device__ __forceinline__ Window window_of(const Asked& asked, Numbers numbers, unsigned most) {
  const unsigned cols = asked.cols, begin = min(unsigned(max(numbers.start, 0)), cols);
  unsigned end = max(numbers.end, 0);
  end -= min(end, unsigned(numbers.behind));
  if (asked.flags & OF_LENGTHS) {
    if (asked.compress_ratio > 1) end /= unsigned(asked.compress_ratio);
    end = numbers.start < 0 ? unsigned(max(numbers.start + int(end), 0)) : numbers.start + end;
  }
  end = min(end, cols);
  const bool has = numbers.row >= 0 && numbers.row < asked.height;
  const unsigned length = has && end > begin ? end - begin : 0;
  return {numbers.row, begin, length, min(min(unsigned(max(numbers.k, 0)), most), length)};
}

// Of a family that asks for no lines before a window is known.
struct Nothing {
  static constexpr bool ALONE = false, HELPED = false;
  static constexpr int ROWS = 0;
  __device__ __forceinline__ void ask(const Row&) {}
};

// Where the columns of one answer go, each to the place that its index has, and what is added to them.
struct Slots {
  char* places;
  int place_bits;  // the logarithm of the bytes of a place
  unsigned added;

  __device__ __forceinline__ void put(unsigned rank, Key, unsigned column) const {
    *at(rank) = column + added;
  }
  __device__ __forceinline__ unsigned* at(unsigned rank) const {
    return reinterpret_cast<unsigned*>(places + ((unsigned long long)rank << place_bits));
  }
};

// The form of one answer: indices, and positions and values where they are asked for. Little of it is worked out before it is
// needed: most answers are plain.
struct Form {
  const Asked& asked;
  int answer;
  unsigned begin;  // of the window
  int offset;
  const Element* data;
  Order order;

  __device__ __forceinline__ bool plain() const { return asked.flags & PLAIN; }

  __device__ __forceinline__ long long added() const {
    return (asked.flags & RELATIVE ? 0ll : begin) + offset;
  }

  __device__ __forceinline__ void* of_answer(void* all, long long stride) const {
    return static_cast<char*>(all) + answer * stride * (asked.flags & WIDE_INDICES ? 8 : 4);
  }
  __device__ __forceinline__ void* indices() const { return of_answer(asked.indices, asked.indices_stride); }
  __device__ __forceinline__ void* positions() const { return of_answer(asked.positions, asked.positions_stride); }
  __device__ __forceinline__ Element* values() const { return asked.values + answer * asked.values_stride; }

  __device__ __forceinline__ Slots slots() const {
    return {static_cast<char*>(indices()), asked.flags & WIDE_INDICES ? 3 : 2, plain() ? unsigned(added()) : 0u};
  }

  __device__ __forceinline__ void tell(void* to, unsigned rank, long long index) const {
    if (asked.flags & WIDE_INDICES) static_cast<long long*>(to)[rank] = index;
    else static_cast<int*>(to)[rank] = int(index);
  }

  // Where the pages of an answer are.
  struct Pages {
    long long batch, first;
  };

  __device__ __forceinline__ Pages pages() const {
    return {asked.row_to_batch ? asked.row_to_batch[answer] : group_number(answer, asked.batch_group),
            asked.page_starts ? asked.page_starts[answer] : 0};
  }

  __device__ __forceinline__ long long slot_of(unsigned position, Pages pages) const {
    const long long page = (position >> asked.page_bits) + pages.first;
    if (pages.batch < 0 || pages.batch >= asked.batches || page < 0 || page >= asked.pages) return asked.fill;
    const long long first = asked.page_table[pages.batch * asked.table_stride + page];
    return (first << asked.page_bits) + (position & ((1u << asked.page_bits) - 1));
  }

  // Make of the columns of ranks 0 to `count` what is asked for; by all threads of the cluster, or of the block that has the
  // window alone.
  __device__ __forceinline__ void finish(unsigned count, bool alone) const {
    if (plain()) return;
    const Slots columns = slots();
    const Pages its = pages();
    if (alone) __syncthreads();
    else cluster_sync();
    const unsigned step = alone ? THREADS : BLOCKS * THREADS;
#pragma unroll 1
    for (unsigned rank = (alone ? 0 : block_of() * THREADS) + threadIdx.x; rank < count; rank += step) {
      const unsigned column = *columns.at(rank);
      tell(columns.places, rank, asked.page_table ? slot_of(column, its) : column + added());
      if (asked.positions) tell(positions(), rank, column);
      if (asked.values) values()[rank] = data[column];
    }
  }

  // Behind the last, with the worst value; each by some thread of the block.
  __device__ __forceinline__ void pad(unsigned from) const {
#pragma unroll 1
    for (unsigned rank = from + threadIdx.x; rank < asked.width; rank += THREADS) {
      tell(indices(), rank, asked.fill);
      if (asked.positions) tell(positions(), rank, asked.fill);
      if (asked.values) values()[rank] = FLOAT ? Element(infinity_of(order) | (order.turn ? 0 : SIGN)) : element_of(0, order);
    }
  }
};
