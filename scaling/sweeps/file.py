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
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from scaling.base.errors import ScalingError, nearest, refuse, under
from scaling.base.numbers import PositiveInt, Range, is_number
from scaling.config import schema
from scaling.config.document import Config, document
from scaling.config.schema import check_keys
from scaling.config.strict_yaml import read_text
from scaling.sweeps.distribution import Distribution, distribution

ARGUMENTS = ("${args_no_hyphens}", "${args}")
FIX = 'write command: [scaling, train, decoder, "${args_no_hyphens}"]'
# What the agent substitutes for its other words, where a command of ours can hold them.
STANDS_FOR = {"${env}": "/usr/bin/env", "${interpreter}": "python"}
KEYS: dict[str, Any] = {
    "apiVersion": str,
    "command": list[Any],
    "controller": dict[str, Any],
    "description": str,
    "early_terminate": dict[str, Any],
    "entity": str,
    "kind": str,
    "method": Literal["grid", "random", "bayes"],
    "metric": dict[str, Any],
    "name": str,
    "parameters": dict[str, Any],
    "program": str,
    "project": str,
    "run_cap": PositiveInt,
}
METRIC_KEYS: dict[str, Any] = {"name": str, "goal": Literal["minimize", "maximize"], "target": float}
MOST_BRACKETS = 100  # that W&B reckons with
RULE_KEYS: dict[str, Any] = {
    "type": Literal["hyperband"],
    "min_iter": PositiveInt,
    "max_iter": PositiveInt,
    "s": Annotated[int, Range(least=1, most=MOST_BRACKETS)],
    "eta": Annotated[float, Range(above=1, most=1000)],
    "strict": bool,
}
# The keys that a sweep cannot be without, and how each is written.
NEEDED = {
    "method": "write method: grid, random or bayes",
    "parameters": "write parameters: {optimizer.lr: {values: [1.0e-3, 3.0e-3]}}",
    "program": "write program: scaling",
    "command": FIX,
}
MOST_RUNS = 100_000
# The names under which runs log numbers: KIND/KEY.
METRICS = (
    *(f"train/{key}" for key in ("loss", "gradient_norm", "learning_rate", "tokens_per_second", "mfu")),
    *(f"evaluate/{key}" for key in ("loss", "loss_plain", "loss_text", "bits_per_byte", "accuracy")),
    *(f"evaluate/{key}" for key in ("excess", "entropy", "targets", "score")),
)

Cell = dict[str, Any]


@dataclass(frozen=True)
class Hyperband:
    """W&B's rule: at each bracket, only the best 1/η of those that came so far go on. (Li et al. 2018)

        brackets = min_iter η^i, i = 0, 1, …     or     max_iter / η^i, i = 1 … s

    A bracket counts how often the metric was logged, which for the held-out loss is once an evaluation. At a bracket b
    the threshold is the ⌊n/η⌋-th best (counted from 0) of the n values that any run has at b. A running run is stopped
    where its value at the last bracket it reached is worse (`strict`), or where the best of its values so far is.

    W&B's departure from the paper: runs are not given their budgets by bracket; all start alike, and each is looked at
    when it reaches a bracket, with those that were there before.
    """

    brackets: tuple[int, ...]
    eta: float
    strict: bool

    def stops(self, history: Sequence[float], others: Collection[Sequence[float]]) -> bool:
        """Whether the run of this history is stopped now; lower is better, and `others` are all runs but it."""
        reached = [bracket for bracket in self.brackets if bracket < len(history)]
        if not reached:
            return False
        last = reached[-1]
        values = sorted(values_of[last] for values_of in (history, *others) if last < len(values_of))
        threshold = values[int(len(values) / self.eta)]
        return (history[last] if self.strict else min(history)) > threshold


@dataclass(frozen=True)
class Metric:
    """The metric by which runs are compared; `sign` makes lower better."""

    name: str
    sign: int

    def of(self, history: Sequence[Mapping[str, Any]]) -> list[float]:
        """The values of the metric in a run's history, lower better."""
        kind, _, key = self.name.partition("/")
        return [self.sign * entry[key] for entry in history if entry.get("kind") == kind and entry.get(key) is not None]


@dataclass(frozen=True)
class Sweep:
    """A checked sweep. `words` are those of its command for every run; parameters are in W&B's order, by name."""

    name: str
    method: str
    words: tuple[str, ...]
    parameters: Mapping[str, Distribution]
    metric: Metric | None
    hyperband: Hyperband | None
    cap: int | None
    tree: Mapping[str, Any]  # the file, as W&B gets it
    config: Config  # the file, with the line of every key

    def overrides(self, cell: Mapping[str, Any]) -> list[str]:
        """The words of one run, as W&B's agent writes them: Python's spelling of each value."""
        return [*self.words, *(f"{key}={value}" for key, value in cell.items())]

    @property
    def size(self) -> int | None:
        """The number of runs; None where random or bayes goes on until someone stops it."""
        if self.method != "grid":
            return self.cap
        count = math.prod(len(parameter.values or ()) for parameter in self.parameters.values())
        return count if self.cap is None else min(count, self.cap)

    @property
    def fingerprint(self) -> str:
        """A hash of the parameters, as they are in the file."""
        document = json.dumps(self.tree["parameters"], sort_keys=True, default=str)
        return hashlib.sha256(document.encode()).hexdigest()[:16]

    def identity(self, words: Sequence[str]) -> str:
        """A hash of all that changes its runs or its search, with the overrides for every run."""
        overrides = dict(word.removeprefix("--").split("=", 1) for word in words)
        counted = {key: value for key, value in overrides.items() if key != "runs" and not key.startswith("log.")}
        search = {key: self.tree.get(key) for key in ("method", "metric", "parameters", "early_terminate")}
        document = json.dumps([search, self.words, counted], sort_keys=True, default=str)
        return hashlib.sha256(document.encode()).hexdigest()[:16]


def read(path: str | Path) -> Sweep:
    """The sweep in a file; what W&B or we would refuse is refused here, with its line."""
    path = Path(path)
    if not path.exists():
        near = path.parent.glob("*.y*ml") if path.parent.is_dir() else ()
        raise ScalingError("there is no such file", file=path, fix=nearest(path.name, (file.name for file in near)))
    config = document(path)
    try:  # PyYAML refuses a few things that our own reader does not
        tree = yaml.safe_load(read_text(path))
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        why = getattr(error, "problem", None) or " ".join(str(error).split())
        what = f"W&B reads no such {'value' if mark is None else 'YAML'}: {why}"
        fix = "put what is meant as text into quotes" if mark is None else "indent and part with spaces"
        raise ScalingError(what, file=path, line=mark and mark.line + 1, fix=fix) from None
    if not isinstance(tree, dict) or not tree:
        raise ScalingError("expected the keys of a sweep", file=path, fix="write method and parameters")
    _plain(tree, config.tree, config)
    return of(path.stem, tree, config)


def _plain(value: Any, ours: Any, config: Config, place: str = "") -> None:
    """Refuse what no sweep holds: PyYAML takes a key `true` or `1` for no text, 2026-11-20 for a date, and 1e-3 for
    text, where `ours` is the number that our own reader takes it for.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                what = f"W&B reads the key {key!r} as {type(key).__name__}, and not as text"
                raise config.error(place or str(key).lower(), what, "put it into quotes")
            below = ours.get(key) if isinstance(ours, Mapping) else None
            _plain(inner, below, config, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            below = ours[index] if isinstance(ours, list) and index < len(ours) else None
            _plain(inner, below, config, f"{place}.{index}")
    elif isinstance(value, str) and is_number(ours):
        mantissa, _, exponent = value.lower().partition("e")  # 1.0e-3 and 1.5e+4 are numbers to PyYAML
        sign = "" if exponent.startswith(("+", "-")) else "+"
        number = (mantissa if "." in mantissa else f"{mantissa}.0") + (f"e{sign}{exponent}" if exponent else "")
        raise config.error(place, f"W&B reads {value} as text and not as a number", f"write {number}")
    elif not (value is None or isinstance(value, str | bool) or is_number(value)):
        raise config.error(place, f"W&B reads it as {value!r}", "put it into quotes, or write a finite number")


def of(name: str, tree: dict[str, Any], config: Config | None = None) -> Sweep:
    """The sweep of a tree; a mistake has the line of its key in the file, where it was read from one. The modules that
    its command names join where the file is the user's own; of one that a server sent, no code is run.
    """
    is_own, config = config is not None, config or Config(tree, dict.fromkeys(tree, "the sweep"))
    try:
        return _checked(name, tree, config, is_own)
    except ScalingError as error:
        file = next(iter(config.origin.values()), "the sweep:").rpartition(":")[0]
        raise config.place(error).at(file=file) from None


def _checked(name: str, tree: dict[str, Any], config: Config, is_own: bool) -> Sweep:
    named = {key: value for key, value in tree.items() if value is not None or key not in KEYS}
    values = check_keys(named, KEYS, "a sweep")
    for key, fix in NEEDED.items():
        if tree.get(key) is None:
            raise ScalingError("a sweep needs it", key=key, fix=fix)
    method, rule = tree["method"], tree.get("early_terminate")
    with under("command"):
        words = words_of(tree["command"], tree["program"])
        for path in _parted(map(str, tree["command"]))[1] if is_own else ():
            schema.extend(path)
    with under("parameters"):
        parameters = dict(sorted(_parameters(tree["parameters"]).items()))
    metric = _metric(tree)
    with under("early_terminate"):
        band = None if rule is None else hyperband(rule)
    if method == "grid":
        for key, distribution in parameters.items():
            if distribution.values is None or distribution.chances:
                fix = "write values: […], or method: random"
                raise ScalingError("a grid takes values, not this distribution", key=f"parameters.{key}", fix=fix)
    sweep = Sweep(name, method, words, parameters, metric, band, values.get("run_cap"), tree, config)
    if sweep.size is not None and sweep.size > MOST_RUNS:
        fix = f"{MOST_RUNS:,} are the most; thin a parameter"
        raise ScalingError(f"the sweep has {sweep.size:,} runs", key="parameters", fix=fix)
    return sweep


def words_of(command: Any, program: Any) -> tuple[str, ...]:
    """The names and overrides that every run of the command has, without the modules that its `--extend` name."""
    if not isinstance(command, list) or not all(isinstance(word, str | int | float) for word in command):
        raise ScalingError("expected the words of a command", fix=FIX)
    words = [str(program) if word == "${program}" else STANDS_FOR.get(word, str(word)) for word in command]
    if words[:1] == ["/usr/bin/env"]:
        words = words[1:]
    if words[1:3] == ["-m", "scaling"]:
        words = words[2:]
    if not words or {Path(words[0]).name, Path(str(program)).name} != {"scaling"}:
        raise ScalingError("the program is not scaling", value=" ".join(map(str, command)), fix=FIX)
    words, _ = _parted(words)
    if words[1:2] != ["train"]:
        raise ScalingError("the command of a sweep is scaling train", value=" ".join(map(str, command)), fix=FIX)
    words_left = [word for word in words[2:] if word not in ARGUMENTS]
    if len(words_left) != len(words) - 3:
        raise ScalingError("the command must pass the parameters once", fix=FIX)
    if options := [word for word in words_left if word.startswith("--") and "=" not in word]:
        fix = "write key=value, or the keys into a file that `scaling train` names"
        raise ScalingError("the command of a sweep takes no options", value=options[0], fix=fix)
    if foreign := [word for word in words_left if word.startswith("${")]:
        what = "this macro of W&B is not supported"
        raise ScalingError(what, value=foreign[0], fix=nearest(foreign[0], ARGUMENTS))
    return tuple(word.removeprefix("--") for word in words_left)


def _parted(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """The words of a command without its `--extend`, and the files that these name."""
    left, paths, rest = list[str](), list[str](), iter(words)
    for word in rest:
        option, has_value, path = word.partition("=")
        if option != "--extend":
            left.append(word)
            continue
        path = path if has_value else next(rest, "")
        refuse(not path, "--extend names no file", "write --extend, PATH")
        paths.append(path)
    return left, paths


def _parameters(tree: Any) -> dict[str, Distribution]:
    """Each parameter's dotted name and distribution; `parameters` within a parameter nests, as in W&B."""
    if not isinstance(tree, dict) or not tree:
        raise ScalingError("a sweep needs parameters", fix="write optimizer.lr: {values: [1.0e-3, 3.0e-3]}")
    parameters: dict[str, Distribution] = {}
    for key, line in tree.items():
        with under(key):
            if not isinstance(line, dict):
                raise ScalingError("expected a distribution", fix="write {values: [1, 2]} or {value: 1}")
            if set(line) != {"parameters"}:
                parameters[key] = distribution(line)
                continue
            with under("parameters"):
                parameters |= {f"{key}.{inner}": each for inner, each in _parameters(line["parameters"]).items()}
    return parameters


def _metric(tree: Mapping[str, Any]) -> Metric | None:
    line = tree.get("metric")
    if line is None:
        if tree["method"] == "bayes" or tree.get("early_terminate") is not None:
            fix = "write metric: {name: evaluate/loss, goal: minimize}"
            raise ScalingError("bayes and early_terminate need it", key="metric", fix=fix)
        return None
    with under("metric"):
        check_keys(line, METRIC_KEYS, "a metric")
        if (name := line.get("name")) not in METRICS:
            key = None if name is None else "name"
            raise ScalingError("no run logs it", key=key, fix=nearest(str(name), METRICS))
    return Metric(name, -1 if line.get("goal") == "maximize" else 1)


def capped(sweep: Sweep, count: int | None) -> Sweep:
    """The sweep with at most `count` runs, here and at the server."""
    if count is None or (sweep.cap is not None and sweep.cap <= count):
        return sweep
    return replace(sweep, cap=count, tree={**sweep.tree, "run_cap": count})


def hyperband(line: Mapping[str, Any]) -> Hyperband:
    """The rule of a sweep's `early_terminate`."""
    line = check_keys(line, RULE_KEYS, "hyperband")
    if "type" not in line:
        raise ScalingError("expected a type", key="type", fix="W&B knows hyperband")
    eta = line.get("eta", 3)
    if "max_iter" in line and "s" in line:
        spans = [line["max_iter"] / eta**step for step in range(1, line["s"] + 1)]
        brackets = sorted(int(span) for span in spans if span >= 1)
    elif "min_iter" in line:
        brackets = [
            int(line["min_iter"] * eta**step) for step in range(MOST_BRACKETS) if line["min_iter"] * eta**step < 2**53
        ]
    else:
        raise ScalingError("hyperband needs min_iter, or max_iter and s", fix="write min_iter: 3")
    if not brackets:
        raise ScalingError("there is no bracket", key="max_iter", value=line["max_iter"], fix="take a larger one")
    return Hyperband(tuple(brackets), eta, bool(line.get("strict", True)))
