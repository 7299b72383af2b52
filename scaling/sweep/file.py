"""A sweep's file: read as `wandb sweep` reads it, and held to W&B's schema and to our configs before anything is sent.

    program: scaling
    command: [scaling, train, decoder, size=tiny, "${args_no_hyphens}"]
    method: grid                       # random, bayes
    metric: {name: evaluate/loss, goal: minimize}
    parameters:
      optimizer.lr: {values: [1.0e-3, 3.0e-3]}

The values are those of PyYAML, which `wandb sweep` and its server use; the lines in errors are those of our own reader.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from scaling.config import Config, document
from scaling.errors import ScalingError, nearest
from scaling.sweep.command import words_of
from scaling.sweep.distribution import Choice, Distribution, distribution
from scaling.sweep.hyperband import Hyperband, hyperband
from scaling.train.mirror import METRICS

METHODS = ("grid", "random", "bayes")
KEYS = (
    "apiVersion",
    "command",
    "controller",
    "description",
    "early_terminate",
    "entity",
    "kind",
    "method",
    "metric",
    "name",
    "parameters",
    "program",
    "project",
    "run_cap",
)
MOST_RUNS = 100_000

Cell = dict[str, Any]


@dataclass(frozen=True)
class Metric:
    """What is compared between runs; `sign` makes lower better."""

    name: str
    sign: int

    @property
    def kind(self) -> str:
        """The kind of log entry that holds it: `train` or `evaluate`."""
        return self.name.partition("/")[0]

    def of(self, history: Sequence[Mapping[str, Any]]) -> list[float]:
        """Its values in a run's history, lower better."""
        kind, _, key = self.name.partition("/")
        return [self.sign * one[key] for one in history if one.get("kind") == kind and one.get(key) is not None]


@dataclass(frozen=True)
class Sweep:
    """A checked sweep. `words` are what its command says to every run; parameters stand in W&B's order, by name."""

    name: str
    method: str
    words: tuple[str, ...]
    parameters: Mapping[str, Distribution]
    metric: Metric | None
    hyperband: Hyperband | None
    cap: int | None
    tree: Mapping[str, Any]  # the file, as W&B gets it
    found: Config  # the file, with the line of every key

    def told(self, cell: Mapping[str, Any]) -> list[str]:
        """The words of one run, as W&B's agent writes them: Python's spelling of each value."""
        return [*self.words, *(f"{key}={value}" for key, value in cell.items())]

    @property
    def size(self) -> int | None:
        """How many runs it has; None where random or bayes goes on until someone stops it."""
        if self.method != "grid":
            return self.cap
        whole = 1
        for one in self.parameters.values():
            whole *= len(one.values or ())
        return whole if self.cap is None else min(whole, self.cap)

    @property
    def fingerprint(self) -> str:
        """What it draws from: its parameters as the file says them."""
        told = json.dumps(self.tree["parameters"], sort_keys=True, default=str)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def error(self, key: str, error: ScalingError) -> ScalingError:
        """A mistake under a key of the file, with its line."""
        place = self.found.error(key, "") if key else error
        return error.at(file=place.file, line=place.line)


def read(path: str | Path) -> Sweep:
    """The sweep in a file; what W&B or we would refuse is refused here, with its line."""
    path = Path(path)
    if not path.exists():
        near = path.parent.glob("*.y*ml") if path.parent.is_dir() else ()
        raise ScalingError("there is no such file", file=path, mend=nearest(path.name, (file.name for file in near)))
    found = document(path)
    tree = yaml.safe_load(path.read_text())
    if not isinstance(tree, dict) or not tree:
        raise ScalingError("expected the keys of a sweep", file=path, mend="write method and parameters")
    return _checked(path.stem, tree, found)


def of(name: str, tree: dict[str, Any]) -> Sweep:
    """The sweep of a tree that was made and not read."""
    return _checked(name, tree, Config(tree, dict.fromkeys(tree, "the sweep")))


def _checked(name: str, tree: dict[str, Any], found: Config) -> Sweep:
    for key in tree:
        if key not in KEYS:
            raise found.error(key, "a sweep has no such key", nearest(key, KEYS))
    for key in ("method", "parameters", "program", "command"):
        if key not in tree:
            raise ScalingError("a sweep needs it", key=key, file=_file(found))
    method = tree["method"]
    if method not in METHODS:
        raise found.error("method", "there is no such method", nearest(str(method), METHODS))
    sweep = Sweep(
        name=name,
        method=method,
        words=_at(found, "command", lambda: words_of(tree["command"], tree["program"])),
        parameters=dict(sorted(_parameters(tree["parameters"], found, "parameters"))),
        metric=_metric(tree, found),
        hyperband=_at(found, "early_terminate", lambda: hyperband(tree["early_terminate"]))
        if "early_terminate" in tree
        else None,
        cap=_cap(tree, found),
        tree=tree,
        found=found,
    )
    _fits(sweep)
    return sweep


def _parameters(tree: Any, found: Config, above: str) -> Iterator[tuple[str, Distribution]]:
    """Each parameter's dotted name and distribution; `parameters` within a parameter nests, as in W&B."""
    if not isinstance(tree, dict) or not tree:
        raise found.error(above, "a sweep needs parameters", "write optimizer.lr: {values: [1.0e-3, 3.0e-3]}")
    for key, line in tree.items():
        place = f"{above}.{key}"
        if not isinstance(line, dict):
            raise found.error(place, "expected what it may be", "write {values: [1, 2]} or {value: 1}")
        if set(line) == {"parameters"}:
            for inner, one in _parameters(line["parameters"], found, f"{place}.parameters"):
                yield f"{key}.{inner}", one
            continue
        yield key, _at(found, place, lambda line=line: distribution(line))


def _at(found: Config, place: str, build: Any) -> Any:
    """What `build` makes; its errors are placed under a key of the file."""
    try:
        return build()
    except ScalingError as error:
        below = place if error.key is None else f"{place}.{error.key}"
        told = found.error(below, error.what, error.mend)
        raise told.at(value=error.value) if error.has_value and not told.has_value else told from None


def _metric(tree: Mapping[str, Any], found: Config) -> Metric | None:
    told = tree.get("metric")
    if told is None:
        if tree["method"] == "bayes" or "early_terminate" in tree:
            raise ScalingError(
                "bayes and early_terminate need it",
                key="metric",
                file=_file(found),
                mend="write metric: {name: evaluate/loss, goal: minimize}",
            )
        return None
    name = told.get("name") if isinstance(told, dict) else None
    if name not in METRICS:
        raise found.error(
            "metric.name" if name is not None else "metric", "nobody logs it", nearest(str(name), METRICS)
        )
    goal = told.get("goal", "minimize")
    if goal not in ("minimize", "maximize"):
        raise found.error("metric.goal", "expected minimize or maximize")
    return Metric(name, 1 if goal == "minimize" else -1)


def _cap(tree: Mapping[str, Any], found: Config) -> int | None:
    cap = tree.get("run_cap")
    if cap is not None and not (isinstance(cap, int) and cap > 0):
        raise found.error("run_cap", "expected a number of runs from 1")
    return cap


def _fits(sweep: Sweep) -> None:
    """Refuse what no run of the sweep could do: a grid over a curve, too many runs, a bracket that is never reached."""
    if sweep.method == "grid":
        for key, one in sweep.parameters.items():
            if one.values is None or (isinstance(one, Choice) and one.chances):
                mend = "write values: […], or method: random"
                raise sweep.found.error(f"parameters.{key}", "a grid takes values, not this distribution", mend)
    if sweep.size is not None and sweep.size > MOST_RUNS:
        raise sweep.found.error(
            "parameters", f"the sweep has {sweep.size:,} runs", f"{MOST_RUNS:,} are the most; thin a parameter"
        )


def _file(found: Config) -> str:
    return next(iter(found.origin.values())).rpartition(":")[0]


def capped(sweep: Sweep, count: int | None) -> Sweep:
    """The sweep with at most `count` runs, here and at the server."""
    if count is None or (sweep.cap is not None and sweep.cap <= count):
        return sweep
    return replace(sweep, cap=count, tree={**sweep.tree, "run_cap": count})
