"""No value of any key of any file may give a traceback, a hang or more memory: a command ends well, or in one line.

Values of every kind are put under every key of a run's config (each key of each kind of each slot), of a study, of a
sweep and of a table, and the command that reads the file is run, but for the training. Cases are drawn by a fixed seed.
"""

import datetime
import inspect
import itertools
import math
import random
import resource
import time
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from scaling.base.numbers import Range
from scaling.config import schema
from scaling.config.compose import FIXED
from scaling.config.shape import SIZES
from scaling.sweeps import file as sweep_file
from scaling.sweeps.distribution import KINDS as DISTRIBUTIONS
from scaling.tables import table
from scaling.verbs.command_line import main

REFUSAL, ANSWER = 2.0, 12.0  # seconds of this process's own time that a refusal and an answer may take
GROWTH = 400 << 10  # kB by which a case may raise the process's memory

VALUES: list[Any] = [
    *(None, True, False, {}, [], [None], [[1, [2]]], {"a": 1}, {"kind": None}, {"kind": []}, {"kind": {"kind": 1}}),
    *(math.nan, math.inf, -math.inf, 0, 0.0, -0.0, 1, 2, 3, 7, 0.5, 1.5, -1, -0.1, -4000, 1e-300, -1e-300),
    *(1e18, 1e300, -1e300, 10**9, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 10**400),
    *("", " ", "nan", "1e400", "4k", "1T", "9" * 70, "null", "true", "kind", "é€𝛼", "\u2028\ufeff", "a\nb", "\x00"),
    *("a" * 5000, "${seed}", "${nowhere}", "${x", "../../etc/passwd", "/dev/zero", "2026-99-99", "{a: 1}", "<b>%s{0}"),
    *(datetime.date(2026, 11, 20), [0], [1, 2], [1, "a"], [math.nan], [10**400], {1: 2}, {True: 1}, {"": 1}),
    *(["a"] * 1000, {"values": []}, [[]], [{}], {"a": {"b": {"c": []}}}),
]

FILES = yaml.safe_load(Path(__file__).with_name("bad_values.yaml").read_text())
TINY, NEEDED, SWEEP = FILES["tiny"], FILES["needed"], FILES["sweep"]
STUDY = {**FILES["study"], "set": {key: value for key, value in TINY.items() if key != "trainer"}}
TABLE = {"base": "decoder", **TINY, **FILES["table"], "size": {**TINY["size"], "vocabulary": 16}}


class Case(typing.NamedTuple):
    """A file with a value under one of its keys, and the command that reads it."""

    command: tuple[str, ...]
    tree: typing.Mapping[str, Any]
    key: str
    value: Any


def changed(tree: Any, path: typing.Sequence[str], value: Any) -> Any:
    """A tree with another value at a path."""
    if not path:
        return value
    inside = tree if isinstance(tree, dict) else {}
    return {**inside, path[0]: changed(inside.get(path[0], {}), path[1:], value)}


def line(name: str, kind: type) -> dict[str, Any]:
    """A line of a kind with the keys that it needs."""
    needed = {
        key: NEEDED[key] for key, parameter in schema.keys(kind).items() if parameter.default is inspect.Parameter.empty
    }
    return {"kind": name, **needed, **FILES["more"].get(name, {})}


def model(base: str, place: str) -> dict[str, Any]:
    """A small run's config, with what has to stand around a place of it."""
    return {"base": base, **TINY, **FILES["bases"].get(base, {}), **FILES["around"].get(place, {})}


def of_runs() -> Iterator[Case]:
    for slot, (base, place) in FILES["places"].items():
        tree = model(base, place)
        for name, kind in schema.kinds(slot).items():
            other = FILES["of_kind"].get(slot, {}).get(name, base)
            below = changed(model(other, place), place.split("."), line(name, kind))
            annotations = {key: parameter.annotation for key, parameter in schema.keys(kind).items()}
            for key, annotation in {**annotations, "nonsense": Any}.items():
                for value in [*VALUES, *edges(annotation)]:
                    yield Case(("train",), changed(below, [*place.split("."), key], value), f"{place}.{key}", value)
        for value in VALUES:
            yield Case(("train",), changed(tree, place.split("."), value), place, value)
            yield Case(("train",), changed(tree, [*place.split("."), "kind"], value), f"{place}.kind", value)
    sizes = {**SIZES, **dict.fromkeys(("times", "nonsense", "times.layers", "encoder", "encoder.layers"), Any)}
    others = dict.fromkeys(("model", "base", "rows", "table", "nonsense"), Any)
    for section, types in {**FIXED, "size": sizes, **others}.items():
        for key, annotation in ({"": Any} | types if isinstance(types, dict) else {"": types}).items():
            place = f"{section}.{key}".removesuffix(".")
            for value in [*VALUES, *edges(annotation)]:
                yield Case(("train",), changed({"base": "decoder", **TINY}, place.split("."), value), place, value)


def edges(annotation: Any) -> Iterator[float]:
    """The numbers at the ends of an annotation's range and inside it, which are answered and take no time either."""
    for part in typing.get_args(annotation):
        yield from edges(part)
        if isinstance(part, Range):
            whole = typing.get_args(annotation)[0] is int
            low = next((bound for bound in (part.least, part.above) if bound is not None), -1e300)
            high = next((bound for bound in (part.most, part.below) if bound is not None), 1e300)
            inside = math.sqrt(max(low, 1) * high) if high > 1 else (low + high) / 2
            yield from (int(number) if whole else float(number) for number in (low, high, inside))


def paths(tree: typing.Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths(value, (*above, key))


def of_studies() -> Iterator[Case]:
    own = [path for path in paths(STUDY) if path[0] != "set"]
    for path, value in itertools.product([*own, ("nonsense",), ("set",), ("set", "optimizer.lr")], VALUES):
        yield Case(("plan",), changed(STUDY, path, value), ".".join(path), value)
    mixed = changed(STUDY, ("set", "data"), {"kind": "Mixture", **{key: NEEDED[key] for key in ("domains", "shares")}})
    lines = [(slot, *each) for slot in ("grid", "rate") for each in schema.kinds(slot).items()]
    for slot, name, kind in lines:
        study = mixed if name == "Simplex" else STUDY
        for key, value in itertools.product([*schema.keys(kind), "kind"], VALUES):
            yield Case(("plan",), {**study, slot: {**line(name, kind), key: value}}, f"{slot}.{key}", value)


def of_sweeps() -> Iterator[Case]:
    keys = [*paths(SWEEP), *((key,) for key in sweep_file.KEYS), ("nonsense",), ("metric", "target"), ("metric", "goa")]
    keys += [("early_terminate", key) for key in sweep_file.RULE_KEYS]
    for path, value in itertools.product(keys, VALUES):
        yield Case(("sweep", "--dry-run"), changed(SWEEP, path, value), ".".join(path), value)
    for name, fields in DISTRIBUTIONS.items():
        own = {"values": [1, 2], "probabilities": [0.5, 0.5], "value": 1, "min": 1, "max": 2}
        output = {"distribution": name, **{key: own[key] for key, default in fields.items() if default is None}}
        for key, value in itertools.product([*fields, "nonsense"], VALUES):
            parameters = {"optimizer.lr": {**output, key: value}, "seed": {"values": [1, 2]}}
            tree = {**SWEEP, "method": "random", "parameters": parameters}
            yield Case(("sweep", "--dry-run"), tree, f"parameters.optimizer.lr.{key}", value)


def of_tables() -> Iterator[Case]:
    keys = [path for path in paths(TABLE) if path[0] in ("rows", "table", "base")]
    keys += [("table", key) for key in table.KEYS] + [("rows", "GeLU", "base"), ("rows", "GeLU", "nonsense")]
    for path, value in itertools.product(keys, VALUES):
        yield Case(("table", "--counts"), changed(TABLE, path, value), ".".join(path), value)


class Trained(Exception):
    """Nothing was wrong, and the training would begin."""


def check(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> str | None:
    """What is wrong with how a command answers a case, None where nothing is."""
    path = folder / "case.yaml"
    path.write_text(yaml.safe_dump(dict(case.tree), allow_unicode=True, sort_keys=False), encoding="utf-8")
    started, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    words = [case.command[0], str(path), *case.command[1:]]
    if case.key != "runs" and case.command[0] in ("train", "plan"):
        words.append(f"runs={folder / 'runs'}")
    try:
        code = main(words)
    except Trained:
        code = 0
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:300]
    took = time.process_time() - started
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    said = capsys.readouterr().err
    if grown > GROWTH or took > (REFUSAL if code else ANSWER):
        return f"{took:.1f} s and {grown >> 10} MB more memory: {said[:200]}"
    if code == 0:
        return None
    if code != 2 or said.count("\n") != 1 or not said.startswith("scaling: "):
        return f"code {code}: {said[-300:]}"
    named = any(part.casefold() in said.casefold() for part in parts(case.key, case.value))
    return None if named or case.key == "set" else f"the key is not named: {said[:300]}"


def parts(key: str, value: Any) -> Iterator[str]:
    """What a refusal may name: a part of the key, or what its value holds."""
    yield from key.split(".")
    if isinstance(value, dict):
        for inner, below in value.items():
            yield from parts(f"{inner!s:.20}", below)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Commands go up to where the training would begin; what they import is imported."""
    for name in ("scaling.training.run.train", "scaling.studies.estimate.calibrate"):
        monkeypatch.setattr(name, Mock(side_effect=Trained))
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.chdir(tmp_path)
    for name, tree in (("study", STUDY), ("warm", {"base": "decoder", **TINY})):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(tree))
    return tmp_path


@pytest.mark.timeout(3600)  # a hang is a failure, and not the end of the tests
@pytest.mark.parametrize("number", [40, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("draw", [of_runs, of_studies, of_sweeps, of_tables])
def test_any_value_under_any_key_is_an_answer_or_one_line(draw, number, untrained, capsys):
    cases = list(draw())
    cases = random.Random(20261123 + number).sample(cases, min(number, len(cases)))
    check(cases[0], untrained, capsys)  # imports torch and Lightning, which is not part of any case's time
    faults = [f"{case.key}={case.value!r:.100}: {fault}" for case in cases if (fault := check(case, untrained, capsys))]
    assert not faults
