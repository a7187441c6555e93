"""Kernels as AOTInductor embeds them: Inductor's copy of their source compiles, for the tensors' own types."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import autotopk
from autotopk.compilers.triton import TritonSource
from autotopk.device import H100
from autotopk.errors import UnsupportedProblemError
from autotopk.export import embedding, serving
from autotopk.export.serving import Access, Asked, Sizes, Terms
from autotopk.strategies import _embedded
from autotopk.strategy import Strategy

wrapper = pytest.importorskip("torch._inductor.codegen.wrapper")
COPY = "user_defined_triton_kernel_transitive_closure_source_code"

HEAD = """\
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers

@triton.jit
"""
POINTERS = {"float32": "*fp32", "bfloat16": "*bf16", "int64": "*i64", "uint8": "*u8"}


def plan(asked: Asked, access: Access | None = None) -> serving.Plan:
    def embeddable(strategy: Strategy) -> bool:
        return strategy.features.embeddable

    terms = Terms(H100, embeddable, always=True, build=False)
    found = serving.whole(asked, access or asked.accesses[0], terms)
    assert found is not None
    return found


@pytest.mark.compile
@pytest.mark.skipif(not hasattr(wrapper, COPY), reason="this torch names it otherwise")
@pytest.mark.parametrize(
    ("asked", "ones"),
    [
        (Asked(Sizes.of(64), Sizes.of(128), 5, "float32", True, True), {"col_stride", "inner"}),
        (Asked(Sizes.of(1), Sizes.of(256), 1, "bfloat16", False, True), {"rows", "k", "col_stride", "inner"}),
        (Asked(Sizes.of(8), Sizes.of(20), 3, "float32", True, True, inner=4), set()),
        (Asked(Sizes.of(1), Sizes.of(77), 1, "int64", True, True), {"rows", "k", "has_sign"}),
        (Asked(Sizes.of(5), Sizes.of(77), 4, "uint8", False, True), {"smallest"}),
    ],
    ids=lambda one: " ".join(sorted(one)) if isinstance(one, set) else str(one),
)
def test_a_copy_compiles(asked: Asked, ones: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the numbers that are 1 as constants of the language, as Inductor passes them."""
    [source] = plan(asked).program.sources
    assert isinstance(source, TritonSource)
    function = _embedded.wrapper(source.function)
    module = f"embedded_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{module}.py").write_text(HEAD + getattr(wrapper, COPY)(function))
    monkeypatch.syspath_prepend(str(tmp_path))
    known = dict(source.constants)
    types = {"x": POINTERS[asked.dtype], "values": POINTERS[asked.dtype], "indices": "*i64"}
    rest = [name for name in function.arg_names if name not in known and name not in ones]
    embedded = replace(
        source,
        function=f"{module}:{function.__name__}",
        signature=tuple((name, types.get(name, "i32")) for name in rest),
        constants=(*source.constants, *((name, 1) for name in ones)),
        divisors=(("x", 16), ("values", 16), ("indices", 16)),
    )
    kernel = embedded.compile(90)
    assert [one.name for one in kernel.parameters][: len(rest)] == rest


def test_a_recipe_names_all_that_the_kernel_takes() -> None:
    asked = Asked(Sizes.of(64), Sizes.of(4096), 64, "int32", False, True)
    told = json.loads(embedding.recipe(plan(asked)))
    function = _embedded.wrapper(told["function"])
    numbers = {"x", "values", "indices", "rows", "cols", "k", "row_stride", "col_stride", "inner"}
    assert {*function.arg_names} <= numbers | {*told["constants"]} | {*told["scalars"]}
    assert told["scalars"] == {"smallest": 1, "has_sign": 1, "infinity": 0}
    assert told["rows_per_program"] == 1


def test_only_kernels_of_triton_have_a_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTOPK_PACKS")
    autotopk.reload()
    asked = Asked(Sizes.of(4), Sizes.of(100_000), 500, "float32", True, True)
    radix = next(serving.plans(asked, Terms(H100, lambda strategy: "radix" in strategy.name, build=False)))
    with pytest.raises(UnsupportedProblemError, match="is not one launch of a Triton kernel"):
        embedding.recipe(radix)


def test_on_a_cpu_torch_answers() -> None:
    x = torch.randn(3, 9, 2)
    values, indices = torch.ops.autotopk.embedded_topk(x, 2, 1, False, "")
    expected = torch.topk(x, 2, 1, largest=False)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)
