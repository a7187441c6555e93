"""Figures alone: what they draw of winners and of benchmarks, and what they say where there is nothing to draw."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from autotopk.candidate import TORCH_TOPK
from autotopk.cli.report import figures, page, source
from autotopk.cli.report.chart import Pairs, legend, pairs
from autotopk.cli.report.templates import COLOURS, STRATEGIES
from autotopk.tuning_db import artifact
from tests.cli.conftest import Cli
from tests.packaging.processes import ROOT
from tests.tuning_db.examples import CPU, KEY, winner

BENCH = ROOT / "docs/figures/h200-seeds.json"
SVG = "{http://www.w3.org/2000/svg}"


def parts(path: Path, kind: str) -> list[ElementTree.Element]:
    return [*ElementTree.fromstring(path.read_text()).iter(SVG + kind)]


def drawn(*timed: tuple[float, float]) -> Pairs:
    return pairs([(f"{theirs} {ours}", theirs, ours, "lane_merge", "") for theirs, ours in timed])


def test_pairs_lie_where_their_times_say() -> None:
    chart = drawn((10.0, 1.0), (100.0, 10.0))
    (first, second), ticks = chart.dots, {text: x for x, text in chart.ticks}
    assert [first.ours, first.torchs, second.ours] == [ticks["1"], ticks["10"], ticks["10"]]
    assert first.torchs - first.ours == pytest.approx(second.torchs - second.ours, abs=0.2)
    assert (first.ratio, chart.left, chart.right) == ("10.0×", ticks["1"], ticks["100"])
    assert chart.top < first.y < second.y < chart.bottom


@pytest.mark.parametrize("us", [0.0123, 1.0, 1234.5])
def test_equal_times_have_a_scale(us: float) -> None:
    chart = drawn((us, us))
    assert chart.left <= chart.dots[0].ours == chart.dots[0].torchs <= chart.right
    assert len(chart.ticks) >= 2


def test_scales_of_many_decades_have_few_ticks() -> None:
    assert [text for _, text in drawn((50_000.0, 0.1)).ticks] == ["0.1", "1", "10", "100", "1,000", "10,000"]


def test_legends_are_as_wide_as_they_may() -> None:
    found = legend(["a" * 20] * 5, 10.0, 500)
    assert max(x for x, *_ in found) < 500
    assert [y for _, y, _ in found] == [0, 0, 21, 21, 42]


def test_benchmark(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "times.svg"
    told = json.loads(cli("report", BENCH, "--figure", "times", "-o", path, "--json").stdout)
    rows = [row for row in json.loads(BENCH.read_text())["rows"] if row["sorted"]]
    assert told["size"] == path.stat().st_size
    circles = parts(path, "circle")
    names = {row["strategy"] for row in rows}
    assert len(circles) == 2 * len(rows) + len(names) + 1  # and a legend
    assert all(0 < float(one.attrib["cx"]) < 640 for one in circles)
    told_ratios = [text.text for text in parts(path, "text") if text.get("class") == "mark"]
    assert told_ratios == [f"{row['torch_gpu_us'] / row['gpu_us']:.1f}×" for row in rows]
    cli("report", BENCH, "--figure", "times", "-o", path)  # a figure is replaced


@pytest.mark.parametrize("name", figures.FIGURES)
def test_winners(name: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    two = [winner(), winner(key=replace(KEY, cols=4096), candidate=TORCH_TOPK, ratio=1.0), winner(device=CPU)]
    artifact.publish(two, tmp_path / "winners.sqlite")
    cli("report", "winners.sqlite", "--figure", name)
    text = (tmp_path / f"{name}.svg").read_text()
    assert "NVIDIA H100 80GB HBM3, " in text  # the GPU's, without the CPU's
    assert text.count("µs, torch.topk 10.0 µs") == 2
    assert {"url(", "http"} & {*re.findall(r"url\(|http(?!://www.w3.org/2000/svg)", text)} == set()


def test_the_page_has_the_same_drawing(tmp_path: Path) -> None:
    found = source.Source("a.sqlite", "winners file", (winner(), winner(key=replace(KEY, sorted=False))))
    alone = figures.drawn("times", [*map(figures.Timed.of, found.winners)], found.winners[0].device)
    (line,) = re.findall(r"<g class=.*?</g>", alone, re.DOTALL)
    assert line in page.render(found)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cpu.sqlite", "--figure", "floor"], "no floor is known of this device"),
        (["many.sqlite", "--figure", "times"], "a line for each of 1 to 100 workloads"),
        (["none.sqlite", "--figure", "torch"], "holds no winners yet"),
        (["odd.json", "--figure", "times"], "no measurements of `autotopk bench --json`"),
        (["cpu.sqlite", "--figure", "times", "--against", "cpu.sqlite"], "goes without --against"),
    ],
)
def test_what_cannot_be_drawn_is_told(
    arguments: list[str], said: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    artifact.publish([winner(device=CPU)], tmp_path / "cpu.sqlite")
    artifact.publish([winner(key=replace(KEY, rows=rows)) for rows in range(1, 102)], tmp_path / "many.sqlite")
    artifact.publish([], tmp_path / "none.sqlite")
    (tmp_path / "odd.json").write_text("[]")
    assert said in cli("report", *arguments, code=2).stderr
    assert not [*tmp_path.glob("*.svg")]


def test_every_strategy_has_a_colour_in_both_schemes() -> None:
    assert {*STRATEGIES.values()} < {*range(len(COLOURS))}
    assert all(len(both) == 2 for both in COLOURS)
