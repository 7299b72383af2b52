"""Explain a name: a slot, a kind, a section, a key, a law, a file that is shipped, or a command."""

from __future__ import annotations

import ast
import html
import inspect
import json
import re
import textwrap
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.errors import ScalingError, nearest

if TYPE_CHECKING:
    from scaling.law import Form

WIDTH = 100
_CITED = re.compile(r"(?P<formula>.*\S)\s*\((?P<citation>[^()]*(?:\([^()]*\)[^()]*)*\d{4}[^()]*)\)\.?", re.DOTALL)


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a name means. Printed, it is what `scaling explain` prints; `document` is what it prints under `--json`."""

    document: dict[str, Any]
    text: str

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling explain --json` (docs/json.md)."""
        return dict(self.document)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"

    def __repr__(self) -> str:
        return self.text


def explain(name: str | None = None, extend: str | None = None) -> Explanation:
    """What a name means: a slot, a kind, a section of a config, a law, a key of a file, a shipped file, or a command.

    Without a name, every slot with its kinds. `extend` is a .py file whose classes join the slots they name.

        scaling.explain("position")
    """
    from scaling import build

    if extend is not None:
        build.extend(extend)
    if name is None:
        slots = {slot: sorted(build.kinds(slot)) for slot in build.SLOTS}
        return Explanation(slots, "\n".join(_list_text(slot, kinds) for slot, kinds in slots.items()))
    return Explanation(*_explained(name))


def _explained(name: str) -> tuple[dict[str, Any], str]:
    """What a name means, as a document and as text: a section, a topic, a slot, a kind or a law, in this order."""
    from scaling import build
    from scaling.config import FIXED

    if name in FIXED:
        document = _section(name)
        return document, "\n".join(_rows(document["keys"]))
    if name in _TOPICS:
        return _TOPICS[name]()
    last = name.rpartition(".")[2]
    if last in build.SLOTS:
        kinds = [_kind(piece) for piece in build.kinds(last).values()]
        return {"slot": last, "kinds": kinds}, "\n\n".join(_kind_text(kind) for kind in kinds)
    pieces = _pieces(last)
    if pieces:
        kinds = [{"slots": slots, **_kind(piece)} for piece, slots in pieces.items()]
        return {"kinds": kinds}, "\n\n".join(
            f"{_kind_text(kind)}\n\n  slot: {', '.join(kind['slots'])}" for kind in kinds
        )
    from scaling.api.fit_options import TWO_STEP, law_of
    from scaling.law import laws

    every_law = {**laws(), TWO_STEP: law_of(TWO_STEP)}
    if name.lower() in every_law:
        document = _law(every_law[name.lower()])
        return document, _law_text(document)
    for meaning in (_field, _shipped, _command):
        if (explained := meaning(name)) is not None:
            return explained
    every = [*build.SLOTS, *FIXED, *_TOPICS, *every_law, *(kind for slot in build.SLOTS for kind in build.kinds(slot))]
    what = "slot" if last != name else "slot, kind, section or law"  # a dotted key ends in a slot
    raise ScalingError(f"there is no {what} {last!r}", fix=nearest(last, every))


def _pieces(name: str) -> dict[type, list[str]]:
    """The kinds of that name, whatever its capitals, each with the slots that take it."""
    from scaling import build

    pieces: dict[type, list[str]] = {}
    for slot in build.SLOTS:
        for kind, piece in build.kinds(slot).items():
            if kind.lower() == name.lower():
                pieces.setdefault(piece, []).append(slot)
    return pieces


def _sizes() -> tuple[dict[str, Any], str]:
    from scaling.build import describe
    from scaling.config import document, shipped
    from scaling.shape import MEANINGS, SIZES

    keys = {key: {"type": describe(SIZES[key]), "meaning": MEANINGS[key]} for key in SIZES}
    folder = shipped() / "size"
    named = {file.stem: list(document(file).tree) for file in sorted(folder.glob("*.yaml"))}
    lines = [*_rows(keys), "", "named as FAMILY/SIZE; of the ladder the name of the size is enough:", ""]
    text = "\n".join([*lines, *(_list_text(family, entries) for family, entries in named.items())])
    return {"section": "size", "keys": keys, "named": named}, text


def _laws() -> tuple[dict[str, Any], str]:
    from scaling.law import laws

    documents = [_law(law) for law in laws().values()]
    rows = [[law["law"], law["formula"], law["citation"]] for law in documents]
    return {"laws": documents}, "\n".join(_aligned(rows))


def _law(law: Form) -> dict[str, Any]:
    parameters = {
        parameter.name: {"unit": parameter.unit, "lower": parameter.lower, "upper": parameter.upper}
        for parameter in law.parameters
    }
    columns = list(law.inputs)
    return {
        "law": law.name,
        "formula": law.formula,
        "citation": law.citation,
        "columns": columns,
        "target": law.target,
        "parameters": parameters,
    }


def _law_text(law: dict[str, Any]) -> str:
    rows = [[name, row["unit"]] for name, row in law["parameters"].items()]
    columns = f"of the columns {', '.join(law['columns'])}; parameters:"
    lines = [law["law"], *_wrapped(law["formula"]), *_wrapped(law["citation"]), "", f"  {columns}"]
    return "\n".join([*lines, *(f"  {row}" for row in _aligned(rows))])


def _study() -> tuple[dict[str, Any], str]:
    from scaling.studies.fields import KEYS, NEEDED

    keys = {key: {"needed": key in NEEDED, "meaning": meaning} for key, meaning in KEYS.items()}
    rows = _aligned([[key, "needed" if row["needed"] else "", row["meaning"]] for key, row in keys.items()])
    return {"file": "study", "keys": keys}, "\n".join(rows)


def _sweep() -> tuple[dict[str, Any], str]:
    from scaling.build import describe
    from scaling.sweeps.file import KEYS, NEEDED

    keys = {
        key: {"type": describe(KEYS[key]), "needed": key in NEEDED, "meaning": NEEDED.get(key)} for key in sorted(KEYS)
    }
    rows = [[key, row["type"], "needed" if row["needed"] else "", row["meaning"] or ""] for key, row in keys.items()]
    return {"file": "sweep", "keys": keys}, "\n".join(_aligned(rows))


def _table() -> tuple[dict[str, Any], str]:
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


def _field(name: str) -> tuple[dict[str, Any], str] | None:
    """A key of a study's, a sweep's or a table's file."""
    files = {file: explained()[0]["keys"] for file, explained in _FILES.items()}
    rows = {
        file: row for file, keys in files.items() for key, row in keys.items() if name in (key, key.rpartition(".")[2])
    }
    lines = [f"{name}: of a {file}'s file{'; needed' if row.get('needed') else ''}" for file, row in rows.items()]
    meanings = [row.get("meaning") or row.get("type", "") for row in rows.values()]
    text = "\n".join(f"{line}\n  {meaning}" for line, meaning in zip(lines, meanings, strict=True))
    return ({"key": name, "files": rows}, text) if rows else None


def _shipped(name: str) -> tuple[dict[str, Any], str] | None:
    """The shipped files of a name, each with the comment at its head."""
    from scaling.config import shipped

    last = name.rpartition("/")[2]
    paths = [path for path in sorted(shipped().glob(f"*/{last}.yaml")) if name in (last, f"{path.parent.name}/{last}")]
    files = [
        {"group": path.parent.name, "file": f"configs/{path.parent.name}/{path.name}", "comment": _comment(path)}
        for path in paths
    ]
    text = "\n".join(
        "\n".join([f"{file['group']} {last}: {file['file']}", *_wrapped(file["comment"])]) for file in files
    )
    return ({"name": name, "shipped": files}, text) if files else None


def _comment(path: Path) -> str:
    """The comment at the head of a file, as one paragraph."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))


def _command(name: str) -> tuple[dict[str, Any], str] | None:
    """A command, by the first line of what it prints under `--help`; its file is read as text, not imported."""
    module = name.replace("-", "_")
    path = Path(__file__).parents[1] / "command" / f"{module}.py"
    if not module.isidentifier() or name == "__init__" or not path.is_file():
        return None
    meaning = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return {"command": name, "meaning": meaning}, f"scaling {name}: {meaning}\n  scaling {name} --help"


def _rows(keys: dict[str, dict[str, Any]]) -> list[str]:
    return _aligned([[key, *map(str, row.values())] for key, row in keys.items()])


def _kind(piece: type) -> dict[str, Any]:
    """A class: the docstring's formula and citation, and the keyword arguments as keys."""
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
    """The keys of a section, each with its default and its comment in defaults.yaml."""
    from scaling.config import document, shipped

    path = shipped() / "defaults.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = {}
    defaults = document(path)
    for key, place in defaults.origin.items():
        if key.startswith(f"{name}.") or (key == name and not isinstance(defaults[key], dict)):
            comment = lines[int(place.rpartition(":")[2]) - 1].partition(" # ")[2].strip()
            rows[key] = {"default": defaults[key], "meaning": comment}
    return {"section": name, "keys": rows}


def _kind_text(kind: dict[str, Any]) -> str:
    lines = [kind["kind"], *_wrapped(kind["formula"])]
    if kind["citation"]:
        lines += _wrapped(kind["citation"])
    if kind["notes"]:
        lines += ["", *textwrap.indent(kind["notes"], "  ").splitlines()]
    rows = [
        [key, row["type"], "needed" if row["needed"] else json.dumps(row["default"], default=str)]
        for key, row in kind["keys"].items()
    ]
    return "\n".join([*lines, *([""] if rows else []), *(f"  {row}" for row in _aligned(rows))])


def _list_text(slot: str, kinds: list[str]) -> str:
    return textwrap.fill(", ".join(kinds), WIDTH, initial_indent=f"{slot:<16}", subsequent_indent=" " * 16)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
