// Every access of a kernel: which buffer it is in, whether it may be, and what it does to the shadow of shared memory.
#pragma once
#include <sys/mman.h>

#include <cstring>

#include "shadow.h"

namespace simt {

constexpr uint64_t GRANULE = 1024;  // buffers in shared memory start at multiples, with at least one free between
constexpr uint64_t SHARED_LIMIT = 227 << 10;
constexpr uint64_t STATIC_LIMIT = 48 << 10;
constexpr uint8_t HAS_SIGNAL = 16;  // of a word, beside which bytes were written

// Shared memory of all blocks of the group, `stride` apart, its shadow, and which bytes were written.
struct Arena {
  char* begin = nullptr;
  uint64_t bytes = 0, stride = 0;
  unsigned shift = 0;
  Word* words = nullptr;
  uint8_t* written = nullptr;  // a bit per byte, a byte per word; and HAS_SIGNAL
  std::vector<Shared> buffers;
  std::vector<int16_t> buffer_of;  // by granule
  uint64_t used = 0;               // of the stride
  uint64_t static_bytes = 0;
};

inline Arena arena;

template <class T>
T* map_zeros(uint64_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : static_cast<T*>(address);
}

inline bool reserve_arena(uint64_t blocks) {
  uint64_t stride = 1 << 16;
  unsigned shift = 16;
  while (stride < state.launch->shared_bytes + STATIC_LIMIT + 128 * GRANULE) stride *= 2, shift++;
  uint64_t bytes = blocks * stride;
  arena.buffers.clear();
  arena.buffer_of.assign(stride / GRANULE, -1);
  arena.used = GRANULE;
  arena.static_bytes = 0;
  arena.stride = stride;
  arena.shift = shift;
  if (bytes <= arena.bytes) return true;
  if (arena.begin) {
    munmap(arena.begin, arena.bytes);
    munmap(arena.words, arena.bytes / 4 * sizeof(Word));
    munmap(arena.written, arena.bytes / 4);
  }
  arena.begin = map_zeros<char>(bytes);
  arena.words = map_zeros<Word>(bytes / 4 * sizeof(Word));
  arena.written = map_zeros<uint8_t>(bytes / 4);
  arena.bytes = arena.begin && arena.words && arena.written ? bytes : 0;
  return arena.bytes;
}

// Of an address in the arena; larger than it for any other.
inline uint64_t offset_of(const void* address) {
  return reinterpret_cast<uint64_t>(address) - reinterpret_cast<uint64_t>(arena.begin);
}

// What shared memory holds when a block starts.
inline void fill_with_garbage(const Shared& buffer) {
  for (uint64_t block = 0; block < state.blocks.size(); block++) {
    uint64_t start = block * arena.stride + buffer.offset;
    memset(arena.begin + start, 0xCD, buffer.bytes);
    memset(arena.written + start / 4, 0, (buffer.bytes + 3) / 4);
  }
}

inline void* shared_buffer(const char* name, const void* key, uint64_t bytes, uint64_t alignment) {
  uint64_t base = state.current->block->place * arena.stride;
  for (const Shared& buffer : arena.buffers)
    if (buffer.key == key) return arena.begin + base + buffer.offset;
  if (alignment > GRANULE) fail("shared %s is aligned to %lu bytes, more than the emulator can", name, alignment);
  uint64_t offset = arena.used;
  uint64_t next = (offset + bytes + 2 * GRANULE - 1) / GRANULE * GRANULE;
  if (next > arena.stride) fail("shared buffers with %s need more than the emulator has room for", name);
  Shared buffer{name, key, offset, bytes};
  for (uint64_t at = offset; at < offset + bytes; at += GRANULE)
    arena.buffer_of[at / GRANULE] = static_cast<int16_t>(arena.buffers.size());
  arena.buffers.push_back(buffer);
  arena.used = next;
  fill_with_garbage(buffer);
  return arena.begin + base + offset;
}

inline const char* verb(Kind kind) {
  static const char* const verbs[] = {"",      "reads",            "writes",            "updates",
                                      "fences", "atomically reads", "atomically writes", "atomically updates"};
  return verbs[kind & UPDATES];
}

// The nearest buffer at or below an address outside all of them, for the message.
[[noreturn]] inline void fail_outside_shared(uint64_t offset, unsigned size, Kind kind, uint32_t code) {
  const Shared* nearest = nullptr;
  int64_t distance = 0;
  uint64_t local = offset & (arena.stride - 1);
  for (const Shared& buffer : arena.buffers) {
    auto before = static_cast<int64_t>(buffer.offset - local);
    auto after = static_cast<int64_t>(local + size - buffer.offset - buffer.bytes);
    int64_t away = std::max(before, after);
    if (!nearest || away < distance) nearest = &buffer, distance = away;
  }
  if (!nearest) accuse(code, "%s shared memory that the block does not have", verb(kind));
  accuse(code, "%s %u bytes at byte %ld of shared %s, which has %lu bytes", verb(kind), size,
         static_cast<long>(local - nearest->offset), nearest->name, nearest->bytes);
}

inline void check_remote(Block& owner, uint32_t code) {
  Thread& self = *state.current;
  unsigned number = owner.index.x;
  if (owner.cluster != self.block->cluster)
    accuse(code, "touches shared memory of block %u, which is of another cluster", number);
  if (!self.clusters_waited && !self.grid_time)
    accuse(code, "touches shared memory of block %u, which may not have started before any cluster barrier", number);
  if (!owner.alive) accuse(code, "touches shared memory of block %u after that block exited", number);
  if (self.sending) return;  // what is sent is waited for by its receiver
  self.remote_times[owner.rank] = state.now;
  self.remote_code[owner.rank] = code;
}

// Call `each(word, bytes)` for words and which of their bytes are meant.
template <class Each>
void for_words(uint64_t offset, unsigned size, Each each) {
  for (uint64_t at = offset; at < offset + size;) {
    unsigned first = at & 3, count = static_cast<unsigned>(std::min<uint64_t>(4 - first, offset + size - at));
    each(at / 4, ((1u << count) - 1) << first);
    at += count;
  }
}

inline void deliver(Signal& signal, size_t number) {
  std::swap(signal.on_the_way[number], signal.on_the_way.back());
  const Delivery its = signal.on_the_way.back();
  signal.on_the_way.pop_back();
  state.on_the_way--;
  memcpy(its.to, its.from ? static_cast<const void*>(its.from) : &its.bits, its.bytes);
  for_words(offset_of(its.to), its.bytes, [](uint64_t word, unsigned bytes) { arena.written[word] |= static_cast<uint8_t>(bytes); });
  signal.arrived += its.bytes;
}

// What was sent arrives at any time.
inline void maybe_deliver() {
  if (!state.on_the_way || draw() % 16) return;
  Signal& signal = state.signals[draw() % state.signals.size()];
  if (!signal.on_the_way.empty()) deliver(signal, draw() % signal.on_the_way.size());
}

inline void access_word(uint64_t word, unsigned bytes, const Shared& buffer, Kind kind, bool remote, uint32_t code) {
  uint64_t at = ((word * 4) & (arena.stride - 1)) - buffer.offset;
  if (kind & WRITES && !(kind & SIGNAL) && arena.written[word] & HAS_SIGNAL)
    accuse(code, "%s byte %lu of shared %s, where a signal lies", verb(kind), at, buffer.name);
  Kind older;
  const Record* record = state.launch->check_races ? race(arena.words[word], kind, bytes, remote, code, older) : nullptr;
  if (record) {
    Text self, other;
    Place here, there;
    fail("race on shared %s, byte %lu: %s %s it, %s, and %s %s it, %s, with no %s between", buffer.name, at,
         describe(record->owner(), other), verb(older), place(record->code, there), describe(*state.current, self),
         verb(kind), place(code, here), record->signal ? "wait for the signal that counts it" : "barrier");
  }
  if (kind & READS && state.launch->check_uninitialised && bytes & ~arena.written[word])
    accuse(code, "%s byte %lu of shared %s, which nobody wrote", verb(kind), at, buffer.name);
  if (kind & WRITES && !state.current->sending) arena.written[word] |= static_cast<uint8_t>(bytes);  // else on arrival
}

inline void access_shared(uint64_t offset, unsigned size, Kind kind, uint32_t code) {
  uint64_t local = offset & (arena.stride - 1);
  int number = arena.buffer_of[local / GRANULE];
  if (number < 0) fail_outside_shared(offset, size, kind, code);
  const Shared& buffer = arena.buffers[static_cast<size_t>(number)];
  if (local + size > buffer.offset + buffer.bytes) fail_outside_shared(offset, size, kind, code);
  Block& owner = state.blocks[offset >> arena.shift];
  bool remote = &owner != state.current->block;
  if (remote) check_remote(owner, code);
  for_words(offset, size, [&](uint64_t word, unsigned bytes) { access_word(word, bytes, buffer, kind, remote, code); });
  maybe_deliver();
  maybe_preempt();
}

inline void access_tensor(uint64_t address, unsigned size, Kind kind, uint32_t code) {
  const simt_launch& launch = *state.launch;
  const simt_tensor* nearest = nullptr;
  uint64_t distance = 1 << 20;  // farther away it is not the tensor that was meant
  for (uint32_t i = 0; i < launch.tensor_count; i++) {
    const simt_tensor& tensor = launch.tensors[i];
    uint64_t at = address - tensor.address;
    if (at < tensor.bytes && size <= tensor.bytes - at) {
      if (kind & WRITES && !tensor.writable) accuse(code, "%s %s, which is const", verb(kind), tensor.name);
      if (launch.programmatic && !state.current->dependency_met)
        accuse(code, "%s %s before it waited for the preceding launch", verb(kind), tensor.name);
      return;
    }
    uint64_t away = at < tensor.bytes ? 0 : std::min(at - tensor.bytes, tensor.address - address);
    if (away < distance) nearest = &tensor, distance = away;
  }
  if (address >= state.image_begin && address + size <= state.image_end) return;  // a table of the kernel's own
  if (address < 4096) accuse(code, "%s through a null pointer", verb(kind));
  if (!nearest) accuse(code, "%s address 0x%lx, which is in no buffer", verb(kind), address);
  accuse(code, "%s %u bytes at byte %ld of %s, which has %lu bytes", verb(kind), size,
         static_cast<long>(address - nearest->address), nearest->name, nearest->bytes);
}

inline void access(const void* pointer, unsigned size, Kind kind, uint32_t code) {
  auto address = reinterpret_cast<uint64_t>(pointer);
  if (!state.current) return;  // a library is being loaded
  if (address - reinterpret_cast<uint64_t>(state.current->stack) < STACK_BYTES) return;  // a local variable
  uint64_t offset = offset_of(pointer);
  if (offset < state.blocks.size() * arena.stride)
    access_shared(offset, size, kind, code);
  else
    access_tensor(address, size, kind, code);
}

inline void check_alignment(const void* address, unsigned bytes, Kind kind, uint32_t code) {
  if (reinterpret_cast<uint64_t>(address) % bytes)
    accuse(code, "%s %u bytes at an address that is not a multiple of %u", verb(kind), bytes, bytes);
}

}  // namespace simt
