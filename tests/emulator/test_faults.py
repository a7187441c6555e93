"""What goes wrong on a GPU in silence, or ends its process, is an exception here that says what happened."""

import re

import pytest
import torch

from tests.emulator.emulator import EmulatorError
from tests.emulator.programs import SIGNALS, Programs, launch

RACE = r"race on shared words|which nobody wrote"
X = torch.arange(64, dtype=torch.int32)

REVERSE = """
__shared__ int words[64];
words[threadIdx.x] = x[threadIdx.x];
__syncthreads();
values[threadIdx.x] = words[63 - threadIdx.x];
"""


def test_a_missing_barrier_is_a_race(programs: Programs) -> None:
    assert launch(programs.emulator(REVERSE, threads=64), X, size=64) == X.tolist()[::-1]
    broken = programs.emulator(REVERSE.replace("__syncthreads();", ""), threads=64)
    # In order, thread 32 is the first to read what another one has written.
    message = r"race on shared words, byte 124: thread 31 .* writes it, at line 4 .*thread 32 of block 0 reads it"
    with pytest.raises(EmulatorError, match=message):
        launch(
            programs.emulator(REVERSE.replace("__syncthreads();", "if (threadIdx.x < 32) return;"), threads=64),
            X,
            size=64,
        )
    for seed in range(5):
        with pytest.raises(EmulatorError, match=RACE):
            launch(broken, X, size=64, seed=seed, preempt=2)


def test_a_missing_barrier_gives_wrong_numbers(programs: Programs) -> None:
    body = "__shared__ int sum; if (threadIdx.x == 0) sum = 0; __syncthreads(); SUM; __syncthreads(); values[0] = sum;"
    right = programs.emulator(body.replace("SUM", "atomicAdd(&sum, 1)"))
    wrong = programs.emulator(body.replace("SUM", "sum = sum + 1"))
    assert {launch(right, size=1, seed=seed, preempt=2)[0] for seed in range(5)} == {32}
    assert {launch(wrong, size=1, seed=seed, preempt=2, races=False)[0] for seed in range(5)} != {32}


BAD_ACCESSES = {
    "after the end": (
        "values[threadIdx.x + n] = 1;",
        r"thread 0 .* writes 4 bytes at byte 256 of values, which has 256",
    ),
    "before the start": (
        "values[(int)threadIdx.x - 1] = 1;",
        r"thread 0 of block 0 writes 4 bytes at byte -4 of values",
    ),
    "one byte": (
        "((char*)values)[255 + threadIdx.x] = 1;",
        r"thread 1 of block 0 writes 1 bytes at byte 256 of values",
    ),
    "a read": ("values[0] = x[threadIdx.x * 3];", r"thread 22 .* reads 4 bytes at byte 264 of x, which has 256 bytes"),
    "a vector": (
        "*(uint4*)(values + 4 * threadIdx.x) = uint4{};",
        r"thread 16 of block 0 writes 16 bytes at byte 256 of values",
    ),
    "a vector of which little is used": (
        "uint4 v = *(uint4*)(x + 4 * threadIdx.x); values[0] = v.x;",
        r"thread 16 of block 0 reads 16 bytes at byte 256 of x",
    ),
    "many bytes": ("memset(values, 0, 260);", r"writes 260 bytes at byte 0 of values"),
    "a constant tensor": ("((int*)x)[0] = 1;", r"writes x, which is const"),
    "null": ("*(int*)nullptr = 1;", r"null pointer"),
    "nowhere": ("*(int*)0x1234567890 = 1;", r"which is in no buffer"),
    "index of a shared array": (
        "__shared__ int words[8]; words[threadIdx.x] = 1;",
        r"thread 8 of block 0 uses index 8 of an array of type 'int ?\[8\]'",
    ),
    "after a shared array": (
        "__shared__ int words[8]; int* p = words; p[threadIdx.x] = 1;",
        r"thread 8 of block 0 writes 4 bytes at byte 32 of shared words, which has 32 bytes",
    ),
    "before a shared array": (
        "__shared__ int words[8]; int* p = words; p[-(int)threadIdx.x] = 1;",
        r"thread 1 of block 0 writes 4 bytes at byte -4 of shared words",
    ),
    "after dynamic shared memory": (
        "extern __shared__ uchar all[]; all[100 + threadIdx.x] = 1;",
        r"thread 28 .* at byte 128 of shared all",
    ),
    "after a part of dynamic shared memory": (
        """extern __shared__ __align__(1024) uchar buf_dyn_shmem[];
        void* first = ((void*)((char*)buf_dyn_shmem + 0));
        void* second = ((void*)((char*)buf_dyn_shmem + 64));
        ((int*)first)[threadIdx.x] = 1;""",
        r"thread 16 of block 0 writes 4 bytes at byte 64 of shared first, which has 64 bytes",
    ),
    "an atomic on nothing": ("__shared__ int words[64]; atomicAdd(words + threadIdx.x, 1);", r"which nobody wrote"),
    "a read of nothing": ("__shared__ int words[64]; values[0] = words[threadIdx.x];", r"which nobody wrote"),
    "an askew vector": ("*(uint4*)(values + threadIdx.x) = uint4{};", r"thread 1 .* not a multiple of 16"),
    "an askew word": ("values[0] = *(int*)((char*)x + threadIdx.x);", r"thread 1 .* not a multiple of 4"),
    "an askew atomic": (
        "atomicAdd((unsigned long long*)(values + threadIdx.x), 1ull);",
        r"thread 1 .* not a multiple of 8",
    ),
    "a local array": (
        "int local[4] = {1, 2, 3, 4}; values[0] = local[threadIdx.x];",
        r"thread 4 of block 0 uses index 4 of an array",
    ),
    "a quotient": ("values[0] = 7 / (n - 64 + (int)threadIdx.x);", r"divides by zero"),
    "a shift": ("values[0] = 1 << (n + threadIdx.x);", r"shifts 'int' by 64"),
    "an assertion": ("assert(threadIdx.x < 9);", r"assertion failed: threadIdx.x < 9"),
    "an atomic for tensors alone": (
        "__shared__ int word; if (threadIdx.x == 0) { word = 0; AtomicOr(&word, 1); }",
        r"AtomicOr takes no address in shared memory",
    ),
}
"""By what is wrong: a body for 32 threads, x and values of 64 integers and n = 64, and what the report says."""


@pytest.mark.parametrize(("body", "message"), BAD_ACCESSES.values(), ids=BAD_ACCESSES)
def test_bad_accesses(programs: Programs, body: str, message: str) -> None:
    with pytest.raises(EmulatorError, match=message):
        launch(programs.emulator(body, shared=128), X, size=64, n=64)


def test_bad_accesses_name_their_line(programs: Programs) -> None:
    before = "template <typename V>\n__device__ __forceinline__ V load(V* address) {\n  return *address;\n}\n"
    with pytest.raises(EmulatorError, match=re.escape("at line 3 (return *address;)")):
        launch(programs.emulator("values[0] = load(x + 64);", before=before), X)


NO_MEETINGS = {
    "two barriers": (
        "if (threadIdx.x < 32) __syncthreads(); else __shfl_sync(~0u, 1, 0);\n__syncthreads();",
        r"comes to __syncthreads at line 3 while others wait at the one at line 2",
    ),
    "a barrier in each branch": (
        "if (threadIdx.x) __syncthreads();\nelse __syncthreads();",
        r"line \d while others wait",
    ),
    "a barrier and a shuffle": (
        "if (threadIdx.x < 33) __syncthreads(); else __shfl_sync(~0u, 1, 0);",
        r"deadlock: 31 .* at __shfl_sync of warp 1 with mask 0xf{8} \(line 2\), 33 .* at __syncthreads \(line 2\)",
    ),
    "two votes": (
        "if (threadIdx.x % 2) __ballot_sync(~0u, 1); else __any_sync(~0u, 1);",
        r"deadlock: 16 threads of block 0 at __any_sync of warp 0 .*, 16 threads of block 0 at __ballot_sync",
    ),
    "an exited lane": (
        "if (threadIdx.x % 32 != 5) __shfl_sync(~0u, 1, 0);",
        r"thread 5 .* exits while|lane 5 has exited",
    ),
    "exited lanes": ("if (threadIdx.x > 40) __syncwarp();", r"thread 32 .* exits while lanes|lane 0 has exited"),
    "a lane that is not in its mask": ("__shfl_sync(1, 1, 0);", r"mask 0x1, which lacks its own lane 1"),
    "a source that is not in the mask": (
        "if (threadIdx.x < 8) __shfl_sync(255, 1, 9);",
        r"reads lane 9 with __shfl_sync at line 2, which is not in mask 0xff",
    ),
    "a named barrier for too many": ("tl::__sync_thread_partial(1, 96);", r"not a multiple of 32 up to the block's 64"),
    "a named barrier that few come to": (
        "if (threadIdx.x < 32) tl::__sync_thread_partial(3, 64);",
        r"deadlock: 32 threads of block 0 at named barrier 3",
    ),
    "an endless loop": (
        "unsigned i = n; while (i != 7) i = i * 1664525 + 1013904223; values[0] = i;",
        r"no end in sight",
    ),
    "a flag that nobody sets": ("volatile int* flag = values; while (*flag == -1) {}", r"no end in sight"),
    "a grid that is not resident": ("cooperative_groups::this_grid().sync();", r"needs a cooperative launch"),
    "recursion": (
        """struct Deep {
          static int run(int n) { volatile int a[99]; a[n] = n; return n < 0 ? 0 : run(n) + a[n]; }
        };
        values[0] = Deep::run(5);""",
        r"used up its stack",
    ),
}
"""By what is wrong: a body for 64 threads, and what the report says."""


@pytest.mark.parametrize(("body", "message"), NO_MEETINGS.values(), ids=NO_MEETINGS)
def test_threads_that_never_meet(programs: Programs, body: str, message: str) -> None:
    with pytest.raises(EmulatorError, match=message):
        launch(programs.emulator(body, threads=64), size=64, n=1000, step_limit=300_000)


@pytest.mark.parametrize("between", ["", "__shfl_sync(~0u, 1, 0);", "__syncwarp(t < 16 ? 0xFFFF : 0xFFFF0000);"])
def test_lanes_are_ordered_by_syncwarp_alone(programs: Programs, between: str) -> None:
    body = "__shared__ int words[32]; int t = threadIdx.x; words[t] = t; BETWEEN values[t] = words[31 - t];"
    assert launch(programs.emulator(body.replace("BETWEEN", "__syncwarp();"))) == list(range(31, -1, -1))
    with pytest.raises(EmulatorError, match=RACE):
        launch(programs.emulator(body.replace("BETWEEN", between)))


@pytest.mark.parametrize("seed", range(4))
def test_named_barriers_order_those_who_come(programs: Programs, seed: int) -> None:
    body = """
    __shared__ int words[96];
    int t = threadIdx.x, warp = t / 32;
    if (warp == 0) { words[t] = t; tl::__named_barrier_arrive(1, 96); WRITE }
    else { tl::__sync_thread_partial(1, 96); values[t - 32] = words[t % 32]; }
    """
    right = programs.emulator(body.replace("WRITE", ""), threads=96)
    assert launch(right, size=64, seed=seed, preempt=2) == [t % 32 for t in range(64)]
    wrong = programs.emulator(body.replace("WRITE", "words[t] = 7;"), threads=96)
    with pytest.raises(EmulatorError, match="race on shared words"):
        launch(wrong, size=64, seed=seed, preempt=2)


def test_atomics_race_with_plain_accesses_only(programs: Programs) -> None:
    body = """
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, 1);
    BETWEEN
    values[threadIdx.x] = sum;
    """
    assert launch(programs.emulator(body.replace("BETWEEN", "__syncthreads();"))) == [32] * 32
    with pytest.raises(EmulatorError, match=r"race on shared sum.* reads it.* atomically updates it"):
        launch(programs.emulator(body.replace("BETWEEN", "")))


CLUSTER = """
__shared__ int word;
auto cluster = cooperative_groups::this_cluster();
if (threadIdx.x == 0) word = cluster.block_rank();
START
if (threadIdx.x == 0) values[blockIdx.x] = *cluster.map_shared_rank(&word, (cluster.block_rank() + 1) % 2);
END
"""


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ("", "cluster.sync();", "before any cluster barrier"),
        ("__syncthreads();", "cluster.sync();", "before any cluster barrier"),
        ("cluster.sync();", "", "after that block exited|may exit before thread 0"),
        ("cluster.sync();", "if (threadIdx.x == 0) word = 5; cluster.sync();", "race on shared word"),
        ("cluster.sync(); cluster.map_shared_rank(&word, 2);", "", "asks for block 2 of a cluster of 2"),
        ("cluster.barrier_wait();", "", "without having arrived"),
        ("if (cluster.block_rank()) cluster.sync(); else __syncwarp(5);", "", "deadlock|lacks its own lane"),
        ("tl::cluster_arrive_relaxed(); tl::cluster_wait();", "cluster.sync();", "race on shared word"),
    ],
)
def test_faults_of_clusters(programs: Programs, start: str, end: str, message: str) -> None:
    emulator = programs.emulator(CLUSTER.replace("START", start).replace("END", end), cluster=2)
    for seed, preempt in [(0, 0), (1, 1), (2, 1)]:
        with pytest.raises(EmulatorError, match=message):
            launch(emulator, size=4, grid=4, seed=seed, preempt=preempt)
    right = programs.emulator(CLUSTER.replace("START", "cluster.sync();").replace("END", "cluster.sync();"), cluster=2)
    assert launch(right, size=4, grid=4) == [1, 0, 1, 0]


def test_work_between_the_halves_of_a_cluster_barrier(programs: Programs) -> None:
    body = CLUSTER.replace("START", "tl::cluster_arrive(); MIDDLE tl::cluster_wait();").replace(
        "END", "cluster.sync();"
    )
    assert launch(programs.emulator(body.replace("MIDDLE", ""), cluster=2), size=2, grid=2, preempt=1) == [1, 0]
    late = programs.emulator(body.replace("MIDDLE", "if (threadIdx.x == 0) word = 9;"), cluster=2)
    with pytest.raises(EmulatorError, match="race on shared word"):
        launch(late, size=2, grid=2)


def test_copies_that_nobody_waits_for(programs: Programs) -> None:
    body = """
    __shared__ __align__(16) int words[128];
    tl::cp_async_gs<16>(words + threadIdx.x * 4, x + threadIdx.x * 4);
    tl::cp_async_commit();
    values[threadIdx.x] = words[threadIdx.x * 4];
    """
    with pytest.raises(EmulatorError, match="reads byte 0 of shared words, which nobody wrote"):
        launch(programs.emulator(body), torch.arange(128, dtype=torch.int32))


SENDING = """
__shared__ __align__(16) unsigned words[4];
__shared__ __align__(16) unsigned own[4];
__shared__ Signal signal;
__shared__ Signal other;
auto cluster = cooperative_groups::this_cluster();
unsigned t = threadIdx.x, rank = cluster.block_rank(), peer = 1 - rank;
auto words_of = [](auto* address) { return reinterpret_cast<unsigned*>(address); };
for (unsigned i = t; i < 4; i += blockDim.x) words[i] = 5, own[i] = 7;
before_copies();
if (t == 0) begin_signal(&signal), begin_signal(&other);
if (t == 0) expect(&signal, BYTES), expect(&other, 16);
cluster.sync();
"""
"""Two blocks, each with a signal that is to be sent BYTES, and another."""

SIGNAL_FAULTS = {
    "a barrier in place of waiting": (
        "if (t == 0) send(words, 1u, &signal, peer); cluster.sync();",
        r"exits before it has waited for what thread 0 of block \d sends, at line \d+ \(if \(t == 0\) send",
    ),
    "another signal that is waited for": (
        "if (t < 4) send(words + t, 1u, &other, peer); if (t == 0) send(own, 1u, &signal, peer); wait_for(&other);",
        r"exits before it has waited for what|after that block exited",
    ),
    "less than is waited for": (
        "if (t < 2) send(words + t, 1u, &signal, peer); wait_for(&signal); cluster.sync();",
        r"makes it 8 bytes that are sent to a signal which expects 4",
    ),
    "a receiver that exits first": (
        "if (peer) return; for (int i = 0; i < 9; i++) __nanosleep(1); if (t == 0) send(words, 1u, &signal, peer);",
        r"exits before it has waited for|after that block exited",
    ),
    "a source that exits first": (
        "if (t == 0 && peer) send_copy(words, own, 16, &other, peer); if (!peer) wait_for(&other);",
        r"block 0 may exit before what it sends is copied .*send_copy.*: no cluster barrier after block 1 has waited",
    ),
    "a source that is written too soon": (
        "if (t == 0) send_copy(words, own, 16, &other, peer); __syncwarp(); if (t == 1) own[0] = 1; wait_for(&other);",
        r"race on shared own, byte 0: thread 0 .* reads it.*writes it.*with no wait for the signal that counts it",
    ),
    "a store to a signal": (
        "if (t == 1) words_of(&signal)[1] = 0;",
        r"thread 1 of block \d writes byte 4 of shared signal, where a signal lies",
    ),
    "an atomic on a signal": (
        "if (t == 1) atomicAdd(words_of(&signal), 1u);",
        r"atomically updates .*where a signal lies",
    ),
    "many bytes on a signal": ("if (t == 1) memset(&signal, 0, 8);", r"writes byte 0 .*where a signal lies"),
    "a store to the signal of another block": (
        "if (t == 0) *cluster.map_shared_rank(words_of(&signal), peer) = 0; cluster.sync();",
        r"writes byte 0 of shared signal, where a signal lies",
    ),
    "what is sent to a signal": (
        "if (t == 0) send(words_of(&signal), 1u, &signal, peer); wait_for(&signal);",
        r"writes byte 0 of shared signal, where a signal lies",
    ),
    "a store to a signal that was waited for": (
        "if (t == 0) send(words, 1u, &signal, peer); wait_for(&signal); cluster.sync(); words_of(&signal)[t % 2] = 0;",
        r"where a signal lies",
    ),
    "a signal where one lies": ("if (t == 0) begin_signal(&signal);", r"thread 0 .* begins a signal where one lies"),
    "a signal that is told twice": ("if (t == 0) expect(&signal, 4);", r"tells a signal once more how much to expect"),
    "a signal that nobody began": (
        "if (t == 0) send(words, 1u, reinterpret_cast<Signal*>(own), peer);",
        r"uses a signal that nobody began",
    ),
    "a read behind a barrier": (
        "if (t == 0) send(words, 1u, &signal, peer); cluster.sync(); values[t] = words[0]; wait_for(&signal);",
        r"race on shared words, byte 0: .* writes it.* reads it.*with no wait for the signal that counts it",
    ),
    "a read by the sender": (
        "if (t == 0) { send(words, 1u, &signal, rank); values[0] = words[0]; } wait_for(&signal);",
        r"race on shared words, byte 0: .* writes it.* reads it.*with no wait for the signal that counts it",
    ),
}
"""By what is wrong: what follows `SENDING` for 4 bytes, and what the report says."""


@pytest.mark.parametrize(("body", "message"), SIGNAL_FAULTS.values(), ids=SIGNAL_FAULTS)
def test_faults_of_signals(programs: Programs, body: str, message: str) -> None:
    emulator = programs.emulator(SENDING.replace("BYTES", "4") + body, before=SIGNALS, cluster=2)
    for seed, preempt in [(0, 0), (1, 1), (2, 1), (3, 5)]:
        with pytest.raises(EmulatorError, match=message):
            launch(emulator, grid=2, seed=seed, preempt=preempt)


def test_signals_may_be_sent_nothing(programs: Programs) -> None:
    right = "if (t == 0) send(words, 1u, &signal, peer); wait_for(&signal); values[t] = words[0];"
    emulator = programs.emulator(SENDING.replace("BYTES", "4") + right, before=SIGNALS, cluster=2)
    for seed, preempt in [(0, 0), (1, 1), (2, 5)]:
        assert launch(emulator, grid=2, seed=seed, preempt=preempt) == [1] * 32


BEGINNING = """
__shared__ unsigned word;
__shared__ Signal signal;
unsigned t = threadIdx.x, peer = 1 - cooperative_groups::this_cluster().block_rank();
if (t == 0) begin_signal(&signal), expect(&signal, 4);
BARRIER
if (t == 1) send(&word, 1u, &signal, peer);
wait_for(&signal);
values[t] = word;
"""


def test_signals_are_begun_behind_any_barrier_of_the_cluster(programs: Programs) -> None:
    relaxed, late = (
        programs.emulator(BEGINNING.replace("BARRIER", barrier), before=SIGNALS, cluster=2)
        for barrier in ("tl::cluster_arrive_relaxed(); tl::cluster_wait();", "__syncthreads();")
    )
    for seed, preempt in [(0, 0), (1, 1), (2, 5)]:
        assert launch(relaxed, grid=2, seed=seed, preempt=preempt) == [1] * 32
        with pytest.raises(EmulatorError, match=r"uses a signal that nobody began|may not have begun"):
            launch(late, grid=2, seed=seed, preempt=preempt)


DELAYS = {
    "a read before it arrives": ("send(words, 1u, &signal, peer); cluster.sync(); values[0] = words[0];", 5, 1),
    "a write before it arrives": (
        "send(words, 1u, &signal, peer); cluster.sync(); words[0] = 9; wait_for(&signal); values[0] = words[0];",
        9,
        1,
    ),
    "a copy before it arrives": (
        "send_copy(words, own, 16, &signal, peer); cluster.sync(); values[0] = words[3];",
        5,
        7,
    ),
    "the source of a copy": (
        "send_copy(words, own, 16, &signal, peer); own[3] = 9; wait_for(&signal); values[0] = words[3];",
        9,
        7,
    ),
}
"""By what meets what is on its way: what follows `SENDING` for one thread, and the numbers that it may leave."""


@pytest.mark.parametrize("preempt", [0, 1])
@pytest.mark.parametrize(("body", "one", "other"), DELAYS.values(), ids=DELAYS)
def test_what_is_sent_arrives_late_or_soon(programs: Programs, body: str, one: int, other: int, preempt: int) -> None:
    """But always the same by a seed. Were races told, these were."""
    text = SENDING.replace("BYTES", "16" if "copy" in body else "4") + body + "wait_for(&signal); cluster.sync();"
    emulator = programs.emulator(text, before=SIGNALS, threads=1, cluster=2)

    def found(seed: int) -> int:
        return launch(emulator, size=1, grid=2, seed=seed, preempt=preempt, races=False)[0]

    numbers = [found(seed) for seed in range(12)]
    assert set(numbers) == {one, other}
    assert numbers == [found(seed) for seed in range(12)]
    with pytest.raises(EmulatorError, match="race on shared"):
        launch(emulator, size=1, grid=2, preempt=preempt)


def test_a_launch_must_wait_for_its_predecessor(programs: Programs) -> None:
    emulator = programs.emulator("values[threadIdx.x] = 1; cudaGridDependencySynchronize();", programmatic_launch=True)
    with pytest.raises(EmulatorError, match="writes values before it waited for the preceding launch"):
        launch(emulator)


def test_text_that_does_not_compile(programs: Programs) -> None:
    with pytest.raises(EmulatorError, match=r"kernel.cu:2.*no_such_function"):
        programs.emulator("no_such_function();")
    with pytest.raises(EmulatorError, match="frame size"):
        programs.emulator("int big[40000]; for (int i = 0; i < n; i++) big[i] = i; values[0] = big[n - 1];")
    with pytest.raises(EmulatorError, match="does not know the assembly"):
        programs.emulator('asm volatile("wgmma.fence.sync.aligned;");')


def test_arguments_that_do_not_fit(programs: Programs) -> None:
    emulator = programs.emulator("values[threadIdx.x] = n;", cluster=2)
    with pytest.raises(EmulatorError, match="no whole clusters of 2"):
        launch(emulator, grid=3)
    with pytest.raises(EmulatorError, match="a tensor or 0"):
        launch(emulator, x=5, grid=2)


def test_the_process_goes_on_after_a_failure(programs: Programs) -> None:
    broken, right = programs.emulator("values[threadIdx.x + n] = 1;"), programs.emulator("values[threadIdx.x] = n;")
    for _ in range(50):
        with pytest.raises(EmulatorError, match="writes 4 bytes"):
            launch(broken, n=1)
        assert launch(right, n=3) == [3] * 32
