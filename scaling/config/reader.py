"""Strict YAML: what a person may have meant otherwise is refused with its file and line, not guessed at.

PyYAML parses the text into events; this module makes the nodes. Refused: duplicate keys, tabs in the indentation, tags,
merge keys, a second document, anything but UTF-8, and files, nestings or aliases beyond the bounds below.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from scaling.config.node import Node, Origin
from scaling.config.scalar import scalar
from scaling.errors import ScalingError, from_os

MOST_BYTES = 1 << 20
MOST_NODES = 50_000
DEEPEST = 32

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_GOES_ON = re.compile(r"[:-]\s+[\[{][^\]}]*[\]}]\s*[^\s\]},#]")  # a value whose bracket closes before its end
_TAB = re.compile(r"^ *\t", re.MULTILINE)


def read(path: str | Path) -> Node:
    """The one document of a YAML file; an empty file is an empty mapping."""
    return _parsed(text(Path(path)), shown(path))


@lru_cache(maxsize=256)
def _parsed(text: str, file: str) -> Node:
    """A study reads the same few files for each of its runs."""
    return parse(text, file)


def parse(text: str, file: str, *, line: int | None = 1) -> Node:
    """The one document of `text`; `line` None: it has no lines (a command line)."""
    tab = _TAB.search(whole(text, file))
    if tab and line is not None:
        at = line + text.count("\n", 0, tab.start())
        raise ScalingError("a tab in the indentation", file=file, line=at, fix="indent with spaces")
    try:
        return _Composer(yaml.parse(text, Loader=_LOADER), file, line).document()
    except yaml.MarkedYAMLError as error:
        position = error.problem_mark or error.context_mark
        at = None if position is None or line is None else line + position.line
        written = "" if position is None else "".join(text.splitlines()[position.line : position.line + 1])
        fix = "quote a text that begins with a bracket" if _GOES_ON.search(written) else None
        raise ScalingError(f"not YAML: {_reason(error)}", file=file, line=at, fix=fix) from None
    except yaml.YAMLError as error:
        raise ScalingError(f"not YAML: {_reason(error)}", file=file) from None


def whole(text: str, file: str) -> str:
    """The text, unless it holds half characters: bytes of a command line that are no UTF-8 arrive as such."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ScalingError("not UTF-8", file=file, fix="type it as UTF-8") from None
    return text


def shown(path: str | Path) -> str:
    """A path as errors and saved configs print it: relative below the working folder, whole elsewhere."""
    path, folder = Path(path), Path.cwd()
    return str(path.relative_to(folder)) if path.is_absolute() and path.is_relative_to(folder) else str(path)


def text(path: Path) -> str:
    """The text of a file that a person wrote; what has no end, as a device has none, is not read."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ScalingError("not a file", file=shown(path), fix="give the path of a YAML file")
        if status.st_size > MOST_BYTES:
            what = f"{status.st_size:,} bytes are too many for a config"
            raise ScalingError(what, file=shown(path), fix=f"{MOST_BYTES:,} are the most")
        raw = path.read_bytes()
    except OSError as error:
        reason = from_os(error, "cannot be read")
        raise ScalingError(reason.what, file=shown(path), fix=reason.fix, code=reason.code) from None
    except ValueError:
        raise ScalingError("no file can have this name", value=str(path), key="path") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ScalingError("not UTF-8", file=shown(path), line=line, fix="save it as UTF-8") from None


def _reason(error: yaml.YAMLError) -> str:
    """The parser's complaint without its picture of the place, which we print ourselves."""
    if isinstance(error, yaml.MarkedYAMLError):
        return " ".join(part for part in (error.problem, error.context) if part)
    return str(getattr(error, "reason", error))


def _height(node: Node) -> int:
    value = node.value
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
    return max((1 + _height(child) for child in children), default=0)


class _Composer:
    """Nodes out of the parser's events, with the bounds watched while they are made."""

    def __init__(self, events: Iterator[Any], file: str, line: int | None):
        self.events, self.file, self.first = events, file, line
        self.anchors: dict[str, Node] = {}
        self.sizes: dict[str, tuple[int, int]] = {}
        self.nodes = 0

    def document(self) -> Node:
        self.next(yaml.StreamStartEvent)
        event = next(self.events)
        if isinstance(event, yaml.StreamEndEvent):
            return Node({}, Origin(self.file, self.first))
        event = next(self.events)
        if isinstance(event, yaml.ScalarEvent) and event.value == "" and event.implicit[0]:
            root = Node({}, self.origin(event))
        else:
            root = self.node(event, 0)
        self.next(yaml.DocumentEndEvent)
        event = next(self.events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise self.error(event, "a second document begins", "keep one document a file")
        return root

    def node(self, event: Any, depth: int, origin: Origin | None = None) -> Node:
        """The value that `event` begins; its origin is its key's where it has one."""
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, depth)
        if event.tag is not None:
            raise self.error(event, f"the tag {event.tag!r} is not read", "write the plain value")
        before = self.nodes
        self.count(event, 1, depth)
        node = self.fresh(event, depth, origin or self.origin(event))
        if event.anchor is not None:
            self.anchors[event.anchor] = node
            self.sizes[event.anchor] = self.nodes - before, _height(node)
        return node

    def fresh(self, event: Any, depth: int, origin: Origin) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            unquoted = event.implicit[0]
            return Node(scalar(event.value) if unquoted else event.value, origin, event.value if unquoted else None)
        if isinstance(event, yaml.MappingStartEvent):
            children, bare = self.children(depth)
            # `{title}` is text: braces around a name without a value mean a field of a row.
            field = event.flow_style and len(children) == 1 and bare
            return Node(f"{{{bare[0]}}}" if field else children, origin)
        items = []
        while not isinstance(item := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(item, depth + 1))
        return Node(tuple(items), origin)

    def children(self, depth: int) -> tuple[dict[str, Node], list[str]]:
        """The values by key, and the keys alone, with neither a colon nor a value."""
        nodes: dict[str, Node] = {}
        bare: list[str] = []
        while not isinstance(key := next(self.events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise self.error(key, "a key must be a single word", "quote it if it is meant as text")
            if key.tag is not None:
                raise self.error(key, f"the tag {key.tag!r} is not read", "write the plain key")
            if key.value == "<<" and key.implicit[0]:
                raise self.error(key, "merge keys are not read", "name the other file as `base`")
            if key.value in nodes:
                first = nodes[key.value].origin.line
                where = "" if first is None else f", first on line {first}"
                raise self.error(key, f"the key is there twice{where}", "keep one of them", key=key.value)
            value = next(self.events)
            alone = isinstance(value, yaml.ScalarEvent) and value.start_mark.index == key.end_mark.index
            bare += [key.value] * (alone and key.implicit[0])
            nodes[key.value] = self.node(value, depth + 1, self.origin(key))
        return nodes, bare

    def alias(self, event: Any, depth: int) -> Node:
        if event.anchor not in self.anchors:
            # Either unknown, or still open: an alias inside its own anchor would never end.
            raise self.error(
                event, f"the alias *{event.anchor} has no finished anchor before it", "write the value out"
            )
        nodes, height = self.sizes[event.anchor]
        self.count(event, nodes, depth + height)
        return self.anchors[event.anchor]

    def count(self, event: Any, nodes: int, depth: int) -> None:
        self.nodes += nodes
        if depth > DEEPEST:
            raise self.error(event, f"nested more than {DEEPEST} deep", "flatten it")
        if self.nodes > MOST_NODES:
            raise self.error(event, f"more than {MOST_NODES:,} values, aliases written out", "write less")

    def next(self, kind: type) -> Any:
        event = next(self.events)
        assert isinstance(event, kind), event
        return event

    def origin(self, event: Any) -> Origin:
        return Origin(self.file, None if self.first is None else self.first + event.start_mark.line)

    def error(self, event: Any, what: str, fix: str, *, key: str | None = None) -> ScalingError:
        """A refusal placed at the event."""
        origin = self.origin(event)
        return ScalingError(what, file=origin.file, line=origin.line, key=key, fix=fix)
