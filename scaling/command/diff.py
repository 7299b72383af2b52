"""What two runs or configs differ in; runs that are done are compared in their results as well.

scaling diff 3fa9 71c0                  two runs, by the beginnings of their ids
scaling diff gpt2 llama size=tiny       two configs, each with what is laid over it
scaling diff gpt2 3fa9                  one of each
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scaling.command.show import SOME, compact
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.ledger import Ledger

_BEGINNING = re.compile(r"[0-9a-f]{4,16}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="RUN|NAME|key=value", help="two runs or configs, and overrides")
    parser.add_argument("--json", action="store_true", help="one JSON document: dotted key to the two values")


def run(arguments: argparse.Namespace) -> None:
    from scaling.ledger.document import text
    from scaling.ledger.result import differences

    names = [word for word in arguments.words if "=" not in word]
    overrides = [word for word in arguments.words if "=" in word]
    if len(names) != 2:
        raise ScalingError("name two runs or configs", mend="write scaling diff A B")
    ledger = _ledger(overrides)
    one, other = (_document(name, ledger, overrides) for name in names)
    found = differences(one, other)
    if arguments.json:
        print(text({key: list(pair) for key, pair in found.items()}))
        return
    if not found:
        print("no difference")
        return
    lines = [line for key, (left, right) in found.items() for line in _lines(key, left, right)]
    width = max(len(key) for key, _ in lines)
    for key, line in lines:
        print(f"{text(key)[1:-1]:<{width}}  {line}")


def _lines(key: str, left: Any, right: Any) -> Iterator[tuple[str, str]]:
    """A difference in lines: of two lists of one length, the places that differ where these are few."""
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        apart = [place for place, (one, other) in enumerate(zip(left, right, strict=True)) if one != other]
        if len(apart) <= SOME:
            yield from ((f"{key}.{place}", f"{_told(left[place])} → {_told(right[place])}") for place in apart)
            return
        yield key, f"{_told(left)} → {_told(right)}, {len(apart)} of {len(left)} values differ"
        return
    yield key, f"{_told(left)} → {_told(right)}"


def _ledger(overrides: Sequence[str]) -> Ledger | None:
    """The ledger, where there is one; two configs are compared without."""
    from scaling.command.runs import DEFAULT
    from scaling.ledger import Ledger

    folder = next((word.partition("=")[2] for word in reversed(overrides) if word.startswith("runs=")), None)
    try:
        return Ledger.open(DEFAULT if folder is None else folder)
    except ScalingError:
        if folder is not None:
            raise
        return None


def _document(name: str, ledger: Ledger | None, overrides: Sequence[str]) -> dict[str, Any]:
    """The spec of a run, and its result under `result` where it is done; else the resolved config of that name."""
    if ledger is not None and _BEGINNING.fullmatch(name):
        run = ledger.find(name)
        result = ledger.result(run)
        return {**ledger.spec(run), **({} if result is None else {"result": _claims(result)})}
    from scaling.config import load

    try:
        return load(name, overrides).tree
    except ScalingError as error:
        if error.file is None and _BEGINNING.fullmatch(name):
            raise ScalingError("there is no ledger with such a run", key="run", value=name) from None
        raise


def _claims(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in ("run", "attempt", "circumstances")}


def _told(value: Any) -> str:
    return "–" if value is None else compact(value)
