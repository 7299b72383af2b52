"""One W&B run as its server has it, and what it shows of a run of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaling.ledger import RESULTS
from scaling.ledger.document import SPELLED
from scaling.ledger.identity import RUN_ID
from scaling.ledger.run import INTERRUPTIONS
from scaling.training.point import EXACT, canonical, plain

# Keys of a W&B config besides the spec's.
OWN = ("run", "attempt", "point", "study", "row", "sweep", "_wandb", "wandb_version")
STEP = "trainer/global_step"  # the run's step, as Lightning logs it; two of W&B's own are one of these
KINDS = ("train", "evaluate")  # of entries
ENDS = {"finished": "stopped", "failed": "failed", "crashed": "stopped", "killed": "stopped", "preempted": "stopped"}

Row = Mapping[str, Any]
Parts = list[tuple[str, list[tuple[str, str]]]]


@dataclass(frozen=True)
class WandbRun:
    """A W&B run without its history, which has `lines` rows; the last of them is `last`."""

    path: str  # entity/project/id
    name: str
    state: str
    created: str
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    sweep: str | None = None
    trunk: bool = False
    lines: int | None = None
    last: int | None = None
    beat: str = ""  # the last sign of life

    @property
    def run(self) -> str | None:
        """The run of the ledger that it shows; None where it is not one of ours."""
        run = self.config.get("run")
        ours = isinstance(run, str) and RUN_ID.fullmatch(run) and isinstance(self.config.get("point"), Mapping)
        return run if ours else None

    @property
    def outcome(self) -> str | None:
        """How it ended, in the ledger's words; None where it has not."""
        reported = self.summary.get("outcome")
        if reported in RESULTS and self.state != "running":
            return reported
        return reported if reported in INTERRUPTIONS else ENDS.get(self.state)

    @property
    def version(self) -> str:
        """Changes when there is more to fetch."""
        return f"{self.state} {self.lines} {self.last} {self.beat}"


def nested(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with its dotted keys opened: `optimizer.lr: 1` is `optimizer: {lr: 1}`.

    A section that is there whole has been resolved by the run; the dotted keys of it are what a sweep asked for, and
    say nothing more.
    """
    whole = {key for key, value in config.items() if "." not in key and isinstance(value, Mapping)}
    opened: dict[str, Any] = {key: value for key, value in config.items() if "." not in key}
    for key, value in config.items():
        first, *rest = key.split(".")
        if not rest or first in whole:
            continue
        inner = opened.setdefault(first, {})
        for part in rest[:-1]:
            inner = inner.setdefault(part, {}) if isinstance(inner, dict) else {}
        if isinstance(inner, dict):
            inner[rest[-1]] = value
    return opened


def point(shown: WandbRun) -> dict[str, Any]:
    """What it contributes to a table or a law besides its loss, as the ledger's runs do."""
    return canonical(shown.config["point"])


def spec(shown: WandbRun) -> dict[str, Any]:
    """What the run computes: its config without what W&B adds. Where a sweep chose a whole section by name
    (`size: ladder/30k`), W&B keeps the name, and the spec is not whole, which its hash shows.
    """
    return {key: value for key, value in nested(shown.config).items() if key not in OWN}


def cell(shown: WandbRun, parameters: Iterable[str]) -> dict[str, Any]:
    """What its sweep drew for it: by parameter, dotted, as far as the config has it."""
    return {name: value for name in parameters if (value := _at(shown.config, name)) is not None}


def result(shown: WandbRun) -> dict[str, Any]:
    """What the ledger's result of it holds, from its point and the last value of every metric."""
    about, summary = point(shown), shown.summary
    last = {
        key.removeprefix("evaluate/"): number(value) for key, value in summary.items() if key.startswith("evaluate/")
    }
    tokens = about["D"] if shown.outcome == "finished" else number(summary.get("tokens"))
    compute = {key.removeprefix("C_"): value for key, value in about.items() if key.startswith("C_")}
    compute.pop("definition", None)
    return {
        **last,
        "loss": number(summary.get("loss")),
        "step": number(summary.get("step")),
        "tokens": tokens,
        "N": {"non_embedding": about["N"], "total": about.get("N_total")},
        "C": {"exact": about["C"], **compute},
        **({"reason": summary["reason"]} if summary.get("reason") else {}),
        "circumstances": {"wandb": shown.path},
    }


def missing(history: Sequence[Row], shown: WandbRun) -> list[str]:
    """What a history lacks of W&B's, a sentence each; empty where it is whole."""
    sentences = []
    if shown.lines is not None and len(history) < shown.lines:
        sentences.append(f"{len(history)} of {shown.lines} rows")
    last = history[-1]["_step"] if history else None
    if shown.last is not None and shown.last >= 0 and (last is None or last < shown.last):
        sentences.append(f"its rows end at {last}, and W&B's at {shown.last}")
    return sentences


def entries(history: Iterable[Row]) -> list[dict[str, Any]]:
    """A history as the ledger logs it: `train/loss` in a row is `loss` in the entry of kind `train`."""
    log: list[dict[str, Any]] = []
    parts: dict[tuple[str, ...], Parts] = {}  # there are few sets of keys, and thousands of rows
    for row in history:
        keys = tuple(row)
        if keys not in parts:
            parts[keys] = _parts(keys)
        about = {"step": number(row.get(STEP, row["_step"])), "tokens": number(row.get("tokens"))}
        for kind, named in parts[keys]:
            log.append({"kind": kind, **about, **{name: number(row[key]) for key, name in named}})
    return log


def _parts(keys: Iterable[str]) -> Parts:
    """The entries that a row of these keys holds: of each the kind, and its values' keys and names."""
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for key in keys:
        kind, _, name = key.partition("/")
        if kind in KINDS:
            by_kind.setdefault(kind, []).append((key, name))
    return list(by_kind.items())


def number(value: Any) -> Any:
    """A value as the ledger spells it; W&B writes what is not finite as text."""
    kind = type(value)
    if (kind is float and not value.is_integer()) or (kind is int and -EXACT < value < EXACT):
        return value  # as most are, a million to a sweep
    return plain(SPELLED.get(value, value) if isinstance(value, str) else value)


def _at(config: Mapping[str, Any], key: str) -> Any:
    if key in config:
        return config[key]
    inner: Any = config
    for part in key.split("."):
        inner = inner.get(part) if isinstance(inner, Mapping) else None
    return inner
