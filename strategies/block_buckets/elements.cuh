// A row in the registers of a block: every thread holds the keys of its lines of 16 bytes, 16-bit ones two to a word.
//
// Compile-time: NUMBERS (whether rows are looked at as numbers: see numbers.cuh; 0 by default), MOST_LISTED (the largest k whose candidates are
// listed: see listed.cuh; 0 by default).
#pragma once
#include "ties.cuh"

#ifndef NUMBERS
#define NUMBERS 0
#endif

#ifndef MOST_LISTED
#define MOST_LISTED 0
#endif

#ifndef HELD
#define HELD LINES
#endif

constexpr int EDGES = 2 * VECTOR;             // elements before the row's whole lines and behind them, at most
constexpr int PER_WORD = 4 / ELEMENT_BYTES;   // keys of a register
constexpr int COLUMN_BITS = ELEMENT_BYTES == 4 ? 0 : log_of(THREADS * HELD * VECTOR);

// What elements are in order by: keys of 32 bits; of 16, with the complements of columns below them, so that all differ.
typedef unsigned Word;
constexpr Word COLUMNS = (1u << COLUMN_BITS) - 1, ALL_KEYS = Word(ONES) << COLUMN_BITS | COLUMNS;

__device__ __forceinline__ Word least_word(Key key) { return key << COLUMN_BITS; }
__device__ __forceinline__ Key key_of_word(Word word) { return word >> COLUMN_BITS; }

// A sum with 0 leaves all numbers as they are but -0, which becomes +0, and makes all NaN one.
template <bool HALF> __device__ __forceinline__ unsigned settled(unsigned bits) {
  unsigned sum;
  if (ELEMENT_BYTES == 4) {
    float number;
    asm("add.f32 %0, %1, %2;" : "=f"(number) : "f"(__uint_as_float(bits)), "f"(0.f));
    sum = __float_as_uint(number);
  } else if (HALF) {
    asm("add.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(bits), "r"(0));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(bits), "r"(0x3F803F80), "r"(0));
  }
  return sum;
}

__device__ __forceinline__ unsigned signs_of_halves(unsigned bits) {
  unsigned signs;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(signs) : "r"(bits), "r"(0), "r"(0xBB99));
  return signs;
}

// The keys of a word of elements. That of a zero is SIGN for the largest and SIGN - 1 for the smallest.
template <bool SMALLEST, bool HALF> __device__ __forceinline__ unsigned keys_of(unsigned bits) {
  const unsigned number = settled<HALF>(bits);
  const unsigned negative = ELEMENT_BYTES == 4 ? unsigned(int(number) >> 31) : signs_of_halves(number);
  const unsigned keys = number ^ (negative | (ELEMENT_BYTES == 4 ? 0x80000000u : 0x80008000u));
  return SMALLEST ? ~keys : keys;
}

// The same of elements whose order is not known at compile time.
__device__ __forceinline__ unsigned keys_of(unsigned bits, Order order) {
  const unsigned turn = ELEMENT_BYTES == 4 ? order.turn : order.turn * 0x00010001u;
  return (ELEMENT_BYTES == 2 && order.half() ? keys_of<false, true>(bits) : keys_of<false, false>(bits)) ^ turn;
}

// The same of one element.
__device__ __forceinline__ Key settled_key(Element bits, Order order) {
  const Key key = equal_key(bits, order);
  return key == SIGN && order.turn ? SIGN - 1 : key;
}

// What `equal_key` makes of the element.
__device__ __forceinline__ Key equal_key_of(Key settled) { return settled == SIGN - 1 ? SIGN : settled; }

constexpr int VISITED = 4;  // at once

// Some words of a thread, and their columns.
template <int COUNT> struct Visited {
  static constexpr int SIZE = COUNT;

  Word words[COUNT];
  unsigned columns[COUNT];
};

// The number of the thread, told anew: what is made of it now is not kept since the last time, spilled, and waited for.
__device__ __forceinline__ unsigned thread_anew() {
  unsigned thread = threadIdx.x;
  asm volatile("" : "+r"(thread));
  return thread;
}

// For so many lines of a thread: the fewer, the sooner code that passes over them is done.
template <int OWN> struct Elements {
  static_assert(OWN <= HELD, "words have bits for so many columns");
  static constexpr int COUNT = OWN * VECTOR;  // of a thread

  unsigned words[OWN * 4];
  unsigned first;   // column of the first element
  unsigned lines;   // of the block
  bool edges;       // whether lines are the row's in part
  Key edge;         // of an element of those, or its bits where words are bits
  unsigned edge_column;

  __device__ __forceinline__ Key key(int i) const {
    unsigned word = words[i / PER_WORD];
    if (PER_WORD == 1) return word;
    asm("" : "+r"(word));  // else the compiler takes all words apart once, into twice the registers
    return i % 2 ? word >> 16 : word & 0xFFFF;
  }

  __device__ __forceinline__ Word word(Key key, unsigned column) const {
    return COLUMN_BITS ? least_word(key) | (~column & COLUMNS) : key;
  }

  // Of the thread's i-th.
  __device__ __forceinline__ unsigned column(unsigned i) const { return first + (i / VECTOR * THREADS * VECTOR + i % VECTOR); }

  // Which of `MOST` elements from `begin` on reach a cut, a bit each.
  template <int MOST> __device__ __forceinline__ unsigned reaching(int begin, Key cut) const {
    unsigned bits = 0;
#pragma unroll
    for (int i = begin; i < begin + MOST && i < COUNT; i++) {
      if (i && i % VECTOR == 0 && i / VECTOR * THREADS >= lines) break;
      const unsigned word = words[i / PER_WORD];  // in its upper half the other key of the word does not matter
      if ((PER_WORD == 1 || i % 2 ? word : word << 16) >= (PER_WORD == 1 ? cut : cut << 16)) bits |= 1u << (i - begin);
    }
    return bits;
  }

  // Which of a line have a key that is not 0, a bit each.
  __device__ __forceinline__ unsigned equal(int line, Key its) const {
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) bits |= unsigned(key(line * VECTOR + i) == its) << i;
    return bits;
  }

  // Call `visit(visited)` for `AT_ONCE` elements of the thread at once; keys of what is not the row's are 0.
  template <int AT_ONCE, class Visit> __device__ __forceinline__ void visit_batches(Visit visit) const {
    unsigned base = first;
    asm volatile("" : "+r"(base));  // else all columns are kept
#pragma unroll
    for (int begin = 0; begin < COUNT; begin += AT_ONCE) {
      if (begin && begin / VECTOR * THREADS >= lines) break;  // of a row that is shorter than there is room for
      Visited<AT_ONCE> visited;
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++) {
        visited.columns[i] = base + ((begin + i) / VECTOR * THREADS * VECTOR + (begin + i) % VECTOR);
        visited.words[i] = word(key(begin + i), visited.columns[i]);
      }
      visit(visited);
    }
    if (edges && threadIdx.x < EDGES) visit(Visited<1>{{word(edge, edge_column)}, {edge_column}});
  }

  // Call `visit(word, column)` for each.
  template <class Visit> __device__ __forceinline__ void visit(Visit visit) const {
    visit_batches<VISITED>([&](const auto& visited) {
#pragma unroll
      for (int i = 0; i < visited.SIZE; i++) visit(visited.words[i], visited.columns[i]);
    });
  }
};

// The first lines of every thread, where they are asked for before it is known how many there are.
template <int LINES_ASKED> struct First {
  static constexpr int COUNT = LINES_ASKED;
  static_assert(COUNT <= 2, "of two lines keys are made whether they are there or not");

  uint4 bits[COUNT > 0 ? COUNT : 1];

  __device__ __forceinline__ void ask(const Row& row, bool asks) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const unsigned line = row.begin + threadIdx.x + i * THREADS;
      bits[i] = asks && line < row.end ? __ldg(row.lines + line) : make_uint4(0, 0, 0, 0);
    }
  }
};

template <bool SMALLEST, bool HALF, int OWN> __device__ __forceinline__ void make_keys(Elements<OWN>& elements, unsigned lines) {
#pragma unroll
  for (int i = 0; i < OWN; i++) {
    if (!NUMBERS && i >= 2 && i * THREADS >= lines) break;  // for all threads; those words are 0 already, unless they were numbers
#pragma unroll
    for (int word = 4 * i; word < 4 * i + 4; word++) {
      const unsigned keys = keys_of<SMALLEST, HALF>(elements.words[word]);
      elements.words[word] = threadIdx.x + i * THREADS < lines ? keys : 0;
    }
  }
}

// Lines as they are; `nothing` where there is none.
template <int OWN, int ASKED>
__device__ __forceinline__ Elements<OWN> ask_for_elements(const Row& row, const First<ASKED>& asked, unsigned nothing = 0) {
  Elements<OWN> elements;
  elements.lines = row.end - row.begin;
#pragma unroll
  for (int i = 0; i < OWN; i++) {
    const unsigned line = row.begin + threadIdx.x + i * THREADS;
    const uint4 bits = i < ASKED        ? asked.bits[i < ASKED ? i : 0]
                       : line < row.end ? __ldg(row.lines + line)
                                        : make_uint4(nothing, nothing, nothing, nothing);
    elements.words[4 * i] = bits.x, elements.words[4 * i + 1] = bits.y;
    elements.words[4 * i + 2] = bits.z, elements.words[4 * i + 3] = bits.w;
  }
  elements.first = row.column(row.begin + threadIdx.x, 0);
  return elements;
}

// Of lines that are the row's in part every one of the first threads has an element, perhaps.
__device__ __forceinline__ unsigned edge_column(const Row& row, unsigned thread) {
  return row.column(thread < VECTOR ? 0 : row.end, thread % VECTOR);
}

__device__ __forceinline__ bool has_edge(const Row& row, unsigned column) {
  if (threadIdx.x >= EDGES || column >= row.cols) return false;
  return threadIdx.x < VECTOR ? !row.whole(0) : row.end > 0 && row.end < row.all_lines();
}

// And its key; or where words are bits what `made` makes of them, `nothing` where there is none. (With a function in it nvcc gives the registers of
// kernels of keys to others.)
#if NUMBERS
template <int OWN, class Made>
__device__ __forceinline__ void find_edge(Elements<OWN>& elements, const Row& row, Word nothing, Made made) {
  elements.edge = nothing;
  elements.edges = !row.whole(0) || row.end < row.all_lines();
  if (elements.edges && threadIdx.x < EDGES) {
    elements.edge_column = edge_column(row, threadIdx.x);
    if (has_edge(row, elements.edge_column)) elements.edge = made(row.data()[elements.edge_column]);
  }
}

template <int OWN> __device__ __forceinline__ void find_edge(Elements<OWN>& elements, const Row& row) {
  find_edge(elements, row, 0, [&](Element bits) { return settled_key(bits, row.order); });
}
#else
template <int OWN> __device__ __forceinline__ void find_edge(Elements<OWN>& elements, const Row& row) {
  elements.edge = 0;
  elements.edges = !row.whole(0) || row.end < row.all_lines();
  if (elements.edges && threadIdx.x < EDGES) {
    elements.edge_column = edge_column(row, threadIdx.x);
    if (has_edge(row, elements.edge_column)) elements.edge = settled_key(row.data()[elements.edge_column], row.order);
  }
}
#endif

// Make keys of lines.
template <int OWN> __device__ __forceinline__ void make_keys(Elements<OWN>& elements, const Row& row, bool smallest) {
  find_edge(elements, row);
  if (ELEMENT_BYTES == 2 && row.order.half()) smallest ? make_keys<true, true>(elements, elements.lines) : make_keys<false, true>(elements, elements.lines);
  else smallest ? make_keys<true, false>(elements, elements.lines) : make_keys<false, false>(elements, elements.lines);
}

// Of which elements of a thread the best is taken: `each` of every `step`-th line, powers of two. Lanes begin at different lines, and lines at different
// elements, so that padding, or whatever else a part of a row has, is looked at as often as it is there.
struct Looks {
  int each, step;
};

// The first of a line: of all elements of lines side by side, and of every other line, if there are so many lines.
__host__ __device__ constexpr int first_of_line(int line, int lines) {
  const int turns = lines < VECTOR ? VECTOR / lines : 1, gray = line ^ line >> 1;
  return (gray * turns ^ (turns > 1 ? line >> 1 & 1 : 0)) % VECTOR;
}

// The best of them, which `better(one, other)` tells; `least` is no better than any.
template <int OWN, int FROM = 0, class Best, class At, class Better>
__device__ __forceinline__ Best best_of(Looks looks, Best least, At at, Better better) {
  constexpr int UNTIL = FROM ? 2 * FROM : 1;  // elements of a line
  Best best = least;
  if (OWN > 1 && FROM == 0 && looks.step > 1) {
#pragma unroll
    for (int line = 0; line < OWN; line++) {
      const bool looks_at = ((line ^ lane_of()) & (looks.step - 1)) == 0;
      best = better(best, looks_at ? at(line * VECTOR + first_of_line(line, OWN)) : least);
    }
    return best;
  }
#pragma unroll
  for (int line = 0; line < OWN; line++) {
#pragma unroll
    for (int i = FROM; i < UNTIL; i++) best = better(best, at(line * VECTOR + (first_of_line(line, OWN) + i) % VECTOR));
  }
  if constexpr (UNTIL < VECTOR) {
    if (looks.each > UNTIL) return best_of<OWN, UNTIL>(looks, best, at, better);
  }
  return best;
}

// How many of `count` keys are larger.
template <int COUNT> __device__ __forceinline__ unsigned larger_among(const Key* keys, Key key) {
  unsigned larger[4] = {};
#pragma unroll
  for (int i = 0; i < COUNT; i++) larger[i % 4] += keys[i] > key;
  return larger[0] + larger[1] + larger[2] + larger[3];
}

constexpr Key FEW_OCTAVES = Key(6) << (ELEMENT_BYTES == 4 ? 23 : 8);  // about: of floats, whose keys are as crowded as they

// The least of all that are better than padding: minus infinity, or infinity where the smallest are wanted.
template <int OWN> __device__ __forceinline__ Word lowest_of(const Elements<OWN>& elements, Order order) {
  const Word padding = least_word(SIGN - 1 - infinity_of(order)) | COLUMNS;
  Word lowest = ALL_KEYS;
  elements.visit([&](Word word, unsigned) {
    if (word > padding) lowest = min(lowest, word);
  });
  return least_of_lanes(lowest);
}

// Of a row of which all elements are to be counted: the largest key but for infinity and NaN. The exchange has the least word. Has a
// barrier.
template <int OWN> __device__ __forceinline__ Guess extremes_of(const Elements<OWN>& elements, Exchange& exchange, Order order) {
  Key top = 0;
  elements.visit([&](Word word, unsigned) {
    const Key key = key_of_word(word);
    if (key < (SIGN | infinity_of(order))) top = max(top, key);
  });
  top = largest_of_lanes(top);
  const Word lowest = lowest_of(elements, order);
  if (lane_of() == 0) exchange.guesses[warp_of()] = lowest, exchange.tops[warp_of()] = top;
  __syncthreads();
  return {0, largest_of_lanes(exchange.tops[lane_of() < WARPS ? lane_of() : 0])};
}

// What `extremes_of` left.
__device__ __forceinline__ Word lowest_left(const Exchange& exchange) {
  return least_of_lanes(exchange.guesses[lane_of() < WARPS ? lane_of() : 0]);
}

// Of which elements of every thread the best is taken, so many that two of three are none of the wanted, about; and of which ranks of
// these a cut is that enough reach nearly always: in every warp the one that as many of its bests reach as if a row had the wanted, four and a half
// deviations more and six, and of the warps the middle one.
struct Plan {
  Looks looks;
  Ranks ranks;
};

// Roughly, of numbers that are not nearly 0, for which one instruction does.
__device__ __forceinline__ float one_over(float number) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(number));
  return inverse;
}

__device__ __forceinline__ float one_over_root(float number) {
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(number));
  return inverse;
}

__device__ __forceinline__ float power_of(float base, float exponent) {
  float log, power;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log) : "f"(base));
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(log * exponent));
  return power;
}

template <int COUNT> __device__ __forceinline__ Plan plan_of(unsigned want, const Row& row) {
  int group = 1;
#pragma unroll
  for (int larger = 4; larger <= COUNT; larger *= 4)
    if (larger * (unsigned long long)want <= row.cols) group = larger;
  const unsigned lines = row.end - row.begin;
  int deals = 1;  // lines of a thread, about
#pragma unroll
  for (int more = 2; more <= COUNT / VECTOR; more *= 2)
    if (10 * lines > 6 * more * THREADS) deals = more;
  const Looks looks = {min(max(group / deals, 1), VECTOR), max(deals / group, 1)};
  const float all = float(row.cols), its = float(lines), wanted = float(want);
  const float each = fmaxf(its * (1.f / THREADS), 1) * one_over(float(looks.step)) * float(looks.each);  // elements of a best, in the mean
  const float looked_at = each * fminf(its, THREADS);
  const float aim = (wanted + 6) * one_over(all) + 4.5f * wanted * one_over_root(wanted * all * looked_at);  // of all
  const float none = power_of(__saturatef(1 - aim), each);
  const float some = (float(warp_of()) + 0.5f) * (1.f / WARPS);  // warps round up, the more of them the nearer it is
  const float lanes = fminf(its, 32);  // of a warp; the last one may have fewer
  return {looks, {unsigned(lanes + some - (lanes + 1) * none) + 1, min(lines / 32, unsigned(WARPS)) / 2 + 1}};
}

// The cut that is planned, and a key that few are above. All elements reach a cut of 0. Has a barrier, or two.
template <bool OF_NUMBERS, int OWN>
__device__ __forceinline__ Guess guess_of(const Elements<OWN>& elements, Exchange& exchange, unsigned want, const Row& row, Plan plan,
                                          bool smallest = false) {
  Key best = 0;
  if constexpr (OF_NUMBERS) {
    const auto at = [&](int i) { return __uint_as_float(elements.words[i]); };
    const float none = __uint_as_float(0x7FFFFFFF);  // NaN, than which all are better
    const float number = smallest ? best_of<OWN>(plan.looks, none, at, [](float one, float other) { return fminf(one, other); })
                                  : best_of<OWN>(plan.looks, none, at, [](float one, float other) { return fmaxf(one, other); });
    best = keys_of(__float_as_uint(number), row.order);
  } else {
    best = best_of<OWN>(plan.looks, Key(0), [&](int i) { return elements.key(i); }, [](Key one, Key other) { return max(one, other); });
  }
  const unsigned larger = larger_of_lanes(exchange.maxima[warp_of()], best);
  const Key ranked = least_of_lanes(larger < plan.ranks.in_warp ? best : ~Key(0));
  const Key top = largest_of_lanes(best < (SIGN | infinity_of(row.order)) ? best : Key(0));
  if (lane_of() == 0) exchange.guesses[warp_of()] = ranked, exchange.tops[warp_of()] = top;
  __syncthreads();
  constexpr bool ALONE = MOST_LISTED > 0 || OWN <= 4;  // one warp does for all; others have no registers for that
  if (!ALONE || warp_of() == 0) {
    const int warp = lane_of() < WARPS ? lane_of() : 0;
    const Key own = exchange.guesses[warp];
    Key cut = least_of_lanes(larger_among<WARPS>(exchange.guesses, own) < plan.ranks.in_block ? own : ~Key(0));
    Key most = largest_of_lanes(exchange.tops[warp]);
    if (2 * want > row.cols) cut = 0;
    if (most > cut) most += min(min(Key(most - cut), FEW_OCTAVES) / 8, (SIGN | infinity_of(row.order)) - most);
    most = max(most, cut);
    if constexpr (!ALONE) return {cut, most};
    if (lane_of() == 0) exchange.block_guesses[0] = cut, exchange.block_tops[0] = most;
  }
  __syncthreads();
  return {exchange.block_guesses[0], exchange.block_tops[0]};
}
