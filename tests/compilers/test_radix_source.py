"""The radix kernels' CUDA source is the same whichever process writes it, and their state is what its table says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotopk.packs import ARCHS
from autotopk.strategies import _radix

REPRESENTATIVE = [
    {"threads": 128, "blocks": 1, "items": 8, "radix_bits": 8, "vector": 4, "streams": True, "capacity": 256},
    {"threads": 128, "blocks": 4, "items": 8, "radix_bits": 8, "vector": 4, "streams": True, "capacity": 512},
]
"""One block and one cluster; with what streams and sorts they have all of the state."""

GENERATE = """
import json
import sys
from autotopk.compilers.tilelang import TileLangSource
kernels, order, archs = json.loads(sys.argv[1])
found = {}
for number in order:
    constants = tuple(kernels[number].items())
    source = TileLangSource("autotopk.strategies._radix.device.topk:radix_topk", constants)
    found[number] = repr(source.generate(archs[number]))
print(json.dumps([found[number] for number in sorted(found)]))
"""


def check(elements: dict[str, int | bool], *archs: tuple[int, int]) -> None:
    """The representative kernels for several architectures, in processes and orders that are different."""

    def generate(seed: int, pair: tuple[int, int]) -> list[str]:
        kernels, order = [elements | one for one in REPRESENTATIVE], (0, 1) if seed % 2 else (1, 0)
        command = [sys.executable, "-c", GENERATE, json.dumps([kernels, order, pair])]
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        texts: list[str] = json.loads(found.stdout)
        return texts

    first, *others = [generate(1 + turn, pair) for turn, pair in enumerate(archs)]
    assert [len(text) > 10_000 for text in first] == [True, True]
    assert others == [first] * len(others)
    for text in first:
        shared = re.findall(r"void\* (\w+) = \(\(void\*\)\(\(char\*\)buf_dyn_shmem", text)
        assert shared
        assert shared == sorted(shared)
        assert not [name for name in shared if re.fullmatch(r"v(_\d+)?", name)]  # what TileLang calls the nameless


@pytest.mark.compile
@pytest.mark.tilelang
def test_source_is_the_same_in_every_process_for_every_architecture() -> None:
    """Also where hashes of text differ, and where another kernel was generated before; so that packs share it."""
    check({"element_bits": 8, "is_float": False}, (min(ARCHS), 90), (max(ARCHS), max(ARCHS)))


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.tilelang
def test_source_of_two_passes_is_the_same() -> None:
    check({"element_bits": 16, "is_float": True}, *((arch, max(90, arch)) for arch in ARCHS))


def test_table_of_the_state_is_complete() -> None:
    """`Block` documents exactly the names that device code uses."""
    files = {file.name: file.read_text() for file in (Path(_radix.__file__).parent / "device").glob("*.py")}
    rows = re.findall(r"^    \| ([\w, ]+?) \|.*\|$", files["state.py"], re.MULTILINE)
    documented = {name for row in rows for name in row.split(", ")} - {"name"}
    used = {name for text in files.values() for name in re.findall(r"\bb\.([a-z_0-9]+)", text)} - {"hold"}
    assert documented == used
