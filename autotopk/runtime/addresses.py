"""What a launch is given: addresses of tensors and of scratch; and which of them, or which number, a parameter is."""

from collections.abc import Mapping, Sequence

from autotopk.errors import BuildError
from autotopk.kernel import Parameter, scalars
from autotopk.lists import LISTED
from autotopk.problem import MERGED, Problem
from autotopk.program import KernelProgram
from autotopk.told import TOLD

TENSORS = ("x", "values", "indices")
"""Inputs and outputs of all operations, in the order of a launch's addresses; those that an answer lacks are null."""

ROUTING = ("bias", "scale")
"""Those of routing come behind them: the address of the bias, null without one, and the bits of the float32 scale."""

SCRATCH_ALIGNMENT = 256


def places_of(program: KernelProgram, problem: Problem) -> tuple[dict[str, tuple[int, int]], int, int]:
    """(which of a launch's addresses, bytes behind it) of every tensor by name; bytes of garbage, bytes of zeros."""
    names = given(problem)
    places = {name: (slot, 0) for slot, name in enumerate(names)}
    values, ends = scalars(problem), [0, 0]
    for zeroed in (False, True):
        slot = len(names) + (zeroed and ends[False] > 0)
        for one in (one for one in program.scratch if one.zeroed == zeroed):
            if one.name in places:
                raise BuildError(f"scratch {one.name!r} bears the name of another tensor")
            size = one.bytes.of(values)
            places[one.name] = (slot, ends[zeroed]) if size else (-1, 0)  # a null pointer
            ends[zeroed] += -(-size // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
    return places, ends[False], ends[True]


def given(problem: Problem) -> tuple[str, ...]:
    """What a launch is given, in order, by name."""
    if problem.answer == "windows":
        return TENSORS + TOLD
    if problem.answer == MERGED:
        return TENSORS + LISTED
    return TENSORS if problem.routing is None else TENSORS + ROUTING


def slots(
    parameters: Sequence[Parameter], places: Mapping[str, tuple[int, int]], problem: Problem
) -> tuple[tuple[int, int] | str, ...]:
    """Of each (which address, what is added to it), or the name of a number."""
    for one in parameters:
        if one.name not in places and one.name not in scalars(problem):
            raise BuildError(f"no launch provides the parameter {one.name!r}")
    return tuple([places.get(one.name, one.name) for one in parameters])
