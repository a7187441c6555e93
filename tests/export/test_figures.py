"""The page of times is that of the measurements, and they are what is promised."""

import json

import pytest

from scripts import aot
from tests.packaging.processes import ROOT

FOLDER = ROOT / "docs" / "figures" / "aot"
WAYS = {"torch": (10.0, 30.0, 20.0), "triton": (1.5, 25.0, 15.0), "library": (1.0, 31.0, 18.0)}


def content(**ways: tuple[float, float, float]) -> dict[str, object]:
    times = {way: dict(zip(("gpu_us", "call_us", "host_us"), numbers, strict=True)) for way, numbers in ways.items()}
    return {
        "date": "2026-01-02T03:04",
        "command": "make test-aot",
        "commit": "abc",
        "device": {"name": "a GPU"},
        "versions": {"torch": "2"},
        "times_us": {"(4, 8, 2)": times},
    }


def test_the_page_tells_all_times() -> None:
    page = aot.page(content(**WAYS))
    assert page.startswith("a GPU, torch 2, 2026-01-02, commit abc,\n`make test-aot`: ")
    assert "| 4, 8, 2 | 10.0 | 1.5 | 1.0 | 30.0 | 25.0 | 31.0 |" in page
    assert "- triton: times torch.topk's speed, in geometric mean: 6.7 on the GPU, 1.2 in whole calls" in page


def test_what_is_too_slow_is_told() -> None:
    assert aot.slow(content(**WAYS)["times_us"]) == [  # type: ignore[arg-type]
        "library (4, 8, 2): a call takes 31.0 us, torch.topk's 30.0"
    ]
    slower = {**WAYS, "triton": (2.1, 25.0, 15.0), "library": (1.0, 30.0, 18.0)}
    assert aot.slow(content(**slower)["times_us"]) == [  # type: ignore[arg-type]
        "triton is 4.76 times as fast on the GPU, not 5.0"
    ]


@pytest.mark.skipif(not FOLDER.exists(), reason="nothing was measured yet")
def test_the_page_is_that_of_the_measurements() -> None:
    measured = json.loads((FOLDER / "times.json").read_text())
    assert (FOLDER / "times.md").read_text() == aot.page(measured)
    assert len(measured["times_us"]) == 11
