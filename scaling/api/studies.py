"""Plan a study, train it, and read its report."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.words import words
from scaling.config import print_remarks
from scaling.errors import DISK, ScalingError, plural

if TYPE_CHECKING:
    import pandas

    from scaling.api.fit_result import Fit
    from scaling.ledger import Ledger
    from scaling.studies.adaptive import Decider, Field
    from scaling.studies.estimate import Elsewhere
    from scaling.studies.findings import Findings
    from scaling.studies.launch import Unfinished
    from scaling.studies.live import LiveLaw
    from scaling.studies.plan import Plan
    from scaling.studies.progress import Progress
    from scaling.studies.question import Question
    from scaling.studies.view import Tell


@dataclass(frozen=True)
class StudyPlan:
    """What a study will cost and which interval it will give, before it is run. Printed, it is `scaling plan`."""

    document: Mapping[str, Any]
    places: Sequence[Elsewhere] = ()

    @property
    def runs(self) -> pandas.DataFrame:
        """A row a run: N, D, C, seconds and bytes on this machine."""
        import pandas

        return pandas.DataFrame(self.document["runs"])

    @property
    def total(self) -> Mapping[str, Any]:
        """Runs, FLOPs and time of the whole."""
        return self.document["total"]

    @property
    def predicted_interval(self) -> Mapping[str, Any] | None:
        """The interval that the target is expected to get, or the reason why it cannot be predicted."""
        return self.document["outlook"]

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling plan --json` (docs/json.md)."""
        return dict(self.document)

    def _repr_html_(self) -> str:
        return self.runs.to_html()

    def __repr__(self) -> str:
        total = self.total
        return f"StudyPlan({self.document['study']}: {total['runs']} runs, {total['C']:.3g} FLOPs)"


@dataclass(frozen=True)
class Study:
    """A study with the runs that are done. `missing` lists those without a result; it is None where all have one."""

    entered: Plan
    ledger: Ledger
    findings: Findings
    page: Path
    missing: Unfinished | None = None

    @property
    def name(self) -> str:
        return self.entered.question.name

    @property
    def points(self) -> pandas.DataFrame:
        """A row a planned run: its name, status, loss and every definition of N, D and C, as in points.csv."""
        import pandas

        return pandas.DataFrame(self.findings.rows)

    @property
    def fit(self) -> Fit:
        """The study's law, fitted; a `ScalingError` where its runs bear none."""
        from scaling.api.fit_result import Fit

        findings = self.findings
        if findings.law is None or findings.document is None:
            raise ScalingError(f"there is no law: {findings.reason}", key="study", value=self.name)
        return Fit(findings.document, findings.points, findings.law, "profile", 0.95, lambda: dict(findings.pictures))

    def plan(self) -> StudyPlan:
        """What the study costs, as `scaling.plan` estimates it."""
        return _costs(self.entered, "prepared", ())

    def report(self) -> Path:
        """The study's page, written again from what is done by now."""
        from scaling.report.write import write

        return write(self.ledger, self.entered)[1]

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling study --json` (docs/json.md)."""
        return self.findings.to_json(self.page)

    def _repr_html_(self) -> str:
        return self.points.to_html() if self.findings.law is None else self.fit._repr_html_()

    def __repr__(self) -> str:
        done = sum(row["status"] == "finished" for row in self.findings.rows)
        return f"Study({self.name}: {done} of {len(self.findings.rows)} runs are finished)"


@dataclass(frozen=True)
class StudyLook:
    """A study while its runs go on: how far it is, and its law. Printed, it is a line of `scaling watch`."""

    name: str
    progress: Progress
    law: LiveLaw

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling watch --json` (docs/json.md)."""
        now = self.progress
        return {
            "study": self.name,
            "runs": now.planned,
            "settled": now.settled,
            "failed": now.failed,
            "share": now.share,
            "seconds_left": now.left,
            **self.law.to_json(),
        }

    def __str__(self) -> str:
        from scaling.studies.view import span, summary

        left = "" if self.progress.left is None else f", {span(self.progress.left)} left"
        return f"{summary(self.progress)}{left}; {self.law}"


def watch(name: str, runs: str = "runs", *, every: float = 5.0, wandb: bool = False) -> Iterator[StudyLook]:
    """Looks at a study that goes on, every so many seconds, until all its runs have come to their end.

    The interval of a look holds at all looks together. With `wandb` each new one is logged where the study's runs are.

        for look in scaling.watch("quickstart"):
            print(look.law.interval)
    """
    import time

    from scaling.ledger import Ledger
    from scaling.report.wandb_summary import LiveMirror
    from scaling.studies.decisions import decisions, is_open
    from scaling.studies.live import LiveFit
    from scaling.studies.progress import Watch
    from scaling.studies.record import entered

    ledger = Ledger.open(runs)
    fitted, file, mirror = LiveFit(ledger), None, None
    while True:
        if file != (newest := ledger.plan_file(name)):
            file, plan = newest, entered(ledger, name, [f"runs={ledger.root}"])
            progress = Watch(ledger, plan)
        made = decisions(ledger, name)
        now = progress.look()
        look = StudyLook(name, now, fitted(plan, made))
        if wandb:
            mirror = mirror or LiveMirror(ledger, plan)
            mirror.log(look.to_json())
        yield look
        if now.settled == now.planned and not is_open(made):
            break
        time.sleep(every)
    if mirror is not None:
        mirror.end()


def step(what: str) -> None:
    """A step that takes time, or what was noticed, on standard error."""
    print(f"scaling: {what}", file=sys.stderr, flush=True)


def study(
    name: str,
    *overrides: str,
    at: str | None = None,
    workers: int | None = None,
    launcher: Any = "local",
    slurm: Mapping[str, Any] | None = None,
    retry_failed: bool = False,
    progress: bool = True,
    tasks: Sequence[str] = (),
    adaptive: str | None = None,
    budget: float | None = None,
    **settings: Any,
) -> Study:
    """Train what is not done of a study, fit its law, and test it on the held-out runs.

    `name` is a shipped study or a path; overrides and keywords hold for every run. Each finished run is finetuned on
    each of `tasks` and of the study's own. `scaling.plan` estimates before what it will cost.

    `adaptive` is a goal, as "E ± 0.01" or "loss at C=1e15 ± 0.5%": the study chooses its runs one after another until
    the interval is so narrow, or `budget` FLOPs (by default those of its grid) are spent.

        study = scaling.study("quickstart")
        study.fit.predict(N=1e6, D=2e7)
    """
    from scaling.report.chosen import sentence
    from scaling.report.wandb_summary import mirror
    from scaling.report.write import write
    from scaling.studies.decisions import decisions
    from scaling.studies.findings import nothing
    from scaling.studies.identifiability import shortfall
    from scaling.studies.launch import train
    from scaling.studies.record import enter
    from scaling.studies.scale_choice import choose_scale
    from scaling.studies.tasks import task_plan, with_tasks

    decided = None
    if adaptive is None:
        if budget is not None:
            raise ScalingError("is of an adaptive study", key="--budget", value=budget, fix="add --adaptive 'E ± 0.01'")
        plan, why = choose_scale(name, at, words(overrides, settings), workers)
        plan = with_tasks(plan, tasks)
        name, ledger = plan.question.name, plan.ledger()
        added = enter(ledger, name, plan)
        print_remarks(run.experiment.config for run in plan.runs)
        extended = f"the study {name} is extended by {plural(len(added), 'run')}" if added else None
        for remark in (why, extended, shortfall(plan.question, plan.fitted)):
            if remark is not None:
                step(str(remark))
    else:
        if launcher != "local":
            fix = "leave --launcher out; start further workers with `scaling work`"
            raise ScalingError("an adaptive study starts its workers here", key="--launcher", value=launcher, fix=fix)
        decided = _decider(name, at, words(overrides, settings), adaptive, budget, workers, tasks)
        plan, ledger = decided(), decided.ledger
        name = plan.question.name
    choices: dict[str, Any] = {
        "workers": workers,
        "launcher": launcher,
        "parameters": slurm or {},
        "retry_failed": retry_failed,
    }
    with listener(progress) as heard:
        missing = train(ledger, name, plan, heard, decided=decided, **choices)
    if decided is not None:
        plan = decided()
        step(sentence(decisions(ledger, name)))
    if missing is not None and missing.code == DISK:
        raise Incomplete(name, missing)
    finetuned = task_plan(ledger, plan) if plan.question.tasks else None
    if finetuned is not None:
        enter(ledger, finetuned.question.name, finetuned)
        step(f"finetune {plural(len(finetuned.runs), 'run')} of {plural(len(plan.question.tasks), 'task')}")
        with listener(progress) as heard:
            lacking = train(ledger, finetuned.question.name, finetuned, heard, **choices)
        if lacking is not None and lacking.code == DISK:
            raise Incomplete(finetuned.question.name, lacking)
        missing = missing or lacking
    try:
        findings, page = write(ledger, plan, step if progress else nothing)
    except ScalingError as error:
        if missing is None:
            raise
        raise Incomplete(name, missing, error) from None  # too few runs are left to fit
    mirror(findings, page, ledger, plan)
    return Study(plan, ledger, findings, page, missing)


def _decider(
    name: str,
    at: str | None,
    given: Sequence[str],
    goal: str,
    budget: float | None,
    workers: int | None,
    tasks: Sequence[str] = (),
) -> Decider:
    """What chooses the runs of an adaptive study; refused where its goal is out of reach."""
    from scaling.studies.adaptive import Decider
    from scaling.studies.decisions import decisions
    from scaling.studies.size import sized

    field, budget = _field(name, at, given, goal, budget, tasks)
    ledger = field.plan.ledger()
    if not decisions(ledger, field.plan.question.name):
        field.refuse_out_of_reach(budget)
    print_remarks(run.experiment.config for run in field.runs)
    return Decider(ledger, field, budget, sized(field.plan, workers).workers)


def _field(
    name: str, at: str | None, given: Sequence[str], goal: str, budget: float | None, tasks: Sequence[str] = ()
) -> tuple[Field, float]:
    """The candidates of an adaptive study, and the FLOPs that it may spend."""
    from scaling.law.goal import parse_goal
    from scaling.studies.adaptive import Field, extended
    from scaling.studies.question import read
    from scaling.studies.tasks import with_tasks

    parsed = parse_goal(goal)
    if budget is not None and not 0 < budget < float("inf"):
        raise ScalingError("expected FLOPs above 0", key="--budget", value=budget)
    question = extended(read(name, at, given), parsed, budget, given)
    planned, _ = _planned(question, given)
    field = Field(with_tasks(planned, tasks), parsed)
    field.goal.quantity(field.forms[0])
    return field, field.grid_cost if budget is None else budget


class Incomplete(ScalingError):
    """A study without a report, since too many runs are missing; `missing` lists them."""

    def __init__(self, name: str, missing: Unfinished, why: ScalingError | None = None):
        self.missing, self.why = missing, why
        super().__init__(f"the study {name} is not done: {missing}", fix=why and str(why), code=missing.code)


@contextmanager
def listener(progress: bool) -> Iterator[Tell]:
    from scaling.studies.view import view

    with view() if progress else nullcontext() as heard:
        yield heard or (lambda _: None)


def plan(
    name: str,
    *overrides: str,
    at: str | None = None,
    on: Sequence[str] = (),
    devices: int = 1,
    sharding: Any = "ddp",
    tensor: int = 1,
    utilisation: float = 0.4,
    price: float | None = None,
    adaptive: str | None = None,
    budget: float | None = None,
    **settings: Any,
) -> StudyPlan:
    """What a study will cost before it is run: time, memory, money; and the interval that it is expected to give.

    scaling.plan("chinchilla_isoflop", at="paper", on=["H100"], devices=4096, sharding="fsdp", price=2.50)

    With `adaptive`, the goal of a study that chooses its runs: those that it is expected to choose, were the law as
    the study supposes, within `budget` FLOPs (by default those of its grid).
    """
    from scaling.studies.estimate import elsewhere
    from scaling.studies.memory import Layout
    from scaling.studies.question import read

    given = words(overrides, settings)
    question = read(name, at, given)
    layout = Layout(devices, sharding, tensor)
    places = [elsewhere(device, layout, utilisation, price) for device in on]
    if adaptive is not None:
        return _simulated(*_field(name, at, given, adaptive, budget), places)
    planned, data = _planned(question, given)
    return _costs(planned, data, places)


def _simulated(field: Field, budget: float, places: Sequence[Elsewhere]) -> StudyPlan:
    """The runs that an adaptive study is expected to choose, and what they cost."""
    from scaling.studies.adaptive import restricted

    goal, reach = field.goal, field.expected(budget, field.goal.half_width)
    simulated: dict[str, Any] = {"goal": goal.text, "budget": budget, "candidates": len(field.runs)}
    if reach is None:
        planned = field.plan
        simulated["reason"] = "nothing is known of the law's parameters; write suppose: into the study"
    else:
        chosen = [field.runs[row] for row in reach.rows]
        planned = restricted(
            field.plan, {run.run for run in (*chosen, *field.plan.runs) if run.held_out or run in chosen}
        )
        simulated |= {
            "reached": reach.half_width <= goal.half_width,
            "half_width": goal.finite(reach.half_width),
            "C": reach.cost,
            "decisions": [
                {"name": run.name, "expected_half_width": goal.finite(width)}
                for run, width in zip(chosen, reach.half_widths, strict=True)
            ],
            "sentence": field.sentence(reach, budget),
        }
    costs = _costs(planned, "prepared", places, outlook=False)
    return StudyPlan({**costs.document, "adaptive": simulated}, places)


def _planned(question: Question, given: Sequence[str]) -> tuple[Plan, str]:
    """The plan; on paper where the data are not at hand, since that is when one asks what a study would cost."""
    from scaling.studies.plan import plan

    try:
        return plan(question, given), "prepared"
    except ScalingError as error:
        if error.key != "data":
            raise
        step(f"{error.what}; the costs are estimated without them")
        return plan(question, given, "stand_in"), "stand_in"


def _costs(planned: Plan, data: str, places: Sequence[Elsewhere], outlook: bool = True) -> StudyPlan:
    from scaling.studies.calibration import calibrate
    from scaling.studies.estimate import estimates, totals
    from scaling.studies.identifiability import shortfall
    from scaling.studies.predicted_interval import predicted_interval
    from scaling.studies.size import sized

    question = planned.question
    runs = planned.runs[0].experiment.config["runs"]
    workers = sized(planned).workers
    print_remarks(run.experiment.config for run in planned.runs)
    speed = calibrate([run.experiment for run in planned.runs], Path(runs) / "calibration", workers)
    rows = estimates(planned, speed, places)
    missing = shortfall(question, planned.fitted)
    vocabularies = [run.experiment.cost.shape.vocabulary for run in planned.runs]
    document = {
        "study": question.name,
        "question": question.question,
        "data": data,
        "runs": rows,
        "total": {**totals(planned, rows, speed, places), "workers": workers},
        "shortfall": missing.to_json() if missing is not None and outlook else None,
        "outlook": predicted_interval(question, rows, _fitted(runs, question), vocabularies) if outlook else None,
    }
    return StudyPlan(document, places)


def _fitted(runs: str, question: Question) -> dict[str, float]:
    """The estimates of the law, where the study has been fitted before and its points identified each of them."""
    from scaling.studies.findings import read_fit

    file = Path(runs) / "studies" / question.name / "report" / "fit.json"
    before = read_fit(file)
    if before is None:
        return {}
    own = (before.get("law"), before.get("question")) == (question.law, question.question)
    identified = own and before.get("not_identified") == []
    return dict(before["estimates"]) if identified else {}
