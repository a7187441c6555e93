"""Top-k over two GPUs against torch's of the gathered tensor."""

import random
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.runtime import sharded_gpus
from tests.runtime.test_distributed import DTYPES, bits, drawn
from tests.runtime.world import World, world

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.one_process,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two GPUs"),
]
SIZES = [[1000, 1000], [3000, 1], [0, 700], [40, 60]]


@pytest.fixture(scope="module")
def gpus() -> Iterator[World]:
    with world(2, "nccl") as found:
        yield found


def check(answers: list[tuple[Tensor, Tensor]], x: Tensor, k: int, largest: bool = True, stable: bool = False) -> None:
    """Of all ranks, about the whole, in order."""
    values, indices = answers[0]
    for other in answers:
        assert [bits(one) for one in other] == [bits(values), bits(indices)]
    expected = torch.topk(x, k, largest=largest)
    assert torch.equal(x.gather(1, indices).nan_to_num(7.5), expected.values.nan_to_num(7.5))
    assert bits(values) == bits(x.gather(1, indices)) or x.element_size() == 2
    assert bool((indices.sort(1).values.diff(dim=1) > 0).all())
    if stable:
        assert torch.equal(indices, x.sort(dim=1, descending=largest, stable=True).indices[:, :k])


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_answers(gpus: World, dtype: torch.dtype, sizes: list[int]) -> None:
    draw = random.Random(sum(sizes))
    for kind in ("random", "special"):
        x, k = drawn([3, sum(sizes)], dtype, kind, 5), draw.randrange(1, sum(sizes))
        largest, stable = draw.random() < 0.5, draw.random() < 0.5
        known = sizes if draw.random() < 0.5 else None
        options = {"largest": largest, "stable": stable, "sizes": known}
        check(gpus.call(sharded_gpus.select, [(one, k, options) for one in x.split(sizes, 1)]), x, k, largest, stable)


@pytest.mark.parametrize("streams", [1, 2])
def test_calls_that_do_not_wait(gpus: World, streams: int) -> None:
    sizes, k, xs = [5000, 4000], 300, [drawn([4, 9000], torch.float32, "random", seed) for seed in range(60)]
    shards = zip(*(x.split(sizes, 1) for x in xs), strict=True)
    found = gpus.call(sharded_gpus.one_after_another, [(list(one), k, sizes, streams) for one in shards])
    for x, *answers in zip(xs, *found, strict=True):
        check(answers, x, k)


def test_shards_that_change(gpus: World) -> None:
    """Calls like the last one, and others that are like it on one rank only, or that a rank is refused."""
    changing = [
        [900, 400],
        [900, 400],
        [900, 400],
        [900, 500],
        [900, 400],
        None,
        [900, 500],
        [20, 500],
        None,
        [900, 500],
    ]
    sizes = [one or [900, 400] for one in changing]
    xs = [drawn([2, sum(one)], torch.float32, "random", seed) for seed, one in enumerate(sizes)]
    calls: list[list[tuple[Tensor, int]]] = [[], []]
    for number, (x, each) in enumerate(zip(xs, sizes, strict=True)):
        for rank, shard in enumerate(x.split(each, 1)):
            calls[rank].append((shard, 61 if changing[number] is None and rank == number % 2 else 60))
    for x, asked, *answers in zip(
        xs, changing, *gpus.call(sharded_gpus.several, [(one,) for one in calls]), strict=True
    ):
        if asked is None:
            assert "the ranks' calls differ" in answers[0]
            assert answers[0] == answers[1]
        else:
            check(answers, x, 60)


def test_a_graph_that_is_replayed(gpus: World) -> None:
    sizes, k, xs = [2000, 3000], 100, [drawn([2, 5000], torch.float32, "random", seed) for seed in range(5)]
    shards = zip(*(x.split(sizes, 1) for x in xs), strict=True)
    found = gpus.call(sharded_gpus.captured, [(one[0], list(one[1:]), k, sizes) for one in shards])
    for x, *answers in zip(xs[1:], *found, strict=True):
        check(answers, x, k)


def test_compiled(gpus: World) -> None:
    x, sizes = drawn([4, 900], torch.float32, "random", 2), [500, 400]
    found = gpus.call(sharded_gpus.compiled, [(one, 20, sizes) for one in x.split(sizes, 1)])
    expected = torch.topk(x * 2, 20)
    for values, indices in found:
        assert torch.equal(values, expected.values + 1)
        assert torch.equal(indices, expected.indices)


def test_without_memory_of_peers(gpus: World) -> None:
    assert gpus.call(sharded_gpus.without_peers, [()] * 2) == [True, True]
    sizes, k, x = [600, 800], 50, drawn([2, 1400], torch.float32, "random", 9)
    check(gpus.call(sharded_gpus.select, [(one, k, {}) for one in x.split(sizes, 1)]), x, k)
