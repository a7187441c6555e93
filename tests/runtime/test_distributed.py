"""Top-k over ranks against torch's of the gathered tensor: every rank's answer, in every bit."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.runtime import sharded_calls
from tests.runtime.world import SIZE, World, world

pytestmark = pytest.mark.one_process
DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
)  # fmt: skip
PATIENT = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def ranks() -> Iterator[World]:
    with world() as found:
        yield found


def bits(x: Tensor) -> bytes:
    return x.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if x.numel() else b""


def drawn(shape: list[int], dtype: torch.dtype, kind: str, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    few = torch.randint(0, 4, shape, generator=generator)
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        wide = torch.randint(info.min, info.max, shape, generator=generator, dtype=torch.int64)
        near = torch.tensor([info.max, info.max - 1, info.min, 0])[few]  # beyond 2**53 where the dtype reaches there
        return (wide if kind == "random" else near).to(dtype)
    special = torch.tensor([float("nan"), -0.0, 0.0, float("-inf")])
    return (torch.randn(shape, generator=generator) if kind == "random" else special[few]).to(dtype)


@st.composite
def problems(draw: Any) -> tuple[Tensor, list[int], int, int]:
    """The gathered tensor, the shards' sizes, dim and k."""
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=SIZE))
    shape = draw(st.lists(st.integers(0, 3), max_size=2))
    dim = draw(st.integers(0, len(shape)))
    shape.insert(dim, sum(sizes))
    kind = draw(st.sampled_from(["random", "special"]))
    x = drawn(shape, draw(st.sampled_from(DTYPES)), kind, draw(st.integers(0, 1000)))
    return x, sizes, dim - draw(st.sampled_from([0, len(shape)])), draw(st.integers(0, sum(sizes)))


@PATIENT
@given(problem=problems(), largest=st.booleans(), sorted=st.booleans(), stable=st.booleans(), known=st.booleans())
def test_answers_of_all_ranks(
    ranks: World, problem: Any, largest: bool, sorted: bool, stable: bool, known: bool
) -> None:
    x, sizes, dim, k = problem
    options = {"dim": dim, "largest": largest, "sorted": sorted, "stable": stable, "sizes": sizes if known else None}
    found = ranks.call(sharded_calls.select, [(len(sizes), one, k, options) for one in x.split(sizes, dim)])
    values, indices, alone = found[0]
    for other in found:
        assert [bits(one) for one in other] == [bits(one) for one in found[0]]
    assert bits(alone) == bits(indices)
    assert indices.dtype is torch.int64
    expected = torch.topk(x, k, dim, largest, True)
    assert values.shape == expected.values.shape
    assert bits(values) == bits(x.gather(dim, indices)) or x.element_size() == 2  # there gather makes other NaNs
    in_order = values if sorted else torch.topk(values, k, dim, largest, True).values
    torch.testing.assert_close(in_order, expected.values, rtol=0, atol=0, equal_nan=True)
    ordered = indices.sort(dim).values
    if k > 1 and values.numel():
        assert bool((ordered.diff(dim=dim) > 0).all())
    if stable and k:
        first = x.sort(dim=dim, descending=largest, stable=True).indices.narrow(dim, 0, k)
        assert torch.equal(indices if sorted else ordered, first if sorted else first.sort(dim).values)


@pytest.mark.parametrize("sizes", [[4, 4, 4], [7, 0, 2, 1]], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_go_to_the_shards(ranks: World, sizes: list[int], dim: int) -> None:
    shape = [3, 3]
    shape[dim] = sum(sizes)
    x, k = drawn(shape, torch.float64, "random", 1), 5
    weights = torch.arange(1.0, 16, dtype=torch.float64).view((3, 5) if dim else (5, 3))
    arguments = [(len(sizes), one.clone(), k, weights, {"dim": dim}) for one in x.split(sizes, dim)]
    found = ranks.call(sharded_calls.gradient, arguments)
    x = x.requires_grad_()
    (first,) = torch.autograd.grad((x.topk(k, dim).values ** 3 * weights).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(torch.cat([one[0] for one in found], dim), first.detach())
    assert torch.equal(torch.cat([one[1] for one in found], dim), second)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((9,), 0), ((4, 30), -1), ((30, 4), 0), ((2, 9, 3), 1)], ids=str)
def test_what_is_asked_again(ranks: World, shape: tuple[int, ...], dim: int, dtype: torch.dtype, stable: bool) -> None:
    """By memory that ranks share: here of one rank, whose parts take turns."""
    xs = [drawn([*shape], dtype, kind, seed) for seed, kind in enumerate(("random", "special", "random", "special"))]
    k, options = 3, {"dim": dim, "stable": stable, "sizes": [shape[dim]]}
    (found,) = ranks.call(sharded_calls.asked_again, [(1, [(x, k, options) for x in xs])])
    for x, (values, indices) in zip(xs, found, strict=True):
        torch.testing.assert_close(values, torch.topk(x, k, dim).values, rtol=0, atol=0, equal_nan=True)
        assert bits(values) == bits(x.gather(dim, indices)) or x.element_size() == 2
        if stable:
            assert torch.equal(indices, x.sort(dim=dim, descending=True, stable=True).indices.narrow(dim, 0, k))


ASKED = [[9, 4, 0], [9, 4, 0], [9, 4, 0], [9, 5, 0], [9, 4, 0], None, [9, 5, 0], [2, 5, 7], None, None, [9, 5, 0]]
"""Sizes of shards of calls one after the other; None for one that a rank is refused."""


@pytest.mark.parametrize("known", [[False], [True, False, False], [False, True]], ids=str)
def test_what_begins_before_all_have_agreed(ranks: World, known: list[bool]) -> None:
    """Calls like the last one, and others that are like it on some ranks only."""
    sizes = [one or [9, 4, 0] for one in ASKED]
    xs = [drawn([2, sum(one)], torch.float32, "random", seed) for seed, one in enumerate(sizes)]
    calls: list[Any] = [[], [], []]
    for number, (x, each) in enumerate(zip(xs, sizes, strict=True)):
        given = known[number % len(known)] and ASKED[number] is not None
        for rank, shard in enumerate(x.split(each, 1)):
            refused = ASKED[number] is None and rank == number % 3
            calls[rank].append((shard, 7 if refused else 6, {"sizes": each} if given else {}))
    found = ranks.call(sharded_calls.asked_again, [(3, one) for one in calls])
    for answers, x, asked in zip(zip(*found, strict=True), xs, ASKED, strict=True):
        if asked is None:
            assert answers[0][0] == "ValueError"
            assert "the ranks' calls differ" in answers[0][1]
            assert answers == (answers[0],) * 3
            continue
        expected = torch.topk(x, 6)
        for values, indices in answers:
            assert torch.equal(values, expected.values)
            assert torch.equal(indices, expected.indices)


@pytest.mark.parametrize("sizes", [[6, 6], [5, 0, 3]], ids=str)
def test_in_one_graph(ranks: World, sizes: list[int]) -> None:
    x = drawn([4, sum(sizes)], torch.float32, "random", 2)
    found = ranks.call(sharded_calls.compiled, [(len(sizes), one, 4, sizes) for one in x.split(sizes, 1)])
    expected = torch.topk(x * 2, 4)
    for values, indices in found:
        assert torch.equal(values, expected.values + 1)
        assert torch.equal(indices, expected.indices)


X = torch.arange(8.0).view(2, 4)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        ((X, 9, {}), "differ in more than the size"),
        ((X.double(), 3, {}), "differ in more than the size"),
        ((X[:1], 3, {}), "differ in more than the size"),
        ((X, 3, {"largest": False}), "differ in more than the size"),
        ((X, -1, {}), "rank 1 of the group: k=-1 is negative"),
        ((X, 2.0, {}), "rank 1 of the group: k=2.0 is not an int"),
        ((X, 3, {"dim": 2}), "rank 1 of the group: dim=2 is out of range"),
        ((X, 3, {"sorted": 1}), "rank 1 of the group: sorted=1 is not a bool"),
        ((X > 0, 3, {}), "rank 1 of the group: x_local is torch.bool"),
        ((None, 3, {}), "rank 1 of the group: x_local is NoneType"),
        ((torch.tensor(1.0), 3, {}), "rank 1 of the group: x_local has 0 dimensions"),
    ],
)
def test_all_ranks_raise_what_one_is_refused(ranks: World, one: Any, said: str) -> None:
    usual: Any = (X, 3, {})
    found = ranks.call(sharded_calls.select, [(3, *call) for call in (usual, one, usual)])
    assert found[0][0] == "raised"
    assert said in found[0][2]
    assert found == [found[0]] * 3


@pytest.mark.parametrize("known", [True, False])
def test_k_beyond_all_shards(ranks: World, known: bool) -> None:
    options = {"sizes": [4, 4] if known else None}
    found = ranks.call(sharded_calls.select, [(2, X, 9, options)] * 2)
    assert found == [("raised", "ValueError", "k=9 is more than the 8 columns of all shards, [4, 4]")] * 2


@pytest.mark.parametrize("sizes", [[4], [4, 4, 4], [5, 5], [4, -1]], ids=str)
def test_sizes_that_do_not_hold(ranks: World, sizes: list[int]) -> None:
    found = ranks.call(sharded_calls.select, [(2, X, 3, {"sizes": sizes})] * 2)
    assert all(one[:2] == ("raised", "ValueError") and str(sizes) in one[2] for one in found)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("indices_alone", [False, True])
@pytest.mark.parametrize(
    ("mesh", "placed"),
    [((5,), ["rows"]), ((5,), ["cols"]), ((5,), ["all"]), ((1, 5), ["rows", "cols"]), ((1, 5), ["cols", "cols"])],
    ids=str,
)
def test_distributed_tensors(
    ranks: World, mesh: tuple[int, ...], placed: list[str], indices_alone: bool, stable: bool
) -> None:
    x, k = drawn([7, 13], torch.float32, "random", 3), 6
    found = ranks.call(sharded_calls.of_mesh, [(mesh, x, k, placed, indices_alone, stable)] * SIZE)
    expected = torch.topk(x, k)
    gradient = torch.zeros_like(x).scatter(1, expected.indices, 1.0)
    where = str(tuple(sharded_calls.PLACEMENTS["all" if one == "cols" else one] for one in placed))
    for one in found:
        if indices_alone:
            assert torch.equal(one[0], expected.indices.to(torch.int32)), one
            assert one[0].dtype is torch.int32
        else:
            assert torch.equal(one[0], expected.values), one
            assert torch.equal(one[2], expected.indices)
            assert torch.equal(one[3], gradient)
        assert one[1] == where or placed == ["cols", "cols"]


def test_partial_is_refused(ranks: World) -> None:
    found = ranks.call(sharded_calls.of_mesh, [((5,), X, 2, ["partial"], False, False)] * SIZE)
    assert all(one[:2] == ("raised", "ValueError") and "redistribute" in one[2] for one in found)
