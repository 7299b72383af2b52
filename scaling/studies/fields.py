"""Fields: what each field of a study's YAML may state, checked before a plan is made and whichever scale is chosen."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from scaling import schema
from scaling.config import Config, find
from scaling.errors import ScalingError, nearest
from scaling.schema import NonNegativeFloat, PositiveFloat, PositiveInt
from scaling.strict_yaml import quantity

# Every field of a study's file, and what it states.
KEYS = {
    "question": "one sentence, the heading of the report",
    "base": "a model, a table or a file: what every run starts from",
    "set": "keys of a config that hold for every run, as {train.batch: 16}",
    "grid": "axes whose product are the runs to fit, as {size: [10k, 30k], train.tokens: [1M, 2M]}; or a list of grids",
    "held_out": "axes of the runs that test the fit and are no part of it",
    "rate": "a rule for the learning rate of each run: `scaling explain rate`",
    "law": "the law to fit, or several, of which the first answers: `scaling explain law`",
    "target": "what the law predicts for, as {N: 1B, D: 20B}; unless given the most expensive held-out run",
    "suppose": "what a plan takes the law's parameters and the noise of log loss to be, as {E: 1.9, noise: 0.003}",
    "define": "how the runs were trained and why, in words of your own, which the report shows",
    "tasks": "what each run is finetuned on, as [cola, sst2], or with keys of these runs, as {cola: {train.epochs: 5}}",
    "resources": "what each run takes in place of what its cost suggests, as {threads: 2, gpus: 0.5, memory: 8}",
    "minutes": "what the study takes; a slower machine takes the scale `small`",
    "at": "further scales of the study by name, each the fields that differ",
}
# The fields that a study cannot be without, and how each is written.
NEEDED = {
    "question": "write question: How does loss fall with size?",
    "base": "write base: decoder",
    "grid": "write grid: {size: [10k, 30k, 100k], train.tokens: [1M, 2M, 4M]}",
}
RESOURCES: dict[str, Any] = {
    "threads": PositiveInt,
    "gpus": NonNegativeFloat,  # of one, or a whole number
    "memory": PositiveFloat,  # in GB
    "minutes": PositiveFloat,  # until a cluster may end it
}
SMALL = "small"  # the scale that a study takes on a machine that would need longer than its `minutes`

Line = Mapping[str, Any]


def layer(config: Config, above: str = "") -> dict[str, Any]:
    """The fields at the top of the file, or under the scale `above` (`at.paper`), each of its type; without those that
    are null.
    """
    tree = config[above] if above else config.tree
    if not isinstance(tree, dict):
        raise config.error(above, "expected fields of a study", f"write {above}: {{grid: …}}")
    prefix = f"{above}." if above else ""
    kept = {}
    for key, value in tree.items():
        if key not in KEYS or (above and key == "at"):
            raise config.error(prefix + key, "a study has no such key", nearest(key, KEYS))
        if value is not None:
            kept[key] = _CHECKS[key](config, prefix + key, value) if key in _CHECKS else value
    return kept


def scales(config: Config) -> dict[str, dict[str, Any]]:
    """What the study states otherwise, by the name of the scale."""
    return {name: layer(config, f"at.{name}") for name in layer(config).get("at", {})}


def check(config: Config, path: Path | None, fields: Line, at: str | None) -> None:
    """Refuse fields of one scale that do not go together: what is needed, and what the law does not know."""

    def error(key: str, what: str, fix: str | None = None) -> ScalingError:
        """At the field in the scale, where that has it, or else at the top."""
        field = key.partition(".")[0]
        inside = at is not None and field in config[f"at.{at}"]
        return config.error(f"at.{at}.{key}" if inside else key, what, fix)

    for key, fix in NEEDED.items():
        if key not in fields:
            raise ScalingError("a study needs it", key=key, file=path, fix=fix)
    if "minutes" in fields and SMALL not in fields.get("at", {}):
        raise error(
            "minutes", "there is no smaller scale to take on a slow machine", f"add at: {{{SMALL}: {{grid: …}}}}"
        )
    laws = fields.get("law", [])
    for key in ("target", "suppose"):
        if fields.get(key) and not laws:
            raise error(key, "the study asks for no law", "name one, as in law: chinchilla")
    if laws:
        _check_law(fields, laws, error)


def _check_law(fields: Line, laws: list[str], error: Callable[..., ScalingError]) -> None:
    from scaling.laws import named

    law = named(laws[0])
    target = fields.get("target", {})
    for name in target:
        if name not in law.inputs and set(target) != {"C"}:
            raise error(f"target.{name}", f"{law.name} is a law of {', '.join(law.inputs)}", nearest(name, law.inputs))
    if set(target) == {"C"} and law.inputs != ("C",):
        if set(law.inputs) != {"N", "D"}:
            raise error("target", f"{law.name} is a law of {', '.join(law.inputs)}", "name each of them")
    elif target and (absent := [name for name in law.inputs if name not in target]):
        raise error("target", f"{law.name} is a law of {', '.join(law.inputs)}", f"add {absent[0]}")
    parameters = {parameter.name: parameter for name in laws for parameter in named(name).parameters}
    for name, value in fields.get("suppose", {}).items():
        if name == "noise" or (name in parameters and parameters[name].scale == "log"):
            if not value > 0:
                raise error(f"suppose.{name}", "expected a number above 0")
        elif name not in parameters:
            fix = nearest(name, [*parameters, "noise"])
            raise error(f"suppose.{name}", f"{law.name} has no such parameter", fix)


def _value(config: Config, key: str, value: Any, annotation: Any) -> Any:
    """A value of a type of our schema; `1B` is a number where one is expected."""
    number = quantity(value) if isinstance(value, str) and annotation is not str else None
    try:
        return schema.check(key, value if number is None else number, annotation)
    except ScalingError as error:
        raise config.error(key, error.what, error.fix) from None


def _text(config: Config, key: str, value: Any) -> str:
    if not _value(config, key, value, str).strip():
        raise config.error(key, "expected text")
    return value


def _base(config: Config, key: str, value: Any) -> str:
    try:
        find("model", _text(config, key, value))
    except ScalingError as error:
        raise error if error.key is not None else config.error(key, error.what, error.fix) from None
    return value


def _mapping(config: Config, key: str, value: Any) -> dict[str, Any]:
    return _value(config, key, value, dict[str, Any])


def _each(config: Config, key: str, value: Any, annotation: Any) -> dict[str, Any]:
    """A mapping whose values are of one type."""
    items = _mapping(config, key, value).items()
    return {name: _value(config, f"{key}.{name}", item, annotation) for name, item in items}


def _rate(config: Config, key: str, value: Any) -> Any:
    try:
        schema.build("rate", value)
    except ScalingError as error:
        raise config.place(error.under(key)) from None
    return value


def _laws(config: Config, key: str, value: Any) -> list[str]:
    from scaling.laws import named

    names = value if isinstance(value, list) else [value]
    for index, name in enumerate(names):
        where = f"{key}.{index}" if isinstance(value, list) else key
        try:
            named(str(name))
        except ScalingError as unknown:
            raise config.error(where, "there is no such law", unknown.fix) from None
        if name in names[:index]:
            raise config.error(where, "a law is named twice")
    return names


def _define(config: Config, key: str, value: Any) -> dict[str, str]:
    from scaling.laws.points import SETUP

    given = _each(config, key, value, str | float)
    for name in given:
        if name not in SETUP:
            raise config.error(f"{key}.{name}", "no part of the setup has this name", nearest(name, SETUP))
    return {name: str(value[name]) for name in given}


def _tasks(config: Config, key: str, value: Any) -> dict[str, dict[str, Any]]:
    """Each task with the keys of its runs."""
    from scaling.training.finetune import check_task

    names = dict.fromkeys(value) if isinstance(value, list) and all(isinstance(task, str) for task in value) else value
    if not isinstance(names, dict) or (isinstance(value, list) and len(names) < len(value)):
        raise config.error(key, "expected names of tasks, each once", "write tasks: [cola, sst2]")
    tasks = {}
    for name, settings in names.items():
        try:
            check_task(name)
        except ScalingError as error:
            raise config.error(key, f"{name}: {error.what}", error.fix) from None
        tasks[name] = {} if settings is None else _mapping(config, f"{key}.{name}", settings)
    return tasks


def _resources(config: Config, key: str, value: Any) -> dict[str, float]:
    given = _mapping(config, key, value)
    for name in given:
        if name not in RESOURCES:
            raise config.error(f"{key}.{name}", "a run takes no such thing", nearest(name, RESOURCES))
    given = {name: _value(config, f"{key}.{name}", number, RESOURCES[name]) for name, number in given.items()}
    if (gpus := given.get("gpus", 0)) > 1 and gpus != int(gpus):
        raise config.error(f"{key}.gpus", "expected a fraction of one GPU, or a whole number", "take 0.5 or 2")
    return given


def _scales(config: Config, key: str, value: Any) -> dict[str, Any]:
    for name in _mapping(config, key, value):
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise config.error(key, f"{name!r} is no name of a scale", "take letters, digits, '_' and '-'")
    return value


_CHECKS = {
    "question": _text,
    "base": _base,
    "set": _mapping,
    "rate": _rate,
    "law": _laws,
    "target": partial(_each, annotation=PositiveFloat),
    "suppose": partial(_each, annotation=float),
    "define": _define,
    "tasks": _tasks,
    "resources": _resources,
    "minutes": partial(_value, annotation=PositiveFloat),
    "at": _scales,
}
