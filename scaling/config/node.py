"""A value that knows where it was written: what the reader makes and the overlay merges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from scaling.errors import ScalingError

Scalar = str | int | float | bool | None


class Origin(NamedTuple):
    """A file and a line of it, or the command line."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


COMMAND_LINE = Origin("command line")


@dataclass(frozen=True, slots=True)
class Node:
    """A mapping, a list or a scalar, with its origin.

    `text` is an unquoted scalar as it was written: where a name is expected, `1M` and `007` are not numbers.
    """

    value: Mapping[str, Node] | tuple[Node, ...] | Scalar
    origin: Origin
    text: str | None = None

    @classmethod
    def of(cls, value: Any, origin: Origin) -> Node:
        """The tree of dicts, lists and scalars, all of one origin."""
        if isinstance(value, Mapping):
            return cls({str(key): cls.of(child, origin) for key, child in value.items()}, origin)
        if isinstance(value, list | tuple):
            return cls(tuple(cls.of(child, origin) for child in value), origin)
        return cls(value, origin)

    @property
    def mapping(self) -> Mapping[str, Node] | None:
        """The children by key where this is a mapping."""
        return self.value if isinstance(self.value, Mapping) else None

    @property
    def name(self) -> str | None:
        """The text where this is a scalar that can be a name."""
        if isinstance(self.value, str):
            return self.value
        return self.text if isinstance(self.value, int | float) and not isinstance(self.value, bool) else None

    def plain(self) -> Any:
        """The tree as dicts, lists and scalars."""
        if isinstance(self.value, Mapping):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, tuple):
            return [child.plain() for child in self.value]
        return self.value

    def walk(self, key: str = "") -> Iterator[tuple[str, Node]]:
        """Every node from this one down with its dotted key, parents first."""
        yield key, self
        children: Iterator[tuple[object, Node]] = iter(())
        if isinstance(self.value, Mapping):
            children = iter(self.value.items())
        elif isinstance(self.value, tuple):
            children = iter(enumerate(self.value))
        for part, child in children:
            yield from child.walk(f"{key}.{part}" if key else str(part))

    def error(self, what: str, *, key: str | None = None, fix: str | None = None) -> ScalingError:
        """A mistake at this node, with its place and, for a scalar, its value."""
        place: dict[str, Any] = {"file": self.origin.file, "line": self.origin.line, "key": key, "fix": fix}
        if not isinstance(self.value, Mapping | tuple):
            place["value"] = self.value
        return ScalingError(what, **place)
