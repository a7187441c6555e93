"""Both launchers, in C and in Python, ask the driver for the same: a driver of ours writes down what it was asked."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.runtime.winners import environment, python

pytestmark = pytest.mark.requires("gcc")

DRIVER = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef struct { unsigned x, y, z; } Cluster;
typedef struct { int id; char padding[4]; union { char bytes[64]; Cluster cluster; int flag; } value; } Attribute;
typedef struct {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
  void* stream;
  Attribute* attributes;
  unsigned count;
} Config;
/* A function's handle is 100 times its number of parameters, plus the code that launching it returns. */
int cuLaunchKernelEx(const Config* c, void* function, void** parameters, void** extra) {
  uintptr_t handle = (uintptr_t)function;
  printf("{\"handle\": %lu, \"grid\": [%u, %u, %u], ", handle, c->grid_x, c->grid_y, c->grid_z);
  printf("\"threads\": %u, \"shared\": %u, \"stream\": %lu, ", c->block_x, c->shared, (uintptr_t)c->stream);
  printf("\"attributes\": {");
  for (unsigned i = 0; i < c->count; i++)
    printf("%s\"%d\": %d", i ? ", " : "", c->attributes[i].id, c->attributes[i].value.flag);
  printf("}, \"parameters\": [");
  for (unsigned i = 0; i < handle / 100; i++) printf("%s%ld", i ? ", " : "", *(int64_t*)parameters[i]);
  printf("]}\n");
  fflush(stdout);
  return handle % 100;
}
"""

LAUNCHERS = {
    "C": "from autotopk.runtime._launcher import prepare\nONE = 1, ()",
    "Python": "from autotopk.runtime.driver import prepare\nONE = 1, ()",
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    command = ["gcc", "-shared", "-fPIC", "-o", "libcuda.so.1", "driver.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


def asked(launcher: str, code: str, driver: Path, cache: Path) -> list[object]:
    """What a process printed: of every launch what was asked, and its own numbers."""
    printed = python(f"{LAUNCHERS[launcher]}\n{code}", environment(cache, LD_LIBRARY_PATH=str(driver)))
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_program_is_launched_in_one_call(launcher: str, driver: Path, cache_dir: Path) -> None:
    code = """
launch = prepare((
    (500, ((264, ()), ONE, ONE), 1024, 65536, 1, False, False, ((0, 0), (3, 0), (3, 4096), "cols", (-1, -1))),
    (200, ((2, (("rows", 1),)), (3, (("rows", 8), ("cols", 1 << 22))), (4, ())), 512, 0, 8, True, True,
     ((3, 4096), (2, 0))),
), 4, {"rows": 7, "cols": 10_000_000})
print(launch(77, 1 << 40, 2 << 40, 3 << 40, (1 << 47) - 4096), flush=True)
"""
    first = {
        "handle": 500,
        "grid": [264, 1, 1],
        "threads": 1024,
        "shared": 65536,
        "stream": 77,
        "attributes": {},
        "parameters": [1 << 40, (1 << 47) - 4096, 1 << 47, 10_000_000, -1],
    }
    second = {
        "handle": 200,
        "grid": [14, 9, 4],
        "threads": 512,
        "shared": 0,
        "stream": 77,
        "attributes": {"4": 8, "2": 1, "6": 1},
        "parameters": [1 << 47, 3 << 40],
    }
    assert asked(launcher, code, driver, cache_dir) == [first, second, 0]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_the_driver_refuses_ends_the_program(launcher: str, driver: Path, cache_dir: Path) -> None:
    code = """
one = lambda function: (function, (ONE, ONE, ONE), 32, 0, 1, False, False, ())
print(prepare((one(0), one(7), one(0)), 0, {})(0), flush=True)
"""
    *launches, status = asked(launcher, code, driver, cache_dir)
    assert [launch["handle"] for launch in launches] == [0, 7]  # type: ignore[index]
    assert status == 7


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_addresses_are_counted(launcher: str, driver: Path, cache_dir: Path) -> None:
    code = """
launch = prepare(((0, (ONE, ONE, ONE), 32, 0, 1, False, False, ((1, 0),)),), 2, {})
try:
    launch(0, 5)
except TypeError as error:
    print(f'"{error}"')
"""
    assert asked(launcher, code, driver, cache_dir) == ["a stream and 2 addresses are needed, got 2 arguments"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: "((1 << 33, ()), ONE, ONE)"}, "grid 8589934592 is not between 1 and 2147483647"),
        ({1: "(ONE, (1 << 16, ()), ONE)"}, "grid 65536 is not between 1 and 65535"),
        ({1: "((1 << 40, (('most', 1),)), ONE, ONE)"}, "grid 9223372036854775807 is not between 1 and 2147483647"),
        ({1: "((1, (('most', 0),)), ONE, ONE)"}, "share 0 is not between 1 and 9223372036854775807"),
        ({1: "((1, (('least', 1),)), ONE, ONE)"}, "number -1 is not between 0 and 9223372036854775807"),
        ({2: "0"}, "threads 0 is not between 1 and 1024"),
        ({3: "1 << 32"}, "shared bytes 4294967296 is not between 0 and 2147483647"),
        ({7: "((2, 0),)"}, "address 2 is not between -1 and 1"),
        ({7: "((-1, 0),) * 41"}, "number of parameters 41 is not between 0 and 40"),
    ],
)
def test_numbers_that_would_be_cut_are_refused(
    change: dict[int, str], message: str, driver: Path, cache_dir: Path
) -> None:
    record = ["0", "(ONE, ONE, ONE)", "32", "0", "1", "False", "False", "((1, 0),)"]
    for at, text in change.items():
        record[at] = text
    code = f"""
try:
    prepare((({", ".join(record)}),), 2, {{"most": 1 << 40, "least": -1}})
except ValueError as error:
    print(f'"{{error}}"')
"""
    assert asked("C", code, driver, cache_dir) == [message]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_number_that_nobody_provides_is_refused(launcher: str, driver: Path, cache_dir: Path) -> None:
    code = """
for grid, parameters in (((1, (("rows", 1),)), ()), (ONE, ("rows",))):
    try:
        prepare(((0, (ONE, grid, ONE), 32, 0, 1, False, False, parameters),), 2, {"cols": 1})
    except KeyError as error:
        print(f'"{error}"')
"""
    assert asked(launcher, code, driver, cache_dir) == ["'rows'"] * 2
