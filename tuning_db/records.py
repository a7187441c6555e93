"""What is stored, as plain data: standard library only, because run time reads winners through it."""

from dataclasses import dataclass, field
from typing import Literal

from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.identity import Identity
from autotopk.key import TuningKey

Status = Literal[
    "ok", "noisy", "unsupported", "build_failed", "wrong", "crashed", "timeout", "out_of_memory", "untimed"
]
"""How a candidate's turn ended. "noisy" was right but timed amid too much noise: it counts for nothing, and is taken
again. Everything else but "ok" is a recorded result that blocks the configuration."""

Stage = Literal["screen", "race"]
"""A quick look (3 to 5 samples), or the shuffled rounds that alone make winners."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The software around a measurement."""

    driver: str
    cuda: str
    torch: str
    triton: str
    tilelang: str
    python: str
    autotopk: str
    baseline: str
    """What torch.topk was: "aten", or "native" where torch ships an override."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One candidate's turn on one problem; never changed once stored."""

    uuid: str
    device: Device
    key: TuningKey
    candidate: Candidate
    identity: Identity
    """Of the program that ran; empty texts where there was none."""
    stage: Stage
    status: Status
    measured_at: str
    """UTC, ISO 8601."""
    samples_us: tuple[float, ...] = ()
    """Microseconds of one call, one entry a round."""
    baseline_us: tuple[float, ...] = ()
    """torch.topk in the same rounds."""
    ratio: float | None = None
    """Median over rounds of candidate / torch.topk; below 1 is faster."""
    margin: float | None = None
    """How far the farther end of the 95 % interval of `ratio` is, as a fraction of it."""
    adversarial_slowdown: float | None = None
    """Slowest adversarial input over random input, as a ratio of times; recorded for winners."""
    cold: bool = True
    """Whether inputs rotated through more than L2."""
    error: str | None = None
    """First line of what went wrong."""
    build_stats: dict[str, float] = field(default_factory=dict)
    """Compile seconds, registers, spilled bytes: whatever the build reported."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest known candidate for one key on one device."""

    device: Device
    key: TuningKey
    candidate: Candidate
    identity: Identity
    """Of the program that was measured."""
    time_us: float
    baseline_us: float
    """torch.topk in the same rounds."""
    ratio: float
    """time_us / baseline_us by the median of per-round ratios; below 1 is faster."""
    baseline: str
    """What torch.topk was, see `Environment.baseline`."""
    measured_at: str
    runner_up: Candidate | None = None
    gap: float | None = None
    """How much slower the runner-up is, as a fraction."""
    adversarial_slowdown: float | None = None
    margin: float | None = None
    """Of `ratio`, see `Measurement.margin`."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A measurement without its samples: how one candidate's turn ended, for who reads tens of thousands of them."""

    fingerprint: str
    """Of the device."""
    key: TuningKey
    candidate: Candidate
    stage: Stage
    status: Status
    ratio: float | None
    margin: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Software:
    """What runs on one device were made with, and when the first and the last of them began."""

    fingerprint: str
    environment: Environment
    runs: int
    first: str
    """UTC, ISO 8601, as `last`."""
    last: str


@dataclass(frozen=True, slots=True)
class Held:
    """Who measures what at this moment."""

    campaign: str
    device: str
    """Fingerprint."""
    key: TuningKey
    holder: str
    """host:pid:gpu."""
    token: int
    left_s: float
    """Seconds until the claim ends unless it is renewed."""
    measured: int
    """Candidates' turns that are stored of the workload, of this and earlier holders."""


@dataclass(frozen=True, slots=True)
class Specimens:
    """How far processors of one model differ, in ratios to torch.topk as fractions."""

    device: str
    """Fingerprint."""
    count: int
    """Of the processors that races ran on."""
    workloads: int
    """Those that some candidate was raced on several of them with, and did not tell the same to the last bit."""
    median: float | None
    """Over those workloads, of each the widest difference of a candidate; none without any."""
    widest: float | None
    key: TuningKey | None
    """Where that is."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a campaign is on a device model, in workloads."""

    campaign: str
    device: str
    """Fingerprint."""
    done: int
    claimed: int
    open: int
    """Neither complete nor held; also those whose holder is gone."""
    failed: int
    """Complete too: not even torch.topk could be timed."""
    left_s: float | None = None
    """Seconds to the end at the pace of the last workloads; none where there is no pace, or nobody at work."""
