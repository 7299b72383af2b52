"""A full disk, a damaged checkpoint: what real runs do about them."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from scaling.errors import DISK
from scaling.ledger import Ledger
from scaling.training.callbacks import Save
from tests.disk import fill
from tests.training.conftest import left, same, words
from tests.training.test_resume import after

# A full disk: from a step on there is almost no room; later there is again.
DISKS = [(1, 0), (5, 2048), (9, 8192)]
LATER = [(random.Random(seed).randint(1, 12), random.Random(-seed).randint(0, 30_000)) for seed in range(1, 48)]


@pytest.mark.parametrize(("step", "leave"), [*DISKS, *(pytest.param(*one, marks=pytest.mark.slow) for one in LATER)])
def test_a_full_disk_is_one_line_and_loses_nothing(step, leave, small_disk, fork, unbroken, capfd):
    told = words(small_disk / "runs")

    def full_from_there() -> None:
        before, steps = Save.on_train_batch_end, [0]

        def filled(*given, **named):
            steps[0] += 1
            if steps[0] == step:
                fill(small_disk, leave)
            return before(*given, **named)

        Save.on_train_batch_end = filled

    code = fork(told, full_from_there).wait()
    if code != 0:  # there may have been room enough for what was left to write
        assert code == DISK
        said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("scaling: ")]
        assert len(said) == 1
        assert "No space left" in said[0]
    (small_disk / "filler").unlink()
    assert fork(told).wait() == 0
    same(left(small_disk / "runs"), unbroken)


def killed_after_two_checkpoints(told: list[str], fork) -> None:
    def prepare() -> None:
        Save.on_train_batch_end = after(9, Save.on_train_batch_end)

    assert fork(told, prepare).wait() == -signal.SIGKILL


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 30))])
def test_a_damaged_checkpoint_is_passed_over(seed, tmp_path, fork, unbroken):
    told = words(tmp_path / "runs")
    killed_after_two_checkpoints(told, fork)
    damage(last_checkpoint(tmp_path / "runs"), random.Random(seed))
    assert fork(told).wait() == 0
    assert resumed_from(tmp_path / "runs") == 4
    same(left(tmp_path / "runs"), unbroken)


def last_checkpoint(runs: Path) -> Path:
    found = sorted(runs.glob("store/*/checkpoints/[0-9]*"))
    assert [int(path.name) for path in found] == [4, 8]
    return found[-1]


def resumed_from(runs: Path) -> int | None:
    ledger = Ledger.open(runs)
    (run,) = ledger.runs()
    return [entry["from_step"] for entry in ledger.history(run) if entry.get("kind") == "resume"][-1]


def damage(folder: Path, draw: random.Random) -> None:
    """Cut a file off, or turn one bit of it round."""
    path = draw.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    content = bytearray(path.read_bytes())
    place = draw.randrange(len(content))
    if draw.random() < 0.5:
        content = content[:place]
    else:
        content[place] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
