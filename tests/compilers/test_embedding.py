"""What Inductor copies of a kernel into a compiled model is the whole of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotopk import registry
from autotopk.compilers.triton import TritonSource
from autotopk.device import H100
from autotopk.problem import Problem
from autotopk.program import KernelProgram

pytestmark = pytest.mark.compile

wrapper = pytest.importorskip("torch._inductor.codegen.wrapper")
COPY = "user_defined_triton_kernel_transitive_closure_source_code"

HEAD = """\
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers

@triton.jit
"""


def sources() -> list[pytest.param]:  # type: ignore[valid-type]
    """Of each family one, and more that are slow."""
    found = []
    for strategy in registry.available():
        marks = list[pytest.MarkDecorator]()
        for problem in (Problem.contiguous(64, 128, 5), Problem.contiguous(100, 1001, 8, "float16", largest=False)):
            if strategy.features.embeddable and not strategy.reasons_unable(problem, H100):
                program = strategy.program(strategy.shortlist(problem, H100)[0], problem, H100)
                if isinstance(program, KernelProgram) and isinstance(program.sources[0], TritonSource):
                    found.append(pytest.param(program.sources[0], id=f"{strategy.name}-{problem}", marks=marks))
                    marks = [pytest.mark.slow]
    return found


@pytest.mark.skipif(not hasattr(wrapper, COPY), reason="this torch names it otherwise")
@pytest.mark.parametrize("source", sources())
def test_a_copy_compiles_to_the_same_kernel(
    source: TritonSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = getattr(wrapper, COPY)(source._jit_function())
    module = f"embedded_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{module}.py").write_text(HEAD + copy)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = source.function.partition(":")[2]
    embedded = replace(source, function=f"{module}:{name}").compile(90)
    assert embedded.code == source.compile(90).code
