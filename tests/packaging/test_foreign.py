"""The plugin of docs/strategies.md that calls FlashInfer, with a stand-in for FlashInfer that runs on the CPU."""

import json
import shutil
from pathlib import Path

import pytest

from autotopk import settings
from autotopk.tuning_db.store import Store
from tests.packaging.processes import ROOT, Process, Python, install_plugin

PAGE = (ROOT / "docs/strategies.md").read_text()
MODULE = "autotopk_flashinfer.py"
ON_GPUS, ON_CPUS = 'device_types=frozenset({"cuda"})', 'device_types=frozenset({"cpu"})'
"""The one change to the plugin: it is offered the CPU's problems."""
ONE_NAN, AS_THEY_ARE = "x.nan_to_num(torch.nan, torch.inf, -torch.inf).contiguous()", "x.contiguous()"

STAND_IN = '''
"""flashinfer.topk as of 0.7.2: signatures, dtypes, the order of its keys, and what it refuses."""

import atexit, os, pathlib, torch

events = []
if log := os.environ.get("EVENTS"):
    atexit.register(lambda: pathlib.Path(log).write_text(" ".join(events)))


def get_topk_module():  # FlashInfer's is cached, and top_k calls it: this one counts
    events.append("prepared")
    if os.environ.get("NO_COMPILER"):
        raise RuntimeError("Ninja build failed.")


def top_k(input, k, sorted=False, deterministic=False, tie_break=0, dsa_graph_safe=False):
    assert events, "compiles within a call"
    events.append("called")
    assert input.dtype in (torch.float32, torch.float16, torch.bfloat16) and input.is_contiguous()
    assert dsa_graph_safe, "may answer by a kernel that waits for other blocks"
    if input.size(1) > 1 << 21 and k > 2048:
        raise NotImplementedError("top_k with dsa_graph_safe=True requires native FilteredTopK")
    bits = input.view({4: torch.int32, 2: torch.int16}[input.itemsize])
    keys = torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)  # NaNs with a sign come last
    indices = keys.topk(k, dim=-1).indices
    if not sorted:
        indices = indices.flip(-1)
    return input.gather(-1, indices), indices
'''

ANSWERS = """
import autotopk, torch
from autotopk.oracle.inputs import make, names_for
from autotopk.oracle.reference import problems_with

for dtype in torch.float32, torch.float16, torch.bfloat16:
    for rows, cols, k in (7, 33, 5), (3, 64, 64), (1, 1000, 1):
        for name in names_for(dtype):
            x = make(name, rows, cols, k, dtype, "cpu")
            for given in x, torch.cat([x, x], dim=1)[:, :cols], x.t().contiguous().t():
                for order in True, False:
                    values, indices = autotopk.topk(given, k, sorted=order)
                    assert not problems_with(given, values, indices, k, sorted=order), name
                    indices = autotopk.topk_indices(given, k, sorted=order)
                    assert indices.dtype == torch.int32
                    indices = indices.long()
                    assert not problems_with(given, given.gather(1, indices), indices, k, sorted=order), name
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's plugin, installed."""
    return install_plugin(PAGE, MODULE, tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def site(shown: Path, tmp_path: Path) -> Path:
    """The same for CPUs."""
    shutil.copytree(shown, tmp_path / "site")
    change(tmp_path / "site", ON_GPUS, ON_CPUS)
    return tmp_path / "site"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """The stand-in, installed as version 0.7.2."""
    folder = tmp_path / "library"
    (folder / "flashinfer").mkdir(parents=True)
    (folder / "flashinfer/__init__.py").write_text("from flashinfer.topk import top_k\n")
    (folder / "flashinfer/topk.py").write_text(STAND_IN)
    release(folder, "0.7.2")
    return folder


def change(site: Path, old: str, new: str) -> None:
    code = (site / MODULE).read_text()
    assert code.count(old) == 1, f"the page's plugin does not say {old}"
    (site / MODULE).write_text(code.replace(old, new))


def release(library: Path, version: str) -> None:
    """Make it the version of the stand-in that is installed."""
    info = library / "flashinfer_python.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: flashinfer-python\nVersion: {version}\n")


def forced(python: Python, code: str, *path: Path, **variables: str) -> Process:
    return python("-c", code, path=(*path, ROOT), AUTOTOPK_STRATEGY="flashinfer", **variables)


def tune(python: Python, *path: Path) -> list[str]:
    """Tune one shape, and return how each measurement of the plugin so far ended."""
    workload = ("--rows", "8", "--cols", "64", "-k", "3")
    python("-m", "autotopk", "tune", *workload, "--budget", "20", path=(*path, ROOT))
    with Store.open(settings.database_path(), read_only=True) as store:
        return [one.status for one in store.measurements() if one.candidate.strategy == "flashinfer"]


def test_is_short(shown: Path) -> None:
    assert sum(bool(line.strip()) for line in (shown / MODULE).read_text().splitlines()) < 40


def test_answers_as_torch_does(site: Path, library: Path, python: Python, tmp_path: Path) -> None:
    forced(python, ANSWERS, site, library, EVENTS=str(tmp_path / "events"))
    first, *others = (tmp_path / "events").read_text().split()
    assert first == "prepared"
    assert len(others) > 1000
    assert set(others) == {"called"}


def test_prepares_before_the_first_answer(site: Path, library: Path, python: Python) -> None:
    code = """
import autotopk, torch, sys
assert "flashinfer" not in sys.modules
values, indices = autotopk.topk(torch.arange(9.0).view(1, 9), 2)
print(*indices.flatten().tolist(), *sys.modules["flashinfer.topk"].events)
"""
    assert forced(python, code, site, library).stdout.split() == ["8", "7", "prepared", "called"]


REFUSED = {
    "torch.randn(2, 9, dtype=torch.float64), 2": "float64 is not one of bfloat16, float16, float32",
    "torch.ones(2, 9, dtype=torch.int32), 2": "int32 is not one of bfloat16, float16, float32",
    "torch.randn(2, 9), 2, -1, False": "finds the largest alone",
    "torch.randn(1, 2**21 + 1), 2": "cols=2097153 is above 2097152",
    "torch.empty(1, 65).expand(2**26, 65), 65": "rows * k=4362076160 is above 4294967296",
}


def test_refuses_what_the_library_cannot(site: Path, library: Path, python: Python) -> None:
    told = "".join(f"print('#', autotopk.explain({call}))\n" for call in REFUSED)
    explained = forced(python, f"import autotopk, torch\n{told}", site, library).stdout.split("#")[1:]
    for one, reason in zip(explained, REFUSED.values(), strict=True):
        assert f"not flashinfer: {reason}" in one


def test_is_for_gpus(shown: Path, library: Path, python: Python) -> None:
    code = "import autotopk, torch; print(autotopk.explain(torch.randn(2, 9), 2))"
    assert "not flashinfer: needs a CUDA device" in forced(python, code, shown, library).stdout


def test_other_versions_are_other_programs(site: Path, library: Path, python: Python) -> None:
    code = """
import json, sys
from autotopk import registry
from autotopk.device import H100
from autotopk.problem import Problem

strategy, problem = registry.get("flashinfer"), Problem.contiguous(8, 64, 3)
program = strategy.program(strategy.shortlist(problem, H100)[0], problem, H100)
identity = program.identity(problem, H100.arch)
assert "flashinfer" not in sys.modules
print(json.dumps([identity.source, identity.code]))
"""

    def identity() -> list[str]:
        parts: list[str] = json.loads(forced(python, code, site, library).stdout)
        return parts

    first = identity()
    assert identity() == first
    release(library, "0.7.3")
    assert not set(identity()) & set(first)


def test_what_cannot_be_prepared_costs_a_warning(site: Path, library: Path, python: Python) -> None:
    code = """
import autotopk, torch
x = torch.randn(8, 64)
for _ in range(2):
    assert torch.equal(autotopk.topk(x, 3).values, torch.topk(x, 3).values)
    assert torch.equal(autotopk.topk_indices(x, 3), torch.topk(x, 3).indices)
"""
    said = forced(python, code, site, library, NO_COMPILER="1").stderr
    assert said.count("AutotopkWarning: flashinfer") == 1
    assert "Ninja build failed." in said


def test_is_measured_again_with_another_version(site: Path, library: Path, python: Python) -> None:
    in_both_orders = tune(python, site, library)
    assert in_both_orders == ["ok", "ok"]
    assert tune(python, site, library) == in_both_orders
    release(library, "0.7.3")
    assert tune(python, site, library) == 2 * in_both_orders


def test_is_refused_by_the_tuner_without_its_care_for_nan(site: Path, library: Path, python: Python) -> None:
    change(site, ONE_NAN, AS_THEY_ARE)
    assert tune(python, site, library) == ["wrong", "wrong"]
