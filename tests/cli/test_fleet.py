"""Tuners that share a database: started for every device, killed in the middle, and looked at."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotopk.cli import fleet
from autotopk.device import H100, cpu_device
from autotopk.errors import SelectionError
from autotopk.tuning_db.leases import Leases
from autotopk.tuning_db.store import Store
from tests.cli.conftest import Cli
from tests.tuning_db.examples import ATEN, KEY, measurement

WORKLOADS = ["--rows", "4", "--cols", "64,128,256", "-k", "3"]
COUNT = 6
"""Of these, in both orders."""


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("AUTOTOPK_LEASE", "3")
    return tmp_path / "tuning.sqlite"


def status() -> dict[str, Any]:
    command = [sys.executable, "-m", "autotopk", "fleet", "status", "--json"]
    told: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return told


def complete(database: Path, progress: dict[str, Any]) -> None:
    """That all are done, none is held, and every workload has a winner."""
    assert (progress["done"], progress["claimed"], progress["open"], progress["failed"]) == (COUNT, 0, 0, 0)
    with Store.open(database) as store:
        assert len(store.winners()) == COUNT


def test_a_tuner_for_every_device(database: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They share the workloads, each line says whose it is, and where one fails the others go on."""
    assert fleet.tune_everywhere(["tune", *WORKLOADS, "--device", "all"], None, None, ["cpu", "cuda:99", "cpu"]) == 2
    told = status()
    (progress,) = told["progress"]
    complete(database, progress)
    assert told["claimed"] == []
    lines = capfd.readouterr().out.splitlines()
    (failed,) = [line for line in lines if line.startswith("cuda:99: ")]
    assert "error: device 'cuda:99' is not here" in failed
    lines.remove(failed)
    assert sum("finished after" in line for line in lines) == 2
    with Store.open(database) as store:
        keys = [winner.key for winner in store.winners()]
        assert {one.specimen for one in store.evidence(cpu_device().fingerprint, keys[0])} == {socket.gethostname()}
    assert all(line.startswith("cpu: ") for line in lines)


EVERYWHERE = """
import sys
from autotopk.cli import fleet

sys.exit(fleet.tune_everywhere(["tune", "--tag", "ci"], None, None, ["cpu", "cpu"]))
"""


def test_the_end_of_a_job_is_passed_on(database: Path) -> None:
    """SIGTERM to the first process alone, as in a container: its tuners publish, and hold nothing any more."""
    with subprocess.Popen([sys.executable, "-c", EVERYWHERE], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        for line in job.stdout:
            if line.startswith("cpu: ["):  # a workload is done
                break
        job.terminate()
        output, _ = job.communicate(timeout=100)
    assert job.returncode == 130, output
    assert output.count("the same command again goes on from here") == 2
    (progress,) = status()["progress"]
    assert (progress["claimed"], progress["failed"]) == (0, 0)
    assert progress["done"] > 0
    assert progress["open"] > 0


def test_one_that_is_killed_is_taken_over_from(database: Path) -> None:
    command = [sys.executable, "-m", "autotopk", "tune", "--device", "cpu", "--campaign", "nightly", *WORKLOADS]
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (database.exists() and held(database)):
        time.sleep(0.1)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=200)
    (progress,) = status()["progress"]
    assert progress["campaign"] == "nightly"
    complete(database, progress)


def held(database: Path) -> bool:
    """Whether a tuner holds a workload."""
    from autotopk.tuning_db import leases

    try:
        with Store.open(database, read_only=True) as store:
            return bool(leases.status(store)[1])
    except Exception:  # being made
        return False


def test_status_in_words(cli: Cli, database: Path) -> None:
    """Of a campaign at work: how far it is, who holds what, and how far GPUs of one model differ."""
    with Store.open(database) as store:
        for specimen, ratio in (("GPU-1", 0.5), ("GPU-2", 0.52)):
            store.record(store.begin_run(H100, ATEN, {}, specimen), [measurement(ratio=ratio)])
        leases = Leases(store, "nightly", H100, "node7:4711:cuda0", 60.0)
        keys = [replace(KEY, rows=rows) for rows in (1, 2, 4, KEY.rows)]
        leases.enrol(keys)
        for key in keys[:2]:
            if claim := leases.claim([key]):
                leases.complete(claim, "tuned")
        leases.claim(keys[-1:])
    told = " ".join(cli("fleet", "status").stdout.split())
    assert f"{database} campaign device done claimed open failed left" in told
    assert f"nightly {H100.fingerprint} 50% 2 1 1 0 0:00:0" in told
    assert f"{KEY} {H100.fingerprint} node7:4711:cuda0 2 60 s" in told
    assert f"{H100.fingerprint} 2 1 4.0% 4.0% {KEY}" in told


def test_what_all_devices_do_not_go_with() -> None:
    with pytest.raises(SelectionError, match="needs a GPU, and none is here"):
        fleet.tune_everywhere(["tune"], None, None, [])
    with pytest.raises(SelectionError, match="--json goes with one device"):
        fleet.tune_everywhere(["tune", "--json"], None, None, ["cpu"])


def test_the_device_of_the_command_is_left_out() -> None:
    left = ["tune", "--tag", "ci", "--budget", "9"]
    assert fleet._without_device(["tune", "--device", "all", *left[1:]]) == left
    assert fleet._without_device([*left, "--device=all"]) == left
