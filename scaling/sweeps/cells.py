"""Cells: the runs of a sweep, one after the other, by the methods that W&B has, and the check before the first of them.

A grid is the product of the parameters' values, parameters in the order of their names. A random cell draws a uniform
place for each parameter and takes that quantile; here the places follow from the sweep, the cell's number and the
parameter's name alone, so that a sweep that was killed goes on with the same cells. Bayesian search is Optuna's
tree-structured Parzen estimator over the same places (Bergstra et al. 2011, Algorithms for hyper-parameter
optimization); W&B fits a Gaussian process, whose draws are not repeatable.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.base.errors import ScalingError, disk, imported, plural, refuse
from scaling.base.json_lines import flat
from scaling.base.numbers import is_number
from scaling.base.printing import short
from scaling.config.compose import load
from scaling.config.document import Config, print_remarks
from scaling.ledger.document import Log, entries
from scaling.ledger.identity import assignments
from scaling.sweeps.distribution import Distribution
from scaling.sweeps.file import Cell, Sweep, related
from scaling.training.point import COLUMNS, plain
from scaling.training.ranks import rank_count

if TYPE_CHECKING:
    from scaling.training.experiment import Experiment

OWN = ("run", "name", "status", "held_out", "loss", "trunk")  # columns of points.csv
SAMPLE = 64  # cells from which the cost of a larger sweep is estimated


def cell(sweep: Sweep, number: int) -> Cell:
    """The cell of a number: of a grid with the last parameter varying fastest, else drawn at random. No axis is written
    out, it may be as long as memory.
    """
    if sweep.method != "grid":
        return {
            key: distribution.at(random.Random(f"{sweep.fingerprint}:{number}:{key}").random())
            for key, distribution in sweep.parameters.items()
        }
    drawn: Cell = {}
    for key, distribution in reversed(list(sweep.parameters.items())):
        values = distribution.grid or ()
        number, index = divmod(number, len(values))
        drawn[key] = values[index]
    return dict(reversed(drawn.items()))


def listed(sweep: Sweep) -> Iterator[Cell]:
    """The cells of a grid or of random, which follow from the sweep alone."""
    numbers = itertools.count() if sweep.size is None else range(sweep.size)
    return (cell(sweep, number) for number in numbers)


def name(cell: Mapping[str, Any]) -> str:
    """A run's name within its sweep: what sets it apart."""
    return " ".join(assignments(dict(sorted(cell.items()))))


def point_columns(cell: Cell, point: Mapping[str, Any]) -> dict[str, Any]:
    """A run's point, after a column for each swept key; one that every point has already, like `seed`, is that. A
    mapping has a column for each of its keys.
    """
    swept = {
        key: json.dumps(value) if isinstance(value, list | tuple) else plain(value)
        for key, value in sorted(flat(cell).items())
        if key not in OWN and key not in COLUMNS
    }
    return {**swept, **point}


def _place(trial: Any, key: str, distribution: Distribution) -> float:
    """The place that a trial of Optuna's takes: values that are no rising numbers are categories to it."""
    values = distribution.grid
    if values is None or (all(map(is_number, values)) and list(values) == sorted(values)):
        return trial.suggest_float(key, 0.0, 1.0)
    return (trial.suggest_categorical(key, range(len(values))) + 0.5) / len(values)


class Bayes:
    """Asks Optuna for cells and writes each down: a sweep that was killed draws the same ones again, and then goes on.

    A run that was pruned counts with the value it had reached; one that diverged or failed is worse than all.
    """

    def __init__(self, sweep: Sweep, drawn: Path):
        with sweep.config.placing():
            optuna = imported("optuna", "bayes needs Optuna here", "install scaling[bayes]", key="method")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.sweep, self._optuna = sweep, optuna
        self._study, self._trials = optuna.create_study(), list[Any]()
        before = [entry["parameters"] for entry in entries(drawn)]
        for parameters in before:
            self._study.enqueue_trial(parameters)
        self._before = len(before)
        with disk("cannot write what was drawn"):
            drawn.parent.mkdir(parents=True, exist_ok=True)
        self._log = Log(drawn)

    def cells(self) -> Iterator[Cell]:
        while len(self._trials) != self.sweep.cap:
            # Each draw has its own seed, after a stop too. Runs that are under way count as bad, or all would be alike.
            seed = (int(self.sweep.fingerprint[:8], 16) + len(self._trials)) % 2**32
            self._study.sampler = self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            trial = self._study.ask()
            drawn = {key: each.at(_place(trial, key, each)) for key, each in self.sweep.parameters.items()}
            self._trials.append(trial)
            if len(self._trials) > self._before:
                self._log.write({"kind": "drawn", "parameters": trial.params})
            yield drawn

    def hear(self, number: int, outcome: str, value: float | None) -> None:
        """Take the outcome of the cell that was drawn as `number`; `value` is the metric, lower better."""
        states = self._optuna.trial.TrialState
        if outcome == "diverged" or (value is not None and math.isnan(value)):
            value = math.inf
        self._study.tell(self._trials[number], value, state=states.FAIL if value is None else states.COMPLETE)


# The check before the first run


def described(sweep: Sweep, outlook: dict[str, Any]) -> str:
    """The parameters that the sweep varies, and its cost, in lines."""
    count, smallest, largest = outlook["runs"], outlook["smallest"], outlook["largest"]
    runs, each = ("runs without end", " for each") if count is None else (plural(count, "run"), " in all")
    about = "" if outlook["exact"] else "about "
    sizes = f"{smallest:,}" + ("" if smallest == largest else f" to {largest:,}")
    text = (
        f"{sweep.name}: {sweep.method}, {runs} over {', '.join(sweep.parameters)}\n{sizes} parameters without "
        f"embeddings; {about}{short(outlook['tokens'])} tokens, {outlook['flops']:.3g} FLOPs{each}"
    )
    if sweep.hyperband is not None:
        brackets = ", ".join(map(str, sweep.hyperband.brackets[:4]))
        text += f"\nhyperband: after evaluation {brackets}, …, the best 1/{sweep.hyperband.eta:g} go on"
    return text


def resolved(words: Sequence[str], overlays: Sequence[str] = ()) -> Config:
    """The config that `scaling train WORDS` would train."""
    if any(word.startswith("study=") for word in words):
        from scaling.studies.scheduler import planned

        what = "the plan sets what a run of a study is"
        refuse(overlays, what, "leave it out", key="--overlay", value=overlays[0] if overlays else None)
        return planned(words)
    names = [word for word in words if "=" not in word]
    refuse(len(names) > 1, "a run has one name", key="command", value=" ".join(names))
    return load(names[0] if names else None, [word for word in words if "=" in word], overlays=overlays)


def experiment(words: Sequence[str], overlays: Sequence[str] = ()) -> Experiment:
    """The experiment that `scaling train WORDS` would train."""
    from scaling.training.experiment import assemble  # imports torch

    return assemble(resolved(words, overlays))


def check(sweep: Sweep, words: Sequence[str] = (), local: bool = False) -> tuple[dict[str, Any], Config]:
    """Refuse what would stop a run of the sweep, and estimate what the sweep will take, for one run where their number
    is not known (docs/json.md); with the config of one of its runs. `words` hold for every run; `local` is without a
    server.
    """
    # The first values of all parameters, each other value of one at a time, and an even part of the cells.
    first = {key: distribution.tried[0] for key, distribution in sweep.parameters.items()}
    values = [_tried(sweep, "", first, words)]
    for key, distribution in sweep.parameters.items():
        values += [_tried(sweep, key, {**first, key: value}, words) for value in distribution.tried[1:]]
    runs = sweep.size
    step = max(1, -(-(runs or 1) // SAMPLE))
    seen = [_tried(sweep, "", cell(sweep, number), words) for number in range(0, runs or SAMPLE, step)]
    if sweep.hyperband is not None and sweep.metric is not None:
        # Hyperband is reported to by the process that trains, so a run is one process.
        what, fix = "without a server it can stop only runs on one device", "set trainer.devices=1"
        sweep.config.refuse(local and max(rank_count(one.config) for one in values) > 1, "early_terminate", what, fix)
        # It counts how often the metric is logged, and a short run may pay for fewer evaluations than it asks for.
        points, bracket = min(len(one.evaluated) for one in seen), sweep.hyperband.brackets[0]
        is_short = sweep.metric.name.startswith("evaluate/") and points <= bracket
        what = f"the first bracket is the evaluation after {bracket}, and a run has {points}"
        fix = "raise evaluate.points, or set evaluate.windows, which short runs otherwise save on"
        sweep.config.refuse(is_short, "early_terminate", what, fix)
    print_remarks(one.config for one in (*values, *seen))
    share = (1 if runs is None else runs) / len(seen)
    outlook = {
        "runs": runs,
        "tokens": share * sum(one.tokens(one.steps) for one in seen),
        "flops": share * sum(one.tokens(one.steps) * one.cost.flops_train_per_token for one in seen),
        "smallest": min(one.cost.parameters_non_embedding for one in seen),
        "largest": max(one.cost.parameters_non_embedding for one in seen),
        "exact": runs == len(seen),
    }
    return outlook, values[0].config


def _tried(sweep: Sweep, key: str, cell: Cell, words: Sequence[str]) -> Experiment:
    """The experiment of a cell; its mistake has the line of the sweep's file that it comes from: that of the parameter
    which the config's key is about, of the parameter `key`, or of the command.
    """
    try:
        return experiment([*sweep.overrides(cell), *words])
    except ScalingError as error:
        named = next((name for name in cell if related(name, error.key or "")), key)
        place = sweep.config.error(f"parameters.{named}" if named else "command", "")
        error.file, error.line = place.file, place.line
        raise
