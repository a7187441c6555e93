// TileLang's device library (tl_templates/cuda), as far as selection kernels use it.
//
// Its reductions and scans are TileLang's own files, translated as the kernel is; what they need of its common.h is here.
#pragma once
#include "ptx.h"

#define TL_DEVICE inline
#define TL_DEVICE_NOINLINE __noinline__
namespace cutlass {
using ::bfloat16_t;
using ::half_t;
namespace platform {
using std::numeric_limits;
}
}  // namespace cutlass
namespace cuda::std {
using ::std::numeric_limits;
}

// memory_order: 0 relaxed, 1 consume, 2 acquire, 3 release, 4 acquire and release, 5 sequentially consistent
namespace simt {
template <class T, class V>
__forceinline__ T ordered_atomic(Atomic operation, T* p, V value, int memory_order) {
  if (memory_order >= 3) fence();
  const T old = simt::atomic(operation, p, T(value));
  if (memory_order != 0 && memory_order != 3) fence();
  return old;
}
}  // namespace simt
#define ATOMIC(NAME, OPERATION)                                                              \
  template <class T, class V> __forceinline__ void NAME(T* p, V v, int memory_order = 0) {   \
    simt::ordered_atomic(simt::Atomic::OPERATION, p, v, memory_order);                       \
  }                                                                                          \
  template <class T, class V> __forceinline__ T NAME##Ret(T* p, V v, int memory_order = 0) { \
    return simt::ordered_atomic(simt::Atomic::OPERATION, p, v, memory_order);                \
  }
ATOMIC(AtomicAdd, add) ATOMIC(AtomicMax, max) ATOMIC(AtomicMin, min) ATOMIC(AtomicOr, bit_or) ATOMIC(AtomicStore, store)
#undef ATOMIC
template <class T> __forceinline__ T AtomicLoad(T* p, int memory_order) {
  return simt::ordered_atomic(simt::Atomic::load, p, T{}, memory_order);
}

template <class... T> int pack_bytes(T... bytes) {
  uint packed = 0, shift = 0;
  ((packed |= uint(uint8_t(bytes)) << shift, shift += 8), ...);
  return int(packed);
}
inline uint __pack_half2(half_t x, half_t y) { return uint(y.storage) << 16 | x.storage; }
inline uint __pack_half2(bfloat16_t x, bfloat16_t y) { return uint(y.storage) << 16 | x.storage; }
inline uint __pack_nv_bfloat162(bfloat16_t x, bfloat16_t y) { return uint(y.storage) << 16 | x.storage; }
inline uint smem_ptr_to_uint(const void* p) { return simt::shared_window(p); }

namespace tl {
inline void __sync_thread_partial(int id = 0, int threads = 0) { simt::named_barrier(id, threads, true); }
inline void __named_barrier_arrive(int id, int threads) { simt::named_barrier(id, threads, false); }
inline void cluster_arrive_relaxed() { simt::group_arrive(simt::Group::cluster, false); }
inline void cluster_arrive() { simt::group_arrive(simt::Group::cluster, true); }
inline void cluster_wait() { simt::group_wait(simt::Group::cluster); }
inline void cluster_sync() { cluster_arrive(), cluster_wait(); }
inline int block_rank_in_cluster() { return simt::cluster_rank(); }
inline uint set_block_rank(uint window, uint rank) { return simt::shared_window(simt::of_block(simt::generic(window), int(rank))); }
inline void pdl_sync() {}
inline void pdl_trigger() {}
inline void cp_async_commit() {}
template <int N> void cp_async_wait() {}
template <int N> void cp_async_gs(void* to, const void* from) { simt::copy(to, from, N); }
template <int N> void cp_async_gs_conditional(void* to, const void* from, bool condition) {
  if (condition) simt::copy(to, from, N);
  else for (int i = 0; i < N; ++i) static_cast<char*>(to)[i] = 0;
}
inline int get_lane_idx(int = 32) { return simt::lane(); }
inline int get_warp_idx(int = 32) {
  const dim3 index = threadIdx, size = blockDim;
  return int(index.x + size.x * (index.y + size.y * index.z)) / 32;
}
inline int get_warp_idx_sync(int = 32) { return get_warp_idx(); }
template <int extent> bool tl_shuffle_elect() {
  const int warp = get_warp_idx(), leader = __ffs(int(simt::live_lanes())) - 1;
  return simt::lane() == leader && (extent == 0 ? warp == 0 : warp % ((extent + 31) / 32) == 0);
}
template <class T> bool Any(T* a, int size) {
  for (int i = 0; i < size; ++i) if (a[i]) return true;
  return false;
}
template <class T> bool All(T* a, int size) {
  for (int i = 0; i < size; ++i) if (!a[i]) return false;
  return true;
}
template <class T> T fast_max(T a, T b) { return a < b ? b : a; }
template <class T> T fast_min(T a, T b) { return b < a ? b : a; }
template <> inline float fast_max(float a, float b) { return fmaxf(a, b); }
template <> inline float fast_min(float a, float b) { return fminf(a, b); }
template <class T> __forceinline__ T shfl_sync(unsigned mask, T v, int source) { return __shfl_sync(mask, v, source); }
template <class T> __forceinline__ T shfl_xor_sync(unsigned mask, T v, int other) { return __shfl_xor_sync(mask, v, other); }
template <class T> __forceinline__ T shfl_up_sync(unsigned mask, T v, int delta) { return __shfl_up_sync(mask, v, unsigned(delta)); }
template <class T> __forceinline__ T shfl_down_sync(unsigned mask, T v, int delta) { return __shfl_down_sync(mask, v, unsigned(delta)); }
template <class T> T from_uint1(uint1 v) { return simt::from_bits<T>(v.x); }
template <class T> uint1 to_uint1(T v) { return {uint(simt::to_bits(v))}; }
#define PAIRWISE(NAME, PAIR, EXPRESSION) \
  inline PAIR NAME(PAIR p, PAIR q) { auto f = [](auto a, auto b) { return EXPRESSION; }; return {f(p.x, q.x), f(p.y, q.y)}; }
#define PAIRWISE_ALL(NAME, REAL, HALF) PAIRWISE(NAME, float2, REAL) PAIRWISE(NAME, __half2, HALF) PAIRWISE(NAME, __nv_bfloat162, HALF)
PAIRWISE_ALL(add2, a + b, a + b) PAIRWISE_ALL(sub2, a - b, a - b) PAIRWISE_ALL(mul2, a * b, a * b)
PAIRWISE_ALL(max2, fmaxf(a, b), __hmax(a, b)) PAIRWISE_ALL(min2, fminf(a, b), __hmin(a, b))
PAIRWISE(max2_nan, __half2, __hmax_nan(a, b)) PAIRWISE(max2_nan, __nv_bfloat162, __hmax_nan(a, b))
PAIRWISE(min2_nan, __half2, __hmin_nan(a, b)) PAIRWISE(min2_nan, __nv_bfloat162, __hmin_nan(a, b))
#undef PAIRWISE
#undef PAIRWISE_ALL
}  // namespace tl
