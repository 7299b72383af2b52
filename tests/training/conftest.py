"""Real runs of a tiny model, in this process or in a child forked from it: Lightning is imported once."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scaling import cli, config
from scaling.batch import Batch
from scaling.ledger import Ledger
from scaling.model.family import Family
from scaling.training.evaluation import Evaluation
from scaling.training.experiment import Experiment
from scaling.training.run import train

TINY = {
    "size": "tiny",
    "size.width": "8",
    "size.layers": "1",
    "size.vocabulary": "null",
    "size.length": "16",
    "data": "synthetic",
    "data.symbols": "8",
    "data.validation": "512",
    "trainer.max_steps": "12",
    "train.batch": "4",
    "train.checkpoint_every": "4",
    "evaluate.points": "2",
    "schedule.warmup": "2",
    "log.every": "1",
    "log.wandb": "disabled",
    "model.block.mixer.dropout": "0.1",
}


def words(runs: Path, name: str = "decoder", /, **changes: Any) -> list[str]:
    """The words of a command line: the tiny run, with changes (`trainer__max_steps=20` is `trainer.max_steps=20`)."""
    own = {key.replace("__", "."): str(value) for key, value in changes.items()}
    told = {**TINY, **own, "runs": str(runs)}
    if "schedule.kind" in own:
        told.pop("schedule.warmup") if "schedule.warmup" not in own else None
    return [name, *(f"{key}={value}" for key, value in told.items() if value != "absent")]


def alive(folder: Path) -> list[str]:
    """The command lines of living processes that name a folder: ranks are started with a file in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if str(folder) in line]


def load(told: list[str]) -> config.Config:
    return config.load(told[0], told[1:])


def evaluate(model: Family, batches: Iterable[Batch], evaluation: Evaluation) -> dict[str, Any]:
    """What a model loses on batches, outside of a Trainer."""
    model.eval()
    for batch in batches:
        evaluation.add(model, batch)
    return evaluation.measured()


def held_out(experiment: Experiment) -> list[Batch]:
    """The batches of the last evaluation."""
    batches, count = experiment.evaluation()
    return [batches.batch(step) for step in range(count)]


@dataclass(frozen=True)
class Done:
    """What a run left behind: all of it that has to be equal to the bit."""

    result: dict[str, Any]
    losses: dict[tuple[int, str], float]
    files: dict[str, bytes]


def left(runs: Path) -> Done:
    """What the only run of a ledger that has a result left behind."""
    ledger = Ledger.open(runs)
    (run,) = (run for run in ledger.runs() if ledger.result(run) is not None)
    return done(ledger, run)


def done(ledger: Ledger, run: str) -> Done:
    """A run's result, every logged loss, and the bytes of its last checkpoint."""
    result = ledger.result(run)
    assert result is not None
    losses = {(entry["step"], entry["kind"]): entry["loss"] for entry in ledger.history(run) if "loss" in entry}
    last = max(
        (ledger.folder(run) / "checkpoints").glob("[0-9]*"),
        key=lambda path: int(path.name),
    )
    files = {path.name: path.read_bytes() for path in last.glob("*.safetensors")}
    claims = {key: value for key, value in result.items() if key not in ("circumstances", "attempt", "sha256")}
    return Done(claims, losses, files)


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The tiny run that nothing ever happened to."""
    runs = tmp_path_factory.mktemp("unbroken") / "runs"
    train(load(words(runs)))
    return left(runs)


def same(found: Done, wanted: Done) -> None:
    assert found.losses == wanted.losses
    assert found.files == wanted.files
    assert found.result == wanted.result


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Train in this process, in `tmp_path/runs`."""

    def trained(name: str = "decoder", runs: Path | None = None, **changes: Any) -> dict[str, Any]:
        return train(load(words(runs or tmp_path / "runs", name, **changes)))

    return trained


class Child:
    """A forked child that does one deed, and ends with its code."""

    def __init__(self, deed: Callable[[], int | None]):
        self.pid = os.fork()
        self.code: int | None = None
        if self.pid == 0:
            code = 99
            try:
                silent = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                code = deed() or 0
            finally:
                os._exit(code)

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, seconds: float = 120) -> int:
        """The exit code, negative for the signal that it died of."""
        end = time.monotonic() + seconds
        while self.poll() is None:
            assert time.monotonic() < end, "the child does not end"
            time.sleep(0.005)
        assert self.code is not None
        return self.code


def training(told: list[str], prepare: Callable[[], None] = lambda: None) -> Child:
    """A child that runs `scaling train`; `prepare` runs in it first."""

    def deed() -> int:
        prepare()
        return cli.main(["train", *told])

    return Child(deed)


@pytest.fixture
def fork() -> Iterator[Callable[..., Child]]:
    """`fork(words, prepare)` starts `scaling train` in a child that does not outlive the test."""
    started: list[Child] = []

    def start(*given: Any) -> Child:
        started.append(training(*given))
        return started[-1]

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
            child.wait()
