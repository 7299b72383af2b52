"""Strict YAML: plain values beside the file and the line of each, and words as a person means them.

What a person may have meant otherwise is refused with its file and line, not guessed at. Unquoted words follow the core
schema of YAML 1.2, and stay as written until a caller asks for their values: `1M` may be a name.
"""

import json
import math
import re
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from scaling.base.errors import ScalingError, check_regular, from_os, refuse
from scaling.base.json_lines import mapped

COMMAND_LINE = "command line"  # a place without lines
MOST_BYTES, MOST_VALUES, DEEPEST = 1 << 20, 50_000, 32

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL", "None")),  # W&B's ${args_no_hyphens} writes None
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf"), math.inf),
    "-.inf": -math.inf,
}
_STRING = re.compile(r"""(?<![^\[{,:\s])(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')""", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
_LONGEST_NUMBER = 64  # longer digit strings are identifiers, and int() refuses them from 4,300 digits on
_WHOLE = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*|0x[0-9a-fA-F]+|0o[0-7]+")
_REAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.?[0-9]*)(?:[eE][-+]?[0-9]+)?")
_QUANTITY = re.compile(r"([-+]?[0-9]+(?:\.[0-9]+)?)([kKMBT%])")
_EXPONENTS = {"k": 3, "K": 3, "M": 6, "B": 9, "T": 12, "%": -2}


class Unquoted(str):
    """A word without quotes, as written: a value (`1e-4`, `no`), or a name (`1M`, `007`) where a name is expected."""


@lru_cache(maxsize=256)
def parse(text: str, file: str) -> tuple[Any, dict[str, str]]:
    """The tree of the one document of `text`, its words as written, and the place of each node by dotted key."""
    origin: dict[str, str] = {}
    too_many = f"more than {MOST_VALUES:,} values, aliases written out", "write less"

    def wrong(mark: Any, what: str, fix: str | None, key: str | None = None) -> ScalingError:
        line = None if mark is None or file == COMMAND_LINE else mark.line + 1
        return ScalingError(what, fix=fix, file=file, line=line, key=key)

    def read(node: Any, key: str, mark: Any, depth: int) -> Any:
        """The value of a node; its place is its key's where it has one."""
        if depth > DEEPEST:
            raise wrong(mark, f"nested more than {DEEPEST} deep", "flatten it")
        if len(origin) > MOST_VALUES:
            raise wrong(mark, *too_many)
        if key:
            origin[key] = file if file == COMMAND_LINE else f"{file}:{mark.line + 1}"
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.style else word(node.value)
        above = f"{key}." if key else ""
        if isinstance(node, yaml.SequenceNode):
            return [read(item, f"{above}{i}", item.start_mark, depth + 1) for i, item in enumerate(node.value)]
        if node.flow_style and len(node.value) == 1:
            name, value = node.value[0]
            if isinstance(name, yaml.ScalarNode) and not name.style and value.start_mark.index == name.end_mark.index:
                return f"{{{name.value}}}"  # braces around a name without a colon mean a field of a row
        mapping: dict[str, Any] = {}
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode):
                raise wrong(name.start_mark, "a key must be a single word", "quote it if it is meant as text")
            if name.value == "<<" and not name.style:
                raise wrong(name.start_mark, "merge keys are not read", "name the other file as `base`")
            if name.value in mapping:
                raise wrong(name.start_mark, "the key appears twice", "keep one of them", name.value)
            mapping[name.value] = read(value, above + name.value, name.start_mark, depth + 1)
        return mapping

    try:
        depth = -1
        for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):  # before nodes are made, a call a level
            if count > 4 * MOST_VALUES:  # a value and its key are three events at most
                raise wrong(event.start_mark, *too_many)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise wrong(event.start_mark, f"nested more than {DEEPEST} deep", "flatten it")
            if getattr(event, "tag", None) is not None:
                raise wrong(event.start_mark, f"the tag {event.tag!r} is not read", "write the plain value")
        root: Any = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        words = [getattr(error, name, None) for name in ("problem", "context")]
        what = "not YAML: " + (" ".join(filter(None, words)) or str(getattr(error, "reason", error)))
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        raise wrong(mark, what, "indent with spaces, and put text with special characters in quotes") from None
    if root is None or (isinstance(root, yaml.ScalarNode) and not root.value and not root.style):
        return {}, origin
    return read(root, "", root.start_mark, 0), origin


def is_yaml(text: str) -> bool:
    """Whether a value is a list, a mapping or a quoted text, not text as `{title}: {body}` and `[ab]*.txt`."""
    depth = 0
    for place, letter in enumerate(bare := _STRING.sub("_", text)):
        depth += (letter in "[{") - (letter in "]}")
        if depth == 0:
            return text[:1] in tuple("[{\"'") and bare[place + 1 :].lstrip()[:1] in ("", "#")
    return depth > 0


def read_text(path: Path) -> str:
    """The text of a file that a person wrote; what has no end, as a device has none, is not read."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        refuse(len(raw) > MOST_BYTES, f"the file is over {MOST_BYTES:,} bytes", "write less", file=shown(path))
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise from_os(error, "cannot be read", file=shown(path)) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ScalingError("not UTF-8", file=shown(path), line=line, fix="save it as UTF-8") from None
    except ValueError:
        raise ScalingError("no file can have this name", value=str(path), key="path") from None


def shown(path: str | Path) -> str:
    """A path as errors and saved configs print it: relative below the working folder, whole elsewhere."""
    path, folder = Path(path), Path.cwd()
    return str(path.relative_to(folder)) if path.is_absolute() and path.is_relative_to(folder) else str(path)


def scalar(text: str) -> str | int | float | bool | None:
    """The value of an unquoted word. `no`, `1:30` and `2026-11-20` are text, and so are `20M` and `5%`."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= _LONGEST_NUMBER:
        if _WHOLE.fullmatch(text):
            return int(text, 0 if text[:2] in ("0x", "0o") else 10)
        if _REAL.fullmatch(text) and math.isfinite(number := float(text)):
            return number
    return str(text)


def quantity(text: str) -> int | float | None:
    """`4k`, `20M`, `1.5B`, `2T` as numbers (whole where they are whole), `5%` as 0.05; None for other text."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    if match is None:
        return None
    number = Decimal(match[1]).scaleb(_EXPONENTS[match[2]])
    return int(number) if match[2] != "%" and number == number.to_integral_value() else float(number)


def flow(value: Any) -> str:
    """A value on one line, as it is read back."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value not in _WORDS
        return value if is_plain else yaml.dump(value, default_style='"', allow_unicode=True, width=math.inf).rstrip()
    return repr(value).replace("inf", ".inf") if isinstance(value, float) else json.dumps(value)


def word(text: str) -> Any:
    """An unquoted word as a tree holds it: null, true and false are values, all else may be a name."""
    return value if isinstance(value := _WORDS.get(text, text), bool | None) else Unquoted(text)


def values(tree: Any, *, quantities: bool = False) -> Any:
    """The tree with the values of its unquoted words; `4k` and `20M` are numbers where `quantities` are meant."""

    def value(leaf: Any) -> Any:
        if not isinstance(leaf, Unquoted):
            return leaf
        number = quantity(leaf) if quantities else None
        return scalar(leaf) if number is None else number

    return mapped(tree, value)
