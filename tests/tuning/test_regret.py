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
