"""Strategies of other distributions, found through the entry-point group `autotopk.strategies`."""

import re
from pathlib import Path

import pytest

from tests.packaging.processes import ROOT, Python, install_plugin

PAGE = (ROOT / "docs/first_strategy.md").read_text()

PROFILE = """
import autotopk, torch
from torch.autograd.profiler import profile

x = torch.randn(8, 64)
x[3, 7] = torch.nan
with profile() as profiled:
    values, indices = autotopk.topk(x, {k})
operators = {{event.name for event in profiled.function_events}}
assert torch.equal(indices, torch.topk(x, {k}).indices)
print(autotopk.explain(x, {k}).choice.step, "aten::topk" in operators, *operators & {{"aten::max", "aten::argmax"}})
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin of docs/first_strategy.md, installed."""
    return install_plugin(PAGE, "autotopk_max.py", tmp_path_factory.mktemp("plugin"))


def plugin(folder: Path, **targets: str) -> Path:
    """A distribution with nothing but entry points."""
    info = folder / "plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "\n".join(["[autotopk.strategies]", *(f"{name} = {target}" for name, target in targets.items())])
    )
    return folder


def test_runs_where_it_is_able(site: Path, python: Python) -> None:
    assert python("-c", PROFILE.format(k=1), path=(site, ROOT)).stdout.split() == ["heuristic", "False", "aten::max"]


def test_leaves_the_rest_to_others(site: Path, python: Python) -> None:
    assert python("-c", PROFILE.format(k=2), path=(site, ROOT)).stdout.split() == ["torch", "True"]


def test_can_be_forced(site: Path, python: Python) -> None:
    process = python("-c", PROFILE.format(k=1), path=(site, ROOT), AUTOTOPK_STRATEGY="single_max")
    assert process.stdout.split() == ["forced", "False", "aten::max"]


def test_forced_and_unable_says_why(site: Path, python: Python) -> None:
    code = "import autotopk, torch; print(autotopk.explain(torch.randn(8, 64), 2))"
    assert "single_max: k=2 is not 1" in python("-c", code, path=(site, ROOT), AUTOTOPK_STRATEGY="single_max").stdout


def test_is_tuned(site: Path, python: Python) -> None:
    workload = ("--rows", "8", "--cols", "64", "-k", "1")
    python("-m", "autotopk", "tune", *workload, "--budget", "20", path=(site, ROOT))
    code = """
from autotopk import settings
from autotopk.tuning_db.store import Store

with Store.open(settings.database_path(), read_only=True) as store:
    tried = {(m.candidate.config, m.status) for m in store.measurements() if m.candidate.strategy == "single_max"}
print(*(f"{config}:{status}" for config, status in sorted(tried)))
"""
    assert python("-c", code, path=(site, ROOT)).stdout.split() == ['{"method":"argmax"}:ok', '{"method":"max"}:ok']


def test_a_taken_name_is_ignored(tmp_path: Path, python: Python) -> None:
    site = plugin(tmp_path / "site", torch_fallback="json:dumps")
    code = "from autotopk import registry; registry.names(); print(type(registry.get('torch_fallback')).__module__)"
    process = python("-c", code, path=(site, ROOT))
    assert process.stdout.strip() == "autotopk.strategies.torch_fallback"
    assert "AutotopkWarning: strategy 'torch_fallback' of json:dumps is ignored: the name is taken" in process.stderr


def test_broken_ones_cost_a_warning_each(tmp_path: Path, python: Python) -> None:
    reasons = {
        "no_such_module:strategy": "ModuleNotFoundError",
        "json:strategy": "AttributeError",
        "json:dumps": "not a Strategy named 'broken_2'",
        "autotopk.strategies.torch_fallback:strategy": "not a Strategy named 'broken_3'",
    }
    site = plugin(tmp_path / "site", **{f"broken_{index}": target for index, target in enumerate(reasons)})
    process = python("-c", "import autotopk, torch; print(autotopk.topk(torch.ones(3), 2))", path=(site, ROOT))
    assert "values=tensor([1., 1.])" in process.stdout
    for index, reason in enumerate(reasons.values()):
        [warning] = re.findall(f"AutotopkWarning: strategy 'broken_{index}' is left out: .*", process.stderr)
        assert reason in warning


OLD_FORM = """
from autotopk.strategy import Strategy

class Old(Strategy):
    name = "old"

    def space(self, problem, device):
        return []

strategy = Old()
"""


def test_plugin_of_the_old_form_is_told_what_to_rename(tmp_path: Path, python: Python) -> None:
    site = plugin(tmp_path / "site", old="old_form:strategy")
    (site / "old_form.py").write_text(OLD_FORM)
    process = python("-c", "import autotopk, torch; print(autotopk.topk(torch.ones(3), 2))", path=(site, ROOT))
    said = (
        "strategy 'old' is left out: TypeError: Old.space is of autotopk before 0.2: the method is called shortlist now"
    )
    assert said in process.stderr
