"""Documents: YAML read strictly, as plain dicts with the file and the line of every value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from scaling.base import atomic
from scaling.base.errors import ScalingError, disk, from_os, refuse
from scaling.base.standard_error import say
from scaling.config import schema, strict_yaml
from scaling.config.shape import Shape
from scaling.config.strict_yaml import flow, parse, read_text, shown


@dataclass(frozen=True)
class Config:
    """A document as plain dicts, lists and scalars; `origin` holds `file:line` or `command line` by dotted key,
    `remarks` the values that a command filled in, and `file` the name of a file that is the whole document.
    """

    tree: dict[str, Any]
    origin: dict[str, str]
    remarks: tuple[str, ...] = ()
    file: str | None = None

    @cached_property
    def _nodes(self) -> dict[str, Any]:
        return dict(schema.walk(self.tree))

    def __getitem__(self, key: str) -> Any:
        """The value at a dotted key."""
        return self.tree[key] if key in self.tree else self._nodes[key]

    def part(self, key: str) -> Config:
        """The node below a dotted key, as a document."""
        places = {at.removeprefix(f"{key}."): place for at, place in self.origin.items() if at.startswith(f"{key}.")}
        return Config(self[key], places)

    def error(self, key: str, what: str, fix: str | None = None) -> ScalingError:
        """A mistake at a dotted key, placed where its value, or the nearest node around it, was set."""
        return self.place(ScalingError(what, fix=fix, key=key))

    def refuse(self, condition: object, key: str, what: str, fix: str | None = None) -> None:
        """Raise a mistake at a dotted key where a condition holds."""
        if condition:
            raise self.error(key, what, fix)

    def place(self, error: ScalingError) -> ScalingError:
        """An error that knows its dotted key, with the file, the line and the value filled in from it; any other, with
        the file.
        """
        if error.file is not None:
            return error
        parts = str(error.key).split(".")
        below = (key for key in self.origin if error.key and key.startswith(f"{error.key}."))
        above = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
        key = next((key for key in (error.key, *below, *above) if key in self.origin), None)
        if key is None:
            return error.at(file=self.file)
        file, line = file_and_line(self.origin[key])
        is_value = key == error.key and not isinstance(self[key], dict | list)
        return error.at(file=file, line=line, **({"value": strict_yaml.values(self[key])} if is_value else {}))

    @contextmanager
    def placing(self, section: str | None = None) -> Iterator[None]:
        """Place the mistakes of what runs here, and of the line or the file that a section names."""
        try:
            yield
        except ScalingError as error:
            # A piece names a key of its own line; a shape names one of its section.
            is_whole = section is None or str(error.key).partition(".")[0] in self.tree
            raise self.place(error if is_whole else error.under(str(section))) from None
        except OSError as error:
            if section is None:
                raise
            raise self.place(from_os(error, "cannot be read", key=section)) from None

    def build(self, section: str, *shared: Any) -> Any:
        """The piece that a section describes; a mistake in it is reported with its file and line."""
        with self.placing(section):
            return schema.build(section, self.tree[section], *shared)

    def check(self) -> Config:
        """Return this config, or raise the first mistake that the signatures of its classes and its sizes show."""
        for section in filter(schema.SLOTS.get, self.tree):
            if self.tree[section] is not None or section != "tuning":
                with self.placing(section):
                    schema.recipe(section, self.tree[section])
        size = self.tree.get("size", {})
        if not {"encoder", "decoder"} & size.keys():
            with self.placing("size"):
                Shape.of(size if size.get("vocabulary") else {**size, "vocabulary": 1})  # null: that of the data
        return self

    def save(self, path: str | Path) -> None:
        """Write the document as YAML, each value followed by its origin; the file is whole or not there."""
        head = [f"# with --extend {json.dumps(file)}" for file in schema.extensions()]
        with disk(f"{path} cannot be written"):
            atomic.write(Path(path), "".join(f"{line}\n" for line in [*head, *self._lines(self.tree, "")]))

    def _lines(self, tree: Mapping[str, Any], above: str) -> Iterator[str]:
        for key, value in tree.items():
            dotted, head = f"{above}{key}", "  " * above.count(".") + flow(key)
            if isinstance(value, dict) and value:
                yield f"{head}:"
                yield from self._lines(value, f"{dotted}.")
            else:
                origin = self.origin.get(dotted, "")
                yield f"{head}: {flow(value)}  # {origin if origin.isprintable() else flow(origin)}"


def document(path: str | Path) -> Config:
    """A YAML file as written: plain values and their lines, nothing followed, laid over or checked."""
    layer = read_layer(path)
    return replace(layer, tree=strict_yaml.values(layer.tree))


def read_layer(path: str | Path) -> Config:
    """The layer that is a YAML file; an empty file is an empty mapping."""
    tree, origin = parse(read_text(Path(path)), shown(path))
    refuse(not isinstance(tree, dict), "expected keys with values", "write key: value", file=shown(path))
    return Config(tree, origin, file=shown(path))


def of_values(place: str, tree: Mapping[str, Any]) -> Config:
    """The document of plain values that are all of one origin."""
    return Config(dict(tree), dict.fromkeys((key for key, _ in schema.walk(tree)), place))


def file_and_line(origin: str) -> tuple[str, int | None]:
    file, _, line = origin.rpartition(":")
    return (file, int(line)) if line.isdigit() else (origin, None)


def print_remarks(configs: Iterable[Config]) -> None:
    """Print each remark of the configs once, on standard error."""
    for remark in dict.fromkeys(remark for config in configs for remark in config.remarks):
        say(remark)
