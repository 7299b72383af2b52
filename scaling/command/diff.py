"""What two runs or configs differ in; runs that are done are compared in their results as well.

scaling diff 3fa9 71c0                  two runs, by the beginnings of their ids
scaling diff gpt2 llama size=tiny       two configs, each with what is laid over it
scaling diff gpt2 3fa9                  one of each
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from scaling.api.configs import diff
from scaling.command.show import SOME, compact
from scaling.config import split
from scaling.errors import ScalingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="RUN|NAME|key=value", help="two runs or configs, and overrides")
    parser.add_argument("--json", action="store_true", help="one JSON document: dotted key to the two values")


def run(arguments: argparse.Namespace) -> None:
    from scaling.ledger.document import text

    names, overrides = split(arguments.words)
    if len(names) != 2:
        raise ScalingError("name two runs or configs", fix="write scaling diff A B")
    folder = next((word.partition("=")[2] for word in reversed(overrides) if word.startswith("runs=")), None)
    differences = diff(*names, *overrides, runs=folder)
    if arguments.json:
        print(text({key: list(pair) for key, pair in differences.items()}))
        return
    if not differences:
        print("no difference")
        return
    lines = [line for key, (left, right) in differences.items() for line in _lines(key, left, right)]
    width = max(len(key) for key, _ in lines)
    for key, line in lines:
        print(f"{text(key)[1:-1]:<{width}}  {line}")


def _lines(key: str, left: Any, right: Any) -> Iterator[tuple[str, str]]:
    """A difference in lines: of two lists of one length, the places that differ where these are few."""
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        apart = [place for place, (one, other) in enumerate(zip(left, right, strict=True)) if one != other]
        if len(apart) <= SOME:
            yield from ((f"{key}.{place}", f"{_text(left[place])} → {_text(right[place])}") for place in apart)
            return
        yield key, f"{_text(left)} → {_text(right)}, {len(apart)} of {len(left)} values differ"
        return
    yield key, f"{_text(left)} → {_text(right)}"


def _text(value: Any) -> str:
    return "–" if value is None else compact(value)
