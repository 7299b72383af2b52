"""The command of a sweep: what W&B's agent starts for each run, which has to be our own `scaling train`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaling import schema
from scaling.errors import ScalingError, nearest

ARGUMENTS = ("${args_no_hyphens}", "${args}")
FIX = 'write command: [scaling, train, decoder, "${args_no_hyphens}"]'
# What the agent substitutes for its other words, where a command of ours can hold them.
STANDS_FOR = {"${env}": "/usr/bin/env", "${interpreter}": "python"}


def words_of(command: Any, program: Any) -> tuple[str, ...]:
    """The names and overrides that every run of the command has; the module of its `--extend` joins here."""
    if not isinstance(command, list) or not command:
        raise ScalingError("expected the words of a command", fix=FIX)
    for word in command:
        if not isinstance(word, str | int | float):
            raise ScalingError("a word of the command is text", value=word, fix="put it into quotes")
    words = [program if word == "${program}" else STANDS_FOR.get(word, str(word)) for word in command]
    if words[0] == "/usr/bin/env":
        words = words[1:]
    if words[1:3] == ["-m", "scaling"]:
        words = words[2:]
    if not words or _base(words[0]) != "scaling" or _base(str(program)) != "scaling":
        raise ScalingError("the program is not ours", value=" ".join(map(str, command)), fix=FIX)
    words = _extended(words)
    if words[1:2] != ["train"]:
        raise ScalingError("a sweep's runs are trained", value=" ".join(map(str, command)), fix=FIX)
    return tuple(_overrides(words[2:]))


def _extended(words: list[Any]) -> list[Any]:
    """The words without `--extend PATH`, whose classes have joined the slots they name."""
    place = next((place for place, word in enumerate(words) if str(word).partition("=")[0] == "--extend"), None)
    if place is None:
        return words
    _, given, path = str(words[place]).partition("=")
    end = place + (1 if given else 2)
    if end > len(words):
        raise ScalingError("--extend names no file", fix="write --extend, PATH")
    schema.extend(path if given else str(words[place + 1]))
    return [*words[:place], *words[end:]]


def _overrides(words: Sequence[str]) -> list[str]:
    arguments = [word for word in words if word in ARGUMENTS]
    if len(arguments) != 1:
        raise ScalingError("the parameters reach a run in one place", fix=FIX)
    kept = [word for word in words if word not in ARGUMENTS]
    for word in kept:
        if word.startswith("${"):
            raise ScalingError("this word of W&B's is none that we read", value=word, fix=nearest(word, ARGUMENTS))
    return [word.removeprefix("--") for word in kept]


def _base(path: str) -> str:
    return path.rpartition("/")[2]
