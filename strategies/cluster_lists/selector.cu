// The best of every window, a cluster for each, or a block where that holds it, in the form that a selector is asked for.
//
// Compile-time: as of lists.cu; HELD (lines of a thread, of windows that a block selects from sooner than a cluster).
#include "owners.cuh"
#include "windows.cuh"

// A block that has a window alone.
struct Alone {
  static constexpr int HOLDS = HELD;
  static constexpr unsigned COUNT = 1;
  static __device__ __forceinline__ unsigned own() { return 0; }
  static __device__ __forceinline__ void wait() {}
  static __device__ __forceinline__ void arrive() {}
  static __device__ __forceinline__ void sync() { __syncthreads(); }
  template <class T> static __device__ __forceinline__ T* of(T* address, unsigned) { return address; }
};

__device__ __forceinline__ bool answers_alone(const Row& row, bool) { return BLOCKS > 1 && row.end - row.begin <= THREADS * HELD; }

struct Ahead {
  static constexpr bool ALONE = false, HELPED = false;
  static constexpr int ROWS = (4 << 20) / (BLOCKS * THREADS * LINES * 16);  // so few that memory has time for all of them
  Holding<Together> holding;

  __device__ __forceinline__ void ask(const Row& row) {
    ask_for_lines(row, holding, blockIdx.x % BLOCKS);  // which is known already: what is still read may share a scoreboard
  }
};

__device__ __forceinline__ void answer_window(const Row& row, Ahead& ahead, unsigned k, bool smallest, bool in_order, bool,
                                              unsigned char* dynamic, Counters& counters, Exchange& exchange, const Slots& slots) {
  const Room room = room_of(dynamic, counters, exchange);
  if (answers_alone(row, in_order)) {  // a block alone deals its lines out in another way
    Holding<Alone> holding;
    ask_for_lines(row, holding);
    select_gathered(row, holding, k, smallest, room, slots);
  } else {
    ahead.holding.end = row.end;
    select_together(row, ahead.holding, k, smallest, room, slots);
  }
}

#include "selector.cuh"
