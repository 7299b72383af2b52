"""Fit a law to whole training curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scaling.errors import ScalingError, plural
from scaling.printing import columns, interval
from scaling.schema import OpenFraction, Seed
from scaling.verbs.signature import Flag, verb

if TYPE_CHECKING:
    from scaling.law.curves import Curve, CurveFit
    from scaling.law.interval import Interval


@dataclass(frozen=True)
class Curves:
    """A law of whole curves with what it predicts. `fit` has its parameters and errors."""

    fit: CurveFit
    held_out: tuple[Curve, ...] = ()
    unfinished: tuple[Curve, ...] = ()
    targets: tuple[Mapping[str, float], ...] = ()
    level: float = 0.95

    def intervals(self) -> dict[str, Interval]:
        """Of E and the exponents of N and D."""
        names = [name for name in ("E", "alpha", "beta") if name not in self.fit.problem.fixed]
        return self.fit.intervals(names, self.level)

    def complete(self, begun: Curve, steps: Sequence[int] | None = None) -> list[Interval]:
        """The later losses of a run from those that it has logged."""
        from scaling.law.curves import complete

        return complete(self.fit, begun, steps, self.level)

    def best_schedule(self, N: float, D: float) -> Any:
        """The schedule of the lowest predicted loss for a size and a number of tokens, next to the usual ones."""
        from scaling.law.curves import best_schedule

        return best_schedule(self.fit, N, D, self.fit.curves[0].tokens_per_step)

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling fit-curves --json` (docs/json.md)."""
        import numpy as np

        from scaling.law.curves.fit import mean_error

        fit = self.fit
        names = ("trunk", "run", "length", "evaluation", "training", "by_size", "by_tokens")
        unseen = [name for name, kind in (("evaluation", 1), ("training", 0)) if not fit.has(kind)]
        observed, predicted = np.exp(fit.problem.observed), fit.form.predict(fit.theta, fit.problem.columns)
        return {
            "law": fit.form.name,
            "formula": fit.form.formula,
            "citation": fit.form.citation,
            "curves": len(fit.curves),
            "losses": len(observed),
            "estimates": fit.estimates,
            "intervals": {name: interval.to_json() for name, interval in self.intervals().items()},
            "errors": {name: None if name in unseen else getattr(fit.sizes, name) for name in names},
            "r_squared": fit.r_squared,
            "mean_error": mean_error(observed, predicted),
            "converged": fit.converged,
            "held_out": [self._judged(curve) for curve in self.held_out],
            "completed": [
                {"run": curve.run, "at": curve.share, **self.complete(curve)[0].to_json()} for curve in self.unfinished
            ],
            "schedules": [self._schedule(target) for target in self.targets],
        }

    def _judged(self, curve: Curve) -> dict[str, Any]:
        last = curve.last_evaluation()
        (interval,) = self.complete(curve.at([]), [int(last.steps[0])])
        loss = float(last.losses[0])
        row = {"run": curve.run, "N": curve.N, "loss": loss, "predicted": interval.estimate}
        row |= {"relative_error": interval.estimate / loss - 1.0, "covered": interval.covers(loss)}
        return row | {"interval_run": interval.to_json()}

    def _schedule(self, target: Mapping[str, float]) -> dict[str, Any]:
        best = self.best_schedule(target["N"], target["D"])
        places = (round((len(best.rates) - 1) * part / 20) for part in range(21))
        rates = [{"step": place + 1, "lr": float(best.rates[place])} for place in places]
        return {**target, "loss": best.loss, "usual": dict(best.usual), "gain": best.gain, "rates": rates}

    def __str__(self) -> str:
        document = self.to_json()
        tables = (columns(titles, rows) for titles, rows in _tables(document, self.level) if rows)
        return "\n\n".join(["\n".join(_sentences(document)), *tables])


def _sentences(document: Mapping[str, Any]) -> Iterator[str]:
    errors = document["errors"]
    yield f"{document['law']}: {document['formula']}"
    yield document["citation"]
    fitted = f"{document['losses']:,} losses of {plural(document['curves'], 'curve')}"
    yield f"{fitted}, R² {document['r_squared']:.4f}, mean error {document['mean_error']:.2%}"
    titles = {"trunk": "trunk", "run": "along a run", "evaluation": "evaluation", "training": "training loss"}
    sizes = ", ".join(f"{title} {errors[name]:.2g}" for name, title in titles.items() if errors[name] is not None)
    powers = f"N^-{errors['by_size']:.2g} D^-{errors['by_tokens']:.2g}"
    yield f"errors of log loss: {sizes}; those of trunks and runs shrink as {powers}"
    if not document["converged"]:
        yield "! the fit did not converge: these curves do not identify the parameters of the schedule"


def _tables(document: Mapping[str, Any], level: float) -> Iterator[tuple[list[str], list[list[Any]]]]:
    bounds, between, schedules = document["intervals"], f"{100 * level:g}% interval", document["schedules"]
    rows = [[name, f"{value:.5g}", interval(bounds.get(name), ".5g")] for name, value in document["estimates"].items()]
    yield ["", "estimate", between], rows
    rows = []
    for run in document["held_out"]:
        error, inside = f"{run['relative_error']:+.2%}", "yes" if run["covered"] else "no"
        rows.append([run["run"], run["loss"], run["predicted"], error, interval(run["interval_run"]), inside])
    yield ["held out", "loss", "predicted", "error", f"{between} of a new run", "inside"], rows
    rows = [[run["run"], f"{run['at']:.0%}", run["estimate"], interval(run)] for run in document["completed"]]
    yield ["unfinished", "done", "predicted end", between], rows
    rows = [[f"{r['N']:.3g}", f"{r['D']:.3g}", r["loss"], r["gain"], *r["usual"].values()] for r in schedules]
    yield ["N", "D", "best schedule", "gain", *(schedules[0]["usual"] if schedules else {})], rows


@verb
def fit_curves(
    curves: Any,
    *,
    law: Literal["multi_power", "annealed_curve"] = "multi_power",
    after: str | float | None = None,
    where: tuple[str, ...] = (),
    targets: Annotated[Sequence[Mapping[str, float]], Flag("target")] = (),
    level: OpenFraction = 0.95,
    seed: Seed = 0,
) -> Curves:
    """Fit a law to every logged loss of many runs, and predict runs and the best schedule.

        scaling fit-curves runs/studies/quickstart
        scaling fit-curves runs/studies/quickstart --target N=1e6 D=2e7
        scaling fit-curves curves.csv --law annealed_curve --after 2e5

        curves = scaling.fit_curves("runs/studies/quickstart")
        curves.fit.estimates["E"], curves.intervals()["E"]

    CURVES is the folder of a study, or a table with a row for each logged loss (columns run, N, step, tokens, lr and
    loss; docs/laws.md); in Python also a list of `Curve` objects. The fit predicts the runs of a column `held_out` and
    the end of each run that is unfinished.

    Args:
        curves: the folder of a study, or a table of curves
        law: the law of whole curves
        after: leave out the losses before these tokens
        where: fit these rows of a table only: 'N>=1e6' kind=evaluate
        targets: look for the best schedule of N=1e6 D=2e7; repeats
        level: of the intervals
        seed: of the random starts
    """
    from scaling.law.curves import fit_curves as fitted
    from scaling.law.parse_number import parse_number

    start = None if after is None else parse_number(after)
    if after is not None and start is None:
        raise ScalingError("is not a number", key="after", value=after, fix="write --after 2e5")
    for target in targets:
        if set(target) != {"N", "D"} or min(target.values()) <= 0:
            raise ScalingError("a schedule is for a size and a number of tokens", key="target", fix="write N=1e6 D=2e7")
    logged = read(curves, where)
    used = [curve for curve in logged if not curve.held_out]
    return Curves(
        fitted(used, law, after=start, seed=seed),
        held_out=tuple(curve for curve in logged if curve.held_out and (curve.kinds == 1).any()),
        unfinished=tuple(curve for curve in used if curve.is_unfinished and curve.run != curve.trunk),
        targets=tuple(targets),
        level=level,
    )


def read(source: Any, where: Sequence[str] = ()) -> list[Curve]:
    """The curves of a study's folder, of a table, or of `Curve` objects."""
    from scaling.law.curves import Curve, read_curves
    from scaling.ledger.points import read_points

    if isinstance(source, str | Path) and Path(source).is_dir():
        from scaling.studies.curves import curves_of_study

        if where:
            raise ScalingError("chooses rows of a table", key="where", fix="name the folder of one study")
        return list(curves_of_study(Path(source)))
    if isinstance(source, list | tuple) and all(isinstance(curve, Curve) for curve in source):
        return list(source)
    return read_curves(read_points(source, where=where))
