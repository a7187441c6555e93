"""Short rows held in registers: k rounds of maximum and mask, in Triton."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers.triton import TritonSource
from autotopk.device import Device
from autotopk.kernel import kernel_symbol
from autotopk.problem import ANSWERS, FLOAT_INF, Problem, power_of_two
from autotopk.program import Extent, KernelProgram
from autotopk.strategies._short_rows import index_pointer, reasons_unlaunchable, reasons_unmerged
from autotopk.strategy import Features, Strategy

MAX_COLS = 8192
MAX_K = 128
ROWS = (1, 2, 4, 8, 16, 32, 64)
MAX_KEY_REGISTERS = {1: 64, 2: 64, 4: 64, 8: 32, 16: 16}
"""32-bit registers of a thread that may hold keys, by warps: more of them spill; half of it for several rows."""


@dataclass(frozen=True)
class MaskedArgmaxConfig:
    """How rows are laid out over threads."""

    rows_per_program: int
    warps: int


class MaskedArgmax(Strategy):
    """Exact and stable; its time grows with k, its registers with the row."""

    name = "masked_argmax"
    config_type = MaskedArgmaxConfig
    preference: ClassVar[int] = 10
    features = Features(
        answers=frozenset(ANSWERS), device_types=frozenset({"cuda"}), capability=(8, 0), embeddable=True
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs short rows and a small k."""
        reasons = reasons_unlaunchable(problem)
        if problem.cols > MAX_COLS:
            reasons.append(f"rows of {problem.cols} are longer than {MAX_COLS}")
        if problem.k > MAX_K:
            reasons.append(f"k={problem.k} is above {MAX_K}")
        if not any(_fits(MaskedArgmaxConfig(1, warps), problem) for warps in MAX_KEY_REGISTERS):
            reasons.append(f"rows of {problem.cols} {problem.dtype} do not fit a block's registers")
        return reasons

    def shortlist(self, problem: Problem, device: Device) -> Sequence[MaskedArgmaxConfig]:
        """Rows per program and warps, such that threads hold 1 to 64 elements and idle rows stay few.

        One point, for comparison, where lane_merge serves: it was faster on every shape measured.
        """
        if not reasons_unmerged(problem):
            return [_fewest_warps(problem)]
        width = power_of_two(problem.cols)
        return [
            config
            for rows in ROWS
            for warps in MAX_KEY_REGISTERS
            if rows < 2 * problem.rows
            and _fits(config := MaskedArgmaxConfig(rows, warps), problem)
            and rows * width >= 32 * warps
        ] or [MaskedArgmaxConfig(1, 1)]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Every layout, of no more than twice the rows."""
        rows = [rows for rows in ROWS if rows < 2 * problem.rows]
        return {"rows_per_program": rows, "warps": list(MAX_KEY_REGISTERS)}

    def valid(self, config: MaskedArgmaxConfig, problem: Problem, device: Device) -> bool:
        """Any layout whose registers suffice."""
        return config.rows_per_program in ROWS and config.warps in MAX_KEY_REGISTERS and _fits(config, problem)

    def heuristic(self, problem: Problem, device: Device) -> MaskedArgmaxConfig | None:
        """As few warps a row as hold it, while k rounds over it cost no more than torch.topk."""
        if problem.k * power_of_two(problem.cols) > 32 * 2048:
            return None
        return _fewest_warps(problem)

    def program(self, config: MaskedArgmaxConfig, problem: Problem, device: Device) -> KernelProgram:
        """One program for every `rows_per_program` rows."""
        wide = problem.dtype in ("float64", "int64")
        full_range = problem.dtype in ("int32", "int64")
        # float bits travel as integers of their width; the key's sign bit is that of the sign-extended value
        element = f"*{'u' if problem.dtype == 'uint8' else 'i'}{8 * problem.itemsize}"
        source = TritonSource(
            function="autotopk.strategies._short_rows.masking:masked_argmax_rows",
            signature=(
                ("x", element),
                ("values", element),
                ("indices", index_pointer(problem)),
                ("rows", "i32"),
                ("cols", "i32"),
                ("k", "i32"),
                ("row_stride", "i64"),
            ),
            constants=(
                ("BLOCK_ROWS", config.rows_per_program),
                ("BLOCK_COLS", power_of_two(problem.cols)),
                ("BLOCK_K", power_of_two(problem.k)),
                ("WIDE", wide),
                ("LOWEST", -(1 << 63) if wide else -(1 << 31)),
                ("FULL_RANGE", full_range),
                ("FLOAT_INF", FLOAT_INF.get(problem.dtype, 0)),
                ("SIGN_SHIFT", 8 * problem.itemsize - 1),
                ("LARGEST", problem.largest),
                ("INDICES_ONLY", problem.answer == "indices"),
            ),
            divisors=(
                ("x", problem.layout.vector * problem.itemsize),
                ("values", 16),
                ("indices", 16),
                ("cols", problem.layout.vector),
                ("row_stride", problem.layout.vector),
            ),
            warps=config.warps,
            symbol=kernel_symbol(self.name, problem, sorted=True),
        )
        return KernelProgram.of(source, Extent(per=(("rows", config.rows_per_program),)))


def _fewest_warps(problem: Problem) -> MaskedArgmaxConfig:
    layouts = (MaskedArgmaxConfig(1, warps) for warps in MAX_KEY_REGISTERS)
    return next(config for config in layouts if _fits(config, problem))


def _fits(config: MaskedArgmaxConfig, problem: Problem) -> bool:
    """Whether a thread's keys (and, for integers of full range, positions) fit its registers."""
    registers = {"int32": 2, "int64": 4, "float64": 2}.get(problem.dtype, 1)
    elements = config.rows_per_program * power_of_two(problem.cols) / (32 * config.warps)
    limit = MAX_KEY_REGISTERS[config.warps]
    return elements * registers <= (limit if config.rows_per_program == 1 else limit // 2)


strategy = MaskedArgmax()
