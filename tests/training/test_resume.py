"""A run that was killed, at whatever moment and however often, ends as the run that never was: to the bit."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scaling.ledger import Attempt, Ledger
from scaling.ledger.document import entries
from scaling.training import module
from scaling.training.callbacks import Save
from scaling.training.checkpoints import FolderIO
from scaling.training.evaluation import Evaluation
from tests.training.conftest import left, same, words


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(calls: int, function: Callable) -> Callable:
    """The function, with death after so many calls of it."""
    count = 0

    def fatal(*given, **named):
        nonlocal count
        count += 1
        found = function(*given, **named)
        if count == calls:
            die()
        return found

    return fatal


def in_save() -> None:
    FolderIO.save_checkpoint = after(2, FolderIO.save_checkpoint)


def in_publication_of_a_checkpoint() -> None:
    """At the second checkpoint, whose files are written and whose folder has its temporary name."""
    replace, count = os.replace, 0

    def fatal(source, target):
        nonlocal count
        if Path(target).parent.name == "checkpoints":
            count += 1
            if count == 2:
                die()
        replace(source, target)

    os.replace = fatal


def in_evaluation() -> None:
    Evaluation.measured = after(2, Evaluation.measured)


def before_the_result() -> None:
    Attempt.finish = lambda self, outcome, result: die()  # type: ignore[method-assign, return-value]


def after_the_result() -> None:
    """Before the attempt's end is logged and its lock is removed."""
    link = os.link

    def fatal(source, target):
        link(source, target)
        if Path(target).name == "result.json":
            die()

    os.link = fatal


MOMENTS = [in_save, in_publication_of_a_checkpoint, in_evaluation, before_the_result, after_the_result]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_a_kill_at_a_chosen_moment(moment, tmp_path, fork, unbroken):
    told = words(tmp_path / "runs")
    assert fork(told, moment).wait() == -signal.SIGKILL
    assert fork(told).wait() == 0
    same(left(tmp_path / "runs"), unbroken)


def test_a_kill_between_two_draws_of_a_performer(tmp_path, fork):
    """Its features are drawn again every three steps; a checkpoint is saved after four."""
    line = "{kind: Performer, features: 8, redraw: 3}"
    changes = {"model__block__mixer": line, "model__position": "NoPosition", "model.block.mixer.dropout": "absent"}
    whole, killed = (words(tmp_path / name, **changes) for name in ("whole", "killed"))
    assert fork(whole).wait() == 0
    assert fork(killed, in_evaluation).wait() == -signal.SIGKILL
    assert fork(killed).wait() == 0
    same(left(tmp_path / "killed"), left(tmp_path / "whole"))


def at_file_operation(number: int) -> Callable[[], None]:
    """Death at a file operation, counted from the start of the second save."""

    def prepare() -> None:
        seen, saves, before = [0], [0], Save.save

        def count(event: str, _: object) -> None:
            if saves[0] == 2 and event.startswith(("open", "os.", "shutil.")):
                seen[0] += 1
                if seen[0] == number:
                    die()

        def counted(self, trainer, step):
            saves[0] += 1
            before(self, trainer, step)
            saves[0] += saves[0] == 2

        Save.save = counted
        sys.addaudithook(count)

    return prepare


@pytest.mark.parametrize(
    "number", [5, 12, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 15) if n not in (5, 12))]
)
def test_a_kill_at_a_file_operation_of_a_save(number, tmp_path, fork, unbroken):
    told = words(tmp_path / "runs")
    assert fork(told, at_file_operation(number)).wait() == -signal.SIGKILL
    assert fork(told).wait() == 0
    same(left(tmp_path / "runs"), unbroken)


def attempts(store: Path) -> int:
    """How many attempts the logs of all runs have."""
    return sum(path.read_bytes().count(b'{"kind":"start"') for path in store.glob("*/log.jsonl"))


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 195))])
def test_a_kill_at_a_random_moment(seed, tmp_path, fork, unbroken):
    told, log = words(tmp_path / "runs"), tmp_path / "runs" / "store"
    child = fork(told)
    while child.poll() is None and not attempts(log):
        time.sleep(0.002)
    time.sleep(random.Random(seed).uniform(0, 0.4))
    child.poll()
    child.kill()
    child.wait()
    assert fork(told).wait() == 0
    same(left(tmp_path / "runs"), unbroken)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_five_kills_in_one_run(seed, tmp_path, fork, unbroken):
    """A death in each of five attempts, then the end: every step of the stored history stands once."""
    draw = random.Random(seed)
    told = words(tmp_path / "runs")
    for _ in range(5):
        step = draw.randint(1, 4)

        def at_step(step: int = step) -> None:
            Save.on_train_batch_end = after(step, Save.on_train_batch_end)

        assert fork(told, at_step).wait() in (-signal.SIGKILL, 0)
    assert fork(told).wait() == 0
    same(left(tmp_path / "runs"), unbroken)
    ledger = Ledger.open(tmp_path / "runs")
    (run,) = ledger.runs()
    steps = [entry["step"] for entry in ledger.history(run) if entry.get("kind") == "train"]
    assert steps == list(range(1, 13))
    reached = 0
    for entry in entries(ledger.folder(run) / "log.jsonl"):
        if entry["kind"] == "resume":
            assert reached - (entry["from_step"] or 0) <= 4, "more than one interval between checkpoints was done again"
        reached = max(reached, entry.get("step", 0))


SIGNALS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 138}


@pytest.mark.parametrize(
    "step", [6, *(pytest.param(step, marks=pytest.mark.slow) for step in range(1, 12) if step != 6)]
)
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_saves_and_leaves_with_its_code(number, step, tmp_path, fork, unbroken):
    told = words(tmp_path / "runs")

    def at_that_step() -> None:
        before = module.FamilyModule.training_step

        def heard(self, batch, batch_idx):
            if batch_idx == step - 1:
                os.kill(os.getpid(), number)
            return before(self, batch, batch_idx)

        module.FamilyModule.training_step = heard

    assert fork(told, at_that_step).wait() == SIGNALS[number]
    ledger = Ledger.open(tmp_path / "runs")
    (run,) = ledger.runs()
    assert ledger.checkpoint(run, step) is not None
    (attempt,) = ledger.attempts(run)
    assert attempt.end is not None
    assert attempt.end["outcome"] == "stopped"
    assert fork(told).wait() == 0
    same(left(tmp_path / "runs"), unbroken)


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_branch_is_the_whole_run(ranks, tmp_path, run):
    """A trunk and a run that branches from it give what the run gives alone."""
    from scaling.ledger import run_id
    from scaling.training.experiment import assemble
    from scaling.training.run import train_run
    from tests.training.conftest import load

    changes = {"schedule__kind": "WSD", "schedule__warmup": 2, "schedule__decay": 0.5, "trainer__devices": ranks}
    run(runs=tmp_path / "alone", **changes)
    experiment = assemble(load(words(tmp_path / "branched", **changes)))
    found = experiment.trunk()
    assert found is not None
    trunk, step = found
    assert step == 6
    ledger = Ledger.create(tmp_path / "branched")
    ledger.save_plan(
        "study", {"runs": [{"run": ledger.add(experiment.spec), "trunk": {"run": run_id(trunk.spec), "step": step}}]}
    )
    assert train_run(trunk, ledger) is not None
    result = train_run(experiment, ledger)
    assert result is not None
    assert result["circumstances"]["from_step"] == step
    alone, branched = left(tmp_path / "alone"), left(tmp_path / "branched")
    assert branched.files == alone.files
    assert branched.result == alone.result
    assert branched.losses.items() <= alone.losses.items()
    assert min(step for step, _ in branched.losses) == 7
