// The functions of TileLang's templates that kernels without tensor cores call, with the same quirks.
#pragma once
#include "signals.h"

// TileLang updates int64 as unsigned: a maximum of negative numbers is not what it seems.
template <class T>
using simt_normalized = std::conditional_t<std::is_same_v<T, int64_t>, unsigned long long, T>;

#define SIMT_TILELANG_ATOMIC(NAME, OPERATION)                                                            \
  template <class T, class V>                                                                            \
  SIMT_DEVICE T NAME##Ret(T* address, V value, int = 0) {                                                \
    using N = simt_normalized<T>;                                                                        \
    return static_cast<T>(simt_update<N>(OPERATION, reinterpret_cast<N*>(address), static_cast<N>(value))); \
  }                                                                                                      \
  template <class T, class V>                                                                            \
  SIMT_DEVICE void NAME(T* address, V value, int = 0) { NAME##Ret(address, value); }
SIMT_TILELANG_ATOMIC(AtomicAdd, SIMT_ADD)
SIMT_TILELANG_ATOMIC(AtomicMax, SIMT_MAX)
SIMT_TILELANG_ATOMIC(AtomicMin, SIMT_MIN)

// TileLang's instruction is red.global: a shared address faults.
template <class T, class V>
SIMT_DEVICE void AtomicOr(T* address, V value, int = 0, int line = __builtin_LINE()) {
  if (simt_is_shared(address)) simt_trap("TileLang's AtomicOr takes no address in shared memory", line);
  simt_update<T>(SIMT_BITOR, address, static_cast<T>(value));
}
template <class T>
SIMT_DEVICE T AtomicLoad(const T* address, int) { return simt_update<T>(SIMT_LOAD, const_cast<T*>(address), T()); }
template <class T, class V>
SIMT_DEVICE void AtomicStore(T* address, V value, int) { simt_update<T>(SIMT_EXCH, address, static_cast<T>(value)); }

namespace tl {

SIMT_DEVICE void __sync_thread_partial(int barrier = 0, int threads = 0, int line = __builtin_LINE()) {
  simt_sync_named(barrier, threads, true, line);
}
SIMT_DEVICE void __named_barrier_arrive(int barrier, int threads, int line = __builtin_LINE()) {
  simt_sync_named(barrier, threads, false, line);
}

SIMT_DEVICE void cluster_arrive_relaxed(int line = __builtin_LINE()) { simt_cluster_arrive(true, line); }
SIMT_DEVICE void cluster_arrive(int line = __builtin_LINE()) { simt_cluster_arrive(false, line); }
SIMT_DEVICE void cluster_wait(int line = __builtin_LINE()) { simt_cluster_wait(line); }
SIMT_DEVICE void cluster_sync(int line = __builtin_LINE()) { cluster_arrive(line), cluster_wait(line); }
SIMT_DEVICE int block_rank_in_cluster() { return simt_cluster_rank(); }
SIMT_DEVICE dim3 cluster_shape() { return {static_cast<unsigned>(simt_cluster_size()), 1, 1}; }
SIMT_DEVICE dim3 block_id_in_cluster() { return {static_cast<unsigned>(simt_cluster_rank()), 0, 0}; }
SIMT_DEVICE dim3 cluster_grid_dims() {
  return {gridDim.x / static_cast<unsigned>(simt_cluster_size()), gridDim.y, gridDim.z};
}
SIMT_DEVICE dim3 cluster_id_in_grid() {
  return {blockIdx.x / static_cast<unsigned>(simt_cluster_size()), blockIdx.y, blockIdx.z};
}

SIMT_DEVICE int get_lane_idx(int warp_size = 32) { return static_cast<int>(threadIdx.x) % warp_size; }
SIMT_DEVICE int get_warp_idx(int warp_size = 32) { return static_cast<int>(threadIdx.x) / warp_size; }
SIMT_DEVICE int get_warp_idx_sync(int warp_size = 32) { return get_warp_idx(warp_size); }
template <int threads>
SIMT_DEVICE bool tl_shuffle_elect() {
  if constexpr (threads == 0) return threadIdx.x == 0;
  return threadIdx.x % ((threads + 31) / 32 * 32) == 0;
}

template <class T>
SIMT_DEVICE T fast_max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return ::max(a, b);
  return a < b ? b : a;
}
template <class T>
SIMT_DEVICE T fast_min(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return ::min(a, b);
  return b < a ? b : a;
}

template <class T>
SIMT_DEVICE T shfl_sync(unsigned mask, T value, int lane) { return __shfl_sync(mask, value, lane); }
template <class T>
SIMT_DEVICE T shfl_xor_sync(unsigned mask, T value, int lanes) { return __shfl_xor_sync(mask, value, lanes); }
template <class T>
SIMT_DEVICE T shfl_up_sync(unsigned mask, T value, int lanes) { return __shfl_up_sync(mask, value, lanes); }
template <class T>
SIMT_DEVICE T shfl_down_sync(unsigned mask, T value, int lanes) { return __shfl_down_sync(mask, value, lanes); }

#define SIMT_REDUCER(NAME, EXPRESSION) \
  struct NAME {                        \
    template <class T>                 \
    SIMT_DEVICE T operator()(const T& x, const T& y) const { return EXPRESSION; } \
  };
SIMT_REDUCER(SumOp, x + y)
SIMT_REDUCER(MaxOp, fast_max(x, y))
SIMT_REDUCER(MinOp, fast_min(x, y))
SIMT_REDUCER(BitAndOp, x & y)
SIMT_REDUCER(BitOrOp, x | y)
SIMT_REDUCER(BitXorOp, x ^ y)

template <class T, class Reducer>
SIMT_DEVICE T warp_reduce(T value, Reducer reduce) {
  for (int lanes = 16; lanes; lanes /= 2) value = reduce(value, __shfl_xor_sync(~0u, value, lanes));
  return value;
}
template <class T>
SIMT_DEVICE T warp_reduce_sum(T value) { return warp_reduce(value, SumOp()); }
template <class T>
SIMT_DEVICE T warp_reduce_max(T value) { return warp_reduce(value, MaxOp()); }
template <class T>
SIMT_DEVICE T warp_reduce_min(T value) { return warp_reduce(value, MinOp()); }
template <class T>
SIMT_DEVICE T warp_reduce_bitand(T value) { return warp_reduce(value, BitAndOp()); }
template <class T>
SIMT_DEVICE T warp_reduce_bitor(T value) { return warp_reduce(value, BitOrOp()); }

struct SyncThreadsBarrier {
  template <int = 0>
  SIMT_DEVICE static void sync() { __syncthreads(); }
};
template <int threads>
struct NamedBarrier {
  template <int barrier = 1>
  SIMT_DEVICE static void sync() { __sync_thread_partial(barrier, threads); }
};

// A butterfly over `threads` threads that are `scale` apart: through shared memory above a warp, shuffles within.
template <class Reducer, int threads, int scale, int offset = 0, class Barrier = SyncThreadsBarrier, int = 1, int = 0>
struct AllReduce {
  template <class T>
  SIMT_DEVICE static T run(T value, T* buffer = nullptr) {
    int thread = static_cast<int>(threadIdx.x) - offset;
    for (int distance = threads / 2; distance >= scale; distance /= 2) {
      if (distance >= 32) {
        Barrier::template sync<1>();
        buffer[thread] = value;
        Barrier::template sync<2>();
        value = Reducer()(value, buffer[thread ^ distance]);
      } else {
        value = Reducer()(value, __shfl_xor_sync(~0u, value, distance));
      }
    }
    return value;
  }
};

// Inclusive sums of a line, by the first warp.
template <int threads, bool reverse = false>
struct CumSum1D {
  template <class T, int = 32>
  SIMT_DEVICE static void run(const T* from, T* to, int count) {
    if (threadIdx.x >= 32) return;
    int lane = static_cast<int>(threadIdx.x);
    T carry = T();
    for (int start = 0; start < count; start += 32) {
      int at = reverse ? count - 1 - start - lane : start + lane;
      bool inside = start + lane < count;
      T value = inside ? from[at] : T();
      for (int distance = 1; distance < 32; distance *= 2) {
        T other = __shfl_up_sync(~0u, value, distance);
        if (lane >= distance) value = value + other;
      }
      value = value + carry;
      if (inside) to[at] = value;
      carry = __shfl_sync(~0u, value, 31);
    }
  }
};

template <int bytes>
SIMT_DEVICE void cp_async_gs(const void* shared, const void* global) {
  simt_copy_async(const_cast<void*>(shared), global, bytes, false);
}
template <int bytes>
SIMT_DEVICE void cp_async_gs_conditional(const void* shared, const void* global, bool condition) {
  simt_copy_async(const_cast<void*>(shared), global, bytes, !condition);
}
SIMT_DEVICE void cp_async_commit() { simt_copy_commit(); }
template <int groups>
SIMT_DEVICE void cp_async_wait() { simt_copy_wait(groups); }

#define SIMT_MEMORY(SPACE, BITS, TYPE)                                                                               \
  SIMT_DEVICE TYPE load_##SPACE##_##BITS(const void* address) { return *static_cast<const TYPE*>(address); }         \
  SIMT_DEVICE void store_##SPACE##_##BITS(void* address, TYPE value) { *static_cast<TYPE*>(address) = value; }
#define SIMT_CONDITIONAL(BITS, TYPE)                                                                   \
  SIMT_DEVICE TYPE load_global_##BITS##_conditional(const void* address, bool condition) {             \
    return condition ? load_global_##BITS(address) : TYPE{};                                           \
  }                                                                                                    \
  SIMT_DEVICE void store_global_##BITS##_conditional(void* address, TYPE value, bool condition) {      \
    if (condition) store_global_##BITS(address, value);                                                \
  }
SIMT_MEMORY(global, 32, uint32_t)
SIMT_MEMORY(global, 64, uint2)
SIMT_MEMORY(global, 128, uint4)
SIMT_MEMORY(shared, 32, uint32_t)
SIMT_MEMORY(shared, 64, uint2)
SIMT_MEMORY(shared, 128, uint4)
SIMT_CONDITIONAL(32, uint32_t)
SIMT_CONDITIONAL(64, uint2)
SIMT_CONDITIONAL(128, uint4)

}  // namespace tl
