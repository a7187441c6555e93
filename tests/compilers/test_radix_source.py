"""The radix kernels' CUDA source is the same whichever process writes it, and their state is what its table says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotopk.compilers.tilelang import TileLangSource
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
kernels = json.loads(sys.argv[1])
floats = dict(element_bits=16, is_float=True)
texts = {}
for number in map(int, sys.argv[2]):
    constants = tuple((floats | kernels[number]).items())
    texts[number] = TileLangSource("autotopk.strategies._radix.device.topk:radix_topk", constants).generate(90).text
print(json.dumps([texts[number] for number in sorted(texts)]))
"""


@pytest.mark.compile
@pytest.mark.tilelang
def test_source_is_the_same_in_every_process() -> None:
    """Also where hashes of text differ, and where another kernel was generated before."""

    def generate(order: str, seed: str) -> list[str]:
        command = [sys.executable, "-c", GENERATE, json.dumps(REPRESENTATIVE), order]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        texts: list[str] = json.loads(found.stdout)
        return texts

    first, second = generate("01", "1"), generate("10", "2")
    assert [len(text) > 10_000 for text in first] == [True, True]
    assert first == second
    for text in first:
        shared = re.findall(r"void\* (\w+) = \(\(void\*\)\(\(char\*\)buf_dyn_shmem", text)
        assert shared == sorted(shared)
        assert not [name for name in shared if re.fullmatch(r"v(_\d+)?", name)]  # what TileLang calls the nameless


@pytest.mark.compile
@pytest.mark.tilelang
@pytest.mark.parametrize("constants", REPRESENTATIVE)
def test_source_is_the_same_for_every_architecture(constants: dict[str, int]) -> None:
    """So that it is generated once for all packs."""
    floats = {"element_bits": 16, "is_float": True}
    source = TileLangSource("autotopk.strategies._radix.device.topk:radix_topk", tuple((floats | constants).items()))
    archs = [arch for arch in ARCHS if constants["blocks"] == 1 or arch >= 90]
    first, *others = [source.generate(arch) for arch in archs]
    assert others == [first] * len(others)


def test_table_of_the_state_is_complete() -> None:
    """`Block` documents exactly the names that device code uses."""
    files = {file.name: file.read_text() for file in (Path(_radix.__file__).parent / "device").glob("*.py")}
    rows = re.findall(r"^    \| ([\w, ]+?) \|.*\|$", files["state.py"], re.MULTILINE)
    documented = {name for row in rows for name in row.split(", ")} - {"name"}
    used = {name for text in files.values() for name in re.findall(r"\bb\.([a-z_0-9]+)", text)} - {"hold"}
    assert documented == used
