"""A class's signature is the schema of its line in a config.

The positional arguments are what the assembly shares with every piece of the slot (a shape, a built sibling); the
keyword-only arguments are the keys of the line, and an annotation states which values a key takes:

    class Gated(nn.Module):
        def __init__(self, shape: Shape, *, activation: Recipe, hidden_times: Factor = 1.0): ...

    block.channel: {kind: Gated, activation: GeLU}

A keyword annotated `Recipe` is the line of the slot of that name; it arrives as a function that takes the shared
arguments of its slot and returns the piece (as `Checked` where other lines are laid over it). One annotated `Recipes`
has lines of its class's own slot, by name. Every number is finite and has a range, so no class checks a single number.
The slot's public classes are the registry; a user's classes join it by `extend`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from scaling.base.errors import ScalingError, nearest, refuse, under
from scaling.base.numbers import Range, is_number

SLOTS: dict[str, str] = {
    **dict.fromkeys(("activation", "channel"), "scaling.model.channels"),
    **dict.fromkeys(("norm", "residual", "block"), "scaling.model.blocks"),
    "pattern": "scaling.model.patterns",
    **dict.fromkeys(("position", "embedding"), "scaling.model.embeddings"),
    **dict.fromkeys(("mixer", "cross"), "scaling.model.mixer"),
    **dict.fromkeys(("head", "sentence", "language", "boundary"), "scaling.model.heads"),
    **dict.fromkeys(("stack", "halting", "memory"), "scaling.model.stacks"),
    "tuning": "scaling.model.tuning",
    "model": "scaling.model",
    "decode": "scaling.evaluation.strategy",
    "format": "scaling.interop.formats",
    "metric": "scaling.metrics",
    "data": "scaling.data",
    "corpus": "scaling.data.corpus",
    "layout": "scaling.data.task.layout",
    "tokenizer": "scaling.data.tokenizer",
    "objective": "scaling.objectives",
    "optimizer": "scaling.training.optimizer",
    "schedule": "scaling.training.schedule",
    "parametrization": "scaling.training.parametrization",
    "grid": "scaling.studies.grid",
    "rate": "scaling.studies.rate",
}
"""The module whose public classes are the kinds of a slot (those whose `slot` it is), or the package that lists them by
file as `KINDS`. It is imported when its kinds are first read.
"""

# The slots whose pieces may stand in a slot too.
ALSO = {"mixer": ("cross",), "cross": ("mixer",), "sentence": ("head",), "language": ("head",)}
LAW = "law"  # the slot of scaling laws, which `scaling.laws.Law` objects join by `extend`; no config names one

Line = str | Mapping[str, Any]
Recipe = Callable[..., Any]
Recipes = Mapping[str, Recipe]


@dataclass(frozen=True)
class Checked:
    """The recipe of a line, over which another can be laid; it takes the shared arguments of its slot."""

    slot: str
    line: Line
    kind: type
    arguments: Mapping[str, Any]

    def __call__(self, *shared: Any) -> Any:
        return self.kind(*shared, **self.arguments)

    def over(self, line: Line) -> Checked:
        """The recipe of `line` laid on this one's."""
        return recipe(self.slot, overlay(self.line, line))


def build(slot: str, line: Line, *shared: Any) -> Any:
    """The piece that `line` describes. An error's key is relative to the line; the caller knows its place."""
    return recipe(slot, line)(*shared)


def piece_of(key: str, recipe: Recipe | None, *shared: Any) -> Any:
    """The piece of a recipe, None of none; an error in it is placed under the key of its line."""
    with under(key):
        return None if recipe is None else recipe(*shared)


def recipe(slot: str, line: Any) -> Checked:
    """Check the whole of `line`, which is text or a mapping, and return its recipe."""
    registry = kinds(slot)
    values = {"kind": line} if isinstance(line, str) else dict(line) if isinstance(line, Mapping) else {}
    if "kind" not in values:
        raise ScalingError(f"{slot} needs a kind", value=line, fix=nearest("", registry))
    kind = values.pop("kind")
    if not isinstance(kind, str):
        raise ScalingError("a kind is a name", key="kind", value=kind, fix=nearest("", registry))
    if kind not in registry:
        raise ScalingError(f"{slot} has no such kind", key="kind", value=kind, fix=nearest(kind, registry))
    schema = keys(registry[kind])
    needed = {key: f"write {{kind: {kind}, {key}: …}}" for key, each in schema.items() if each.default is each.empty}
    types = {key: parameter.annotation for key, parameter in schema.items()}
    return Checked(slot, line, registry[kind], check_keys(values, types, kind, needed, slot))


def _argument(slot: str, key: str, value: Any, annotation: Any) -> Any:
    """`value` as the annotation requires: a checked plain value, or the recipe of another slot, or some of this one."""
    if annotation == Recipes:
        recipes = {}
        for name, line in check(key, value, Mapping[str, Any]).items():
            with under(f"{key}.{name}"):
                recipes[name] = recipe(slot, line)
        return recipes
    if not is_recipe(annotation) or (value is None and type(None) in typing.get_args(annotation)):
        return check(key, value, annotation)
    with under(key):
        return recipe(key, value)


def kinds(slot: str) -> dict[str, type]:
    """The public classes of a slot by name, with those that joined by `extend`."""
    if slot not in SLOTS:
        raise ScalingError("there is no such slot", value=slot, key="slot", fix=nearest(slot, SLOTS))
    public, slots = _public(SLOTS[slot]), {slot, *ALSO.get(slot, ())}
    return {name: kind for name, kind in public.items() if getattr(kind, "slot", slot) in slots} | joined(slot)


def family(model: Mapping[str, Any]) -> Any:
    """The family of the model of a section, by name."""
    return kinds("model")[model["kind"]].family  # type: ignore[attr-defined]


def joined(slot: str) -> dict[str, Any]:
    """The classes or laws that joined a slot by `extend`."""
    return {name: piece for (each, name), (_, piece) in _joined.items() if each == slot}


@cache
def _public(module: str) -> dict[str, type]:
    """The public classes of a module in its order, or those that a package lists."""
    found = vars(importlib.import_module(module))
    if (listed := found.get("KINDS")) is not None:
        files = {f"{module}.{file}": names for file, names in listed.items()}
        return {name: getattr(importlib.import_module(file), name) for file, names in files.items() for name in names}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, type) and not name.startswith("_") and value.__module__ == module
        if not getattr(value, "_is_protocol", False)
    }


@cache
def keys(kind: type) -> Mapping[str, inspect.Parameter]:
    """The schema of a class: its keyword-only arguments, annotations resolved, and behind `**` those of its base."""
    parameters = inspect.signature(kind, eval_str=True).parameters
    schema = {name: parameter for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()) and kind is not object:
        owner = next(base for base in kind.__mro__ if "__init__" in vars(base))
        schema = {**keys(owner.__mro__[1]), **schema}
    return schema


def parts(slot: str) -> set[str]:
    """The keys under which kinds of a slot have further lines of it, by name."""
    schemas = map(keys, kinds(slot).values())
    return {key for schema in schemas for key, parameter in schema.items() if parameter.annotation == Recipes}


_joined: dict[tuple[str, str], tuple[str, Any]] = {}  # by slot and name: a file that `extend` has read, and its piece


def extend(path: str | Path) -> list[Any]:
    """Let the public classes and laws of a user's module join the slots they name in an attribute `slot`."""
    path, own = Path(path), str(Path(path).resolve())
    spec = importlib.util.spec_from_file_location(f"scaling_extension_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ScalingError("there is no such Python file", file=path, fix="give --extend the path of a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        line = error.lineno if isinstance(error, SyntaxError) else None
        raise ScalingError(f"it does not import: {type(error).__name__}: {error}", file=path, line=line) from error
    pieces = {
        name: piece
        for name, piece in vars(module).items()
        if isinstance(getattr(piece, "slot", None), str) and not name.startswith("_")
        if not isinstance(piece, type) or piece.__module__ == module.__name__
    }
    refuse(not pieces, "no class in it names a slot", 'set slot = "channel" in your class', file=path)
    for name, piece in pieces.items():
        if piece.slot not in (*SLOTS, LAW):
            fix = nearest(piece.slot, [*SLOTS, LAW])
            raise ScalingError("there is no such slot", file=path, key=f"{name}.slot", value=piece.slot, fix=fix)
        file, _ = _joined.get((piece.slot, name), (own, None))
        if file != own or (piece.slot != LAW and name in _public(SLOTS[piece.slot])):
            what = f"{piece.slot} has a kind {name} already{f', of {file}' if file != own else ''}"
            raise ScalingError(what, file=path, fix="give yours another name")
        _joined[piece.slot, name] = own, piece
    return list(pieces.values())


def extensions() -> list[str]:
    """The files whose classes have joined by `extend`: what a process that is started for this one has to read too."""
    return list(dict.fromkeys(file for file, _ in _joined.values()))


def overlay(below: Any, above: Any) -> Any:
    """`above` laid on `below`: a node that names a kind replaces, one that does not overlays, a word is a kind."""

    def is_word(value: Any) -> bool:  # `64` and `4k`, which a layer holds as text too, are none
        return isinstance(value, str) and (value.isidentifier() or value.startswith("${"))

    if not isinstance(above, Mapping):
        return {"kind": above} if is_word(above) and isinstance(below, Mapping) and "kind" in below else above
    below = {"kind": below} if is_word(below) else below
    if "kind" in above or not isinstance(below, Mapping):
        return above
    return {**below, **{key: overlay(below.get(key), value) for key, value in above.items()}}


def walk(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every value below a tree of plain values with its dotted key, parents first."""
    children = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    for part, child in children:
        key = f"{above}.{part}" if above else str(part)
        yield key, child
        yield from walk(child, key)


def versions(config: Any) -> dict[str, int]:
    """The version of every kind that a config names, 1 unless its class declares another: part of a run's identity."""
    numbers = {}
    for key, line in walk(config):
        slot, kind = key.rpartition(".")[2], line.get("kind") if isinstance(line, Mapping) else line
        if slot in SLOTS and isinstance(kind, str) and (piece := kinds(slot).get(kind)) is not None:
            numbers[f"{slot}.{kind}"] = getattr(piece, "version", 1)
    return numbers


_UNIONS = (typing.Union, types.UnionType)


def check(key: str, value: Any, annotation: Any) -> Any:
    """`value` if it has the required type, else an error. An int passes for a float, and `1e3` for a whole number."""
    integers = [int(value)] if isinstance(value, float) and value.is_integer() else []
    for each in (value, *integers):
        with suppress(ValueError):
            return _fit(each, annotation)
    is_infinite = isinstance(value, float) and not math.isfinite(value)
    what = f"expected {describe(annotation)}" + (", and a finite one" if is_infinite else "")
    choices = typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()
    fix = nearest(value, map(str, choices)) if choices and isinstance(value, str) else None
    raise ScalingError(what, key=key, value=value, fix=fix)


def check_keys(
    line: Mapping[str, Any], keys: Mapping[str, Any], noun: str, needed: Mapping[str, str] = {}, slot: str = ""
) -> dict[str, Any]:
    """The values of a line, which may be of a slot, each of its type among `keys`; any other key is refused, and a line
    without one of the keys that are `needed`, each with an example as the fix.
    """
    for key in line:
        if key not in keys:
            raise ScalingError(f"{noun} has no such key", key=str(key), fix=nearest(str(key), keys))
    values = {key: _argument(slot, key, value, keys[key]) for key, value in line.items()}
    for key, fix in needed.items():
        refuse(key not in line, f"{noun} needs it", fix, key=key)
    return values


def _fit(value: Any, annotation: Any) -> Any:
    """`value` in the type of the annotation; a ValueError where it has another type or lies outside the range."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in (Any, inspect.Parameter.empty):
        return value
    if origin in _UNIONS:
        for choice in inner:
            with suppress(ValueError):
                return _fit(value, choice)
    elif origin is Literal:
        if value in inner and type(value) in map(type, inner):
            return value
    elif origin is Annotated:
        number = _fit(value, inner[0])
        if all(number in bounds for bounds in inner[1:] if isinstance(bounds, Range)):
            return number
    elif origin in (list, tuple, Sequence) and isinstance(value, list | tuple):
        return (tuple if origin is tuple else list)(_fit(item, inner[0]) for item in value)
    elif origin in (dict, Mapping) and isinstance(value, Mapping):
        for key, item in value.items():
            _fit(key, inner[0])
            _fit(item, inner[1])
        return value
    elif annotation in (int, float):
        if is_number(value) and (annotation is float or isinstance(value, int)):
            return annotation(value)
    elif isinstance(annotation, type) and isinstance(value, annotation):
        return value
    raise ValueError


def describe(annotation: Any) -> str:
    """An annotation in words, for errors and for `scaling explain`."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if is_recipe(annotation):
        return "a piece" + (" or null" if type(None) in inner else "")
    if origin in _UNIONS:
        return " or ".join(describe(choice) for choice in inner)
    if origin is Literal:
        return "one of " + ", ".join(map(str, inner))
    if origin is Annotated:
        ranges = (bounds for bounds in inner[1:] if isinstance(bounds, Range))
        return next((bounds.of(describe(inner[0])) for bounds in ranges), describe(inner[0]))
    if origin in (list, tuple, Sequence):
        return f"a list of {describe(inner[0]) if inner else 'anything'}"
    if origin in (dict, Mapping):
        return "keys with values"
    if annotation is type(None):
        return "null"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Any: "anything"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def is_recipe(annotation: Any) -> bool:
    """Whether an annotation is the recipe of another slot."""
    choices = typing.get_args(annotation) if typing.get_origin(annotation) in (*_UNIONS, Annotated) else (annotation,)
    return any(choice in (Recipe, Checked) for choice in choices)
