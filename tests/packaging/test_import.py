"""What importing and calling autotopk loads."""

import pytest

from tests.packaging.processes import ROOT, Python

IMPORT = "import autotopk"
CALL = "import torch, autotopk; autotopk.topk(torch.arange(32.0), 5)"


@pytest.mark.parametrize("statement", [IMPORT, CALL], ids=["import", "call"])
def test_loads_neither_databases_nor_compilers(python: Python, statement: str) -> None:
    code = "import sys; print(sorted({'sqlalchemy', 'optuna', 'triton', 'tilelang'} & {*sys.modules}))"
    assert python("-c", f"{statement}; {code}", path=(ROOT,)).stdout.strip() == "[]"


def test_tune_is_found_on_first_use(python: Python) -> None:
    process = python("-c", "import autotopk; print(callable(autotopk.tune), hasattr(autotopk, 'tone'))", path=(ROOT,))
    assert process.stdout.split() == ["True", "False"]
