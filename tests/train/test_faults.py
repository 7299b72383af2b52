"""A full disk, a damaged or a malicious checkpoint, a secret: what real runs do about them."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import signal
from pathlib import Path

import pytest

from scaling import cli
from scaling.errors import DISK
from scaling.ledger import Ledger
from scaling.ledger.document import read, seal
from scaling.train import recorder
from tests.disk import fill
from tests.train.conftest import Done, left, words
from tests.train.test_resume import after, same

CANARY = "canary-51f0c2aa"


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Done:
    from scaling.train.run import train
    from tests.train.conftest import load

    runs = tmp_path_factory.mktemp("unbroken") / "runs"
    train(load(words(runs)))
    return left(runs)


# A full disk: from a step on there is almost no room; later there is again.
DISKS = [(1, 0), (5, 2048), (9, 8192)]
LATER = [(random.Random(seed).randint(1, 12), random.Random(-seed).randint(0, 30_000)) for seed in range(1, 48)]


@pytest.mark.parametrize(("step", "leave"), [*DISKS, *(pytest.param(*one, marks=pytest.mark.slow) for one in LATER)])
def test_a_full_disk_is_one_line_and_loses_nothing(step, leave, small_disk, fork, unbroken, capfd):
    told = words(small_disk / "runs")

    def full_from_there() -> None:
        before, steps = recorder.Recorder.on_train_batch_end, [0]

        def filled(*given, **named):
            steps[0] += 1
            if steps[0] == step:
                fill(small_disk, leave)
            return before(*given, **named)

        recorder.Recorder.on_train_batch_end = filled

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
        recorder.Recorder.on_train_batch_end = after(9, recorder.Recorder.on_train_batch_end)

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
    found = sorted(runs.glob("store/*/attempts/*/checkpoints/[0-9]*"))
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


class Bomb:
    """What a pickle may be made to do to whoever loads it."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors"])
def test_a_pickle_in_a_sealed_checkpoint_runs_nothing(name, tmp_path, fork, capsys):
    """Even where its manifest vouches for it, for whoever can write the folder can seal one too."""
    told = words(tmp_path / "runs")
    killed_after_two_checkpoints(told, fork)
    folder = last_checkpoint(tmp_path / "runs")
    (folder / name).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    manifest = read(folder / "manifest.json")
    content = (folder / name).read_bytes()
    manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_bytes(seal({key: manifest[key] for key in ("step", "files", "note")}))
    assert cli.main(["train", *told]) == 2
    said = capsys.readouterr().err.splitlines()
    assert "no whole safetensors file" in said[-1]
    assert not (tmp_path / "exploded").exists()


MALICE = {
    "a tag that calls": "model: !!python/object/apply:os.mkdir [{mark}]\n",
    "a tag that imports": "model: !!python/name:os.system ''\n",
    "a kind that is a function": "base: decoder\nmodel: {{block: {{channel: {{kind: os.mkdir, path: {mark}}}}}}}\n",
    "a resolver that reads secrets": "base: decoder\nlog: {{group: '${{oc.env:SECRET_TOKEN}}'}}\n",
    "a resolver of no name": "base: decoder\nlog: {{group: '${{eval:1}}'}}\n",
    "aliases that explode": "a: &a [x, x, x, x, x, x]\n"
    + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi"))
    + "model: *i\n",
    "a base outside": "base: ../../../etc/passwd\n",
    "a base that is a device": "base: /dev/zero\n",
    "a key that is an attribute": "base: decoder\nmodel: {{__class__: {{kind: Decoder}}}}\n",
}


@pytest.mark.parametrize("name", MALICE)
def test_a_malicious_config_is_refused(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", CANARY)
    (tmp_path / "evil.yaml").write_text(MALICE[name].format(mark=tmp_path / "exploded"))
    assert cli.main(["train", str(tmp_path / "evil.yaml"), *words(tmp_path / "runs")[1:]]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert CANARY not in said
    assert not (tmp_path / "exploded").exists()
    assert not (tmp_path / "runs").exists()


def test_a_secret_of_the_environment_is_written_nowhere(tmp_path, fork):
    def prepare() -> None:
        os.environ.update(SECRET_TOKEN=CANARY, AWS_SECRET_ACCESS_KEY=CANARY, HF_TOKEN=CANARY, USER=CANARY)

    assert fork(words(tmp_path / "runs"), prepare).wait() == 0
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path
