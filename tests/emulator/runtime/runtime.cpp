// The functions that kernels call: those of simt.h, and those that the compiler's instrumentation calls.
#include <type_traits>

#include "launch.h"

using namespace simt;

namespace {

const char dynamic_keys[SHARED_LIMIT] = {};  // an identity for every offset

}  // namespace

#define CALLER code_of(__builtin_return_address(0))

extern "C" {

int simt_run(simt_launch* launch) { return run(launch); }

simt_index simt_thread_index() { return state.current->index; }
simt_index simt_block_index() { return state.current->block->index; }
simt_index simt_block_size() { return {state.launch->threads, 1, 1}; }
simt_index simt_grid_size() { return {state.launch->grid[0], state.launch->grid[1], state.launch->grid[2]}; }
int simt_cluster_rank() { return state.current->block->rank; }
int simt_cluster_size() { return static_cast<int>(state.launch->cluster); }

void* simt_shared_dynamic(const char* name) {
  return shared_buffer(name, dynamic_keys, state.launch->shared_bytes, 1024);
}

void* simt_shared_part(const char* name, uint64_t offset, uint64_t bytes) {
  if (!bytes) bytes = offset < state.launch->shared_bytes ? state.launch->shared_bytes - offset : 0;
  if (offset + bytes > state.launch->shared_bytes)
    fail("shared %s ends at byte %lu, but the launch gives %lu bytes of shared memory", name, offset + bytes,
         state.launch->shared_bytes);
  return shared_buffer(name, dynamic_keys + offset, bytes, 1);
}

void* simt_shared_static(const char* name, const void* key, uint64_t bytes, uint64_t alignment) {
  size_t before = arena.buffers.size();
  void* address = shared_buffer(name, key, bytes, alignment);
  if (arena.buffers.size() > before && (arena.static_bytes += bytes) > STATIC_LIMIT)
    fail("static shared arrays up to %s need %lu bytes, more than %lu", name, arena.static_bytes, STATIC_LIMIT);
  return address;
}

void* simt_map_shared(const void* address, int rank) {
  Block& block = *state.current->block;
  if (!simt_is_shared(address)) accuse(CALLER, "maps an address that is not in shared memory");
  if (rank < 0 || static_cast<unsigned>(rank) >= state.launch->cluster)
    accuse(CALLER, "asks for block %d of a cluster of %u", rank, state.launch->cluster);
  uint64_t offset = offset_of(address);
  uint64_t target = block.place - static_cast<unsigned>(block.rank) + static_cast<unsigned>(rank);
  return arena.begin + target * arena.stride + (offset & (arena.stride - 1));
}

bool simt_is_shared(const void* address) { return offset_of(address) < state.blocks.size() * arena.stride; }

int simt_sync_block(simt_vote vote, int predicate, int line) { return sync_block(vote, predicate, line); }
void simt_sync_named(int id, int threads, bool wait, int line) { sync_named(id, threads, wait, line); }
void simt_cluster_arrive(bool relaxed, int line) { cluster_arrive(relaxed, line); }
void simt_cluster_wait(int line) { cluster_wait(line); }
void simt_sync_grid(int line) { sync_grid(line); }

uint64_t simt_warp(simt_operation operation, unsigned mask, uint64_t value, int argument, int width, int line) {
  return warp_operation(operation, mask, value, argument, width, line);
}

uint64_t simt_atomic_access(simt_atomic operation, simt_type type, void* address, uint64_t operand, uint64_t compare) {
  return atomic_access(operation, type, address, operand, compare, CALLER);
}

void simt_begin_signal(void* signal) { begin_signal(signal, CALLER); }
void simt_expect(void* signal, unsigned bytes) { expect(signal, bytes, CALLER); }
bool simt_passed(const void* signal) { return passed(signal, CALLER); }

void simt_send(void* place, uint64_t bits, unsigned bytes, void* signal) {
  check_alignment(place, bytes, WRITES, CALLER);
  send({static_cast<char*>(place), nullptr, bits, bytes}, signal, CALLER);
}

void simt_send_bytes(void* place, const void* from, unsigned bytes, void* signal) {
  check_alignment(from, 16, READS, CALLER);
  check_alignment(place, 16, WRITES, CALLER);
  if (!bytes || bytes % 16) accuse(CALLER, "copies %u bytes, not whole lines of 16", bytes);
  if (!simt_is_shared(from)) accuse(CALLER, "copies what is not in shared memory");
  send({static_cast<char*>(place), static_cast<const char*>(from), 0, bytes}, signal, CALLER);
}

void simt_copy_async(void* shared, const void* global, unsigned bytes, bool fill_with_zeros) {
  check_alignment(shared, bytes, WRITES, CALLER);
  if (!fill_with_zeros) check_alignment(global, bytes, READS, CALLER);
  auto* to = static_cast<char*>(shared);
  auto* from = static_cast<const char*>(global);
  state.current->copies.push_back({to, from, bytes, fill_with_zeros, CALLER});
}

void simt_copy_commit() { commit_copies(); }
void simt_copy_wait(unsigned groups_left) { wait_for_copies(groups_left); }

void simt_programmatic_sync() {
  state.current->dependency_met = true;
  state.launch->programmatic_syncs++;
}

void simt_programmatic_trigger() { state.launch->programmatic_triggers++; }
void simt_yield() { yield(); }

void simt_trap(const char* what, int line) {
  Text who;
  fail("%s: %s at line %d", describe(*state.current, who), what, line);
}

// Every basic block of a kernel: an endless loop ends, a spinning thread lets others run, a full stack is seen.
void __sanitizer_cov_trace_pc() {
  if (!state.current) return;  // a library is being loaded
  if (static_cast<char*>(__builtin_frame_address(0)) < state.current->stack + STACK_RESERVE)
    accuse(CALLER, "has used up its stack of %lu bytes", STACK_BYTES - STACK_RESERVE);
  state.launch->steps++;
  if (--state.quantum) return;
  if (state.launch->steps > state.launch->step_limit)
    accuse(CALLER, "goes on after %lu steps of all threads: no end in sight", state.launch->step_limit);
  state.quantum = QUANTUM;
  yield();
}

void __tsan_init() {}

#define HOOK(NAME, BYTES, KIND) \
  void NAME(void* address) { access(address, BYTES, Kind(KIND), CALLER); }
#define HOOKS(BYTES)                                    \
  HOOK(__tsan_read##BYTES, BYTES, READS)                 \
  HOOK(__tsan_write##BYTES, BYTES, WRITES)               \
  HOOK(__tsan_volatile_read##BYTES, BYTES, READS | ATOMIC)        \
  HOOK(__tsan_volatile_write##BYTES, BYTES, WRITES | ATOMIC)      \
  HOOK(__tsan_unaligned_read##BYTES, BYTES, READS)       \
  HOOK(__tsan_unaligned_write##BYTES, BYTES, WRITES)     \
  HOOK(__tsan_unaligned_volatile_read##BYTES, BYTES, READS | ATOMIC) \
  HOOK(__tsan_unaligned_volatile_write##BYTES, BYTES, WRITES | ATOMIC)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void* address, uint64_t bytes) {
  access(address, static_cast<unsigned>(bytes), READS, CALLER);
}
void __tsan_write_range(void* address, uint64_t bytes) {
  access(address, static_cast<unsigned>(bytes), WRITES, CALLER);
}

// The linker sends a kernel's calls of memcpy, memmove and memset here.
void* __wrap_memcpy(void* to, const void* from, uint64_t bytes) {
  if (bytes) access(from, static_cast<unsigned>(bytes), READS, CALLER);
  if (bytes) access(to, static_cast<unsigned>(bytes), WRITES, CALLER);
  return memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, uint64_t bytes) {
  if (bytes) access(from, static_cast<unsigned>(bytes), READS, CALLER);
  if (bytes) access(to, static_cast<unsigned>(bytes), WRITES, CALLER);
  return memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, uint64_t bytes) {
  if (bytes) access(to, static_cast<unsigned>(bytes), WRITES, CALLER);
  return memset(to, value, bytes);
}

// What -fsanitize=alignment,bounds,... calls; the records are those of the compiler's documentation.
struct SourcePlace {
  const char* file;
  uint32_t line, column;
};
struct TypeName {
  uint16_t kind, info;
  char name[1];
};
struct Mismatch {
  SourcePlace place;
  const TypeName* type;
  uint8_t log_alignment, kind;
};

void __ubsan_handle_type_mismatch_v1_abort(const Mismatch* data, uint64_t address) {
  if (!address) accuse(CALLER, "accesses %s through a null pointer", data->type->name);
  unsigned alignment = 1u << data->log_alignment;
  accuse(CALLER, "accesses %s at an address that is not a multiple of %u", data->type->name, alignment);
}

struct OutOfBounds {
  SourcePlace place;
  const TypeName *array, *index;
};
void __ubsan_handle_out_of_bounds_abort(const OutOfBounds* data, uint64_t index) {
  accuse(CALLER, "uses index %ld of an array of type %s", static_cast<long>(index), data->array->name);
}

struct Shift {
  SourcePlace place;
  const TypeName *left, *right;
};
void __ubsan_handle_shift_out_of_bounds_abort(const Shift* data, uint64_t, uint64_t distance) {
  accuse(CALLER, "shifts %s by %ld", data->left->name, static_cast<long>(distance));
}

void __ubsan_handle_divrem_overflow_abort(const void*, uint64_t, uint64_t) { accuse(CALLER, "divides by zero"); }

}  // extern "C"
