"""The runs of a page: how each fared, and how rows of a study differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    addresses = {row["run"]: address(ledger, row["run"]) for row in findings.rows}
    mirrored = any(addresses.values())
    heads = [
        ("run", True),
        ("state", True),
        ("N", False),
        ("D", False),
        ("C (FLOPs)", False),
        ("loss", False),
        ("off the law", False),
        ("lr", False),
        ("seed", False),
        ("time", False),
        *([("W&B", True)] if mirrored else []),
    ]
    head = tag("tr", *(tag("th", text, scope="col", class_="words" if words else None) for text, words in heads))
    body = (_row(findings, ledger, row, store, addresses if mirrored else None) for row in findings.rows)
    caption = (
        "Every planned run; its name leads to its settings. “Off the law”: the observed loss over the law’s, less one."
    )
    table = tag("table", tag("caption", tag("span", caption)), tag("thead", head), tag("tbody", *body))
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="Table of runs")


def _row(
    findings: Findings,
    ledger: Ledger,
    row: Mapping[str, Any],
    store: PurePosixPath | None,
    addresses: Mapping[str, str | None] | None,
) -> Html:
    done = row["status"] in RESULTS
    name = row["name"] if store is None else tag("a", row["name"], href=str(store / row["run"] / "spec.json"))
    cells = [
        tag("th", name, scope="row"),
        tag("td", state(ledger, row), class_="words"),
        *_numbers(row),
        *_outcome(findings, row),
        tag("td", f"{row['lr']:g}", data_value=row["lr"]),
        tag("td", str(row["seed"]), data_value=row["seed"]),
        _time(ledger, row["run"]),
    ]
    if addresses is not None:
        where = addresses[row["run"]]
        cells.append(tag("td", tag("a", "open", href=where) if where else None, class_="words"))
    return tag("tr", *cells, data_run=row["run"], id=f"run-{row['run']}", class_=None if done else "undone")


def _numbers(row: Mapping[str, Any]) -> Iterator[Html]:
    for name in ("N", "D"):
        yield tag("td", short(row[name]), data_value=row[name], title=f"{row[name]:,}")
    yield tag("td", scientific(row["C"]), data_value=row["C"])


def _outcome(findings: Findings, row: Mapping[str, Any]) -> Iterator[Html]:
    loss = row["loss"]
    if row["status"] != "finished" or loss is None:
        yield from (tag("td", data_value=""), tag("td", data_value=""))
        return
    yield tag("td", f"{loss:.4f}", data_value=loss)
    expected = findings.predicted_loss(row)
    if expected is None:
        yield tag("td", data_value="")
        return
    yield tag("td", signed(loss / expected - 1), data_value=loss / expected - 1)


def _time(ledger: Ledger, run: str) -> Html:
    """Of the attempt that ended in the result; a branch's begins where its trunk left off."""
    result = ledger.result(run)
    seconds = None if result is None else result["circumstances"].get("seconds")
    return tag("td", span(seconds), data_value=seconds) if seconds is not None else tag("td", data_value="")


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
