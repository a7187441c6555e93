"""A candidate is ready when all its kernels are; each kernel is built once, whoever needs it."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotopk import registry
from autotopk.candidate import TORCH_TOPK
from autotopk.device import H100
from autotopk.problem import Problem
from autotopk.tuning import compile_pool
from autotopk.tuning.candidates import program_of
from autotopk.tuning.compile_pool import Build, CompilePool
from tests.tuning import built

PROBLEM = Problem.contiguous(4, 64, 3)


@pytest.fixture
def builds(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Build]]:
    """How every configuration ended, asked for in two goes; a library takes longer than any kernel may."""
    monkeypatch.setattr(compile_pool, "COMPILE_S", 2.0)
    cache_dir.mkdir()
    registry.register(built.strategy)
    candidates = [built.strategy.candidate(config) for config in built.strategy.shortlist(PROBLEM, H100)]
    try:
        with closing(CompilePool(H100, preload=["tests.tuning.built"], processes=2)) as pool:
            pool.submit(PROBLEM, candidates[:2])
            found = dict(pool.ready(PROBLEM, candidates, time.monotonic() + 60))
            assert found == dict(pool.ready(PROBLEM, candidates, time.monotonic() + 60))
        assert found.keys() == set(candidates)
        yield {str(candidate.knobs["of"]): build for candidate, build in found.items()}
    finally:
        registry.unregister("built")


def test_what_is_ready_comes_in_the_order_asked(cache_dir: Path) -> None:
    """A library that needs no preparing does not overtake kernels that are there."""
    cache_dir.mkdir()
    registry.register(built.strategy)
    try:
        kernel = built.strategy.candidate(built.Parts("one"))
        with closing(CompilePool(H100, preload=["tests.tuning.built"], processes=2)) as pool:
            list(pool.ready(PROBLEM, [kernel], time.monotonic() + 60))
            for order in ([kernel, TORCH_TOPK], [TORCH_TOPK, kernel]):
                assert [one for one, _ in pool.ready(PROBLEM, order, 0.0)] == order
    finally:
        registry.unregister("built")


def test_programs_of_several_kernels(builds: dict[str, Build], cache_dir: Path) -> None:
    assert sorted((cache_dir / "log").read_text().split()) == ["broken", "one", "prepare", "two"]
    for name in ("one", "one two", "two two"):
        assert builds[name].status == "ok"
        candidate = built.strategy.candidate(built.Parts(name))
        assert builds[name].identity == program_of(candidate, PROBLEM, H100).identity(PROBLEM, 90)
        assert builds[name].stats["registers"] == 3
    assert (builds["one broken"].status, builds["one broken"].error) == ("build_failed", "broken for good")
    assert builds["one broken"].identity.source
    assert not builds["one broken"].identity.code
    assert builds["library"].status == "ok"
    assert builds["library"].identity.code
    assert builds["bad library"].status == "build_failed"
    assert builds["bad library"].error == "OSError: no compiler for it"
