"""What a third party's strategy is, says, raises or returns costs that strategy alone its place, with one warning."""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk import registry
from autotopk.candidate import Candidate
from autotopk.errors import UnsupportedProblemError
from autotopk.program import HostProgram
from autotopk.strategy import Features
from autotopk.tuning_db import artifact
from tests.registered import registered
from tests.runtime.conftest import Planted, PlantedConfig
from tests.runtime.same import check, told
from tests.runtime.winners import winner

X = torch.randn(8, 600)
K = 5


class Second(Planted):
    """Next in line."""

    name = "second"
    preference = 500


@pytest.fixture
def second() -> Iterator[Second]:
    with registered(Second()) as strategy:
        yield strategy


def raising(*_: Any) -> Any:
    raise ZeroDivisionError("of a third party")


def ask() -> None:
    """Every front door."""
    check(X, K)
    assert torch.equal(autotopk.topk_indices(X, K).to(torch.int64), torch.topk(X, K).indices)
    check(X, K)
    out = torch.zeros(8, K), torch.zeros(8, K, dtype=torch.int64)
    autotopk.topk(X, K, out=out)
    assert all(map(torch.equal, out, torch.topk(X, K)))


@dataclass(frozen=True)
class Unwritable:
    """No text stands for its knob."""

    knob: object = object()


ANSWERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "reasons_unsupported raises": ("reasons_unsupported", raising),
    "reasons_unsupported is None": ("reasons_unsupported", lambda *_: None),
    "reasons_unsupported is a number": ("reasons_unsupported", lambda *_: 5),
    "reasons_unsupported holds a number": ("reasons_unsupported", lambda *_: [5]),
    "heuristic raises": ("heuristic", raising),
    "heuristic is a dict": ("heuristic", lambda *_: {"knob": 0}),
    "heuristic is a type": ("heuristic", lambda *_: PlantedConfig),
    "heuristic has no text": ("heuristic", lambda *_: Unwritable()),
    "features are gone": ("features", lambda: None),
    "program raises": ("program", raising),
    "program is None": ("program", lambda *_: None),
    "program is a function": ("program", lambda *_: torch.sort),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_odd_answers(kind: str, planted: Planted, second: Second, monkeypatch: pytest.MonkeyPatch) -> None:
    question, answer = ANSWERS[kind]
    monkeypatch.setattr(planted, question, answer)
    [message] = told(ask)
    assert message.startswith("planted")
    assert second.answers == 4
    explanation = autotopk.explain(X, K)
    assert explanation.choice.strategy is second
    assert "planted" in str(explanation)
    assert explanation.to_dict()["strategy"] == "second"
    assert told(lambda: check(torch.randn(9, 700), K)) == []


@pytest.mark.parametrize("kind", ["program raises", "program is None", "heuristic is a dict"])
def test_explain_comes_first(kind: str, planted: Planted, second: Second, monkeypatch: pytest.MonkeyPatch) -> None:
    question, answer = ANSWERS[kind]
    monkeypatch.setattr(planted, question, answer)
    with suppress(autotopk.AutotopkWarning):
        assert autotopk.explain(X, K).choice.strategy is second
    assert any("planted" in reason for reason in autotopk.explain(X, K).choice.rejected)


def topk_of(x: Tensor) -> tuple[Tensor, Tensor]:
    return tuple(torch.topk(x, K))  # type: ignore[return-value]


RESULTS: dict[str, Callable[[Tensor], Any]] = {
    "None": lambda x: None,
    "values alone": lambda x: topk_of(x)[0],
    "three": lambda x: (*topk_of(x), 0),
    "numbers": lambda x: (1, 2),
    "lists": lambda x: tuple(one.tolist() for one in topk_of(x)),
    "arrays": lambda x: tuple(one.numpy() for one in topk_of(x)),
    "turned": lambda x: tuple(one.t() for one in topk_of(x)),
    "flat": lambda x: tuple(one.flatten() for one in topk_of(x)),
    "too many": lambda x: tuple(torch.topk(x, K + 1)),
    "one more dimension": lambda x: tuple(one[None] for one in topk_of(x)),
    "other values": lambda x: (topk_of(x)[0].double(), topk_of(x)[1]),
    "other indices": lambda x: (topk_of(x)[0], topk_of(x)[1].to(torch.int16)),
    "indices as numbers": lambda x: (topk_of(x)[0], topk_of(x)[1].float()),
    "elsewhere": lambda x: tuple(one.to("meta") for one in topk_of(x)),
    "sparse": lambda x: tuple(one.to_sparse() for one in topk_of(x)),
    "raises": raising,
}


@pytest.mark.parametrize("kind", RESULTS)
def test_odd_results(kind: str, planted: Planted, second: Second, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted, "program", lambda *_: HostProgram(RESULTS[kind]))
    [message] = told(ask)
    assert message.startswith('planted {"knob":0} failed and is left out: ')
    assert second.answers == 4


FINE: dict[str, Callable[[Tensor], Any]] = {
    "a generator": lambda x: (one for one in topk_of(x)),
    "a list": lambda x: list(topk_of(x)),
    "int32 indices": lambda x: (topk_of(x)[0], topk_of(x)[1].to(torch.int32)),
    "not contiguous": lambda x: tuple(one.t().contiguous().t() for one in topk_of(x)),
    "parameters": lambda x: (torch.nn.Parameter(topk_of(x)[0], requires_grad=False), topk_of(x)[1]),
}


@pytest.mark.parametrize("kind", FINE)
def test_results_in_another_form(kind: str, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def run(x: Tensor) -> Any:
        calls.append(x)
        return FINE[kind](x)

    monkeypatch.setattr(planted, "program", lambda *_: HostProgram(run))
    assert told(ask) == []
    assert len(calls) == 4


def test_results_are_checked_on_the_first_call_alone(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotopk.runtime import launch

    checks, check_results = [], launch._check_results

    def counted(*asked: Any) -> None:
        checks.append(asked)
        check_results(*asked)

    monkeypatch.setattr(launch, "_check_results", counted)
    for _ in range(5):
        check(X, K)
    assert len(checks) == 1


def config_raises(text: str) -> Any:
    raise ZeroDivisionError("of a third party")


MEASURED: dict[str, tuple[str, Callable[..., Any]]] = {
    "parse_config raises": ("parse_config", config_raises),
    "parse_config is a text": ("parse_config", lambda text: text),
    "valid raises": ("valid", raising),
}


@pytest.mark.parametrize("kind", MEASURED)
def test_odd_answers_about_a_winner(
    kind: str, cache_dir: Path, planted: Planted, second: Second, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, answer = MEASURED[kind]
    measured = winner(8, 600, K, candidate=Candidate("planted", '{"knob":1}'))
    artifact.publish([measured], cache_dir / "winners.sqlite")
    monkeypatch.setattr(planted, question, answer)
    monkeypatch.setattr(planted, "heuristic", lambda *_: None)
    assert len(told(ask)) == 1 or kind == "parse_config is a text"
    assert second.answers == 4
    assert autotopk.explain(X, K).choice.strategy is second


@pytest.mark.parametrize("config", ['{"knob":"0"}', '{"knob":true}', '{"knob":0.0}', '{"other":1}', "{}", "[]", "null"])
def test_odd_configurations_of_a_file(config: str, cache_dir: Path, planted: Planted) -> None:
    with suppress(autotopk.AutotopkError):  # or refused when it is written
        measured = winner(8, 600, K, candidate=Candidate("planted", config))
        artifact.publish([measured], cache_dir / "winners.sqlite")
    ask()
    assert planted.answers == 4
    assert autotopk.explain(X, K).choice.step == "heuristic"
    with pytest.raises(UnsupportedProblemError):
        planted.parse_config(config)


@pytest.mark.parametrize("error", [KeyError("knob"), ZeroDivisionError(), AssertionError()], ids=repr)
def test_a_configuration_that_refuses_in_its_own_way(
    error: Exception, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Config:
        knob: int = 0

        def __post_init__(self) -> None:
            raise error

    monkeypatch.setattr(planted, "config_type", Config)
    with pytest.raises(UnsupportedProblemError):
        planted.parse_config('{"knob":0}')


@pytest.mark.parametrize("forced", ["planted", "second"])
def test_forcing_a_strategy_that_raises(
    forced: str, planted: Planted, second: Second, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTOPK_STRATEGY", forced)
    monkeypatch.setattr(planted, "shortlist", raising)
    monkeypatch.setattr(planted, "heuristic", lambda *_: None)
    assert len(told(ask)) == (forced == "planted")
    assert second.answers == 4


ATTRIBUTES: dict[str, Any] = {
    "preference": None,
    "name": 5,
    "features": None,
    "config_type": None,
}


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_no_whole_strategy_is_registered(attribute: str) -> None:
    strategy = type("Odd", (Planted,), {attribute: ATTRIBUTES[attribute]})()
    with pytest.raises(TypeError, match=f"{attribute}="):
        registry.register(strategy)


def test_odd_features(planted: Planted, second: Second, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted, "features", Features(dtypes=None))  # type: ignore[arg-type]
    [_] = told(ask)
    assert second.answers == 4


PLUGIN = """
from autotopk.strategies.torch_fallback import TorchFallback
class Odd(TorchFallback):
    name = "odd"
    preference = 1000
    {attribute}
strategy = Odd()
"""

IMPORTS = {
    "raises": "raise OSError('a library is missing')",
    "exits": "import sys; sys.exit(3)",
    "exits without a code": "raise SystemExit",
    "ends in another way": "class Panic(BaseException): pass\nraise Panic('of Rust')",
    "recurses": "def f(): f()\nf()",
    "is no Python": "def",
    "has no strategy": "",
    "is no strategy": "strategy = 5",
    "is the class": "from autotopk.strategies.torch_fallback import TorchFallback as strategy",
    "has another name": PLUGIN.format(attribute="name = 'other'"),
    "has no preference": PLUGIN.format(attribute="preference = None"),
    "has a property that raises": PLUGIN.format(attribute="preference = property(lambda self: 1 / 0)"),
    "has no features": PLUGIN.format(attribute="features = None"),
    "has no configuration": PLUGIN.format(attribute="config_type = dict"),
    "is of version 0.1": PLUGIN.format(attribute="indices_alone = True"),
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder ahead on the path, whose distributions a fresh registry finds."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    modules = set(sys.modules)
    for cached in (registry._targets, registry._import, registry._available, registry._serving):
        cached.cache_clear()
    yield folder
    for cached in (registry._targets, registry._import, registry._available, registry._serving):
        cached.cache_clear()
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def ask_all() -> None:
    """Also what there is to ask."""
    for _ in range(2):
        ask()
        assert autotopk.explain(X, K).choice.strategy.name == "torch_fallback"
    assert "lane_merge" in [strategy.name for strategy in registry.available()]


def distribution(folder: Path, name: str, entry_points: bytes) -> Path:
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_bytes(entry_points)
    return metadata


@pytest.mark.parametrize("kind", IMPORTS)
def test_odd_plugins(kind: str, installed: Path) -> None:
    distribution(installed, "odd", b"[autotopk.strategies]\nodd = odd_plugin:strategy\n")
    (installed / "odd_plugin.py").write_text(IMPORTS[kind])
    [message] = told(ask_all)
    assert message.startswith("strategy 'odd' is left out: ")


def test_ctrl_c_while_a_plugin_is_imported(installed: Path) -> None:
    distribution(installed, "odd", b"[autotopk.strategies]\nodd = odd_plugin:strategy\n")
    (installed / "odd_plugin.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)")
    with pytest.raises(KeyboardInterrupt):
        autotopk.topk(X, K)


METADATA: dict[str, Callable[[Path], object]] = {
    "no assignment": lambda folder: distribution(folder, "bad", b"[console_scripts]\nnothing here\n"),
    "no text": lambda folder: distribution(folder, "bad", b"\xff\xfe\x00[autotopk.strategies]\n\xff = x:y\n"),
    "no name": lambda folder: distribution(folder, "bad", b"[autotopk.strategies]\n = x:y\n"),
    "no target": lambda folder: distribution(folder, "bad", b"[autotopk.strategies]\nbad =\n"),
    "no module": lambda folder: distribution(folder, "bad", b"[autotopk.strategies]\nbad = !!:\n"),
    "unreadable metadata": lambda folder: (distribution(folder, "bad", b"") / "METADATA").write_bytes(b"\xff" * 100),
    "nameless": lambda folder: (folder / ".dist-info").mkdir(),
}


@pytest.mark.parametrize("kind", METADATA)
def test_malformed_metadata_of_some_distribution(kind: str, installed: Path) -> None:
    """At most one warning; built-in strategies and other plugins are there."""
    METADATA[kind](installed)
    distribution(installed, "good", b"[autotopk.strategies]\ngood = good_plugin:strategy\n")
    (installed / "good_plugin.py").write_text(PLUGIN.format(attribute="name = 'good'; preference = -2000"))
    assert len(told(ask_all)) <= 1
    assert registry.get("good").preference == -2000


def test_a_distribution_further_back_on_the_path_is_shadowed(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, "good", b"[autotopk.strategies]\nolder = no_such_module:strategy\n")
    distribution(installed, "good", b"")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(installed)
    assert told(ask_all) == []
    assert "older" not in registry.names()
