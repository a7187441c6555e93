"""How far each effort looks, and what the next finds done."""

import math
from collections.abc import Iterable
from contextlib import closing
from itertools import islice

import pytest

from autotopk.candidate import TORCH_TOPK, Candidate, Knob
from autotopk.device import H100
from autotopk.tuning import search
from autotopk.tuning.candidates import candidates, lattice, rungs
from autotopk.tuning.context import Context
from autotopk.tuning.efforts import EFFORTS
from autotopk.tuning.environment import environment_of
from autotopk.tuning.events import CandidateMeasured, Event, WorkloadResult
from autotopk.tuning.run import TuningRun
from autotopk.tuning_db.records import Winner
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload
from tests.tuning.made_up_sweep import sweep
from tests.tuning.replay import InstantPool, ReplayWorker, run_session
from tests.tuning.test_session import Recorded, winner_of

LONG, SHORT = Workload(32, 128256, 50), Workload(4096, 256, 8)
"""Of more points than are enumerated, and of fewer."""

RADIX, LANES = ("block_radix", "cluster_radix"), ("lane_merge", "masked_argmax")


def worker(workload: Workload, fastest: Candidate | None = None, **options: float) -> ReplayWorker:
    """Times of a made-up sweep, perhaps with a best one."""
    times = {one.config: 100 * ratio for one, ratio in sweep(1)[workload].items() if ratio is not None}
    if fastest is not None:
        times[fastest.config] = 1.0
    return ReplayWorker(times=times, **options)  # type: ignore[arg-type]


def tune(
    store: Store,
    effort: str,
    workload: Workload,
    strategies: tuple[str, ...],
    worker: ReplayWorker,
    incumbent: Winner | None = None,
    neighbours: Iterable[Candidate] = (),
    share_s: float = 1e9,
    word: str = "",
    tell: list[Event] | None = None,
) -> WorkloadResult:
    """A session on an H100 whose kernels are there at once."""
    return run_session(
        store,
        worker,
        effort=effort,
        workload=workload,
        strategies=strategies,
        device=H100,
        incumbent=incumbent,
        neighbours=list(neighbours),
        share_s=share_s,
        pool=InstantPool(H100, word),
        tell=(lambda event: None) if tell is None else tell.append,
    )


def screened(worker: ReplayWorker) -> list[str]:
    """Configurations in the order of their screening."""
    return [config for method, config in worker.turns if method == "screen"]


def beyond(workload: Workload, strategies: tuple[str, ...]) -> Candidate:
    """A point of the lattice that is not in the shortlist."""
    problem = workload.problem("cuda")
    return lattice(problem, H100, strategies)[len(candidates(problem, H100, strategies))]


@pytest.mark.parametrize("workload", [SHORT, LONG, Workload(4096, 8192, 512)], ids=str)
def test_every_family_has_its_first_turn_before_any_has_its_second(workload: Workload) -> None:
    problem = workload.problem("cuda")
    families = [one.strategy for one in rungs(problem, H100)]
    several = len(set(families))
    assert len(families) > several > 4
    assert len(set(families[:several])) == several


def test_full_samples_knobs_beyond_the_shortlist(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a blind draw among them: TPE's own suggestions."""
    monkeypatch.setattr(search, "FAR", 0.0)
    problem, events = LONG.problem("cuda"), list[Event]()
    shortlist = [TORCH_TOPK, *candidates(problem, H100, RADIX)]
    result = tune(store, "full", LONG, RADIX, worker(LONG), tell=events)
    asked = [one.measurement.candidate for one in events if isinstance(one, CandidateMeasured)]
    asked = list(dict.fromkeys(asked))
    assert len(asked) == EFFORTS["full"].trials < result.candidates == len(lattice(problem, H100, RADIX)) + 1
    assert asked[: len(shortlist)] == shortlist

    def values(name: str, among: Iterable[Candidate]) -> set[tuple[str, Knob]]:
        return {(one.strategy, one.knobs[name]) for one in among if one != TORCH_TOPK}

    for knob in ("threads", "items", "radix_bits", "capacity"):
        assert values(knob, asked) > values(knob, shortlist), knob


def test_quick_screens_the_shortlist_and_winners_of_neighbours_alone(store: Store) -> None:
    shortlist, winner = candidates(SHORT.problem("cuda"), H100, LANES), beyond(SHORT, LANES)
    first = worker(SHORT)
    assert tune(store, "quick", SHORT, LANES, first, neighbours=[winner]).candidates == len(shortlist) + 2
    assert {*screened(first)} == {one.config for one in [*shortlist, winner, TORCH_TOPK]}
    assert tune(store, "quick", SHORT, LANES, worker(SHORT), winner_of(store)).outcome == "confirmed"
    again = worker(SHORT)
    assert tune(store, "quick", SHORT, LANES, again, winner_of(store)).outcome == "known"
    others = islice(reversed(lattice(SHORT.problem("cuda"), H100, LANES)), 4)
    assert tune(store, "quick", SHORT, LANES, again, winner_of(store), neighbours=others).outcome == "known"
    assert not again.turns, "a decided workload is not begun again for a neighbour"


def test_oracle_takes_the_whole_lattice_and_races_the_best(store: Store) -> None:
    problem, taken = SHORT.problem("cuda"), worker(SHORT)
    points = [TORCH_TOPK, *lattice(problem, H100, LANES)]
    assert tune(store, "oracle", SHORT, LANES, taken).outcome == "tuned"
    assert sorted(screened(taken)) == sorted(one.config for one in points)
    shortlist = [TORCH_TOPK, *candidates(problem, H100, LANES)]
    assert screened(taken)[: len(shortlist)] == [one.config for one in shortlist]
    raced = {one.candidate for one in store.measurements(stage="race")}
    assert TORCH_TOPK in raced
    assert len(raced) in (EFFORTS["oracle"].contenders, EFFORTS["oracle"].contenders + 1)
    assert len(raced) < len(points)
    for outcome in ("confirmed", "known"):
        assert tune(store, "oracle", SHORT, LANES, worker(SHORT), winner_of(store)).outcome == outcome


def test_oracle_goes_on_where_the_budget_ended_it(store: Store) -> None:
    points = 1 + len(lattice(LONG.problem("cuda"), H100, RADIX[1:]))
    turns: list[int] = []
    while not turns or turns[-1]:
        one = worker(LONG, busy_each_s=1.0)
        tune(store, "oracle", LONG, RADIX[1:], one, share_s=120.0)
        turns.append(len(screened(one)))
        assert turns[-1] <= 0.6 * 120 + 1
    assert sum(turns) == points
    assert len(turns) > 3


@pytest.mark.parametrize("first", ["quick", "full", "oracle"])
@pytest.mark.parametrize(("workload", "strategies"), [(LONG, RADIX[1:]), (SHORT, LANES)], ids=["long", "short"])
def test_less_effort_after_more_has_nothing_to_do(
    store: Store, first: str, workload: Workload, strategies: tuple[str, ...]
) -> None:
    efforts = ["quick", "full", "oracle"]
    assert tune(store, first, workload, strategies, worker(workload)).outcome == "tuned"
    assert tune(store, first, workload, strategies, worker(workload), winner_of(store)).outcome == "confirmed"
    for effort in efforts[: efforts.index(first) + 1]:
        again = worker(workload)
        assert (tune(store, effort, workload, strategies, again, winner_of(store)).outcome, again.turns) == (
            "known",
            {},
        )
    for effort in efforts[efforts.index(first) + 1 :]:
        assert tune(store, effort, workload, strategies, worker(workload), winner_of(store)).outcome == "tuned"


def test_a_winner_from_beyond_the_shortlist_is_kept(store: Store) -> None:
    """By its code: as long as that is the same it is not measured again, and then it is, and nothing else beyond."""
    winner = beyond(LONG, RADIX)
    for _ in range(2):
        tune(store, "oracle", LONG, RADIX, worker(LONG, winner))
    assert winner_of(store).candidate == winner
    shortlist = candidates(LONG.problem("cuda"), H100, RADIX)
    with Recorded(store) as recorded:
        again = worker(LONG, winner)
        assert tune(recorded, "quick", LONG, RADIX, again, winner_of(store)).outcome == "known"
        assert not again.turns
        result = tune(recorded, "quick", LONG, RADIX, again, winner_of(store), word="other code")
    assert {*screened(again)} == {one.config for one in [*shortlist, winner, TORCH_TOPK]}
    assert result.winner is not None
    assert result.winner.candidate == winner


def tune_all(store: Store, effort: str, workloads: list[Workload], worker: ReplayWorker) -> InstantPool:
    """A run of the tuner over radix families; what it compiles ahead is with the pool."""
    environment = environment_of(H100)
    with closing(InstantPool(H100)) as pool:
        context = Context(
            device=H100,
            environment=environment,
            effort=EFFORTS[effort],
            store=store,
            run=store.begin_run(H100, environment, {}),
            worker=worker,
            pool=pool,
            until=math.inf,
            tell=lambda event: None,
        )
        assert TuningRun(context, workloads, RADIX).go() == "finished"
    return pool


def test_only_what_is_sure_to_be_measured_is_compiled_ahead(store: Store) -> None:
    problem = LONG.problem("cuda")
    pool = tune_all(store, "full", [LONG], worker(LONG))
    assert pool.submitted == candidates(problem, H100, RADIX)
    pool = tune_all(store, "oracle", [LONG], worker(LONG))
    known = {one.candidate for one in store.measurements(stage="screen")}
    assert known == {TORCH_TOPK, *lattice(problem, H100, RADIX)}
    assert len(pool.submitted) == len(known) - EFFORTS["full"].trials


def test_a_winner_beyond_the_shortlist_reaches_its_neighbours(store: Store) -> None:
    winner, neighbour = beyond(LONG, RADIX), Workload(32, 131072, 64)
    tune_all(store, "oracle", [LONG], worker(LONG, winner))
    store.derive_winners()
    tune_all(store, "oracle", [LONG], worker(LONG, winner))
    one = worker(LONG, winner)
    tune_all(store, "quick", [neighbour], one)
    assert winner not in candidates(neighbour.problem("cuda"), H100, RADIX)
    assert screened(one)[:2] == [TORCH_TOPK.config, winner.config]
    for _ in range(2):
        tune_all(store, "quick", [neighbour, LONG], again := worker(LONG, winner))
        assert not screened(again)
    assert not again.turns
