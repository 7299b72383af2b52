"""Result: what came out of a run. The first valid one is kept; a later one is compared with it and reported.

A result holds what the trainer hands over, at the top level (`loss`, `tokens`, …), next to `run`, `attempt` and
`outcome`. Its section `circumstances` (wall time, host, hardware, versions, speed) records where and how it was
trained; all the rest is a claim about the experiment, which another attempt has to repeat.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from scaling.ledger import forms
from scaling.ledger.document import Damaged, parse, read, seal, text
from scaling.ledger.exclusive import Means, publish

RESULTS = ("finished", "diverged", "pruned")  # ends that are an answer
INTERRUPTIONS = ("out_of_memory", "failed", "stopped")  # ends after which the run is still to be done
FAILURES = ("out_of_memory", "failed")  # those that come back unless something is changed

Outcome = Literal["finished", "diverged", "pruned"]
Interruption = Literal["out_of_memory", "failed", "stopped"]

NAME = "result.json"
CIRCUMSTANCES = "circumstances"
_OWN = ("run", "attempt", "outcome", "sha256")


@dataclass(frozen=True)
class Verdict:
    """The verdict on a result: the kept one, whether it is this one, and else where this one differs from it.

    `differences` maps a key, dotted from the top, to (the kept value, this attempt's value).
    """

    stands: Mapping[str, Any]
    first: bool
    differences: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)


def read_result(run: Path) -> dict[str, Any] | None:
    """The valid result of the run in this folder; None where there is none, or a damaged one (which counts as none)."""
    return _valid(run / NAME)


def publish_result(run: Path, attempt: int, outcome: Outcome, payload: Mapping[str, Any], means: Means) -> Verdict:
    """Publish a result unless a valid one is there already, and return which is kept."""
    if taken := [key for key in _OWN if key in payload]:
        raise ValueError(f"a result's {taken[0]!r} is written by the ledger")
    ours = {"run": run.name, "attempt": attempt, "outcome": outcome, **payload}
    content = seal(ours)
    while not publish(run / NAME, content, means):
        standing = read_result(run)
        if standing is not None:
            return Verdict(standing, False, differences(_claims(standing), _claims(parse(text(ours)))))
        _set_aside(run / NAME, means)
    return Verdict(ours, True)


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Where two nested documents differ: the dotted key, and both values (None where there is none)."""
    left, right = flat(one), flat(other)
    return {
        key: (left.get(key), right.get(key))
        for key in dict.fromkeys((*left, *right))
        if key not in left or key not in right or text(left[key]) != text(right[key])
    }


def flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings as one, keyed by the dotted path."""
    leaves: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            leaves |= {f"{key}.{inner}": leaf for inner, leaf in flat(value).items()}
        else:
            leaves[str(key)] = value
    return leaves


def _claims(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in (CIRCUMSTANCES, "attempt")}


def _set_aside(path: Path, means: Means) -> None:
    """Move a damaged result out of the way, keeping it for inspection.

    Two workers may do this at once, and the slower one would take away what the faster has just published: whoever
    finds that it moved a valid result publishes that one again.
    """
    aside = path.with_name(f"damaged-{os.urandom(8).hex()}-{path.name}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside)
        if _valid(aside) is not None:
            publish(path, aside.read_bytes(), means)
            aside.unlink()


def _valid(path: Path) -> dict[str, Any] | None:
    """The result in a file; None where it is damaged, or sealed and no result of the run whose folder this is."""
    try:
        result = read(path, partial(forms.of_result, name=path.parent.name))
    except Damaged:
        return None
    return result if result is not None and result.get("outcome") in RESULTS else None
