"""Every function that kernels may call answers as CUDA documents, in any order of threads."""

import itertools
import random
from collections.abc import Callable

import pytest
import torch

from tests.emulator.emulator import Emulator, EmulatorError
from tests.emulator.programs import SIGNALS, Programs, launch

ORDERS = [(0, 0), (1, 1), (2, 3), (3, 20)]
"""(seed, preempt)."""

Lanes = list[int]


def signed(value: int) -> int:
    """As an int32."""
    return (value + 2**31) % 2**32 - 2**31


def draws(seed: int, low: int, high: int, count: int) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(low, high) for _ in range(count)]


def mask(lanes: Lanes, chosen: Callable[[int], object]) -> int:
    return sum(1 << i for i, value in enumerate(lanes) if chosen(value))


def fold(function: Callable[[int, int], int], lanes: Lanes) -> int:
    return list(itertools.accumulate(lanes, function))[-1]


def table(expressions: list[str]) -> str:
    """A body that stores each expression's 32 answers."""
    stores = "\n".join(f"values[{i} * 32 + lane] = {expression};" for i, expression in enumerate(expressions))
    return f"int lane = threadIdx.x, v = x[lane];\n{stores}"


WARP: dict[str, tuple[str, Callable[[Lanes], Lanes]]] = {
    "shfl": ("__shfl_sync(~0u, v, lane * 7 + 3)", lambda v: [v[(i * 7 + 3) % 32] for i in range(32)]),
    "shfl_width": ("__shfl_sync(~0u, v, 5, 8)", lambda v: [v[i // 8 * 8 + 5] for i in range(32)]),
    "shfl_up": ("__shfl_up_sync(~0u, v, 3)", lambda v: [v[i - 3] if i >= 3 else v[i] for i in range(32)]),
    "shfl_up_width": ("__shfl_up_sync(~0u, v, 3, 8)", lambda v: [v[i - 3] if i % 8 >= 3 else v[i] for i in range(32)]),
    "shfl_down": ("__shfl_down_sync(~0u, v, 9)", lambda v: [v[i + 9] if i < 23 else v[i] for i in range(32)]),
    "shfl_down_width": (
        "__shfl_down_sync(~0u, v, 9, 16)",
        lambda v: [v[i + 9] if i % 16 < 7 else v[i] for i in range(32)],
    ),
    "shfl_xor": ("__shfl_xor_sync(~0u, v, 21)", lambda v: [v[i ^ 21] for i in range(32)]),
    "shfl_64": (
        "(int)(__shfl_xor_sync(~0u, (long long)v << 32 | lane, 1) >> 32) + (int)__shfl_xor_sync(~0u, (double)lane, 2)",
        lambda v: [v[i ^ 1] + (i ^ 2) for i in range(32)],
    ),
    "shfl_16": ("__shfl_xor_sync(~0u, half_t(lane), 4)", lambda v: [i ^ 4 for i in range(32)]),
    "ballot": ("(int)__ballot_sync(~0u, v & 1)", lambda v: [signed(mask(v, lambda a: a & 1))] * 32),
    "any": ("__any_sync(~0u, v == x[9])", lambda v: [1] * 32),
    "all": ("__all_sync(~0u, v == x[9])", lambda v: [0] * 32),
    "match_any": (
        "(int)__match_any_sync(~0u, v & 3)",
        lambda v: [signed(mask(v, lambda a, b=b: a & 3 == b & 3)) for b in v],  # type: ignore[misc]
    ),
    "match_all": (
        "({ int same; int m = __match_all_sync(~0u, n, &same); m == -1 && same; })",
        lambda v: [1] * 32,
    ),
    "match_not_all": (
        "({ int same; unsigned m = __match_all_sync(~0u, v & 1, &same); m == 0 && !same; })",
        lambda v: [1] * 32,
    ),
    "reduce_add": ("__reduce_add_sync(~0u, v)", lambda v: [signed(sum(v))] * 32),
    "reduce_min": ("__reduce_min_sync(~0u, v)", lambda v: [min(v)] * 32),
    "reduce_max": ("__reduce_max_sync(~0u, v)", lambda v: [max(v)] * 32),
    "reduce_min_unsigned": (
        "(int)__reduce_min_sync(~0u, (unsigned)v)",
        lambda v: [signed(min(a % 2**32 for a in v))] * 32,
    ),
    "reduce_max_unsigned": (
        "(int)__reduce_max_sync(~0u, (unsigned)v)",
        lambda v: [signed(max(a % 2**32 for a in v))] * 32,
    ),
    "reduce_and": (
        "(int)__reduce_and_sync(~0u, v | 5u)",
        lambda v: [fold(lambda a, b: a & b, [a | 5 for a in v])] * 32,
    ),
    "reduce_or": ("(int)__reduce_or_sync(~0u, v & 99)", lambda v: [fold(lambda a, b: a | b, [a & 99 for a in v])] * 32),
    "reduce_xor": ("(int)__reduce_xor_sync(~0u, v)", lambda v: [fold(lambda a, b: a ^ b, v)] * 32),
    "warp_reduce": ("tl::warp_reduce_max(v) - tl::warp_reduce_min(v)", lambda v: [signed(max(v) - min(v))] * 32),
    "halves": (
        "lane < 16 ? __reduce_max_sync(0xFFFF, v) : __reduce_max_sync(0xFFFF0000, v)",
        lambda v: [max(v[:16])] * 16 + [max(v[16:])] * 16,
    ),
    "activemask": ("__activemask() >> lane & 1", lambda v: [1] * 32),
}

BITS: dict[str, tuple[str, Callable[[int], int]]] = {
    "popc": ("__popc(v)", lambda a: a.bit_count()),
    "popcll": ("__popcll((unsigned long long)(unsigned)v << 20)", lambda a: (a << 20 & 2**64 - 1).bit_count()),
    "clz": ("__clz(v)", lambda a: 32 - a.bit_length()),
    "clzll": ("__clzll((unsigned)v)", lambda a: 64 - a.bit_length()),
    "ffs": ("__ffs(v)", lambda a: (a & -a).bit_length()),
    "ffsll": ("__ffsll((unsigned long long)(unsigned)v << 9)", lambda a: (a & -a).bit_length() + 9 if a else 0),
    "brev": ("(int)__brev(v)", lambda a: signed(int(f"{a:032b}"[::-1], 2))),
    "brevll": ("(int)(__brevll(v) >> 32)", lambda a: signed(int(f"{a:032b}"[::-1], 2))),
    "funnel_l": ("(int)__funnelshift_l(v, 77, 5)", lambda a: signed((77 << 32 | a) << 5 >> 32)),
    "funnel_r": ("(int)__funnelshift_r(v, 77, 37)", lambda a: signed((77 << 32 | a) >> 5)),
    "funnel_lc": ("(int)__funnelshift_lc(v, 77, 40)", signed),
    "funnel_rc": ("(int)__funnelshift_rc(v, 77, 40)", lambda a: 77),
    "byte_perm": (
        "(int)__byte_perm(v, 0x55667788, 0x0426)",
        lambda a: signed(0x66 | (a >> 16 & 255) << 8 | 0x88 << 16 | (a & 255) << 24),
    ),
    "byte_perm_without_signs": (  # which prmt has
        "(int)__byte_perm(v, 0, 0xBB99)",
        lambda a: signed((a >> 8 & 255) * 0x0101 | (a >> 24 & 255) * 0x01010000),
    ),
    "umulhi": ("(int)__umulhi(v, 0xDEADBEEF)", lambda a: signed(a * 0xDEADBEEF >> 32)),
    "min_max": ("max(min(v, 1000), -1000)", lambda a: max(min(signed(a), 1000), -1000)),
    "uint2float_rz": (
        "(int)(unsigned)__uint2float_rz(v)",
        lambda a: signed(a % 2**32 >> max(0, (a % 2**32).bit_length() - 24) << max(0, (a % 2**32).bit_length() - 24)),
    ),
    "float_bits": ("__float_as_int(__uint_as_float(v & 0x7F7FFFFF))", lambda a: a & 0x7F7FFFFF),
    "ldg": ("__ldg(x + lane) ^ __ldcs(x + lane) ^ __ldcg(x + lane)", signed),
}


@pytest.mark.parametrize(("seed", "preempt"), ORDERS)
def test_warp(programs: Programs, seed: int, preempt: int) -> None:
    emulator = programs.emulator(table([expression for expression, _ in WARP.values()]))
    lanes = draws(seed, -(2**31), 2**31, 32)
    values = launch(emulator, torch.tensor(lanes, dtype=torch.int32), size=32 * len(WARP), seed=seed, preempt=preempt)
    answers = {name: values[i * 32 : i * 32 + 32] for i, name in enumerate(WARP)}
    assert answers == {name: expected(lanes) for name, (_, expected) in WARP.items()}


def test_bits(programs: Programs) -> None:
    emulator = programs.emulator(table([expression for expression, _ in BITS.values()]))
    patterns = [0, 1, 2**31, 2**32 - 1, *(value >> i for i, value in enumerate(draws(1, 0, 2**32, 28)))]
    x = torch.tensor([signed(pattern) for pattern in patterns], dtype=torch.int32)
    values = launch(emulator, x, size=32 * len(BITS))
    answers = {name: values[i * 32 : i * 32 + 32] for i, name in enumerate(BITS)}
    assert answers == {name: [expected(pattern) for pattern in patterns] for name, (_, expected) in BITS.items()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_floats(programs: Programs, dtype: torch.dtype) -> None:
    name = {torch.float16: "half_t", torch.bfloat16: "bfloat16_t"}[dtype]
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    emulator = programs.emulator(
        f"for (int i = threadIdx.x; i < n; i += 32)"
        f" values[i] = __float_as_int((float)(((const {name}*)x)[i]))"
        f" ^ ({name}((float)((const {name}*)x)[i] * 1.001f)).raw() << 1;"
    )
    values = torch.tensor(launch(emulator, bits.view(torch.int32), size=2**16, n=2**16), dtype=torch.int32)
    wide = bits.view(dtype).float()
    rounded = (wide * 1.001).to(dtype).view(torch.int16).int() & 0xFFFF
    numbers = ~wide.isnan()
    assert torch.equal(values[numbers], (wide.view(torch.int32) ^ rounded << 1)[numbers])


def of_pairs(programs: Programs, operation: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What PTX makes of pairs of narrow floats, by their bits, and the two numbers that each half is made of."""
    kind = {torch.float16: "f16x2", torch.bfloat16: "bf16x2"}[dtype]
    emulator = programs.emulator(
        f"for (int i = threadIdx.x; i < n / 2; i += 32)"
        f' asm("{operation}.{kind} %0, %1, %2;" : "=r"(values[i]) : "r"(x[i]), "r"(x[n - 1 - i]));'
    )
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    bits = bits[torch.randperm(len(bits), generator=torch.Generator().manual_seed(0))]
    pairs = bits.view(torch.int32)
    ours, others = (
        torch.cat([pairs[: 2**14], pairs]),
        torch.cat([pairs.flip(0)[: 2**14], pairs]),
    )  # some, and themselves
    size = len(ours)
    values = launch(emulator, torch.cat([ours, others.flip(0)]), size=size, n=2 * size)
    found = torch.tensor(values, dtype=torch.int32).view(torch.int16)
    return found, ours.view(dtype).float(), others.view(dtype).float()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_larger_of_narrow_floats(programs: Programs, dtype: torch.dtype) -> None:
    found, numbers, others = of_pairs(programs, "max.NaN", dtype)
    expected = torch.maximum(numbers, others)
    assert torch.equal(found.view(dtype).float().nan_to_num(-1e9), expected.nan_to_num(-1e9))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_which_of_narrow_floats_are_at_most_others(programs: Programs, dtype: torch.dtype) -> None:
    """NaN is at most nothing, and nothing at most NaN."""
    found, numbers, others = of_pairs(programs, "set.le.u32", dtype)
    assert torch.equal(found, -(numbers <= others).to(torch.int16))


def test_sums_with_zero_settle_narrow_floats(programs: Programs) -> None:
    """-0 becomes +0, all NaN one, and prmt tells the signs of both halves."""
    emulator = programs.emulator(
        "for (int i = threadIdx.x; i < n; i += 32) {"
        ' unsigned sum, signs; asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(x[i]), "r"(0x3F803F80), "r"(0));'
        ' asm("prmt.b32 %0, %1, %2, %3;" : "=r"(signs) : "r"(sum), "r"(0), "r"(0xBB99)); values[i] = sum ^ signs; }'
    )
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    found = torch.tensor(launch(emulator, bits.view(torch.int32), size=2**15, n=2**15), dtype=torch.int32)
    settled = torch.where(bits.view(torch.bfloat16).isnan(), 0x7FFF, bits.int())
    settled = torch.where(bits.int() == -(2**15), 0, settled).to(torch.int16)
    assert torch.equal(found.view(torch.int16), settled ^ (settled >> 15))


@pytest.mark.parametrize(
    ("operation", "exact"),
    [("rcp", torch.reciprocal), ("rsqrt", torch.rsqrt), ("lg2", torch.log2), ("ex2", torch.exp2)],
)
def test_approximations(operation: str, exact: Callable[[torch.Tensor], torch.Tensor], programs: Programs) -> None:
    """Nearer than what a device has."""
    emulator = programs.emulator(
        "const float* a = (const float*)x; float number; for (int i = threadIdx.x; i < n; i += 32) {"
        f' asm("{operation}.approx.ftz.f32 %0, %1;" : "=f"(number) : "f"(a[i])); values[i] = __float_as_int(number); }}'
    )
    numbers = torch.tensor([0.0, 1e-6, 0.3, 1.0, 7.0, 90.0])
    found = torch.tensor(launch(emulator, numbers.view(torch.int32), size=6, n=6), dtype=torch.int32).view(
        torch.float32
    )
    torch.testing.assert_close(found, exact(numbers))


def test_fused_sums(programs: Programs) -> None:
    """Towards zero, whatever comes next; and by PTX, of which all NaN are one."""
    emulator = programs.emulator(
        "const float* a = (const float*)x; const float* b = a + n; float sum;"
        "for (int i = threadIdx.x; i < n; i += 32) {"
        " values[i] = __float_as_int(__fmaf_rz(a[i], b[i], 2.0f));"
        ' asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a[i]), "f"(b[i]), "f"(2.0f));'
        " values[n + i] = __float_as_int(sum); }"
    )
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 512, generator=generator)
    exact = a.double() * b.double() + 2  # 48 bits of the product, of which the last is 2^-50 or more, and 2
    a[0], a[1] = torch.nan, -torch.nan
    found = torch.tensor(launch(emulator, torch.cat([a, b]).view(torch.int32), size=1024, n=512), dtype=torch.int32)
    down, near = found.view(torch.float32).split(512)
    floor = (exact * 2**22).floor() / 2**22
    assert torch.equal(down[2:].double(), floor[2:])
    assert torch.equal(near[2:], exact.float()[2:])
    assert (floor.float() != exact.float())[2:].any()
    assert found[512:514].tolist() == [0x7FFFFFFF] * 2


BLOCK = """
extern __shared__ int words[];
__shared__ unsigned long long wide[2];
__shared__ float sum;
int t = threadIdx.x, warp = t / 32;
words[t] = x[t];
if (t < 2) wide[t] = 0;
if (t == 0) {
  words[n] = words[n + 3] = sum = 0;
  words[n + 1] = -5;
  words[n + 2] = 0x7FFFFFFF;
  words[n + 4] = -1;
}
__syncthreads();
values[t] = words[n - 1 - t];
__syncthreads();
atomicAdd(&words[n], t);
atomicMax(&words[n + 1], words[t]);
AtomicMin(&words[n + 2], words[t]);
atomicOr((unsigned*)&words[n + 3], 1u << (t % 32));
atomicAnd(&words[n + 4], ~(1 << (t % 7)));
atomicAdd(&wide[0], (unsigned long long)t << 32);
atomicCAS(&wide[1], 0ull, 5ull + (t == 0));
AtomicAdd(&sum, 0.5f);
int mine = AtomicAddRet(&words[t], 1000) - x[t];
__syncthreads();
int counted = __syncthreads_count(t % 3 == 0), some = __syncthreads_or(t == 5), every = __syncthreads_and(t != 5);
if (warp < 2) tl::__sync_thread_partial(1, 64);
if (t == 0) {
  for (int i = 0; i < 5; i++) values[n + i] = words[n + i];
  values[n + 5] = (int)(wide[0] >> 32);
  values[n + 6] = (int)wide[1];
  values[n + 7] = (int)sum;
  values[n + 8] = counted;
  values[n + 9] = some * 2 + every;
  values[n + 10] = mine;
  values[n + 11] = atomicExch(&words[0], 3) + atomicSub(&words[0], 1) + words[0];
}
"""


@pytest.mark.parametrize(("seed", "preempt"), ORDERS)
def test_block(programs: Programs, seed: int, preempt: int) -> None:
    n = 96
    x = draws(seed, -1000, 1000, n)
    emulator = programs.emulator(BLOCK, threads=n, shared=4 * n + 32)
    values = launch(emulator, torch.tensor(x, dtype=torch.int32), size=n + 12, n=n, seed=seed, preempt=preempt)
    assert values[:n] == x[::-1]
    total = n * (n - 1) // 2
    found = dict(zip(("add", "max", "min", "or", "and", "wide", "cas", "float"), values[n:], strict=False))
    assert found.pop("cas") in (5, 6)
    assert found == {
        "add": total, "max": max(-5, *x), "min": min(x), "or": -1, "and": ~127, "wide": total, "float": n // 2,
    }  # fmt: skip
    assert values[n + 8 :] == [n // 3, 2, 0, x[0] + 1000 + 3 + 2]


REMOTE = """
template <typename V> __device__ __forceinline__ V cluster_load(V* address, int rank) {
  return *cooperative_groups::this_cluster().map_shared_rank(address, rank);
}
"""
CLUSTER = """
extern __shared__ int words[];
__shared__ int total;
auto cluster = cooperative_groups::this_cluster();
int t = threadIdx.x, rank = cluster.block_rank(), size = cluster.num_blocks();
words[t] = x[blockIdx.x * blockDim.x + t];
if (t == 0) total = 0;
tl::cluster_sync();
values[blockIdx.x * blockDim.x + t] = cluster_load(&words[t], (rank + 1) % size) * 10 + tl::block_rank_in_cluster();
atomicAdd(cluster.map_shared_rank(&total, 0), words[t]);
tl::cluster_arrive();
tl::cluster_wait();
if (t == 0) values[gridDim.x * blockDim.x + blockIdx.x] = cluster_load(&total, 0);
cluster.sync();
"""


@pytest.mark.parametrize(("seed", "preempt"), ORDERS)
@pytest.mark.parametrize("clusters", [1, 3])
def test_cluster(programs: Programs, clusters: int, seed: int, preempt: int) -> None:
    size, threads = 4, 64
    blocks = clusters * size
    x = torch.randint(-1000, 1000, (blocks, threads), dtype=torch.int32, generator=torch.manual_seed(seed))
    emulator = programs.emulator(CLUSTER, before=REMOTE, threads=threads, shared=4 * threads, cluster=size)
    values = launch(emulator, x, size=blocks * (threads + 1), grid=blocks, seed=seed, preempt=preempt)
    groups = x.view(clusters, size, threads)
    ranks = torch.arange(size)[:, None]
    assert values[: blocks * threads] == (groups.roll(-1, 1) * 10 + ranks).flatten().tolist()
    assert values[blocks * threads :] == groups.sum((1, 2)).repeat_interleave(size).tolist()


SENT = """
__shared__ __align__(16) unsigned words[8][4];
__shared__ __align__(16) unsigned long long wide[8];
__shared__ unsigned done[8];
__shared__ __align__(16) unsigned own[8];
__shared__ __align__(16) unsigned copies[8][8];
__shared__ Signal signal;
__shared__ Signal later;
auto cluster = cooperative_groups::this_cluster();
unsigned t = threadIdx.x, rank = cluster.block_rank(), size = cluster.num_blocks();
if (t == 0) begin_signal(&signal), begin_signal(&later);
if (t < 8) own[t] = 100 * rank + t, copies[rank][t] = own[t], before_copies();
cluster.sync();
if (t < size) {
  send(reinterpret_cast<uint4*>(words[rank]), make_uint4(rank, 2 * rank, 3 * rank, t), &signal, t);
  send(&wide[rank], (unsigned long long)rank << 32 | t, &signal, t);
  send(words[4 + rank], 7u, &signal, t);
  send(&done[rank], 1u, &later, t);
  if (t != rank) send_copy(copies[rank], own, 32, &signal, t);
}
if (t == 0) expect(&signal, size * (16 + 8 + 4) + (size - 1) * 32), expect(&later, size * 4);
WAIT
unsigned sum = 0;
for (unsigned i = 0; i < size; i++) {
  sum += words[i][0] + words[i][1] + words[i][2] + words[i][3] + words[4 + i][0] + unsigned(wide[i] >> 32);
  for (unsigned j = 0; j < 8; j++) sum += copies[i][j];
}
values[blockIdx.x * blockDim.x + t] = sum;
cluster.sync();  // whose memory is copied stays
"""


@pytest.mark.parametrize(("seed", "preempt"), ORDERS)
def test_signals(programs: Programs, seed: int, preempt: int) -> None:
    emulator = programs.emulator(
        SENT.replace("WAIT", "wait_for(&signal); wait_for(&later);"), before=SIGNALS, threads=32, cluster=4
    )
    values = launch(emulator, size=8 * 32, grid=8, seed=seed, preempt=preempt)
    copies = sum(100 * rank + i for rank in range(4) for i in range(8))
    sent = [sum(7 * rank + 7 + block % 4 for rank in range(4)) for block in range(8)]
    assert values == [its + copies for its in sent for _ in range(32)]


@pytest.mark.parametrize(
    ("wait", "message"),
    [
        ("", "race on shared|nobody wrote|after that block exited"),
        ("wait_for(&later);", "race on shared (words|wide|copies)"),
    ],
)
def test_what_a_signal_counts_is_to_be_waited_for(programs: Programs, wait: str, message: str) -> None:
    """By that signal: another that was sent later says nothing of it."""
    emulator = programs.emulator(SENT.replace("WAIT", wait), before=SIGNALS, threads=32, cluster=4)
    with pytest.raises(EmulatorError, match=message):
        launch(emulator, size=4 * 32, grid=4)


@pytest.mark.parametrize(("seed", "preempt"), ORDERS)
def test_one_thread_may_wait_for_a_signal(programs: Programs, seed: int, preempt: int) -> None:
    """Where a barrier tells the others."""
    wait = "if (t == 0) wait_for(&signal), wait_for(&later); __syncwarp();"
    emulator = programs.emulator(SENT.replace("WAIT", wait), before=SIGNALS, threads=32, cluster=4)
    values = launch(emulator, size=4 * 32, grid=4, seed=seed, preempt=preempt)
    assert len(set(values)) == 4


def test_grid_barrier(programs: Programs) -> None:
    body = """
    values[blockIdx.x * 64 + threadIdx.x] = blockIdx.x;
    cooperative_groups::this_grid().sync();
    int other = values[(blockIdx.x + 1) % gridDim.x * 64 + threadIdx.x];
    cooperative_groups::this_grid().sync();
    values[blockIdx.x * 64 + threadIdx.x] = other;
    """
    emulator = programs.emulator(body, threads=64, cooperative=True)
    values = launch(emulator, size=5 * 64, grid=5, preempt=2)
    assert values == [(i // 64 + 1) % 5 for i in range(5 * 64)]


def test_asynchronous_copies_arrive_when_waited_for(programs: Programs) -> None:
    body = """
    __shared__ __align__(16) int words[128];
    int t = threadIdx.x;
    tl::cp_async_gs<16>(words + t * 4, x + t * 4);
    tl::cp_async_commit();
    tl::cp_async_wait<0>();
    __syncthreads();
    for (int i = 0; i < 4; i++) values[t * 4 + i] = words[127 - t * 4 - i];
    """
    x = torch.arange(128, dtype=torch.int32)
    assert launch(programs.emulator(body), x, size=128) == list(range(127, -1, -1))


def test_programmatic_launch_is_counted(programs: Programs) -> None:
    body = "cudaGridDependencySynchronize(); values[threadIdx.x] = 1; cudaTriggerProgrammaticLaunchCompletion();"
    emulator = programs.emulator(body, programmatic_launch=True)
    counters = emulator(3, {"x": 0, "values": torch.zeros(32, dtype=torch.int32), "n": 0})
    assert counters.programmatic_syncs == counters.programmatic_triggers == 96


def test_grids_of_three_dimensions(programs: Programs) -> None:
    body = """
    int at = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    values[at] = blockIdx.z * 100 + blockIdx.y * 10 + blockIdx.x;
    """
    values = launch(programs.emulator(body, threads=1), size=24, grid=(2, 3, 4))
    assert values == [z * 100 + y * 10 + x for z in range(4) for y in range(3) for x in range(2)]


def test_assembly_of_known_kinds(programs: Programs) -> None:
    body = """
    unsigned lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("bar.sync %0, %1;" : : "r"(1), "r"(32) : "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    values[threadIdx.x] = lane;
    """
    assert launch(programs.emulator(body)) == list(range(32))


def test_a_kernel_is_compiled_once(programs: Programs) -> None:
    first: Emulator = programs.emulator("values[threadIdx.x] = 7;")
    made = first._path.stat().st_mtime_ns
    second = programs.emulator("values[threadIdx.x] = 7;")
    assert (second._path, second._path.stat().st_mtime_ns) == (first._path, made)
    assert launch(first) == launch(second) == [7] * 32
