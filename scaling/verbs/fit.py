"""Fit a scaling law to a table of runs."""

from __future__ import annotations

import functools
import html
import inspect
import io
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scaling.errors import ScalingError, nearest, plural
from scaling.printing import html_table
from scaling.schema import OpenFraction, PositiveFloat, Range, Seed
from scaling.verbs.signature import Flag, spelled, verb

if TYPE_CHECKING:
    import pandas

    from scaling.law import Fit as FittedLaw
    from scaling.law import Form, Interval, Points, Prediction, TwoStep
    from scaling.law.back_test import Refit
    from scaling.law.competing import Competitor
    from scaling.law.forms.formula import Written
    from scaling.picture import Picture

Objective = Literal["log_huber", "log_squared", "squared", "huber", "log_absolute", "absolute"]
Method = Literal["profile", "t", "bootstrap_case", "bootstrap_run", "bootstrap_residual", "none"]
AUTO = "auto"
APPROACHES = ("isoflop_parabola", "isoflop_akima", "envelope")
"""Analyses of the optimal size, which fit no law of the loss: Chinchilla's approaches 2 and 1."""
_OF_LAWS = (
    *("hold_out", "targets", "fix", "tie", "bounds", "weight", "objective", "delta", "over", "intervals", "level"),
    *("cluster", "share", "starts"),
)
_UNUSED = {
    "law": ("noise",),
    AUTO: ("noise", "fix", "tie", "bounds", "weight"),
    "isoflop": _OF_LAWS,
    "envelope": (*_OF_LAWS, "noise", "seed"),
}
"""The options that each kind of law cannot use."""


class PredictedLoss(float):
    """A predicted loss: a float, with the interval of the law's mean and that of a new run's loss."""

    prediction: Prediction
    interval_mean: Interval | None
    interval_run: Interval | None
    """The interval to compare a run's loss with."""
    is_identified: bool
    """Whether its intervals are narrow enough to state it (docs/laws.md)."""

    def __new__(cls, prediction: Prediction, target: str = "loss") -> PredictedLoss:
        from scaling.law.predictions import is_identified

        self = super().__new__(cls, prediction.estimate)
        self.prediction, self.is_identified = prediction, is_identified(prediction, target)
        self.interval_mean, self.interval_run = prediction.mean, prediction.run
        return self

    def __repr__(self) -> str:
        new = self.interval_run
        value = f"{float(self):.4f}" if self.is_identified else "not identified"
        return value + ("" if new is None else f" ({100 * new.level:g}% {new.low:.4f} to {new.high:.4f})")


@dataclass(frozen=True, repr=False)
class Fit:
    """A fitted law, or the growth of the optimal size and data that an IsoFLOP or envelope analysis finds.

    Printed, it is what `scaling fit` prints; a notebook shows the same as tables. `law` is None for an analysis
    without a law of the loss.
    """

    formats = ("terminal", "markdown", "latex")

    document: Mapping[str, Any]
    points: Points
    law: FittedLaw | TwoStep | None = None
    method: str | None = None
    level: float = 0.95
    album: Callable[[], dict[str, Picture]] = field(default=dict)
    refit: Refit | None = None
    """Chooses and fits a law without some of the points, where the law was chosen."""

    @property
    def estimates(self) -> dict[str, float]:
        """The parameters by name."""
        return dict(self.document["estimates"])

    @property
    def intervals(self) -> dict[str, Interval]:
        """The parameters' intervals; an open end is infinite."""
        from scaling.law.interval import Interval

        return {name: Interval.from_json(name, interval) for name, interval in self.document["intervals"].items()}

    @property
    def doubts(self) -> list[str]:
        """Warnings about the fit, in sentences; empty where there is none."""
        return [*self.document.get("not_identified", ()), *self.document.get("unreliable", ())]

    @property
    def held_out(self) -> pandas.DataFrame:
        """The held-out runs, each with its prediction."""
        return _frame((self.document.get("held_out") or {}).get("points", ()))

    @functools.cached_property
    def back_test(self) -> pandas.DataFrame:
        """The largest of the fitted runs by each axis, predicted by fits to the smaller ones."""
        from scaling.law.back_test import back_test

        tests = self.document.get("back_test")
        if not tests and self.law is not None:
            with _overflows_ignored():
                tests = [test.to_json() for test in back_test(self.law, self.level, self.refit)]
        return _frame(tests or ())

    @property
    def minima(self) -> pandas.DataFrame:
        """The minimum of each budget of an IsoFLOP analysis, or why it has none (`refused`)."""
        return _frame(self.document.get("minima", ()))

    @property
    def checklist(self) -> pandas.DataFrame:
        """The questions that a referee asks of a scaling law, each with its answer, or None where it has none."""
        return _frame((self.document.get("checklist") or {}).get("answers", ()))

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

        from scaling.law.fit import check_columns
        from scaling.law.predictions import predict_runs

        law = self._needs_law("predict")
        check_columns(law.form, columns, key="target")
        rows = np.broadcast_arrays(*(np.asarray(column, float) for column in columns.values()))
        table = [dict(zip(columns, map(float, row), strict=True)) for row in zip(*(column.ravel() for column in rows))]
        with _overflows_ignored():
            predicted = predict_runs(law, table, self.level, self.method, seed=law.seed)  # type: ignore[arg-type]
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
        from scaling.fit_report.report import budget_optimum
        from scaling.fit_report.tables import disagreement, tried
        from scaling.law.frontier import SERVED

        law, document = self._law_of_loss
        method: Any = self.method if law.degrees_of_freedom > 0 else None
        with _overflows_ignored():
            best = budget_optimum(law, {"C": C, SERVED: served}, self._competitors, method, self.level, law.seed)
        if not best.is_identified:
            what = f"the optimum is not identified by {document['law']} of {tried(document)}"
            raise ScalingError(what, key="C", value=C, fix="add runs nearer to it, or fit a law with fewer parameters")
        for line in disagreement(best.to_json()):
            warnings.warn(line.removeprefix("! "), stacklevel=2)
        size, data = best.prediction.row["N"], best.prediction.row["D"]
        return {"N": size, "D": data, "loss": best.prediction.estimate}

    @property
    def _law_of_loss(self) -> tuple[FittedLaw, Mapping[str, Any]]:
        """The law of the loss, which of two steps is the first, and its document."""
        from scaling.law.two_step import TwoStep

        law = self._needs_law("optimise")
        return (law.loss, self.document["steps"][0]) if isinstance(law, TwoStep) else (law, self.document)

    @functools.cached_property
    def _competitors(self) -> tuple[Competitor, ...]:
        """Fits of the laws that compete with the law of the loss."""
        from scaling.law.competing import competitors

        with _overflows_ignored():
            return competitors(self._law_of_loss[0])

    @functools.cached_property
    def pictures(self) -> dict[str, Picture]:
        """All pictures of the fit by name; notebooks show them, and `save` draws them to files."""
        with _overflows_ignored():
            return self.album()

    def plot(self, name: str | None = None) -> Picture:
        """One picture: the loss against compute, or the first there is; `pictures` has them all."""
        against_compute = (title for title in self.pictures if title.endswith("_against_C"))
        name = name or next(against_compute, next(iter(self.pictures)))
        if name not in self.pictures:
            raise ScalingError(f"there is no picture {name!r}", fix=nearest(name, self.pictures))
        return self.pictures[name]

    def save(self, folder: str | Path) -> list[Path]:
        """Draw all pictures into a folder, each as PDF, SVG and PNG."""
        from scaling.picture import FORMATS

        pictures = {str(Path(folder) / name): picture for name, picture in self.pictures.items()}
        return [path for name, picture in pictures.items() for path in picture.save(*(name + kind for kind in FORMATS))]

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling fit --json` (docs/json.md)."""
        return dict(self.document)

    def format(self, name: str) -> str:
        """The text of `scaling fit --format`: `terminal`, `markdown` or `latex`."""
        from scaling.fit_report.formats import FORMATS

        return str(self) if name == "terminal" else FORMATS[name](self.document)

    def _repr_html_(self) -> str:
        from scaling.fit_report.tables import diagnostics, heading, tables

        parts = [f"<p>{html.escape(line)}</p>" for line in heading(self.document)]
        for table in tables(self.document):
            parts += [f"<p>{html.escape(table.caption)}</p>", html_table(table.titles, table.rows)]
            parts += [f"<p>{html.escape(note)}</p>" for note in table.notes]
        return "\n".join([*parts, *(f"<p>{html.escape(line)}</p>" for line, _ in diagnostics(self.document))])

    def __str__(self) -> str:
        from rich.console import Console

        from scaling.fit_report.terminal import show

        text = io.StringIO()
        show(self.document, Console(file=text, highlight=False, soft_wrap=True))
        figures = self.document.get("figures")
        return text.getvalue().rstrip() + (f"\nfigures: {Path(figures[0]).parent}" if figures else "")

    def __repr__(self) -> str:
        estimates = ", ".join(f"{name} {value:.4g}" for name, value in self.estimates.items())
        return f"Fit({self.document['law']}, {plural(len(self.points), 'run')}: {estimates})"

    def _needs_law(self, verb: str) -> FittedLaw | TwoStep:
        if self.law is None:
            what = f"{self.document['law']} has no law of the loss to {verb} with"
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
    pool: tuple[str, ...] = (),
    best_by: tuple[str, ...] = (),
    fix: Mapping[str, float] = {},
    tie: Mapping[str, str] = {},
    bounds: Mapping[str, tuple[float, float]] = {},
    weight: str | None = None,
    hold_out: str | None = None,
    targets: Annotated[Sequence[Mapping[str, float]], Flag("target")] = (),
    objective: Objective | None = None,
    delta: PositiveFloat | None = None,
    over: PositiveFloat | None = None,
    intervals: Method = "profile",
    level: OpenFraction = 0.95,
    cluster: str | None = None,
    share: str | None = None,
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
        rename: which column holds what, or its formula: loss=final_loss C=6ND N=params-embedding
        where: fit these rows only: 'C<1e21' 'N>=1e8' corpus=c4
        define: state what a column counts or its unit (loss=perplexity), or answer the checklist
        pool: let the definitions of these columns differ between points
        best_by: of runs that are alike in these columns keep the one of lowest loss
        fix: hold parameters of the law at these values
        tie: make parameters of the law equal: alpha=beta
        bounds: hold parameters of the law between these values: alpha=0:2
        weight: the column that states how much each run counts
        hold_out: test on these runs: 'N>=1e9', or N for the largest N; none for no test; largest also predicts the
            largest runs from fits to the smaller ones (default: the runs of a column held_out)
        targets: predict here, or with C find the best N and D (C=1e21 served=1e12 pays for these tokens too); repeats
        objective: what is minimised (default log_huber of a loss, squared of a score)
        delta: where Huber's penalty turns linear (default 0.001)
        over: how many times as much an overestimate costs
        intervals: how intervals are made
        level: of the intervals
        cluster: the column of points whose errors belong together, or none (default run or run_name where it repeats)
        share: the column of runs with a common error (a trunk, a seed, a machine), which is estimated, or none (default
            trunk)
        noise: standard deviation of the loss between seeds, for IsoFLOP minima
        starts: random starts that are screened
        seed: of everything random
        figures: draw all pictures into this folder, as PDF, SVG and PNG
    """
    options = locals()

    from scaling.law.forms.formula import law_of
    from scaling.law.held_out import split_held_out
    from scaling.ledger.points import read_points

    chosen = law if law in (AUTO, *APPROACHES) else law_of(law, AUTO, *APPROACHES)
    _refuse_unused(chosen, law, options)

    with _overflows_ignored():
        table = read_points(points, rename=rename, where=where, define=define, pool=pool, best_by=best_by)
        train, tested = split_held_out(table, hold_out)
        if isinstance(chosen, str) and chosen != AUTO:
            fitted = _approach(train, chosen, noise, seed)
        else:
            fitted = _law_fitted(chosen, table, train, tested, options)
    if figures is not None:
        files = [str(path) for path in fitted.save(figures)]
        fitted = replace(fitted, document={**fitted.document, "figures": files})
    return fitted


def _refuse_unused(law: Form | Written | str, name: str, options: Mapping[str, Any]) -> None:
    """Refuse what the law or another option leaves without an effect, before the table is read."""
    kind = law.partition("_")[0] if isinstance(law, str) else "law"
    reasons = dict.fromkeys(_UNUSED[kind], f"{name} cannot use it")
    if options["intervals"] == "none":
        reasons.setdefault("level", "no intervals are asked for")
    if kind == "isoflop" and options["noise"] is None:
        reasons["seed"] = "nothing is random without --noise"
    parameters = inspect.signature(fit).parameters
    for option, reason in reasons.items():
        if options[option] not in (parameters[option].default, None, (), []):
            key = spelled(inspect.signature(fit, eval_str=True).parameters[option])
            raise ScalingError(reason, key=key, value=options[option], fix="leave it out")
    if options["over"] not in (None, 1.0) and options["intervals"] in ("profile", "t"):
        what, fix = "bounds errors that cost alike on both sides", "add --intervals none, or bootstrap_case"
        raise ScalingError(what, key="intervals", value=options["intervals"], fix=fix)


def _law_fitted(
    chosen: Form | Written | str, table: Points, train: Points, tested: Points | None, options: Mapping[str, Any]
) -> Fit:
    """The fit of a law, or of the law that `auto` chooses, to the points of `train`."""
    from scaling.figures import figures_of_law
    from scaling.fit_report.report import FitReport, check_target, fit_report, two_step_report
    from scaling.law import Composed, TwoStep
    from scaling.law.chance import known_chance, upper_level
    from scaling.law.choice import choose, choose_again, cost_of, cost_weights
    from scaling.law.columns import groups_of
    from scaling.law.forms.constrained import constrained
    from scaling.law.forms.formula import Written, formula
    from scaling.law.objective import named_objective
    from scaling.law.two_step import fit_law
    from scaling.ledger.setup import setup_of_table

    groups = groups_of(train, options["cluster"], options["share"])
    objective, delta, over, seed = (options[name] for name in ("objective", "delta", "over", "seed"))
    is_asked = (objective, delta, over) != (None, None, None)
    fixed, limits, weights, choice, refit = dict(options["fix"]), dict(options["bounds"]), None, None, None
    if isinstance(chosen, str):
        kind = named_objective(objective or "log_huber", delta, over) if is_asked else None
        refit = choose_again(train, objective=kind, seed=seed, **groups)
        choice = choose(train, objective=kind, seed=seed)
        form, kind = choice.best.form, choice.best.objective
        weights = cost_weights(cost_of(train), choice.best.power)
    else:
        if isinstance(chosen, Written):
            written = formula(replace(chosen, bounds={**(chosen.bounds or {}), **limits}), table)
            form = constrained(written, {**(chosen.ties or {}), **options["tie"]}, {})
        else:
            fixed = known_chance(chosen, table) | fixed
            limits = upper_level(chosen, fixed) | limits
            tied = chosen.constrained if isinstance(chosen, Composed) else functools.partial(constrained, chosen)
            form = tied(options["tie"], limits)
        kind = named_objective(objective or form.objective, delta, over) if is_asked else None
        weights = None if options["weight"] is None else train.numbers(options["weight"])
    for target in options["targets"]:
        check_target(form, target)
    fitting = {"starts": options["starts"], "seed": seed, **groups}
    law_fit = fit_law(form, train, objective=kind, weights=weights, fixed=fixed, **fitting)

    method, level = None if options["intervals"] == "none" else options["intervals"], options["level"]
    is_file = isinstance(options["points"], str | Path) and "run" in table
    setup = setup_of_table(Path(options["points"]), map(str, table["run"])) if is_file else {}
    write: Callable[..., Any] = two_step_report if isinstance(law_fit, TwoStep) else fit_report
    stated, column = {**setup, **options["define"]}, groups["clusters"] or groups["shared"]
    how = {"method": method, "level": level, "targets": options["targets"], "seed": seed}
    report = write(law_fit, held_out=tested, stated=stated, cluster_column=column, **how)
    if options["hold_out"] == "largest":
        report = report.with_back_test(refit)
    document = report.to_json() | ({} if choice is None else {"choice": choice.to_json()})
    shown = report.held_out if isinstance(report, FitReport) else None
    album = functools.partial(figures_of_law, law_fit, tested, level=level, method=method, tested=shown)
    return Fit(document, train, law_fit, method, level, album, refit)


def _approach(points: Points, law: str, noise: float | None, seed: int) -> Fit:
    """Chinchilla's approach 1 or 2: the growth of the optimal size and data."""
    from scaling.figures import isoflop_valleys, learning_curves
    from scaling.fit_report.report import EnvelopeReport, MinimaReport
    from scaling.laws.approaches import envelope, isoflop

    points.refuse_absent(("N", "D", "C", "loss", *(("run",) if law == "envelope" else ())))
    if law == "envelope":
        closed = envelope(points)
        return Fit(
            EnvelopeReport(points, closed).to_json(),
            points,
            album=lambda: {"envelope": learning_curves(points, axis="C", envelope=closed)},
        )
    kind: Any = law.removeprefix("isoflop_")
    size, data = (isoflop(points, along=name, kind=kind, noise=noise, seed=seed) for name in ("N", "D"))
    return Fit(
        MinimaReport(points, size, data).to_json(),
        points,
        album=lambda: {"isoflop_N": isoflop_valleys(size, points), "isoflop_D": isoflop_valleys(data, points)},
    )


def _overflows_ignored() -> AbstractContextManager[None]:
    """An overflow on the way to a fit is handled by the solver; its reader has nothing to do about it."""
    import numpy as np

    return np.errstate(all="ignore")


def _frame(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Records as a DataFrame, an interval as the two columns of its ends."""
    import pandas

    def cells(name: str, value: Any) -> dict[str, Any]:
        if name == "interval":  # the older name of interval_mean
            return {}
        if name.startswith("interval_"):
            name = name.removeprefix("interval_")
            return {f"{name}_{end}": None if value is None else value[end] for end in ("low", "high")}
        return {name: json.dumps(value) if isinstance(value, Mapping | list) else value}

    return pandas.DataFrame([{k: v for item in row.items() for k, v in cells(*item).items()} for row in rows])
