"""Pull: list what W&B has, fetch what the copy lacks, reconcile, and report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from scaling.errors import ScalingError
from scaling.studies.question import Question
from scaling.sweeps import file
from scaling.sweeps.pull.copy import Copy
from scaling.sweeps.pull.history_check import Fetched
from scaling.sweeps.pull.reconcile import Reconciled, reconciled
from scaling.sweeps.pull.wandb_run import WandbRun, cell, point
from scaling.sweeps.table import name as named
from scaling.sweeps.table import ordered, row

MISSING = "missing"


class Source(Protocol):
    """Where runs come from: a server, or the files of one's client."""

    def listed(self) -> list[WandbRun]: ...

    def sweeps(self, names: Collection[str]) -> Mapping[str, Mapping[str, Any]]: ...

    def histories(self, runs: list[WandbRun]) -> Iterator[tuple[WandbRun, Fetched]]: ...


@dataclass(frozen=True)
class Pulled:
    """What W&B showed, and what is not as it should be: sentences for people."""

    shown: int
    fetched: int
    unchanged: int
    running: int
    foreign: int
    runs: tuple[Reconciled, ...]
    sweeps: Mapping[str, file.Sweep]  # those whose command is ours
    missing: Mapping[str, Sequence[str]]  # by W&B run
    differing: Sequence[str]

    @property
    def complete(self) -> bool:
        """Whether every run that has ended is here to its last row."""
        return not self.missing

    def outcomes(self) -> Counter[str]:
        return Counter(MISSING if run.stands is None else str(run.stands.outcome) for run in self.runs if not run.trunk)


def pull(source: Source, copy: Copy, tell: Callable[[int, int], None] = lambda done, all: None) -> Pulled:
    """Bring what a copy lacks. A pull that was stopped at whatever moment has lost nothing: the next one goes on."""
    shown = source.listed()
    reconciled_runs = reconciled(shown)
    numbers = {path: number for run in reconciled_runs for path, number in copy.numbers(run).items()}
    ours = [run for every in reconciled_runs for run in every.attempts]
    lacking = [run for run in ours if copy.wants(run)]
    for done, (run, history) in enumerate(source.histories(lacking), start=1):
        copy.enter(run, numbers[run.path], history)
        tell(done, len(lacking))
    for run in reconciled_runs:
        copy.conclude(run)
    trees = source.sweeps({run.sweep for run in ours if run.sweep})
    sweeps = {name: sweep for name, tree in trees.items() if (sweep := _sweep(name, tree)) is not None}
    for sweep in sweeps.values():
        copy.save_plan(sweep.name, _plan(reconciled_runs, sweep))
    running = sum(run.outcome is None for run in ours)
    return Pulled(
        shown=len(shown),
        fetched=len(lacking),
        unchanged=len(ours) - len(lacking) - running,
        running=running,
        foreign=len(shown) - len(ours),
        runs=tuple(reconciled_runs),
        sweeps=sweeps,
        missing={run.path: copy.copied[run.path].missing for run in ours if _lacks(copy, run)},
        differing=tuple(trees for run in reconciled_runs for trees in run.differing),
    )


def _lacks(copy: Copy, run: WandbRun) -> bool:
    return run.path in copy.copied and bool(copy.copied[run.path].missing)


def _sweep(name: str, tree: Mapping[str, Any]) -> file.Sweep | None:
    """A sweep that the server has; None where its command is not ours."""
    try:
        return file.of(name, dict(tree))
    except ScalingError:
        return None


def points(pulled: Pulled, copy: Copy) -> list[dict[str, Any]]:
    """A row a run, as a study or a sweep writes it; trunks are parts of their branches' runs."""
    rows = []
    for run in pulled.runs:
        if not run.trunk:
            ended = copy.ledger.result(run.run) or {"outcome": MISSING, "loss": None}
            shown = run.attempts[0]
            sweep = pulled.sweeps.get(shown.sweep or "")
            drawn = {} if sweep is None else cell(shown, sweep.parameters)
            rows.append(row(run.run, _named(shown, sweep), ended["outcome"], ended["loss"], drawn, point(shown)))
    return ordered(rows)


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
