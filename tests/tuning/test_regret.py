"""The script that measures regret on shapes that nobody tuned, on a CPU."""

import json
from pathlib import Path

import pytest

from scripts.regret import main, regret, summary


@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
def test_served_is_raced_with_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOTOPK_BUILD", "wait")
    main(["2", "3", "--small", "--budget", "600", "--json", str(tmp_path / "rows.json")])
    document = json.loads((tmp_path / "rows.json").read_text())
    assert len(document["rows"]) == 2
    for row in document["rows"]:
        assert row["best_us"] > 0
        assert row["regret"] >= 1
        assert row["step"] == row["built_step"] == "torch", "nothing is tuned"
    printed = capsys.readouterr().out
    assert "regret 1." in printed
    assert "2 of 2 shapes" in printed
    main(["3", "3", "--small", "--budget", "600", "--json", str(tmp_path / "rows.json")])
    longer = json.loads((tmp_path / "rows.json").read_text())
    assert longer["rows"][:2] == document["rows"], "not measured again"
    assert "3 of 3 shapes" in capsys.readouterr().out
    with pytest.raises(ValueError, match="seed 3"):
        main(["3", "4", "--small", "--json", str(tmp_path / "rows.json")])


@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
def test_a_budget_that_is_too_short_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["2", "3", "--small", "--budget", "0.01"])
    assert left.value.code == 1
    assert "no shape was tuned and raced" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
def test_kernels_are_built_for_some_shapes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And those before are raced first."""
    monkeypatch.setattr("scripts.regret.AT_ONCE", 1)
    monkeypatch.setenv("AUTOTOPK_BUILD", "wait")
    asked: list[int] = []
    monkeypatch.setattr("autotopk.warmup", lambda problems: asked.append(len(problems)))
    main(["3", "4", "--small", "--budget", "600"])
    assert asked == [1, 1, 1]
    assert "3 of 3 shapes" in capsys.readouterr().out


def test_margins_are_subtracted() -> None:
    best = [10.0, 10.1, 9.9, 10.0, 10.0, 10.05, 9.95]
    assert regret(best, best) == 1
    assert regret([one * 1.5 for one in best], best) == pytest.approx(1.5)
    assert regret([one * 0.8 for one in best], best) == 1
    noisy = [11.0, 15.0, 9.0, 10.5, 13.0, 8.0, 12.0]
    assert regret(noisy, best) == 1
    assert summary("it", [1, 1.5], [0.5, 1.2], ["exact", "ladder"]) == (
        "it: regret 1.225 in geometric mean, 1.50 at worst, above 1.1 in 1 of 2; slower than torch.topk in 1; "
        "1 by exact, 1 by ladder"
    )
