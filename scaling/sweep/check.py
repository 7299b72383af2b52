"""Check: what would stop a run of the sweep is found before the first one, and what the sweep will cost is told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scaling.config import Config, load
from scaling.errors import ScalingError
from scaling.sweep import search
from scaling.sweep.file import Cell, Sweep
from scaling.sweep.study import planned
from scaling.train.experiment import Experiment, assemble
from scaling.train.ranks import wanted

SAMPLE = 64  # cells that the cost of a larger sweep is told from


@dataclass(frozen=True)
class Outlook:
    """What a sweep will take; for one run where nothing says how many there are. `exact`: every run was looked at."""

    runs: int | None
    tokens: float
    flops: float
    smallest: int
    largest: int
    exact: bool


def resolved(words: Sequence[str]) -> Config:
    """The config that `scaling train WORDS` would train."""
    if (config := planned(words)) is not None:
        return config
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        raise ScalingError("a run has one name", key="command", value=" ".join(names))
    return load(names[0] if names else None, [word for word in words if "=" in word])


def experiment(words: Sequence[str]) -> Experiment:
    return assemble(resolved(words))


def check(sweep: Sweep, words: Sequence[str] = ()) -> Outlook:
    """Try every parameter's values in the config, and say what the sweep will take; `words` hold for every run."""
    first = None
    for key, cell in search.tried(sweep):
        found = _tried(sweep, key, cell, words)
        first = first or found
    assert first is not None
    _stoppable(sweep, first)
    return _outlook(sweep, words)


def _tried(sweep: Sweep, key: str, cell: Cell, words: Sequence[str]) -> Experiment:
    try:
        return experiment([*sweep.told(cell), *words])
    except ScalingError as error:
        # The config names its own key, and knows no line: the file's is that of the parameter, or of the command.
        named = next((name for name in cell if _about(error, name)), key or None)
        place = sweep.found.error(f"parameters.{named}" if named else "command", "")
        told = {"value": error.value} if error.has_value else {}
        raise ScalingError(
            error.what, mend=error.mend, code=error.code, file=place.file, line=place.line, key=error.key, **told
        ) from None


def _about(error: ScalingError, name: str) -> bool:
    key = error.key or ""
    return key == name or key.startswith(f"{name}.") or (key != "" and name.startswith(f"{key}."))


def _stoppable(sweep: Sweep, first: Experiment) -> None:
    """Refuse a hyperband that would never stop a run: it counts how often the metric is logged."""
    if sweep.hyperband is None or sweep.metric is None or sweep.metric.kind != "evaluate":
        return
    points, bracket = first.config["evaluate.points"], sweep.hyperband.brackets[0]
    if points <= bracket:
        raise sweep.found.error(
            "early_terminate",
            f"the first bracket is the evaluation after {bracket}, and a run has {points}",
            "raise evaluate.points",
        )


def alone(sweep: Sweep, words: Sequence[str]) -> None:
    """Refuse what `--local` cannot do: hyperband is told by the process that trains, so a run is one process."""
    cell = next(search.tried(sweep))[1]
    if sweep.hyperband is not None and wanted(experiment([*sweep.told(cell), *words]).config) > 1:
        raise sweep.found.error("early_terminate", "here it stops runs on one device each", "set train.devices=1")


def _outlook(sweep: Sweep, words: Sequence[str]) -> Outlook:
    seen = [_tried(sweep, "", cell, words) for cell in _sample(sweep)]
    runs = sweep.size
    share = (1 if runs is None else runs) / len(seen)
    return Outlook(
        runs=runs,
        tokens=share * sum(one.tokens(one.steps) for one in seen),
        flops=share * sum(one.tokens(one.steps) * one.cost.flops_train_per_token for one in seen),
        smallest=min(one.cost.parameters_non_embedding for one in seen),
        largest=max(one.cost.parameters_non_embedding for one in seen),
        exact=runs == len(seen),
    )


def _sample(sweep: Sweep) -> Iterator[Cell]:
    """All cells of a small grid, an even share of a large one's; of the others the first that random would draw."""
    if sweep.method == "grid":
        whole = sweep.size or 1
        return itertools.islice(search.grid(sweep), 0, None, -(-whole // SAMPLE))
    return itertools.islice(search.randomly(sweep), min(SAMPLE, sweep.cap or SAMPLE))
