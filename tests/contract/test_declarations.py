"""Every strategy keeps the contract of `autotopk.strategy`, before anything is compiled or run."""

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import groupby, product
from math import gcd
from pathlib import Path
from typing import Literal

import pytest

from autotopk import registry
from autotopk.candidate import Knob, knobs_json
from autotopk.compilers import nvcc
from autotopk.device import H100, Device, cpu_device
from autotopk.errors import AutotopkWarning, UnsupportedProblemError
from autotopk.files import write_atomically
from autotopk.problem import (
    ANSWERS,
    DTYPE_BYTES,
    MERGED,
    OPERATIONS,
    VECTOR_BYTES,
    WEIGHTS,
    WINDOWS,
    MemoryLayout,
    Problem,
)
from autotopk.program import HostProgram, KernelProgram, most_scratch
from autotopk.routing import LOGITS, Routing
from autotopk.runtime import dispatch
from autotopk.strategies._radix import strategy as radix
from autotopk.strategy import KNOB_TYPES, Features, Strategy, _declared
from autotopk.tuning.candidates import candidates, heuristics, unbuildable
from autotopk.workloads import tagged

OLD_GPU = Device("cuda", "NVIDIA Tesla T4", (7, 5), 40, 4 << 20, 15, 64 << 10)
SMALL_GPU = Device("cuda", "NVIDIA GeForce RTX 4090", (8, 9), 128, 72 << 20, 24, 99 << 10)
DEVICES = (H100, SMALL_GPU, OLD_GPU, cpu_device())

SHAPES = [
    (1, 1, 1),
    (1, 2, 2),
    (3, 7, 7),
    (1, 31, 10),
    (64, 128, 5),
    (100, 1000, 100),
    (33, 4097, 64),
    (1, 8192, 8192),
    (2, 100_000, 2048),
    (2, 1_000_000, 50),
    (200, 60_000, 20),
    (70_000, 64, 8),
    (3_000_000, 1000, 3),
    (1, 1 << 32, 32),
]
"""(rows, cols, k), with more rows than a grid's second dimension has blocks, and more elements than 31 bits count."""

ROUTERS = [
    (1, 64, 8, "softmax"),
    (4096, 256, 8, "sigmoid+bias:4of8"),
    (64, 384, 6, "sqrtsoftplus+bias:raw"),
    (4096, 160, 6, "softmax:3of8"),
    (5, 1000, 64, "softmax+bias"),
    (70_000, 4096, 100, "sigmoid"),
    (3_000_000, 896, 16, "sigmoid+bias"),
    (33, 512, 8, "softmax+bias:2of4:raw"),
    (33, 1024, 8, "sigmoid+bias:2of4"),
]
"""(rows, cols, k, rule)."""

STRATEGIES = registry.available()


@pytest.fixture(params=STRATEGIES, ids=lambda strategy: strategy.name)
def strategy(request: pytest.FixtureRequest) -> Strategy:
    found: Strategy = request.param
    return found


def problems() -> Iterator[tuple[Problem, Device]]:
    """Of the lists, on every device."""
    for device, (rows, cols, k), dtype, order in product(DEVICES, SHAPES, DTYPE_BYTES, (True, False)):
        plain = Problem.contiguous(rows, cols, k, dtype, device.type, largest=order, sorted=order)
        yield plain, device
        if order:
            yield replace(plain, answer=WINDOWS, stable=True), device
            yield replace(plain, answer=MERGED), device
    for device, (rows, cols, k, rule), dtype in product(DEVICES, ROUTERS, LOGITS):
        yield Problem.contiguous(rows, cols, k, dtype, device.type, routing=Routing.parse(rule)), device


def able(strategy: Strategy) -> Iterator[tuple[Problem, Device]]:
    """Those that it says it serves."""
    return ((problem, device) for problem, device in problems() if not strategy.reasons_unable(problem, device))


def test_serves_something(strategy: Strategy) -> None:
    assert next(able(strategy), None) is not None


def test_torch_fallback_serves_everything() -> None:
    assert len(list(able(registry.get("torch_fallback")))) == len(list(problems()))


def test_reasons_name_the_value_that_is_the_trouble(strategy: Strategy) -> None:
    """Each holds something of what was asked or of where: k=300 is above 128."""
    for problem, device in problems():
        numbers = f"k={problem.k}", str(problem.cols), str(problem.rows)
        named = (*numbers, problem.dtype, device.name, problem.answer, str(problem.routing))
        for reason in strategy.reasons_unable(problem, device):
            assert any(value in reason for value in named), (problem, reason)


def outside(features: Features) -> Iterator[tuple[Problem, Device]]:
    """Small problems that lie outside of a family's features by one of them each."""
    for device in DEVICES:
        if device.type not in features.device_types or device.capability < features.capability:
            yield Problem.contiguous(4, 64, 3, min(features.dtypes), device.type), device
        for dtype in DTYPE_BYTES.keys() - features.dtypes:
            yield Problem.contiguous(4, 64, 3, dtype, device.type), device
        for answer in set(ANSWERS) - features.answers:
            yield Problem.contiguous(4, 64, 3, device_type=device.type, answer=answer), device
        if not features.side_by_side:
            layout = MemoryLayout(64 * 4, col_stride=4, inner=4)
            yield Problem(4, 64, 3, "float32", device_type=device.type, layout=layout), device


def test_refuses_what_its_features_leave_out(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its own reasons are: the base class asks the features first."""
    monkeypatch.setattr(type(strategy), "reasons_unsupported", lambda *_: [])
    refused = list(outside(strategy.features))
    assert refused
    for problem, device in refused:
        assert all(strategy.reasons_unable(problem, device) or [""]), (problem, device)
    for problem, device in able(strategy):
        assert not strategy.features.reasons_unsupported(problem, device)


def test_features_that_are_declared_are_served(strategy: Strategy) -> None:
    """Of every dtype, form of answer and layout that a family declares there is a problem that it serves."""
    served: set[object] = set()
    layouts = (MemoryLayout(64, vector=4, aligned=True), MemoryLayout(64 * 4, col_stride=4, inner=4))
    rules = [None, Routing(), Routing("sigmoid", True)]
    sizes = (4, 64), (4, 1 << 17), (4, 1 << 18), (40, 1 << 17)
    for device, dtype, answer, layout, (rows, cols), rule, whole in product(
        *(DEVICES, DTYPE_BYTES, (*ANSWERS, *OPERATIONS.values(), MERGED, *WEIGHTS), layouts, sizes, rules),
        (False, True),
    ):
        if (rule is None) == (answer in WEIGHTS) or (rule is not None and (whole or dtype not in LOGITS)):
            continue
        vector = gcd(layout.vector * 4, VECTOR_BYTES) // DTYPE_BYTES[dtype]
        layout = replace(layout, vector=max(1, vector))
        place = replace(Problem.contiguous(rows, cols, 3, device_type=device.type), layout=layout)
        k = cols if whole else 3
        problem = replace(place, k=k, dtype=dtype, sorted=not whole, answer=answer, routing=rule)
        if not strategy.reasons_unable(problem, device):
            served |= {dtype, answer, layout.side_by_side, device.type}
    features = strategy.features
    assert served == {*features.dtypes, *features.answers, False, features.side_by_side, *features.device_types}


def test_name(strategy: Strategy) -> None:
    assert strategy.name.isidentifier()
    assert registry.get(strategy.name) is strategy


def test_config_is_a_frozen_record_of_plain_values(strategy: Strategy) -> None:
    assert is_dataclass(strategy.config_type)
    assert strategy.config_type.__dataclass_params__.frozen  # type: ignore[attr-defined]
    for problem, device in able(strategy):
        for config in strategy.shortlist(problem, device):
            assert type(config) is strategy.config_type
            assert all(type(getattr(config, field.name)) in (int, str, bool, float) for field in fields(config))


def test_space_is_finite_valid_and_repeatable(strategy: Strategy) -> None:
    for problem, device in able(strategy):
        space = list(strategy.shortlist(problem, device))
        assert space, (problem, device)
        assert len(set(space)) == len(space) <= 10_000
        assert space == list(strategy.shortlist(problem, device))
        assert all(strategy.valid(config, problem, device) for config in space)


def test_lattice_is_the_shortlist_and_other_valid_points(strategy: Strategy) -> None:
    """Each once, and so is each program."""
    for workload in {*tagged("seeds"), *tagged("serving"), *tagged("routing")}:
        problem = workload.problem("cuda")
        if strategy.reasons_unable(problem, H100):
            continue
        shortlist, lattice = strategy.shortlist(problem, H100), list(strategy.lattice(problem, H100))
        assert lattice[: len(shortlist)] == list(shortlist)
        assert len(set(lattice)) == len(lattice) <= 1000, workload
        assert all(strategy.valid(config, problem, H100) for config in lattice)
        assert all(strategy.parse_config(strategy.candidate(config).config) == config for config in lattice)
        others = [strategy.program(config, problem, H100) for config in lattice[len(shortlist) :]]
        assert len(set(others)) == len(others)
        assert lattice == list(strategy.lattice(problem, H100))


def test_lattices_reach_beyond_the_shortlists() -> None:
    for name, problems in groupby(FAMILIES, key=lambda one: one[0]):
        strategy = registry.get(name)
        beyond = 0
        for _, problem in problems:
            assert set(strategy.knobs(problem, H100)) == {field.name for field in fields(strategy.config_type)}
            beyond += len(list(strategy.lattice(problem, H100))) - len(strategy.shortlist(problem, H100))
        assert beyond > 0, name


def test_default_is_valid(strategy: Strategy) -> None:
    for problem, device in able(strategy):
        default = strategy.heuristic(problem, device)
        assert default is None or strategy.valid(default, problem, device), (problem, default)


def test_configs_survive_their_text(strategy: Strategy) -> None:
    for problem, device in able(strategy):
        for config in strategy.shortlist(problem, device):
            assert strategy.parse_config(strategy.candidate(config).config) == config


def test_foreign_configs_are_refused(strategy: Strategy) -> None:
    problem, device = next(able(strategy))
    good = strategy.candidate(strategy.shortlist(problem, device)[0]).knobs
    missing = dict(list(good.items())[1:])
    wrong: tuple[object, ...] = ({**good, "color": 1}, missing, [], None, 3)
    for bad in wrong:
        with pytest.raises(UnsupportedProblemError, match=strategy.name):
            strategy.parse_config(json.dumps(bad))
    with pytest.raises(UnsupportedProblemError):
        strategy.parse_config("{")


ODD: tuple[Knob, ...] = (0, -1, 3, 2.0, 0.5, 10**400, True, "a", "2", "")
"""Values of a knob as a file may hold them."""


def test_odd_values_of_a_knob_are_refused(strategy: Strategy) -> None:
    """When they are parsed, or as no configuration for the problem; what passes has a program, and the very types."""
    problem, device = next(able(strategy))
    good = strategy.candidate(strategy.shortlist(problem, device)[0]).knobs
    for name, odd in product(good, ODD):
        try:
            config = strategy.parse_config(knobs_json({**good, name: odd}))
        except UnsupportedProblemError:
            continue
        assert all(type(getattr(config, one)) is type(value) for one, value in good.items()), config
        if strategy.valid(config, problem, device):
            assert odd in (3, True) or odd == good[name], config
            assert strategy.program(config, problem, device).source_digest(problem, device.arch)


@dataclass(frozen=True)
class Loose:
    """As a third party may declare it."""

    size: "int | None"
    name: "Literal['a', 'b']"
    share: float
    other: "Unknown"  # type: ignore[name-defined]  # noqa: F821


def test_types_that_cannot_be_told_allow_every_knob() -> None:
    assert set(_declared(Loose)) == {"size", "name", "share", "other"}
    assert set(_declared(Loose).values()) == {KNOB_TYPES}
    assert _declared(registry.get("torch_fallback").config_type) == {"method": (str,), "chunk": (int,)}


def test_programs_fit_a_launch(strategy: Strategy) -> None:
    for problem, device in able(strategy):
        for config in strategy.shortlist(problem, device):
            found = strategy.program(config, problem, device)
            if isinstance(found, HostProgram):
                continue  # run in test_cpu
            assert isinstance(found, KernelProgram)
            assert found.scratch_bytes(problem) <= most_scratch(problem)
            for launch in found.launches:
                x, y, z = launch.blocks(problem)
                assert 1 <= x < 1 << 31
                assert 1 <= y < 1 << 16
                assert 1 <= z < 1 << 16


def test_sources_travel_and_are_told_apart(strategy: Strategy) -> None:
    for problem, device in able(strategy):
        sources = [
            source
            for config in strategy.shortlist(problem, device)
            for source in strategy.program(config, problem, device).sources
        ]
        for source in sources:
            assert pickle.loads(pickle.dumps(source)) == source
            assert hash(source) == hash(pickle.loads(pickle.dumps(source)))
        if problem.cols == 1000:  # identities hash files: one problem is enough
            assert len({source.cache_key() for source in sources}) == len(set(sources))


FAMILIES = [
    ("lane_merge", Problem.contiguous(64, 128, 5)),
    ("lane_merge", Problem.contiguous(100_000, 1001, 10, "bfloat16")),
    ("masked_argmax", Problem.contiguous(64, 128, 5, "int64")),
    ("masked_argmax", Problem.contiguous(1, 1024, 8, "int32")),
    ("block_radix", Problem.contiguous(1, 8192, 16)),
    ("block_radix", Problem.contiguous(30_000, 1232, 47)),
    ("block_radix", Problem.contiguous(64, 8192, 128)),
    ("block_radix", Problem.contiguous(1, 8192, 8192)),
    ("load_maxima", Problem.contiguous(256, 49_152, 64, "bfloat16")),
    ("stream_lists", Problem.contiguous(256, 65_536, 64, "bfloat16")),
    ("cluster_lists", Problem.contiguous(1, 131_072, 2048)),
    ("cluster_lists", Problem.contiguous(64, 65_536, 1024, "bfloat16")),
    ("cluster_radix", Problem.contiguous(1, 131_072, 2048, "int32")),
    ("cluster_radix", Problem.contiguous(1000, 40_000, 4096)),
    ("split_radix", Problem.contiguous(1000, 65_536, 4096)),
    ("stream_lists", Problem.contiguous(256, 131_072, 512)),
    ("stream_lists", Problem.contiguous(256, 151_936, 64, "bfloat16")),
    ("stream_maxima", Problem.contiguous(100, 1_000_000, 64)),
    ("stream_maxima", Problem.contiguous(8, 1_000_000, 100)),
    ("stream_lists", Problem.contiguous(256, 262_144, 1024, "bfloat16")),
    ("split_radix", Problem.contiguous(256, 262_144, 4096, "bfloat16")),
    ("split_radix", Problem.contiguous(1, 100_000_000, 32, "float64", sorted=False)),
    ("split_radix", Problem.contiguous(1, 10_000_000, 1000)),
    ("split_radix", Problem.contiguous(1, 10_000_000, 100, stable=True)),
    ("grid_maxima", Problem.contiguous(1, 10_000_000, 100)),
    ("grid_maxima", Problem.contiguous(2, 2_000_000, 30, "bfloat16", sorted=False)),
    ("wide_radix", Problem.contiguous(1, 30_000_000, 30_000)),
    ("wide_radix", Problem.contiguous(5000, 40_000, 15_000)),
    ("wide_radix", Problem.contiguous(1, 1_000_000, 1_000_000, "int64")),
    ("whole_rows", Problem.contiguous(1, 1_000_000, 1_000_000, "int64", sorted=False)),
    ("whole_rows", Problem.contiguous(4096, 128, 128, sorted=False, largest=False)),
    ("whole_rows", Problem.contiguous(65_536, 16, 16, "bfloat16", sorted=False, stable=True)),
]
"""What serves a problem on an H100 where nothing was measured."""


@pytest.mark.parametrize(("name", "problem"), FAMILIES, ids=str)
def test_every_family_has_its_part(name: str, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radix, "reasons_unbuildable", list)
    monkeypatch.setattr(nvcc, "reasons_missing", list)
    with pytest.warns(AutotopkWarning, match="nothing like"):
        assert dispatch.choose(problem, H100).strategy.name == name


TILELANG = ("block_radix", "cluster_radix")


@pytest.mark.parametrize(("name", "problem"), [one for one in FAMILIES if one[0] in TILELANG], ids=str)
def test_without_a_compiler_only_kept_kernels_are_served_and_tuned(
    name: str, problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(radix, "reasons_unbuildable", lambda: ["no compiler"])
    strategy = registry.get(name)
    assert isinstance(strategy, radix.RadixStrategy)
    assert not strategy.reasons_unable(problem, H100)
    with pytest.warns(AutotopkWarning, match=f"{name} cannot be built here"):
        choice = dispatch.choose(problem, H100)
    assert choice.strategy.name not in TILELANG
    assert any(reason.startswith(f"{name}: cannot be built here: no compiler") for reason in choice.rejected)
    assert candidates(problem, H100, [name]) == heuristics(problem, H100, [name]) == []
    assert unbuildable([problem], H100, [name, "torch_fallback"]) == {name: ["no compiler"]}
    assert unbuildable([problem], cpu_device(), [name]) == {}
    usual = strategy.ladder(problem, H100)[0]
    write_atomically(radix.source(usual, problem).cache_path(H100.arch), b"kept")
    assert strategy.heuristic(problem, H100) == usual
    assert candidates(problem, H100, [name]) == [strategy.candidate(usual)]


def test_winners_serve_neighbours() -> None:
    """A configuration measured on one shape answers others that its kernel can run."""
    strategy = registry.get("block_radix")
    config = strategy.shortlist(Problem.contiguous(512, 8192, 100), H100)[0]
    served = [
        Problem.contiguous(100, 8191, 128),  # narrower loads
        Problem.contiguous(9, 4000, 20),
        Problem.contiguous(9, 40_000, 20),  # streamed
        Problem.contiguous(9, 4000, 20, "float16", sorted=False),
    ]
    refused = [Problem.contiguous(9, 4000, 2000), Problem.contiguous(9, 20_000, 500, "float64")]
    assert [strategy.valid(config, problem, H100) for problem in served + refused] == [True] * 4 + [False] * 2


PURE = """
import sys
import tempfile
from autotopk import registry
from autotopk.candidate import Knob, knobs_json
from autotopk.device import H100
from autotopk.problem import Problem
from autotopk.routing import Routing
strategy, asked = registry.get(sys.argv[1]), 0
routers = {"routing": Routing()}, {"routing": Routing("sigmoid", True)}
forms = {"answer": "windows", "stable": True}, {"answer": "merged"}, {"sorted": False}
for form in ({}, *routers, *forms):
    for rows, cols in (64, 128), (64, 1 << 17), (2, 1 << 22):
        problem = Problem.contiguous(rows, cols, cols if "sorted" in form else 5, **form)
        if not strategy.reasons_unable(problem, H100):
            for config in strategy.shortlist(problem, H100):
                for source in strategy.program(config, problem, H100).sources:
                    source.cache_key()
            strategy.heuristic(problem, H100)
            asked += 1
assert asked
print([name for name in ("triton", "tilelang", "tvm", "sqlalchemy", "optuna") if name in sys.modules])
"""


def test_answers_import_no_compiler(strategy: Strategy) -> None:
    command = [sys.executable, "-c", PURE, strategy.name]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
