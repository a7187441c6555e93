"""Four tuners beside one."""

import time
from pathlib import Path

import pytest

from autotopk.tuning_db.store import Store
from autotopk.workloads import grid
from tests.fleet.sleeping import QUICKEST, Sleeping
from tests.fleet.tuners import ENDED, Order, Tuner
from tests.tuning_db.servers import PostgresServer

WORKLOADS = grid([1, 2], [64, 96, 128, 160], [3, 5])


def seconds(tuners: int, postgres: PostgresServer, folder: Path) -> float:
    """From the start of so many processes to the end of the last; all workloads have the right winner then."""
    variables = {"AUTOTOPK_CACHE_DIR": str(folder), "AUTOTOPK_SHIPPED": "0"}
    order = Order(postgres.make(), folder, WORKLOADS, strategies=[Sleeping.name], variables=variables)
    begun = time.monotonic()
    fleet = [Tuner(order, f"{tuners}-{number}") for number in range(tuners)]
    assert [one.finish(600) for one in fleet] == [0] * tuners
    took = time.monotonic() - begun
    assert [one.words(ENDED) for one in fleet] == [["finished"]] * tuners
    with Store.open(order.database, read_only=True) as store:
        winners = {one.key: one.candidate for one in store.winners()}
    assert winners == dict.fromkeys((one.key for one in WORKLOADS), Sleeping().candidate(QUICKEST))
    return took


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_four_tuners_take_a_third_of_the_time_of_one(postgres: PostgresServer, tmp_path: Path) -> None:
    one, four = (seconds(count, postgres, tmp_path) for count in (1, 4))
    print(f"\none tuner {one:.0f} s, four {four:.0f} s: {four / one:.2f}")
    assert four <= 0.35 * one
