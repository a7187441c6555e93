// What a translated kernel calls in the runtime. Kernels are instrumented by the compiler, the runtime is not.
#pragma once
#include <cstdint>

extern "C" {

struct simt_index {
  unsigned x, y, z;
};

// A fiber never changes its place in the grid, so the compiler may keep these in registers.
simt_index simt_thread_index() __attribute__((const));
simt_index simt_block_index() __attribute__((const));
simt_index simt_block_size() __attribute__((const));
simt_index simt_grid_size() __attribute__((const));
// Whether an address is in some block's shared memory.
bool simt_is_shared(const void* address);
int simt_cluster_rank() __attribute__((const));
int simt_cluster_size() __attribute__((const));

// Shared memory of the own block: the dynamic region, one buffer of it, one static array (`key` is its identity).
void* simt_shared_dynamic(const char* name);
void* simt_shared_part(const char* name, uint64_t offset, uint64_t bytes);
void* simt_shared_static(const char* name, const void* key, uint64_t bytes, uint64_t alignment);
// The same place in the shared memory of another block of the cluster.
void* simt_map_shared(const void* address, int rank);

enum simt_vote { SIMT_NONE, SIMT_AND, SIMT_OR, SIMT_COUNT };

// Barriers. `line` is where the program waits, for reports.
int simt_sync_block(simt_vote vote, int predicate, int line);
void simt_sync_named(int id, int threads, bool wait, int line);
void simt_cluster_arrive(bool relaxed, int line);
void simt_cluster_wait(int line);
void simt_sync_grid(int line);

enum simt_operation {
  SIMT_SYNCWARP,
  SIMT_SHFL,
  SIMT_SHFL_UP,
  SIMT_SHFL_DOWN,
  SIMT_SHFL_XOR,
  SIMT_BALLOT,
  SIMT_ANY,
  SIMT_ALL,
  SIMT_MATCH_ANY,
  SIMT_MATCH_ALL,
  SIMT_REDUCE_ADD,
  SIMT_REDUCE_MIN,
  SIMT_REDUCE_MAX,
  SIMT_REDUCE_MIN_SIGNED,
  SIMT_REDUCE_MAX_SIGNED,
  SIMT_REDUCE_AND,
  SIMT_REDUCE_OR,
  SIMT_REDUCE_XOR,
};

// Wait for the lanes of `mask` at the same operation. `argument` and `width` are a shuffle's.
uint64_t simt_warp(simt_operation operation, unsigned mask, uint64_t value, int argument, int width, int line);

enum simt_atomic {
  SIMT_ADD,
  SIMT_MIN,
  SIMT_MAX,
  SIMT_EXCH,
  SIMT_CAS,
  SIMT_BITAND,
  SIMT_BITOR,
  SIMT_BITXOR,
  SIMT_INC,
  SIMT_DEC,
  SIMT_LOAD,
};
enum simt_type { SIMT_I32, SIMT_U32, SIMT_I64, SIMT_U64, SIMT_F32, SIMT_F64, SIMT_U16 };

// The old value, as bits.
uint64_t simt_atomic_access(simt_atomic operation, simt_type type, void* address, uint64_t operand, uint64_t compare);

// Signals, which are mbarriers for one phase: told once how many bytes to expect, they count those that are sent.
void simt_begin_signal(void* signal);
void simt_expect(void* signal, unsigned bytes);
bool simt_passed(const void* signal);  // whether all of them have arrived

// st.async, and copies of shared memory: bytes that arrive, and are counted, at any time until somebody waits for the signal.
void simt_send(void* place, uint64_t bits, unsigned bytes, void* signal);
void simt_send_bytes(void* place, const void* from, unsigned bytes, void* signal);

// cp.async: the bytes arrive no sooner than the program waits for them.
void simt_copy_async(void* shared, const void* global, unsigned bytes, bool fill_with_zeros);
void simt_copy_commit();
void simt_copy_wait(unsigned groups_left);

void simt_programmatic_sync();
void simt_programmatic_trigger();
void simt_yield();
[[noreturn]] void simt_trap(const char* what, int line);

}  // extern "C"
