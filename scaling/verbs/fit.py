"""Fit a scaling law to a table of runs, or to whole training curves."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scaling.errors import ScalingError, nearest, plural
from scaling.printing import Table, TableResult, percent
from scaling.schema import OpenFraction, PositiveFloat, Range, Seed
from scaling.verbs.verb import Flag, spelled, verb

if TYPE_CHECKING:
    import pandas

    from scaling.figures import Picture
    from scaling.laws import Fit as FittedLaw
    from scaling.laws import Interval, Law, Points, Prediction, TwoStep
    from scaling.laws.curves import Curve, CurveFit
    from scaling.laws.held_out import Refit
    from scaling.laws.optimum import Competitor
    from scaling.laws.written import Written
else:
    CurveFit = Any  # the signature is evaluated, and help needs no numpy

Objective = Literal["log_huber", "log_squared", "squared", "huber", "log_absolute", "absolute"]
Method = Literal["profile", "t", "bootstrap_case", "bootstrap_run", "bootstrap_residual", "none"]
AUTO = "auto"
APPROACHES = ("isoflop_parabola", "isoflop_akima", "envelope")
"""Analyses of the optimal size, which fit no law of the loss: Chinchilla's approaches 2 and 1."""
_USERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("fix", "tie", "bounds", "weight"), ("law",)),
    **dict.fromkeys(("hold_out", "targets", "objective", "delta", "intervals", "level"), ("law", AUTO)),
    **dict.fromkeys(("group", "starts"), ("law", AUTO)),
    "noise": ("isoflop",),
    "seed": ("law", AUTO, "isoflop"),
}
"""The kinds of law that can use an option; an option without a line here suits every kind."""


class PredictedLoss(float):
    """A predicted loss: a float, with the interval of the law's mean and that of a new run's loss."""

    interval_mean: Interval | None
    interval_run: Interval | None
    """The interval to compare a run's loss with."""
    is_identified: bool
    """Whether its intervals are narrow enough to state it (docs/laws.md)."""

    def __new__(cls, prediction: Prediction, target: str = "loss") -> PredictedLoss:
        self = super().__new__(cls, prediction.estimate)
        self.is_identified = prediction.is_identified(target)
        self.interval_mean, self.interval_run = prediction.mean, prediction.run
        return self

    def __repr__(self) -> str:
        new = self.interval_run
        value = f"{float(self):.4f}" if self.is_identified else "not identified"
        return value + ("" if new is None else f" ({percent(new.level)} {new.low:.4f} to {new.high:.4f} for a new run)")


@dataclass(frozen=True, repr=False)
class Fit(TableResult):
    """A fitted law, or the growth of the optimal size and data that an IsoFLOP or envelope analysis finds.

    Printed, it is what `scaling fit` prints; a notebook shows the same as tables. `law` has the residuals, the weights
    and the diagnostics of the fit; it is None for an analysis without a law of the loss.
    """

    document: Mapping[str, Any]
    points: Points
    intervals: Mapping[str, Interval]
    """The parameters' intervals; an open end is infinite."""
    law: FittedLaw | TwoStep | None = None
    method: Any = None
    level: float = 0.95
    album: Callable[[Any], Mapping[str, Picture]] = lambda _: {}
    """Draws the pictures by functions of the module `scaling.figures`."""
    refit: Refit | None = None
    """Chooses and fits a law without some of the points, where the law was chosen."""

    @property
    def estimates(self) -> dict[str, float]:
        """The parameters by name."""
        return dict(self.document["estimates"])

    @property
    def doubts(self) -> list[str]:
        """Warnings about the fit, in sentences; empty where there is none."""
        return [*self.document.get("not_identified", ()), *self.document.get("unreliable", ())]

    @property
    def held_out(self) -> pandas.DataFrame:
        """The held-out runs, each with its prediction."""
        return _frame((self.document["held_out"] or {}).get("points", ()))

    @cached_property
    def back_test(self) -> pandas.DataFrame:
        """The largest of the fitted runs by each axis, predicted by fits to the smaller ones."""
        from scaling.laws.held_out import back_test

        tests = self.document.get("back_test", [])
        if not tests and self.law is not None:
            tests = back_test(self.law, self.level, self.refit)
        return _frame(tests)

    @property
    def minima(self) -> pandas.DataFrame:
        """The minimum of each budget of an IsoFLOP analysis, or why it has none (`refused`)."""
        return _frame(self.document.get("minima", ()))

    @property
    def predictions(self) -> pandas.DataFrame:
        """What the law predicts for the targets."""
        return _frame(self.document.get("predictions", ()))

    def predict(self, **columns: Any) -> Any:
        """The loss (or score) at one row of the law's columns as a `PredictedLoss`; for arrays of them a DataFrame.

        fit.predict(N=7e9, D=1.4e11).interval_run

        A law of a score takes `examples` too, the number of examples that the new score will be the mean of.
        """
        import numpy as np

        from scaling.laws.fit import check_columns
        from scaling.laws.predict import predict_runs

        law = self._needs_law("predict")
        check_columns(law.form, columns, key="target")
        rows = np.broadcast_arrays(*(np.asarray(column, float) for column in columns.values()))
        table = [dict(zip(columns, map(float, row), strict=True)) for row in zip(*(column.ravel() for column in rows))]
        predicted = predict_runs(law, table, self.level, self.method, seed=law.seed)
        target = law.form.target
        if not rows[0].ndim:
            return PredictedLoss(predicted[0], target)
        return _frame({**one.row, target: one.estimate, **one.to_json()} for one in predicted)

    def optimum(self, C: float, served: float = 0.0) -> dict[str, float]:
        """The size N and the data D that make the best of C FLOPs, and the loss there; of these FLOPs, 2 N pay for
        each token that is `served` after training.

        An optimum that the points do not identify is refused. A warning states where competing laws disagree.
        """
        if self.law is None and not served:
            of = self.estimates
            return {"N": of["N_coefficient"] * C ** of["a"], "D": of["D_coefficient"] * C ** of["b"]}
        from scaling.laws.examine import budget_optimum
        from scaling.laws.report import disagreement, tried

        law = self._law_of_loss
        document = self.document.get("steps", [self.document])[0]
        method = self.method if law.degrees_of_freedom > 0 else None
        best = budget_optimum(law, {"C": C, "served": served}, self._competitors, method, self.level)
        if not best["identified"]:
            what = f"the optimum is not identified by {document['law']} of {tried(document)}"
            raise ScalingError(what, key="C", value=C, fix="add runs nearer to it, or fit a law with fewer parameters")
        for line in disagreement(best):
            warnings.warn(line.removeprefix("! "), stacklevel=2)
        return {name: best[name]["estimate"] for name in ("N", "D", "loss")}

    @property
    def _law_of_loss(self) -> FittedLaw:
        law = self._needs_law("optimise")
        return getattr(law, "loss", law)  # of two steps the first

    @cached_property
    def _competitors(self) -> tuple[Competitor, ...]:
        from scaling.laws.optimum import competitors

        return competitors(self._law_of_loss)

    @cached_property
    def pictures(self) -> dict[str, Picture]:
        """All pictures of the fit by name; notebooks show them, and `save` draws them to files."""
        from scaling import figures

        return dict(self.album(figures))

    def plot(self, name: str | None = None) -> Picture:
        """One picture: the loss against compute, or the first there is; `pictures` has them all."""
        against_compute = (title for title in self.pictures if title.endswith("_against_C"))
        name = name or next(against_compute, next(iter(self.pictures)))
        if name not in self.pictures:
            raise ScalingError(f"there is no picture {name!r}", fix=nearest(name, self.pictures))
        return self.pictures[name]

    def save(self, folder: str | Path) -> list[Path]:
        """Draw all pictures into a folder, each as PDF, SVG and PNG."""
        from scaling.figures import FORMATS

        pictures = {str(Path(folder) / name): picture for name, picture in self.pictures.items()}
        return [path for name, picture in pictures.items() for path in picture.save(*(name + kind for kind in FORMATS))]

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling fit --json` (docs/json.md)."""
        return dict(self.document)

    def heading(self) -> Iterator[str]:
        """The law, its points and their ranges, and how close the law comes."""
        from scaling.laws.report import heading

        return heading(self.document)

    def tables(self) -> Iterator[Table]:
        """The tables of the report."""
        from scaling.laws.report import tables

        return tables(self.document)

    def remarks(self) -> Iterator[str]:
        """How the optimum was reached, what speaks against it, and where the figures are."""
        from scaling.laws.report import remarks

        yield from remarks(self.document)
        if figures := self.document.get("figures"):
            yield f"figures: {Path(figures[0]).parent}"

    def __repr__(self) -> str:
        estimates = ", ".join(f"{name} {value:.4g}" for name, value in self.estimates.items())
        return f"Fit({self.document['law']}, {plural(len(self.points), 'run')}: {estimates})"

    def _needs_law(self, action: str) -> Any:
        if self.law is None:
            what = f"{self.document['law']} has no law of the loss to {action} with"
            raise ScalingError(what, fix="fit a law such as chinchilla")
        return self.law


@verb
def fit(
    points: Any,
    *,
    law: str = "chinchilla",
    rename: Annotated[Mapping[str, str], Flag("map")] = {},
    where: tuple[str, ...] = (),
    define: Mapping[str, str] = {},
    fix: Mapping[str, float] = {},
    tie: Mapping[str, str] = {},
    bounds: Mapping[str, tuple[float, float]] = {},
    weight: str | None = None,
    hold_out: str | None = None,
    targets: Annotated[Sequence[Mapping[str, float]], Flag("target")] = (),
    objective: Objective | None = None,
    delta: PositiveFloat | None = None,
    intervals: Method = "profile",
    level: OpenFraction = 0.95,
    group: str | None = None,
    noise: PositiveFloat | None = None,
    starts: Annotated[int, Range(least=1, most=100_000)] = 1024,
    seed: Seed = 0,
    figures: str | Path | None = None,
) -> Fit:
    """Fit a scaling law to a table of runs and test the fit.

        scaling fit points.csv --law chinchilla                             a table with columns N, D and loss
        scaling fit points.csv --map loss=final_loss N=params-embedding     under other names, or by formula
        scaling fit points.csv --where 'C<1e21' 'N>=100M' corpus=c4         some of its rows
        scaling fit points.csv --hold-out 'N>=1e9' --target N=7e9 D=1.4e11   test it, then predict with it
        scaling fit points.csv --law 'E + A*N^-a + B*D^-b' --bounds a=0:2   a law of your own, also in a YAML file
        scaling fit points.csv --law isoflop_akima                          optimal sizes from IsoFLOP minima
        scaling fit points.csv --law auto                                   the law that predicts the largest runs best
        scaling fit points.csv --law chinchilla,task_sigmoid                a task's score from N and D, by the loss

        fit = scaling.fit(df, law="chinchilla", hold_out="N>=1e9", targets=[{"N": 7e9, "D": 1.4e11}])

    POINTS is CSV, TSV, JSON lines, parquet, or the folder of a study, a sweep or a ledger; in Python also a DataFrame,
    records, or columns. A column `status` or W&B's `State` (finished, diverged, crashed, …) counts the runs that have
    no loss; the runs of a column `held_out` test the fit; `N_definition`, `tokenizer` and the like state definitions.
    `scaling explain law` lists the laws. `scaling fit-curves` fits whole training curves.

    Args:
        points: the table of runs
        law: its name, two names for two steps (docs/laws.md), a formula, a YAML file, or auto: the best at predicting
            the table's largest runs
        rename: which column holds what, or its formula: loss=final_loss C=6*N*D N=params-embedding
        where: fit these rows only: 'C<1e21' 'N>=1e8' corpus=c4
        define: state what a column counts, or its unit (loss=perplexity)
        fix: hold parameters of the law at these values
        tie: make parameters of the law equal: alpha=beta
        bounds: hold parameters of the law between these values: alpha=0:2
        weight: the column that states how much each run counts
        hold_out: test on these runs: 'N>=1e9', or N for the largest N; none for no test; largest also predicts the
            largest runs from fits to the smaller ones (default: the runs of a column held_out)
        targets: predict here, or with C find the best N and D (C=1e21 served=1e12 pays for these tokens too); repeats
        objective: what is minimised (default log_huber of a loss, squared of a score)
        delta: where Huber's penalty turns linear (default 0.001)
        intervals: how intervals are made
        level: of the intervals
        group: the column of runs that share an error (a trunk, a seed, a machine), or none (default: trunk, or a run
            of several points)
        noise: standard deviation of the loss between seeds, for IsoFLOP minima
        starts: random starts that are screened
        seed: of everything random
        figures: draw all pictures into this folder, as PDF, SVG and PNG
    """
    options = locals()

    from scaling.laws.held_out import split_held_out
    from scaling.laws.written import law_of
    from scaling.studies.points import read_points

    chosen = law if law in (AUTO, *APPROACHES) else law_of(law, AUTO, *APPROACHES)
    _refuse_unused(chosen.partition("_")[0] if isinstance(chosen, str) else "law", options)

    table = read_points(points, rename=rename, where=where, define=define)
    train, tested = split_held_out(table, hold_out)
    if isinstance(chosen, str) and chosen != AUTO:
        fitted = _approach(train, chosen, noise, seed)
    else:
        fitted = _law(chosen, table, train, tested, options)
    if figures is not None:
        files = [str(path) for path in fitted.save(figures)]
        fitted = replace(fitted, document={**fitted.document, "figures": files})
    return fitted


def _refuse_unused(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse what the kind of law or another option leaves without an effect, before the table is read."""
    reasons = {name: f"{options['law']} cannot use it" for name, kinds in _USERS.items() if kind not in kinds}
    if options["intervals"] == "none":
        reasons.setdefault("level", "no intervals are asked for")
    if kind == "isoflop" and options["noise"] is None:
        reasons["seed"] = "nothing is random without --noise"
    parameters = inspect.signature(fit, eval_str=True).parameters
    for option, reason in reasons.items():
        if options[option] not in (parameters[option].default, None, (), []):
            raise ScalingError(reason, key=spelled(parameters[option]), value=options[option], fix="leave it out")


def _law(
    chosen: Law | Written | str, table: Points, train: Points, tested: Points | None, options: Mapping[str, Any]
) -> Fit:
    """The fit of a law, or of the law that `auto` chooses, to the points of `train`."""
    from scaling.laws.examine import check_target, examine
    from scaling.laws.held_out import choose, choose_again
    from scaling.laws.points import group_of
    from scaling.laws.predict import fit_law
    from scaling.laws.problem import named_objective
    from scaling.laws.written import constrained_law

    objective, delta, seed = (options[name] for name in ("objective", "delta", "seed"))
    fitting = {"starts": options["starts"], "seed": seed, "group": group_of(train, options["group"])}
    choice = refit = kind = None
    if isinstance(chosen, str):
        kind = named_objective(objective or "log_huber", delta) if objective or delta else None
        choice = choose(train, objective=kind, seed=seed)
        refit = choose_again(train, objective=kind, seed=seed, group=fitting["group"])
        form, fit_form = choice.best.form, choice.best.fit
    else:
        form, fixed = constrained_law(chosen, table, options["fix"], options["tie"], options["bounds"])
        kind = named_objective(objective or form.objective, delta) if objective or delta else None
        weights = None if options["weight"] is None else train.numbers(options["weight"])
        fit_form = partial(fit_law, form, objective=kind, weights=weights, fixed=fixed)
    for target in options["targets"]:
        check_target(form, target)
    law = fit_form(train, **fitting)

    how = {"level": options["level"], "method": None if options["intervals"] == "none" else options["intervals"]}
    examined = examine(
        law,
        held_out=tested,
        targets=options["targets"],
        group=fitting["group"],
        largest=options["hold_out"] == "largest",
        refit=refit,
        **how,
    )
    document = examined.document | ({} if choice is None else {"choice": choice.to_json()})
    more = {
        "album": lambda figures: figures.figures_of_law(law, tested, tested=examined.held_out, **how),
        "refit": refit,
    }
    return Fit(document, train, examined.intervals, law, **how, **more)


def _approach(points: Points, law: str, noise: float | None, seed: int) -> Fit:
    """Chinchilla's approach 1 or 2: the growth of the optimal size and data."""
    from scaling.laws.approaches import envelope, isoflop
    from scaling.laws.examine import of_envelope, of_isoflop

    points.refuse_absent(("N", "D", "C", "loss", *(("run",) if law == "envelope" else ())))
    if law == "envelope":
        closed = envelope(points)
        found = of_envelope(points, closed)
        return Fit(
            found.document,
            points,
            found.intervals,
            album=lambda figures: {law: figures.learning_curves(points, axis="C", envelope=closed)},
        )
    kind: Any = law.removeprefix("isoflop_")
    both = [isoflop(points, along=name, kind=kind, noise=noise, seed=seed) for name in ("N", "D")]
    found = of_isoflop(points, *both)
    return Fit(
        found.document,
        points,
        found.intervals,
        album=lambda figures: {f"isoflop_{each.along}": figures.isoflop_valleys(each, points) for each in both},
    )


@verb
def fit_curves(
    curves: Any,
    *,
    law: Literal["multi_power", "annealed_curve"] = "multi_power",
    after: str | float | None = None,
    where: tuple[str, ...] = (),
    level: OpenFraction = 0.95,
    seed: Seed = 0,
) -> CurveFit:
    """Fit a law to every logged loss of many runs, and predict held-out runs and the ends of unfinished ones.

        scaling fit-curves runs/studies/quickstart
        scaling fit-curves curves.csv --law annealed_curve --after 2e5

        curves = scaling.fit_curves("runs/studies/quickstart")
        curves.estimates["E"], curves.intervals()["E"]

    CURVES is the folder of a study, or a table with a row for each logged loss (columns run, N, step, tokens, lr and
    loss; docs/laws.md); in Python also a list of `Curve` objects. The fit predicts the runs of a column `held_out` and
    the end of each run that is unfinished.

    Args:
        curves: the folder of a study, or a table of curves
        law: the law of whole curves
        after: leave out the losses before these tokens
        where: fit these rows of a table only: 'N>=1e6' kind=evaluate
        level: of the intervals
        seed: of the random starts
    """
    from scaling.laws import curves as curve_fits
    from scaling.laws.formula import parse_number

    start = None if after is None else parse_number(after)
    if after is not None and start is None:
        raise ScalingError("is not a number", key="after", value=after, fix="write --after 2e5")
    return curve_fits.fit_curves(read_curves(curves, where), law, after=start, level=level, seed=seed)


def read_curves(source: Any, where: Sequence[str] = ()) -> list[Curve]:
    """The curves of a study's folder, of a table, or of `Curve` objects."""
    from scaling.laws.curves import Curve
    from scaling.laws.curves import read_curves as curves_of_table
    from scaling.studies.points import read_points

    if isinstance(source, str | Path) and Path(source).is_dir():
        from scaling.studies.points import curves_of_study

        if where:
            raise ScalingError("chooses rows of a table", key="where", fix="name the folder of one study")
        return list(curves_of_study(Path(source)))
    if isinstance(source, list | tuple) and all(isinstance(curve, Curve) for curve in source):
        return list(source)
    return curves_of_table(read_points(source, where=where))


def _frame(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Records as a DataFrame, an interval as the two columns of its ends."""
    import pandas

    def cells(name: str, value: Any) -> dict[str, Any]:
        if name.startswith("interval_"):
            name = name.removeprefix("interval_")
            return {f"{name}_{end}": None if value is None else value[end] for end in ("low", "high")}
        return {name: json.dumps(value) if isinstance(value, Mapping | list) else value}

    return pandas.DataFrame([{k: v for item in row.items() for k, v in cells(*item).items()} for row in rows])
