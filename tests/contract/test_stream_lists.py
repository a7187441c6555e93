"""stream_lists with lists that overflow, cuts that mislead, ties, and rows in order, in the emulator."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from autotopk import registry
from autotopk.oracle import inputs
from autotopk.problem import DTYPE_BYTES
from autotopk.strategies.stream_lists import StreamListsConfig
from tests.contract.cases import LAYOUTS, ORDERS, Case
from tests.contract.emulated import Kind, barriers, barriers_beyond_random, problems_of_all
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")


@dataclass(frozen=True)
class StreamKind(Kind):
    """Also what rows it takes."""

    config: StreamListsConfig

    @property
    def least_cols(self) -> int:
        """Of two batches."""
        return (2 * self.config.batch + 16) // DTYPE_BYTES[self.dtype]

    @property
    def of_thread(self) -> int:
        """Elements of the sample."""
        return 16 * self.config.loads // DTYPE_BYTES[self.dtype]


KINDS = [
    StreamKind("float32", StreamListsConfig(128, 4, 512)),
    StreamKind("float32", StreamListsConfig(128, 8, 1024)),
    StreamKind("bfloat16", StreamListsConfig(64, 8, 512)),
    StreamKind("bfloat16", StreamListsConfig(128, 4, 512)),
    StreamKind("float16", StreamListsConfig(64, 4, 512)),
]


def cases(kind: StreamKind) -> Iterator[Case]:
    layouts, orders = itertools.cycle(LAYOUTS), itertools.cycle(ORDERS)
    for name in inputs.names_for(getattr(torch, kind.dtype)):
        for more in (0, 37, 25_001):
            for k in (1, 50, kind.config.capacity // 2):
                largest, order = next(orders)
                least = max(kind.least_cols, k * kind.of_thread)
                yield Case(2, least + more, k, kind.dtype, name, largest, order, next(layouts))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_answers_right(kind: StreamKind, sequences: Sequences) -> None:
    strategy = registry.get("stream_lists")
    for case, problems in problems_of_all(sequences, strategy, kind.config, cases(kind)):
        assert not problems, case


@pytest.mark.parametrize(
    ("config", "cols", "k"),
    [(StreamListsConfig(256, 4, 2048), 12_000, 450), (StreamListsConfig(256, 8, 2048), 66_000, 1000)],
    ids=str,
)
def test_masked_rows_are_read_once(config: StreamListsConfig, cols: int, k: int, sequences: Sequences) -> None:
    """Whichever half or more of a row is not masked: a thread's sample is from all over the row.

    Where the mean of the warps' candidates does not tell, one barrier more does.
    """
    assert max(barriers_beyond_random(sequences, registry.get("stream_lists"), config, cols, k, "float32")) <= 1


@pytest.mark.parametrize(
    ("config", "cols", "k", "dtype"),
    [
        (StreamListsConfig(256, 4, 1024), 32_000, 256, torch.float32),
        (StreamListsConfig(256, 8, 512), 151_936, 64, torch.bfloat16),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "name", ["all_equal", "all_nan", "all_but_k_minus_1_equal", "ascending", "descending", "nan", "minus_inf_padding"]
)
def test_another_cut_suffices(
    name: str, config: StreamListsConfig, cols: int, k: int, dtype: torch.dtype, sequences: Sequences
) -> None:
    """Lists that are made shorter take more barriers: 46 of equal elements, 68 of a row in order."""
    for seed in range(2):
        x = inputs.make(name, 1, cols, k, dtype, "cpu", seed)
        assert barriers(sequences, registry.get("stream_lists"), config, x, k) <= 36


@pytest.mark.parametrize(
    ("config", "cols", "k", "dtype"),
    [
        (StreamListsConfig(256, 8, 512), 151_936, 64, torch.bfloat16),
        (StreamListsConfig(256, 4, 1024), 32_000, 256, torch.float32),
        (StreamListsConfig(512, 4, 4096), 131_072, 2048, torch.float32),
    ],
    ids=str,
)
def test_the_sample_rarely_misleads(
    config: StreamListsConfig, cols: int, k: int, dtype: torch.dtype, sequences: Sequences
) -> None:
    """Neither too few nor too many of a drawn row reach the cut."""
    strategy, generator = registry.get("stream_lists"), torch.Generator().manual_seed(1)
    for _ in range(6):
        x = torch.randn(1, cols, generator=generator).to(dtype)
        assert barriers(sequences, strategy, config, x, k) <= 8


def test_what_few_lines_have_is_not_looked_for_in_vain(sequences: Sequences) -> None:
    """Four wanted elements a line make counts rough: of a cut that too few reach, a list takes 130 barriers.

    Which lines are looked at depends on where a row lies, so that some rows have such a cut: fewer than one in thirty.
    """
    strategy, config, cols = registry.get("stream_lists"), StreamListsConfig(512, 4, 4096), 131_072
    rows, taken = inputs.make("hashed_peaks", 60, cols, 2048, torch.float32, "cpu"), []
    for lines in range(4):
        room = torch.empty(1, cols + 128)[:, 32 * lines :][:, :cols]
        taken += [barriers(sequences, strategy, config, room.copy_(row), 2048) for row in rows]
    assert sum(count > 80 for count in taken) < len(taken) / 30
