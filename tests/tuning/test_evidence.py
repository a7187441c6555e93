"""What is timed again, or anew, so that predictions rest on today's kernels."""

from pathlib import Path

import pytest
import torch

from autotopk import registry
from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.device import H100, device_of
from autotopk.key import TuningKey
from autotopk.tuning import doubts
from autotopk.workloads import Workload, spread
from scripts import evidence
from scripts.predictions import tuned, write

ONE, OTHER = Candidate("block_radix", "{}"), Candidate("split_radix", "{}")
KEY = Workload(64, 4096, 16).key


def test_what_was_near_the_best_is_taken_again_beside_the_best_of_the_others() -> None:
    far, third = Candidate("split_radix", "{ }"), Candidate("block_radix", "{ }")
    times = {KEY: {ONE: 11.0, OTHER: 10.0, far: 16.0, third: 10.5, TORCH_TOPK: 10.1}}
    assert evidence.again(times, {"split_radix"}) == {KEY: [OTHER, third]}
    assert evidence.again(times, {"wide_radix"}) == {}


def test_what_a_new_strategy_shortlists_is_timed_where_it_is_able_and_has_no_times() -> None:
    long = Workload(1, 10_000_000, 100).key
    times = {KEY: {ONE: 11.0}, long: {OTHER: 22.0, ONE: 30.0, TORCH_TOPK: 10.0}}
    found = evidence.added(times, ["grid_maxima"], H100)
    problem, strategy = evidence.problem_of(long, "cuda"), registry.get("grid_maxima")
    new = [strategy.candidate(config) for config in strategy.shortlist(problem, H100)]
    assert found.keys() == {long}, "of so many short rows it serves none"
    assert {*found[long]} == {*new, OTHER}
    assert evidence.added({long: {**times[long], new[0]: 20.0}}, ["grid_maxima"], H100) == {}


def test_drawn_shapes_are_new_and_what_is_asked_is_near_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    found = evidence.proposed(spread(10, seed=3), 5, H100, {})
    assert len(found) == 5
    assert all(found.values())
    first = next(iter(found))
    assert first not in evidence.proposed(spread(10, seed=3), 5, H100, {first: {}})


def test_shapes_in_the_most_doubt_are_those_of_drawn_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """And near the best is what may be quicker, by that doubt."""
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    drawn = spread(evidence.DOUBTED * 3, seed=3)
    asked: list[Workload] = []

    def doubt_at(_: object, workload: Workload, __: object) -> float | None:
        asked.append(workload)
        return None if len(asked) == 1 else float(len(asked) % 20)

    monkeypatch.setattr(doubts, "doubt_at", doubt_at)
    found = evidence.doubted(3, H100, seed=3)
    assert asked == drawn
    assert found == [drawn[18], drawn[17], drawn[16]]
    monkeypatch.undo()
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    near, all_ = evidence.proposed(found, 3, H100, {}, 1.0), evidence.proposed(found, 3, H100, {})
    assert near.keys() == all_.keys()
    assert all(1 <= len(near[key]) < len(all_[key]) for key in near)


def test_shapes_beside_others_are_near_them_and_of_their_kind() -> None:
    keys = [one.key for one in spread(200, seed=4)]
    found = list(evidence.beside(keys, 1))
    assert found == list(evidence.beside(keys, 1))
    for key, one in zip(keys, found, strict=True):
        assert (one.dtype, one.sorted) == (key.dtype, key.sorted)
        assert (one.k == one.cols) >= (key.k == key.cols)
        for mine, its in ((one.rows, key.rows), (one.cols, key.cols)):
            assert its / 1.63 - 0.5 <= mine <= its * 1.63 + 0.5
        assert 1 <= one.k <= min(one.cols, max(key.k * 1.63 + 0.5, one.cols * (key.k == key.cols)))


def test_kernels_that_few_ask_for_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those that are there."""
    monkeypatch.delenv("AUTOTOPK_PACKS")
    strategy = registry.get("block_radix")
    keys = [Workload(1 + row, 4096, 16).key for row in range(evidence.LEAST_ASKING)]
    problem = Workload.of(KEY).problem("cuda")
    shipped = strategy.candidate(strategy.ladder(problem, H100)[0])
    rare = strategy.candidate(
        strategy.parse_config('{"capacity":32,"items":12,"radix_bits":8,"threads":512,"vector":2}')
    )
    some = {key: [shipped, rare] for key in keys}
    assert evidence.without_rare(some, H100) == some
    few = dict(list(some.items())[1:])
    assert evidence.without_rare(few, H100) == {key: [shipped] for key in few}


def test_times_are_as_the_gpu_of_before_would_take() -> None:
    before = {KEY: {ONE: 10.0, OTHER: 30.0}}
    assert evidence.merged(before, {KEY: {ONE: 9.5, OTHER: 19.0}}, {"split_radix"}) == {
        KEY: {ONE: 10.0, OTHER: pytest.approx(20.0)}
    }
    odd = evidence.merged(before, {KEY: {ONE: 5.0, OTHER: 19.0}}, {"split_radix"})
    assert odd[KEY][OTHER] == pytest.approx(19.0 * evidence.MOST_DIFFERENT)
    new, alone = Workload(65, 4096, 16).key, Workload(66, 4096, 16).key
    found = evidence.merged(before, {new: {ONE: 5.0, OTHER: 6.0}, alone: {ONE: 7.0}}, ())
    assert found == {**before, new: {ONE: 5.0, OTHER: 6.0}}


def test_a_file_is_measured_and_written(tmp_path: Path) -> None:
    cpu, key = torch.device("cpu"), TuningKey("float32", 4, 100, 3, True)
    strategy, problem = registry.get("torch_fallback"), Workload.of(key).problem("cpu")
    candidates = [strategy.candidate(one) for one in strategy.shortlist(problem, device_of(cpu))]
    assert len(candidates) >= 2
    file = tmp_path / "cpu.json"
    write(file, {key: dict.fromkeys(candidates, 1e9)}, device_of(cpu))
    evidence.main([str(file), "--again", "torch_fallback", "--device", "cpu"])
    times, device = tuned(file)
    assert device == device_of(cpu)
    assert times[key].keys() == {*candidates}
    assert all(0 < us < 1e6 for us in times[key].values())


def test_another_kind_of_device_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gpu.json"
    write(file, {KEY: {ONE: 1.0}}, H100)
    with pytest.raises(SystemExit):
        evidence.main([str(file), "--again", "block_radix", "--device", "cpu"])
    assert "NVIDIA H100" in capsys.readouterr().err


def test_what_was_chosen_the_worst_by_all_others_is_taken_again_of_every_strategy() -> None:
    times, device = tuned()
    some = {key: times[key] for key in sorted(times, key=str)[:900:3] if not key.routing}
    odd = max(some, key=lambda key: (len(some[key]), str(key)))
    quickest = min(some[odd], key=some[odd].__getitem__)
    wrong = max(some[odd], key=lambda one: (one != TORCH_TOPK) * some[odd][one])
    some[odd] = {**some[odd], wrong: some[odd][quickest] / 1000}  # nobody would choose it
    assert evidence.worst(some, device, 1) == [odd]
    assert evidence.again({odd: some[odd]}, evidence.ALL) == {odd: [wrong]}, "nothing else is near that"
