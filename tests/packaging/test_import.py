"""What importing and calling autotopk loads."""

import pytest

from tests.packaging.processes import ROOT, Python

IMPORT = "import autotopk"
CALL = "import torch, autotopk; autotopk.topk(torch.arange(32.0), 5)"
HEAVY = {"sqlalchemy", "optuna", "triton", "tilelang"}


@pytest.mark.parametrize(
    ("statement", "never"), [(IMPORT, HEAVY | {"torch", "rich", "typer"}), (CALL, HEAVY)], ids=["import", "call"]
)
def test_loads_neither_databases_nor_compilers(python: Python, statement: str, never: set[str]) -> None:
    code = f"import sys; print(sorted({never!r} & {{*sys.modules}}))"
    assert python("-c", f"{statement}; {code}", path=(ROOT,)).stdout.strip() == "[]"


def test_tune_is_found_on_first_use(python: Python) -> None:
    process = python("-c", "import autotopk; print(callable(autotopk.tune), hasattr(autotopk, 'tone'))", path=(ROOT,))
    assert process.stdout.split() == ["True", "False"]


AS_EVER = """
import pickle, pydoc
import autotopk

assert {*autotopk.__all__} < {*dir(autotopk)}
listed = pydoc.plain(pydoc.render_doc(autotopk))
assert "topk_indices(input" in listed and "tune(" in listed
from autotopk import topk
assert vars(autotopk)["topk"] is topk is autotopk.topk
assert pickle.loads(pickle.dumps(topk)) is topk
import autotopk.tuning_db.artifact, autotopk.strategies.lane_merge
"""


def test_names_on_first_use_are_like_others(python: Python) -> None:
    python("-c", AS_EVER, path=(ROOT,))


TRACED = """
import autotopk, torch

@torch.compile(backend="eager", fullgraph=True)
def largest(x):
    return autotopk.topk(x, 3).values + 1  # the first use of autotopk in the process

x = torch.randn(4, 9)
assert torch.equal(largest(x), torch.topk(x, 3).values + 1)
"""


def test_first_use_may_be_traced(python: Python) -> None:
    python("-c", TRACED, path=(ROOT,))
