"""A fit: its estimates and intervals, its predictions, tables and pictures."""

from __future__ import annotations

import functools
import html
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.errors import ScalingError, nearest

if TYPE_CHECKING:
    import pandas

    from scaling.law.back_test import Refit
    from scaling.law.competing import Competitor
    from scaling.law.fit import Fit as FittedLaw
    from scaling.law.forms import Form
    from scaling.law.interval import Interval
    from scaling.law.points import Points
    from scaling.law.predictions import Prediction
    from scaling.law.two_step import TwoStep
    from scaling.picture import Picture

    Album = Callable[[], dict[str, Picture]]

FORMATS = (".pdf", ".svg", ".png", ".html")


class PredictedLoss(float):
    """A predicted loss: a float, with the interval of the law's mean and that of a new run's loss."""

    prediction: Prediction
    is_identified: bool
    """Whether its intervals are narrow enough to state it (docs/laws.md)."""

    def __new__(cls, prediction: Prediction, target: str = "loss") -> PredictedLoss:
        from scaling.law.predictions import is_identified

        self = super().__new__(cls, prediction.estimate)
        self.prediction, self.is_identified = prediction, is_identified(prediction, target)
        return self

    @property
    def interval_mean(self) -> Interval | None:
        return self.prediction.mean

    @property
    def interval_run(self) -> Interval | None:
        """The interval to compare a run's loss with."""
        return self.prediction.run

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

    document: Mapping[str, Any]
    points: Points
    law: FittedLaw | TwoStep | None = None
    method: str | None = None
    level: float = 0.95
    album: Album = field(default=dict)
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
            with overflows_ignored():
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

        from scaling.law.predictions import predict_runs

        law = self._needs_law("predict")
        names = columns_of_a_row(law.form, columns)
        rows = np.broadcast_arrays(*(np.asarray(columns[name], float) for name in names))
        table = [dict(zip(names, map(float, row), strict=True)) for row in zip(*(column.ravel() for column in rows))]
        with overflows_ignored():
            predicted = predict_runs(law, table, self.level, self.method, seed=law.seed)  # type: ignore[arg-type]
        target = law.form.target
        if not rows[0].ndim:
            return PredictedLoss(predicted[0], target)
        return _frame(
            [{**prediction.row, target: prediction.estimate, **prediction.to_json()} for prediction in predicted]
        )

    def optimum(self, C: float, served: float = 0.0) -> dict[str, float]:
        """The size N and the data D that make the best of C FLOPs, and the loss there; of these FLOPs, 2 N pay for
        each token that is `served` after training.

        An optimum that the points do not identify is refused. A warning states where competing laws disagree.
        """
        estimates = self.estimates
        if self.law is None:
            if served:
                self._needs_law("serve")
            size, data = (
                estimates[f"{name}_coefficient"] * C ** estimates[key] for name, key in (("N", "a"), ("D", "b"))
            )
            return {"N": size, "D": data}
        from scaling.fit_report.report import budget_optimum
        from scaling.fit_report.tables import disagreement, tried
        from scaling.law.frontier import SERVED

        law, document = self._law_of_loss
        method: Any = self.method if law.degrees_of_freedom > 0 else None
        with overflows_ignored():
            best = budget_optimum(law, {"C": C, SERVED: served}, self._competitors, method, self.level, law.seed)
        if not best.is_identified:
            raise ScalingError(
                f"the optimum is not identified by {document['law']} of {tried(document)}",
                key="C",
                value=C,
                fix="add runs nearer to it, or fit a law with fewer parameters",
            )
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

        with overflows_ignored():
            return competitors(self._law_of_loss[0])

    @functools.cached_property
    def pictures(self) -> dict[str, Picture]:
        """All pictures of the fit by name; notebooks show them, and `save` draws them to files."""
        with overflows_ignored():
            return self.album()

    def plot(self, name: str | None = None) -> Picture:
        """One picture: the loss against compute, or the first there is; `pictures` has them all."""
        if name is None:
            name = next(
                (picture for picture in self.pictures if picture.endswith("_against_C")), next(iter(self.pictures))
            )
        if name not in self.pictures:
            raise ScalingError(f"there is no picture {name!r}", fix=nearest(name, self.pictures))
        return self.pictures[name]

    def save(self, folder: str | Path) -> list[Path]:
        """Draw all pictures into a folder, each as PDF, SVG, PNG and interactive HTML."""
        from scaling.picture import save

        files = {name: [Path(folder) / (name + suffix) for suffix in FORMATS] for name in self.pictures}
        return [path for name, picture in self.pictures.items() for path in save(picture, *files[name])]

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling fit --json` (docs/json.md)."""
        return dict(self.document)

    def to_markdown(self) -> str:
        from scaling.fit_report.formats import markdown

        return markdown(self.document)

    def to_latex(self) -> str:
        from scaling.fit_report.formats import latex

        return latex(self.document)

    def _repr_html_(self) -> str:
        from scaling.fit_report.tables import diagnostics, heading, tables

        lines = [f"<p>{html.escape(line)}</p>" for line in heading(self.document)]
        for table in tables(self.document):
            head = "".join(f"<th>{html.escape(title)}</th>" for title in table.titles)
            rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in table.rows)
            body = "".join(f"<tr>{row}</tr>" for row in rows)
            caption = f"<caption>{html.escape(table.caption)}</caption>"
            lines.append(f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
            lines += [f"<p>{html.escape(note)}</p>" for note in table.notes]
        return "\n".join([*lines, *(f"<p>{html.escape(line)}</p>" for line, _ in diagnostics(self.document))])

    def __str__(self) -> str:
        import io

        from rich.console import Console

        from scaling.fit_report.terminal import show

        console = Console(file=io.StringIO(), highlight=False, soft_wrap=True, width=120)
        show(self.document, console)
        return console.file.getvalue().rstrip()  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        estimates = ", ".join(f"{name} {value:.4g}" for name, value in self.estimates.items())
        return f"Fit({self.document['law']}, {len(self.points)} runs: {estimates})"

    def _needs_law(self, verb: str) -> FittedLaw | TwoStep:
        if self.law is None:
            raise ScalingError(
                f"{self.document['law']} has no law of the loss to {verb} with", fix="fit a law such as chinchilla"
            )
        return self.law


def columns_of_a_row(form: Form, row: Iterable[str]) -> list[str]:
    """The law's columns, and `examples` where the row has it and the law is of a score."""
    from scaling.law.fit import check_columns
    from scaling.law.points import PROPORTIONS
    from scaling.law.predictions import EXAMPLES

    more = [EXAMPLES] if EXAMPLES in row and form.target in PROPORTIONS else []
    check_columns(form, [name for name in row if name not in more], key="target")
    return [*form.inputs, *more]


def overflows_ignored() -> AbstractContextManager[None]:
    """An overflow on the way to a fit is handled by the solver; its reader has nothing to do about it."""
    import numpy as np

    return np.errstate(all="ignore")


def _frame(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Records as a DataFrame, an interval as the two columns of its ends."""
    import pandas

    return pandas.DataFrame([dict(_cells(row)) for row in rows])


def _cells(row: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in row.items():
        if name == "interval":
            continue  # the older name of interval_mean
        if name.startswith("interval_"):
            for end in ("low", "high"):
                yield f"{name.removeprefix('interval_')}_{end}", None if value is None else value[end]
        elif not isinstance(value, Mapping | list):
            yield name, value
        else:
            yield name, json.dumps(value)
