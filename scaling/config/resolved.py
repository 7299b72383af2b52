"""A resolved config: plain values, and where each of them was set."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scaling import atomic, schema
from scaling.config.node import COMMAND_LINE, Node
from scaling.config.scalar import quantity, scalar
from scaling.errors import ScalingError, from_os
from scaling.shape import Shape

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
# JSON leaves these as they are; YAML needs them escaped.
_UNPRINTABLE = re.compile("[\x7f-\xa0\ud800-\udfff\u2028\u2029\ufeff\ufffe\uffff]")


@dataclass(frozen=True)
class Config:
    """A document as plain dicts, lists and scalars; `origin` holds `file:line` or `command line` by dotted key.

    `remarks` are for a person to read: what a row or a command line may have changed by half (`pairs.py`), and what a
    command filled in.
    """

    tree: dict[str, Any]
    origin: dict[str, str]
    remarks: tuple[str, ...] = ()

    @staticmethod
    def of(root: Node) -> Config:
        """The plain side of a tree of nodes."""
        return Config(root.plain(), {key: str(node.origin) for key, node in root.walk() if key})

    def __getitem__(self, key: str) -> Any:
        """The value at a dotted key."""
        return _at(self.tree, key)

    def varied(self, values: Mapping[str, Any]) -> Config:
        """The document with other values at dotted keys that it has, as `setting` checks them."""
        tree = dict(self.tree)
        for key, value in values.items():
            *above, last = key.split(".")
            inner = tree
            for part in above:
                inner[part] = dict(inner[part])
                inner = inner[part]
            inner[last] = value
        return replace(self, tree=tree, origin={**self.origin, **dict.fromkeys(values, str(COMMAND_LINE))})

    def error(self, key: str, what: str, fix: str | None = None) -> ScalingError:
        """A mistake at a dotted key, placed where its value, or the nearest node around it, was set."""
        return self.place(ScalingError(what, fix=fix, key=key))

    def place(self, error: ScalingError) -> ScalingError:
        """An error that knows its dotted key, with the file, the line and the value filled in from it."""
        if error.key is None or error.file is not None:
            return error
        around = error.key
        while around and around not in self.origin:
            around = around.rpartition(".")[0]
        if not around:
            return error
        file, _, line = self.origin[around].rpartition(":")
        place = {"file": file, "line": int(line)} if line.isdigit() else {"file": self.origin[around]}
        if around == error.key and not isinstance(value := self[around], dict | list):
            place["value"] = value
        return error.at(**place)

    def build(self, section: str, *shared: Any) -> Any:
        """The piece that a section describes; a mistake in it is reported with its file and line."""
        with self._placed(section):
            return schema.build(section, self.tree[section], *shared)

    def check(self) -> Config:
        """This config, or the mistake in it that signatures and sizes show."""
        for section, line in self.tree.items():
            if section in schema.SLOTS and not (self.tree[section] is None and section in schema.OPTIONAL):
                with self._placed(section):
                    schema.recipe(section, line)
        size = self.tree.get("size", {})
        if not {"encoder", "decoder"} & size.keys():
            with self._placed("size"):
                needed = {"vocabulary": 1} if size.get("vocabulary") is None else {}  # that of the data
                Shape.of({**size, **needed})
        return self

    @contextmanager
    def _placed(self, section: str) -> Iterator[None]:
        """Mistakes in a section, with their file and line."""
        try:
            yield
        except ScalingError as error:
            # A piece names a key of its own line; a shape names one of its section.
            whole = error.key is not None and error.key.partition(".")[0] in self.tree
            raise self.place(error if whole else error.under(section)) from None
        except OSError as error:  # of a file that the section names
            reason = from_os(error, "cannot be read")
            raise self.place(ScalingError(reason.what, fix=reason.fix, key=section, code=reason.code)) from None

    def save(self, path: str | Path) -> None:
        """Write the document as YAML, each value followed by its origin; the file is whole or not there."""
        try:
            atomic.write(Path(path), "".join(f"{line}\n" for line in self._lines()))
        except OSError as error:
            raise from_os(error, f"{path} cannot be written") from None

    def _lines(self) -> Iterator[str]:
        for path in schema.extensions():
            yield f"# with --extend {json.dumps(path)}"
        yield from self._mapping(self.tree, "", 0)

    def _mapping(self, tree: Mapping[str, Any], above: str, depth: int) -> Iterator[str]:
        for key, value in tree.items():
            dotted = f"{above}.{key}" if above else key
            head = "  " * depth + _scalar(key)
            if isinstance(value, dict) and value:
                yield f"{head}:"
                yield from self._mapping(value, dotted, depth + 1)
            else:
                origin = self.origin.get(dotted, "")
                yield f"{head}: {flow(value)}  # {origin if origin.isprintable() else _scalar(origin)}"


def _at(value: Any, key: str) -> Any:
    head, dot, rest = key.partition(".")
    if isinstance(value, list):
        return _at(value[int(head)], rest) if dot else value[int(head)]
    # A sweep's file has dots inside its keys: the longest key that fits is meant.
    end = len(key)
    while end >= 0:
        if key[:end] in value:
            return value[key] if end == len(key) else _at(value[key[:end]], key[end + 1 :])
        end = key.rfind(".", 0, end)
    raise KeyError(key)


def flow(value: Any) -> str:
    """A value on one line, as our reader reads it back."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return _scalar(value)


def _scalar(value: str | int | float | bool | None) -> str:
    """A scalar that our reader reads back as the same value."""
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and scalar(value) == value and quantity(value) is None:
            return value
        return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return ".inf" if value > 0 else "-.inf"
    return json.dumps(value)
