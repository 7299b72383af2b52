"""Check: what would stop a run of the sweep is found before the first one, and its cost is printed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaling.config import Config, load, print_remarks
from scaling.errors import ScalingError, plural
from scaling.sweeps import search
from scaling.sweeps.file import Cell, Sweep
from scaling.training.values import checked

if TYPE_CHECKING:
    from scaling.training.experiment import Experiment

SAMPLE = 64  # cells from which the cost of a larger sweep is estimated


@dataclass(frozen=True)
class Tried:
    """A cell that a check looks at, the parameter that it varies, if it is one, and the config of its run."""

    key: str
    cell: Cell
    config: Config


@dataclass(frozen=True)
class Looks:
    """What a check looks at: each parameter's values, and an even part of all cells, for the cost."""

    values: Sequence[Tried]
    sample: Sequence[Tried]

    @property
    def first(self) -> Config:
        return self.values[0].config


@dataclass(frozen=True)
class Outlook:
    """What a sweep will take; for one run where their number is not known. `exact`: every run was looked at."""

    runs: int | None
    tokens: float
    flops: float
    smallest: int
    largest: int
    exact: bool

    def described(self, sweep: Sweep) -> str:
        """What the sweep varies and takes, in lines."""
        runs, each = ("runs without end", ", each") if self.runs is None else (plural(self.runs, "run"), "")
        about = "" if self.exact else "about "
        sizes = f"{self.smallest:,}" + ("" if self.smallest == self.largest else f" to {self.largest:,}")
        text = (
            f"{sweep.name}: {sweep.method}, {runs} over {', '.join(sweep.parameters)}\n"
            f"{sizes} parameters without embeddings; {about}{self.tokens:.3g} tokens, {self.flops:.3g} FLOPs{each}"
        )
        if sweep.hyperband is not None:
            brackets = ", ".join(map(str, sweep.hyperband.brackets[:4]))
            text += f"\nhyperband: after evaluation {brackets}, …, the best 1/{sweep.hyperband.eta:g} go on"
        return text


def resolved(words: Sequence[str], overlays: Sequence[str] = ()) -> Config:
    """The config that `scaling train WORDS` would train."""
    if any(word.startswith("study=") for word in words):
        from scaling.sweeps.study import planned

        return planned(words)
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        raise ScalingError("a run has one name", key="command", value=" ".join(names))
    return load(names[0] if names else None, [word for word in words if "=" in word], overlays=overlays)


def experiment(words: Sequence[str]) -> Experiment:
    return _assembled(resolved(words))


def _assembled(config: Config) -> Experiment:
    from scaling.training.experiment import assemble  # imports torch

    return assemble(config)


def read(sweep: Sweep, words: Sequence[str] = ()) -> Looks:
    """The configs of the cells that a check looks at, checked without their data and their models. `words` hold for
    every run.
    """

    def trial(key: str, cell: Cell) -> Tried:
        with _placed(sweep, key, cell):
            return Tried(key, cell, checked(resolved([*sweep.overrides(cell), *words])))

    looks = Looks([trial(*place) for place in search.tried(sweep)], [trial("", cell) for cell in _sample(sweep)])
    _stoppable(sweep, looks.first["evaluate.points"])
    return looks


def check(sweep: Sweep, looks: Looks) -> Outlook:
    """Refuse what would stop a run of the sweep, and estimate what the sweep will take."""
    for trial in looks.values:
        _tried(sweep, trial)
    seen, runs = [_tried(sweep, trial) for trial in looks.sample], sweep.size
    _stoppable(sweep, min(len(trial.evaluated) for trial in seen))  # a short run may pay for fewer than it asks for
    print_remarks(trial.config for trial in (*looks.values, *looks.sample))
    share = (1 if runs is None else runs) / len(seen)
    return Outlook(
        runs=runs,
        tokens=share * sum(trial.tokens(trial.steps) for trial in seen),
        flops=share * sum(trial.tokens(trial.steps) * trial.cost.flops_train_per_token for trial in seen),
        smallest=min(trial.cost.parameters_non_embedding for trial in seen),
        largest=max(trial.cost.parameters_non_embedding for trial in seen),
        exact=runs == len(seen),
    )


def _tried(sweep: Sweep, trial: Tried) -> Experiment:
    with _placed(sweep, trial.key, trial.cell):
        return _assembled(trial.config)


@contextmanager
def _placed(sweep: Sweep, key: str, cell: Cell) -> Iterator[None]:
    """Mistakes of one cell, with the line of the sweep's file that they come from."""
    try:
        yield
    except ScalingError as error:
        # The config names its own key, and knows no line: the file's is that of the parameter, or of the command.
        named = next((name for name in cell if _about(error, name)), key or None)
        place = sweep.config.error(f"parameters.{named}" if named else "command", "")
        extra = {"value": error.value} if error.has_value else {}
        raise ScalingError(
            error.what, fix=error.fix, code=error.code, file=place.file, line=place.line, key=error.key, **extra
        ) from None


def _about(error: ScalingError, name: str) -> bool:
    key = error.key or ""
    return key == name or key.startswith(f"{name}.") or (key != "" and name.startswith(f"{key}."))


def _stoppable(sweep: Sweep, points: int) -> None:
    """Refuse a hyperband that would never stop a run: it counts how often the metric is logged."""
    if sweep.hyperband is None or sweep.metric is None or sweep.metric.kind != "evaluate":
        return
    bracket = sweep.hyperband.brackets[0]
    if points <= bracket:
        raise sweep.config.error(
            "early_terminate",
            f"the first bracket is the evaluation after {bracket}, and a run has {points}",
            "raise evaluate.points, or set evaluate.windows, which short runs otherwise save on",
        )


def alone(sweep: Sweep, first: Config) -> None:
    """Refuse what `--local` cannot do: hyperband is reported to by the process that trains, so a run is one process."""
    from scaling.training.ranks import rank_count

    if sweep.hyperband is not None and rank_count(first) > 1:
        raise sweep.config.error("early_terminate", "here it stops runs on one device each", "set trainer.devices=1")


def _sample(sweep: Sweep) -> Iterator[Cell]:
    """All cells of a small grid, an even part of a large one's; of the others the first that random would draw."""
    if sweep.method == "grid":
        whole = sweep.size or 1
        return (search.cell(sweep, number) for number in range(0, whole, -(-whole // SAMPLE)))
    return itertools.islice(search.randomly(sweep), min(SAMPLE, sweep.cap or SAMPLE))
