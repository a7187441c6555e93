"""What processes of a machine tell each other through a file."""

import multiprocessing as mp
import random
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from autotopk.runtime import board
from autotopk.runtime.board import MOST_BYTES, Board, new_file

RANKS, ROUNDS = 3, 400


def message(number: int, rank: int) -> bytes:
    """Of a length that changes from time to time."""
    return bytes([number % 256, rank, *range(number // 50 * 32)])[:MOST_BYTES]


def tell(file: Path, rank: int, pipe: Connection) -> None:
    """Messages of every round, with pauses that differ."""
    draw, mine = random.Random(rank), Board(file, rank, RANKS)
    found = []
    for number in range(ROUNDS):
        if draw.random() < 0.02:
            time.sleep(0.003)
        told = message(number, rank)
        mine.tell(told)
        if draw.random() < 0.02:
            time.sleep(0.003)
        found.append(mine.heard())
    pipe.send(found)


def test_all_are_told_all_of_every_round() -> None:
    file, context = new_file(RANKS), mp.get_context("forkserver")
    pipes = []
    try:
        for rank in range(RANKS):
            ours, theirs = context.Pipe()
            context.Process(target=tell, args=(file, rank, theirs), daemon=True).start()
            pipes.append(ours)
        for pipe in pipes:
            assert pipe.poll(60)
        everyone = [pipe.recv() for pipe in pipes]
    finally:
        file.unlink()
    expected = [[message(number, rank) for rank in range(RANKS)] for number in range(ROUNDS)]
    assert everyone == [expected] * RANKS


def exchanged(board: Board, message: bytes) -> list[bytes]:
    board.tell(message)
    return board.heard()


def test_what_is_half_written_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    file = new_file(2)
    one, other = (Board(file, rank, 2) for rank in range(2))
    file.unlink()
    monkeypatch.setattr(board, "PATIENCE_S", 0.05)
    whole: list[tuple[int, bytes]] = []
    monkeypatch.setattr(one, "_write", lambda slot, data: whole.append((slot, data)))
    with pytest.raises(TimeoutError, match="rank 1 of the group has not come"):
        exchanged(one, b"7")
    slot, data = whole[0]
    Board._write(one, slot, data[:-1])
    with pytest.raises(TimeoutError, match="rank 0"):
        exchanged(other, b"8")
    Board._write(one, slot, data)
    other._round -= 1
    assert exchanged(other, b"8") == [b"7", b"8"]


def test_a_file_is_this_users_alone() -> None:
    file = new_file(4)
    assert file.stat().st_mode & 0o077 == 0
    file.unlink()
