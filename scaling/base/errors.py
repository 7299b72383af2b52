"""One exception for everything a user can fix, printed as one line: `file:line: key=value: what; fix`."""

from __future__ import annotations

import difflib
import errno
import importlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

BAD_INPUT = 2
DISK = 74
LONGEST = 80  # letters of a value that is printed
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")  # what a terminal may obey, or cannot print
SHORTEST = 3  # letters of a name that breaks off: fewer could be the beginning of anything

_ABSENT = object()


class ScalingError(Exception):
    """A mistake of the input or the machine: `what` is wrong, at which `file`, `line` and `key`, and how to `fix` it;
    `code` is the exit code: 2 for bad input, 74 for a full or failing disk.
    """

    def __init__(
        self,
        what: str,
        *,
        fix: str | None = None,
        file: str | Path | None = None,
        line: int | None = None,
        key: str | None = None,
        value: object = _ABSENT,
        code: int = BAD_INPUT,
    ):
        self.what, self.fix, self.file, self.line, self.key, self.code = what, fix, file, line, key, code
        self.value = value
        super().__init__(str(self))

    @property
    def has_value(self) -> bool:
        return self.value is not _ABSENT

    def __str__(self) -> str:
        place = "" if self.file is None else str(self.file) + ("" if self.line is None else f":{self.line}")
        value = repr(self.value) if self.has_value else ""
        value = value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"
        named = "" if self.key is None else self.key + (f"={value}" if value else "")
        sentence = self.what if self.fix is None else f"{self.what}; {self.fix}"
        return CONTROL.sub("�", " ".join(": ".join(part for part in (place, named, sentence) if part).split()))

    def at(self, **place: Any) -> ScalingError:
        """The same error, with the parts of its place (file, line, key, value) that were unknown filled in."""
        error = copy(self)
        vars(error).update({k: v for k, v in place.items() if vars(self)[k] is (_ABSENT if k == "value" else None)})
        return error

    def under(self, prefix: str) -> ScalingError:
        """The same error, its key seen from outside the node `prefix`."""
        error = self.at()
        error.key = prefix if self.key is None else f"{prefix}.{self.key}"
        return error


def refuse(condition: object, what: str, fix: str | None = None, **place: Any) -> None:
    """Raise a `ScalingError` where a condition holds; `place` is its file, line, key and value."""
    if condition:
        raise ScalingError(what, fix=fix, **place)


def imported(module: str, what: str, fix: str, **place: Any) -> Any:
    """A module of a package that may be absent, which is then an error that states how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ScalingError(what, fix=fix, **place) from None


@contextmanager
def under(prefix: str) -> Iterator[None]:
    """Mistakes of what runs here have their keys seen from outside the node `prefix`."""
    try:
        yield
    except ScalingError as error:
        raise error.under(prefix) from None


def nearest(name: str, choices: Iterable[str]) -> str:
    """The fix for an unknown name: "did you mean 'X'?", or the choices where none is near. Of names that begin so, the
    shortest is the nearest.
    """
    names = sorted(set(choices))
    folded = {choice.casefold(): choice for choice in reversed(names)}
    folded_name = name.casefold()
    starting = [choice for choice in folded if choice.startswith(folded_name)] if len(folded_name) >= SHORTEST else []
    close = sorted(starting, key=len) or difflib.get_close_matches(folded_name, folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    if not names:
        return "there is none to choose from"
    shown = ", ".join(names[:12])
    return f"choose from {shown}" + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def plural(count: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def check_regular(path: Path) -> None:
    """Refuse a pipe or a device, whose reader may wait for ever."""
    if path.exists() and not path.is_file():
        raise ScalingError("is not a regular file", file=path, fix="write its content to a file, and name that")


def near(error: UnicodeEncodeError) -> str:
    """The text around a half of a surrogate pair, in ASCII."""
    return ascii(error.object[max(0, error.start - 20) : error.start + 20])


def from_os(error: OSError, what: str, **place: Any) -> ScalingError:
    """An operating-system failure, at the file that the system names: code 74 where the disk is full or failing."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    reason = error.strerror or str(error)
    fix = "free some space and run the same command again" if full else None
    place = place or {"file": error.filename}
    return ScalingError(f"{what}: {reason}", fix=fix, code=DISK if full else BAD_INPUT, **place)


@contextmanager
def disk(what: str) -> Iterator[None]:
    """Report a failing or full disk in one line, with exit code 74."""
    try:
        yield
    except OSError as error:
        raise from_os(error, what) from error
