"""The runs of a page: how each fared, and how rows of a study differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from statistics import fmean, stdev
from typing import Any

from scaling.laws.compare import COMPUTE
from scaling.ledger import RESULTS, Ledger
from scaling.printing import short, span
from scaling.reports.markup import (
    Html,
    ends,
    join,
    percent,
    scientific,
    signed,
    signed_significant,
    significant,
    symbol,
    table,
    tag,
)
from scaling.studies.findings import Findings


@dataclass(frozen=True)
class Advantage:
    """The loss of a row over the first row's, less one, in each pair whose first has this N."""

    row: str
    size: float
    differences: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.differences)

    def __str__(self) -> str:
        scatter = f" ± {percent(stdev(self.differences))}" if len(self.differences) > 1 else ""
        return f"{signed(self.mean)}{scatter}"


def advantages(findings: Findings) -> tuple[Advantage, ...]:
    """Every row after the first at every size at which both have finished runs; none where no rows are compared."""
    finished = [row for row in findings.rows if row["status"] == "finished" and "row" in row]
    if not finished:
        return ()
    first = findings.rows[0]["row"]
    base = {_cell(row): row for row in finished if row["row"] == first}
    pairs: dict[tuple[str, float], list[float]] = {}
    for row in finished:
        other = base.get(_cell(row))
        if row["row"] != first and other is not None:
            pairs.setdefault((row["row"], other["N"]), []).append(row["loss"] / other["loss"] - 1)
    return tuple(Advantage(row, size, tuple(findings)) for (row, size), findings in sorted(pairs.items()))


def _cell(row: Mapping[str, Any]) -> str:
    """What a run shares with those of other rows: its name without the row. Kept tables spell it `row=NAME`."""
    words = f" {row['name']} ".replace(f" row={row['row']} ", " ")
    return words.replace(f" {row['row']} ", " ").strip()


def compared(findings: Findings, pairs: Sequence[Advantage]) -> Html:
    """From the smallest to the largest size, in one sentence."""
    sizes = sorted({pair.size for pair in pairs})
    parts = []
    for name in dict.fromkeys(pair.row for pair in pairs):
        mine = [pair for pair in pairs if pair.row == name]
        ends = mine if len(mine) == 1 else [mine[0], mine[-1]]
        parts.append(f"{name} {' and '.join(f'{signed(pair.mean)} at N = {pair.size:,}' for pair in ends)}")
    ladder = "at one size" if len(sizes) == 1 else f"over {len(sizes)} sizes"
    return join(f"Loss relative to {findings.rows[0]['row']}, {ladder}: {'; '.join(parts)}.")


def exponents(rows: Mapping[str, Any]) -> Html:
    """Whether each row gains or loses on the first as runs grow, by the first of the law's exponents."""
    name = rows["exponents"][0]["name"]
    base, *others = (other for other in rows["exponents"] if other["name"] == name)
    scale = "compute" if name == COMPUTE else "scale"
    first = significant(base["estimate"], base["low"], base["high"])
    parts = (
        f"{other['row']} by {difference(other)}, so that {_course(other['difference'], scale)}" for other in others
    )
    return join(
        f"The loss above its floor falls with {scale} by an exponent ",
        tag("strong", join(exponent(name), f" = {first}")),
        f" {ends(base)} under {base['row']}; it differs under {'; '.join(parts)}.",
    )


def exponent(name: str) -> Html:
    """γ, of compute, and the law's own."""
    return symbol("gamma" if name == COMPUTE else name)


def difference(exponent: Mapping[str, Any]) -> str:
    """`+0.012 [0.004, 0.020]`"""
    interval = exponent["difference"]
    return f"{signed_significant(interval['estimate'], interval['low'], interval['high'])} {ends(interval)}"


def _course(interval: Mapping[str, Any], scale: str) -> str:
    low, high = interval["low"], interval["high"]
    if low is not None and low > 0:
        return f"it gains with {scale}"
    if high is not None and high < 0:
        return f"it loses with {scale}"
    return "these runs do not show whether it gains or loses"


def runs_table(findings: Findings, ledger: Ledger, store: PurePosixPath | None) -> Html:
    """Every planned run. Without a `store` the runs lead to no settings."""
    addresses = {row["run"]: address(ledger, row["run"]) for row in findings.rows}
    heads = ["run", "state", "N", "D", "C (FLOPs)", "loss", "off the law", "lr", "seed", "time"]
    rows, attributes = [], []
    for row in findings.rows:
        run, loss = row["run"], row["loss"] if row["status"] == "finished" else None
        expected = None if loss is None else findings.predicted_loss(row)
        result = ledger.result(run)
        # Of the attempt that ended in the result; a branch's begins where its trunk left off.
        seconds = None if result is None else result["circumstances"].get("seconds")
        cells = [
            row["name"] if store is None else tag("a", row["name"], href=str(store / run / "spec.json")),
            state(ledger, row),
            *(tag("span", short(row[name]), title=f"{row[name]:,}") for name in ("N", "D")),
            scientific(row["C"]),
            None if loss is None else f"{loss:.4f}",
            None if loss is None or expected is None else signed(loss / expected - 1),
            f"{row['lr']:g}",
            str(row["seed"]),
            None if seconds is None else span(seconds),
        ]
        link = tag("a", "open", href=addresses[run]) if addresses[run] else None
        rows.append([*cells, link] if any(addresses.values()) else cells)
        undone = None if row["status"] in RESULTS else "undone"
        attributes.append({"data_run": run, "id": f"run-{run}", "class_": undone})
    heads += ["W&B"] if any(addresses.values()) else []
    caption = (
        "Every planned run; its name leads to its settings. “Off the law”: the observed loss over the law’s, less one."
    )
    return table(caption, heads, rows, (0, 1, 10), label="Table of runs", attributes=attributes)


def state(ledger: Ledger, row: Mapping[str, Any]) -> str:
    """How far a run has come, in words; held-out runs are marked."""
    now = ledger.status(row["run"])
    words = now.state.replace("_", " ")
    if now.state not in RESULTS and now.step:
        words += f" at step {now.step:,}" + (f" of {now.steps:,}" if now.steps else "")
    elif now.state == "diverged" and now.step:
        words += f" at step {now.step:,}"
    return f"{words}, held out" if row["held_out"] else words


def address(ledger: Ledger, run: str) -> str | None:
    """Where W&B shows the run, as its mirror wrote it down."""
    try:
        url = (ledger.folder(run) / "wandb" / "address").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return url if url.startswith(("https://", "http://")) else None


def counts(findings: Findings) -> str:
    """Finished, held out, diverged and still to do, in one line."""
    finished = sum(row["status"] == "finished" for row in findings.rows)
    kept = sum(bool(row["held_out"]) for row in findings.rows)
    others = {word: sum(row["status"] == word for row in findings.rows) for word in ("diverged", "pruned")}
    left = len(findings.rows) - finished - sum(others.values())
    parts = [f"{finished} finished"] + ([f"{kept} of them held out"] if kept and not left else [])
    parts += [f"{count} {word}" for word, count in others.items() if count]
    return ", ".join(parts + ([f"{left} not done"] if left else []))


def names(findings: Findings) -> Mapping[str, str]:
    return {row["run"]: row["name"] for row in findings.rows}
