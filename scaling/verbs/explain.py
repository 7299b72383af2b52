"""Explain a name: a slot, a kind, a section, a key, a law, a file that is shipped, or a command."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from inspect import getdoc
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.base.errors import ScalingError, nearest
from scaling.base.printing import columns
from scaling.config import schema
from scaling.config.compose import FIXED, SECTIONS, shipped
from scaling.config.compose import document as read_document
from scaling.config.schema import describe
from scaling.config.shape import SIZES
from scaling.verbs.verb import VERBS, Result, verb

if TYPE_CHECKING:
    from scaling.laws import Law

WIDTH = 100
FILES = ("study", "sweep", "table")
_CITED = re.compile(r"(?P<formula>.*\S)\s*\((?P<citation>[^()]*(?:\([^()]*\)[^()]*)*\d{4}[^()]*)\)\.?", re.DOTALL)


@verb
def explain(name: str | None = None) -> Result:
    """Explain a name of a config: slots and kinds with formulas, keys and citations; sections, laws, files, commands.

        scaling explain                      every slot with its kinds
        scaling explain block.channel        the kinds of one slot
        scaling explain Rotary               one kind
        scaling explain train                the keys of a section that holds no pieces; also size
        scaling explain law                  every scaling law, as `law:` of a study and `scaling fit --law` name them
        scaling explain chinchilla           one law, with its parameters
        scaling explain study                the keys of a study's file; also sweep, table
        scaling explain held_out             one key of a study, a sweep or a table
        scaling explain quickstart           a shipped study, table, model, size or data set, or a command
        scaling explain mixer --extend my.py   with the kinds of a module of yours among them

    Args:
        name: a slot, a dotted key that ends in one, a kind, a section, a key, a law, a shipped file, a command
    """
    document = {slot: sorted(schema.kinds(slot)) for slot in schema.SLOTS} if name is None else _document(name)
    return Result(document, ["\n".join(_lines(document)).strip("\n")])


def _document(name: str) -> dict[str, Any]:
    from scaling.laws import laws
    from scaling.laws.written import TWO_STEP, law_of

    every_law: dict[str, Any] = {**laws(), TWO_STEP: law_of(TWO_STEP)}
    files, kinds, last = _files(), {slot: schema.kinds(slot) for slot in schema.SLOTS}, name.rpartition(".")[2]
    if name in FIXED:
        return _section(name)
    if name in files:
        return files[name]
    if name == "law":
        return {"laws": [_law(law) for law in laws().values()]}
    if last in kinds:
        return {"slot": last, "kinds": [_kind(piece) for piece in kinds[last].values()]}
    slots: dict[type, list[str]] = {}
    for slot in kinds:
        for piece in (piece for kind, piece in kinds[slot].items() if kind.lower() == last.lower()):
            slots.setdefault(piece, []).append(slot)
    if slots:
        return {"kinds": [{"slots": slots[piece], **_kind(piece)} for piece in slots]}
    if name.lower() in every_law:
        return _law(every_law[name.lower()])
    keys = [(file, key, row) for file in FILES for key, row in files[file]["keys"].items()]
    if rows := {file: row for file, key, row in keys if name in (key, key.rpartition(".")[2])}:
        return {"key": name, "files": rows}
    shown = [
        {"group": path.parent.name, "file": f"configs/{path.parent.name}/{path.name}", "comment": comment(path)}
        for path in sorted(shipped().glob("*/*.yaml"))
        if name in (path.stem, f"{path.parent.name}/{path.stem}")
    ]
    if shown:
        return {"name": name, "shipped": shown}
    if name in VERBS:
        return {"command": name, "help": f"scaling {name} --help"}
    what = "slot" if last != name else "slot, kind, section or law"  # a dotted key ends in a slot
    fix = nearest(last, [*kinds, *FIXED, "law", *files, *every_law, *(kind for slot in kinds for kind in kinds[slot])])
    raise ScalingError(f"there is no {what} {last!r}", fix=fix)


def _section(name: str) -> dict[str, Any]:
    """The keys of a section, each with its default and its comment in defaults.yaml."""
    path = shipped() / "defaults.yaml"
    lines, defaults = path.read_text(encoding="utf-8").splitlines(), read_document(path)
    rows = {
        key: {"default": defaults[key], "meaning": lines[int(place.rpartition(":")[2]) - 1].partition(" # ")[2].strip()}
        for key, place in defaults.origin.items()
        if key.startswith(f"{name}.") or (key == name and not isinstance(defaults[key], dict))
    }
    return {"section": name, "keys": rows}


def _files() -> dict[str, dict[str, Any]]:
    """The keys of a size, and of a study's, a sweep's and a table's file."""
    from scaling.studies import question
    from scaling.sweeps import file
    from scaling.tables import table

    size = {key: {"type": describe(kind), "meaning": kind.__metadata__[-1]} for key, kind in SIZES.items()}
    named = {path.stem: list(read_document(path).tree) for path in sorted((shipped() / "size").glob("*.yaml"))}
    study = {key: {"needed": key in question.NEEDED, "meaning": meaning} for key, meaning in question.KEYS.items()}
    sweep = {
        key: {"type": describe(kind), "needed": key in file.NEEDED, "meaning": file.NEEDED.get(key)}
        for key, kind in sorted(file.KEYS.items())
    }
    base = "a model, or a table whose rows of the same names these are laid over"
    rows = "what each row changes, by its name: {GeLU: {…}, base: {}}"
    columns = {"base": {"type": "text", "meaning": base}, "rows": {"type": "keys with values", "meaning": rows}}
    for key, kind in table.KEYS.items():
        columns[f"table.{key}"] = {"type": describe(kind), "meaning": table.MEANINGS[key]}
    meaning = "a size is named as FAMILY/SIZE; of the ladder the name of the size is enough"
    return {
        "size": {"section": "size", "meaning": meaning, "keys": size, "named": named},
        "study": {"file": "study", "keys": study},
        "sweep": {"file": "sweep", "keys": sweep},
        "table": {"file": "table", "keys": columns, "sections": list(SECTIONS)},
    }


def _law(law: Law) -> dict[str, Any]:
    document = {"law": law.name, "formula": law.formula, "citation": law.citation}
    bounds = {each.name: {key: getattr(each, key) for key in ("unit", "lower", "upper")} for each in law.parameters}
    return {**document, "columns": list(law.inputs), "target": law.target, "parameters": bounds}


def _kind(piece: type) -> dict[str, Any]:
    """A class: the docstring's formula and citation, and the keyword arguments as keys."""
    first, _, rest = (getdoc(piece) or "").partition("\n\n")
    cited = _CITED.fullmatch(first)
    return {
        "kind": piece.__name__,
        "formula": " ".join((cited["formula"] if cited else first).split()),
        "citation": " ".join(cited["citation"].split()) if cited else None,
        "notes": rest or None,
        "module": piece.__module__,
        "keys": {
            key: {
                "type": describe(parameter.annotation),
                "needed": parameter.default is parameter.empty,
                "default": None if parameter.default is parameter.empty else parameter.default,
            }
            for key, parameter in schema.keys(piece).items()
        },
    }


def comment(path: Path) -> str:
    """The comment at the head of a file, as one paragraph."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    """A document for people: texts under their names, rows of keys as tables, kinds one after another."""
    width = max(map(len, document)) + 2
    for name, value in document.items():
        if name == "laws":
            value = {law["law"]: {key: law[key] for key in ("formula", "citation")} for law in value}
        if isinstance(value, list) and isinstance(value[0], Mapping):
            for each in value:
                yield from ("", *_lines(each))
        elif isinstance(value, Mapping) and all(isinstance(row, Mapping) for row in value.values()):
            titles = list(dict.fromkeys(title for row in value.values() for title in row))
            rows = [[key, *(_cell(row, title) for title in titles)] for key, row in value.items()]
            yield from ["", columns([name.rstrip("s"), *titles], rows), ""] if rows else ()
        elif isinstance(value, Mapping):
            yield from _lines(value)
        elif value is not None:
            text = ", ".join(value) if isinstance(value, list) else value
            paragraphs = text.splitlines() if name == "notes" else textwrap.wrap(text, WIDTH - width)
            yield textwrap.indent("\n".join(paragraphs), " " * width).replace(" " * width, f"{name:<{width}}", 1)


def _cell(row: Mapping[str, Any], title: str) -> str:
    value = row.get(title)
    if title == "default":
        return "" if row.get("needed") else json.dumps(value, default=str)
    return str(value or "") if title != "needed" else "needed" * bool(value)
