"""What the ledger's tests share: a ledger in a fresh folder, and worker processes that never outlive a test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scaling.ledger import Attempt, Ledger

WORKER = Path(__file__).with_name("worker.py")


def save(attempt: Attempt, step: int, content: bytes = b"m", size: int = 1) -> None:
    with attempt.checkpoint(step, {"tokens": step * 10}) as folder:
        (folder / "model").write_bytes(content * size)
        (folder / "shards").mkdir()
        (folder / "shards" / ".metadata").write_bytes(b"m" * step)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "runs")


@pytest.fixture
def runs(ledger: Ledger) -> list[str]:
    """Three runs entered into the ledger."""
    return [ledger.add({"model": {"kind": "Chain", "width": 8}, "seed": number}) for number in range(3)]


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a worker on a folder: `start(root, "--pause", "0.01")`."""
    started: list[subprocess.Popen[str]] = []

    def start_worker(root: Path, *words: object) -> subprocess.Popen[str]:
        command = [sys.executable, str(WORKER), str(root), *map(str, words)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    yield start_worker
    for process in started:
        process.kill()
        process.communicate()
