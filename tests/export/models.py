"""Models with top-k in them, compiled into packages and run by the C++ program."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from autotopk import export


class Model(torch.nn.Module):
    """A function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def exported(function: Callable[..., Any], *inputs: Tensor, dynamic: Any = None) -> ExportedProgram:
    """The program of a function; `dynamic` are its dynamic shapes, input by input."""
    return torch.export.export(Model(function), inputs, dynamic_shapes=None if dynamic is None else (tuple(dynamic),))


def package(program: ExportedProgram, path: Path, **configs: Any) -> Path:
    """Compile a program."""
    torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=configs)
    return path


@dataclass(frozen=True)
class Run:
    """What a process without Python gave."""

    outputs: list[list[Tensor]]
    """Model by model."""
    times: list[dict[str, Any]]
    told: str
    """Its standard error."""


def run(
    models: Sequence[tuple[Path, Sequence[Tensor]]],
    folder: Path,
    *,
    plans: Sequence[Path] = (),
    device: str = "cpu",
    rounds: int = 0,
) -> Run:
    """Run packages on inputs in one process."""
    command = [str(export.runner()), "--device", device, "--library", str(export.library()), "--rounds", str(rounds)]
    for at, (model, inputs) in enumerate(models):
        files = [folder / f"input_{at}_{which}.pt" for which in range(len(inputs))]
        for one, file in zip(inputs, files, strict=True):
            torch.save(one.cpu(), file)
        command += [str(model), ",".join(map(str, files)), str(folder / f"output_{at}")]
    environment = {**os.environ, "AUTOTOPK_PLANS": ":".join(map(str, plans))}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"{found.returncode}: {found.stdout[-500:]}{found.stderr[-3000:]}"
    outputs = []
    for at in range(len(models)):
        count = len(list(folder.glob(f"output_{at}.*.pt")))
        outputs.append([torch.load(folder / f"output_{at}.{which}.pt").to(device) for which in range(count)])
    return Run(outputs, [json.loads(line) for line in found.stdout.splitlines()], found.stderr)
