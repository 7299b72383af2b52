"""Estimate a study, train it, watch it, and write its report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scaling.base.errors import DISK, ScalingError, plural, refuse
from scaling.base.numbers import NonNegativeFloat, PositiveFloat, PositiveFraction, PositiveInt
from scaling.base.printing import Table, byte_size, interval, short, span, tabulate
from scaling.base.standard_error import say
from scaling.config.document import print_remarks
from scaling.ledger import Ledger
from scaling.studies.predictions import calibration, registered, track_record
from scaling.studies.question import read
from scaling.verbs.verb import PYTHON, RUNS, Executor, Output, Result, frame, verb

if TYPE_CHECKING:
    import pandas

    from scaling.laws.examine import Fit
    from scaling.studies.adaptive import Decider
    from scaling.studies.findings import Findings
    from scaling.studies.plan import Plan
    from scaling.studies.scheduler import Unfinished

StudySource = Annotated[str | Path | Mapping[str, Any], "a shipped study, a path, or in Python its fields as a dict"]
MOST_ROWS = 60  # of a table on a terminal
MUCH = 0.25  # of the FLOPs of the runs, which evaluations add


class StudyPlan(Result):
    """The costs of a study (`total`) and the expected interval (`outlook`); see docs/json.md."""

    @property
    def runs(self) -> pandas.DataFrame:
        """One row for each run: N, D, C, seconds and bytes on this machine."""
        return frame(self.document["runs"])


def _printed(document: Mapping[str, Any]) -> Iterator[str | Table]:
    """The printed plan: its question, a row for each run, the total cost, and the quantities that it will identify."""
    total, outlook, adaptive = document["total"], document["outlook"], document.get("adaptive")
    places = {name: there for name, there in total.items() if isinstance(there, Mapping)}  # the devices of `on`
    titles = ["run", "N", "D", "C", "warmup steps", "evaluations", "time", "memory"]
    titles += [title for name in places for title in (name, "on each")]
    yield document["question"]
    yield tabulate(titles, [_cells(row, places) for row in document["runs"][:MOST_ROWS]])
    if (hidden := len(document["runs"]) - MOST_ROWS) > 0:
        yield f"… and {hidden:,} more (--json lists all)"
    evaluation = total["C_evaluation"] / total["C_without_trunks"]
    fewer = "; set evaluate.windows, as to 256, where that is too much" if evaluation > MUCH else ""
    time = span(total["seconds"]) if "seconds" in total else "too small to time these models"
    costs = [
        ["runs", total["runs"]],
        ["  held out", total["held_out"]],
        ["  beside them, to see whether they are tuned", total["beside"] or None],
        ["FLOPs", f"{total['C']:.3g}"],
        ["  saved by shared trunks", f"{total['saved']:.0%}" if total["trunks"] else None],
        ["  added by evaluations", f"{evaluation:.1%}{fewer}"],
        ["time of a worker on this machine", time],
        ["  measured", "beside other work; alone it may be faster" if total.get("busy") else None],
        ["  workers", total["workers"]],
    ]
    for name, there in places.items():
        costs += [
            [f"time on {there['devices']:,} × {name}", span(there["seconds"])],
            ["  fraction of the peak", f"{there['utilisation']:.0%}"],
            ["  device hours", f"{there['device_hours']:,.1f}"],
            ["  price", f"{there['price']:,.0f}" if "price" in there else None],
            ["  memory of each", byte_size(there["bytes"]) + ("" if there["fits"] else ", too much")],
        ]
    yield tabulate(["", "in all"], [row for row in costs if row[1] is not None])
    if document["shortfall"] is not None:
        yield document["shortfall"]["sentence"]
    if outlook is not None and "reason" in outlook:
        yield f"the interval that it will give cannot be predicted: {outlook['reason']}"
    elif outlook is not None:
        supposed = ", ".join(f"{name} {value:.4g}" for name, value in outlook["supposed"].items())
        yield f"expected 95% interval of the mean of {outlook['target']}: {interval(outlook)}"
        yield f"  assumed law: {supposed}; noise of log loss {outlook['noise']:g}"
    if adaptive is not None and "reason" in adaptive:
        yield f"what an adaptive study will choose cannot be predicted: {adaptive['reason']}"
        yield f"  the {adaptive['candidates']} runs above are its candidates, of which it trains what it needs"
    elif adaptive is not None:
        widths = ((each["name"], each["expected_half_width"]) for each in adaptive["decisions"])
        rows = [[name, "open" if width is None else f"± {width:.3g}"] for name, width in widths]
        yield adaptive["sentence"]
        yield tabulate(["runs in the order of choice", "expected after it"], rows)


def _cells(row: Mapping[str, Any], places: Iterable[str]) -> list[Any]:
    """The printed costs of a run."""
    role = "  beside" if row["beside"] else "  held out" if row["held_out"] else ""
    evaluations = f"{row['evaluations']}, {row['C_evaluation'] / row['C']:.1%} of C"
    cells = [row["name"] + role, row["N"], short(row["D"]), f"{row['C']:.3g}"]
    cells += [f"{row['warmup']:,} of {row['steps']:,}", evaluations, span(row["seconds"]), byte_size(row["bytes"])]
    for there in map(row.__getitem__, places):
        footprint = byte_size(sum(there["bytes"].values())) + ("" if there["fits"] else " too much")
        cells += [span(there["seconds"]), footprint]
    return cells


def _check_budget(budget: float | None, adaptive: str | None) -> None:
    what, fix = "it applies to adaptive studies only", "add --adaptive GOAL"
    refuse(budget and adaptive is None, what, fix, key="--budget", value=budget)


@verb
def plan(
    study: StudySource,
    *overrides: str,
    at: str | None = None,
    on: Annotated[Sequence[str], "a device of configs/devices.yaml; repeats"] = (),
    devices: Annotated[PositiveInt, "number of devices that train a run"] = 1,
    sharding: Annotated[Literal["ddp", "fsdp"], "how a model is divided among the devices"] = "ddp",
    tensor: Annotated[PositiveInt, "number of devices that share each matrix"] = 1,
    utilisation: Annotated[PositiveFraction, "the fraction of the devices' peak that a run reaches"] = 0.4,
    price: Annotated[NonNegativeFloat | None, "the price of one device for an hour"] = None,
    adaptive: Annotated[str | None, "the goal of `scaling study --adaptive`"] = None,
    budget: PositiveFloat | None = None,
    **settings: Any,
) -> StudyPlan:
    """Estimate the cost of a study (runs, time, memory, money) and the expected interval.

        scaling plan quickstart
        scaling plan quickstart --adaptive 'E ± 0.02'
        scaling plan chinchilla_isoflop --at paper --on H100 --devices 4096 --sharding fsdp --tensor 8 --price 2.50

    Overrides hold for every run. Nothing is trained; a few steps are timed. If the data are not prepared, a
    synthetic language replaces them.
    """
    from scaling.laws.next_run import parse_goal
    from scaling.studies.adaptive import Field, extended
    from scaling.studies.estimate import Elsewhere, costs
    from scaling.studies.plan import plan as plan_runs

    _check_budget(budget, adaptive)
    words, goal, data = list(overrides), None if adaptive is None else parse_goal(adaptive), "prepared"
    question = read(study, at, words)
    usual = {"devices": 1, "sharding": "ddp", "tensor": 1, "price": None, "utilisation": 0.4}
    for name, value in zip(usual, (devices, sharding, tensor, price, utilisation), strict=True):
        refuse(not on and value != usual[name], "is of a device", "add --on H100", key=f"--{name}", value=value)
    places = [Elsewhere(device, devices, sharding, tensor, utilisation, price) for device in on]
    question = question if goal is None else extended(question, goal, budget, words)
    try:
        planned = plan_runs(question, words)
    except ScalingError as error:
        if str(error.key).rpartition(".")[2] != "data":
            raise
        planned, data = plan_runs(question, words, "stand_in"), "stand_in"
        say("; ".join(filter(None, (error.what, error.fix, "the costs are estimated without them"))))
    if goal is None:
        document = costs(planned, data, places)
    else:
        planned, simulated = Field(planned, goal).simulated(budget)
        document = {**costs(planned, data, places, outlook=False), "adaptive": simulated}
    return StudyPlan(document, list(_printed(document)))


@dataclass(frozen=True, repr=False)
class Study(Result):
    """The findings of a study, and its page; `missing` are runs without a result. A kept report has no `ledger`."""

    findings: Findings = field(kw_only=True)
    page: Path = field(kw_only=True)
    ledger: Ledger | None = None
    missing: Unfinished | None = None

    @property
    def name(self) -> str:
        return self.findings.question.name

    @property
    def points(self) -> pandas.DataFrame:
        """One row for each planned run: its name, status, loss and every definition of N, D and C, as in points.csv."""
        return frame(self.findings.rows)

    @property
    def fit(self) -> Fit:
        """The study's fitted law; a `ScalingError` if its runs do not suffice."""
        if self.findings.fit is None:
            raise ScalingError(f"there is no law: {self.findings.reason}", key="study", value=self.name)
        return self.findings.fit

    def report(self) -> Path:
        """The study's page, written again from the runs that are done."""
        if self.ledger is None:
            return report(str(self.page.parent)).page
        return report(self.name, runs=self.ledger.root).page

    def _repr_html_(self) -> str:
        return self.points.to_html() if self.findings.fit is None else self.fit._repr_html_()


def _found(findings: Findings, page: Path, record: Mapping[str, Any]) -> Iterator[str]:
    """The printed findings of a study, with the calibration of the predictions on record."""
    from scaling.base.markup import plain
    from scaling.laws.horizon import sentence as next_run
    from scaling.laws.report import held_out
    from scaling.reports.answer import answer

    document = findings.document
    yield findings.question.question
    if document:
        yield str(findings.fit)
    if not document or "rows" in document:
        yield plain(answer(findings).sentence)
    for task in findings.tasks:
        name, law = task["task"], task["law"]
        if law is None:
            yield f"{name}: no law of the score: {task['reason']}"
            continue
        yield f"{name}: {law}, {plural(task['n'], 'score')}"
        if (table := held_out(task)) is not None:
            yield table.text()
        yield from (f"! {name}: {doubt}" for doubt in (*task["not_identified"], *task["unreliable"]))
    if (entropy := document.get("entropy")) is not None:
        inside = {True: "inside", False: "outside", None: "not compared with"}[entropy.get("contained")]
        yield f"the language's entropy is {entropy['known']:.4f}: {inside} the interval of E"
        for error in entropy["excess_errors"]:
            yield f"prediction error of the held-out excess over the entropy: {error:+.1%}"
    yield from (document[key]["sentence"] for key in ("tuned", "cooldowns") if document.get(key))
    if horizon := document.get("horizon"):
        for row in horizon["predictions"]:
            expected = f"loss {row['loss']:.4f}, 95% interval of a new run {interval(row['interval_run'])}"
            yield f"at {row['times']:g} × the largest compute: {expected}"
        yield next_run(horizon)
    yield f"report: {page}"
    if record.get("predictions") or record.get("altered"):
        yield f"on record: {track_record(record)}"


def _study(findings: Findings, page: Path, ledger: Ledger | None = None, missing: Unfinished | None = None) -> Study:
    """The result of `study` and `report`, with the calibration of the predictions on record in the ledger."""
    record = None if ledger is None else calibration(registered(ledger))
    document = findings.to_json(page) | ({} if record is None else {"on_record": record})
    parts, code = _found(findings, page, record or {}), 0 if missing is None else missing.code
    return Study(document, list(parts), code, findings=findings, page=page, ledger=ledger, missing=missing)


@verb
def study(
    study: StudySource,
    *overrides: str,
    at: str | None = None,
    workers: PositiveInt | None = None,
    executor: Executor = "local",
    set: Mapping[str, Any] = {},
    tasks: Annotated[tuple[str, ...], "also finetune each finished run on these tasks"] = (),
    adaptive: Annotated[str | None, "choose the runs one after another, until the goal is reached"] = None,
    budget: PositiveFloat | None = None,
    retry_failed: bool = False,
    progress: PYTHON[bool] = True,
    **settings: Any,
) -> Study:
    """Train the missing runs of a study, fit its law, test it on the held-out runs, and write the report.

        scaling study quickstart                         the shipped first study, offline, in minutes on two cores
        scaling study quickstart data=python             the same on real text
        scaling study my_study.yaml --workers 8
        scaling study quickstart --adaptive 'E ± 0.02'   chooses its runs until the interval is narrow enough

    Overrides hold for every run. `scaling plan` estimates the cost. After a stop, the same command continues.
    An adaptive study chooses its runs one after another until its goal is reached ("E ± 0.01" or
    "loss at C=1e15 ± 0.5%") or its budget is spent.
    """
    from scaling.laws.next_run import parse_goal
    from scaling.reports import provenance, write
    from scaling.studies import estimate, identifiability, scheduler
    from scaling.studies.adaptive import decider, decisions
    from scaling.studies.plan import enter
    from scaling.studies.progress import announcer
    from scaling.studies.tasks import task_plan, with_tasks

    _check_budget(budget, adaptive)
    words, announce, decided = list(overrides), announcer(progress), None
    if adaptive is None:
        plan, why = estimate.choose_scale(study, at, words, workers)
        plan = with_tasks(plan, tasks)
        ledger, lacking = plan.ledger(), identifiability.shortfall(plan.question, plan.fitted) or {}
        added = enter(ledger, plan)
        extended = f"the study {plan.question.name} is extended by {plural(len(added), 'run')}" if added else None
        for remark in filter(None, (why, extended, lacking.get("sentence"))):
            announce(remark)
    else:
        decided = decider(study, at, words, parse_goal(adaptive), budget, workers, tasks)
        plan, ledger = decided(), decided.ledger
    name = plan.question.name
    if progress:
        print_remarks(run.experiment.config for run in (decided.field.runs if decided else plan.runs))

    def trained(plan: Plan, decided: Decider | None = None) -> Unfinished | None:
        settings: dict[str, Any] = {"workers": workers, "executor": executor, "parameters": set, "decided": decided}
        missing = scheduler.train(ledger, plan, announce, retry_failed=retry_failed, **settings)
        if missing is not None and missing.code == DISK:
            raise _not_done(plan.question.name, missing)
        return missing

    missing = trained(plan, decided)
    if decided is not None:
        plan = decided()
        announce(provenance.sentence(decisions(ledger, name)))
    if (finetunings := task_plan(ledger, plan)) is not None:
        enter(ledger, finetunings)
        of_tasks = plural(len({run.task for run in finetunings.runs}), "task")
        announce(f"finetune {plural(len(finetunings.runs), 'run')} of {of_tasks}")
        missing = trained(finetunings) or missing
    try:
        findings, page = write.write(ledger, plan, announce)
    except ScalingError as error:
        raise error if missing is None else _not_done(name, missing, error) from None  # too few runs are left to fit
    if missing is not None:
        announce(f"the study {name} is not done: {missing}")
    write.mirror(findings, page, ledger, plan)
    return _study(findings, page, ledger, missing)


def _not_done(name: str, missing: Unfinished, why: ScalingError | None = None) -> ScalingError:
    """A study without a report, because too many runs are missing."""
    lines = "; ".join(line.strip() for line in missing.lines)
    return ScalingError(f"the study {name} is not done: {lines}", fix=why and f"no report: {why}", code=missing.code)


@verb
def report(
    study: Annotated[str | Path, "a study of the ledger, or the folder of a kept report"],
    *,
    runs: str | Path = RUNS,
    keep: Annotated[str | Path | None, "copy the report to the folder KEEP/STUDY, with the study's YAML"] = None,
    progress: PYTHON[bool] = True,
) -> Study:
    """Write a study's report from its finished runs.

        scaling report quickstart
        scaling report quickstart --keep docs/results    a copy that needs no ledger
        scaling report docs/results/quickstart           fit the law again to the points of such a copy

    The law is fitted, the figures are drawn, and the page is written.
    """
    from scaling.studies.progress import announcer

    is_named, study = False, str(study)
    if keep is not None:
        Output(is_folder=True).check(Path(keep, Path(study).name), "keep")
    with suppress(ScalingError):  # a kept report needs no ledger
        is_named = os.sep not in study and study in Ledger.open(runs).studies()
    if Path(study, "index.html").is_file() and not is_named:
        from scaling.reports.write import fit_again, is_kept

        folder = Path(study).resolve()
        refuse(not is_kept(folder), "is not a kept report", "`--keep` writes one", key="STUDY", value=str(folder))
        refuse(keep is not None, "is a kept report already", "leave out --keep", key="STUDY", value=str(folder))
        return _study(*fit_again(folder, announcer(progress)))
    ledger = Ledger.open(runs)
    ledger.plan(study)  # before what is slow to import

    from scaling.reports.write import write
    from scaling.studies.plan import entered

    folder = None if keep is None else Path(keep)
    return _study(*write(ledger, entered(ledger, study), announcer(progress), folder), ledger)


@verb
def watch(
    study: Annotated[str, "the name of a study that was started"],
    *,
    runs: str | Path = RUNS,
    every: Annotated[PositiveFloat, "seconds between looks"] = 5.0,
    once: Annotated[bool, "look once"] = False,
) -> Iterator[Result]:
    """Watch a study while it trains: the law, an interval that holds at all looks together, and the time left.

        scaling watch quickstart
        scaling watch quickstart runs=/shared/runs --every 60

    In Python it is an iterator of looks. It ends when all runs have ended.
    """
    from scaling.studies.adaptive import decisions, is_open, live_law, losses_of
    from scaling.studies.plan import entered
    from scaling.studies.progress import progress_of, summary

    ledger = Ledger.open(runs)
    file, printed, losses = None, "", None
    while True:
        if file != (newest := ledger.plan_file(study)):
            file, plan = newest, entered(ledger, study, [f"runs={ledger.root}"])
        recorded, now = decisions(ledger, study), progress_of(ledger, plan)
        finished = losses_of(ledger, plan)
        if finished != losses:
            losses, (law, line) = finished, live_law(plan, finished, recorded)
        document = {"study": study, "runs": now.planned, "settled": now.settled, "failed": now.failed}
        document |= {"share": now.share, "seconds_left": now.left, **law}
        look = Result(document, [f"{summary(now)}; {line}"])
        if str(look) != printed:
            printed = str(look)
            yield look
        if once or (now.settled == now.planned and not is_open(recorded)):
            return
        time.sleep(every)


@verb
def submit(
    study: StudySource,
    *overrides: str,
    at: str | None = None,
    workers: Annotated[PositiveInt, "number of SLURM jobs; the runs are divided among them"] = 1,
    set: Mapping[str, Any] = {},
    stop: Annotated[bool, "cancel the jobs of the study instead of submitting it"] = False,
    **settings: Any,
) -> Result:
    """Submit the missing runs of a study to SLURM.

        scaling submit my_study.yaml --workers 32 --set partition=gpu gpus_per_node=1 timeout_min=600
        scaling watch my_study                           its progress
        scaling study my_study.yaml                      its law and its page, after the jobs have ended
        scaling submit my_study.yaml --stop

    The command does not wait for the jobs.
    """
    from scaling.executors.slurm import cancel_all
    from scaling.studies.estimate import choose_scale
    from scaling.studies.plan import enter
    from scaling.studies.scheduler import detach

    plan, why = choose_scale(study, at, list(overrides), workers)
    name, ledger = plan.question.name, plan.ledger()
    if stop:
        line = f"cancelled {plural(cancel_all(ledger.study_folder(name) / 'slurm'), 'job')} of SLURM"
    else:
        enter(ledger, plan)
        line = f"submitted {plural(detach(ledger, plan, workers, set), 'run')} to SLURM"
    look = next(watch(name, runs=ledger.root, once=True))
    return replace(look, parts=[*filter(None, [why]), line, *look.parts])
