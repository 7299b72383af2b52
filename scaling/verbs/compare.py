"""Compare two sets of runs: the better set, the compute that it saves, and the certainty of this."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scaling.base.errors import nearest, refuse, under
from scaling.base.numbers import OpenFraction, PositiveFloat
from scaling.base.printing import interval, percent, short, tabulate
from scaling.config.schema import check_keys
from scaling.verbs.verb import RUNS, Flag, Result, verb

if TYPE_CHECKING:
    from scaling.laws import Points

_OF_A_COLUMN = re.compile(r"(`[^`]+`|[^\s,`<>=!]+)[<>!]?=")  # the rows of tables have names with = too
WORDS = {"better": "{} is better", "worse": "{} is worse", "undecided": "the runs do not show which is better"}


@verb
def compare(
    a: Annotated[Any, "the baseline: a study, folder or table; SOURCE:ROW or SOURCE:COLUMN=VALUE takes some runs"],
    b: Annotated[Any, "the set that is compared with A"],
    *,
    law: Annotated[str | None, "the law (chinchilla, or power_law_floor_c if N and D vary together)"] = None,
    at: Annotated[Mapping[str, float], "the point at which k is stated: C=1e21, or loss=2.5 of B"] = {},
    at_least: Annotated[PositiveFloat | None, "exit with code 1 unless the whole interval of k is above this"] = None,
    rename: Annotated[Mapping[str, str], Flag("map")] = {},
    level: OpenFraction = 0.95,
    runs: str | Path = RUNS,
) -> Result:
    """Compare two sets of runs: B is k times as compute-efficient as A, with intervals.

        scaling compare relu gelu                           two studies of the ledger
        scaling compare table.csv:relu table.csv:gelu       two rows of one table, by its column `row`
        scaling compare a.csv b.csv:norm=RMSNorm --at C=1e21   # tables of points; of B only the runs with this norm
        scaling compare main branch --at-least 1.02         exit code 1 unless k is shown to be 1.02 or more

    One law is fitted to both sets; they share the irreducible loss. k is stated at the largest budget of both sets. The
    probability of the order at larger budgets assumes that the law is true there.
    """
    from scaling.laws.compare import FARTHER, advantage
    from scaling.laws.optimum import residual_scale

    with under("at"):
        check_keys(at, dict.fromkeys(("C", "loss"), PositiveFloat), "a comparison")
    refuse(len(at) > 1, "is one place", "give C or loss", key="at", value=dict(at))
    names = _names(a, b)
    baseline, candidate = names
    sets = [runs_of(source, rename, Path(runs)) for source in (a, b)]
    result = advantage(sets[0], sets[1], names, law=law, C=at.get("C"), loss=at.get("loss"), level=level)
    k, difference = result.k, result.difference(result.budget)
    passes = None if at_least is None else k.low >= at_least
    seeds, residuals = result.law.seed_noise, residual_scale(result.law)
    sides = [{"name": name, "runs": len(points)} for name, points in zip(names, sets)]
    order = [
        {"C": result.budget * times, "probability": result.probability(result.budget * times)} for times in FARTHER
    ]
    document = {
        "baseline": {**sides[0], "loss": result.loss(0, result.budget)},
        "candidate": {**sides[1], "loss": result.loss(1, result.budget)},
        "law": result.law.form.formula,
        "C": result.budget,
        "k": k.to_json(),
        "difference": difference.to_json(),
        "noise": {"seeds": seeds, "residuals": residuals},
        "order": order,
        "verdict": "better" if k.low > 1 else "worse" if k.high < 1 else "undecided",
        "at_least": at_least,
        "passes": passes,
    }
    kind = "about the law; no two runs differ in their seed alone" if seeds is None else "between seeds"
    noise = residuals if seeds is None else seeds
    times, higher = interval(k.to_json(), ".3g"), interval(difference.to_json())
    rows = [
        ["compute", f"{k.estimate:.3g} × {times}", f"{baseline} needs this factor to reach the loss of {candidate}"],
        ["loss", f"{difference.estimate:+.4f} {higher}", f"{candidate} minus {baseline} at equal compute"],
        ["noise", f"{100 * noise:.2g}%", f"standard deviation of a loss {kind}"],
    ]
    chances = [f"{_chance(each['probability'])} at C = {short(each['C'])}" for each in order]
    lines = [
        f"{candidate} against {baseline}: {len(sets[1])} and {len(sets[0])} runs, {document['law']}",
        tabulate(["", f"at C = {short(result.budget)}, {percent(result.level)}", ""], rows),
        f"probability that {candidate} is better: {', '.join(chances)}",
        WORDS[document["verdict"]].format(candidate),
    ]
    if passes is not None:
        lines.append(f"k of at least {at_least:g} is {'shown' if passes else 'not shown: the interval begins lower'}")
    return Result(document, lines, code=int(passes is False))


def _names(a: Any, b: Any) -> tuple[str, str]:
    """The names of the sets: the row, the study or the file, or the whole source if these are equal."""
    if not isinstance(a, str | Path) or not isinstance(b, str | Path):
        return "A", "B"
    refuse(str(a) == str(b), "is compared with itself", "name another table, or SOURCE:ROW", key="b", value=str(b))
    short_a, short_b = (chosen or Path(table).name.removesuffix(".csv") for table, chosen in map(_parts, (a, b)))
    return (short_a, short_b) if short_a != short_b else (str(a), str(b))


def _parts(source: str | Path) -> tuple[str, str]:
    """The table of a source, and the chosen runs: `table.csv:relu` is `table.csv` and `relu`."""
    table, _, chosen = str(source).partition(":")
    return (str(source), "") if Path(source).exists() or table == "wandb" else (table, chosen)


def runs_of(source: Any, rename: Mapping[str, str], runs: Path) -> Points:
    """The runs of a source: finished, not held out."""
    from scaling.laws.held_out import split_held_out
    from scaling.laws.points import READERS
    from scaling.sweeps.points import WANDB, read_points

    where: tuple[str, ...] = ()
    if isinstance(source, str):
        source, chosen = _parts(source)
        if chosen:
            where = (chosen if _OF_A_COLUMN.match(chosen) else f"row='{chosen}'",)
        if not Path(source).exists() and not source.startswith(WANDB):
            studies = {folder.name: folder for folder in (runs / "studies").glob("*")}
            is_known = source in studies or Path(source).suffix.lower() in READERS
            fix = nearest(source, studies) if studies else "name a table of points"
            refuse(not is_known, "there is no such table or study", fix, file=source)
            source = studies.get(source, source)
    return split_held_out(read_points(source, runs, rename=rename, where=where), None)[0]


def _chance(probability: float) -> str:
    """A probability; within a thousandth of 0 or 1 only a bound, because the law is not known more exactly."""
    return "<0.001" if probability < 0.001 else ">0.999" if probability > 0.999 else f"{probability:.3f}"
