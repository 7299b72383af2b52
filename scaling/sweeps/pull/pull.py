"""Pull: list what W&B has, fetch what the copy lacks, reconcile, and write what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from scaling.errors import ScalingError
from scaling.studies.question import Question
from scaling.sweeps import file
from scaling.sweeps.pull import offline, online
from scaling.sweeps.pull.copy import Copy
from scaling.sweeps.pull.history_check import Fetched
from scaling.sweeps.pull.reconcile import Reconciled, reconciled
from scaling.sweeps.pull.wandb_run import WandbRun, cell, point
from scaling.sweeps.table import name as named
from scaling.sweeps.table import ordered, row

if TYPE_CHECKING:
    from scaling.studies.plan import Plan

MISSING = "missing"


class Source(Protocol):
    """Where runs come from: a server, or the files of one's client."""

    def listed(self) -> list[WandbRun]: ...

    def sweeps(self, names: Collection[str]) -> Mapping[str, Mapping[str, Any]]: ...

    def histories(self, runs: list[WandbRun]) -> Iterator[tuple[WandbRun, Fetched]]: ...


def pull(
    name: str,
    to: str | Path | None,
    runs: str | Path,
    plan: Plan | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Bring the runs of a project, of a sweep, or under a folder into a ledger, and write their points.csv; with a plan
    they are those of its study. The ledger is `to`, or a folder of its own in the folder `runs`.

    Return the document of `scaling pull --json`. A pull that is stopped at any moment loses nothing: the next one
    continues.
    """
    source: Source
    if Path(name).exists():
        source, under = offline.Offline(Path(name)), Path(name).resolve().name
    else:
        place = online.find(name)
        source, under = online.Online(place), str(place).replace("/", "-")
    copy = Copy(Path(to or Path(runs, "pulled", under)))
    shown = source.listed()
    found = reconciled(shown)
    numbers = {path: number for run in found for path, number in copy.numbers(run).items()}
    ours = [run for every in found for run in every.attempts]
    lacking = [run for run in ours if copy.wants(run)]
    for done, (run, history) in enumerate(source.histories(lacking), start=1):
        copy.enter(run, numbers[run.path], history)
        if done == len(lacking) or done % 50 == 0:
            tell(f"{done} of {len(lacking)} histories")
    for run in found:
        copy.conclude(run)
    trees = source.sweeps({run.sweep for run in ours if run.sweep})
    sweeps = {name: sweep for name, tree in trees.items() if (sweep := _sweep(name, tree)) is not None}
    for sweep in sweeps.values():
        copy.save_plan(sweep.name, _plan(found, sweep))
    running = sum(run.outcome is None for run in ours)
    missing = {run.path: list(copy.copied[run.path].missing) for run in ours if run.path in copy.copied}
    missing = {path: reasons for path, reasons in missing.items() if reasons}
    outcomes = Counter(MISSING if run.stands is None else str(run.stands.outcome) for run in found if not run.trunk)
    return {
        "folder": str(copy.ledger.root),
        "points": str(_write_points(copy, found, sweeps, plan, name)),
        "complete": not missing,
        "wandb_runs": len(shown),
        "fetched": len(lacking),
        "known": len(ours) - len(lacking) - running,
        "running": running,
        "foreign": len(shown) - len(ours),
        "runs": dict(outcomes),
        "missing": missing,
        "differing": [reasons for run in found for reasons in run.differing],
    }


def _write_points(
    copy: Copy, found: Sequence[Reconciled], sweeps: Mapping[str, file.Sweep], plan: Plan | None, name: str
) -> Path:
    """points.csv: a row a run, as a study or a sweep writes it; trunks are parts of their branches' runs."""
    from scaling.studies.findings import rows, write_points  # takes seconds to import, and mistakes come first
    from scaling.studies.record import enter

    table = []
    for run in found:
        if not run.trunk:
            ended = copy.ledger.result(run.run) or {"outcome": MISSING, "loss": None}
            shown = run.attempts[0]
            sweep = sweeps.get(shown.sweep or "")
            drawn = {} if sweep is None else cell(shown, sweep.parameters)
            table.append(row(run.run, _named(shown, sweep), ended["outcome"], ended["loss"], drawn, point(shown)))
    if plan is not None:
        enter(copy.ledger, plan.question.name, plan)
        table = rows(copy.ledger, plan)
    if not table:
        raise ScalingError("none of its runs are ours", key="PROJECT", value=name)
    path = copy.ledger.root / "points.csv"
    write_points(ordered(table) if plan is None else table, path)
    return path


def _sweep(name: str, tree: Mapping[str, Any]) -> file.Sweep | None:
    """A sweep that the server has; None where its command is not ours."""
    try:
        return file.of(name, dict(tree))
    except ScalingError:
        return None


def _named(shown: WandbRun, sweep: file.Sweep | None) -> str:
    """What sets it apart in its sweep, as `--local` names it; else what W&B shows it under."""
    drawn = {} if sweep is None else cell(shown, sweep.parameters)
    whole = sweep is not None and len(drawn) == len(sweep.parameters)
    return named(drawn) if whole else shown.name


def _plan(reconciled_runs: Sequence[Reconciled], sweep: file.Sweep) -> dict[str, Any]:
    """The sweep as a study: for each run the words that it was trained with."""
    base = next((word for word in sweep.words if "=" not in word), "")
    words = [word for word in sweep.words if "=" in word]
    question = Question(name=sweep.name, question="", base=base, set={}, grid=[{"sweep": [sweep.name]}])
    runs = []
    for run in reconciled_runs:
        shown = next((shown for shown in run.attempts if shown.sweep == sweep.name), None)
        if shown is not None:
            about, drawn = point(shown), cell(shown, sweep.parameters)
            overrides = [*words, *(f"{key}={value}" for key, value in drawn.items())]
            entry = {"overrides": overrides, "held_out": False, "steps": about["S"], "flops": about["C"], "trunk": None}
            runs.append({"run": run.run, "name": _named(shown, sweep), **entry})
    return {"study": asdict(question), "trunks": [], "runs": runs}
