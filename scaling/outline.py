"""Outline: the schema of a slot's classes, read from their source. Nothing that a piece needs is imported for it, torch
least of all, so a misspelt key is refused at once.

What the source does not show (a type under another name) is left to `build`, which refuses it with the same message.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from scaling import build, number

PACKAGE = Path(__file__).parent
_KNOWN = {**vars(builtins), **vars(number), **vars(build)}  # the names that an annotation is made of


def check(slot: str, line: build.Line) -> None:
    """Refuse what `build` would refuse of a line by its kinds, keys and plain values."""
    build.recipe(slot, line, kinds)


def kinds(slot: str) -> dict[str, type]:
    """Substitutes for the public classes of a slot: their names and signatures alone."""
    shown = {name: _stand_in(*place) for name, place in _shown(build.SLOTS[slot], build.SLOTS[slot]).items()}
    return {**shown, **build.joined(slot)}


def parts(slot: str) -> set[str]:
    """The keys under which kinds of a slot have further lines of it, by name."""
    schemas = map(build.keys, kinds(slot).values())
    return {key for schema in schemas for key, parameter in schema.items() if parameter.annotation == build.Recipes}


@cache
def _stand_in(module: str, name: str) -> type:
    return type(name, (), {"__signature__": inspect.Signature(_keys(module, name))})


@cache
def _shown(module: str, home: str) -> dict[str, tuple[str, str]]:
    """The module and the name of every public class that a module shows, of those defined under `home`."""
    shown = {}
    for name in _names(module):
        place = _defined(module, name)
        if place is not None and place[0].startswith(home) and not name.startswith("_") and not _is_protocol(*place):
            shown[name] = place
    return shown


def _keys(module: str, name: str) -> list[inspect.Parameter]:
    """The keyword-only arguments of a class, from its `__init__`, its fields, or the class it is based on."""
    own = _class(module, name)
    init = next((part for part in own.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)
    if init is not None:
        pairs = zip(init.args.kwonlyargs, init.args.kw_defaults)
        return [_parameter(node.arg, node.annotation, default is not None) for node, default in pairs]
    bases = [place for base in own.bases if isinstance(base, ast.Name) and (place := _defined(module, base.id))]
    above = [parameter for place in bases for parameter in _keys(*place)]
    if not any("dataclass" in ast.unparse(node) for node in own.decorator_list):
        return above
    # A field that is declared again keeps its place and takes the new default, as in the dataclass itself.
    return list({parameter.name: parameter for parameter in (*above, *_fields(own))}.values())


def _fields(node: ast.ClassDef) -> Iterator[inspect.Parameter]:
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and "ClassVar" not in ast.unparse(part.annotation):
            yield _parameter(ast.unparse(part.target), part.annotation, part.value is not None)


def _parameter(name: str, annotation: ast.expr | None, has_default: bool) -> inspect.Parameter:
    default = None if has_default else inspect.Parameter.empty
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_type(annotation))


def _type(annotation: ast.expr | None) -> Any:
    """The type that an annotation means, where it is made of the names that `build` and `number` know."""
    try:
        return Any if annotation is None else _meaning(annotation)
    except (LookupError, TypeError):
        return Any


def _meaning(node: ast.expr) -> Any:
    """What an expression of types means, without running it: a LookupError where a name or a form is unknown."""
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return _KNOWN[name]
        case ast.Tuple(parts) | ast.List(parts):
            return tuple(map(_meaning, parts))
        case ast.BinOp(left, ast.BitOr(), right):
            return _meaning(left) | _meaning(right)
        case ast.Subscript(value, index):
            return _meaning(value)[_meaning(index)]
        case ast.Call(value, arguments, keywords) if _meaning(value) is number.Range:
            named = {word.arg: _meaning(word.value) for word in keywords if word.arg}
            return number.Range(*map(_meaning, arguments), **named)
    raise LookupError(ast.unparse(node))


def _names(module: str) -> Iterator[str]:
    """What the statements of a module bind that may be a class."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def _defined(module: str, name: str) -> tuple[str, str] | None:
    """The module of ours that defines a class which another one names; None where it is not ours, or no class."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, name
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scaling"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _defined(str(node.module), alias.name)
    return None


def _class(module: str, name: str) -> ast.ClassDef:
    return next(node for node in _tree(module).body if isinstance(node, ast.ClassDef) and node.name == name)


def _is_protocol(module: str, name: str) -> bool:
    return any(ast.unparse(base).partition("[")[0] == "Protocol" for base in _class(module, name).bases)


@cache
def _tree(module: str) -> ast.Module:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))
