"""Checkpoints under interruption, damage and full disks: there is always a whole one, and no other is ever loaded."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scaling.errors import DISK, ScalingError
from scaling.ledger import Attempt, Ledger, checkpoint
from scaling.ledger.document import seal
from tests.disk import fill
from tests.ledger.worker import claimed


@pytest.fixture
def attempt(ledger: Ledger, runs: list[str]) -> Iterator[Attempt]:
    with claimed(ledger, runs[0]) as attempt:
        yield attempt


def _save(attempt: Attempt, step: int, size: int = 100) -> None:
    with attempt.checkpoint(step, {"tokens": step * 10}) as folder:
        (folder / "model").write_bytes(bytes([step]) * size)
        (folder / "shards").mkdir()
        (folder / "shards" / ".metadata").write_bytes(b"m" * step)


def _kept(attempt: Attempt) -> list[int]:
    return sorted(checkpoint.steps(attempt.run))


def test_the_last_two_and_the_pinned_are_kept(ledger: Ledger, runs: list[str]) -> None:
    with claimed(ledger, runs[0], pinned={2, 3}) as attempt:
        for step in range(1, 8):
            _save(attempt, step)
        assert _kept(attempt) == [2, 3, 6, 7]


def test_what_an_attempt_found_stays_until_it_has_two_whole_ones(ledger: Ledger, runs: list[str]) -> None:
    """A damaged checkpoint, or one of another run, takes the place of no whole one."""
    with claimed(ledger, runs[0], pinned={1}) as first:
        for step in (1, 2, 3, 4):
            _save(first, step)
        first.end("stopped", "enough for today")
    (first.run / "checkpoints" / "000000000004" / "model").write_bytes(b"?")
    with claimed(ledger, runs[0], pinned={1}) as second:
        found = second.resume()
        assert found is not None
        assert found.step == 3
        _save(second, 5)
        assert _kept(second) == [1, 3, 5]
        _save(second, 6)
        assert _kept(second) == [1, 5, 6], "the pinned step stays"


def test_a_whole_checkpoint_that_does_not_belong_to_the_run_is_written_again(attempt: Attempt) -> None:
    _save(attempt, 1)
    with attempt.checkpoint(2, {"tokens": 7}) as folder:
        (folder / "model").write_bytes(b"another")
    found = attempt.resume(lambda candidate: candidate.note["tokens"] == 10 * candidate.step)
    assert found is not None
    assert found.step == 1
    _save(attempt, 2)
    found = attempt.saved(2)
    assert found is not None
    assert found.note == {"tokens": 20}


def test_a_worker_without_the_lock_disturbs_no_other(ledger: Ledger, runs: list[str]) -> None:
    """It saves steps that are there and others, and drops nothing."""
    early = claimed(ledger, runs[0])
    for step in (1, 2):
        _save(early, step)
    (early.run / "lock").unlink()
    late = claimed(ledger, runs[0])
    late.resume()
    for step in (3, 4):
        _save(late, step)
        _save(early, step)
        _save(early, step + 10)
    assert early.superseded
    assert not late.superseded
    assert set(_kept(late)) >= {3, 4}
    late.close()
    early.close()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_step_saved_twice_is_there_once_and_whole(attempt: Attempt, damaged: bool) -> None:
    _save(attempt, 1)
    if damaged:
        (attempt.run / "checkpoints" / "000000000001" / "model").write_bytes(b"?")
    _save(attempt, 1)
    found = attempt.resume()
    assert found is not None
    assert (found.step, found.note, _kept(attempt)) == (1, {"tokens": 10}, [1])
    assert (found.folder / "model").read_bytes() == b"\1" * 100
    assert (found.folder / "shards" / ".metadata").read_bytes() == b"m"


def _in_a_child(attempt: Attempt, stop_at: int) -> int:
    """Save steps 2 and 3 in a forked process that dies at its `stop_at`-th file operation; its exit status."""
    child = os.fork()
    if child == 0:
        seen = 0

        def count(event: str, _: object) -> None:
            nonlocal seen
            if event.startswith(("open", "os.", "shutil.")):
                seen += 1
            if seen == stop_at:
                os._exit(9)

        try:
            sys.addaudithook(count)
            _save(attempt, 2)
            _save(attempt, 3)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _interrupt_saves(ledger: Ledger, moments: Iterator[int]) -> int:
    """Die at each of these file operations of two saves after a first; how many of the deaths took place."""
    died = 0
    for number, moment in enumerate(moments):
        attempt = claimed(ledger, ledger.add({"seed": 1000 + number}))
        _save(attempt, 1)
        status = _in_a_child(attempt, moment)
        assert status in (0, 9)
        died += status == 9
        found = attempt.resume()
        attempt.close()
        assert found is not None, f"no whole checkpoint after dying at operation {moment}"
        assert (found.folder / "model").read_bytes() == bytes([found.step]) * 100
    return died


def test_a_save_interrupted_at_a_file_operation(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/dev/shm")  # another file system: nothing may be written there and then moved
    assert _interrupt_saves(ledger, iter(range(1, 51, 5))) == 10


def _damage(folder: Path, chance: random.Random) -> str:
    """Truncate one file of a checkpoint, or flip one bit of it, and say what was done."""
    path = chance.choice([path for path in sorted(folder.rglob("*")) if path.is_file()])
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content))
    if chance.random() < 0.3:
        path.write_bytes(content[:place])
        return f"truncated {path.name} at {place}"
    content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return f"flipped a bit of byte {place} of {path.name}"


def _damaged_is_found(attempt: Attempt, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    _save(attempt, 2 * seed + 1)
    _save(attempt, 2 * seed + 2)
    done = _damage(attempt.run / "checkpoints" / f"{2 * seed + 2:012d}", random.Random(seed))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        found = attempt.resume()
    assert found is not None, done
    assert found.step == 2 * seed + 1, done
    assert f"{2 * seed + 2:012d} is damaged and not used" in caplog.text, done


def test_damage_is_found_and_told_and_the_one_before_is_used(
    attempt: Attempt, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in range(20):
        _damaged_is_found(attempt, seed, caplog)


def _linked(folder: Path) -> None:
    (folder / "model").rename(folder.parents[1] / "model")
    (folder / "model").symlink_to(folder.parents[1] / "model")


def _sealed(content: dict[str, object]) -> Callable[[Path], object]:
    return lambda folder: (folder / checkpoint.MANIFEST).write_bytes(seal(content))


OUTSIDE = ("../../secret", "/etc/passwd", "", "..")
CHANGES: list[Callable[[Path], object]] = [
    _linked,
    *(_sealed({"step": 2, "files": {name: {"bytes": 1, "sha256": "0"}}, "note": {}}) for name in OUTSIDE),
    *map(_sealed, [{"a": 1}, {"step": "x"}, {"step": 2, "files": []}, {"step": 2, "files": {"model": 1}}]),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_sealed_and_no_checkpoint_is_damage(attempt: Attempt, change: Callable[[Path], object]) -> None:
    """A link in the place of a file, a manifest that names what is outside, one that makes no sense."""
    _save(attempt, 1)
    _save(attempt, 2)
    change(attempt.run / "checkpoints" / "000000000002")
    found = attempt.resume()
    assert found is not None
    assert found.step == 1


# A disk that is full


@pytest.mark.parametrize("leave", [0, 8 * 4096, 40 * 4096])
def test_a_full_disk_loses_nothing(small_disk: Path, leave: int) -> None:
    """One line and code 74; when there is room again the run goes on from where it was."""
    ledger = Ledger.create(small_disk / "runs")
    run = ledger.add({"seed": leave})
    first = claimed(ledger, run)

    def run_out_of_space() -> None:
        with first:
            _save(first, 1)
            fill(small_disk, leave)
            _save(first, 2, size=200 * 4096)

    with pytest.raises(ScalingError, match="No space left") as full:
        run_out_of_space()
    assert full.value.code == DISK
    assert [path.name for path in (first.run / "checkpoints").iterdir()] == ["000000000001"]

    (small_disk / "filler").unlink()
    with claimed(ledger, run) as attempt:
        found = attempt.resume()
        assert found is not None
        assert found.step == 1
        assert attempt.finish("finished", {"loss": 1.0}).first


def test_a_worker_on_a_full_disk_exits_with_74(small_disk: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    ledger = Ledger.create(small_disk / "runs")
    run = ledger.add({"seed": 0})
    process = start(small_disk / "runs", "--ballast", 600 * 1024)  # one checkpoint fits, two do not
    said, _ = process.communicate(timeout=60)
    assert process.returncode == DISK
    assert "No space left" in said
    assert "Traceback" not in said
    with claimed(ledger, run) as attempt:
        found = attempt.resume()
        assert found is not None
        assert found.step == 4
