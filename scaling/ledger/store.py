"""Store: the ledger's front. It knows every run and study under one folder and hands out attempts at them.

Any number of workers on any number of machines may use the same folder at once; no file in it is shared and mutable.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from scaling.errors import ScalingError, nearest
from scaling.ledger import attempt as attempts
from scaling.ledger import checkpoint, forms, layout, log
from scaling.ledger.attempt import Attempt, Record
from scaling.ledger.checkpoint import Checkpoint
from scaling.ledger.document import Damaged, read, seal, text
from scaling.ledger.exclusive import Means, disk, publish, replace
from scaling.ledger.heartbeat import Lease, Watch
from scaling.ledger.identity import RUN_ID, identity, run_id
from scaling.ledger.machine import Machine, is_gone, this_machine
from scaling.ledger.result import differences, read_result
from scaling.ledger.status import Row, attempt_state, status

logger = logging.getLogger(__name__)

STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
PLAN = re.compile(r"plan-([1-9][0-9]{0,8})\.json")  # of an extended study; the first plan has no number


class Ledger:
    """The runs and studies under one folder."""

    def __init__(self, root: Path, form: layout.Layout, lease: Lease, machine: Machine):
        self.root, self.lease, self.machine = root, lease, machine
        self._means: Means = form.means
        self._watch = Watch(lease)
        self._planned: dict[Path, dict[str, list[tuple[str, int]]]] = {}

    @classmethod
    def open(cls, root: str | Path, lease: Lease | None = None, machine: Machine | None = None) -> Ledger:
        """The ledger at `root`, which must be there."""
        root = Path(root)
        return cls(root, layout.open_layout(root), lease or Lease(), machine or this_machine())

    @classmethod
    def create(cls, root: str | Path, lease: Lease | None = None, machine: Machine | None = None) -> Ledger:
        """The ledger at `root`, made where there is none."""
        root = Path(root)
        return cls(root, layout.create(root), lease or Lease(), machine or this_machine())

    @property
    def means(self) -> Means:
        """How files are made exclusively in this folder."""
        return self._means

    # Runs

    def add(self, spec: Mapping[str, Any]) -> str:
        """The id of the run that `spec` describes; the run is entered where it is new."""
        name = run_id(spec)
        folder = self.folder(name)
        entered = self._entered_spec(name)
        if entered is None:
            with disk("cannot enter a run"):
                folder.mkdir(parents=True, exist_ok=True)
            document = seal({"run": name, "entered": attempts.now(), "spec": spec})
            if not publish(folder / "spec.json", document, self._means) and self._entered_spec(name) is None:
                replace(folder / "spec.json", document)  # torn or flipped: its content is known
        elif identity(entered) != identity(spec):
            raise ScalingError(
                f"run {name} was entered with another spec: {first_difference(entered, spec)}",
                fix="its spec.json was changed by hand, or keys were renamed; use another folder for new runs",
                file=folder / "spec.json",
            )
        return name

    def runs(self) -> list[str]:
        """The ids of all runs."""
        with disk("cannot list the runs"), os.scandir(self.root / "store") as entries:
            return sorted(entry.name for entry in entries if RUN_ID.fullmatch(entry.name))

    def find(self, beginning: str) -> str:
        """The one run whose id begins so."""
        runs = self.runs()
        matches = [run for run in runs if run.startswith(beginning)]
        if len(matches) == 1:
            return matches[0]
        if matches and beginning:
            some = ", ".join(matches[:4])
            raise ScalingError(f"{len(matches)} runs begin so: {some}, …", value=beginning, key="run")
        raise ScalingError("there is no such run", fix=nearest(beginning, runs), value=beginning, key="run")

    def folder(self, run: str) -> Path:
        if not RUN_ID.fullmatch(run):
            raise ScalingError("a run is named by 16 hexadecimal digits", key="run", value=run)
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
        """Every attempt that was claimed, oldest first."""
        return attempts.records(self.folder(run))

    def history(self, run: str) -> list[dict[str, Any]]:
        """What the run's attempts logged, as one history in which each step is once; those that trained it again
        after its result was published are left out.
        """
        result = self.result(run)
        last = math.inf if result is None else result["attempt"]
        return log.merged(record.log for record in self.attempts(run) if record.number <= last)

    def checkpoint(self, run: str, step: int) -> Checkpoint | None:
        """The whole checkpoint of exactly this step by any attempt, None where there is none."""
        folders = [record.folder / "checkpoints" for record in self.attempts(run)]
        return checkpoint.at(folders, step)

    def reached(self, run: str) -> int:
        """The last step that any attempt kept a checkpoint of, whole or not; 0 where there is none."""
        steps = (checkpoint.steps(record.folder / "checkpoints") for record in self.attempts(run))
        return max((step for by_attempt in steps for step in by_attempt), default=0)

    def status(self, run: str) -> Row:
        return status(self.folder(run), self._entered_spec(run), self.machine, self.lease)

    def claim(self, run: str, pinned: Collection[int] = (), again: bool = False) -> Attempt | None:
        """A new attempt at the run, or None where it is done, or someone else works on it.

        Where the newest attempt neither ended nor is known to be dead, this looks at its heartbeat; call again until
        the lease has run out. The attempt keeps the checkpoints of `pinned` steps, and those that studies need.
        With `again` a run that is done is trained again, and its result is compared with the kept one.
        """
        folder = self.folder(run)
        # First the attempts, then the result: an exit is written after its result, so seeing the exit is seeing both.
        newest = next(reversed(self.attempts(run)), None)
        if newest is not None and self._is_worked_on(newest):
            return None
        if newest is not None:
            os.listdir(folder)  # over NFS, opening a folder forgets that a file was once not there
        done = read_result(folder) is not None
        if done and not again:
            return None
        pinned = {*pinned, *self.needed(run)}  # all that can fail is done before the claim, which would be left behind
        claimed = attempts.claim(folder, 1 if newest is None else newest.number + 1, self.machine, self._means)
        if claimed is None:
            return None
        return Attempt(claimed, self.lease, self._means, pinned, anew=done)

    def bury(self, run: str) -> None:
        """End the newest attempt where it is known to be dead, so that a worker who comes new need not watch it first.

        Like `claim`, this looks at the heartbeat of a worker elsewhere; call again until the lease has run out.
        """
        newest = next(reversed(self.attempts(run)), None)
        if newest is not None and newest.exit is None and not self._is_worked_on(newest):
            ending = {"outcome": "stopped", "reason": "no sign of life", "ended": attempts.now()}
            publish(newest.folder / "exit.json", seal(ending), self._means)

    def retry(self, run: str) -> int:
        """Let the failures of a run count no more, so that it is tried again; how many there were."""
        failures = [record for record in self.attempts(run) if record.failed]
        for record in failures:
            publish(record.folder / attempts.RETRY, seal({"asked": attempts.now()}), self._means)
        return len(failures)

    def is_gone(self, record: Record) -> bool:
        """True where the attempt's process ran on this machine and is known to run no more."""
        return is_gone(record.claim, self.machine)

    def is_running(self, record: Record) -> bool:
        """Whether someone seems to work on the attempt; a guess for listings and for what is not to be freed."""
        return attempt_state(record, self.machine, self.lease) == "running"

    def _is_worked_on(self, record: Record) -> bool:
        return record.exit is None and not self.is_gone(record) and not self._watch.is_stale(record.heartbeat)

    def _entered_spec(self, run: str) -> dict[str, Any] | None:
        try:
            document = read(self.folder(run) / "spec.json", partial(forms.of_run, form=forms.SPEC, name=run))
        except Damaged:
            return None
        return None if document is None else document["spec"]

    # Studies

    def studies(self) -> list[str]:
        """The names of all studies that have a plan."""
        plans = (self.root / "studies").glob("*/plan.json")
        return sorted(path.parent.name for path in plans if STUDY.fullmatch(path.parent.name))

    def study_folder(self, study: str) -> Path:
        if not STUDY.fullmatch(study):
            raise ScalingError("a study is named by letters, digits, '.', '_' and '-'", key="study", value=study)
        return self.root / "studies" / study

    def plan(self, study: str, wrong: Callable[[dict[str, Any]], str | None] = forms.of_plan) -> dict[str, Any]:
        """The plan of a study, its newest; `wrong` names the key of another form."""
        path = self.plan_file(study)
        try:
            plan = read(path, wrong)
        except Damaged as damage:
            what = f"the plan is damaged: {str(damage).removeprefix(f'{path}: ')}"
            raise ScalingError(what, fix="delete it and plan again", file=path) from None
        if plan is None:
            raise ScalingError("there is no such study", fix=nearest(study, self.studies()), key="study", value=study)
        name = plan.get("study", {}).get("name", study)
        if name != study:
            fix = f"name the study's folder {name}, or put its own plan back"
            raise ScalingError(f"the plan is of the study {name}", fix=fix, file=path, key="study", value=study)
        return plan

    def plan_file(self, study: str) -> Path:
        """The file of a study's newest plan: `plan.json`, or `plan-2.json` after its first extension."""
        folder = self.study_folder(study)
        numbered = ((match, path) for path in folder.glob("plan-*.json") if (match := PLAN.fullmatch(path.name)))
        newest = max(((int(match[1]), path) for match, path in numbered), default=None)
        return folder / "plan.json" if newest is None else newest[1]

    def extend_plan(self, study: str, plan: Mapping[str, Any], before: Path) -> None:
        """Write the plan that follows the one in the file `before`, exclusively: the earlier plan stays as it is."""
        match = PLAN.fullmatch(before.name)
        after = before.with_name(f"plan-{2 if match is None else int(match[1]) + 1}.json")
        if not publish(after, seal(plan), self._means):
            raise ScalingError(
                "another command extended the study at the same time", file=after, fix="run the same command again"
            )

    def save_plan(self, study: str, plan: Mapping[str, Any]) -> None:
        """Write a study's plan once; a different one under the same name is refused with the difference.

        `plan["runs"]` lists its runs, each a mapping with `run` (the id) and, for a branch, `trunk`: {`run`, `step`},
        the checkpoint that it starts from, which is kept until the branch is done. All else in a plan is the study's.
        """
        for entry in plan["runs"]:
            self.folder(entry["run"])
        folder = self.study_folder(study)
        with disk("cannot write the plan"):
            folder.mkdir(parents=True, exist_ok=True)
        if publish(folder / "plan.json", seal(plan), self._means):
            return
        entered = self.plan(study)
        if text(entered) != text(plan):
            raise ScalingError(
                f"the study {study} has another plan: {first_difference(entered, plan)}",
                fix="give the changed study another name",
                file=folder / "plan.json",
            )

    def runs_of(self, study: str) -> list[str]:
        """The runs of a study, in the order of its plan."""
        return list(dict.fromkeys(entry["run"] for entry in self.plan(study)["runs"]))

    def trunks(self) -> set[str]:
        """The runs that some branch starts from."""
        return {trunk for study in self.studies() for trunk in self._branches(study)}

    def needed(self, trunk: str) -> set[int]:
        """The steps of a trunk that branches without a result still start from."""
        branches = {pair for study in self.studies() for pair in self._branches(study).get(trunk, ())}
        return {step for branch, step in branches if read_result(self.folder(branch)) is None}

    def _branches(self, study: str) -> dict[str, list[tuple[str, int]]]:
        """The (branch, step) pairs of each trunk in a study. A file of a plan is written once, so each is read once.

        A damaged plan is warned of: what only its study needs is trained again, and other studies go on.
        """
        path = self.plan_file(study)
        if path not in self._planned:
            trunks: dict[str, list[tuple[str, int]]] = {}
            try:
                for entry in self.plan(study)["runs"]:
                    if trunk := entry.get("trunk"):
                        trunks.setdefault(trunk["run"], []).append((entry["run"], trunk["step"]))
            except ScalingError as error:
                logger.warning("study %s: %s; checkpoints that only its branches need are not kept", study, error)
                trunks = {}
            self._planned[path] = trunks
        return self._planned[path]


def first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first key in which two documents differ, with both values, for a line that a person reads."""
    key, (left, right) = next(iter(differences(one, other).items()), ("order", ("one", "another")))
    return f"{key} is {left!r} there and {right!r} here"
