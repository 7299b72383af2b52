"""Store: the ledger's front. It knows every run and study under one folder and hands out attempts at them."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scaling.base import atomic
from scaling.base.errors import ScalingError, disk, nearest, refuse
from scaling.ledger import checkpoint
from scaling.ledger.checkpoint import Checkpoint
from scaling.ledger.document import Damaged, Log, differences, entries, publish, read, read_valid, seal, text
from scaling.ledger.identity import RUN_ID, identity, run_id
from scaling.ledger.run import (
    CIRCUMSTANCES,
    INTERRUPTIONS,
    LIFE,
    LOCK,
    LOG,
    RESULT,
    Attempt,
    Lock,
    Record,
    history,
    lock_state,
    now,
    read_result,
    records,
)

State = Literal[
    "waiting", "running", "stale", "finished", "diverged", "pruned", "out_of_memory", "failed", "stopped"
]  # the first three are seen from outside; the others are how the last attempt ended

STATES: dict[str, State] = {"held": "running", "abandoned": "stale", "free": "stopped"}  # of an attempt without an end

TAIL = 64 * 1024  # bytes at the end of a log in which its last entries are
LONGEST = 200  # letters of a reason or a name in a row
STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")  # of tasks, a study's name with an ending
PLAN = re.compile(r"plan-([1-9][0-9]{0,8})\.json")  # of an extended study; the first plan has no number

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """A run as `scaling runs` lists it; None where nothing is known yet. `seen`: last sign of life, Unix time."""

    run: str
    name: str | None
    state: State
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    host: str | None = None
    attempt: int | None = None
    seen: float | None = None
    reason: str | None = None
    score: float | None = None  # of a task, by its metric


def is_ledger(folder: Path) -> bool:
    return (folder / "store").is_dir()


class Ledger:
    """The runs and studies under one folder. Any number of workers on any number of machines may use it at once."""

    def __init__(self, root: str | Path):
        self.root = Path(root)
        self._branches: dict[Path, dict[str, list[tuple[str, int]]]] = {}

    @classmethod
    def open(cls, root: str | Path) -> Ledger:
        """The ledger at `root`, which must be there."""
        with disk("cannot be read"):
            fix = "it is made by the first run; or give its folder"
            refuse(not is_ledger(Path(root)), "there is no ledger here", fix, file=root)
        return cls(root)

    @classmethod
    def create(cls, root: str | Path) -> Ledger:
        """The ledger at `root`, made where there is none."""
        with disk("cannot make the ledger"):
            (Path(root) / "store").mkdir(parents=True, exist_ok=True)
        return cls(root)

    # Runs

    def add(self, spec: Mapping[str, Any]) -> str:
        """The id of the run that `spec` describes; the run is entered where it is new."""
        name = run_id(spec)
        file = self.folder(name) / "spec.json"
        entered = self._entered_spec(name)
        if entered is None:  # or torn or flipped: its content is known
            with disk("cannot enter a run"):
                atomic.write(file, seal({"run": name, "entered": now(), "spec": spec}))
        elif identity(entered) != identity(spec):
            what = f"run {name} was entered with another spec: {_first_difference(entered, spec)}"
            fix = "its spec.json was changed by hand, or keys were renamed; use another folder for new runs"
            raise ScalingError(what, fix=fix, file=file)
        return name

    def runs(self) -> list[str]:
        """The ids of all runs."""
        with disk("cannot list the runs"), os.scandir(self.root / "store") as entries:
            return sorted(entry.name for entry in entries if RUN_ID.fullmatch(entry.name))

    def find(self, beginning: str) -> str:
        """The one run whose id begins so."""
        runs = self.runs()
        matches = [name for name in runs if name.startswith(beginning)]
        several = f"{len(matches)} runs begin so: {', '.join(matches[:4])}, …"
        refuse(len(matches) > 1 and beginning, several, value=beginning, key="run")
        if len(matches) != 1:
            raise ScalingError("there is no such run", fix=nearest(beginning, runs), value=beginning, key="run")
        return matches[0]

    def folder(self, run: str) -> Path:
        refuse(not RUN_ID.fullmatch(run), "a run is named by 16 hexadecimal digits", key="run", value=run)
        return self.root / "store" / run

    def spec(self, run: str) -> dict[str, Any]:
        """The spec that the run was entered with."""
        entered = self._entered_spec(run)
        if entered is None:
            raise ScalingError("the run has no spec that can be read", file=self.folder(run) / "spec.json")
        return entered

    def result(self, run: str) -> dict[str, Any] | None:
        """The kept result, None while there is none."""
        return read_result(self.folder(run))

    def attempts(self, run: str) -> list[Record]:
        """Every attempt that was begun, oldest first."""
        return records(entries(self.folder(run) / LOG, LIFE))

    def history(self, run: str) -> list[dict[str, Any]]:
        """The log of the run's attempts, as one history in which each step is once."""
        return history(self.folder(run))

    def checkpoint(self, run: str, step: int) -> Checkpoint | None:
        """The whole checkpoint of exactly this step, None where there is none."""
        return checkpoint.find(self.folder(run), step)

    def reached(self, run: str) -> int:
        """The last step of which a checkpoint is kept, whole or not; 0 where there is none."""
        return max(checkpoint.steps(self.folder(run)), default=0)

    def status(self, run: str) -> Row:
        """The run in one row, for people; nothing is decided by it."""
        folder, spec, attempts = self.folder(run), self._entered_spec(run) or {}, self.attempts(run)
        result, name, numbers = read_result(folder), _short(spec.get("name")), dict[str, Any]()
        if result is not None:
            numbers |= {"steps": result.get("step"), **(result.get(CIRCUMSTANCES) or {}), **result}
            state, seen = result["outcome"], folder / RESULT
            last = next((one for one in attempts if one.number == result["attempt"]), Record(result["attempt"], {}))
            rival = next((one.number for one in attempts if one.end and one.end.get("differences")), None)
            reason = None if rival is None else f"attempt {rival} found another result"
        elif attempts:
            last, seen = attempts[-1], folder / LOG
            for entry in entries(seen, last=TAIL):
                numbers |= entry if "loss" in entry else {}
            end: Mapping[str, Any] = last.end or {}
            # An end that speaks of a result whose file is gone or damaged leaves the run to be done again.
            ended: State = end["outcome"] if end.get("outcome") in INTERRUPTIONS else "stopped"
            state, reason = ended if end else STATES[lock_state(folder / LOCK)], _short(end.get("reason"))
        else:
            return Row(run, name, "waiting", seen=_touched(folder))
        shown = {key: numbers.get(key) for key in ("step", "steps", "loss", "tokens_per_second", "score")}
        host = _short(last.start.get("host"))
        return Row(run, name, state, host=host, attempt=last.number, seen=_touched(seen), reason=reason, **shown)

    def is_held(self, run: str) -> bool:
        """Whether someone works on the run."""
        return lock_state(self.folder(run) / LOCK) == "held"

    def claim(self, run: str) -> Attempt | None:
        """A new attempt at the run, or None where it is done, or someone else works on it.

        The attempt keeps the checkpoints of steps that studies need.
        """
        folder, pinned = self.folder(run), self.needed(run)
        lock = Lock(folder / LOCK)
        if not lock.take():
            return None
        with ExitStack() as release:
            release.callback(lock.release)
            if read_result(folder) is not None:  # a lock is released after the result is there
                return None
            number = max((record.number for record in self.attempts(run)), default=0) + 1
            attempt = Attempt(folder, number, lock, pinned)
            release.pop_all()
            return attempt

    def retry(self, run: str) -> None:
        """Let the failures of a run count no more, so that it is tried again."""
        if any(record.failed for record in self.attempts(run)):
            Log(self.folder(run) / LOG).write({"kind": "retry", "time": now()})

    def _entered_spec(self, run: str) -> dict[str, Any] | None:
        document = read_valid(self.folder(run) / "spec.json", run=run)
        return None if document is None else document["spec"]

    # Studies

    def studies(self) -> list[str]:
        """The names of all studies that have a plan."""
        plans = (self.root / "studies").glob("*/plan.json")
        return sorted(path.parent.name for path in plans if STUDY.fullmatch(path.parent.name))

    def study_folder(self, study: str) -> Path:
        what, fix = "a study is named by letters, digits, '.', '_' and '-'", "name a file without its folder and ending"
        refuse(not STUDY.fullmatch(study), what, fix, key="study", value=study)
        return self.root / "studies" / study

    def plan(self, study: str) -> dict[str, Any]:
        """The plan of a study, its newest."""
        path = self.plan_file(study)
        try:
            plan = read(path)
            for entry in () if plan is None else plan["runs"]:
                self.folder(entry["run"])
        except (Damaged, KeyError, TypeError):
            raise ScalingError("the plan is damaged", fix="delete it and plan again", file=path) from None
        if plan is None:
            raise ScalingError("there is no such study", fix=nearest(study, self.studies()), key="study", value=study)
        name = plan.get("study", {}).get("name", study)
        fix = f"name the study's folder {name}, or put its own plan back"
        refuse(name != study, f"the plan is of the study {name}", fix, file=path, key="study", value=study)
        return plan

    def plans(self, studies: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """The newest plan of each study, of all or of some. A damaged one is warned of, and the others go on."""
        plans: dict[str, dict[str, Any]] = {}
        for study in self.studies() if studies is None else studies:
            try:
                plans[study] = self.plan(study)
            except ScalingError as error:
                logger.warning("study %s is left out: %s", study, error)
        return plans

    def plan_file(self, study: str) -> Path:
        """The file of a study's newest plan: `plan.json`, or `plan-2.json` after its first extension."""
        folder = self.study_folder(study)
        numbers = [int(match[1]) for path in folder.glob("plan-*.json") if (match := PLAN.fullmatch(path.name))]
        return folder / (f"plan-{max(numbers)}.json" if numbers else "plan.json")

    def save_plan(self, study: str, plan: Mapping[str, Any], before: Path | None = None) -> None:
        """Write a study's plan once, or the one that follows the plan in the file `before`, which stays as it is; a
        different one in its place is refused with the difference.

        `plan["runs"]` lists its runs, each a mapping with `run` (the id) and, for a branch, `trunk`: {`run`, `step`},
        the checkpoint that it starts from, which is kept until the branch is done. All else in a plan is the study's.
        """
        for entry in plan["runs"]:
            self.folder(entry["run"])
        file, fix = self.study_folder(study) / "plan.json", "give the changed study another name"
        if before is not None:
            match = PLAN.fullmatch(before.name)
            file = before.with_name(f"plan-{2 if match is None else int(match[1]) + 1}.json")
            fix = "another command extended the study at the same time: run the same command again"
        if not publish(file, plan) and text(entered := self.plan(study)) != text(plan):
            what = f"the study {study} has another plan: {_first_difference(entered, plan)}"
            raise ScalingError(what, fix=fix, file=file)

    def runs_of(self, study: str) -> list[str]:
        """The runs of a study, in the order of its plan."""
        return list(dict.fromkeys(entry["run"] for entry in self.plan(study)["runs"]))

    def trunks(self) -> set[str]:
        """The runs that some branch starts from."""
        return {trunk for study in self.studies() for trunk in self._branches_of(study)}

    def needed(self, trunk: str) -> set[int]:
        """The steps of a trunk that branches without a result still start from."""
        branches = {pair for study in self.studies() for pair in self._branches_of(study).get(trunk, ())}
        return {step for branch, step in branches if read_result(self.folder(branch)) is None}

    def _branches_of(self, study: str) -> dict[str, list[tuple[str, int]]]:
        """The (branch, step) pairs of each trunk in a study. A file of a plan is written once, so each is read once.

        What only a study with a damaged plan needs is not kept, and is trained again.
        """
        path = self.plan_file(study)
        if path not in self._branches:
            trunks = self._branches[path] = dict[str, list[tuple[str, int]]]()
            for entry in self.plans([study]).get(study, {"runs": ()})["runs"]:
                if trunk := entry.get("trunk"):
                    trunks.setdefault(trunk["run"], []).append((entry["run"], trunk["step"]))
        return self._branches[path]


def printable(text: str) -> str:
    """The text without characters that a terminal obeys."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def _first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first key in which two documents differ, with both values, for a line that a person reads."""
    key, (left, right) = next(iter(differences(one, other).items()), ("order", ("one", "another")))
    return f"{key} is {left!r} there and {right!r} here"


def _short(reason: object) -> str | None:
    """The beginning of a reason, in one line; the log has the whole of it."""
    text = printable(" ".join(str(reason or "")[: 2 * LONGEST].split()))
    return (text if len(text) <= LONGEST else text[: LONGEST - 1] + "…") or None


def _touched(path: Path) -> float | None:
    with suppress(OSError):
        return path.stat().st_mtime
    return None
