"""From a tensor's layout to how a strategy answers it: what all operations share."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from autotopk.candidate import TORCH_TOPK
from autotopk.device import Device, device_of
from autotopk.errors import NotCompiledError, warn
from autotopk.problem import Answer, Problem
from autotopk.program import HostProgram, KernelProgram
from autotopk.runtime import dispatch, launch
from autotopk.runtime.afterwards import Job
from autotopk.runtime.counters import counters
from autotopk.runtime.dispatch import Choice
from autotopk.runtime.readiness import Readiness
from autotopk.runtime.state import Runtime
from autotopk.runtime.views import Run, View

HURRIED_BYTES = 1 << 28
"""Of the largest input whose first call does not wait until all is weighed: to read more takes as long."""

log = logging.getLogger("autotopk.plans")

Finish = Callable[[Any], Any]
"""From the tensors of an answer to what the caller gets."""


class Plan(NamedTuple):
    """How a strategy answers tensors of one layout."""

    run: Run
    finish: Finish | None
    """None where `run` returns what the caller gets."""
    choice: Choice
    """Why."""
    size: tuple[int, ...]
    """Of the result."""
    reach: int
    """See `outputs.write`."""


class Planner:
    """What is known of one operation: the plans of the layouts that were seen, and how they are made."""

    def __init__(self, name: str, answer: Answer, longest: int | None, runtime: Runtime) -> None:
        """Set up.

        Args:
            name: its own among the operations of a runtime.
            answer: what kernels are made to write for it, where their strategy can.
            longest: the longest dimension that is planned for.
            runtime: whose winners, plans and failures count.
        """
        self.name = name
        self.answer = answer
        self._longest = longest
        self._runtime = runtime
        self._plans = runtime.plans(name)

    def _finish(self, problem: Problem) -> Finish | None:
        """What is made of the answer to a problem; None where the caller gets it as it is."""
        return None

    def _first(self, key: Any, input: Tensor, rows: View | None) -> Plan | None:
        """The plan of a layout that has none, see `_made`; what is to be done after the call is asked for."""
        plan, later = self._made(key, input, rows)
        if later is not None:
            self._runtime.afterwards.do(later)
        return plan

    def _made(self, key: Any, input: Tensor, rows: View | None) -> tuple[Plan | None, Job | None]:
        """The plan of a layout that has none, remembered until something better is compiled; see `_plan`.

        The first call of a problem waits for no prediction, but takes what is first nearby; the job weighs all after
        it. While a graph is captured the plan makes do with what is loaded, and is not remembered.
        """
        device = device_of(input.device)
        captured_on = launch.captured_on(input)
        readiness = Readiness(self._runtime, device, self.answer, captured_on=captured_on)
        plan = self._plan(rows, input, device, readiness)
        tuned = plan is None or plan.choice.step in ("forced", "exact")
        counters.happened(*(("plans",) if tuned else ("plans", "misses")))
        if log.isEnabledFor(logging.DEBUG):
            told = "torch.topk" if plan is None else f"{plan.choice.candidate} by {plan.choice.step}"
            log.debug("%s %s %s: %s", self.name, tuple(input.shape), input.dtype, told)
        if captured_on is None:
            self._plans.remember(key, plan)
            if readiness.hurried is not None:
                return plan, partial(self._weigh, key, readiness.hurried, plan, device, input.device.index)
            try:
                readiness.want(partial(self._plans.pop, key, None))
            except Exception as error:  # a source may be anyone's code
                warn(f"nothing faster can be compiled for {tuple(input.shape)}: {error!r}")
        return plan, None

    def _weigh(self, key: Any, problem: Problem, plan: Plan | None, device: Device, index: int | None) -> None:
        """Look for what is better than a plan that was made in a hurry, and have it compiled.

        What is there is loaded, since the next call may be captured.
        """
        readiness = Readiness(self._runtime, device, self.answer)
        if not readiness.swaps:  # since the call
            return
        best = next(dispatch.choices(problem, device, runtime=self._runtime, ready=readiness.ready))
        self._runtime.weighed.remember(problem, True)
        again = partial(self._plans.pop, key, None)
        if best.candidate != (TORCH_TOPK if plan is None else plan.choice.candidate):
            try:
                asked = best.asked(problem, self.answer)
                program = best.program(asked, device)
                if isinstance(program, KernelProgram):
                    launch.bind(program, asked, device, index=index, build=False)
            finally:
                again()
        readiness.want(again)

    def _plan(self, rows: View | None, input: Tensor, device: Device, readiness: Readiness) -> Plan | None:
        """How a strategy answers; None where torch does."""
        if rows is None or (self._longest is not None and rows.problem.cols > self._longest):
            return None
        problem = rows.problem
        large = problem.rows * problem.cols * problem.itemsize > HURRIED_BYTES
        hurries = readiness.swaps and not large and problem not in self._runtime.weighed
        try:
            for view in rows.ways(input):
                for choice in dispatch.choices(
                    view.problem,
                    device,
                    runtime=self._runtime,
                    ready=readiness.ready,
                    hurry=readiness.at_hand if hurries else None,
                ):
                    if choice.step == "torch":
                        break
                    try:
                        return self._bound(choice, view, device, input.device.index, readiness)
                    except NotCompiledError:  # a file that cannot be read
                        readiness.lack(choice, view.problem)
                    except Exception as error:  # also what a third party's strategy raises
                        self._runtime.block(choice.candidate, device, error)
            if device.type == "cpu":
                dispatch.settle_cpu(device, self._runtime)
        except Exception as error:
            warn(f"no strategy could be chosen for {rows.problem}: {error!r}")
        return None

    def _bound(
        self, choice: Choice, view: View, device: Device, index: int | None, readiness: Readiness
    ) -> Plan | None:
        """The chosen program, made callable; None where it is torch's own way."""
        problem = choice.asked(view.problem, self.answer)
        program = choice.program(problem, device)
        if isinstance(program, HostProgram) and program.is_torch_topk:
            return None
        bound = launch.bind(program, problem, device, index=index, size=view.size, build=readiness.builds)
        run = view.around(bound)
        direct = run is bound and isinstance(program, KernelProgram) and problem.answer == "pairs"
        return Plan(run, self._finish(problem), choice, view.result_size, view.reach if direct else 0)
