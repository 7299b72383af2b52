"""Rows of a table compared: by how much each one's loss is below the first row's, size by size.

Runs are paired: each with the first row's run of the same size, tokens and seed, so that no law is assumed. Where the
study asks for a law, each row's exponents show whether its lead grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from scaling.laws.compare import COMPUTE
from scaling.reports.markup import Html, join, tag
from scaling.reports.numbers import ends, percent, signed, signed_significant, significant, symbol
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
