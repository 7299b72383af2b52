"""Whole training curves: every logged loss of a run with its schedule, and the law of many curves.

The losses of curves have errors of the trunk, errors along a run, and the noise of each measurement:

    e(s) = (N / N₀)^-p (D(s) / D₀)^-q (b + w(s)) + ε,  cov(w(s), w(t)) = a² exp(-|log s - log t| / ℓ)

b is the error of the trunk, w of the run (autocorrelated), ε of the batch or evaluation. Training losses and
evaluations have different ε, so each kind has its own weight. Errors are smaller for larger models and for runs
that have read more tokens D; N₀ and D₀ are the medians. The sizes and powers of the errors maximise the restricted
likelihood (Patterson and Thompson 1971, Biometrika 58(3)). They are estimated in turn with the law, which is fitted by
generalised least squares with these errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from scaling.base.errors import plural, refuse
from scaling.base.printing import Table, TableResult, percent, titled
from scaling.laws.catalogue import CURVE_LAWS
from scaling.laws.formula import is_empty, numeric
from scaling.laws.held_out import held_out_runs
from scaling.laws.intervals import Interval, bound, student
from scaling.laws.law import Law
from scaling.laws.points import Points
from scaling.laws.problem import OBJECTIVES, Problem, Quantity, least_squares, parameter
from scaling.laws.report import estimates, four_decimals, low_to_high, signed
from scaling.laws.solver import Effort, choose, draw, minimise

MOST_STEPS = 10**8  # of a curve, whose schedule is an array
FALLS = 16  # falls of equal height into which those of a schedule are gathered
POINTS = 100  # losses of one kind that a curve keeps; with more, means over stretches of steps replace them
KINDS: dict[str, int] = dict.fromkeys(("train", "training", "0"), 0)  # of losses, as a table names them
KINDS |= dict.fromkeys(("evaluate", "evaluation", "eval", "validation", "val", "1"), 1)


@dataclass(frozen=True)
class Curve:
    """Losses of one run at some of its steps (the first is 1), and the schedule that led to them.

    `rates` are the learning rates of every step from the first; they may continue after the last loss. A branch has
    only the losses of its own steps, but the schedule of all steps.
    """

    run: str
    N: float
    steps: np.ndarray
    losses: np.ndarray
    kinds: np.ndarray  # whether each loss is an evaluation (1) or one of training (0)
    rates: np.ndarray
    tokens_per_step: float
    trunk: str = ""  # whose errors it shares with other runs; without one it has its own
    validation: str = ""
    counts: np.ndarray | None = None  # how many logged losses each is the mean of
    held_out: bool = False

    def __post_init__(self) -> None:
        last, fix = int(self.steps.max(initial=1)), "give the learning rate of every step: a column lr"
        what = f"its schedule has {len(self.rates)} steps, its losses go to step {last}"
        is_outside = last > len(self.rates) or self.steps.min(initial=1) < 1
        refuse(is_outside, what, fix, key="run", value=self.run)

    @property
    def warmup(self) -> int:
        """Steps until the rate is at its peak."""
        return int(np.argmax(self.rates >= np.max(self.rates) * (1 - 1e-9)))

    @property
    def share(self) -> float:
        """The last step that has a loss, as a fraction of the schedule."""
        return float(self.steps.max() / len(self.rates)) if len(self.steps) else 0.0

    def first(self, share: float) -> Curve:
        """The losses of the first part of its schedule."""
        return self.where(self.steps <= share * len(self.rates))

    def where(self, mask: np.ndarray) -> Curve:
        """Some of the losses, by a mask or by their places."""
        columns = {name: getattr(self, name) for name in ("steps", "losses", "kinds", "counts")}
        return replace(self, **{name: column[mask] for name, column in columns.items() if column is not None})

    def at(self, steps: Sequence[int] | np.ndarray) -> Curve:
        """The same run with no losses, to be predicted at these steps."""
        steps = np.asarray(steps, int)
        empty, kinds = np.full(len(steps), np.nan), np.ones(len(steps), int)
        return replace(self, steps=steps, losses=empty, kinds=kinds, counts=None)

    def thinned(self, after: float | None = None) -> Curve:
        """The curve without its start, with means of losses over stretches that are even in the logarithm of the step
        where a kind has more than `POINTS`.
        """
        # A power law does not hold in the first tenth of a run, and in twice the warmup.
        begin = max(2 * self.warmup, 0.1 * len(self.rates)) if after is None else after / self.tokens_per_step
        curve = self.where((self.steps > begin) & np.isfinite(self.losses))
        stretch = np.empty(len(curve.steps), int)
        for kind in (0, 1):
            rows = curve.kinds == kind
            steps = curve.steps[rows]
            many = len(steps) > POINTS
            edges = np.geomspace(steps.min(), steps.max() + 1, POINTS + 1) if many else np.unique(steps)
            stretch[rows] = 2 * np.searchsorted(edges, steps, side="right") + kind
        code, number = np.unique(stretch, return_inverse=True, return_counts=True)[1:]
        steps, losses, kinds = (np.bincount(code, part) / number for part in (curve.steps, curve.losses, curve.kinds))
        steps, kinds, counts = np.rint(steps).astype(int), kinds.astype(int), np.bincount(code, curve.counts)
        means = replace(self, steps=steps, losses=losses, kinds=kinds, counts=counts)
        return means.where(np.lexsort((kinds, steps)))


def read_curves(points: Points) -> list[Curve]:
    """The curves of a table with a row for each logged loss: columns run, N, step, tokens, lr and loss.

    `kind` marks rows as `train` or `evaluation` (all are evaluations without it); `trunk` and `validation` are
    optional. The learning rate between two rows is interpolated linearly.
    """
    for name in ("run", "N", "step", "tokens", "lr", "loss"):
        what = "a curve without a schedule cannot predict another curve" if name == "lr" else "a curve needs it"
        points.refuse(name not in points, f"there is no column {name!r}: {what}", f"add a column {name}", name)
    columns = {name: points.numbers(name) for name in ("N", "step", "tokens", "loss")}
    columns["lr"] = numeric("lr", points["lr"], points.source)  # schedules begin and end at 0
    words = points["kind"] if "kind" in points else ["evaluation"] * len(points)
    spelled = [str(word).strip().casefold().removesuffix(".0") for word in words]
    unknown = next((word for word in spelled if word not in KINDS), None)
    points.refuse(unknown is not None, "is not a kind of loss", "write train or evaluation", "kind", value=unknown)
    kinds, is_held_out, curves = np.array([KINDS[word] for word in spelled]), held_out_runs(points), []
    for run, rows in points.runs().items():
        rows = rows[np.argsort(columns["step"][rows], kind="stable")]
        size, steps, tokens, losses, learned = (columns[n][rows] for n in ("N", "step", "tokens", "loss", "lr"))
        for is_wrong, what in (
            (np.ptp(size), "has two sizes"),
            (not 1 <= steps[0] <= steps[-1] <= MOST_STEPS, f"has a step outside 1 to {MOST_STEPS:,}"),
            (tokens.min() <= 0, "has no tokens at a step"),
            (
                not 0 <= learned.min() <= learned.max() < np.inf or not learned.any(),
                "has learning rates below 0, missing, or all 0",
            ),
        ):
            points.refuse(is_wrong, what, "correct its rows", "run", value=run)
        logged = np.rint(steps).astype(int)
        distinct, first = np.unique(logged, return_index=True)
        rates = np.interp(np.arange(1, logged[-1] + 1), distinct, learned[first])
        cells = (points[name][rows[0]] if name in points else "" for name in ("trunk", "validation"))
        trunk, validation = ("" if is_empty(cell) else str(cell) for cell in cells)
        places = (logged, losses, kinds[rows], rates, float(np.median(tokens / steps)), trunk, validation)
        curves.append(Curve(run, float(size[0]), *places, held_out=bool(is_held_out[rows[0]])))
    return curves


def areas(rates: np.ndarray, decay: float = 0.999) -> tuple[np.ndarray, np.ndarray]:
    """S₁ and S₂ after each step, from the learning rate of every step.

    S₁ = Σᵢ ηᵢ, and S₂ = Σᵢ Σ_{k≤i} (η_{k-1} - η_k) λ^(i-k) with λ = `decay`: a fall of the rate helps for about
    1/(1-λ) steps.
    """
    from scipy.signal import lfilter

    rates = np.asarray(rates, float)
    falls = -np.diff(rates, prepend=rates[:1])
    return np.cumsum(rates), np.cumsum(lfilter([1.0], [1.0, -decay], falls))


def columns_of(curve: Curve, reference: float, decay: float) -> dict[str, np.ndarray]:
    """The inputs of the laws of curves at each step; `reference` is the learning rate that counts as 1."""
    rates = np.asarray(curve.rates, float) / reference
    forward, annealed = areas(rates, decay)
    forward = forward * curve.tokens_per_step
    places = curve.steps - 1
    fallen = np.cumsum(np.maximum(-np.diff(rates, prepend=rates[:1]), 0.0))
    falls = since = np.zeros((len(places), FALLS))
    after = np.ones((len(places), FALLS))
    if fallen[-1] > 0:
        edges, height = np.linspace(0.0, fallen[-1], FALLS + 1), fallen[-1] / FALLS
        # A fall under way at a step counts as far as it went, in the middle of that part.
        part = np.clip((fallen[places][:, None] - edges[:-1]) / height, 0.0, 1.0)
        middle = np.minimum(np.searchsorted(fallen, edges[:-1] + 0.5 * part * height * (1 - 1e-9)), len(rates) - 1)
        # A rate below a thousandth of the reference counts as that, since a schedule may end at zero.
        falls, after = part * height, np.maximum(rates[middle], 1e-3)
        since = np.maximum(forward[places][:, None] - forward[middle], 0.0)
    sizes = np.full(len(places), float(curve.N))
    return {"N": sizes, "S1": forward[places], "S2": annealed[places], "falls": falls, "rates": after, "since": since}


def stacked(curves: Sequence[Curve], reference: float, decay: float) -> dict[str, np.ndarray]:
    """The columns of many curves, one after another."""
    each = [columns_of(curve, reference, decay) for curve in curves]
    return {name: np.concatenate([columns[name] for columns in each]) for name in each[0]}


@dataclass(frozen=True)
class Sizes:
    """The sizes of the errors of log loss."""

    trunk: float
    run: float
    length: float  # ℓ: over which stretch of log steps the error of a run changes
    evaluation: float
    training: float
    by_size: float = 0.0  # p: the power of N by which the errors of trunks and runs shrink
    by_tokens: float = 0.0  # q: the power of the tokens read
    N: float = 1.0  # the N and the D at which the sizes are stated
    D: float = 1.0


def places_of(curves: Sequence[Curve]) -> np.recarray:
    """A record of each loss: its trunk, run, kind, log step, how many losses it is the mean of, log N and log D."""
    lengths = [len(curve.steps) for curve in curves]
    groups = np.unique([curve.trunk or curve.run for curve in curves], return_inverse=True)[1].reshape(-1)
    log_step = np.log(np.concatenate([curve.steps for curve in curves]))
    fields = {
        "group": np.repeat(groups, lengths),
        "run": np.repeat(np.arange(len(curves)), lengths),
        "kind": np.concatenate([curve.kinds for curve in curves]),
        "log_step": log_step,
        "count": np.concatenate([np.ones(len(c.steps)) if c.counts is None else c.counts for c in curves]),
        "log_size": np.repeat(np.log([curve.N for curve in curves]), lengths),
        "log_tokens": log_step + np.repeat(np.log([curve.tokens_per_step for curve in curves]), lengths),
    }
    kinds = [(name, column.dtype) for name, column in fields.items()]
    return np.rec.fromarrays([*fields.values()], kinds)


def covariance(sizes: Sizes, one: np.ndarray, other: np.ndarray | None = None) -> np.ndarray:
    """Between the errors at two sets of places; of one set with itself the noise of each loss is on the diagonal."""
    two = one if other is None else other
    distance = np.abs(one["log_step"][:, None] - two["log_step"])
    shared = sizes.trunk**2 * (one["group"][:, None] == two["group"])
    shared = shared + sizes.run**2 * (one["run"][:, None] == two["run"]) * np.exp(-distance / sizes.length)
    # The errors of trunks and runs at each place, as a multiple of those that are stated.
    N, D = np.log((sizes.N, sizes.D))
    first, second = (
        np.exp(sizes.by_size * (N - places["log_size"]) + sizes.by_tokens * (D - places["log_tokens"]))
        for places in (one, two)
    )
    shared = shared * (first[:, None] * second)
    if other is None:
        noise = np.where(one["kind"] == 1, sizes.evaluation, sizes.training) ** 2 / one["count"]
        shared[np.diag_indices(len(noise))] += noise + 1e-12
    return shared


@dataclass(frozen=True)
class CurveErrors:
    """The inverse root of the covariance of many curves, a block for each trunk, scaled to errors of size one."""

    sizes: Sizes
    places: np.ndarray

    @cached_property
    def _blocks(self) -> list[tuple[np.ndarray, np.ndarray]]:
        groups = self.places["group"]
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        return [
            (rows, np.linalg.inv(np.linalg.cholesky(covariance(self.sizes, self.places[rows]))))
            for rows in np.split(order, starts[1:])
        ]

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Values of the losses `[..., losses]` as combinations that do not correlate, of size one."""
        white = np.empty(values.shape)
        for rows, inverse in self._blocks:
            white[..., rows] = values[..., rows] @ inverse.T
        return white

    @property
    def log_determinant(self) -> float:
        """The log determinant of the covariance."""
        return float(-2.0 * sum(np.log(np.diag(inverse)).sum() for _, inverse in self._blocks))

    def at(self, rows: np.ndarray) -> CurveErrors:
        """The errors of some of the losses."""
        return CurveErrors(self.sizes, self.places[rows])


# The law of many curves.

GROUPS = 12  # trunks from which the sizes of the errors are learned: the others would change little
BOUNDS = {  # within which the sizes of the errors are learned
    "trunk": (1e-5, 0.3),
    "run": (1e-5, 0.3),
    "length": (0.03, 5.0),
    "evaluation": (1e-6, 0.1),
    "training": (1e-4, 1.0),
    "by_size": (0.01, 1.0),
    "by_tokens": (0.01, 1.0),
}
OF_KIND = {"training": 0, "evaluation": 1}  # the sizes that only losses of this kind show
STARTS, REFINED = 256, 8
GATHERED = 5000  # losses, about, from which an optimum and the sizes of the errors are learned
CLOSE = Effort(1e-9, 60)
DECAYS = (0.99, 0.995, 0.999, 0.9995)  # λ of the annealing area, each of which is tried


def some_trunks(places: np.ndarray, losses: int = 0) -> np.ndarray:
    """The rows of GROUPS trunks, spread over all sizes, or of more where these have fewer losses than are wanted."""
    trunks, first = np.unique(places["group"], return_index=True)
    count = min(len(trunks), max(GROUPS, len(trunks) * losses // len(places)))
    order = np.argsort(places["log_size"][first], kind="stable")
    chosen = order[np.linspace(0, len(trunks) - 1, count).round().astype(int)]
    return np.flatnonzero(np.isin(places["group"], trunks[chosen]))


def _learned_sizes(places: np.ndarray, errors: np.ndarray, design: np.ndarray, begin: Sizes) -> Sizes:
    """The sizes that the errors of a fit `[losses]` show; `design` `[parameters, losses]` is its derivative."""
    from scipy.optimize import minimize

    rows = some_trunks(places)
    places, errors, design = places[rows], errors[rows], design[:, rows]
    free = [name for name in BOUNDS if name not in OF_KIND or OF_KIND[name] in places["kind"]]
    low, high = np.log([BOUNDS[name] for name in free]).T

    def sizes(x: np.ndarray) -> Sizes:
        return replace(begin, **dict(zip(free, np.exp(np.clip(x, low, high)).tolist(), strict=True)))

    def negative(x: np.ndarray) -> float:
        fit = least_squares(design, errors, CurveErrors(sizes(x), places))
        outside = float(np.sum(np.maximum(low - x, 0.0) + np.maximum(x - high, 0.0)))
        return 0.5 * (fit.square + fit.penalty) + 10.0 * outside

    start = np.log([getattr(begin, name) for name in free])
    best = minimize(negative, start, method="Nelder-Mead", options={"maxfev": 300, "xatol": 0.03, "fatol": 0.05})
    return sizes(best.x)


@dataclass(frozen=True, eq=False, repr=False)
class CurveFit(TableResult):
    """A law of whole curves, the errors of its losses, and the predicted runs. `scaling fit-curves` prints it."""

    form: Law
    curves: tuple[Curve, ...]
    problem: Problem
    u: np.ndarray
    objective: float
    sizes: Sizes
    groups: np.ndarray  # the trunk of each loss
    reference: float  # the learning rate that counts as 1: the median peak
    decay: float  # λ of the annealing area
    converged: bool
    held_out: tuple[Curve, ...] = ()
    unfinished: tuple[Curve, ...] = ()
    level: float = 0.95

    @property
    def estimates(self) -> dict[str, float]:
        return dict(zip(self.form.parameter_names, map(float, self.problem.theta(self.u)), strict=True))

    @property
    def residuals(self) -> np.ndarray:
        """Loss less prediction, of all losses."""
        return self.problem.loss - self.form.predict(self.problem.theta(self.u), self.problem.columns)

    def predict(self, curve: Curve) -> np.ndarray:
        """The law at the steps of a curve, whatever its losses."""
        return self.form.predict(self.problem.theta(self.u), columns_of(curve, self.reference, self.decay))

    def intervals(self, quantities: Sequence[str | Quantity] | None = None) -> dict[str, Interval]:
        """Profile intervals, by default of E and the exponents of N and D.

        The scores of each trunk are added first. With n trunks, Student's t has n - 1 degrees of freedom.
        """
        usual = [name for name in ("E", "alpha", "beta") if name not in self.problem.fixed]
        names = usual if quantities is None else quantities
        each = [parameter(self.form, name) if isinstance(name, str) else name for name in names]
        none = np.empty((0, len(self.u)))
        bounds = bound(self.problem, self.u, self.objective, each, none, self.groups, level=self.level)
        return {interval.name: interval for interval in bounds}

    def complete(self, begun: Curve, steps: Sequence[int] | None = None) -> list[Interval]:
        """The losses of a run at `steps` (by default its end), given those that it has logged.

        The best linear prediction of the run's later errors from its errors so far (Rasmussen and Williams 2006,
        Gaussian Processes, section 2.2 with 2.7), with the error of the law, and the noise of one evaluation.
        """
        goal, seen = begun.at([len(begun.rates)] if steps is None else steps), begun.thinned(0.0)
        seen = seen.where(seen.steps > 2 * begun.warmup)

        def linearised(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
            """The log loss at the steps of a curve and its derivative by the coordinates."""
            both = self.problem.derivative(self.u[None], columns_of(curve, self.reference, self.decay))[0]
            return both[0], both[1:].T

        (law, design), (fitted, slopes) = linearised(goal), linearised(seen)
        ahead, behind = places_of([goal]), places_of([seen])
        cross = covariance(self.sizes, ahead, behind)
        gain = np.linalg.solve(covariance(self.sizes, behind), cross.T).T
        law, design = law + gain @ (np.log(seen.losses) - fitted), design - gain @ slopes
        variance = np.diag(covariance(self.sizes, ahead)) - np.sum(gain * cross, axis=1)
        jacobian = self.problem.linearise(self.u[None])[1][0]
        information = np.linalg.pinv(jacobian @ jacobian.T, hermitian=True)
        variance = variance + np.einsum("ij,jk,ik->i", design, information, design)
        quantile = student(self.level, max(len(np.unique(self.groups)) - 1, 1))
        half = quantile * np.sqrt(np.maximum(variance, 0.0))
        ends = np.exp([law, law - half, law + half]).T.tolist()
        return [
            Interval(f"{begun.run} at step {step}", estimate, low, high, self.level, "t")
            for step, (estimate, low, high) in zip(goal.steps, ends, strict=True)
        ]

    @cached_property
    def document(self) -> dict[str, Any]:
        """The document of `scaling fit-curves --json` (docs/json.md)."""
        residuals, losses, held_out = self.residuals, self.problem.loss, []
        kinds = np.concatenate([curve.kinds for curve in self.curves])
        unseen = [name for name, kind in OF_KIND.items() if kind not in kinds]
        errors = {name: None if name in unseen else getattr(self.sizes, name) for name in BOUNDS}
        for curve in self.held_out:  # the last evaluation of a run that took no part in the fit
            last = int(np.where(curve.kinds == 1, curve.steps, 0).argmax())
            (run,), loss = self.complete(curve.at([]), [int(curve.steps[last])]), float(curve.losses[last])
            held_out.append(
                {
                    "run": curve.run,
                    "N": curve.N,
                    "loss": loss,
                    "predicted": run.estimate,
                    "relative_error": run.estimate / loss - 1.0,
                    "covered": run.covers(loss),
                    "interval_run": run.to_json(),
                }
            )
        return {
            "law": self.form.name,
            "formula": self.form.formula,
            "citation": self.form.citation,
            "curves": len(self.curves),
            "losses": len(self.problem.observed),
            "estimates": self.estimates,
            "intervals": {name: interval.to_json() for name, interval in self.intervals().items()},
            "errors": errors,
            "r_squared": float(1.0 - np.sum(residuals**2) / np.sum((losses - losses.mean()) ** 2)),
            "mean_error": float(np.mean(np.abs(residuals / losses))),
            "converged": self.converged,
            "held_out": held_out,
            "completed": [
                {"run": curve.run, "at": curve.share, **self.complete(curve)[0].to_json()} for curve in self.unfinished
            ],
        }

    def to_json(self) -> dict[str, Any]:
        return self.document

    def heading(self) -> Iterator[str]:
        document, errors = self.document, self.document["errors"]
        yield f"{document['law']}: {document['formula']}"
        yield document["citation"]
        fitted = f"{document['losses']:,} losses of {plural(document['curves'], 'curve')}"
        yield f"{fitted}, R² {document['r_squared']:.4f}, mean error {document['mean_error']:.2%}"
        titles = {"trunk": "trunk", "run": "along a run", "evaluation": "evaluation", "training": "training loss"}
        sizes = ", ".join(f"{title} {errors[name]:.2g}" for name, title in titles.items() if errors[name] is not None)
        powers = f"N^-{errors['by_size']:.2g} D^-{errors['by_tokens']:.2g}"
        yield f"errors of log loss: {sizes}; those of trunks and runs shrink as {powers}"
        if not self.converged:
            yield "! the fit did not converge: these curves do not identify the parameters of the schedule"
        if document["r_squared"] < 0:
            yield "! the law describes these curves worse than their mean loss: take another law, or more curves"

    def tables(self) -> Iterator[Table]:
        document, between = self.document, f"{percent(self.level)} interval"
        yield estimates(document)
        tested = [
            [
                ("held out", run["run"]),
                ("loss", four_decimals(run["loss"])),
                ("predicted", four_decimals(run["predicted"])),
                ("error", signed(run["relative_error"])),
                (f"{between} of a new run", low_to_high(run["interval_run"])),
                ("inside", "yes" if run["covered"] else "no"),
            ]
            for run in document["held_out"]
        ]
        begun = [
            [
                ("unfinished", run["run"]),
                ("done", f"{run['at']:.0%}"),
                ("predicted end", four_decimals(run["estimate"])),
                (between, low_to_high(run)),
            ]
            for run in document["completed"]
        ]
        yield from filter(None, [titled("Held-out runs.", tested, (0, 5)), titled("Unfinished runs.", begun)])

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:.4g}" for name, value in self.estimates.items())
        return f"{self.form.name}: {values} ({plural(len(self.curves), 'curve')}, {len(self.problem.observed)} losses)"


def fit_curves(
    curves: Sequence[Curve],
    law: str = "multi_power",
    *,
    after: float | None = None,
    level: float = 0.95,
    seed: int = 0,
    starts: int = STARTS,
) -> CurveFit:
    """The law of every logged loss of `curves`; it predicts held-out curves and the ends of the others.

    Losses before `after` tokens are left out. Curves with different validation sets are refused, and so are too few
    sizes for the term in N.
    """
    form = CURVE_LAWS[law]
    used = [curve for curve in curves if not curve.held_out]
    refuse(not used, "there is no curve", "give runs that have logged losses", key="curves")
    sets = sorted({curve.validation for curve in used if curve.validation})
    what = f"the losses are of {len(sets)} validation sets ({', '.join(sets[:3])})"
    refuse(len(sets) > 1, what, "fit the curves of one set: --where validation=…", key="validation")
    thinned = sorted((curve.thinned(after) for curve in used), key=lambda curve: curve.run)
    thinned = [curve for curve in thinned if len(curve.steps)]
    refuse(not thinned, "no loss is left after the start of the runs", "log more often, or lower --after", key="curves")
    what, fix = f"2 sizes cannot determine the term in N of {form.name}", "add curves of other sizes, 3 or more in all"
    refuse(len({float(curve.N) for curve in thinned}) == 2, what, f"{fix}, or fit one size alone", key="N")
    reference = float(np.median([float(np.max(curve.rates)) for curve in thinned]))
    places = places_of(thinned)
    few = some_trunks(places, GATHERED)

    def least_squares_optima(decay: float) -> tuple[float, float, Problem, np.ndarray]:
        """The lowest cost under a decay, the decay, the problem, and its optima, the best first."""
        problem = _problem(form, thinned, reference, decay)
        screened = problem.at(few).thinned(800)
        ended = minimise(screened, choose(screened, draw(screened, starts, seed), REFINED), effort=CLOSE)
        optima = problem.at(few).coordinates(screened.theta(ended.u[np.argsort(ended.cost)]))
        return float(ended.cost.min()), decay, problem, optima

    decays = DECAYS if "S2" in form.inputs else DECAYS[2:3]
    _, decay, problem, begin = min(map(least_squares_optima, decays), key=lambda optimum: optimum[0])
    N, D = (float(np.exp(np.median(places[name]))) for name in ("log_size", "log_tokens"))
    # A law is fitted first under typical sizes: the errors of a fit without a covariance would show its own faults.
    some, sizes, u = problem.at(few), replace(Sizes(2e-3, 5e-4, 0.3, 8e-4, 2.5e-2, 0.5, 0.3), N=N, D=D), begin[0]
    # Rounds of learning the sizes of the errors and fitting under them.
    for remaining in range(3, -1, -1):
        correlated = replace(some, shared=CurveErrors(sizes, places[few]))
        # An optimum of least squares may lie in a corner that no step leaves: all are tried under each covariance.
        ended = minimise(correlated, np.concatenate([u[None], begin]), effort=CLOSE)
        u = ended.u[int(ended.cost.argmin())]
        if remaining:
            errors, jacobian = some.linearise(u[None])
            sizes = _learned_sizes(places[few], errors[0], jacobian[0], sizes)
    problem = replace(problem, shared=CurveErrors(sizes, places))
    ended = minimise(problem, problem.coordinates(some.theta(u))[None], effort=CLOSE)
    is_finite = np.isfinite(ended.cost[0])
    refuse(not is_finite, f"the fit of {form.name} did not converge", "give more curves", key="curves")
    return CurveFit(
        form,
        tuple(thinned),
        problem,
        ended.u[0],
        float(ended.cost[0]),
        sizes,
        places["group"],
        reference,
        decay,
        bool(ended.converged[0]),
        tuple(curve for curve in curves if curve.held_out and (curve.kinds == 1).any()),
        tuple(curve for curve in used if curve.share < 1.0 and curve.run != curve.trunk),
        level,
    )


def _problem(form: Law, curves: Sequence[Curve], reference: float, decay: float) -> Problem:
    """Least squares of all losses, without shared errors."""
    inputs = stacked(curves, reference, decay)
    losses = np.concatenate([curve.losses for curve in curves])
    least = float(losses.min())
    refuse(least <= 0, "has no logarithm", "give losses in nats", key="loss", value=least)
    # One size says nothing of the term in N, which is then a part of E.
    fixed = {"A": 1e-100, "alpha": 0.0} if len(set(inputs["N"].tolist())) == 1 else {}
    # Where no rate falls E is the floor under that rate.
    fixed |= {"C": 1e-100} if "falls" in form.inputs and not inputs["falls"].any() else {}
    is_few, what = len(losses) <= len(form.parameters) - len(fixed), f"are equal, or too few for {form.name}"
    refuse(is_few or least == losses.max(), what, "log more often, or lower --after", key="losses")
    return Problem(form, inputs, np.log(losses), np.ones(len(losses)), OBJECTIVES["log_squared"], fixed)
