"""What the ledger's tests share: a ledger in a fresh folder, and worker processes that never outlive a test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scaling.ledger import Ledger

WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "runs")


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a worker on a folder: `start(root, "--pause", "0.01")`."""
    started: list[subprocess.Popen[str]] = []

    def start_worker(root: Path, *words: object) -> subprocess.Popen[str]:
        command = [sys.executable, str(WORKER), str(root), *map(str, words)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append(process)
        return process

    yield start_worker
    for process in started:
        process.kill()
        process.communicate()


def _spec(number: int) -> dict[str, object]:
    return {"model": {"kind": "Chain", "width": 8}, "seed": number, "train": {"tokens": 1000}}


@pytest.fixture
def runs(ledger: Ledger) -> list[str]:
    """Three runs entered into the ledger."""
    return [ledger.add(_spec(number)) for number in range(3)]
