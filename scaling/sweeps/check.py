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
from scaling.training.ranks import rank_count

if TYPE_CHECKING:
    from scaling.training.experiment import Experiment

SAMPLE = 64  # cells from which the cost of a larger sweep is estimated


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
        from scaling.studies.planned import planned

        return planned(words)
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        raise ScalingError("a run has one name", key="command", value=" ".join(names))
    return load(names[0] if names else None, [word for word in words if "=" in word], overlays=overlays)


def experiment(words: Sequence[str], overlays: Sequence[str] = ()) -> Experiment:
    """The experiment that `scaling train WORDS` would train."""
    from scaling.training.experiment import assemble  # imports torch

    return assemble(resolved(words, overlays))


def check(sweep: Sweep, words: Sequence[str] = (), local: bool = False) -> tuple[Outlook, Config]:
    """Refuse what would stop a run of the sweep, and estimate what the sweep will take; with the config of one of its
    runs. `words` hold for every run; `local` is without a server.
    """

    def tried(key: str, cell: Cell) -> Experiment:
        with _placed(sweep, key, cell):
            return experiment([*sweep.overrides(cell), *words])

    values = [tried(key, cell) for key, cell in search.tried(sweep)]
    first = values[0].config
    if local and sweep.hyperband is not None and rank_count(first) > 1:
        # Hyperband is reported to by the process that trains, so a run is one process.
        raise sweep.config.error("early_terminate", "here it stops runs on one device each", "set trainer.devices=1")
    seen, runs = [tried("", cell) for cell in _sample(sweep)], sweep.size
    # A short run may pay for fewer evaluations than it asks for.
    _check_stops(sweep, min(len(one.evaluated) for one in seen))
    print_remarks(one.config for one in (*values, *seen))
    share = (1 if runs is None else runs) / len(seen)
    outlook = Outlook(
        runs=runs,
        tokens=share * sum(one.tokens(one.steps) for one in seen),
        flops=share * sum(one.tokens(one.steps) * one.cost.flops_train_per_token for one in seen),
        smallest=min(one.cost.parameters_non_embedding for one in seen),
        largest=max(one.cost.parameters_non_embedding for one in seen),
        exact=runs == len(seen),
    )
    return outlook, first


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


def _check_stops(sweep: Sweep, points: int) -> None:
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


def _sample(sweep: Sweep) -> Iterator[Cell]:
    """All cells of a small grid, an even part of a large one's; of the others the first that random would draw."""
    if sweep.method == "grid":
        whole = sweep.size or 1
        return (search.cell(sweep, number) for number in range(0, whole, -(-whole // SAMPLE)))
    return itertools.islice(search.randomly(sweep), min(SAMPLE, sweep.cap or SAMPLE))
