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
from scaling.errors import DISK, ScalingError
from scaling.number import plural

if TYPE_CHECKING:
    import pandas

    from scaling.api.fit_result import Fit
    from scaling.ledger import Ledger
    from scaling.studies.estimate import Elsewhere
    from scaling.studies.findings import Findings
    from scaling.studies.launch import Unfinished
    from scaling.studies.plan import Plan
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
    **settings: Any,
) -> Study:
    """Train what is not done of a study, fit its law, and test it on the held-out runs.

    `name` is a shipped study or a path; overrides and keywords hold for every run. Each finished run is finetuned on
    each of `tasks` and of the study's own. `scaling.plan` estimates before what it will cost.

        study = scaling.study("quickstart")
        study.fit.predict(N=1e6, D=2e7)
    """
    from scaling.report.wandb_summary import mirror
    from scaling.report.write import write
    from scaling.studies.findings import nothing
    from scaling.studies.identifiability import shortfall
    from scaling.studies.launch import train
    from scaling.studies.record import enter
    from scaling.studies.scale_choice import choose_scale
    from scaling.studies.tasks import task_plan, with_tasks

    plan, why = choose_scale(name, at, words(overrides, settings), workers)
    plan = with_tasks(plan, tasks)
    name, ledger = plan.question.name, plan.ledger()
    added = enter(ledger, name, plan)
    print_remarks(run.experiment.config for run in plan.runs)
    extended = f"the study {name} is extended by {plural(len(added), 'run')}" if added else None
    for remark in (why, extended, shortfall(plan.question, plan.fitted)):
        if remark is not None:
            step(str(remark))
    choices: dict[str, Any] = {
        "workers": workers,
        "launcher": launcher,
        "parameters": slurm or {},
        "retry_failed": retry_failed,
    }
    with listener(progress) as heard:
        missing = train(ledger, name, plan, heard, **choices)
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
    **settings: Any,
) -> StudyPlan:
    """What a study will cost before it is run: time, memory, money; and the interval that it is expected to give.

    scaling.plan("chinchilla_isoflop", at="paper", on=["H100"], devices=4096, sharding="fsdp", price=2.50)
    """
    from scaling.studies.estimate import elsewhere
    from scaling.studies.memory import Layout
    from scaling.studies.question import read

    given = words(overrides, settings)
    question = read(name, at, given)
    layout = Layout(devices, sharding, tensor)
    places = [elsewhere(device, layout, utilisation, price) for device in on]
    planned, data = _planned(question, given)
    return _costs(planned, data, places)


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


def _costs(planned: Plan, data: str, places: Sequence[Elsewhere]) -> StudyPlan:
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
        "shortfall": None if missing is None else missing.to_json(),
        "outlook": predicted_interval(question, rows, _fitted(runs, question), vocabularies),
    }
    return StudyPlan(document, places)


def _fitted(runs: str, question: Question) -> dict[str, float]:
    """The estimates of the law, where the study has been fitted before and its points identified each of them."""
    from scaling import atomic

    file = Path(runs) / "studies" / question.name / "report" / "fit.json"
    if not file.exists():
        return {}
    before = atomic.read_json(file)
    identified = before.get("law") == question.law and before.get("not_identified") == []
    return dict(before["estimates"]) if identified else {}
