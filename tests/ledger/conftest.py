"""What the ledger's tests share: a ledger in a fresh folder, and three runs of it."""

from pathlib import Path

import pytest

from scaling.ledger import Attempt, Ledger


def claimed(ledger: Ledger, run: str) -> Attempt:
    """An attempt at a run that no one else works on."""
    attempt = ledger.claim(run)
    assert attempt is not None
    return attempt


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
