"""Checkpoints under damage and rivals: there is always a whole one, and no other is ever loaded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scaling.ledger import Attempt, Ledger, checkpoint
from scaling.ledger.document import seal
from tests.ledger.conftest import save
from tests.ledger.worker import claimed


@pytest.fixture
def attempt(ledger: Ledger, runs: list[str]) -> Iterator[Attempt]:
    with claimed(ledger, runs[0]) as attempt:
        yield attempt


def kept(attempt: Attempt) -> list[int]:
    return sorted(checkpoint.steps(attempt.run))


def folder(attempt: Attempt, step: int) -> Path:
    return attempt.run / "checkpoints" / f"{step:012d}"


def resumed(attempt: Attempt, belongs: checkpoint.Belongs = lambda _: True) -> int | None:
    found = attempt.resume(belongs)
    return None if found is None else found.step


def test_the_last_two_and_the_pinned_are_kept(ledger, runs):
    """What an attempt found stays until it has two whole ones: a damaged one takes the place of none."""
    ledger.save_plan("study", {"runs": [{"run": runs[1], "trunk": {"run": runs[0], "step": 1}}]})
    with claimed(ledger, runs[0]) as first:
        for step in range(1, 6):
            save(first, step)
        assert kept(first) == [1, 4, 5]
        first.end("stopped", "enough for today")
    (folder(first, 5) / "model").write_bytes(b"?")
    with claimed(ledger, runs[0]) as second:
        assert resumed(second) == 4
        save(second, 6)
        assert kept(second) == [1, 4, 6]
        save(second, 7)
        assert kept(second) == [1, 6, 7]


def test_a_whole_checkpoint_that_does_not_belong_to_the_run_is_written_again(attempt):
    save(attempt, 1)
    with attempt.checkpoint(2, {"tokens": 7}) as other:
        (other / "model").write_bytes(b"another")
    assert resumed(attempt, lambda candidate: candidate.note["tokens"] == 10 * candidate.step) == 1
    save(attempt, 2)
    found = checkpoint.find(attempt.run, 2)
    assert found is not None
    assert found.note == {"tokens": 20}


def test_a_worker_without_the_lock_disturbs_no_other(ledger, runs):
    """It saves steps that are there and others, and drops nothing."""
    early = claimed(ledger, runs[0])
    for step in (1, 2):
        save(early, step)
    (early.run / "lock").unlink()
    with claimed(ledger, runs[0]) as late, early:
        late.resume()
        for step in (3, 4):
            save(late, step)
            save(early, step)
            save(early, step + 10)
        assert early.superseded
        assert not late.superseded
        assert set(kept(late)) >= {3, 4}


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_step_saved_twice_is_there_once_and_whole(attempt, is_damaged):
    """The first stays as long as it is whole."""
    save(attempt, 1, b"a", 100)
    if is_damaged:
        (folder(attempt, 1) / "model").write_bytes(b"?")
    save(attempt, 1, b"b", 100)
    assert (resumed(attempt), kept(attempt)) == (1, [1])
    assert (folder(attempt, 1) / "model").read_bytes() == (b"b" if is_damaged else b"a") * 100
    assert (folder(attempt, 1) / "shards" / ".metadata").read_bytes() == b"m"


def test_damage_is_found_and_told_and_the_one_before_is_used(attempt, caplog):
    """A file is truncated, or one bit of it flipped."""
    for seed in range(20):
        chance, last = random.Random(seed), 2 * seed + 2
        save(attempt, last - 1)
        save(attempt, last)
        path = chance.choice([path for path in sorted(folder(attempt, last).rglob("*")) if path.is_file()])
        content = bytearray(path.read_bytes())
        place = chance.randrange(len(content))
        if seed % 3:
            content[place] ^= 1 << chance.randrange(8)
        path.write_bytes(content if seed % 3 else content[:place])
        caplog.clear()
        assert resumed(attempt) == last - 1, path
        assert f"{last:012d} is damaged and not used" in caplog.text


def linked(folder: Path) -> None:
    (folder / "model").rename(folder.parents[1] / "model")
    (folder / "model").symlink_to(folder.parents[1] / "model")


def sealed(content: dict[str, object]) -> Callable[[Path], object]:
    return lambda folder: (folder / checkpoint.MANIFEST).write_bytes(seal(content))


OUTSIDE = ("../../secret", "/etc/passwd", "", "..")
CHANGES: list[Callable[[Path], object]] = [
    linked,
    *(sealed({"step": 2, "files": {name: {"bytes": 1, "sha256": "0"}}, "note": {}}) for name in OUTSIDE),
    *map(sealed, [{"a": 1}, {"step": "x"}, {"step": 2, "files": []}, {"step": 2, "files": {"model": 1}}]),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_sealed_and_no_checkpoint_is_damage(attempt, change):
    """A link in the place of a file, a manifest that names what is outside, one that makes no sense."""
    save(attempt, 1)
    save(attempt, 2)
    change(folder(attempt, 2))
    assert resumed(attempt) == 1
