"""Plan: a question's grid as runs of the ledger, each with its experiment, and the trunks that they share."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from scaling import schema
from scaling.config import load
from scaling.data.mixture import shares_of
from scaling.errors import ScalingError, plural
from scaling.ledger import Ledger, run_ids
from scaling.ledger.identity import assignments
from scaling.studies.grid import Cell
from scaling.studies.question import Question, compared, flat
from scaling.training.values import VARIED

if TYPE_CHECKING:  # they import torch, which a plan that is read from the ledger does without
    from scaling.studies.assembly import Words
    from scaling.studies.rate import Rate
    from scaling.training.experiment import Experiment

Data = Literal["prepared", "stand_in"]


@dataclass(frozen=True)
class Job:
    """What a worker trains: a run, or a trunk as far as the last branch needs it. `flops` are its own alone.

    `trunk` names the run that it may branch from, and the step.
    """

    run: str
    steps: int
    flops: float
    trunk: tuple[str, int] | None
    assembled: Callable[[], Experiment] = field(repr=False, compare=False)

    @property
    def experiment(self) -> Experiment:
        return self.assembled()


@dataclass(frozen=True)
class Run(Job):
    """One run of a study."""

    name: str
    overrides: tuple[str, ...]
    held_out: bool


@dataclass(frozen=True)
class Plan:
    question: Question
    runs: tuple[Run, ...]
    trunks: Mapping[str, Job]  # by run id

    @property
    def fitted(self) -> list[Experiment]:
        """Those of the runs that the law is fitted to."""
        return [run.experiment for run in self.runs if not run.held_out]

    def ledger(self) -> Ledger:
        """The ledger that its runs belong to, made where there is none."""
        return Ledger.create(self.runs[0].experiment.config["runs"])


def plan(question: Question, overrides: Sequence[str] = (), data: Data = "prepared") -> Plan:
    """Every run of a question, checked; `overrides` hold for all of them.

    Where data are not prepared, what their runs cost can still be counted: a language replaces each of them.
    """
    from scaling.studies.assembly import assembled

    windows: dict[Any, Any] = {}  # of an evaluation, from the files, by the row of a table

    def words_of(cell: Cell) -> Words:
        labels = [f"study={question.name}", *([f"row={cell['row']}"] if "row" in cell else [])]
        log = (f"log.group={question.name}", f"log.name={json.dumps(_name(cell))}", f"log.tags={json.dumps(labels)}")
        words = (*log, *question.overrides(cell), *overrides)
        words, row = words if data == "prepared" else stood_in(words), cell.get("row")
        if row not in windows:
            windows[row] = load(question.base, words)["evaluate.windows"] or "all"
        return compared(question.base, words, windows[row])

    cells = _cells(question, words_of)
    words = [words_of(cell) for cell, _ in cells]
    experiments, families = zip(*assembled(question.base, words))
    trunks = _trunks(experiments, families)
    last: dict[str, tuple[int, Experiment]] = {}
    for experiment, trunk in zip(experiments, trunks):
        if trunk and trunk[1] > last.get(trunk[0], (-1,))[0]:
            last[trunk[0]] = (trunk[1], experiment)
    branches = Counter(trunk[0] for trunk in trunks if trunk)
    # A trunk with one branch saves nothing: that run trains its own stable phase.
    shared = {name: trunk_of(name, experiment) for name, (_, experiment) in last.items() if branches[name] > 1}
    trunks = [trunk if trunk and trunk[0] in shared else None for trunk in trunks]
    names = run_ids([experiment.spec for experiment in experiments])
    runs = [
        Run(
            run=name,
            steps=experiment.steps,
            flops=_flops(experiment, trunk[1] if trunk else 0),
            assembled=partial(_itself, experiment),
            name=_name(cell),
            overrides=own,
            held_out=held_out,
            trunk=trunk,
        )
        for name, (cell, held_out), own, experiment, trunk in zip(names, cells, words, experiments, trunks)
    ]
    _distinct(runs)
    _enough(question, runs)
    return Plan(question, tuple(runs), shared)


def stood_in(words: Words) -> Words:
    """The words with a synthetic language in the place of the data, another one for other data."""
    data = [word for word in words if word.startswith(("data=", "data."))]
    kept = tuple(word for word in words if word not in data)
    return (*kept, "data=synthetic", f"data.seed={zlib.crc32(' '.join(data).encode())}") if data else words


def _cells(question: Question, words_of: Callable[[Cell], Words]) -> list[tuple[Cell, bool]]:
    """Each run's own keys with its budget and its learning rate worked out, and whether it is held out."""
    from scaling.training.experiment import assemble

    assembled_models: dict[Words, Experiment] = {}

    def probe(cell: Cell) -> Experiment:
        """A run of the cell's model; its budget is any."""
        model = {key: value for key, value in cell.items() if key not in VARIED}
        words = (*words_of(model), f"trainer.max_steps={10**12}", "train.epochs=null")
        if words not in assembled_models:
            assembled_models[words] = assemble(load(question.base, words))
        return assembled_models[words]

    cells = list(question.cells(lambda cell: probe(cell).cost))
    if question.rate is None:
        return cells
    rate: Rate = schema.build("rate", question.rate)
    return [({**_rated(rate, probe(cell)), **cell}, held_out) for cell, held_out in cells]


def _rated(rate: Rate, experiment: Experiment) -> Cell:
    """The learning rate to four digits: a person can type it, and another machine's logarithm gives the same run."""
    return {"optimizer.lr": float(f"{rate.lr(experiment.cost, experiment.config['runs']):.4g}")}


def _trunks(experiments: Sequence[Experiment], families: Sequence[Words]) -> list[tuple[str, int] | None]:
    """The trunk that each run may branch from, and the step; runs of a family, a seed and a warmup have one trunk."""
    trunks = [experiment.trunk() for experiment in experiments]
    # A warmup that is a fraction of the run has a number of steps that follows from the run's length.
    keys = [
        (family, experiment.seed, trunk and trunk[0].schedule.warmup)
        for experiment, family, trunk in zip(experiments, families, trunks)
    ]
    first = {key: trunk[0] for key, trunk in zip(reversed(keys), reversed(trunks)) if trunk}
    names = dict(zip(first, run_ids([trunk.spec for trunk in first.values()])))
    return [trunk and (names[key], trunk[1]) for key, trunk in zip(keys, trunks)]


def _itself(experiment: Experiment) -> Experiment:
    return experiment


def trunk_of(name: str, last: Experiment) -> Job:
    """The trunk as far as its last branch needs it."""
    trunk = last.trunk()
    assert trunk is not None
    experiment, _ = trunk
    return Job(name, experiment.steps, _flops(experiment, 0), None, partial(_itself, experiment))


def _flops(experiment: Experiment, first: int) -> float:
    """What there is to compute from a step on."""
    own = experiment.tokens(experiment.steps) - experiment.tokens(first)
    return own * experiment.cost.flops_train_per_token


def _name(cell: Cell) -> str:
    """A run among its study's: `width=16 heads=1 tokens=500k`, `GeLU seed=0`."""
    return " ".join(assignments(flat(cell)))


def _distinct(runs: Sequence[Run]) -> None:
    seen: dict[str, str] = {}
    for run in runs:
        if run.run in seen:
            raise ScalingError(
                f"two cells are one run: {seen[run.run]!r} and {run.name!r}",
                key="grid",
                fix="an axis does not change what is computed, or the held-out runs are in the grid",
            )
        seen[run.run] = run.name


def _enough(question: Question, runs: Sequence[Run]) -> None:
    """Refuse a law that has more parameters than the runs that are left to fit it have sizes, budgets and mixtures."""
    if question.law is None:
        return
    from scaling.laws import named
    from scaling.studies.identifiability import smallest_grid, spelled

    fitted = [run.experiment for run in runs if not run.held_out]
    points = {(one.cost.parameters, one.steps, *shares_of(one.batches.source).values()) for one in fitted}
    law = named(question.law)
    needed = len(law.parameter_names)
    if len(points) <= needed:
        raise ScalingError(
            f"{plural(len(points), 'different point')} to fit {needed} parameters",
            key="grid",
            fix="add sizes or budgets, hold out less, or ask for a law with fewer parameters; "
            f"the smallest grid that identifies this one is {spelled(smallest_grid(law))}",
        )
