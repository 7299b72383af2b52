"""Findings: runs as the rows of points.csv, the law that a question asks for, its held-out test, and the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError, plural, refuse
from scaling.base.printing import csv_text
from scaling.ledger import Ledger
from scaling.studies.plan import Plan
from scaling.studies.question import Question
from scaling.studies.tasks import CHANCE, EXAMPLES, SCORE, scores

if TYPE_CHECKING:
    from scaling.laws.examine import Fit
    from scaling.laws.figures import Picture
    from scaling.laws.fit import FittedLaw
    from scaling.laws.points import Points

MISSING = "missing"
PRINT = "figures.pdf"  # all figures, a page each; each is a PNG besides
FIT, BEST = "fit.json", "best.csv"  # the second of a study with `tune`: its rungs at their best rates and batches

Announce = Callable[[str], None]


def row(
    run: str,
    name: str,
    result: Mapping[str, Any] | None,
    columns: Mapping[str, Any],
    held_out: bool = False,
    trunk: str | None = None,
) -> dict[str, Any]:
    """A run in points.csv; one that has not ended has a status and no loss. The losses on the domains of a mixture are
    numbered as their proportions are.
    """
    losses = {} if result is None else result.get("losses", {})
    is_beside, status = bool(columns.get("beside")), MISSING if result is None else result["outcome"]
    return {
        "run": run,
        "name": name,
        "status": "beside" if is_beside and status == "finished" else status,
        "held_out": int(held_out and not is_beside),
        "loss": None if result is None else result["loss"],
        "trunk": trunk or run,
        **{f"loss_domain_{number}": losses[domain] for number, domain in enumerate(sorted(losses), 1)},
        **columns,
    }


def rows(ledger: Ledger, plan: Plan) -> list[dict[str, Any]]:
    """One row a planned run, with every definition of N and C."""
    measured, table = scores(ledger, plan), []
    for run in plan.runs:
        columns = run.point if run.row is None else {"row": run.row, **run.point}
        trunk = None if run.trunk is None else run.trunk.run
        line = row(run.run, run.name, ledger.result(run.run), columns, run.held_out, trunk)
        table.append(line | measured[run.run])
    return table


def write_points(table: list[dict[str, Any]], path: Path) -> None:
    """The table as CSV: the same bytes for the same runs."""
    atomic.write(path, csv_text(table))


@dataclass(frozen=True)
class Findings:
    """What a study has found so far: a row a planned run, the finished ones as points, and the law where they bear one.

    Without a law, `reason` states why. `tasks` are the documents of the laws of the scores; one without a law has a
    `reason`.
    """

    question: Question
    rows: tuple[Mapping[str, Any], ...]
    points: Points
    fit: Fit | None = None
    reason: str | None = None
    tasks: tuple[Mapping[str, Any], ...] = ()

    @property
    def document(self) -> Mapping[str, Any]:
        """The content of fit.json; empty without a law."""
        return {} if self.fit is None else self.fit.document

    @property
    def pictures(self) -> Mapping[str, Picture]:
        return {} if self.fit is None else self.fit.pictures

    @property
    def names(self) -> Mapping[str, str]:
        """The names of the runs by their ids."""
        return {row["run"]: row["name"] for row in self.rows}

    @property
    def complete(self) -> bool:
        """Whether every planned run has a result."""
        return all(row["status"] != MISSING for row in self.rows)

    def to_json(self, page: Path) -> dict[str, Any]:
        """The content of fit.json, or the reason why there is no law; and the path of the page."""
        document = self.document or {"law": None, "question": self.question.question, "reason": self.reason}
        return {**document, "page": str(page)}

    def predicted_loss(self, row: Mapping[str, Any]) -> float | None:
        """The law's loss for a run; none where there is no law, or no run of its table's row to fit one to."""
        from scaling.laws.law import VARIANT

        law = self.fit and self.fit.law
        if law is None:
            return None
        columns, variants = {name: row[name] for name in law.form.axes}, law.form.variants
        if variants and row["row"] not in variants:
            return None
        code = {VARIANT: variants.index(row["row"])} if variants else {}
        return float(law.predict(**columns, **code))


def read_fit(file: Path) -> dict[str, Any] | None:
    """The document of an earlier fit; None where there is none."""
    try:
        return atomic.read_json(file)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ScalingError(f"not JSON: {error}", file=file, fix="delete it, and report the study again") from None


def find(
    question: Question,
    table: list[dict[str, Any]],
    folder: Path,
    setup: Mapping[str, str] | None = None,
    announce: Announce = lambda step: None,
) -> Findings:
    """The results of the finished runs: points.csv, and where they allow a fit, fit.json and its figures, in `folder`.

    `setup` states how the runs were trained, where the question's `define` does not; `announce` is given each step that
    takes time. Runs that do not bear the law are not errors: a study can be looked at from its first run on.
    """
    from scaling.laws.horizon import best_points
    from scaling.laws.points import load_points

    if not any(row["status"] == "finished" for row in table):
        raise ScalingError("no run is finished", key="study", value=question.name, fix="`scaling study` trains them")
    write_points(table, folder / "points.csv")
    findings = Findings(question, tuple(table), load_points(folder / "points.csv", name=f"study {question.name}"))
    try:
        findings = _fitted(findings, setup or {}, announce)
    except ScalingError as error:
        findings = replace(findings, reason=_reason(error))
    # A fit that is kept states the setup of its runs, so it stays until another replaces it.
    document = findings.document
    best = best_points(document["tuned"]) if "tuned" in document else []
    if best:
        write_points(best, folder / BEST)
    else:
        (folder / BEST).unlink(missing_ok=True)
    if not document:
        (folder / FIT).unlink(missing_ok=True)
        return findings
    atomic.write_json(folder / FIT, document)
    announce(f"draw {plural(len(findings.pictures), 'figure')}")
    draw(findings.pictures, folder)
    return findings


def draw(pictures: Mapping[str, Picture], folder: Path) -> None:
    """Draw the figures into files."""
    from scaling.laws.figures import save_pages

    for name, picture in pictures.items():
        picture.save(folder / f"{name}.png")
    save_pages(pictures.values(), folder / PRINT)


def _reason(error: ScalingError) -> str:
    return error.what if error.key is None else f"{error.key} {error.what}"


def _fitted(findings: Findings, setup: Mapping[str, str], announce: Announce) -> Findings:
    """The findings with the study's law and those of its tasks; several rows of a table have one law."""
    from scaling.laws import exponents, fit_joint, named
    from scaling.laws import fit as fit_law
    from scaling.laws.compare import coded
    from scaling.laws.examine import examine
    from scaling.laws.figures import figures_of_law
    from scaling.laws.held_out import split_held_out
    from scaling.laws.horizon import excess_of_short_cooldowns, horizon, tuned
    from scaling.laws.points import group_of
    from scaling.training.finetune import name_of

    question, points, name = findings.question, findings.points, findings.question.law
    if name is None:
        raise ScalingError("the study asks for none")
    variants = list(dict.fromkeys(row["row"] for row in findings.rows if "row" in row))
    train, test = split_held_out(points, None)
    group = group_of(train)
    announce(f"fit {name} to {plural(len(train), 'run')}")
    if len(variants) > 1:  # one floor for all rows, which read the same data; all else is each row's own
        law = fit_joint(name, train, "row", variants[0], group=group)
        fitted = law.form.variants
        test = test and test.where(np.array([str(row) in fitted for row in test["row"]]))
        test = coded(test, "row", fitted) if test is not None and len(test) else None
    else:
        law = fit_law(named(name), train, group=group)
    targets = [dict(question.target)] if question.target and law.form.axes == law.form.inputs else []
    fit = examine(law, held_out=test, targets=targets, group=group, largest=True)
    document = fit.document | {"question": question.question, "setup": {**setup, **question.define}}
    entropies = np.unique(points["entropy"]) if "entropy" in points else []
    if len(entropies) == 1 and isfinite(entropies[0]):  # of other runs it is another one, or not known
        document["entropy"] = _against(fit, float(entropies[0]))
    if len(variants) > 1:
        document["points"]["pooled"].pop("row", None)
        lines = [
            {"row": each.variant, "name": each.name, **each.own.to_json()}
            | {"difference": each.difference and each.difference.to_json()}
            for each in exponents(law)
        ]
        document["rows"] = {"baseline": variants[0], "exponents": lines}
    document["compared"] = [] if len(variants) > 1 else _compared(law, question.laws[1:], train, test)
    document["horizon"], document["cooldowns"] = horizon(law), excess_of_short_cooldowns(law)
    if question.tune:
        document["tuned"] = tuned(law, findings.rows)
    pictures, tasks = dict(figures_of_law(law, fit.test)), []
    for task in map(name_of, question.tasks):
        announce(f"fit the score of {task}")
        try:
            of_task, pictures[picture_of(task)] = _of_task(question, name, points, task)
        except ScalingError as error:
            of_task = {"law": None, "reason": _reason(error)}
        tasks.append({"task": task, **of_task})
    if tasks:
        document["tasks"] = tasks
    fit = replace(fit, document=document, points=points, drawn=lambda _: pictures)
    return replace(findings, fit=fit, tasks=tuple(tasks))


def picture_of(task: str) -> str:
    """The name of the picture of a task's score."""
    return f"{task}_accuracy_against_loss"


def _of_task(question: Question, name: str, points: Points, task: str) -> tuple[dict[str, Any], Picture]:
    """A task's score from the study's law of the loss and a sigmoid, held out and drawn as the study's law is."""
    from scaling.laws import composed, fit_two_steps, named
    from scaling.laws.examine import examine
    from scaling.laws.figures import loss_against
    from scaling.laws.held_out import split_held_out
    from scaling.laws.horizon import horizon
    from scaling.laws.points import group_of
    from scaling.laws.written import constrained_law

    refuse(question.compares_rows, "a law for each row has no second step", key=task)
    points = _scored(points, task)
    form, fixed = constrained_law(composed(named(name), named("task_sigmoid")), points)
    train, test = split_held_out(points, None)
    if test is not None and not np.isfinite(test["accuracy"]).any():
        test = None
    both = fit_two_steps(form, train, fixed=fixed, group=group_of(train))
    targets = [dict(question.target)] if set(question.target) == set(form.inputs) else []
    document = {**examine(both, held_out=test, targets=targets).document, "horizon": horizon(both)}
    return document, loss_against(both.task, "loss", test)


def _scored(points: Points, task: str) -> Points:
    """The points with a task's score as `accuracy`, beside its examples and chance level where these are known."""
    for name, part in (("accuracy", SCORE), ("examples", EXAMPLES), ("chance", CHANCE)):
        values = points.columns.get(task + part)
        if values is None or not np.issubdtype(values.dtype, np.number) or not np.isfinite(values.astype(float)).any():
            refuse(name == "accuracy", "was not measured", key=task)
            continue
        # Runs without a score have no examples either; those of the others hold for the task.
        values = values if name == "accuracy" else np.full(len(points), np.nanmedian(values.astype(float)))
        points = points.with_column(name, values, f"{name} of {task} after finetuning")
    return points


def _compared(first: FittedLaw, others: Sequence[str], train: Points, test: Points | None) -> list[dict[str, Any]]:
    """The laws that were requested besides the first, on the same points: AICc, its weight, and the held-out error.

    None where there are too few points for AICc to weigh anything.
    """
    from scaling.laws import aicc, compare, fit, named
    from scaling.laws.held_out import judge
    from scaling.laws.points import group_of

    fits, refused = {first.form.name: first}, []
    for name in others:
        try:
            fits[name] = fit(named(name), train, group=group_of(train))
        except ScalingError as error:
            refused.append({"law": name, "reason": error.what})
    fits = {name: law for name, law in fits.items() if isfinite(aicc(law))}
    if len(fits) < 2:
        return []
    comparisons = [
        {
            "law": name,
            "formula": fits[name].form.formula,
            "aicc": criterion,
            "weight": weight,
            "held_out": None if test is None else judge(fits[name], test).to_json(),
        }
        for name, (criterion, weight) in compare(fits).items()
    ]
    return comparisons + refused


def _against(fit: Fit, entropy: float) -> dict[str, Any]:
    """The irreducible loss and the source's entropy, which is known, and the prediction errors of the excess."""
    tested = fit.document["held_out"] or {"points": ()}
    errors = [(point["predicted"] - point["loss"]) / (point["loss"] - entropy) for point in tested["points"]]
    contained = {"contained": fit.intervals["E"].covers(entropy)} if "E" in fit.intervals else {}
    return {"known": entropy, **contained, "excess_errors": errors}
