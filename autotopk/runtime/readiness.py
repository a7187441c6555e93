"""Which choices may answer a call before anything is compiled, and what is wanted to be compiled for the next."""

from collections.abc import Callable

from autotopk import packs, settings
from autotopk.device import Device
from autotopk.problem import Answer, Problem
from autotopk.program import Program
from autotopk.runtime import launch
from autotopk.runtime.dispatch import Choice, Ready
from autotopk.runtime.state import Runtime


class Readiness:
    """Those whose kernels are there, for one look at the order of choice; the first that was not is kept.

    While a CUDA graph is captured, those whose kernels are loaded: a kernel that is loaded then may end the capture.
    """

    def __init__(
        self, runtime: Runtime, device: Device, answer: Answer = "pairs", *, captured_on: int | None = None
    ) -> None:
        """Set up.

        Args:
            runtime: whose builds count.
            device: where choices are to run.
            answer: what is to be written where the strategy can.
            captured_on: index of the CUDA device of a call that is captured.
        """
        self.wanted: Program | None = None
        """What came first and cannot answer, but could once it is compiled."""
        self.hurried: Problem | None = None
        """Answered by what is first nearby: nothing was weighed."""
        self._mode = settings.build_mode()
        self.builds = self._mode == "wait" and captured_on is None
        """The call itself compiles what is not there."""
        self._runtime, self._device, self._answer, self._captured_on = runtime, device, answer, captured_on

    @property
    def swaps(self) -> bool:
        """What is better may take over after the call: it is looked for, and compiled, in the background."""
        return self._mode == "background" and self._captured_on is None and self._runtime.swaps

    @property
    def ready(self) -> Ready | None:
        """For `dispatch.choices`."""
        return None if self.builds else self._reason

    def at_hand(self, choice: Choice, problem: Problem) -> str:
        """As `ready` says it, to a call that does not wait: whether the kernels came along; the problem is noted.

        To look into the cache of kernels takes as long as half of a plan: only where none come along for such a GPU.
        """
        program, arch = self._program_of(choice, problem), self._device.arch
        if not (program.comes_along(arch) or (packs.pack(arch) is None and program.is_cached(arch))):
            return "did not come along"
        self.hurried = problem
        return ""

    def lack(self, choice: Choice, problem: Problem) -> None:
        """Note that a choice cannot answer though its kernels seemed to be there."""
        self.wanted = self.wanted or self._program_of(choice, problem)

    def want(self, then: Callable[[], object]) -> None:
        """Have what came first compiled, if it is to be, and call `then` when it is. Raises what sources raise."""
        if self.wanted is not None and self.swaps:
            self._runtime.builds.want(self.wanted, self._device.arch, then)

    def _program_of(self, choice: Choice, problem: Problem) -> Program:
        return choice.program(choice.asked(problem, self._answer), self._device)

    def _reason(self, choice: Choice, problem: Problem) -> str:
        program, builds, arch = self._program_of(choice, problem), self._runtime.builds, self._device.arch
        if self._captured_on is not None:
            loaded = launch.is_loaded(program, self._device, self._captured_on)
            return "" if loaded else "not loaded when a graph was captured"
        if program.is_cached(arch):
            return ""
        if failure := builds.failure(program, arch):
            self._runtime.warn_once(
                f"{choice.candidate} failed to build",
                f"{choice.candidate} cannot be compiled and is left out: {failure}",
            )
            return f"cannot be compiled: {failure}"
        self.wanted = self.wanted or program
        if self._mode == "never":
            return "not compiled, which AUTOTOPK_BUILD=never leaves so"
        if builds.is_pending(program, arch):
            return "being compiled in the background, and answers from then on"
        return "not compiled yet, which the first call has done in the background"
