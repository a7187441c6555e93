"""A program may bind torch.topk to ours, and nothing calls itself for ever."""

from pathlib import Path

from autotopk.tuning_db import artifact
from tests.runtime.winners import CHUNKED, environment, python, winner

REBOUND = """
import torch, autotopk, warnings
warnings.simplefilter("ignore")
plain = torch.topk
torch.topk = autotopk.topk
from autotopk.strategies.torch_fallback import chunked
print(chunked.topk is plain)
for x, k in ((torch.randn(4, 9), 3), (torch.randn(()), 1), (torch.randn(3, 0), 0), (torch.randn(2, 5000), 20)):
    assert all(map(torch.equal, torch.topk(x, k), plain(x, k)))
    assert torch.equal(autotopk.topk_indices(x, k), plain(x, k).indices.to(torch.int32))
weights = torch.randn(4, 9, requires_grad=True)
torch.topk(weights, 3).values.sum().backward()
assert weights.grad.sum() == 12
out = torch.empty(4, 3), torch.empty(4, 3, dtype=torch.int64)
torch.topk(weights.detach(), 3, out=out)
assert torch.equal(out[0], plain(weights, 3).values)
try:
    torch.topk(weights, 10)
except RuntimeError as error:
    print("out of range" in str(error))
"""


WRAPPED = """
import autotopk, torch, warnings  # autotopk does not see torch.topk before the first call
warnings.simplefilter("ignore")
plain = torch.topk
torch.topk = lambda *arguments, **keywords: autotopk.topk(*arguments, **keywords)
x = torch.randn(4, 9)
print(all(map(torch.equal, torch.topk(x, 3), plain(x, 3))), torch.topk(torch.randn(()), 1).values.shape)
from autotopk.strategies.torch_fallback import chunked
print(chunked.topk is plain)
"""


LATE = """
import autotopk, torch
plain = torch.topk
torch.topk = autotopk.topk
from autotopk.cli import bench
from autotopk.oracle import reference
from autotopk.runtime import trial
from autotopk.tuning import evaluate
print([module.torch_topk is plain for module in (reference, trial)], bench.Trial is evaluate.Trial is trial.Trial)
"""


def test_what_measures_and_checks_asks_torchs_own(tmp_path: Path) -> None:
    """Though it is imported after torch.topk was bound to ours."""
    assert python(LATE, environment(tmp_path / "cache")) == "[True, True] True\n"


def test_torch_topk_may_be_wrapped_around_ours_before_its_first_use(tmp_path: Path) -> None:
    assert python(WRAPPED, environment(tmp_path / "cache")) == "True torch.Size([])\nTrue\n"


def test_torch_topk_may_be_bound_to_ours(tmp_path: Path) -> None:
    """With a winner of chunks, which calls torch's own."""
    path = tmp_path / "winners.sqlite"
    artifact.publish([winner(2, 5000, 20, CHUNKED)], path)
    assert python(REBOUND, environment(tmp_path / "cache", AUTOTOPK_DB=str(path))) == "True\nTrue\n"
