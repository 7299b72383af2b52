"""Fit a scaling law to a table of runs and test the fit.

scaling fit points.csv --law chinchilla                             a table with columns N, D and loss
scaling fit points.csv --map loss=final_loss N=params-embedding     under other names, or by formula
scaling fit points.csv --where 'C<1e21' 'N>=100M' corpus=c4         some of its rows
scaling fit points.csv --hold-out 'N>=1e9' --target N=7e9 D=1.4e11  test it, then predict with it
scaling fit points.csv --law 'E + A*N^-a + B*D^-b' --bounds a=0:2   a law of your own, also in a YAML file
scaling fit points.csv --law isoflop_akima                          optimal sizes from IsoFLOP minima
scaling fit points.csv --law auto                                   the law that predicts the largest runs best
scaling fit points.csv --law chinchilla,task_sigmoid                a task's score from N and D, by way of the loss
scaling fit runs/studies/NAME --curves --target N=1e6 D=2e7         whole curves: every logged loss, and the schedule

POINTS is CSV, TSV, JSON lines, parquet, or the folder of a study, a sweep or a ledger. A column `status` or W&B's
`State` (finished, diverged, crashed, …) counts the runs that have no loss; the runs of a column `held_out` test the
fit; `N_definition`, `tokenizer` and the like state definitions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from scaling.api.fit import fit
from scaling.api.fit_options import DEFAULTS, METHODS, OBJECTIVES
from scaling.command.document import numbered
from scaling.errors import ScalingError


class _Once(argparse.Action):
    """An option of one value: a second, different one is refused, not put in the place of the first."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        before = getattr(namespace, self.dest)
        if before is not None and before != values:
            raise ScalingError(
                f"is given twice: {before} and {values}", key=self.dest.replace("_", "-"), fix="give it once"
            )
        setattr(namespace, self.dest, values)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    pairs: dict[str, Any] = {**several, "metavar": "NAME=VALUE"}
    default = {name: f"(default {value})" for name, value in DEFAULTS.items()}
    add("points", metavar="POINTS", help="the table of runs")
    add(
        "--law",
        action=_Once,
        help="its name, two names for two steps (docs/laws.md), a formula, a YAML file, or auto: the best at "
        "predicting the table's largest runs (default chinchilla)",
    )
    add("--map", **pairs, help="which column holds what, or its formula: loss=final_loss C=6ND N=params-embedding")
    add("--where", **several, metavar="CONDITION", help="fit these rows only: 'C<1e21' 'N>=1e8' corpus=c4")
    add("--define", **pairs, help="state what a column counts or its unit (loss=perplexity), or answer the checklist")
    add("--pool", **several, metavar="COLUMN", help="let this definition differ between points")
    add("--best-by", **several, metavar="COLUMN", help="of runs alike in these columns keep the one of lowest loss")
    add("--fix", **pairs, help="hold parameters of the law at these values")
    add("--tie", **pairs, help="make parameters of the law equal: alpha=beta")
    add("--bounds", **{**pairs, "metavar": "NAME=LOW:HIGH"}, help="hold parameters of the law between these values")
    add("--weight", action=_Once, metavar="COLUMN", help="how much each run counts")
    add(
        "--hold-out",
        action=_Once,
        metavar="CONDITION",
        help="test on these runs: 'N>=1e9', N for the largest N, none for none (default: those of a column held_out)",
    )
    add(
        "--target",
        nargs="+",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="predict here, or with C find the best N and D (C=1e21 served=1e12 pays for these tokens too); may repeat",
    )
    add(
        "--objective",
        action=_Once,
        choices=OBJECTIVES,
        help="what is minimised (default log_huber of a loss, squared of a score)",
    )
    add("--delta", action=_Once, type=float, help="where Huber's penalty turns linear (default 0.001)")
    add("--over", action=_Once, type=float, metavar="FACTOR", help="how many times as much an overestimate costs")
    add("--intervals", action=_Once, choices=METHODS, help=f"how intervals are made {default['intervals']}")
    add("--level", action=_Once, type=float, help=f"of the intervals {default['level']}")
    add(
        "--cluster",
        action=_Once,
        metavar="COLUMN",
        help="points whose errors belong together, by default those of one run where `run` or `run_name` repeats; none",
    )
    add(
        "--share",
        action=_Once,
        metavar="COLUMN",
        help="runs with a common error (a trunk, a seed, a machine), which is estimated: default column trunk; none",
    )
    add(
        "--noise",
        action=_Once,
        type=float,
        metavar="NATS",
        help="standard deviation between seeds, for IsoFLOP minima",
    )
    add("--starts", action=_Once, type=int, help=f"random starts that are screened {default['starts']}")
    add("--seed", action=_Once, type=int, help=f"of everything random {default['seed']}")
    add(
        "--curves",
        action="store_true",
        help="fit every logged loss of the runs, by a law of whole curves (multi_power)",
    )
    add("--after", action=_Once, metavar="TOKENS", help="of --curves: leave out the losses before these tokens")
    add("--figures", action=_Once, metavar="FOLDER", help="draw PDF, SVG, PNG and interactive HTML there")
    add("--json", action="store_true", help="one JSON document")
    formats = ("terminal", "markdown", "latex")
    add("--format", action=_Once, choices=formats, help="of what is printed (default terminal)")


def run(arguments: argparse.Namespace) -> None:
    if arguments.curves:
        return _curves(arguments)
    if arguments.after is not None:
        raise ScalingError("is of whole curves", key="after", value=arguments.after, fix="add --curves")
    if arguments.json and arguments.format is not None:
        raise ScalingError("a document of --json has none", key="format", value=arguments.format, fix="leave it out")
    fitted = fit(
        arguments.points,
        "chinchilla" if arguments.law is None else arguments.law,
        rename=_pairs(arguments.map, "map"),
        where=arguments.where,
        define=_pairs(arguments.define, "define"),
        pool=arguments.pool,
        best_by=arguments.best_by,
        fix=_numbers(arguments.fix, "fix"),
        tie=_pairs(arguments.tie, "tie"),
        bounds=_limits(arguments.bounds),
        weight=arguments.weight,
        hold_out=arguments.hold_out,
        targets=[_numbers(words, "target") for words in arguments.target],
        objective=arguments.objective,
        delta=arguments.delta,
        over=arguments.over,
        intervals=arguments.intervals,
        level=arguments.level,
        cluster=arguments.cluster,
        share=arguments.share,
        noise=arguments.noise,
        starts=arguments.starts,
        seed=arguments.seed,
    )
    document = fitted.to_json()
    if arguments.figures:
        document["figures"] = list(map(str, fitted.save(arguments.figures)))
    if arguments.json:
        print(json.dumps(numbered(document), indent=2, allow_nan=False, ensure_ascii=False))
    elif arguments.format in ("markdown", "latex"):
        print(fitted.to_markdown() if arguments.format == "markdown" else fitted.to_latex(), end="")
    else:
        from rich.console import Console

        from scaling.fit_report.terminal import show

        console = Console(highlight=False, soft_wrap=True)
        show(document, console)
        if arguments.figures:
            console.print(f"figures: {arguments.figures}")


OF_CURVES = ("points", "law", "where", "target", "level", "seed", "after", "curves", "json")


def _curves(arguments: argparse.Namespace) -> None:
    """A law of whole curves; what only a law of final losses can use is refused."""
    from scaling.api.curves import fit_curves

    for name, value in vars(arguments).items():
        known = name in OF_CURVES or name not in OF_FINAL_LOSSES
        if not known and value not in (None, [], False):
            raise ScalingError("a law of whole curves cannot use it", key=name.replace("_", "-"), fix="leave it out")
    numbers = {} if arguments.after is None else _numbers([f"after={arguments.after}"], "after")
    document = fit_curves(
        arguments.points,
        arguments.law or "multi_power",
        after=numbers.get("after"),
        where=arguments.where,
        targets=[_numbers(words, "target") for words in arguments.target],
        level=0.95 if arguments.level is None else arguments.level,
        seed=arguments.seed or 0,
    ).to_json()
    if arguments.json:
        print(json.dumps(numbered(document), indent=2, allow_nan=False, ensure_ascii=False))
    else:
        print("\n".join(_lines(document)))


OF_FINAL_LOSSES = (
    *("map", "define", "pool", "best_by", "fix", "tie", "bounds", "weight", "hold_out", "objective", "delta"),
    *("intervals", "cluster", "share", "noise", "starts", "figures", "format"),
)


def _lines(document: dict[str, Any]) -> Iterator[str]:
    """The fit of whole curves for a person."""
    yield f"{document['law']}: {document['formula']}"
    yield document["citation"]
    kept = f"{document['losses']:,} losses of {document['curves']} curves"
    yield f"{kept}, R² {document['r_squared']:.4f}, mean error {document['mean_error']:.2%}"
    for name, value in document["estimates"].items():
        interval = document["intervals"].get(name)
        yield f"  {name:<6} {value:.5g}{'' if interval is None else f'  {_ends(interval)}'}"
    errors = document["errors"]
    powers = f"N^-{errors['by_size']:.2g} D^-{errors['by_tokens']:.2g}"
    yield f"errors of log loss, those of trunks and runs as {powers}: " + ", ".join(
        f"{title} {errors[name]:.2g}"
        for name, title in (
            *(("trunk", "of a trunk"), ("run", "along a run"), ("evaluation", "of an evaluation")),
            ("training", "of a training loss"),
        )
        if errors[name] is not None
    )
    if not document["converged"]:
        yield "the fit did not converge: the parameters of the schedule are not identified by these curves"
    for row in document["held_out"]:
        inside = "inside" if row["covered"] else "outside"
        where = f"{inside} the {_ends(row['interval_run'])} of a new run"
        yield f"held out {row['run']}: {row['loss']:.4f}, predicted {row['predicted']:.4f}, {where}"
    for row in document["completed"]:
        yield f"{row['run']}, {row['at']:.0%} done, ends at {row['estimate']:.4f} {_ends(row)}"
    for row in document["schedules"]:
        usual = ", ".join(f"{name} {loss:.4f}" for name, loss in row["usual"].items())
        best = f"best schedule {row['loss']:.4f}, a gain of {row['gain']:.4f}"
        yield f"N {row['N']:.3g}, D {row['D']:.3g}: {best}; {usual}"


def _ends(interval: dict[str, Any]) -> str:
    low, high = ("open" if end is None else f"{end:.5g}" for end in (interval["low"], interval["high"]))
    return f"{100 * interval['level']:g}% interval [{low}, {high}]"


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, sign, value = (part.strip() for part in word.partition("="))
        if not sign or not name or not value:
            raise ScalingError("is not NAME=VALUE", key=option, value=word, fix=f"write --{option} NAME=VALUE …")
        if pairs.setdefault(name, value) != value:
            raise ScalingError(f"is given twice: {pairs[name]} and {value}", key=f"{option} {name}", fix="give it once")
    return pairs


def _numbers(words: Sequence[str], option: str) -> dict[str, float]:
    from scaling.law.parse_number import parse_argument

    return {name: parse_argument(value, option, name) for name, value in _pairs(words, option).items()}


def _limits(words: Sequence[str]) -> dict[str, tuple[float, float]]:
    """`a=0:2`; an end that is left out is open."""
    from scaling.law.parse_number import parse_number

    limits = {}
    for name, value in _pairs(words, "bounds").items():
        low, colon, high = value.partition(":")
        ends = parse_number(low or "-inf"), parse_number(high or "inf")
        if not colon or None in ends:
            raise ScalingError("is not LOW:HIGH", key=f"bounds {name}", value=value, fix=f"write --bounds {name}=0:2")
        limits[name] = ends
    return limits
