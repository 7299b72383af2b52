"""What a name in a config means: a slot and its kinds, each with its formula, its keys, and the paper it comes from.

scaling explain                      every slot with its kinds
scaling explain block.channel        the kinds of one slot
scaling explain Rotary               one kind
scaling explain train                the keys of a section that holds no pieces
scaling explain size                 the keys of a size, and the sizes that have names
scaling explain law                  every scaling law, as `law:` of a study and `scaling fit --law` name them
scaling explain chinchilla           one law, with its parameters
scaling explain study                the keys of a study's file
scaling explain sweep                the keys of a sweep's file
scaling explain table                the keys of a table's file
scaling explain held_out             one key of a study, a sweep or a table
scaling explain quickstart           a shipped study, table, model, size or data set, or a command
scaling explain mixer --extend my.py with the kinds of a module of yours among them
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import textwrap
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.errors import ScalingError, nearest

if TYPE_CHECKING:
    from scaling.law import Form

WIDTH = 100
_CITED = re.compile(r"(?P<formula>.*\S)\s*\((?P<citation>[^()]*(?:\([^()]*\)[^()]*)*\d{4}[^()]*)\)\.?", re.DOTALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="a slot, a dotted key that ends in one, a kind, a section, a law"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling import build

    if arguments.name is None:
        document: Any = {slot: sorted(build.kinds(slot)) for slot in build.SLOTS}
        text = "\n".join(_listed(slot, kinds) for slot, kinds in document.items())
    else:
        document, text = _explained(arguments.name)
    print(json.dumps(document, indent=2, ensure_ascii=False) if arguments.json else text)


def _explained(name: str) -> tuple[Any, str]:
    """What a name means, as a document and as text: a section, a topic, a slot, a kind or a law, in this order."""
    from scaling import build
    from scaling.config.layers import FIXED

    if name in FIXED:
        document = _section(name)
        return document, "\n".join(_rows(document["keys"]))
    if name in _TOPICS:
        return _TOPICS[name]()
    last = name.rpartition(".")[2]
    if last in build.SLOTS:
        kinds = [_kind(piece) for piece in build.kinds(last).values()]
        return {"slot": last, "kinds": kinds}, "\n\n".join(_told(kind) for kind in kinds)
    pieces = _pieces(last)
    if pieces:
        kinds = [{"slots": slots, **_kind(piece)} for piece, slots in pieces.items()]
        return {"kinds": kinds}, "\n\n".join(f"{_told(kind)}\n\n  slot: {', '.join(kind['slots'])}" for kind in kinds)
    from scaling.law import laws

    known = laws()
    if name.lower() in known:
        document = _law(known[name.lower()])
        return document, _law_told(document)
    for explained in (_field, _shipped, _command):
        if (answer := explained(name)) is not None:
            return answer
    every = [*build.SLOTS, *FIXED, *_TOPICS, *known, *(kind for slot in build.SLOTS for kind in build.kinds(slot))]
    what = "slot" if last != name else "slot, kind, section or law"  # a dotted key ends in a slot
    raise ScalingError(f"there is no {what} {last!r}", mend=nearest(last, every))


def _pieces(name: str) -> dict[type, list[str]]:
    """The kinds of that name, whatever its capitals, each with the slots that take it."""
    from scaling import build

    pieces: dict[type, list[str]] = {}
    for slot in build.SLOTS:
        for kind, piece in build.kinds(slot).items():
            if kind.lower() == name.lower():
                pieces.setdefault(piece, []).append(slot)
    return pieces


def _sizes() -> tuple[Any, str]:
    from scaling.build import describe
    from scaling.config import read, shipped
    from scaling.shape import MEANINGS, SIZES

    keys = {key: {"type": describe(SIZES[key]), "meaning": MEANINGS[key]} for key in SIZES}
    folder = shipped() / "size"
    named = {file.stem: list(read(file).mapping or {}) for file in sorted(folder.glob("*.yaml"))}
    lines = [*_rows(keys), "", "named as FAMILY/SIZE; of the ladder the name of the size is enough:", ""]
    text = "\n".join([*lines, *(_listed(family, entries) for family, entries in named.items())])
    return {"section": "size", "keys": keys, "named": named}, text


def _laws() -> tuple[Any, str]:
    from scaling.law import laws

    documents = [_law(law) for law in laws().values()]
    rows = [[law["law"], law["formula"], law["citation"]] for law in documents]
    return {"laws": documents}, "\n".join(_aligned(rows))


def _law(law: Form) -> dict[str, Any]:
    parameters = {one.name: {"unit": one.unit, "lower": one.lower, "upper": one.upper} for one in law.parameters}
    columns = list(law.inputs)
    return {
        "law": law.name,
        "formula": law.formula,
        "citation": law.citation,
        "columns": columns,
        "target": law.target,
        "parameters": parameters,
    }


def _law_told(law: dict[str, Any]) -> str:
    rows = [[name, row["unit"]] for name, row in law["parameters"].items()]
    columns = f"of the columns {', '.join(law['columns'])}; parameters:"
    lines = [law["law"], *_wrapped(law["formula"]), *_wrapped(law["citation"]), "", f"  {columns}"]
    return "\n".join([*lines, *(f"  {row}" for row in _aligned(rows))])


def _study() -> tuple[Any, str]:
    from scaling.studies.fields import KEYS, NEEDED

    keys = {key: {"needed": key in NEEDED, "meaning": meaning} for key, meaning in KEYS.items()}
    rows = _aligned([[key, "needed" if row["needed"] else "", row["meaning"]] for key, row in keys.items()])
    return {"file": "study", "keys": keys}, "\n".join(rows)


def _sweep() -> tuple[Any, str]:
    from scaling.build import describe
    from scaling.sweeps.file import KEYS, NEEDED

    keys = {
        key: {"type": describe(KEYS[key]), "needed": key in NEEDED, "meaning": NEEDED.get(key)} for key in sorted(KEYS)
    }
    rows = [[key, row["type"], "needed" if row["needed"] else "", row["meaning"] or ""] for key, row in keys.items()]
    return {"file": "sweep", "keys": keys}, "\n".join(_aligned(rows))


def _table() -> tuple[Any, str]:
    from scaling.build import describe
    from scaling.config import SECTIONS
    from scaling.tables.table import KEYS, MEANINGS

    keys = {
        "base": {"type": "text", "meaning": "a model, or a table whose rows of the same names these are laid over"},
        "rows": {
            "type": "keys with values",
            "meaning": "what each row changes, by its name: {GeLU: {…}, base: {}}",
        },
        **{f"table.{key}": {"type": describe(KEYS[key]), "meaning": MEANINGS[key]} for key in KEYS},
    }
    rows = _aligned([[key, row["type"], row["meaning"]] for key, row in keys.items()])
    every = f"and the sections of a config, for all rows: {', '.join(SECTIONS)}"
    return {"file": "table", "keys": keys, "sections": list(SECTIONS)}, "\n".join([*rows, "", every])


_FILES = {"study": _study, "sweep": _sweep, "table": _table}
_TOPICS = {"size": _sizes, "law": _laws, **_FILES}


def _field(name: str) -> tuple[Any, str] | None:
    """A key of a study's, a sweep's or a table's file."""
    files = {file: explained()[0]["keys"] for file, explained in _FILES.items()}
    rows = {
        file: row for file, keys in files.items() for key, row in keys.items() if name in (key, key.rpartition(".")[2])
    }
    lines = [f"{name}: of a {file}'s file{'; needed' if row.get('needed') else ''}" for file, row in rows.items()]
    meanings = [row.get("meaning") or row.get("type", "") for row in rows.values()]
    text = "\n".join(f"{line}\n  {meaning}" for line, meaning in zip(lines, meanings, strict=True))
    return ({"key": name, "files": rows}, text) if rows else None


def _shipped(name: str) -> tuple[Any, str] | None:
    """The shipped files of a name, each with the comment at its head."""
    from scaling.config import shipped

    last = name.rpartition("/")[2]
    paths = [path for path in sorted(shipped().glob(f"*/{last}.yaml")) if name in (last, f"{path.parent.name}/{last}")]
    files = [
        {"group": path.parent.name, "file": f"configs/{path.parent.name}/{path.name}", "comment": _comment(path)}
        for path in paths
    ]
    text = "\n".join("\n".join([f"{one['group']} {last}: {one['file']}", *_wrapped(one["comment"])]) for one in files)
    return ({"name": name, "shipped": files}, text) if files else None


def _comment(path: Path) -> str:
    """The comment at the head of a file, as one paragraph."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))


def _command(name: str) -> tuple[Any, str] | None:
    """A command, by the first line of what it prints under `--help`."""
    path = Path(__file__).with_name(f"{name}.py")
    if not name.isidentifier() or name == "__init__" or not path.is_file():
        return None
    meaning = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return {"command": name, "meaning": meaning}, f"scaling {name}: {meaning}\n  scaling {name} --help"


def _rows(keys: dict[str, dict[str, Any]]) -> list[str]:
    return _aligned([[key, *map(str, row.values())] for key, row in keys.items()])


def _kind(piece: type) -> dict[str, Any]:
    """A class as its reader wants it: the docstring's formula and citation, and the keyword arguments as keys."""
    from scaling.build import describe, keys

    first, _, rest = (inspect.getdoc(piece) or "").partition("\n\n")
    cited = _CITED.fullmatch(first)
    return {
        "kind": piece.__name__,
        "formula": " ".join((cited["formula"] if cited else first).split()),
        "citation": " ".join(cited["citation"].split()) if cited else None,
        "notes": rest or None,
        "keys": {
            key: {
                "type": describe(parameter.annotation),
                "needed": parameter.default is parameter.empty,
                "default": None if parameter.default is parameter.empty else parameter.default,
            }
            for key, parameter in keys(piece).items()
        },
        "module": piece.__module__,
    }


def _section(name: str) -> dict[str, Any]:
    """The keys of a section with their defaults and what defaults.yaml says of each."""
    from scaling.config import read, shipped

    path = shipped() / "defaults.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = {}
    for key, node in read(path).walk():
        if key.startswith(f"{name}.") or (key == name and node.mapping is None):
            comment = lines[(node.origin.line or 1) - 1].partition(" # ")[2].strip()
            rows[key] = {"default": node.plain(), "meaning": comment}
    return {"section": name, "keys": rows}


def _told(kind: dict[str, Any]) -> str:
    lines = [kind["kind"], *_wrapped(kind["formula"])]
    if kind["citation"]:
        lines += _wrapped(kind["citation"])
    if kind["notes"]:
        lines += ["", *textwrap.indent(kind["notes"], "  ").splitlines()]
    rows = [
        [key, told["type"], "needed" if told["needed"] else json.dumps(told["default"], default=str)]
        for key, told in kind["keys"].items()
    ]
    return "\n".join([*lines, *([""] if rows else []), *(f"  {row}" for row in _aligned(rows))])


def _listed(slot: str, kinds: list[str]) -> str:
    return textwrap.fill(", ".join(kinds), WIDTH, initial_indent=f"{slot:<16}", subsequent_indent=" " * 16)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
