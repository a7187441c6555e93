// The machine: a fiber per CUDA thread, a scheduler, barriers, and a check of every access to memory.
//
// Kernels are compiled with -fsanitize=thread and -fsanitize=bounds,alignment,integer-divide-by-zero, but linked with
// neither runtime: the calls that GCC inserts before each load and store arrive here, in __tsan_* and __ubsan_*.
#include "runtime.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <bit>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "fiber.h"
#include "races.h"

// The name that a translated kernel gives its entry.
extern "C" void simt_kernel();

namespace simt {
namespace {

constexpr size_t STACK = 64 << 10, ARENA = 1 << 20, STATIC_AREA = 256 << 10, GUARD = 256, SPACING = size_t{1} << 36;
constexpr unsigned char POISON = 0xCD;
constexpr uint64_t CANARY = 0x5ca1ab1e0ddba11;

struct Block;
struct Thread;

struct WarpOperation {
  Warp operation;
  unsigned mask, arrived;
};

struct WarpState {
  Block* block;
  int index;  // among the warps of the group
  unsigned live = 0;
  Thread* lanes[32] = {};
  std::vector<WarpOperation> pending;
};

struct Thread {
  Fiber fiber;
  dim3 index;
  int lane;
  WarpState* warp;
  Block* block;
  char *bottom, *top;  // of the stack
  bool done = false;
  uint64_t value = 0, result = 0;
  int source = 0;
  Votes votes{};
  unsigned arrived_at[2] = {};  // generation of the cluster's and the grid's barrier, plus one; 0: not arrived
  const char* waits_for = nullptr;
  int64_t waits_on = 0;  // barrier id or mask
  uint32_t pc = 0;
};

struct Barrier {
  unsigned arrived = 0, generation = 0;
  int threads = 0, line = 0;
  uint32_t pc = 0;
  Votes votes{0, 1, 0};
  std::vector<Thread*> waiting;
  Clocks::Vector collected, released;
};

struct Block {
  dim3 index;
  int number, rank;  // among those that live together; in its cluster
  int live = 0;
  Barrier barriers[16];
  std::vector<Thread> threads;
  std::vector<WarpState> warps;
};

struct Buffer {
  std::string name;
  char* base;
  size_t bytes;
  bool read_only;
  Shadow* shadow;
};

struct StaticArray {
  const void* declaration;
  std::string name;
  size_t offset, bytes;
};

struct Suspect {  // a racing store that is fine if it changes nothing
  const char* address = nullptr;
  size_t size;
  char before[16];
  std::string message;
};

struct Launch {
  dim3 grid, threads;
  size_t shared_bytes;
  int cluster;
  bool cooperative, check_races;
  unsigned preempt;
  uint64_t seed, most_accesses;
};

Launch launch;
Thread* self;
Fiber scheduler;
bool failed;
std::string message;
std::deque<Thread*> ready;
std::deque<Block> blocks;  // those that live together
std::vector<Barrier> clusters;
Barrier grid_barrier;
int grid_live;
Clocks clocks;
Suspect suspect;
uint64_t random_state, accesses;
unsigned until_preempted;
std::vector<Buffer> buffers;
std::vector<StaticArray> statics;
size_t static_used;
char *arenas, *globals, *stacks;
Shadow* arena_shadow;
char* image;
const Argument* arguments;

uint32_t place(void* return_address) { return uint32_t(static_cast<char*>(return_address) - image) - 1; }
#define HERE place(__builtin_return_address(0))

uint64_t random_number() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char text[1024];
  va_list values;
  va_start(values, pattern);
  vsnprintf(text, sizeof text, pattern, values);
  va_end(values);
  return text;
}

std::string at(const dim3& index) { return format("(%u,%u,%u)", index.x, index.y, index.z); }
std::string who(const Thread& thread) { return "thread " + at(thread.index) + " of block " + at(thread.block->index); }
std::string where(uint32_t pc) { return format("<pc %x>", pc); }

[[noreturn]] void fail(const std::string& what) {
  failed = true;
  message = what;
  self->fiber.switch_to(scheduler);
  __builtin_unreachable();
}
[[noreturn]] void fail_here(const std::string& what, uint32_t pc) { fail(what + " by " + who(*self) + where(pc)); }

void leave() {
  Thread* thread = self;
  if (*reinterpret_cast<uint64_t*>(thread->bottom) != CANARY) fail_here("stack overflow", thread->pc);
  thread->fiber.switch_to(scheduler);
}

void settle() {
  if (!suspect.address) return;
  const char* address = suspect.address;
  suspect.address = nullptr;
  if (memcmp(address, suspect.before, suspect.size)) fail(suspect.message);
}

void maybe_preempt() {
  if (++accesses > launch.most_accesses) fail_here(format("no end in sight after %lu accesses", accesses), self->pc);
  // without preemption a spinning thread must still let the others run
  if (launch.preempt ? random_number() % launch.preempt == 0 : --until_preempted == 0) {
    until_preempted = 1 << 20;
    ready.push_back(self);
    leave();
  }
}

void wait_for(const char* what, int64_t on, uint32_t pc) {
  self->waits_for = what;
  self->waits_on = on;
  self->pc = pc;
  leave();
}
void wake(Thread* thread) {
  thread->waits_for = nullptr;
  ready.push_back(thread);
}

// ---- memory

bool within(const char* address, const char* base, size_t bytes) { return size_t(address - base) < bytes; }

std::string shared_place(const char* address) {
  const size_t offset = size_t(address - arenas) % ARENA;
  std::string name = offset < STATIC_AREA ? "shared memory" : "dynamic shared memory";
  size_t base = STATIC_AREA, bytes = launch.shared_bytes;
  if (offset < STATIC_AREA) {
    base = bytes = 0;
    for (const auto& array : statics)
      if (array.offset <= offset + GUARD / 2) name = "shared array " + array.name, base = array.offset, bytes = array.bytes;
  }
  return format("byte %ld of %s (%zu bytes)", long(offset) - long(base), name.c_str(), bytes);
}

bool in_shared(size_t offset, size_t size) {
  if (offset >= STATIC_AREA) return offset - STATIC_AREA + size <= launch.shared_bytes;
  for (const auto& array : statics)
    if (offset >= array.offset && offset + size <= array.offset + array.bytes) return true;
  return false;
}

const char* verb(Touch touch) { return touch == Touch::read ? "load" : touch == Touch::write ? "store" : "atomic access"; }

void check_race(Shadow* shadows, const char* base, const char* address, size_t size, Touch touch, uint32_t pc) {
  const size_t first = size_t(address - base), end = first + size;
  for (size_t word = first / 4; word * 4 < end; ++word) {
    const size_t low = word * 4 > first ? 0 : first % 4, high = std::min(end - word * 4, size_t{4});
    const auto bytes = uint8_t((1u << high) - (1u << low));
    const Access* rival = clocks.touch(shadows[word], touch, self->warp->index, self->lane, bytes, pc);
    if (!rival) continue;
    std::string place = "global memory";
    if (within(address, arenas, blocks.size() * ARENA)) place = shared_place(address);
    for (const auto& buffer : buffers)
      if (within(address, buffer.base, buffer.bytes)) place = format("byte %zu of %s", first, buffer.name.c_str());
    const int warps = int(blocks[0].warps.size());
    std::string lane = rival->lane == SEVERAL ? "several lanes" : format("lane %d", rival->lane);
    std::string found = format("race on %s: %s by %s%s, and an access by %s of warp %d of block %s%s with no barrier between",
                               place.c_str(), verb(touch), who(*self).c_str(), where(pc).c_str(), lane.c_str(),
                               rival->warp % warps, at(blocks[rival->warp / warps].index).c_str(), where(rival->pc).c_str());
    if (touch != Touch::write || (rival->bytes & ATOMIC) || size > sizeof suspect.before) fail(found);
    suspect.address = address;
    suspect.size = size;
    memcpy(suspect.before, address, size);
    suspect.message = std::move(found);
    return;
  }
}

// Before every load and store of a kernel.
void check(const void* pointer, size_t size, Touch touch, uint32_t pc, bool aligned = true) {
  const char* address = static_cast<const char*>(pointer);
  if (within(address, self->bottom, STACK)) return;
  settle();
  maybe_preempt();
  if (aligned && reinterpret_cast<uintptr_t>(address) % size)
    fail_here(format("misaligned %s of %zu bytes at address ...%04lx", verb(touch), size,
                     reinterpret_cast<uintptr_t>(address) & 0xffff), pc);
  if (within(address, arenas, blocks.size() * ARENA)) {
    const size_t offset = size_t(address - arenas);
    if (!in_shared(offset % ARENA, size))
      fail_here(format("out-of-bounds %s of %zu bytes at %s", verb(touch), size, shared_place(address).c_str()), pc);
    const Block& owner = blocks[offset / ARENA];
    if (&owner != self->block) {
      if (owner.rank - owner.number != self->block->rank - self->block->number)
        fail_here(format("%s of the shared memory of a block outside the cluster", verb(touch)), pc);
      if (!owner.live) fail_here(format("%s of the shared memory of a block that has ended", verb(touch)), pc);
    }
    if (launch.check_races) check_race(arena_shadow, arenas, address, size, touch, pc);
    return;
  }
  const size_t number = size_t(address - globals + SPACING / 2) / SPACING;
  if (number < buffers.size()) {
    const Buffer& buffer = buffers[number];
    const long offset = long(address - buffer.base);
    if (offset < 0 || size_t(offset) + size > buffer.bytes)
      fail_here(format("out-of-bounds %s of %zu bytes at byte %ld of %s (%zu bytes)", verb(touch), size, offset,
                       buffer.name.c_str(), buffer.bytes), pc);
    if (touch != Touch::read && buffer.read_only)
      fail_here(format("%s to %s, which the kernel declares const", verb(touch), buffer.name.c_str()), pc);
    if (launch.check_races && !buffer.read_only) check_race(buffer.shadow, buffer.base, address, size, touch, pc);
    return;
  }
  Dl_info info;  // tables and literals of the kernel itself
  if (touch == Touch::read && dladdr(address, &info) && info.dli_fbase == image) return;
  fail_here(format("%s of %zu bytes at %p, which is in no buffer", verb(touch), size, pointer), pc);
}

// A volatile access orders what fences have published, as a flag does.
void check_volatile(const void* address, size_t size, bool write, uint32_t pc) {
  check(address, size, Touch::atomic, pc);
  if (launch.check_races) clocks.meet(self->warp->index, address, !write, write);
}

// ---- barriers

void release(Barrier& barrier) {
  barrier.arrived = 0;
  ++barrier.generation;
  if (launch.check_races) {
    barrier.released.swap(barrier.collected);
    barrier.collected.clear();
    int last = -1;
    for (Thread* thread : barrier.waiting) {
      if (thread->warp->index == last) continue;
      last = thread->warp->index;
      clocks.learn(last, barrier.released);
      clocks.tick(last);
    }
  }
  for (Thread* thread : barrier.waiting) {
    thread->votes = barrier.votes;
    wake(thread);
  }
  barrier.waiting.clear();
  barrier.votes = {0, 1, 0};
}

void arrive(Barrier& barrier) {
  ++barrier.arrived;
  if (launch.check_races) clocks.publish(self->warp->index, barrier.collected);
}

Barrier& group_barrier(Group group) {
  return group == Group::grid ? grid_barrier : clusters[self->block->number / launch.cluster];
}
unsigned group_threads(Group group) {
  if (group == Group::grid) return unsigned(grid_live);
  const int first = self->block->number - self->block->rank;
  unsigned live = 0;
  for (int i = 0; i < launch.cluster; ++i) live += unsigned(blocks[first + i].live);
  return live;
}

// ---- warps

void resolve(WarpState& warp, const WarpOperation& op) {
  auto lanes = [&](auto visit) {
    for (unsigned rest = op.arrived; rest; rest &= rest - 1) visit(*warp.lanes[__builtin_ctz(rest)]);
  };
  uint64_t all = op.operation == Warp::bit_and || op.operation == Warp::min || op.operation == Warp::min_signed ? ~uint64_t{} : 0;
  const Thread& first = *warp.lanes[__builtin_ctz(op.arrived)];
  bool same = true;
  switch (op.operation) {
    case Warp::sync:
      if (launch.check_races) clocks.tick(warp.index);
      return;
    case Warp::shuffle:
      lanes([&](Thread& t) { t.result = op.arrived >> t.source & 1 ? warp.lanes[t.source]->value : ~uint64_t{}; });
      lanes([&](Thread& t) { if (!(op.arrived >> t.source & 1)) t.source = -1; });
      return;
    case Warp::match_any:
      lanes([&](Thread& t) {
        t.result = 0;
        lanes([&](Thread& other) { t.result |= uint64_t{other.value == t.value} << other.lane; });
      });
      return;
    case Warp::ballot:
      lanes([&](Thread& t) { all |= uint64_t{t.value != 0} << t.lane; });
      break;
    case Warp::match_all:
      lanes([&](Thread& t) { same &= t.value == first.value; });
      all = same ? op.arrived : 0;
      break;
    case Warp::add:
      lanes([&](Thread& t) { all += t.value; });
      break;
    case Warp::bit_and:
      lanes([&](Thread& t) { all &= t.value; });
      break;
    case Warp::bit_or:
      lanes([&](Thread& t) { all |= t.value; });
      break;
    case Warp::bit_xor:
      lanes([&](Thread& t) { all ^= t.value; });
      break;
    case Warp::min:
      lanes([&](Thread& t) { all = std::min(all, t.value); });
      break;
    case Warp::max:
      lanes([&](Thread& t) { all = std::max(all, t.value); });
      break;
    case Warp::min_signed:
    case Warp::max_signed:
      all = first.value;
      lanes([&](Thread& t) {
        const auto a = int64_t(all), b = int64_t(t.value);
        all = uint64_t(op.operation == Warp::min_signed ? std::min(a, b) : std::max(a, b));
      });
      break;
  }
  lanes([&](Thread& t) { t.result = all; });
}

void finish_complete(WarpState& warp) {
  for (size_t i = 0; i < warp.pending.size();) {
    const WarpOperation op = warp.pending[i];
    if (op.arrived == 0 || (op.mask & warp.live) != op.arrived) {
      ++i;
      continue;
    }
    warp.pending.erase(warp.pending.begin() + long(i));
    resolve(warp, op);
    for (unsigned rest = op.arrived; rest; rest &= rest - 1) {
      Thread* thread = warp.lanes[__builtin_ctz(rest)];
      if (thread != self) wake(thread);
    }
  }
}

const char* name_of(Warp operation) {
  static const char* const names[] = {"__syncwarp", "a shuffle", "a vote", "__match_any_sync", "__match_all_sync"};
  return operation < Warp::add ? names[int(operation)] : "a __reduce_*_sync";
}

// ---- a group of blocks from start to end

void run_thread() {
  simt_kernel();
  settle();
  Thread* thread = self;
  thread->done = true;
  WarpState& warp = *thread->warp;
  warp.live &= ~(1u << thread->lane);
  finish_complete(warp);
  --grid_live;
  Barrier& barrier = thread->block->barriers[0];
  if (--thread->block->live && barrier.arrived && !barrier.threads && barrier.arrived == unsigned(thread->block->live))
    release(barrier);
  for (const Group group : {Group::cluster, Group::grid}) {
    Barrier& of_group = group_barrier(group);
    if (of_group.arrived && of_group.arrived == group_threads(group)) release(of_group);
  }
  thread->fiber.switch_to(scheduler);
}

std::string deadlock() {
  struct Waiting {
    int threads = 0;
    const Thread* first;
  };
  std::map<std::tuple<std::string, int64_t, uint32_t>, Waiting> places;
  for (const auto& block : blocks)
    for (const auto& thread : block.threads)
      if (!thread.done) {
        auto& waiting = places[{thread.waits_for, thread.waits_on, thread.pc}];
        if (!waiting.threads++) waiting.first = &thread;
      }
  std::string text = "deadlock: every live thread waits";
  for (const auto& [key, waiting] : places)
    text += format("\n  %d for %s %#lx, first %s%s", waiting.threads, std::get<0>(key).c_str(), long(std::get<1>(key)),
                   who(*waiting.first).c_str(), where(std::get<2>(key)).c_str());
  return text;
}

void run_group(const std::vector<dim3>& indices) {
  const unsigned threads = launch.threads.x * launch.threads.y * launch.threads.z, warps = (threads + 31) / 32;
  blocks.clear();
  blocks.resize(indices.size());
  clusters.assign(indices.size() / size_t(launch.cluster) + 1, {});
  grid_barrier = {};
  grid_live = int(indices.size() * threads);
  ready.clear();
  suspect.address = nullptr;
  clocks.start(int(indices.size() * warps));
  for (size_t number = 0; number < indices.size(); ++number) {
    Block& block = blocks[number];
    block.index = indices[number];
    block.number = int(number);
    block.rank = int(number) % launch.cluster;
    block.live = int(threads);
    block.threads.resize(threads);
    block.warps.resize(warps);
    char* arena = arenas + number * ARENA;
    memset(arena, POISON, static_used);
    memset(arena + STATIC_AREA, POISON, launch.shared_bytes);
    for (unsigned i = 0; i < warps; ++i) {
      block.warps[i].block = &block;
      block.warps[i].index = int(number * warps + i);
    }
    for (unsigned i = 0; i < threads; ++i) {
      Thread& thread = block.threads[i];
      const dim3& size = launch.threads;
      thread.index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
      thread.lane = int(i % 32);
      thread.block = &block;
      thread.warp = &block.warps[i / 32];
      thread.warp->live |= 1u << thread.lane;
      thread.warp->lanes[thread.lane] = &thread;
      thread.bottom = stacks + (number * threads + i) * STACK;
      thread.top = thread.bottom + STACK - i * 192 % 8192;  // stacks in step would share a few sets of the cache
      *reinterpret_cast<uint64_t*>(thread.bottom) = CANARY;
      thread.fiber.start(thread.bottom, thread.top, run_thread);
      ready.push_back(&thread);
    }
  }
  while (!ready.empty()) {
    if (launch.preempt) std::swap(ready.front(), ready[random_number() % ready.size()]);
    self = ready.front();
    ready.pop_front();
    scheduler.switch_to(self->fiber);
    if (failed) return;
  }
  if (grid_live) {
    failed = true;
    message = deadlock();
  }
}

void* reserve(size_t bytes, void* hint = nullptr) {
  void* memory = mmap(hint, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

// ---- what kernels call

int64_t integer_argument(int number) { return arguments[number].integer; }
double real_argument(int number) { return arguments[number].real; }
dim3 thread_index() { return self->index; }
dim3 block_index() { return self->block->index; }
dim3 block_size() { return launch.threads; }
dim3 grid_size() { return launch.grid; }
int lane() { return self->lane; }
int cluster_rank() { return self->block->rank; }
int cluster_blocks() { return launch.cluster; }
unsigned live_lanes() { return self->warp->live; }

Votes block_barrier(int predicate, int line) {
  settle();
  maybe_preempt();
  Barrier& barrier = self->block->barriers[0];
  if (!barrier.arrived) {
    barrier.line = line;
    barrier.pc = HERE;
    barrier.threads = 0;
  } else if (barrier.threads) {
    fail_here("__syncthreads meets bar.sync 0 with a count", HERE);
  } else if (barrier.line != line) {
    fail_here("divergent __syncthreads: others wait" + where(barrier.pc) + " but here it is reached", HERE);
  }
  barrier.votes.count += predicate != 0;
  barrier.votes.all &= predicate != 0;
  barrier.votes.any |= predicate != 0;
  arrive(barrier);
  barrier.waiting.push_back(self);
  if (barrier.arrived == unsigned(self->block->live)) release(barrier);
  wait_for("barrier", 0, HERE);
  return self->votes;
}

void named_barrier(int id, int threads, bool wait) {
  settle();
  maybe_preempt();
  if (id < 0 || id > 15) fail_here(format("barrier %d; there are 0 to 15", id), HERE);
  if (threads <= 0 || threads % 32) fail_here(format("barrier %d of %d threads; needs a multiple of 32", id, threads), HERE);
  Barrier& barrier = self->block->barriers[id];
  if (barrier.arrived && barrier.threads != threads)
    fail_here(format("barrier %d of %d threads, but others wait for %d", id, threads, barrier.threads), HERE);
  barrier.threads = threads;
  arrive(barrier);
  if (wait) barrier.waiting.push_back(self);
  if (barrier.arrived == unsigned(threads)) release(barrier);
  if (!wait && launch.check_races) clocks.tick(self->warp->index);
  if (wait) wait_for("barrier", id, HERE);
}

void group_arrive(Group group, bool releases) {
  settle();
  maybe_preempt();
  if (group == Group::grid && !launch.cooperative) fail_here("a grid barrier needs a cooperative launch", HERE);
  Barrier& barrier = group_barrier(group);
  if (self->arrived_at[int(group)]) fail_here("a second arrival at the cluster barrier without a wait", HERE);
  self->arrived_at[int(group)] = barrier.generation + 1;
  if (releases) {
    arrive(barrier);
    if (launch.check_races) clocks.tick(self->warp->index);
  } else {
    ++barrier.arrived;
  }
  if (barrier.arrived == group_threads(group)) release(barrier);
}

void group_wait(Group group) {
  settle();
  Barrier& barrier = group_barrier(group);
  unsigned& arrived_at = self->arrived_at[int(group)];
  if (!arrived_at) fail_here("a wait at the cluster barrier without an arrival", HERE);
  const bool complete = barrier.generation + 1 != arrived_at;
  arrived_at = 0;
  if (!complete) {
    barrier.waiting.push_back(self);
    wait_for(group == Group::grid ? "the grid barrier" : "the cluster barrier", 0, HERE);
  } else if (launch.check_races) {
    clocks.learn(self->warp->index, barrier.released);
    clocks.tick(self->warp->index);
  }
}

uint64_t warp_exchange(Warp operation, unsigned mask, uint64_t value, int source) {
  settle();
  maybe_preempt();
  WarpState& warp = *self->warp;
  if (!(mask >> self->lane & 1)) fail_here(format("%s with mask %#x, which lacks the lane itself", name_of(operation), mask), HERE);
  self->value = value;
  self->source = source;
  WarpOperation* found = nullptr;
  for (auto& op : warp.pending)
    if (op.operation == operation && op.mask == mask) found = &op;
  if (!found) found = &warp.pending.emplace_back(WarpOperation{operation, mask, 0});
  found->arrived |= 1u << self->lane;
  if (found->arrived == (mask & warp.live))
    finish_complete(warp);
  else
    wait_for(name_of(operation), mask, HERE);
  if (operation == Warp::shuffle && self->source < 0)
    fail_here(format("a shuffle from lane %d, which takes no part (mask %#x)", source, mask), HERE);
  return self->result;
}

namespace {
template <class T>
T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
uint64_t to_bits(T value) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}

float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// 16-bit reals add as float and round once, as the hardware does.
struct Half {
  uint16_t bits;
  Half operator+(Half other) const { return {float_to_half(half_to_float(bits) + half_to_float(other.bits))}; }
  bool operator<(Half other) const { return half_to_float(bits) < half_to_float(other.bits); }
};
struct Bfloat {
  uint16_t bits;
  Bfloat operator+(Bfloat other) const { return {float_to_bfloat(bfloat_to_float(bits) + bfloat_to_float(other.bits))}; }
  bool operator<(Bfloat other) const { return bfloat_to_float(bits) < bfloat_to_float(other.bits); }
};

template <class T>
uint64_t apply(Atomic operation, void* address, uint64_t bits, uint64_t comparand) {
  T old;
  memcpy(&old, address, sizeof old);
  const T value = from_bits<T>(bits);
  T next = old;
  const auto old_bits = to_bits(old);
  switch (operation) {
    case Atomic::add: next = T(old + value); break;
    case Atomic::min: next = value < old ? value : old; break;
    case Atomic::max: next = old < value ? value : old; break;
    case Atomic::bit_and: next = from_bits<T>(old_bits & bits); break;
    case Atomic::bit_or: next = from_bits<T>(old_bits | bits); break;
    case Atomic::bit_xor: next = from_bits<T>(old_bits ^ bits); break;
    case Atomic::increment: next = from_bits<T>(old_bits >= bits ? 0 : old_bits + 1); break;
    case Atomic::decrement: next = from_bits<T>(old_bits == 0 || old_bits > bits ? bits : old_bits - 1); break;
    case Atomic::exchange:
    case Atomic::store: next = value; break;
    case Atomic::compare: next = old_bits == comparand ? value : old; break;
    case Atomic::load: return old_bits;
  }
  memcpy(address, &next, sizeof next);
  return old_bits;
}
}  // namespace

uint64_t atomic(Atomic operation, Number number, void* address, uint64_t value, uint64_t comparand) {
  static const size_t sizes[] = {2, 4, 4, 8, 8, 2, 2, 4, 8};
  check(address, sizes[int(number)], Touch::atomic, HERE);
  if (launch.check_races && !within(static_cast<char*>(address), arenas, blocks.size() * ARENA))
    clocks.meet(self->warp->index, address, operation != Atomic::store, operation != Atomic::load);
  switch (number) {
    case Number::u16: return apply<uint16_t>(operation, address, value, comparand);
    case Number::i32: return apply<int32_t>(operation, address, value, comparand);
    case Number::u32: return apply<uint32_t>(operation, address, value, comparand);
    case Number::i64: return apply<int64_t>(operation, address, value, comparand);
    case Number::u64: return apply<uint64_t>(operation, address, value, comparand);
    case Number::f16: return apply<Half>(operation, address, value, comparand);
    case Number::bf16: return apply<Bfloat>(operation, address, value, comparand);
    case Number::f32: return apply<float>(operation, address, value, comparand);
    case Number::f64: return apply<double>(operation, address, value, comparand);
  }
  __builtin_unreachable();
}

void fence() {
  settle();
  maybe_preempt();
  if (launch.check_races) clocks.fence(self->warp->index);
}

void pause() {
  settle();
  ++accesses;
  ready.push_back(self);
  leave();
}

void trap(const char* what) { fail_here(what, HERE); }

void copy(void* to, const void* from, size_t bytes) {
  check(from, bytes, Touch::read, HERE, false);
  check(to, bytes, Touch::write, HERE, false);
  memmove(to, from, bytes);
}

void* static_shared(const void* declaration, const char* name, size_t bytes, size_t alignment) {
  char* arena = arenas + size_t(self->block->number) * ARENA;
  for (const auto& array : statics)
    if (array.declaration == declaration) return arena + array.offset;
  const size_t offset = (static_used + GUARD + alignment - 1) / alignment * alignment;
  if (offset + bytes + GUARD > STATIC_AREA) fail_here(format("more than %zu bytes of static shared memory", STATIC_AREA), HERE);
  statics.push_back({declaration, name, offset, bytes});
  static_used = offset + bytes;
  for (size_t number = 0; number < blocks.size(); ++number) memset(arenas + number * ARENA + offset, POISON, bytes);
  return arena + offset;
}

void* dynamic_shared() { return arenas + size_t(self->block->number) * ARENA + STATIC_AREA; }

void* of_block(const void* shared, int rank) {
  const char* address = static_cast<const char*>(shared);
  if (rank < 0 || rank >= launch.cluster) fail_here(format("block %d of a cluster of %d", rank, launch.cluster), HERE);
  if (!within(address, arenas + size_t(self->block->number) * ARENA, ARENA))
    fail_here("an address to map to another block that is not in the block's own shared memory", HERE);
  return const_cast<char*>(address) + (rank - self->block->rank) * long(ARENA);
}

uint32_t shared_window(const void* shared) {
  const char* address = static_cast<const char*>(shared);
  if (!within(address, arenas, blocks.size() * ARENA)) fail_here("an address that is not in shared memory", HERE);
  return uint32_t(address - arenas);
}
void* generic(uint32_t window) { return arenas + window; }

float half_to_float(uint16_t bits) { return float(std::bit_cast<_Float16>(bits)); }
uint16_t float_to_half(float value) { return std::bit_cast<uint16_t>(_Float16(value)); }
uint16_t float_to_bfloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7fff;
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace simt

// ---- what GCC's instrumentation calls

using simt::place;
using simt::Touch;
#define ACCESS(SIZE)                                                                                              \
  void __tsan_read##SIZE(void* p) { simt::check(p, SIZE, Touch::read, HERE); }                                    \
  void __tsan_write##SIZE(void* p) { simt::check(p, SIZE, Touch::write, HERE); }                                  \
  void __tsan_unaligned_read##SIZE(void* p) { simt::check(p, SIZE, Touch::read, HERE); }                          \
  void __tsan_unaligned_write##SIZE(void* p) { simt::check(p, SIZE, Touch::write, HERE); }                        \
  void __tsan_volatile_read##SIZE(void* p) { simt::check_volatile(p, SIZE, false, HERE); }                        \
  void __tsan_volatile_write##SIZE(void* p) { simt::check_volatile(p, SIZE, true, HERE); }

extern "C" {
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
void __tsan_init() {}
void __tsan_read_range(void* p, size_t size) { simt::check(p, size, Touch::read, HERE, false); }
void __tsan_write_range(void* p, size_t size) { simt::check(p, size, Touch::write, HERE, false); }

struct SourceType {
  uint16_t kind, info;
  char name[1];
};
struct Place {
  const char* file;
  uint32_t line, column;
};
struct OutOfBounds {
  Place place;
  SourceType *array, *index;
};
struct TypeMismatch {
  Place place;
  SourceType* type;
  unsigned char log_alignment, kind;
};
void __ubsan_handle_out_of_bounds(OutOfBounds* data, uintptr_t index) {
  simt::fail_here(simt::format("index %ld is out of bounds of an array of type %s", long(index), data->array->name), HERE);
}
void __ubsan_handle_type_mismatch_v1(TypeMismatch* data, uintptr_t address) {
  simt::fail_here(simt::format("misaligned address ...%04lx for type %s, which needs %d bytes", long(address & 0xffff),
                               data->type->name, 1 << data->log_alignment), HERE);
}
void __ubsan_handle_divrem_overflow(void*, uintptr_t, uintptr_t) { simt::fail_here("division by zero", HERE); }

// ---- what Python calls

struct PythonBuffer {
  const char* name;
  void* data;
  size_t bytes;
  int read_only, argument;
};

__attribute__((visibility("default"))) int simt_launch(const unsigned* grid, const unsigned* threads, size_t shared_bytes,
                                                       int cluster, int cooperative, int check_races, unsigned preempt,
                                                       uint64_t seed, uint64_t most_accesses, PythonBuffer* given,
                                                       size_t given_count, simt::Argument* arguments, char* text,
                                                       size_t text_size) {
  using namespace simt;
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&simt_kernel), &info);
  image = static_cast<char*>(info.dli_fbase);
  launch = {{grid[0], grid[1], grid[2]}, {threads[0], threads[1], threads[2]}, shared_bytes, cluster,
            cooperative != 0, check_races != 0, preempt, seed, most_accesses};
  random_state = (seed + 1) * 0x9e3779b97f4a7c15;
  until_preempted = 1 << 20;
  accesses = 0;
  failed = false;
  simt::arguments = arguments;
  statics.clear();
  static_used = 0;
  std::vector<dim3> order;
  for (unsigned z = 0; z < grid[2]; ++z)
    for (unsigned y = 0; y < grid[1]; ++y)
      for (unsigned x = 0; x < grid[0]; ++x) order.push_back({x, y, z});
  const size_t together = cooperative ? order.size() : size_t(cluster);
  const size_t stack_bytes = together * threads[0] * threads[1] * threads[2] * STACK;
  const size_t shadow_bytes = together * ARENA / 4 * sizeof(Shadow);
  // Buffers lie so far apart that no 32-bit index reaches from one into the next; a little slack for their alignment.
  std::vector<std::pair<char*, size_t>> mapped;
  auto map = [&](size_t bytes) {
    char* memory = static_cast<char*>(reserve(bytes));
    if (memory) mapped.emplace_back(memory, bytes);
    return memory;
  };
  arenas = map(together * ARENA);
  stacks = map(stack_bytes);
  arena_shadow = reinterpret_cast<Shadow*>(map(shadow_bytes));
  globals = map(SPACING * (given_count + 1)) + SPACING / 2;
  buffers.clear();
  for (size_t i = 0; i < given_count; ++i) {
    const PythonBuffer& from = given[i];
    char* base = globals + i * SPACING + reinterpret_cast<uintptr_t>(from.data) % 256;
    if (from.bytes) memcpy(base, from.data, from.bytes);
    auto* shadow = check_races && !from.read_only ? reinterpret_cast<Shadow*>(map((from.bytes / 4 + 2) * sizeof(Shadow))) : nullptr;
    buffers.push_back({from.name, base, from.bytes, from.read_only != 0, shadow});
    arguments[from.argument].integer = reinterpret_cast<int64_t>(base);
  }
  for (size_t start = 0; start < order.size() && !failed; start += together)
    run_group({order.begin() + long(start), order.begin() + long(start + together)});
  for (size_t i = 0; i < given_count; ++i)
    if (given[i].bytes && !given[i].read_only) memcpy(given[i].data, buffers[i].base, given[i].bytes);
  blocks.clear();
  for (const auto& [memory, bytes] : mapped) munmap(memory, bytes);
  if (failed) snprintf(text, text_size, "%s", message.c_str());
  return failed;
}
}
