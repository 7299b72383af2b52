"""Fit a scaling law to a table of runs and say what the fit is worth.

scaling fit points.csv --law chinchilla                             a table with columns N, D and loss
scaling fit points.csv --map loss=final_loss N=params-embedding     under other names, or by formula
scaling fit points.csv --where 'C<1e21' 'N>=100M' corpus=c4         some of its rows
scaling fit points.csv --hold-out 'N>=1e9' --target N=7e9 D=1.4e11  test it, then predict with it
scaling fit points.csv --law 'E + A*N^-a + B*D^-b' --bounds a=0:2   a law of your own, also in a YAML file
scaling fit points.csv --law isoflop_akima                          optimal sizes from IsoFLOP minima

POINTS is CSV, TSV, JSON lines, parquet, or the folder of a study, a sweep or a ledger. A column `status` or W&B's
`State` (finished, diverged, crashed, …) counts the runs that have no loss; the runs of a column `held_out` test the
fit; `N_definition`, `tokenizer` and the like state definitions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.errors import ScalingError, nearest

if TYPE_CHECKING:
    from scaling.law.forms import Form
    from scaling.law.forms.formula import Written
    from scaling.law.objective import Objective
    from scaling.law.points import Points
    from scaling.picture import Picture

    Album = Callable[[], dict[str, Picture]]
    Bounds = tuple[float, float]

OBJECTIVES = ("log_huber", "log_squared", "squared", "huber", "log_absolute", "absolute")
METHODS = ("profile", "t", "bootstrap_case", "bootstrap_run", "bootstrap_residual", "none")
APPROACHES = {
    "isoflop_parabola": "Chinchilla's approach 2, minima by parabola",
    "isoflop_akima": "Chinchilla's approach 2, minima by Akima's interpolation",
    "envelope": "Chinchilla's approach 1, the envelope of training curves",
}
FORMATS = (".pdf", ".svg", ".png", ".html")
MOST_STARTS = 100_000

DEFAULTS = {
    "objective": "log_huber",
    "delta": 1e-3,
    "intervals": "profile",
    "level": 0.95,
    "starts": 1024,
    "seed": 0,
    "format": "terminal",
}
FITTING = (
    "hold_out",
    "target",
    "fix",
    "tie",
    "bounds",
    "objective",
    "delta",
    "intervals",
    "level",
    "cluster",
    "weight",
)
USED_BY = {
    **dict.fromkeys((*FITTING, "starts"), ("law",)),
    "noise": ("isoflop",),
    "seed": ("law", "isoflop"),
}
"""Which kinds of law can use an option; an option that is not listed concerns the table, or every kind."""


class _Once(argparse.Action):
    """An option of one value: a second, different one is refused, not put in the place of the first."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        before = getattr(namespace, self.dest)
        if before is not None and before != values:
            raise ScalingError(
                f"is given twice: {before} and {values}", key=self.dest.replace("_", "-"), mend="give it once"
            )
        setattr(namespace, self.dest, values)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    pairs: dict[str, Any] = {**several, "metavar": "NAME=VALUE"}
    default = {name: f"(default {value})" for name, value in DEFAULTS.items()}
    add("points", metavar="POINTS", help="the table of runs")
    add("--law", action=_Once, help="its name (docs/laws.md), a formula, or a YAML file (default chinchilla)")
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
        help="predict here, or with C alone find the best N and D; may repeat",
    )
    add("--objective", action=_Once, choices=OBJECTIVES, help=f"what is minimised {default['objective']}")
    add("--delta", action=_Once, type=float, help=f"where Huber's penalty turns linear {default['delta']}")
    add("--intervals", action=_Once, choices=METHODS, help=f"how intervals are made {default['intervals']}")
    add("--level", action=_Once, type=float, help=f"of the intervals {default['level']}")
    add(
        "--cluster",
        action=_Once,
        metavar="COLUMN",
        help="points whose errors belong together, by default those of one run where `run` or `run_name` repeats; none",
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
    add("--figures", action=_Once, metavar="FOLDER", help="draw PDF, SVG, PNG and interactive HTML there")
    add("--json", action="store_true", help="one JSON document")
    formats = ("terminal", "markdown", "latex")
    add("--format", action=_Once, choices=formats, help=f"of what is printed {default['format']}")


def run(arguments: argparse.Namespace) -> None:
    import numpy as np

    law = _law_of("chinchilla" if arguments.law is None else arguments.law)
    _check(arguments, law)
    for name, value in DEFAULTS.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    with np.errstate(all="ignore"):  # an overflow on the way is the solver's business, not the reader's
        points = _read(arguments)
        document, album = _approach(arguments, law, points) if isinstance(law, str) else _fit(arguments, law, points)
        if arguments.figures:
            document["figures"] = _draw(album(), Path(arguments.figures))
    if arguments.json:
        print(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))
        return
    if arguments.format != "terminal":
        from scaling.fit_report.formats import FORMATS

        print(FORMATS[arguments.format](document), end="")
        return
    from rich.console import Console

    from scaling.fit_report.terminal import show

    console = Console(highlight=False, soft_wrap=True)
    show(document, console)
    if arguments.figures:
        console.print(f"figures: {arguments.figures}")


def _law_of(text: str) -> Form | Written | str:
    """A law of the papers, one that a person wrote, or the name of an approach."""
    from scaling.law.forms import LAWS, named
    from scaling.law.forms.formula import Written, is_formula, read_law

    if text in APPROACHES:
        return text
    if text.endswith((".yaml", ".yml")):
        return read_law(text)
    if is_formula(text):
        return Written(text)
    if text not in (laws := [law.name for law in LAWS]):
        raise ScalingError("is no law", key="law", value=text, mend=nearest(text, [*laws, *APPROACHES]))
    return named(text)


def _check(arguments: argparse.Namespace, law: Form | Written | str) -> None:
    """Refuse what the law cannot use, and values that no law can, before the table is read."""
    kind = "law" if not isinstance(law, str) else law.partition("_")[0]
    for option, kinds in USED_BY.items():
        if getattr(arguments, option) not in (None, []) and kind not in kinds:
            name = law if isinstance(law, str) else arguments.law or "chinchilla"
            raise ScalingError(
                f"{name} cannot use it",
                key=option.replace("_", "-"),
                value=_said(getattr(arguments, option)),
                mend="leave it out",
            )
    objective, method = (getattr(arguments, name) or DEFAULTS[name] for name in ("objective", "intervals"))
    unused = {
        "delta": objective not in ("log_huber", "huber") and f"the objective {objective} has none",
        "level": method == "none" and "no intervals are asked for",
        "format": arguments.json and "a document of --json has none",
        "seed": kind == "isoflop" and arguments.noise is None and "nothing is random without --noise",
    }
    for option, reason in unused.items():
        if reason and getattr(arguments, option) is not None:
            raise ScalingError(reason, key=option, value=getattr(arguments, option), mend="leave it out")
    ranges = {
        "starts": (1, MOST_STARTS, f"give 1 to {MOST_STARTS:,}, or leave it out for the default"),
        "seed": (0, 2**63, "give a whole number of 0 or more"),
    }
    for option, (low, high, mend) in ranges.items():
        value = getattr(arguments, option)
        if value is not None and not low <= value <= high:
            what = "must be positive" if low == 1 and value < 1 else f"is not {low} to {high:,}"
            raise ScalingError(what, key=option, value=value, mend=mend)
    for option, mend in (("delta", "the papers use 1e-3"), ("noise", "give the standard deviation between seeds")):
        value = getattr(arguments, option)
        if value is not None and not 0 < value < float("inf"):
            raise ScalingError("must be positive", key=option, value=value, mend=mend)
    if arguments.level is not None and not 0 < arguments.level < 1:
        raise ScalingError("is not between 0 and 1", key="level", value=arguments.level, mend="write 0.95 for 95%")
    if method == "bootstrap_run" and arguments.cluster is None:
        raise ScalingError(
            "resamples clusters, and none are named", key="intervals", value=method, mend="add --cluster run"
        )


def _said(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) and not isinstance(value[0], list) else value


def _read(arguments: argparse.Namespace) -> Points:
    from scaling.law.columns import from_rows
    from scaling.law.read_points import read, table_of
    from scaling.ledger.points import rows_of

    choices: dict[str, Any] = {
        "rename": _pairs(arguments.map, "map"),
        "where": arguments.where,
        "define": _pairs(arguments.define, "define"),
        "pool": arguments.pool,
        "best_by": arguments.best_by,
    }
    folder = Path(arguments.points)
    rows = rows_of(folder) if folder.is_dir() and not table_of(folder).exists() else None
    if rows is None:
        return read(folder, **choices)
    if not rows:
        raise ScalingError("is a ledger of no runs", file=folder, mend="train some, or give a table of runs")
    return from_rows(rows, source=str(folder), **choices)


def _fit(arguments: argparse.Namespace, law: Form | Written, points: Points) -> tuple[dict[str, Any], Album]:
    from scaling.fit_report.report import fit_report
    from scaling.law.columns import clustered_by
    from scaling.law.fit import fit
    from scaling.law.held_out import column_held_out, split_held_out
    from scaling.ledger.setup import setup_of_table
    from scaling.picture.figures import of_law

    form = _constrained(arguments, law, points)
    targets = [_target(form, words) for words in arguments.target]
    fixed = _numbers(arguments.fix, "fix")
    setup = setup_of_table(Path(arguments.points), map(str, points["run"])) if "run" in points else {}
    held_out = None
    if arguments.hold_out in (None, "largest"):
        mask = column_held_out(points)
        points, held_out = (points, None) if mask is None else points.hold_out(mask)
    elif arguments.hold_out != "none":
        points, held_out = split_held_out(points, arguments.hold_out)
    clusters = {None: clustered_by(points), "none": None}.get(arguments.cluster, arguments.cluster)
    result = fit(
        form,
        points,
        objective=_objective(arguments.objective, arguments.delta),
        weights=None if arguments.weight is None else _weights(points, arguments.weight),
        clusters=clusters,
        fixed=fixed,
        starts=arguments.starts,
        seed=arguments.seed,
    )
    method = None if arguments.intervals == "none" else arguments.intervals
    report = fit_report(
        result,
        method=method,
        level=arguments.level,
        held_out=held_out,
        targets=targets,
        stated={**setup, **_pairs(arguments.define, "define")},
        cluster_column=clusters,
        seed=arguments.seed,
    )
    if arguments.hold_out == "largest":
        report = report.with_back_test()
    return report.to_json(), lambda: of_law(result, held_out, level=arguments.level, method=method)


def _constrained(arguments: argparse.Namespace, law: Form | Written, points: Points) -> Form:
    """The law with what the command line ties and bounds; of a formula the columns and parameters are now known."""
    from dataclasses import replace

    from scaling.law.forms.constrained import constrained
    from scaling.law.forms.formula import Written, formula

    ties, limits = _pairs(arguments.tie, "tie"), _limits(arguments.bounds)
    if isinstance(law, Written):
        written = replace(law, bounds={**(law.bounds or {}), **limits})
        return constrained(formula(written, points), {**(law.ties or {}), **ties}, {})
    return constrained(law, ties, limits)


def _weights(points: Points, column: str) -> Any:
    weights = points.numbers(column)
    if weights.min() <= 0:
        raise ScalingError(
            "is no weight",
            file=points.source or None,
            key=column,
            value=float(weights.min()),
            mend=f"weights are positive; leave runs out by --where '{column}>0'",
        )
    return weights


def _approach(arguments: argparse.Namespace, law: str, points: Points) -> tuple[dict[str, Any], Album]:
    from scaling.fit_report.report import EnvelopeReport, MinimaReport
    from scaling.law.envelope import envelope
    from scaling.law.held_out import column_held_out
    from scaling.law.isoflop import isoflop
    from scaling.picture.figures import of_curves, of_valleys

    mask = column_held_out(points)
    points = points if mask is None else points.hold_out(mask)[0]
    if law == "envelope":
        closed = envelope(points)
        return EnvelopeReport(points, closed).to_json(), lambda: of_curves(points, closed)
    kind = law.removeprefix("isoflop_")
    size, data = (isoflop(points, along=name, kind=kind, noise=arguments.noise, seed=arguments.seed) for name in "ND")
    return MinimaReport(points, size, data).to_json(), lambda: of_valleys(points, size, data)


def _objective(name: str, delta: float) -> Objective:
    from scaling.law import objective

    made = {
        "log_huber": lambda: objective.LogHuber(delta),
        "huber": lambda: objective.Huber(delta),
        "log_squared": objective.LogSquared,
        "squared": objective.Squared,
        "log_absolute": objective.LogAbsolute,
        "absolute": objective.Absolute,
    }
    return made[name]()


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, sign, value = (part.strip() for part in word.partition("="))
        if not sign or not name or not value:
            raise ScalingError("is not NAME=VALUE", key=option, value=word, mend=f"write --{option} NAME=VALUE …")
        if pairs.setdefault(name, value) != value:
            raise ScalingError(
                f"is given twice: {pairs[name]} and {value}", key=f"{option} {name}", mend="give it once"
            )
    return pairs


def _numbers(words: Sequence[str], option: str) -> dict[str, float]:
    from scaling.law.parse_number import argument

    return {name: argument(value, option, name) for name, value in _pairs(words, option).items()}


def _limits(words: Sequence[str]) -> dict[str, Bounds]:
    """`a=0:2`; an end that is left out is open."""
    from scaling.law.parse_number import number

    limits = {}
    for name, value in _pairs(words, "bounds").items():
        low, colon, high = value.partition(":")
        ends = number(low or "-inf"), number(high or "inf")
        if not colon or None in ends:
            raise ScalingError("is not LOW:HIGH", key=f"bounds {name}", value=value, mend=f"write --bounds {name}=0:2")
        limits[name] = ends
    return limits


def _target(form: Form, words: Sequence[str]) -> Mapping[str, float]:
    """One row of the law's columns; or C alone, which asks for the best run."""
    from scaling.law.points import POSITIVE

    row = _numbers(words, "target")
    inputs = set(form.inputs)
    if not (set(row) == {"C"} and inputs == {"N", "D"}):
        for name in row:
            if name not in inputs:
                raise ScalingError(f"{form.name} has no column {name!r}", key="target", mend=nearest(name, inputs))
        absent = [name for name in form.inputs if name not in row]
        if absent:
            raise ScalingError(f"{form.name} needs {', '.join(form.inputs)}", key="target", mend=f"add {absent[0]}=…")
    for name, value in row.items():
        if name in POSITIVE and value <= 0:
            raise ScalingError("must be positive", key=f"target {name}", value=value, mend=f"write {name}=1e9")
    return row


def _draw(pictures: dict[str, Picture], folder: Path) -> list[str]:
    from scaling.picture import save

    files = {name: [folder / (name + suffix) for suffix in FORMATS] for name in pictures}
    return [str(path) for name, picture in pictures.items() for path in save(picture, *files[name])]
