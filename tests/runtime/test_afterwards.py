"""What no call waits for: done in order, by one thread, also in a forked child."""

import os
import threading
import time
from collections.abc import Callable

import pytest

from autotopk.runtime import afterwards as module
from autotopk.runtime.afterwards import LONGEST_S, PAUSE_S, Afterwards


def held() -> tuple[Afterwards, list[int], threading.Event]:
    """With a job that waits, and one behind it that appends 1 to the list."""
    afterwards, done, go = Afterwards(), list[int](), threading.Event()
    afterwards.do(go.wait)
    time.sleep(2 * PAUSE_S)
    afterwards.do(lambda: done.append(1))
    return afterwards, done, go


def ended(afterwards: Afterwards, go: threading.Event | None = None) -> bool:
    if go is not None:
        go.set()
    until = time.monotonic() + 10.0
    while afterwards.pending and time.monotonic() < until:
        time.sleep(0.001)
    return not afterwards.pending


def test_jobs_are_done_in_order_by_one_other_thread() -> None:
    afterwards, done = Afterwards(), list[tuple[int, int]]()

    def job(number: int) -> Callable[[], None]:
        return lambda: done.append((number, threading.get_ident()))

    for number in range(100):
        afterwards.do(job(number))
        if number % 30 == 0:
            assert ended(afterwards)
    assert ended(afterwards)
    assert [number for number, _ in done] == list(range(100))
    assert len({thread for _, thread in done}) == 1
    assert done[0][1] != threading.get_ident()


def test_what_is_being_done_has_not_ended() -> None:
    afterwards, done, go = held()
    afterwards.clear()
    assert afterwards.pending
    go.set()
    assert ended(afterwards)
    assert done == []


def test_a_burst_of_calls_comes_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first job waits for a pause, and no longer than that may take."""
    monkeypatch.setattr(module, "PAUSE_S", 0.05)
    for calls in (30, 10_000):
        afterwards, begun, asked = Afterwards(), list[float](), list[float]()
        while not begun and len(asked) < calls:
            asked.append(time.monotonic())
            afterwards.do(lambda begun=begun: begun.append(time.monotonic()))  # type: ignore[misc]
            time.sleep(0.002)
        if calls == 30:
            assert not begun
            time.sleep(0.5)
            assert begun[0] - asked[-1] >= 0.05
        else:
            assert LONGEST_S <= begun[0] - asked[0] < 10 * LONGEST_S
        afterwards.clear()


def test_none_is_lost_that_comes_while_another_is_done() -> None:
    afterwards, done = Afterwards(), list[int]()

    def again(left: int) -> None:
        done.append(left)
        if left:
            afterwards.do(lambda: again(left - 1))

    afterwards.do(lambda: again(50))
    assert ended(afterwards)
    assert done == list(range(50, -1, -1))


def test_what_a_job_raises_is_a_warning_and_the_next_is_done() -> None:
    afterwards, done, go = Afterwards(), list[int](), threading.Event()
    for job in (go.wait, lambda: 1 / 0, lambda: done.append(1)):
        afterwards.do(job)
    with pytest.warns(UserWarning, match="ZeroDivisionError"):
        assert ended(afterwards, go)
    assert done == [1]


def test_what_was_not_begun_can_be_forgotten() -> None:
    afterwards, done, go = held()
    afterwards.clear()
    go.set()
    afterwards.do(lambda: done.append(2))
    assert ended(afterwards)
    assert done == [2]


def test_a_forked_child_does_what_was_not_begun_with_its_next_job() -> None:
    afterwards, done, go = held()
    child = os.fork()
    if child == 0:
        try:
            afterwards.do(lambda: done.append(2))
            os._exit(0 if ended(afterwards) and done == [1, 2] else 1)
        finally:
            os._exit(2)
    go.set()
    assert os.waitpid(child, 0)[1] == 0
    assert ended(afterwards)
    assert done == [1]
