"""Pull: list what W&B has, fetch what the copy lacks, reconcile, and say what came of it."""

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

    def histories(self, wanted: list[WandbRun]) -> Iterator[tuple[WandbRun, Fetched]]: ...


@dataclass(frozen=True)
class Pulled:
    """What W&B showed, and what is not as it should be: sentences for people."""

    shown: int
    fetched: int
    known: int
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
        return Counter(MISSING if one.stands is None else str(one.stands.outcome) for one in self.runs if not one.trunk)


def pull(source: Source, copy: Copy, tell: Callable[[int, int], None] = lambda done, all: None) -> Pulled:
    """Bring what a copy lacks. A pull that was stopped at whatever moment has lost nothing: the next one goes on."""
    shown = source.listed()
    reconciled_runs = reconciled(shown)
    numbers = {path: number for one in reconciled_runs for path, number in copy.numbers(one).items()}
    ours = [one for every in reconciled_runs for one in every.attempts]
    wanted = [one for one in ours if copy.wants(one)]
    for done, (one, history) in enumerate(source.histories(wanted), start=1):
        copy.enter(one, numbers[one.path], history)
        tell(done, len(wanted))
    for one in reconciled_runs:
        copy.conclude(one)
    trees = source.sweeps({one.sweep for one in ours if one.sweep})
    sweeps = {name: sweep for name, tree in trees.items() if (sweep := _sweep(name, tree)) is not None}
    for sweep in sweeps.values():
        copy.save_plan(sweep.name, _plan(reconciled_runs, sweep))
    running = sum(one.outcome is None for one in ours)
    return Pulled(
        shown=len(shown),
        fetched=len(wanted),
        known=len(ours) - len(wanted) - running,
        running=running,
        foreign=len(shown) - len(ours),
        runs=tuple(reconciled_runs),
        sweeps=sweeps,
        missing={one.path: copy.known[one.path].missing for one in ours if _lacks(copy, one)},
        differing=tuple(trees for one in reconciled_runs for trees in one.differing),
    )


def _lacks(copy: Copy, one: WandbRun) -> bool:
    return one.path in copy.known and bool(copy.known[one.path].missing)


def _sweep(name: str, tree: Mapping[str, Any]) -> file.Sweep | None:
    """A sweep that the server has; None where its command is not ours."""
    try:
        return file.of(name, dict(tree))
    except ScalingError:
        return None


def points(pulled: Pulled, copy: Copy) -> list[dict[str, Any]]:
    """A row a run, as a study or a sweep writes it; trunks are parts of their branches' runs."""
    rows = []
    for one in pulled.runs:
        if not one.trunk:
            ended = copy.ledger.result(one.run) or {"outcome": MISSING, "loss": None}
            shown = one.attempts[0]
            sweep = pulled.sweeps.get(shown.sweep or "")
            drawn = {} if sweep is None else cell(shown, sweep.parameters)
            rows.append(row(one.run, _named(shown, sweep), ended["outcome"], ended["loss"], drawn, point(shown)))
    return ordered(rows)


def _named(shown: WandbRun, sweep: file.Sweep | None) -> str:
    """What sets it apart in its sweep, as `--local` names it; else what W&B shows it under."""
    drawn = {} if sweep is None else cell(shown, sweep.parameters)
    whole = sweep is not None and len(drawn) == len(sweep.parameters)
    return named(drawn) if whole else shown.name


def _plan(runs_: Sequence[Reconciled], sweep: file.Sweep) -> dict[str, Any]:
    """The sweep as a study: for each run the words that it was trained with."""
    base = next((word for word in sweep.words if "=" not in word), "")
    words = [word for word in sweep.words if "=" in word]
    question = Question(name=sweep.name, question="", base=base, set={}, grid=[{"sweep": [sweep.name]}])
    runs = []
    for one in runs_:
        shown = next((shown for shown in one.attempts if shown.sweep == sweep.name), None)
        if shown is not None:
            about, drawn = point(shown), cell(shown, sweep.parameters)
            overrides = [*words, *(f"{key}={value}" for key, value in drawn.items())]
            entry = {"overrides": overrides, "held_out": False, "steps": about["S"], "flops": about["C"], "trunk": None}
            runs.append({"run": one.run, "name": _named(shown, sweep), **entry})
    return {"study": asdict(question), "trunks": [], "runs": runs}
