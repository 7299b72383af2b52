"""Real runs of a tiny model, in this process or in a child forked from it: Lightning is imported once."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lightning.pytorch import Callback

import scaling
from scaling.config import compose as config
from scaling.interop.run import read
from scaling.ledger import Ledger
from scaling.training.experiment import Experiment, assemble
from scaling.verbs import command_line as cli

TINY = dict(
    word.split("=")
    for word in (
        *("size=tiny", "size.width=8", "size.layers=1", "size.vocabulary=null", "size.length=16", "data=synthetic"),
        *("data.symbols=8", "data.validation=512", "trainer.max_steps=12", "train.batch=4", "train.checkpoint_every=4"),
        *("evaluate.points=2", "schedule.warmup=2", "log.every=1", "log.wandb=disabled"),
        "model.block.mixer.dropout=0.1",
    )
)
STILL = {"model.block.mixer.dropout": 0}
LONG = {"data.validation": 140_000, "evaluate.windows": "null"}  # an evaluation of three batches
# A rate that soon makes a run worse again.
WORSE = {"trainer.max_steps": 40, "train.patience": 2, "evaluate.points": 20, "optimizer.lr": 0.3}
# Pairs in the place of texts: batches of unequal numbers of targets.
PAIRS: dict[str, Any] = {"data": "synthetic_pairs", "data.symbols": "absent", "objective": "Sequence"}
PAIRS |= {"size.length": 32, "data.validation": 64, "data.pairs": 500}


def words(runs: Path | str, name: str = "decoder", /, **changes: Any) -> list[str]:
    """The words of a command line: the tiny run, with changes (`trainer__max_steps=20` is `trainer.max_steps=20`)."""
    changed = {key.replace("__", "."): str(value) for key, value in changes.items()}
    settings = {**TINY, **changed, "runs": str(runs)}
    if "schedule.kind" in changed and "schedule.warmup" not in changed:
        settings.pop("schedule.warmup")
    return [name, *(f"{key}={value}" for key, value in settings.items() if value != "absent")]


def load(line: list[str]) -> config.Config:
    return config.load(line[0], line[1:])


def experiment(runs: Path | str = "/nowhere/runs", name: str = "decoder", /, **changes: Any) -> Experiment:
    return assemble(load(words(runs, name, **changes)))


def train(line: list[str], *callbacks: Callback, **options: Any) -> dict[str, Any]:
    """The result of `scaling.train`."""
    return dict(scaling.train(*line, progress=False, callbacks=callbacks, **options).result.items())


class Done(NamedTuple):
    """What has to be equal to the bit: result, losses by step and kind, the last checkpoint, the result's weights."""

    result: dict[str, Any]
    losses: dict[tuple[int, str], float]
    files: dict[str, bytes]
    weights: dict[str, bytes]


def left(runs: Path, run: str | None = None) -> Done:
    """What a run left behind: the only one that has a result, unless it is named."""
    ledger = Ledger.open(runs)
    if run is None:
        (run,) = (one for one in ledger.runs() if ledger.result(one) is not None)
    result = ledger.result(run)
    losses = {(entry["step"], entry["kind"]): entry["loss"] for entry in ledger.history(run) if "loss" in entry}
    last = max((ledger.folder(run) / "checkpoints").glob("[0-9]*"))
    claims = {key: value for key, value in result.items() if key not in ("circumstances", "attempt", "sha256")}
    files = {path.name: path.read_bytes() for path in last.glob("*.safetensors")}
    return Done(claims, losses, files, {name: bytes(one.numpy()) for name, one in read(run, runs).tensors.items()})


def losses(runs: Path, run: str | None = None) -> list[float]:
    """The training losses of a run by step, of the only one unless it is named."""
    ledger = Ledger.open(runs)
    return [entry["loss"] for entry in ledger.history(run or ledger.runs()[0]) if entry["kind"] == "train"]


def ends(runs: Path) -> list[str | None]:
    """How the attempts at the only run ended."""
    ledger = Ledger.open(runs)
    (run,) = ledger.runs()
    return [None if record.end is None else record.end["outcome"] for record in ledger.attempts(run)]


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The ledger of the tiny run that nothing ever happened to, with a table of its losses, and its id. Tests copy it
    before they change it.
    """
    runs = tmp_path_factory.mktemp("unbroken") / "runs"
    return runs, train(words(runs, log__loggers="[csv]"))["run"]


@pytest.fixture(scope="session")
def unbroken(base: tuple[Path, str]) -> Done:
    return left(base[0])


def at(hook: str, step: int, do: Callable[[], Any]) -> Callback:
    """A callback that does something in a hook of Lightning's, after so many steps."""
    callback = Callback()
    setattr(callback, hook, lambda trainer, *_, **__: do() if trainer.global_step == step else None)
    return callback


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


die = send(signal.SIGKILL)


def at_file_operation(beginning: str, number: int, do: Callable[[], None] = die) -> Callable[[], None]:
    """Prepare a process to do something at a file operation, counted from the first that names the file `beginning`."""

    def prepare() -> None:
        count = 0

        def audit(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal count
            if event.startswith(("open", "os.", "shutil.")) and (count or any(beginning in str(a) for a in arguments)):
                count += 1
                if count == number:
                    do()

        sys.addaudithook(audit)

    return prepare


# A feed-forward layer of one's own that does what the environment says at one of its calls, in this process or on ranks
# of other ones. `x` is what it returns.
SABOTEUR = """
import os, signal, sys, time
from torch import nn

class Saboteur(nn.Module):
    slot = "channel"

    def __init__(self, shape):
        super().__init__()
        self.layer, self.calls = nn.Linear(shape.width, shape.width), 0

    def forward(self, x, context):
        names = {**globals(), "x": self.layer(x)}
        self.calls += x.device.type != "meta"  # where only shapes are counted
        rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or "0"
        if str(self.calls) == os.environ.get("CALL") and rank in os.environ.get("RANKS", "0"):
            self.calls += 1
            exec(os.environ["FAULT"], names)
        return names["x"]
"""


@pytest.fixture
def sabotaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The words of a run whose model has a saboteur: `sabotaged("raise ValueError", call=3)`."""
    (tmp_path / "saboteur.py").write_text(SABOTEUR)

    def line(fault: str = "pass", call: int = 0, ranks: str = "0", name: str = "decoder", **changes: Any) -> list[str]:
        scaling.extend(tmp_path / "saboteur.py")
        for key, value in {"FAULT": fault, "CALL": str(call), "RANKS": ranks}.items():
            monkeypatch.setenv(key, value)
        return words(changes.pop("runs", tmp_path / "runs"), name, **{"model.block.channel": "Saboteur", **changes})

    return line


class Child(ForkProcess):
    """A forked process that gives a command, or trains by `scaling.train` with callbacks, and ends with its code."""

    def __init__(self, line: list[str], prepare: Callable[[], None] | None, callbacks: tuple[Callback, ...], verb: str):
        super().__init__()
        self.line, self.prepare, self.callbacks, self.verb = line, prepare, callbacks, verb
        self.start()

    def run(self) -> None:
        gc.freeze()  # what the tests before have left is of threads that are not here
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            if self.prepare is not None:
                self.prepare()
            code = 0
            if self.callbacks:
                train(self.line, *self.callbacks)
            else:
                code = cli.main([self.verb, *self.line])
        except BaseException as error:
            print(f"scaling: {error}", file=sys.stderr, flush=True)
            code = getattr(error, "code", 99)
        os._exit(code)

    def wait(self, seconds: float = 120) -> int:
        """The exit code, negative for the signal that it died of."""
        self.join(seconds)
        assert self.exitcode is not None, "the child does not end"
        return self.exitcode


@pytest.fixture(scope="session")
def fork() -> Iterator[Callable[..., Child]]:
    """`fork(words, prepare, callbacks)` starts a training in a child that does not outlive the tests."""
    started: list[Child] = []

    def start(line: list[str], prepare: Any = None, callbacks: tuple[Callback, ...] = (), verb: str = "train") -> Child:
        started.append(Child(line, prepare, callbacks, verb))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.join()
