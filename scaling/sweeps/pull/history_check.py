"""Complete: whether a history that was fetched is the one that W&B has. What it lacks is reported, never filled in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from scaling.ledger.document import stamp
from scaling.sweeps.pull.wandb_run import History, Row, WandbRun, entries

INTERNAL = ("_step", "_timestamp", "_runtime", "_wandb")


@dataclass(frozen=True)
class Fetched:
    """A history as the ledger logs it, and what it lacks of W&B's, a sentence each."""

    log: bytes
    missing: tuple[str, ...]


def fetched(history: History, shown: WandbRun) -> Fetched:
    return Fetched(b"".join(map(stamp, entries(history))), tuple(missing(history, shown)))


def merged(history: History, rows: Iterable[Row]) -> History:
    """The history with further rows, by step; parts of one row may come one after the other."""
    for row in rows:
        history.setdefault(row["_step"], {}).update(row)
    return history


def short(history: History, shown: WandbRun) -> dict[str, tuple[int, int]]:
    """The keys of which values are missing: how many were found, and how many W&B counts."""
    if not shown.counts:
        return {}
    counted: Counter[str] = Counter()
    for keys, rows in Counter(map(tuple, history.values())).items():  # there are few sets of keys, and many rows
        for key in keys:
            counted[key] += rows
    return {
        key: (counted[key], count)
        for key, count in shown.counts.items()
        if counted[key] < count and key not in INTERNAL
    }


def missing(history: History, shown: WandbRun) -> list[str]:
    """What the history lacks, a sentence each; empty where it is whole."""
    sentences = []
    if shown.lines is not None and len(history) < shown.lines:
        sentences.append(f"{len(history)} of {shown.lines} rows")
    last = max(history, default=None)
    if shown.last is not None and shown.last >= 0 and (last is None or last < shown.last):
        sentences.append(f"its rows end at {last}, and W&B's at {shown.last}")
    sentences += [
        f"{key} has {count_here} of {count} values" for key, (count_here, count) in short(history, shown).items()
    ]
    return sentences
