"""What can stand in a slot: its kinds, each with its formula, its keys, and the paper it comes from.

scaling explain                      every slot with its kinds
scaling explain block.channel        the kinds of one slot
scaling explain train                the keys of a section that holds no pieces
scaling explain mixer --extend my.py with the kinds of a module of yours among them
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import textwrap
from typing import Any

from scaling.errors import ScalingError, nearest

WIDTH = 100
_CITED = re.compile(r"(?P<formula>.*\S)\s*\((?P<citation>[^()]*(?:\([^()]*\)[^()]*)*\d{4}[^()]*)\)\.?", re.DOTALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("slot", nargs="?", metavar="SLOT", help="a slot, a dotted key that ends in one, or a section")
    parser.add_argument("--extend", metavar="PATH", help="a .py file whose classes join the slots they name")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling import build
    from scaling.config.layers import FIXED

    if arguments.extend:
        build.extend(arguments.extend)
    if arguments.slot is None:
        document: Any = {slot: sorted(build.kinds(slot)) for slot in build.SLOTS}
        told = "\n".join(_listed(slot, kinds) for slot, kinds in document.items())
    elif arguments.slot in FIXED:
        document = _section(arguments.slot)
        told = "\n".join(_aligned([[key, *map(str, row.values())] for key, row in document["keys"].items()]))
    else:
        slot = arguments.slot.rpartition(".")[2]
        if slot not in build.SLOTS:
            raise ScalingError(f"there is no slot {slot!r}", mend=nearest(slot, [*build.SLOTS, *FIXED]))
        document = {"slot": slot, "kinds": [_kind(piece) for piece in build.kinds(slot).values()]}
        told = "\n\n".join(_told(kind) for kind in document["kinds"])
    print(json.dumps(document, indent=2, ensure_ascii=False) if arguments.json else told)


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
