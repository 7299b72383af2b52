"""The questions a referee asks of a scaling law, answered from the fit and its points.

After the checklist of Li et al. 2025, "(Mis)Fitting: A Survey of Scaling Laws" (arXiv 2502.18969), which found most of
fifty papers silent on details that change their conclusions: the form, the training setup, the points, and the fitting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from scaling.errors import plural
from scaling.fit_report.tables import coverage
from scaling.law.fit import Fit
from scaling.law.held_out import HeldOut
from scaling.law.interval import Interval
from scaling.law.points import MEANINGS, NOT_STATED, SETUP_COLUMNS, SETUP_QUESTIONS, Points
from scaling.law.predictions import percent

FORM, SETUP, POINTS, FITTING = "form", "training setup", "points", "fitting"


@dataclass(frozen=True)
class Answer:
    """One question with its answer, or with None where it is not specified."""

    section: str
    question: str
    answer: str | None


def checklist(
    fit: Fit,
    *,
    intervals: Mapping[str, Interval] | None = None,
    held_out: HeldOut | None = None,
    stated: Mapping[str, str] | None = None,
) -> tuple[Answer, ...]:
    """Every question in order; `stated` answers by the keys of `SETUP_QUESTIONS` what the points do not state."""
    statements = {**_statements(fit.points), **(stated or {})}
    return (
        *_form(fit, statements),
        *(
            Answer(SETUP, SETUP_QUESTIONS[key], statements.get(key))
            for key in SETUP_QUESTIONS
            if key not in ("hypothesis", "noise")
        ),
        *_points(fit, statements),
        *_fitting(fit, intervals, held_out),
    )


def missing(answers: tuple[Answer, ...]) -> tuple[str, ...]:
    """The questions without an answer."""
    return tuple(answer.question for answer in answers if answer.answer is None)


def _statements(points: Points) -> dict[str, str]:
    """What the points state about the setup: a stated definition, or a column that has one value or a range."""
    statements = {}
    for key in SETUP_QUESTIONS:
        for name in (key, *SETUP_COLUMNS.get(key, ())):
            if name in points:
                statements[key] = _summary(points[name])
            elif name in points.definitions:
                statements[key] = points.definitions[name]
    return statements


def _summary(column: np.ndarray) -> str:
    values = np.unique(column)
    if len(values) == 1:
        return str(values[0])
    if np.issubdtype(column.dtype, np.number):
        return f"{values[0]:g} to {values[-1]:g}, {len(values)} values"
    return ", ".join(map(str, values[:6])) + (f" and {len(values) - 6} more" if len(values) > 6 else "")


def _form(fit: Fit, statements: Mapping[str, str]) -> Iterator[Answer]:
    form, points = fit.form, fit.points
    yield Answer(FORM, SETUP_QUESTIONS["hypothesis"], statements.get("hypothesis"))
    yield Answer(FORM, "Which equation?", f"{form.formula} ({form.citation})")
    free = [form.parameter_names[index] for index in fit.problem.free]
    fixed = f"; held: {', '.join(fit.problem.fixed)}" if fit.problem.fixed else ""
    yield Answer(FORM, "Which of its parameters are fitted?", ", ".join(free) + fixed)
    for name in (*form.axes, form.target):
        definition = points.definition(name)
        meaning = None if definition == NOT_STATED else definition
        yield Answer(FORM, f"How is {name} ({MEANINGS.get(name, name)}) counted?", meaning)


def _points(fit: Fit, statements: Mapping[str, str]) -> Iterator[Answer]:
    form, points = fit.form, fit.points
    yield Answer(POINTS, "How many runs were fitted, and which were left out?", points.count())
    for name in form.axes:
        column = points[name]
        decades = f"{np.log10(column.max() / column.min()):.1f} decades" if column.min() > 0 else "not all positive"
        yield Answer(POINTS, f"Over which range of {name}?", f"{column.min():.3g} to {column.max():.3g}, {decades}")
    scales = len(np.unique(np.column_stack([points[name] for name in form.inputs]), axis=0))
    yield Answer(POINTS, "How many distinct scales?", str(scales))
    repeated = len(points) - scales
    yield Answer(POINTS, SETUP_QUESTIONS["noise"], _seeds(fit) if repeated else statements.get("noise"))
    if "run" in points:
        runs = len(set(points["run"].tolist()))
        kind = "one point a run" if runs == len(points) else f"{len(points)} points along {plural(runs, 'run')}"
        yield Answer(POINTS, "Are they final losses, or points along training?", kind)
    else:
        yield Answer(POINTS, "Are they final losses, or points along training?", None)


def _seeds(fit: Fit) -> str:
    """The pooled standard deviation of the loss between runs of one scale."""
    points, form = fit.points, fit.form
    keys = np.column_stack([points[name] for name in form.inputs])
    _, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.ravel()
    target = points[form.target].astype(float)
    means = np.bincount(group, target) / np.bincount(group)
    freedom = len(target) - len(means)
    return f"{np.sqrt(((target - means[group]) ** 2).sum() / freedom):.2g} ({plural(freedom, 'degree')} of freedom)"


def _fitting(fit: Fit, intervals: Mapping[str, Interval] | None, held_out: HeldOut | None) -> Iterator[Answer]:
    yield Answer(
        FITTING, "Which objective, and what is its value?", f"{fit.problem.objective.name}, {fit.objective:.6g}"
    )
    weighted = not np.allclose(fit.problem.weights, fit.problem.weights[0])
    yield Answer(FITTING, "Are the points weighted?", "yes" if weighted else "no")
    yield Answer(
        FITTING, "How is the objective minimised?", "Levenberg-Marquardt with exact derivatives from many random starts"
    )
    yield Answer(FITTING, "Do the starts agree?", f"{fit.starts_agreeing:.0%} of those refined")
    yield Answer(FITTING, "Did it converge?", "yes" if fit.converged else "no")
    identified = "; ".join(fit.not_identified) or "all of them"
    yield Answer(FITTING, "Which parameters do the points identify?", identified)
    yield Answer(FITTING, "Can the fit be relied on?", "; ".join(fit.unreliable) or "no test speaks against it")
    yield Answer(FITTING, "How uncertain are the parameters?", _methods(intervals) if intervals else None)
    yield tested(held_out)


def tested(held_out: HeldOut | None) -> Answer:
    """What became of the held-out runs."""
    return Answer(FITTING, "Was it tested on held-out scales?", _errors(held_out) if held_out else None)


def _methods(intervals: Mapping[str, Interval]) -> str:
    first = next(iter(intervals.values()))
    return f"{percent(first.level)} intervals by {first.method}"


def _errors(held_out: HeldOut) -> str:
    document = held_out.to_json()
    covered = coverage(document)
    relative = document["largest_relative_error"]
    size = f"relative error {relative:.2%}" if np.isfinite(relative) else f"error {document['largest_error']:.4f}"
    error = f"{plural(document['n'], 'run')}, largest {size}"
    return error + (f", {covered}" if covered else "")
