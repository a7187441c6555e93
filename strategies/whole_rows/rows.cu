// Whole rows as the best of their elements, in no order: values are copied, indices are the columns.
//
// The answers of all rows lie one behind the other: of values and of indices, whole lines of 16 bytes are shared out over
// the blocks, and elements before the first and behind the last line are written one by one.
//
// Compile-time: ELEMENT_BYTES; THREADS (of a block); LOADS (of 16 bytes, that a thread has on their way).

template <int BYTES> struct Unsigned;
template <> struct Unsigned<1> { typedef unsigned char type; };
template <> struct Unsigned<2> { typedef unsigned short type; };
template <> struct Unsigned<4> { typedef unsigned type; };
template <> struct Unsigned<8> { typedef unsigned long long type; };

typedef Unsigned<ELEMENT_BYTES>::type Element;  // the bits of an element
typedef Unsigned<8>::type Number;               // of elements of all rows
constexpr unsigned LINE = 16;
constexpr unsigned TILE = THREADS * LOADS * (LINE / ELEMENT_BYTES);  // elements of a block

// Where an element is: its column, and how many elements behind the first row's begin.
struct Place {
  unsigned col;
  long long offset;
};

constexpr Place ONE = {1, 1};

struct Rows {
  const Element* data;
  long long stride;
  unsigned cols;

  __device__ __forceinline__ Place at(Number number) const {
    const Number row = number / cols;
    const unsigned col = unsigned(number - row * cols);
    return {col, (long long)row * stride + col};
  }

  // The place of an element that comes so many behind: no division, for `distance` is the place of that number.
  __device__ __forceinline__ Place step(Place place, Place distance) const {
    const unsigned col = place.col + distance.col;
    const bool wraps = col >= cols;
    return {wraps ? col - cols : col, place.offset + distance.offset + (wraps ? stride - cols : 0)};
  }

  // 16 bytes of elements from a place on: one load where they are adjacent and aligned.
  __device__ __forceinline__ uint4 line(Place place) const {
    constexpr unsigned EACH = LINE / ELEMENT_BYTES;
    const Element* from = data + place.offset;
    const bool adjacent = stride == cols || place.col + EACH <= cols;
    if (adjacent && reinterpret_cast<unsigned long long>(from) % LINE == 0)
      return __ldg(reinterpret_cast<const uint4*>(from));
    unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
    for (unsigned i = 0; i < EACH; i++) {
      const Number bits = __ldg(data + place.offset);
      const unsigned byte = i * ELEMENT_BYTES;
      words[byte / 4] |= unsigned(bits) << (8 * byte % 32);
      if (ELEMENT_BYTES == 8) words[byte / 4 + 1] = unsigned(bits >> 32);
      place = step(place, ONE);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }

  // 16 bytes of columns, of 64 or 32 bits, from a place on.
  template <class Index>
  __device__ __forceinline__ uint4 columns(Place place) const {
    const unsigned first = place.col;
    const unsigned second = (place = step(place, ONE)).col;
    if (sizeof(Index) == 8) return make_uint4(first, 0, second, 0);
    const unsigned third = (place = step(place, ONE)).col;
    return make_uint4(first, second, third, step(place, ONE).col);
  }
};

// Memory that is written: `head` elements, `lines` from the first aligned address on, and what is left of `count`.
template <class T> struct Flat {
  static constexpr unsigned EACH = LINE / sizeof(T);             // elements of a line
  static constexpr unsigned LINES = TILE / EACH;                 // of a block
  static constexpr unsigned OWN = (LINES + THREADS - 1) / THREADS;  // of a thread
  T* data;
  unsigned head;
  Number count, lines;

  __device__ __forceinline__ Flat(void* memory, Number count) : data(static_cast<T*>(memory)), count(count) {
    const unsigned skew = unsigned(reinterpret_cast<unsigned long long>(memory) % LINE / sizeof(T));
    head = unsigned(min(Number((EACH - skew) % EACH), count));
    lines = (count - head) / EACH;
  }

  // Lines of a tile that are there.
  __device__ __forceinline__ unsigned lines_of(Number tile) const {
    const Number before = tile * LINES;
    return before < lines ? unsigned(min(lines - before, Number(LINES))) : 0;
  }
  // This thread's first line in a tile, others come THREADS behind; and the number of its first element.
  __device__ __forceinline__ uint4* own(Number tile) const {
    return reinterpret_cast<uint4*>(data + head) + tile * LINES + threadIdx.x;
  }
  __device__ __forceinline__ Number first(Number tile) const { return head + (tile * LINES + threadIdx.x) * EACH; }

  // Call `write(element)` for those outside of lines, by the threads of one block.
  template <class Write>
  __device__ __forceinline__ void each_edge(Write write) const {
    const Number within = lines * EACH;
    for (unsigned i = threadIdx.x; i < count - within; i += THREADS) write(i < head ? i : within + i);
  }
};

template <class Index>
__device__ __forceinline__ void write_columns(const Flat<Index>& indices, Number tile, const Rows& rows) {
  typedef Flat<Index> Lines;
  const unsigned lines = indices.lines_of(tile);
  const Place distance = rows.at(THREADS * Lines::EACH);
  Place place = rows.at(indices.first(tile));
  uint4* own = indices.own(tile);
#pragma unroll
  for (unsigned i = 0; i < Lines::OWN; i++) {
    if (threadIdx.x + i * THREADS < lines) own[i * THREADS] = rows.columns<Index>(place);
    place = rows.step(place, distance);
  }
}

// 64-bit indices beside values, 32-bit indices alone.
template <class Index, bool VALUES>
__device__ __forceinline__ void write_rows(const Rows& rows, Element* copied, void* columns, Number count) {
  const Flat<Element> values(copied, VALUES ? count : 0);
  const Flat<Index> indices(columns, count);
  const Place distance = rows.at(THREADS * Flat<Element>::EACH);
  for (Number tile = blockIdx.x; tile * TILE < count; tile += gridDim.x) {
    const unsigned lines = values.lines_of(tile);
    Place place = rows.at(values.first(tile));
    uint4* own = values.own(tile);
    uint4 bits[LOADS];
#pragma unroll
    for (unsigned i = 0; i < LOADS; i++) {
      if (threadIdx.x + i * THREADS < lines) bits[i] = rows.line(place);
      place = rows.step(place, distance);
    }
    write_columns(indices, tile, rows);  // while elements are on their way
#pragma unroll
    for (unsigned i = 0; i < LOADS; i++)
      if (threadIdx.x + i * THREADS < lines) own[i * THREADS] = bits[i];
  }
  if (blockIdx.x) return;
  values.each_edge([&](Number at) { values.data[at] = rows.data[rows.at(at).offset]; });
  indices.each_edge([&](Number at) { indices.data[at] = rows.at(at).col; });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const Element* __restrict__ x, Element* __restrict__ values, void* __restrict__ indices, long long row_stride,
           long long rows, int cols) {
  const Rows matrix = {x, row_stride, unsigned(cols)};
  const Number count = Number(rows) * cols;
  if (values) write_rows<unsigned long long, true>(matrix, values, indices, count);
  else write_rows<unsigned, false>(matrix, nullptr, indices, count);
}
