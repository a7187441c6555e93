"""The commands of docs/fleet.md as launchers run them, on CPUs: torchrun, Slurm's tasks, Kubernetes' pods."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from autotopk.database import Server
from tests.tuning_db.servers import PostgresServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fleet.md").read_text()
SMALL = ["--rows", "4", "--cols", "64,128,256", "-k", "3"]
COUNT = 6
"""Of these workloads, in both orders."""


def here(command: str) -> str:
    """The same of little work on a CPU. Raises AssertionError where the page names no GPU."""
    assert "--tag serving" in command
    return re.sub(
        r"--device \S+?(?='|$)", "--device cpu", command.replace("--tag serving", " ".join(SMALL)), flags=re.M
    )


def torchrun() -> list[list[str]]:
    (command,) = re.findall(r"^\$ (torchrun .*)$", PAGE, re.MULTILINE)
    assert "--device cuda:$LOCAL_RANK" in command
    return [["sh", "-c", here(command).replace("--nproc-per-node gpu", "--nproc-per-node 2")]]


def slurm() -> list[list[str]]:
    """Two tasks of the array; srun starts what follows it."""
    (script,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    assert "--device all" in script
    return [["bash", "-c", f'srun() {{ "$@"; }}\n{here(script)}']] * 2


def kubernetes() -> list[list[str]]:
    """Two pods."""
    (job,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (container,) = yaml.safe_load(job)["spec"]["template"]["spec"]["containers"]
    return [here(" ".join(container["command"])).split()] * 2


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [torchrun, slurm, kubernetes])
def test_tuners_of_a_launcher_share_the_workloads(
    launcher: Callable[[], list[list[str]]], postgres: PostgresServer, tmp_path: Path
) -> None:
    """And the winners of all are exported from the server; nobody is told the password."""
    server = postgres.make()
    assert isinstance(server, Server)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    variables = {"AUTOTOPK_TUNING_DB": server.url, "PATH": path, "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **variables, "CUDA_VISIBLE_DEVICES": ""}

    def start(*command: str) -> "subprocess.Popen[str]":
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes)  # type: ignore[call-overload, no-any-return]

    jobs = [start(*command) for command in launcher()]
    told = [job.communicate(timeout=200)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * len(jobs), told
    tuned = re.findall(r"^\[\d/6\] (.*?): tuned", "\n".join(told), re.MULTILINE)
    assert len(tuned) == len(set(tuned)) == COUNT

    status, export = (
        start("autotopk", "fleet", "status", "--json"),
        start("autotopk", "export", "winners.bundle", "--json"),
    )
    said = [one.communicate(timeout=100)[0] for one in (status, export)]
    (progress,) = json.loads(said[0])["progress"]
    assert (progress["done"], progress["claimed"], progress["open"], progress["failed"]) == (COUNT, 0, 0, 0)
    assert export.returncode == 0, said[1]
    assert (tmp_path / "winners.bundle").exists()
    shown = start("autotopk", "show", "--db", "winners.bundle", "--json").communicate(timeout=100)[0]
    assert len(json.loads(shown)) == COUNT
    assert not any(form in "".join([*told, *said]) for form in (postgres.password, "s3cret"))
