"""Cuts by maxima of lines, of `load_maxima` and `stream_maxima`, in the emulator."""

import pytest
import torch

from autotopk import registry
from autotopk.oracle import inputs
from autotopk.strategies.load_maxima import LoadMaximaConfig
from autotopk.strategies.stream_maxima import StreamMaximaConfig
from tests.contract.cases import Case, best_columns
from tests.contract.emulated import answer, barriers
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")

MAXIMA = [
    ("load_maxima", LoadMaximaConfig(1, 128, 16, 512)),
    ("load_maxima", LoadMaximaConfig(4, 64, 32, 512)),
    ("stream_maxima", StreamMaximaConfig(1, 64, 128, 512)),
]


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize(("family", "config"), MAXIMA, ids=str)
def test_cuts_by_maxima(
    family: str, config: LoadMaximaConfig | StreamMaximaConfig, largest: bool, sequences: Sequences
) -> None:
    """Far from the guess: steps of all sizes, ties at the k-th, lines that are alike, and what maxima of lines hide."""
    strategy, cols = registry.get(family), config.room // 4
    generator = torch.Generator().manual_seed(1)
    numbers = torch.arange(cols)
    alone = torch.randperm(cols // 4, generator=generator)[:, None].mul(4).add(torch.arange(4)).flatten()  # lines moved
    ramp = numbers / cols
    steps = {size: -torch.exp2((numbers // size).clamp(max=120).float() - 60) for size in (300, 600)}
    hidden = torch.where(numbers % 4 == 0, 1e9, ramp)  # the k-th is below the maxima of all lines that have it
    hidden[4 * 90 :] = -1
    cases = [*steps.values(), ramp, torch.where(ramp < 0.9, ramp, 3e38 * ramp), hidden, (numbers % 700 == 0).float()]
    for seed, x in enumerate(cases):
        for order in (numbers, alone):
            row = x[order][None] if largest else -x[order][None]
            for k in (100, 300):
                case = Case(1, cols, k, "float32", largest=largest, layout="aligned")
                _, indices = answer(sequences, strategy, config, case, row, seed=seed)
                assert torch.equal(indices, best_columns(row, k, largest=largest)), (seed, k)


@pytest.mark.parametrize(
    ("family", "config", "name", "times"),
    [
        ("load_maxima", LoadMaximaConfig(1, 256, 32, 256), "descending", 2.1),
        ("load_maxima", LoadMaximaConfig(4, 256, 32, 256), "ascending", 2.1),
        ("stream_maxima", StreamMaximaConfig(1, 256, 128, 512), "sampler_peaks", 4),
    ],
    ids=str,
)
def test_cuts_by_maxima_are_found_soon(
    family: str, config: LoadMaximaConfig | StreamMaximaConfig, name: str, times: float, sequences: Sequences
) -> None:
    """Far from the guess, by few lists: each takes barriers, and ranks of drawn maxima took twice as many of them."""
    strategy, cols, k = registry.get(family), config.room // 4, 60
    random, its = (inputs.make(one, 1, cols, k, torch.float32, "cpu") for one in ("random", name))
    assert barriers(sequences, strategy, config, its, k) <= times * barriers(sequences, strategy, config, random, k)


def test_nan_beside_others_are_no_crowd(sequences: Sequences) -> None:
    """They have intervals of their own; to put a crowd in order takes barriers more."""
    strategy, config, k = registry.get("load_maxima"), LoadMaximaConfig(1, 256, 16, 1024), 256
    random, few = (inputs.make(name, 1, 16384, k, torch.float32, "cpu") for name in ("random", "few_nan"))
    more = 4  # once for extremes without a guess, and twice for those without NaN
    assert barriers(sequences, strategy, config, few, k) <= barriers(sequences, strategy, config, random, k) + more
