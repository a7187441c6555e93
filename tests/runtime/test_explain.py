"""`explain` names what `topk` runs, and refuses with words what it cannot explain."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import autotopk
from autotopk.candidate import Candidate
from autotopk.errors import AutotopkWarning
from autotopk.program import Extent, KernelProgram
from autotopk.runtime.state import default
from autotopk.tuning_db import artifact
from tests.runtime.conftest import Planted
from tests.runtime.same import unwarned
from tests.runtime.test_failures import BrokenSource
from tests.runtime.winners import winner

pytestmark = unwarned


@pytest.mark.parametrize("given", [[1.0, 2.0], None, 1.0], ids=repr)
def test_what_is_no_tensor(given: Any) -> None:
    """In the words of torch.topk, but for its own name."""
    with pytest.raises(TypeError, match=f"argument 'input'.* must be Tensor, not {type(given).__name__}"):
        torch.topk(given, 1)
    with pytest.raises(TypeError, match=f"argument 'input' must be Tensor, not {type(given).__name__}"):
        autotopk.explain(given, 1)


X = torch.randn(4, 9)

OF_TORCH: dict[str, Callable[[], tuple[Any, ...]]] = {
    "0-d": lambda: (torch.tensor(1.0), 1),
    "empty": lambda: (torch.randn(0, 3), 1),
    "k = 0": lambda: (X, 0),
    "k too large": lambda: (X, 10),
    "k float": lambda: (X, 2.0),
    "k bool": lambda: (X, True),
    "k text": lambda: (X, "2"),
    "dim too large": lambda: (X, 2, 2),
    "dim None": lambda: (X, 2, None),
    "complex": lambda: (torch.randn(4, 9, dtype=torch.complex64), 2),
    "meta": lambda: (X.to("meta"), 2),
    "sparse": lambda: (X.to_sparse(), 2),
    "compressed": lambda: (X.to_sparse_csr(), 2),
    "nested": lambda: (torch.nested.nested_tensor([X[0], X[1, :5]]), 2),
}


@pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore:Sparse")
@pytest.mark.parametrize("kind", OF_TORCH)
def test_what_goes_to_torch_topk(kind: str) -> None:
    with pytest.raises(ValueError, match="goes to torch"):
        autotopk.explain(*OF_TORCH[kind]())


def test_a_kernel_that_cannot_be_compiled_here_is_not_named(
    cache_dir: Path, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it was measured as the fastest; and nothing is blocked by asking."""
    artifact.publish([winner(4, 9, 2, candidate=Candidate("planted", '{"knob":1}'))], cache_dir / "winners.sqlite")
    monkeypatch.setattr(planted, "program", lambda *_: KernelProgram.of(BrokenSource("no compiler"), Extent()))
    assert autotopk.explain(X, 2).choice.step == "exact"
    monkeypatch.setattr(planted, "reasons_unbuildable", lambda: ["the compiler is missing"])
    autotopk.reload()
    with pytest.warns(AutotopkWarning, match="something slower runs: the compiler is missing"):
        explanation = autotopk.explain(X, 2)
    assert explanation.choice.step == "torch"
    assert "the compiler is missing" in str(explanation)
    assert not default._blocked


def test_winners_of_a_strategy_that_raises_are_not_known_to_be_current(
    cache_dir: Path, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact.publish([winner(4, 9, 2, candidate=Candidate("planted", '{"knob":1}'))], cache_dir / "winners.sqlite")
    explanation = autotopk.explain(X, 2)
    assert explanation.to_dict()["current"] is False
    monkeypatch.setattr(planted, "program", lambda *_: 1 / 0)
    assert explanation.to_dict()["current"] is None
