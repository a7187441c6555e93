// What a translated kernel (instrumented) and the machine under it (not instrumented) say to each other.
#pragma once
#include <cstddef>
#include <cstdint>

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace simt {

enum class Warp { sync, shuffle, ballot, match_any, match_all, add, min_signed, min, max_signed, max, bit_and, bit_or, bit_xor };
enum class Atomic { add, min, max, bit_and, bit_or, bit_xor, exchange, compare, increment, decrement, load, store };
enum class Number { u16, i32, u32, i64, u64, f16, bf16, f32, f64 };
enum class Group { cluster, grid };

// Who runs. Constant within a fiber, so the compiler may keep them.
dim3 thread_index() __attribute__((const));
dim3 block_index() __attribute__((const));
dim3 block_size() __attribute__((const));
dim3 grid_size() __attribute__((const));
int lane() __attribute__((const));
int cluster_rank() __attribute__((const));
int cluster_blocks() __attribute__((const));
unsigned live_lanes();

// Blocks the calling fiber until the others named have come too.
struct Votes {
  int count, all, any;
};
Votes block_barrier(int predicate, int line);
void named_barrier(int id, int threads, bool wait);
void group_arrive(Group group, bool release);
void group_wait(Group group);
uint64_t warp_exchange(Warp operation, unsigned mask, uint64_t value, int source);

// Memory.
uint64_t atomic(Atomic operation, Number number, void* address, uint64_t value, uint64_t comparand = 0);
void fence();
void copy(void* to, const void* from, size_t bytes);
void* static_shared(const void* declaration, const char* name, size_t bytes, size_t alignment);
void* dynamic_shared();
void* of_block(const void* shared, int rank);    // the same place in another block of the cluster
uint32_t shared_window(const void* shared);      // as __cvta_generic_to_shared and mapa see it
void* generic(uint32_t window);
void pause();
[[noreturn]] void trap(const char* what);

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
uint16_t float_to_bfloat(float value);

// One kernel argument as Python hands it over: an address or an integer, and the same as a real number.
struct Argument {
  int64_t integer;
  double real;
};
int64_t integer_argument(int number);
double real_argument(int number);

}  // namespace simt
