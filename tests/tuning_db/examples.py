"""Measurements and winners, made up: one with named differences, or many by hypothesis."""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from hypothesis import strategies as st

from autotopk.candidate import Candidate
from autotopk.device import H100, Device
from autotopk.identity import Identity
from autotopk.key import TuningKey
from autotopk.problem import DTYPE_BYTES
from autotopk.tuning_db.records import Environment, Measurement, Winner
from autotopk.tuning_db.store import Store

CPU = Device("cpu", "a CPU", processors=4)
ATEN = Environment("580.1", "13.0", "2.12.0", "3.7.0", "absent", "3.11.7", "0.1.0", baseline="aten")
NATIVE = replace(ATEN, torch="2.13.0", baseline="native")
KEY = TuningKey("float32", 64, 1024, 8, sorted=True)


WARPS_4 = '{"warps":4}'


def measurement(
    name: str = "quick",
    ratio: float | None = 0.5,
    *,
    day: int = 1,
    config: str = WARPS_4,
    code: str = "v1",
    **changes: Any,
) -> Measurement:
    """A race on the H100, won or lost by `ratio`, on one day of a month."""
    ok = ratio is not None
    one = Measurement(
        uuid=uuid4().hex,
        device=H100,
        key=KEY,
        candidate=Candidate(name, config),
        identity=Identity(f"source of {code}", code),
        stage="race",
        status="ok" if ok else "wrong",
        measured_at=f"2025-01-{day:02}T00:00:00+00:00",
        samples_us=(10.0 * ratio, 10.0 * ratio, 90.0) if ratio is not None else (),
        baseline_us=(10.0, 10.0, 80.0) if ok else (),
        ratio=ratio,
        margin=0.01 if ok else None,
    )
    return replace(one, **changes)


def winner(**changes: Any) -> Winner:
    """A winner on the H100."""
    one = Winner(
        device=H100,
        key=KEY,
        candidate=Candidate("masked_argmax", '{"block":1024,"warps":4}'),
        identity=Identity("fedcba9876543210", "0123456789abcdef"),
        time_us=2.5,
        baseline_us=10.0,
        ratio=0.25,
        baseline="aten",
        measured_at="2025-01-01T00:00:00+00:00",
        runner_up=Candidate("torch_fallback", '{"chunk":0,"method":"topk"}'),
        gap=3.0,
        adversarial_slowdown=1.25,
        margin=0.02,
    )
    return replace(one, **changes)


texts = st.text("ab \"'\\;é☃😀[]", max_size=12)
lines = st.text("ab \n\"'\\;é☃😀\0", max_size=12)
times = st.floats(min_value=1e-3, max_value=1e9)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def keys(draw: st.DrawFn) -> TuningKey:
    cols = draw(st.integers(1, 2**40))
    dtype = draw(st.sampled_from(list(DTYPE_BYTES)))
    return TuningKey(dtype, draw(st.integers(1, 2**40)), cols, draw(st.integers(1, cols)), draw(st.booleans()))


counts = st.integers(0, 2**40)
devices = st.builds(
    Device, texts, texts, st.tuples(counts, counts), st.integers(1, 2**20), counts, st.integers(0, 999), counts
)
candidates = st.builds(
    Candidate,
    st.from_regex(r"[a-z_][a-z_0-9]{0,9}", fullmatch=True),
    st.sampled_from(["{}", '{"block":1024}', '{"fast":true,"method":"tôpk","share":0.5}']),
)
winners = st.builds(
    Winner,
    device=devices,
    key=keys(),
    candidate=candidates,
    identity=st.builds(Identity, texts, texts),
    time_us=times,
    baseline_us=times,
    ratio=times,
    baseline=st.sampled_from(["aten", "native"]),
    measured_at=texts,
    runner_up=st.none() | candidates,
    gap=st.none() | numbers,
    adversarial_slowdown=st.none() | times,
    margin=st.none() | numbers,
)


@st.composite
def measurements(draw: st.DrawFn) -> Measurement:
    """Any measurement, of few keys and candidates, so that they meet."""
    ok = draw(st.booleans())
    samples = st.lists(times, min_size=1, max_size=3).map(tuple) if ok else st.just(())
    return Measurement(
        uuid=uuid4().hex,
        device=H100,
        key=draw(st.sampled_from([KEY, replace(KEY, sorted=False)])),
        candidate=draw(st.builds(Candidate, st.sampled_from(["quick", "quicker"]), st.sampled_from([WARPS_4, "{}"]))),
        identity=Identity("source", draw(st.sampled_from(["v1", "v2"]))),
        stage=draw(st.sampled_from(["screen", "race"])),
        status="ok" if ok else draw(st.sampled_from(["unsupported", "build_failed", "wrong", "crashed", "timeout"])),
        measured_at=f"2025-01-{draw(st.integers(1, 5)):02}T00:00:00+00:00",
        samples_us=draw(samples),
        baseline_us=draw(samples),
        ratio=draw(st.floats(0.5, 0.6)) if ok else None,
        margin=draw(st.none() | st.floats(0, 0.2)) if ok else None,
        adversarial_slowdown=draw(st.none() | times),
        cold=draw(st.booleans()),
        error=None if ok else draw(lines),
        build_stats=draw(st.dictionaries(lines, numbers, max_size=2)),
    )


@contextmanager
def unprivileged() -> Iterator[None]:
    """Permissions of files hold here even if root runs the tests."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def ask(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(query).fetchall()


def filled(path: Path, *measured: Measurement) -> Path:
    """A database that holds these measurements of the H100."""
    with Store.open(path) as opened:
        opened.record(opened.begin_run(H100, ATEN, {}), measured)
    return path


SCHEMA_1 = Path(__file__).parent / "schema_1"
"""A tuning database and a winners file of version 0.1, as SQL: 30 measurements of two devices."""


def written_by_0_1(path: Path) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript((SCHEMA_1 / "tuning.sql").read_text())
    return path


MANY = [winner(device=device, key=replace(KEY, rows=rows)) for device in (H100, CPU) for rows in range(1, 41)]
LATER = [replace(one, time_us=3.5) for one in MANY]
"""Winners of two devices, and the same measured later."""


def checksums_hold(path: Path) -> bool:
    """Whether `sha256sum -c` is content."""
    command = ["sha256sum", "--check", "--strict", f"{path.name}.sha256"]
    return subprocess.run(command, cwd=path.parent, capture_output=True).returncode == 0
