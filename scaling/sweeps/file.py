"""A sweep's file: read as `wandb sweep` reads it, and held to W&B's schema and to our configs before anything is sent.

    program: scaling
    command: [scaling, train, decoder, size=tiny, "${args_no_hyphens}"]
    method: grid                       # random, bayes
    metric: {name: evaluate/loss, goal: minimize}
    parameters:
      optimizer.lr: {values: [1.0e-3, 3.0e-3]}

`wandb sweep` and its server read the file by PyYAML: a word that it reads as another value than we do is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from scaling.base.errors import ScalingError, nearest, refuse, under
from scaling.base.numbers import PositiveInt, Range
from scaling.config import schema
from scaling.config.document import Config, document, read_layer
from scaling.config.schema import check_keys, walk
from scaling.config.strict_yaml import Unquoted, scalar
from scaling.sweeps.distribution import Distribution, distribution

ARGUMENTS = ("${args_no_hyphens}", "${args}")
FIX = 'write command: [scaling, train, decoder, "${args_no_hyphens}"]'
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
    extensions: tuple[str, ...]  # the files that the command's `--extend` name
    config: Config  # the file, as W&B gets it, with the line of every key

    def overrides(self, cell: Mapping[str, Any]) -> list[str]:
        """The words of one run, as W&B's agent writes them: Python's spelling of each value."""
        return [*self.words, *(f"{key}={value}" for key, value in cell.items())]

    @property
    def size(self) -> int | None:
        """The number of runs; None where random or bayes goes on until someone stops it."""
        if self.method != "grid":
            return self.cap
        count = math.prod(len(parameter.grid or ()) for parameter in self.parameters.values())
        return count if self.cap is None else min(count, self.cap)

    @property
    def fingerprint(self) -> str:
        """A hash of the parameters, as they are in the file."""
        document = json.dumps(self.config["parameters"], sort_keys=True, default=str)
        return hashlib.sha256(document.encode()).hexdigest()[:16]

    def identity(self, words: Sequence[str]) -> str:
        """A hash of all that changes its runs or its search, with the overrides for every run."""
        overrides = dict(word.removeprefix("--").split("=", 1) for word in words)
        counted = {key: value for key, value in overrides.items() if key != "runs" and not key.startswith("log.")}
        search = {key: self.config.tree.get(key) for key in ("method", "metric", "parameters", "early_terminate")}
        document = json.dumps([search, self.words, counted], sort_keys=True, default=str)
        return hashlib.sha256(document.encode()).hexdigest()[:16]


def read(path: str | Path) -> Sweep:
    """The sweep in a file; what W&B or we would refuse is refused here, with its line. The modules that its command
    names join, as those of `scaling train` do.
    """
    config = document(path)
    for key, word in walk(read_layer(path).tree):
        if isinstance(word, Unquoted):
            _check_word(config, key, word)
    sweep = of(Path(path).stem, config)
    for module in sweep.extensions:
        schema.extend(module)
    return sweep


def _check_word(config: Config, key: str, word: str) -> None:
    """Refuse a word that PyYAML reads otherwise: 2026-11-20 is a date to it, and 1e-3 is text."""
    ours = scalar(word)
    try:
        theirs = yaml.safe_load(word)
    except (yaml.YAMLError, ValueError):
        theirs = None
    if type(theirs) is not type(ours) or theirs != ours:
        fix = f"write {yaml.safe_dump(ours).splitlines()[0]}"
        raise config.error(key, f"W&B reads it as {reprlib.repr(theirs)}", fix)


def of(name: str, config: Config) -> Sweep:
    """The sweep of a document; of one that a server sent, no code is run."""
    with config.placing():
        tree = {key: value for key, value in config.tree.items() if value is not None}
        values = check_keys(tree, KEYS, "a sweep", needed=NEEDED)
        with under("command"):
            words, extensions = words_of(tree["command"], tree["program"])
        with under("parameters"):
            parameters = dict(sorted(_parameters(tree["parameters"]).items()))
        metric = _metric(tree.get("metric"), needed=tree["method"] == "bayes" or "early_terminate" in tree)
        with under("early_terminate"):
            band = hyperband(tree["early_terminate"]) if "early_terminate" in tree else None
        for key, each in parameters.items() if tree["method"] == "grid" else ():
            what, fix = "a grid takes values, not this distribution", "write values: […], or method: random"
            refuse(each.grid is None, what, fix, key=f"parameters.{key}")
        cap = values.get("run_cap")
        sweep = Sweep(name, tree["method"], words, parameters, metric, band, cap, extensions, config)
        what, fix = f"the sweep has {sweep.size or 0:,} runs", f"{MOST_RUNS:,} are the most; thin a parameter"
        refuse((sweep.size or 0) > MOST_RUNS, what, fix, key="parameters")
        return sweep


def words_of(command: Sequence[Any], program: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and overrides that every run of the command has, and the modules that its `--extend` name. What stands
    before `scaling train` starts it.
    """
    words = [program if word == "${program}" else str(word) for word in command]
    is_ours = [Path(one).name == "scaling" and other == "train" for one, other in pairwise(words)]
    refuse(True not in is_ours, "the program is not scaling train", FIX, value=" ".join(words))
    left, extensions, place = list[str](), list[str](), is_ours.index(True)
    starter = words[place - 1] if place and words[place] == "scaling" else ""
    is_script = starter == "${interpreter}" or Path(starter).name.startswith("python")
    refuse(is_script, "an interpreter finds no file `scaling`", FIX, value=" ".join(words))
    rest = iter(words[place + 2 :])
    for word in rest:
        option, _, path = word.partition("=")
        if option == "--extend":
            extensions.append(path or next(rest, ""))
        else:
            left.append(word)
    refuse(sum(map(left.count, ARGUMENTS)) != 1, "the command must pass the parameters once", FIX)
    named = [word for word in left if word not in ARGUMENTS]
    foreign = next((word for word in named if word.startswith("${") or (word.startswith("--") and "=" not in word)), "")
    fix = "write names, key=value, --extend FILE, and ${args_no_hyphens}"
    refuse(foreign, "the command of a sweep takes no such word", fix, value=foreign)
    return tuple(word.removeprefix("--") for word in named), tuple(extensions)


def _parameters(tree: Mapping[str, Any]) -> dict[str, Distribution]:
    """Each parameter's dotted name and distribution; `parameters` within a parameter nests, as in W&B."""
    refuse(not isinstance(tree, dict) or not tree, "a sweep needs parameters", NEEDED["parameters"])
    parameters: dict[str, Distribution] = {}
    for key, line in tree.items():
        with under(key):
            refuse(not isinstance(line, dict), "expected a distribution", "write {values: [1, 2]} or {value: 1}")
            if set(line) == {"parameters"}:
                with under("parameters"):
                    found = {f"{key}.{inner}": each for inner, each in _parameters(line["parameters"]).items()}
            else:
                found = {key: distribution(line)}
            refuse(found.keys() & parameters.keys(), "a parameter has its values twice", "keep one of them")
            parameters |= found
    return parameters


def _metric(line: Mapping[str, Any] | None, needed: bool) -> Metric | None:
    fix = "write metric: {name: evaluate/loss, goal: minimize}"
    refuse(needed and line is None, "bayes and early_terminate need it", fix, key="metric")
    if line is None:
        return None
    with under("metric"):
        check_keys(line, METRIC_KEYS, "a metric")
        name = str(line.get("name"))
        refuse(name not in METRICS, "no run logs it", nearest(name, METRICS), key="name")
    return Metric(name, -1 if line.get("goal") == "maximize" else 1)


def capped(sweep: Sweep, count: int | None) -> Sweep:
    """The sweep with at most `count` runs, here and at the server."""
    if count is None or (sweep.cap is not None and sweep.cap <= count):
        return sweep
    return replace(sweep, cap=count, config=replace(sweep.config, tree={**sweep.config.tree, "run_cap": count}))


def hyperband(line: Mapping[str, Any]) -> Hyperband:
    """The rule of a sweep's `early_terminate`."""
    line = check_keys({"type": None, **line}, RULE_KEYS, "hyperband")
    eta, least, most = line.get("eta", 3), line.get("min_iter"), line.get("max_iter")
    if most is not None and "s" in line:
        brackets = sorted(filter(None, (int(most / eta**step) for step in range(1, line["s"] + 1))))
    elif least is not None:
        brackets = [int(least * eta**step) for step in range(MOST_BRACKETS) if least * eta**step < 2**53]
    else:
        raise ScalingError("hyperband needs min_iter, or max_iter and s", fix="write min_iter: 3")
    refuse(not brackets, "there is no bracket", "take a larger one", key="max_iter", value=most)
    return Hyperband(tuple(brackets), eta, line.get("strict", True))


def related(one: str, other: str) -> bool:
    """Whether two dotted keys are one, or one of them is within the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
