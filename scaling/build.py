"""One YAML line -> one piece: the only factory.

The class is the schema. Its positional arguments are what the assembly shares with every piece of the slot (a shape, a
built sibling); its keyword-only arguments are the keys of its line:

    class Gated(nn.Module):
        def __init__(self, shape: Shape, *, activation: Recipe, bias: bool = False): ...

    block.channel: {kind: Gated, activation: GeLU}

A keyword annotated `Recipe` is the line of another slot, the one of that name; it arrives as a function that takes the
shared arguments of its slot and returns the piece (as `Checked` where other lines are laid over it). One annotated
`Recipes` has lines of its class's own slot, by name. The slot's public classes are the registry.
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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from scaling import slots
from scaling.errors import ScalingError, nearest, under
from scaling.number import Range, is_number

Recipe = Callable[..., Any]
Recipes = Mapping[str, Recipe]
Line = str | Mapping[str, Any]
Registry = Callable[[str], Mapping[str, type]]  # the kinds of a slot

SLOTS = slots.MODULES

OPTIONAL = ("tuning",)
"""Sections of a config that may be null."""

LAW = "law"
"""The slot of scaling laws, which a class joins by `extend`; no line of a config names one (`scaling.law.forms`)."""

_joined: dict[str, dict[str, type]] = {}
_extensions: dict[str, None] = {}  # the files that `extend` has read, in their order


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


def recipe(slot: str, line: Line, registry: Registry | None = None) -> Checked:
    """`line`, checked whole, waiting for the shared arguments of its slot; a `registry` takes the place of `kinds`."""
    registry = registry or kinds
    kind, given = _split(slot, line, registry)
    registered = registry(slot)
    if not isinstance(kind, str):
        raise ScalingError("a kind is a name", key="kind", value=kind, fix=nearest("", registered))
    if kind not in registered:
        raise ScalingError(f"{slot} has no such kind", key="kind", value=kind, fix=nearest(kind, registered))
    schema = keys(registered[kind])
    for key in given:
        if key not in schema:
            raise ScalingError(f"{kind} has no such key", key=str(key), fix=nearest(str(key), schema))
    arguments = {}
    for key, parameter in schema.items():
        if key in given:
            arguments[key] = _argument(slot, key, given[key], parameter.annotation, registry)
        elif parameter.default is parameter.empty:
            raise ScalingError(f"{kind} needs it", key=key, fix=f"write {{kind: {kind}, {key}: …}}")
    return Checked(slot, line, registered[kind], arguments)


def kinds(slot: str) -> dict[str, type]:
    """The public classes of a slot by name, with those that joined by `extend`."""
    if slot not in SLOTS:
        raise ScalingError("there is no such slot", value=slot, key="slot", fix=nearest(slot, SLOTS))
    return {**_public(SLOTS[slot]), **joined(slot)}


def joined(slot: str) -> dict[str, type]:
    """The classes that joined a slot by `extend`."""
    return _joined.get(slot, {})


def keys(kind: type) -> dict[str, inspect.Parameter]:
    """The schema of a class: its keyword-only arguments, annotations resolved."""
    return dict(_keys(kind))


def extend(path: str | Path) -> list[type]:
    """Let the public classes of a user's module join the slots they name in a class attribute `slot`."""
    path = Path(path)
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
    pieces = [
        piece for piece in _classes(module, module.__name__).values() if isinstance(getattr(piece, "slot", None), str)
    ]
    if not pieces:
        raise ScalingError(
            "no class in it names a slot", file=path, fix='give your class an attribute slot = "channel"'
        )
    for piece in pieces:
        slot = piece.slot  # type: ignore[attr-defined]
        if slot != LAW and slot not in SLOTS:
            fix = nearest(slot, [*SLOTS, LAW])
            raise ScalingError("there is no such slot", file=path, key=f"{piece.__name__}.slot", value=slot, fix=fix)
        registered = joined(slot) if slot == LAW else kinds(slot)
        if piece.__name__ in registered and piece.__name__ not in _joined.get(slot, {}):
            raise ScalingError(f"{slot} has a kind {piece.__name__} already", file=path, fix="give yours another name")
        _joined.setdefault(slot, {})[piece.__name__] = piece
    _extensions[str(path.resolve())] = None
    return pieces


def extensions() -> list[str]:
    """The files whose classes have joined by `extend`: what a process that is started for this one has to read too."""
    return list(_extensions)


def overlay(base: Any, over: Any) -> Any:
    """`over` laid on `base`: a node that names a kind replaces, one that does not overlays."""
    if not isinstance(over, Mapping) or "kind" in over:
        return over
    below = {"kind": base} if isinstance(base, str) else base if isinstance(base, Mapping) else {}
    return {**below, **{key: overlay(below.get(key), value) for key, value in over.items()}}


def versions(config: Any) -> dict[str, int]:
    """The version of every kind that a config names, so that fixing a piece gives its runs another identity.

    A `version` is a number, or a function of the config where a fix changed what some configs compute and not others.
    A kind of version 0 is left out: lines that name it were no pieces when runs with them were made.
    """
    numbers: dict[str, int] = {}
    for node in nodes(config):
        for slot, value in node.items():
            if slot in SLOTS and isinstance(value, str | Mapping):
                kind = value if isinstance(value, str) else value.get("kind")
                piece = kinds(slot).get(kind) if isinstance(kind, str) else None
                if piece is not None:
                    version = getattr(piece, "version", 1)
                    numbers[f"{slot}.{kind}"] = version if isinstance(version, int) else version(config)
    return {name: number for name, number in numbers.items() if number}


def nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Every mapping of a tree of plain values, from the top."""
    if isinstance(tree, Mapping):
        yield tree
    if isinstance(tree, Mapping | Sequence) and not isinstance(tree, str):
        for value in tree.values() if isinstance(tree, Mapping) else tree:
            yield from nodes(value)


def _split(slot: str, line: Line, registry: Registry) -> tuple[Any, dict[str, Any]]:
    if isinstance(line, str):
        return line, {}
    if not isinstance(line, Mapping) or "kind" not in line:
        raise ScalingError(f"{slot} needs a kind", value=line, fix=nearest("", registry(slot)))
    given = dict(line)
    return given.pop("kind"), given


def _argument(slot: str, key: str, value: Any, annotation: Any, registry: Registry) -> Any:
    """`value` as the annotation requires: a checked plain value, or the recipe of another slot, or some of this one."""
    if annotation == Recipes:
        recipes = {}
        for name, line in check(key, value, Mapping[str, Any]).items():
            with under(f"{key}.{name}"):
                recipes[name] = recipe(slot, line, registry)
        return recipes
    if is_recipe(annotation):
        if value is None and type(None) in typing.get_args(annotation):
            return None
        if value is None:
            raise ScalingError(f"{key} needs a kind", key=key, value=None, fix=nearest("", registry(key)))
        with under(key):
            return recipe(key, value, registry)
    return check(key, value, annotation)


def check(key: str, value: Any, annotation: Any) -> Any:
    """`value` if it has the required type (an int is accepted for a float), else an error of one line."""
    fits, result = _fit(value, annotation)
    if not fits:
        fix = None
        if typing.get_origin(annotation) is Literal and isinstance(value, str):
            fix = nearest(value, [str(choice) for choice in typing.get_args(annotation)])
        raise ScalingError(f"expected {_expected(value, annotation)}", key=key, value=value, fix=fix)
    return result


def check_fields(piece: Any) -> None:
    """Refuse a piece that was made without `build` and holds what `build` would refuse."""
    for key, parameter in keys(type(piece)).items():
        check(key, getattr(piece, key), parameter.annotation)


def _expected(value: Any, annotation: Any) -> str:
    """What was expected: the range too where the value is a number, and one that is not finite as such."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{describe(annotation)}, and a finite one"
    number = isinstance(value, int | float) and typing.get_origin(annotation) is Annotated
    return describe(annotation if number or _fit(value, plain(annotation))[0] else plain(annotation))


def plain(annotation: Any) -> Any:
    """An annotation without its ranges."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return plain(inner[0])
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(plain, inner))]  # noqa: UP007 (of a number of types that is not known)
    return list[plain(inner[0])] if origin is list and inner else annotation


def _fit(value: Any, annotation: Any) -> tuple[bool, Any]:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or annotation is inspect.Parameter.empty:
        return True, value
    if origin in (typing.Union, types.UnionType):
        for choice in inner:
            fits, result = _fit(value, choice)
            if fits:
                return True, result
        return False, None
    if origin is Literal:
        return value in inner and type(value) in {type(choice) for choice in inner}, value
    if origin is Annotated:
        fits, result = _fit(value, inner[0])
        return fits and all(result in bounds for bounds in inner[1:] if isinstance(bounds, Range)), result
    if annotation is type(None) or annotation is None:
        return value is None, None
    if origin in (list, tuple, Sequence):
        if not isinstance(value, list | tuple):
            return False, None
        parts = [_fit(item, inner[0] if inner else Any) for item in value]
        return all(fits for fits, _ in parts), (origin if origin is tuple else list)(result for _, result in parts)
    if origin in (dict, Mapping) or annotation in (dict, Mapping):
        if not isinstance(value, Mapping):
            return False, None
        return all(_fit(part, to)[0] for pair in value.items() for part, to in zip(pair, inner)), value
    if annotation is float:
        return is_number(value), float(value) if is_number(value) else None
    if annotation is int:
        return is_number(value) and isinstance(value, int), value
    if isinstance(annotation, type):
        return isinstance(value, annotation), value
    return False, None


def describe(annotation: Any) -> str:
    """An annotation in words, for errors and for `scaling explain`."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if is_recipe(annotation):
        return "a piece" + (" or null" if type(None) in inner else "")
    if origin in (typing.Union, types.UnionType):
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
    recipes = (Recipe, Checked)
    either = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return annotation in recipes or (either and any(argument in recipes for argument in typing.get_args(annotation)))


@cache
def _public(module: str) -> dict[str, type]:
    return _classes(importlib.import_module(module), module)


def _classes(module: types.ModuleType, home: str) -> dict[str, type]:
    """The classes a module shows, in the order it shows them: its own, and for a package those of its files."""
    classes = {}
    for name, value in vars(module).items():
        is_public = isinstance(value, type) and not name.startswith("_") and value.__module__.startswith(home)
        if is_public and not getattr(value, "_is_protocol", False):
            classes[name] = value
    return classes


@cache
def _keys(kind: type) -> tuple[tuple[str, inspect.Parameter], ...]:
    signature = inspect.signature(kind, eval_str=True)
    return tuple((name, p) for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY)
