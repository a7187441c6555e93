"""The page of planted databases: what it holds, how large it is and how long it takes, and how browsers show it."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from autotopk import settings
from autotopk.candidate import Candidate
from autotopk.cli.report import figures, page, source, templates
from autotopk.cli.report.chart import LEFT, WIDTH, scatter
from autotopk.device import H100
from autotopk.fitted import rows_of
from autotopk.prediction import Model, Region
from autotopk.tuning_db import artifact
from autotopk.tuning_db.store import Store
from tests.cli.conftest import Cli
from tests.tuning_db.examples import ATEN, CPU, KEY, filled, measurement, winner

NAMES = ("lane_merge", "block_radix", "cluster_radix", "unheard_of")
MANY = 30_000
SECONDS = 3.0


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30,000 measurements of 500 workloads, with a winner for each of them."""
    path = tmp_path_factory.mktemp("many") / "tuning.sqlite"
    measured = []
    for at in range(MANY):
        place, candidate = divmod(at, 60)
        key = replace(KEY, rows=1 << place % 10, cols=64 << place // 10 % 10, k=1 << place // 100)
        ratio = 0.05 + (candidate * 37 % 60 + place % 7) / 100 if candidate % 10 else None
        config = f'{{"warps":{candidate}}}'
        measured.append(replace(measurement(NAMES[candidate % 4], ratio, config=config), key=key, uuid=uuid4().hex))
    with Store.open(path) as store:
        store.record(store.begin_run(H100, ATEN, {}), measured)
        store.derive_winners()
    return path


def text(html: str) -> str:
    """What a page says, without markup."""
    body = html[html.index("<body>") :]
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def test_many_measurements_are_quick_and_small(many: Path) -> None:
    started = time.thread_time()
    html = page.render(source.read(many))
    assert time.thread_time() - started < SECONDS
    assert len(html) < 5_000_000
    assert f"{MANY:,} measurements" in text(html)
    assert html.count("<circle") <= 2 * figures.MOST_DOTS


def test_the_file_alone_is_all(many: Path) -> None:
    html = page.render(source.read(many))
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", html)
    assert "url(" not in html
    anchors = set(re.findall(r'href="#([^"]+)"', html))
    assert anchors
    assert anchors <= set(re.findall(r'id="([^"]+)"', html))


def test_sections_follow_what_the_file_has(tmp_path: Path) -> None:
    winners_only = tmp_path / "winners.sqlite"
    artifact.publish([winner(adversarial_slowdown=None)], winners_only)
    told = text(page.render(source.read(winners_only)))
    assert "4.00× as fast as torch.topk over 1 workload," in told
    assert "What was tried" not in told
    assert "Adversarial" not in told
    measured = (
        measurement("torch_fallback", 0.9),
        measurement("quick", 0.5),
        measurement("bad", None, error="too small"),
    )
    full = filled(tmp_path / "tuning.sqlite", *measured)
    assert "holds no winners yet" in text(page.render(source.read(full)))
    with Store.open(full) as store:
        assert store.derive_winners()
    told = text(page.render(source.read(full)))
    assert "What was tried, and why it lost 3 measurements." in told
    assert "bad wrong 1 too small" in told


def test_bounds_come_from_the_winners_file_or_the_one_beside_a_database(tmp_path: Path) -> None:
    model = Model({"block_radix": (1.0, 9.0)}, regions={(3, 6, 2, 2, 1): Region(1.042, 5)})
    full = filled(tmp_path / "tuning.sqlite", measurement("quick", 0.5))
    with Store.open(full) as store:
        assert store.derive_winners()
    assert "Where nothing was tuned" not in text(page.render(source.read(full)))
    beside = settings.published_path(full)
    artifact.publish([winner()], beside, rows_of(model, H100.fingerprint, "topk"))
    for path in (full, beside):
        told = text(page.render(source.read(path)))
        assert (
            "topk floats of 32 bits sorted 1 1.042 1.042 1.042 64 to 255 rows, 4,096 to 16,383 columns, k 16 to 63"
            in told
        )


def test_strategies_that_are_not_installed_are_told(tmp_path: Path) -> None:
    path = tmp_path / "winners.sqlite"
    artifact.publish([winner(candidate=Candidate("gone", "{}"))], path)
    assert "not served: " in text(page.render(source.read(path)))


def test_two_files_side_by_side(tmp_path: Path) -> None:
    wide = replace(KEY, cols=4096)
    old = source.Source("old.sqlite", "winners file", (winner(time_us=4.0), winner(key=wide)))
    new = source.Source("new.sqlite", "winners file", (winner(time_us=2.0),))
    told = text(page.render(new, old))
    assert "1 workloads are in both files. new.sqlite is 2.000 times as fast" in told
    assert "0 workloads are here alone, 1 there alone" in told
    elsewhere = source.Source("old.sqlite", "winners file", (winner(device=CPU),))
    assert "no workload of the same device in common" in text(page.render(new, elsewhere))


def test_text_of_a_file_is_only_text() -> None:
    odd = replace(H100, name="<script>alert(1)</script>\x1b")
    html = page.render(source.Source('"><i>', "winners file", (winner(device=odd),)))
    assert "<script>" not in html
    assert "<i>" not in html
    assert "&lt;script&gt;alert" in html
    assert "\x1b" not in html


def test_who_borrows() -> None:
    twin = replace(H100, name="NVIDIA H100 NVL")
    one = source.Source("a", "winners file", (winner(),))
    assert f"The {twin.fingerprint} of this machine borrows them" in text(page.render(one, here=[CPU, twin]))
    assert "of this machine borrows" not in text(page.render(one, here=[H100]))


def test_colours_stay_with_their_strategies() -> None:
    few, more = templates.colours(["lane_merge"]), templates.colours(["lane_merge", "another"])
    assert few["lane_merge"] == more["lane_merge"]
    assert more["another"] not in {more[name] for name in templates.STRATEGIES}


def test_scatter_lies_within_its_axes() -> None:
    drawn = scatter([(1.0, 1.0, "a", ""), (100.0, 10.0, "b", "")], "x", "y", {1: "1×", 1e6: "far"})
    assert [(dot.x, dot.y) for dot in drawn.dots] == [(LEFT, drawn.bottom), (drawn.right, drawn.top)]
    assert drawn.right < WIDTH
    assert [line.label for line in drawn.lines] == ["1×"]
    assert [label for _, label in drawn.x_ticks] == ["1", "10", "100"]


def test_command(cli: Cli, many: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    told = json.loads(cli("report", many, "-o", path, "--json").stdout)
    assert told["measurements"] == MANY
    assert told["size"] == path.stat().st_size
    assert "30000 measurements" in cli("report", many, "-o", path, "--against", many).stdout  # a report is replaced
    path.write_text("a diary")
    assert "--force replaces it" in cli("report", many, "-o", path, code=2).stderr
    assert path.read_text() == "a diary"
    cli("report", path, "-o", tmp_path / "other.html", code=2)  # of what is no database
    assert not (tmp_path / "other.html").exists()


def test_default_is_what_run_time_serves(
    cli: Cli, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    assert "from what run time serves" in cli("report", "-o", tmp_path / "report.html").stdout


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a screen: the system's, else playwright's own."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        system = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        try:
            opened = playwright.chromium.launch(executable_path=system, args=["--no-sandbox"])
        except sync_api.Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield opened
        opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_browsers_show_it(browser: Any, many: Path, tmp_path: Path, width: int, scheme: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(page.render(source.read(many), source.read(many)))
    shown = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    trouble: list[str] = []
    shown.on("console", lambda message: trouble.append(message.text))
    shown.on("pageerror", lambda error: trouble.append(str(error)))
    asked: list[str] = []
    shown.on("request", lambda request: asked.append(request.url))
    shown.goto(path.as_uri())
    rendered = shown.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
    assert shown.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out but within its frame
    paper = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 300) == (scheme == "dark")
    assert rendered < 1000 * SECONDS
    assert trouble == []
    assert all(url.startswith(("file:", "data:")) for url in asked)
    shown.close()


def test_many_k_share_maps() -> None:
    few = {k: [winner(key=replace(KEY, k=k))] for k in (2, 8)}
    assert [(one.k, one.cols, one.lines[0][0]) for one in page.maps_of(few)] == [
        (k, [str(KEY.cols)], str(KEY.rows)) for k in ("2", "8")
    ]
    many = {k: [winner(key=replace(KEY, rows=64, cols=300, k=k), ratio=1 / k)] for k in range(1, 15)}
    first, second = page.maps_of(many)[:2]
    assert (first.k, second.k, second.cols, [rows for rows, _ in second.lines]) == ("1+", "4+", ["256+"], ["64+"])
    [[cell]] = (cells for _, cells in second.lines)
    assert cell is not None
    assert cell.speedup == pytest.approx(prod(range(4, 15)) ** (1 / 11))
    assert cell.title.endswith("and 7 more")
