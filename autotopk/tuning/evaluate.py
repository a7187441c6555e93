"""What a tuner's worker process does with candidates: build, check against the oracle, time.

Nothing is timed that was not checked in this very process. Inputs are shared by all candidates of a problem.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from autotopk import registry
from autotopk.candidate import Candidate
from autotopk.device import device_of
from autotopk.errors import WrongAnswerError
from autotopk.oracle.inputs import make, names_for
from autotopk.problem import Problem
from autotopk.runtime.launch import bind
from autotopk.runtime.trial import Trial
from autotopk.tuning.candidates import program_of
from autotopk.tuning.timing import Sample, Timer, random_inputs, timer_for

GATE_INPUTS = ("all_equal", "narrow", "ties", "ascending", "minus_inf_padding", "infinities", "nan", "few_nan")
"""What every candidate must return right results for before it is timed, besides random data of the full size."""

GATE_BYTES = 32 << 20
"""Largest input of those: rows are cut to fit, so that the check stays cheap on large shapes."""

WORST_SAMPLES = 3
"""Samples of each adversarial input."""

HOPELESS = 4.0
"""Times torch.topk's time that need no second sample."""

BASELINE_US = 2000.0
"""Of a sample of torch.topk, which takes many times as long as what is raced beside it: calls that fill so much."""

Run = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Screening:
    """A quick look at a checked candidate: microseconds of one call, sample by sample beside torch.topk's."""

    samples_us: tuple[float, ...]
    baseline_us: tuple[float, ...]
    cold: bool


class Evaluator:
    """One problem on one device at a time, with its inputs, torch.topk, and the candidates that were built for it."""

    def __init__(self, problem: Problem, device: torch.device) -> None:
        self.problem = problem
        self._device = device
        self._dtype: torch.dtype = getattr(torch, problem.dtype)
        self._timer: Timer = timer_for(random_inputs(problem, device))
        self._runs: dict[Candidate, Run] = {}
        self._samples: dict[Candidate, Sample] = {}
        self._gate_inputs: dict[tuple[str, int], Tensor] = {}
        self._trial = Trial.of(problem, str(device))
        self._baseline = self._timer.prepare(self._trial.torchs, BASELINE_US)
        for _ in range(3):
            self._baseline()  # clocks come up

    def screen(self, candidate: Candidate, samples: int) -> Screening:
        """Build, check and time a candidate a few times in turn with torch.topk, once where it takes far longer.

        Raises UnknownStrategyError or UnsupportedProblemError, BuildError, WrongAnswerError, MeasurementError, and
        whatever the candidate itself raises.
        """
        pairs = [(self.sample(candidate), self._baseline())]
        while len(pairs) < samples and pairs[0][0] < HOPELESS * pairs[0][1]:
            pairs.append((self.sample(candidate), self._baseline()))
        mine, baseline = zip(*pairs, strict=True)
        return Screening(mine, baseline, self._timer.cold)

    def sample(self, candidate: Candidate | None) -> float:
        """Microseconds of one call of a candidate, or of torch.topk. Raises what `screen` raises."""
        if candidate is None:
            return self._baseline()
        if candidate not in self._samples:
            self._samples[candidate] = self._timer.prepare(self._run(candidate))
        return self._samples[candidate]()

    def adversarial_slowdown(self, candidate: Candidate) -> float:
        """The slowest adversarial input as a ratio to random input; the results of all of them are checked.

        Spoils the inputs: ask nothing after it. Raises what `screen` raises.
        """
        self.sample(candidate)
        sample = self._samples[candidate]
        usual = median(sample() for _ in range(WORST_SAMPLES))
        worst = usual
        for name in names_for(self._dtype):
            adversary = self._make(name, self.problem.rows)
            self._check(self._runs[candidate], self.problem, name, adversary)
            self._timer.fill(adversary)
            worst = max(worst, median(sample() for _ in range(WORST_SAMPLES)))
        return worst / usual

    def _run(self, candidate: Candidate) -> Run:
        """The candidate's call, built and checked on first use."""
        if candidate not in self._runs:
            run = self._bind(candidate, self.problem)
            self._check(run, self.problem, "random", self._timer.inputs[0])
            self._check_adversaries(candidate, run)
            self._runs[candidate] = run
        return self._runs[candidate]

    def _bind(self, candidate: Candidate, problem: Problem) -> Run:
        device = device_of(self._device)
        return self._trial.call(bind(program_of(candidate, problem, device), problem, device))

    def _check_adversaries(self, candidate: Candidate, run: Run) -> None:
        problem = self._cut(candidate)
        if problem != self.problem:
            run = self._bind(candidate, problem)
        for name in GATE_INPUTS:
            if name in names_for(self._dtype):
                if (name, problem.rows) not in self._gate_inputs:
                    self._gate_inputs[name, problem.rows] = self._make(name, problem.rows)
                self._check(run, problem, name, self._gate_inputs[name, problem.rows])

    def _cut(self, candidate: Candidate) -> Problem:
        """The problem with no more rows than `GATE_BYTES` hold, where the candidate serves that."""
        rows = max(1, GATE_BYTES // (self.problem.cols * self.problem.itemsize))
        cut = replace(self.problem, rows=min(rows, self.problem.rows))
        strategy, device = registry.get(candidate.strategy), device_of(self._device)
        able = not strategy.reasons_unable(cut, device)
        valid = able and strategy.valid(strategy.parse_config(candidate.config), cut, device)
        return cut if valid else self.problem

    def _check(self, run: Run, problem: Problem, name: str, x: Tensor) -> None:
        if wrong := self._trial.problems_with(x, run(x)):
            raise WrongAnswerError(f"on {name!r}, {problem}: {'; '.join(wrong)}")

    def _make(self, name: str, rows: int) -> Tensor:
        return make(name, rows, self.problem.cols, self.problem.k, self._dtype, str(self._device))
