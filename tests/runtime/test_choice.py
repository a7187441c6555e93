"""What was measured is what runs, by the numbered order, and `explain` says so."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import autotopk
from autotopk import registry, settings
from autotopk.candidate import Candidate
from autotopk.compilers import nvcc
from autotopk.compilers.tilelang import TileLangSource
from autotopk.device import H100, cpu_device
from autotopk.files import write_atomically
from autotopk.identity import NOTHING, Identity
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.runtime import dispatch
from autotopk.runtime.state import default
from autotopk.tuning_db import artifact
from autotopk.tuning_db.records import Winner
from autotopk.workloads import tagged
from tests.compilers.small_sources import KERNEL, pack
from tests.runtime.conftest import Planted
from tests.runtime.same import check, unwarned
from tests.runtime.winners import CHUNKED, FIRST_CALLS, SORT, environment, python, winner

FOLLOW = """
import torch, autotopk, warnings
warnings.simplefilter("error")
x = torch.randn(64, 4096)
explanation = autotopk.explain(x, 128)
print(explanation.choice.step, explanation.to_dict()["strategy"], explanation.to_dict()["config"])
print("sort" in str(explanation), "exact" in str(explanation))
from unittest.mock import patch
with patch("torch.sort", side_effect=torch.sort) as sort, patch("torch.topk", side_effect=torch.topk) as topk:
    autotopk.topk(x, 128)
print(sort.call_count, topk.call_count)
"""


def test_planted_winner_is_followed(tmp_path: Path) -> None:
    """A deliberately different winner, in a fresh process with an empty cache and no shipped winners."""
    path = tmp_path / "planted.sqlite"
    artifact.publish([winner(64, 4096, 128, SORT)], path)
    said = python(FOLLOW, environment(tmp_path / "empty", AUTOTOPK_DB=str(path)))
    assert said.splitlines() == [
        "exact torch_fallback {'chunk': 0, 'method': 'sort'}",
        "True True",
        "1 0",
    ]


@pytest.fixture
def user_winners(cache_dir: Path) -> Path:
    return cache_dir / "winners.sqlite"


def step(rows: int, cols: int, k: int, *, order: bool = True, dtype: torch.dtype = torch.float32) -> tuple[str, str]:
    """The step that answers, and the configuration."""
    choice = autotopk.explain(torch.zeros(rows, cols, dtype=dtype), k, sorted=order).choice
    return choice.step, choice.candidate.config


TORCH = ("torch", '{"chunk":0,"method":"topk"}')


@unwarned
def test_every_step(user_winners: Path, planted: Planted) -> None:
    registry.unregister(planted.name)
    artifact.publish([winner(64, 4096, 128, CHUNKED)], user_winners)
    assert step(64, 4096, 128) == ("exact", CHUNKED)
    assert step(60, 4000, 120) == ("bucket", CHUNKED)
    assert step(64, 4096, 64) == ("neighbour", CHUNKED)
    assert step(64, 4096 * 64, 128) == TORCH  # too far
    assert step(64, 4096, 128, order=False) == TORCH
    assert step(64, 4096, 128, dtype=torch.float64) == TORCH
    registry.register(planted)
    autotopk.reload()
    assert step(64, 4096, 128) == ("exact", CHUNKED)
    assert step(64, 4096 * 64, 128) == ("heuristic", '{"knob":0}')


@unwarned
def test_forced(user_winners: Path, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact.publish([winner(64, 4096, 128, CHUNKED)], user_winners)
    monkeypatch.setenv("AUTOTOPK_STRATEGY", "planted")
    autotopk.reload()
    assert step(64, 4096, 128) == ("forced", '{"knob":0}')
    check(torch.randn(64, 4096), 128)
    assert planted.answers == 1


def test_forcing_an_unknown_strategy_costs_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_STRATEGY", "no_such")
    with pytest.warns(autotopk.AutotopkWarning, match="no strategy 'no_such'; installed: .*torch_fallback"):
        check(torch.randn(4, 9), 3)


def test_nothing_is_chosen_that_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the shipped winners, neither compilers nor kernels: one warning a family, which says what is missing."""
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    monkeypatch.setattr(nvcc, "reasons_missing", lambda: ["nvcc is not found (get it)"])
    autotopk.reload()
    shipped = artifact.read(Path(str(settings.shipped_winners_path())))
    h200 = next(one.device for one in shipped if one.device.name == "NVIDIA H200")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        choices = [dispatch.choose(workload.problem("cuda"), h200) for workload in tagged("seeds")]
    assert {choice.strategy.name for choice in choices} == {"lane_merge", "torch_fallback"}
    passed_over = [str(one.message) for one in caught if "cannot be built here" in str(one.message)]
    assert sorted(message.split()[0] for message in passed_over) == [
        "block_buckets",
        "block_radix",
        "cluster_lists",
        "cluster_radix",
        "load_maxima",
        "stream_lists",
        "wide_radix",
    ]
    assert all("nvcc is not found (get it)" in message for message in passed_over)
    assert not any("was tuned" in str(one.message) for one in caught)  # it was
    reasons = [reason for choice in choices for reason in choice.rejected]
    assert any(
        "measured at 64x8192 k=256" in one and "cannot be built here: nvcc is not found" in one for one in reasons
    )


def test_kernels_that_are_kept_are_chosen_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    monkeypatch.setattr(nvcc, "reasons_missing", lambda: ["no nvcc"])
    autotopk.reload()
    problem = Problem.contiguous(64, 8192, 256)
    [known] = [one for one in default.known().values() if one.device is not None and one.device.name == "NVIDIA H200"]
    winner = known.exact(TuningKey.of(problem))
    assert winner is not None
    strategy = registry.get(winner.candidate.strategy)
    config, device = strategy.parse_config(winner.candidate.config), winner.device
    for source in strategy.program(config, problem, device).sources:
        write_atomically(source.cache_path(device.arch), b"kept")
    choice = dispatch.choose(problem, device)
    assert (choice.step, choice.strategy.name, choice.rejected) == ("exact", strategy.name, ())


def test_kernels_that_are_shipped_are_chosen_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTOPK_STRATEGY", "block_radix")
    monkeypatch.setattr(nvcc, "reasons_missing", lambda: ["no nvcc"])
    problem, strategy = Problem.contiguous(64, 8192, 256), registry.get("block_radix")
    assert dispatch.choose(problem, H100).strategy.name == "torch_fallback"
    monkeypatch.setattr(TileLangSource, "compile", lambda self, arch: KERNEL)
    sources = strategy.program(strategy.heuristic(problem, H100), problem, H100).sources
    monkeypatch.setenv("AUTOTOPK_PACKS", str(pack(tmp_path / "packs", sources, 90, 90)))
    assert dispatch.choose(problem, H100).strategy is strategy
    assert autotopk.explain_problem(problem, H100).origins == ("pack",)
    assert "\n  kernels: shipped compiled" in str(autotopk.explain_problem(problem, H100))


def test_nearest_winner_wins(user_winners: Path) -> None:
    near, far = winner(64, 4096, 64, CHUNKED), winner(64, 2048, 32, SORT)
    artifact.publish([far, near], user_winners)
    assert step(64, 4096, 130) == ("neighbour", CHUNKED)
    assert step(64, 2048, 48)[1] == SORT


def test_configuration_that_does_not_fit_is_passed_over(user_winners: Path) -> None:
    """Chunks of 512 of a winner for 4096 columns are none of a row of 600."""
    artifact.publish([winner(64, 1024, 128, CHUNKED), winner(64, 300, 128, SORT)], user_winners)
    choice = autotopk.explain(torch.zeros(64, 600), 128).choice
    assert choice.candidate.config == SORT
    assert any("512" in reason and "does not fit" in reason for reason in choice.rejected)


def test_layers(tmp_path: Path, user_winners: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTOTOPK_DB ahead of the user's winners, key by key."""
    deployed = tmp_path / "deployed.sqlite"
    artifact.publish([winner(64, 4096, 128, SORT)], deployed)
    artifact.publish([winner(64, 4096, 128, CHUNKED), winner(8, 4096, 128, CHUNKED)], user_winners)
    monkeypatch.setenv("AUTOTOPK_DB", str(deployed))
    autotopk.reload()
    assert step(64, 4096, 128) == ("exact", SORT)
    assert step(8, 4096, 128) == ("exact", CHUNKED)


def test_winners_of_other_devices_are_not_followed(user_winners: Path) -> None:
    others = [
        winner(64, 4096, 128, SORT, device=H100),
        winner(64, 4096, 128, SORT, device=replace(cpu_device(), processors=4096)),
    ]
    artifact.publish(others, user_winners)
    with pytest.warns(autotopk.AutotopkWarning, match="nothing like"):
        assert step(64, 4096, 128) == TORCH


def test_stale_winner_is_served_and_said(user_winners: Path) -> None:
    artifact.publish([winner(64, 4096, 128, CHUNKED, identity=Identity("", "version 0123456789ab"))], user_winners)
    explanation = autotopk.explain(torch.zeros(64, 4096), 128)
    assert explanation.choice.step == "exact"
    assert explanation.current is False
    assert "stale" in str(explanation)
    check(torch.randn(64, 4096), 128)


@pytest.mark.parametrize(
    "useless",
    [
        {"strategy": "not_installed_here"},
        {"config": '{"method":"sort"}'},
        {"config": '{"method":"bogosort","chunk":0}'},
        {"config": '{"method":"chunked","chunk":7777}'},
        {"config": '{"chunk":"many","method":"chunked"}'},
        {"config": '{"chunk":[512],"method":"chunked"}'},
    ],
    ids=str,
)
def test_useless_winner_is_passed_over(user_winners: Path, useless: dict[str, str]) -> None:
    good = winner(64, 4096, 128, CHUNKED)
    try:
        bad = replace(good, candidate=replace(good.candidate, **useless))
        artifact.publish([bad, replace(good, key=replace(good.key, k=64))], user_winners)
    except autotopk.AutotopkError:
        return  # refused even earlier
    assert step(64, 4096, 128) == ("neighbour", CHUNKED)
    check(torch.randn(64, 4096), 128)


def test_rows_of_an_h100_are_explained_without_one(user_winners: Path) -> None:
    problem = Problem.contiguous(64, 128, 5)
    config = '{"rows_per_program":2,"warps":1}'
    artifact.publish(
        [
            Winner(
                H100,
                TuningKey.of(problem),
                Candidate("masked_argmax", config),
                NOTHING,
                2.0,
                8.0,
                0.25,
                "aten",
                "2026-01-01",
            )
        ],
        user_winners,
    )
    explanation = autotopk.explain_problem(problem, H100)
    assert (explanation.choice.step, explanation.choice.candidate.config) == ("exact", config)
    assert explanation.to_dict()["ratio"] == 0.25


def test_one_warning_where_nothing_was_tuned() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for cols in range(10, 30):
            autotopk.topk(torch.randn(3, cols), 2)
            autotopk.topk(torch.randn(3, cols), 2)
    assert [warning.category for warning in caught] == [autotopk.AutotopkWarning]
    assert "autotopk tune" in str(caught[0].message)


@unwarned
def test_misses_are_written_only_when_asked(tmp_path: Path, cache_dir: Path) -> None:
    code = "import torch, autotopk; autotopk.topk(torch.randn(4, 9), 3); autotopk.topk(torch.randn(4, 9), 3)"
    misses = tmp_path / "misses.jsonl"
    python(code, environment(cache_dir))
    assert not cache_dir.exists()
    python(code, environment(cache_dir, AUTOTOPK_MISSES=str(misses)))
    [line] = misses.read_text().splitlines()
    assert '"cols": 9' in line


@pytest.mark.parametrize("tuned", [False, True])
def test_sixteen_first_calls_at_once(cache_dir: Path, tuned: bool) -> None:
    """No error, and no warning but the documented one."""
    if tuned:
        one_thread = replace(cpu_device(), processors=1)
        artifact.publish([winner(64, 1024, 16, CHUNKED, device=one_thread)], cache_dir / "winners.sqlite")
    said = python(FIRST_CALLS, environment(cache_dir, DEVICE="cpu"))
    assert said.splitlines() == ["[]" if tuned else "['AutotopkWarning: nothing like']"] * 16


def test_a_choice_makes_a_program_once_for_each_problem() -> None:
    """What is asked whether it is there is what is bound."""
    one, other = Problem.contiguous(64, 4096, 128), Problem.contiguous(64, 4096, 128, "bfloat16")
    strategy = registry.get("block_buckets")
    choice = dispatch.Choice("heuristic", strategy, strategy.ladder(one, H100)[0])
    assert choice.program(one, H100) is choice.program(replace(one), H100)
    assert choice.program(one, H100) == strategy.program(choice.config, one, H100)
    assert choice.program(other, H100) == strategy.program(choice.config, other, H100) != choice.program(one, H100)
