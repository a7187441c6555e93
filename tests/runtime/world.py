"""Processes, of gloo or of NCCL with a GPU each, which call a function of these tests with arguments of their own."""

import importlib
import multiprocessing as mp
import pickle
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

SIZE = 5
PATIENCE = 60.0
"""Seconds for an answer: a rank that waits for another one forever fails the test."""


class World:
    """Ranks that are called together; groups of the first 1 to 5 of them are in `tests.runtime.world.GROUPS`."""

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes

    def call(self, function: Any, arguments: list[tuple[Any, ...]]) -> list[Any]:
        """What the first ranks return for their arguments; ("raised", type, text) for what they raise."""
        name = function.__module__, function.__name__
        pipes = self._pipes[: len(arguments)]
        for pipe, one in zip(pipes, arguments, strict=True):
            pipe.send_bytes(pickle.dumps((*name, one)))  # plain: send would share memory between processes
        for rank, pipe in enumerate(pipes):
            assert pipe.poll(PATIENCE), f"rank {rank} of {len(pipes)} hangs in {name}"
        return [pickle.loads(pipe.recv_bytes()) for pipe in pipes]


GROUPS: dict[int, Any] = {}
"""In a rank: by their size."""


@contextmanager
def world(size: int = SIZE, backend: str = "gloo") -> Iterator[World]:
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed.tensor", "autotopk.distributed"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pipes, processes = [], []
    for rank in range(size):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(rank, size, backend, port, theirs), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)
    try:
        yield World(pipes)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _serve(rank: int, size: int, backend: str, port: int, pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    patience = timedelta(seconds=PATIENCE)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, f"tcp://127.0.0.1:{port}", rank=rank, world_size=size, timeout=patience)
    import tests.runtime.world as shared

    shared.GROUPS.update({ranks: dist.new_group(list(range(ranks))) for ranks in range(1, size + 1)})
    while True:
        module, name, arguments = pickle.loads(pipe.recv_bytes())
        try:
            found = getattr(importlib.import_module(module), name)(*arguments)
        except Exception as error:
            found = ("raised", type(error).__name__, str(error))
        pipe.send_bytes(pickle.dumps(found))
