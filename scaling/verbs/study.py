"""Train a study, watch it, and write its report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scaling.base.errors import DISK, ScalingError, plural
from scaling.base.printing import interval, span
from scaling.config.compose import print_remarks
from scaling.config.schema import PositiveFloat, PositiveInt
from scaling.executors.slurm import cancel_all
from scaling.ledger import Ledger
from scaling.reports.markup import plain
from scaling.studies.predictions import calibration, registered, track_record
from scaling.verbs.plan import StudySource, refuse_budget
from scaling.verbs.verb import PYTHON, RUNS, Result, verb

if TYPE_CHECKING:
    import pandas

    from scaling.laws.examine import Fit
    from scaling.studies.adaptive import Decider
    from scaling.studies.findings import Findings
    from scaling.studies.plan import Plan
    from scaling.studies.scheduler import Unfinished


@dataclass(frozen=True, repr=False)
class Study(Result):
    """The findings of a study with the runs that are done, and its page. Printed, it is `scaling report`.

    `missing` lists the runs without a result; it is None where all have one. A kept report has no `ledger`.
    """

    findings: Findings = field(kw_only=True)
    page: Path = field(kw_only=True)
    ledger: Ledger | None = None
    missing: Unfinished | None = None

    @property
    def name(self) -> str:
        return self.findings.question.name

    @property
    def points(self) -> pandas.DataFrame:
        """A row a planned run: its name, status, loss and every definition of N, D and C, as in points.csv."""
        import pandas

        return pandas.DataFrame(self.findings.rows)

    @property
    def fit(self) -> Fit:
        """The study's law, fitted; a `ScalingError` where its runs bear none."""
        if self.findings.fit is None:
            raise ScalingError(f"there is no law: {self.findings.reason}", key="study", value=self.name)
        return self.findings.fit

    def report(self) -> Path:
        """The study's page, written again from what is done by now."""
        if self.ledger is None:
            return report(str(self.page.parent)).page
        return report(self.name, runs=self.ledger.root).page

    def _repr_html_(self) -> str:
        return self.points.to_html() if self.findings.fit is None else self.fit._repr_html_()

    def _parts(self) -> Iterator[str]:
        from scaling.laws.horizon import sentence as next_run
        from scaling.laws.report import held_out
        from scaling.reports.answer import answer

        document = self.findings.document or {}
        yield self.findings.question.question
        if document:
            yield str(self.fit)
        if not document or "rows" in document:
            yield plain(answer(self.findings).sentence)
        for task in self.findings.tasks:
            if (of_task := task.document) is None:
                yield f"{task.task}: no law of the score: {task.reason}"
                continue
            yield f"{task.task}: {of_task['law']}, {plural(of_task['n'], 'score')}"
            if (table := held_out(of_task)) is not None:
                yield table.text()
            yield from (f"! {task.task}: {doubt}" for doubt in (*of_task["not_identified"], *of_task["unreliable"]))
        if (entropy := document.get("entropy")) is not None:
            inside = {True: "inside", False: "outside", None: "not compared with"}[entropy.get("contained")]
            yield f"the language's entropy is {entropy['known']:.4f}: {inside} the interval of E"
            for error in entropy["excess_errors"]:
                yield f"prediction error of the held-out excess over the entropy: {error:+.1%}"
        for key in ("tuned", "cooldowns"):
            if answered := document.get(key):
                yield answered["sentence"]
        if horizon := document.get("horizon"):
            for row in horizon["predictions"]:
                expected = f"loss {row['loss']:.4f}, 95% interval of a new run {interval(row['interval_run'])}"
                yield f"at {row['times']:g} × the largest compute: {expected}"
            yield next_run(horizon)
        yield f"report: {self.page}"
        record = self.document.get("on_record", {})
        if record.get("predictions") or record.get("altered"):
            yield f"on record: {track_record(record)}"


def _study(findings: Findings, page: Path, ledger: Ledger | None = None, missing: Unfinished | None = None) -> Study:
    """The result of `study` and `report`, with the calibration of the predictions on record in the ledger."""
    record = {} if ledger is None else {"on_record": calibration(registered(ledger))}
    code, document = 0 if missing is None else missing.code, findings.to_json(page) | record
    return Study(document, (), code, findings=findings, page=page, ledger=ledger, missing=missing)


@verb
def study(
    study: StudySource,
    *overrides: str,
    at: str | None = None,
    workers: PositiveInt | None = None,
    executor: Literal["local", "slurm", "ray"] = "local",
    set: Mapping[str, Any] = {},
    tasks: tuple[str, ...] = (),
    adaptive: str | None = None,
    budget: PositiveFloat | None = None,
    retry_failed: bool = False,
    progress: PYTHON[bool] = True,
    **settings: Any,
) -> Study:
    """Train the missing runs of a study, fit its law, test it on the held-out runs, and write the report.

        scaling study quickstart                         the shipped first study, offline, in minutes on two cores
        scaling study quickstart data=python             the same on real text
        scaling study my_study.yaml --workers 8
        scaling study quickstart --adaptive 'E ± 0.02'   chooses its runs until the interval is so narrow

        study = scaling.study("quickstart")
        study.fit.predict(N=1e6, D=2e7)
        scaling.study({"name": "mine", "question": "…", "base": "decoder", "grid": {"size": ["10k", "30k"]}})

    Overrides hold for every run. `scaling plan` estimates before what it will cost. Stopped at any time, the same
    command goes on. An adaptive study chooses its runs one after another until its goal is reached ("E ± 0.01" or
    "loss at C=1e15 ± 0.5%") or its budget is spent.

    Args:
        study: a shipped study, a path, or in Python the fields of a study as a dict
        tasks: finetune each finished run on these too
        adaptive: choose the runs one after another, until the goal is reached
    """
    from scaling.laws.next_run import parse_goal
    from scaling.reports.provenance import sentence
    from scaling.reports.wandb_summary import mirror
    from scaling.reports.write import write
    from scaling.studies.adaptive import decider
    from scaling.studies.decisions import decisions
    from scaling.studies.estimate import choose_scale
    from scaling.studies.identifiability import shortfall
    from scaling.studies.plan import enter
    from scaling.studies.progress import listener, teller
    from scaling.studies.scheduler import train
    from scaling.studies.tasks import task_plan, with_tasks

    refuse_budget(adaptive, budget)
    given, tell, decided = list(overrides), teller(progress), None
    if adaptive is None:
        plan, why = choose_scale(study, at, given, workers)
        plan = with_tasks(plan, tasks)
        ledger, lacking = plan.ledger(), shortfall(plan.question, plan.fitted) or {}
        added = enter(ledger, plan.question.name, plan)
        extended = f"the study {plan.question.name} is extended by {plural(len(added), 'run')}" if added else None
        for remark in filter(None, (why, extended, lacking.get("sentence"))):
            tell(remark)
    else:
        decided = decider(study, at, given, parse_goal(adaptive), budget, workers, tasks)
        plan, ledger = decided(), decided.ledger
    name = plan.question.name
    if progress:
        print_remarks(run.experiment.config for run in (decided.field.runs if decided else plan.runs))

    def trained(plan: Plan, decided: Decider | None = None) -> Unfinished | None:
        choices: dict[str, Any] = {"workers": workers, "executor": executor, "parameters": set, "decided": decided}
        missing = train(ledger, plan.question.name, plan, listener(progress), retry_failed=retry_failed, **choices)
        if missing is not None and missing.code == DISK:
            raise _not_done(plan.question.name, missing)
        return missing

    missing = trained(plan, decided)
    if decided is not None:
        plan = decided()
        tell(sentence(decisions(ledger, name)))
    if (finetunings := task_plan(ledger, plan)) is not None:
        enter(ledger, finetunings.question.name, finetunings)
        tell(f"finetune {plural(len(finetunings.runs), 'run')} of {plural(len(plan.question.tasks), 'task')}")
        missing = trained(finetunings) or missing
    try:
        findings, page = write(ledger, plan, tell)
    except ScalingError as error:
        raise error if missing is None else _not_done(name, missing, error) from None  # too few runs are left to fit
    if missing is not None:
        tell(f"the study {name} is not done: {missing}")
    mirror(findings, page, ledger, plan)
    return _study(findings, page, ledger, missing)


def _not_done(name: str, missing: Unfinished, why: ScalingError | None = None) -> ScalingError:
    """A study without a report, since too many runs are missing."""
    lines = "; ".join(line.strip() for line in missing.lines)
    return ScalingError(f"the study {name} is not done: {lines}", fix=why and f"no report: {why}", code=missing.code)


@verb
def report(
    study: str, *, runs: str | Path = RUNS, keep: str | Path | None = None, progress: PYTHON[bool] = True
) -> Study:
    """Write a study's report from its finished runs: fit the law, draw the figures, write the page.

        scaling report quickstart
        scaling report quickstart runs=/shared/runs
        scaling report quickstart --keep docs/results    a copy to read without the ledger
        scaling report docs/results/quickstart           fit the law of such a copy again, to the points it keeps

    Args:
        study: a study of the ledger, or the folder of a kept report
        keep: copy the report to the folder KEEP/STUDY, with the study's YAML
    """
    from scaling.studies.progress import teller

    if Path(study, "index.html").is_file():
        from scaling.reports.write import fit_again, is_kept

        folder = Path(study).resolve()
        if not is_kept(folder):
            raise ScalingError("is no kept report", key="STUDY", value=str(folder), fix="`--keep` writes one")
        if keep is not None:
            raise ScalingError("is a kept report already", key="STUDY", value=str(folder), fix="leave out --keep")
        return _study(*fit_again(folder, teller(progress)))
    ledger = Ledger.open(runs)
    ledger.plan(study)  # before what is slow to import

    from scaling.reports.write import write
    from scaling.studies.plan import entered

    folder = None if keep is None else Path(keep)
    return _study(*write(ledger, entered(ledger, study), teller(progress), folder), ledger)


@verb
def watch(study: str, *, runs: str | Path = RUNS, every: PositiveFloat = 5.0, once: bool = False) -> Iterator[Result]:
    """Watch a study while it trains: the law, an interval that holds at all looks together, and the time left.

        scaling watch quickstart
        scaling watch quickstart --once
        scaling watch quickstart runs=/shared/runs --every 60

        for look in scaling.watch("quickstart"):
            print(look.interval)

    It ends when all runs have come to their end.

    Args:
        study: a study that was started
        every: seconds between looks
        once: look once
    """
    from scaling.studies.decisions import decisions, is_open
    from scaling.studies.live import live_law, losses_of
    from scaling.studies.plan import entered
    from scaling.studies.progress import Watch, summary

    ledger = Ledger.open(runs)
    file, printed, losses = None, "", None
    while True:
        if file != (newest := ledger.plan_file(study)):
            file, plan = newest, entered(ledger, study, [f"runs={ledger.root}"])
            progress = Watch(ledger, plan)
        made, now = decisions(ledger, study), progress.look()
        left = "" if now.left is None else f", {span(now.left)} left"
        if (finished := losses_of(ledger, plan)) != losses:
            losses, law = finished, live_law(plan, finished, made)
        document = {"study": study, "runs": now.planned, "settled": now.settled, "failed": now.failed}
        document |= {"share": now.share, "seconds_left": now.left, **law.to_json()}
        look = Result(document, [f"{summary(now)}{left}; {law}"])
        if str(look) != printed:
            printed = str(look)
            yield look
        if once or (now.settled == now.planned and not is_open(made)):
            return
        time.sleep(every)


@verb
def submit(
    study: StudySource,
    *overrides: str,
    at: str | None = None,
    workers: PositiveInt = 1,
    set: Mapping[str, Any] = {},
    stop: bool = False,
    **settings: Any,
) -> Result:
    """Submit the missing runs of a study to SLURM, and return without waiting for them.

        scaling submit my_study.yaml --workers 32 --set partition=gpu gpus_per_node=1 timeout_min=600
        scaling watch my_study                           how far it is
        scaling study my_study.yaml                      its law and its page, when the jobs are done
        scaling submit my_study.yaml --stop

    Args:
        study: a shipped study, a path, or in Python the fields of a study as a dict
        workers: jobs of SLURM, among which the runs are distributed
        stop: cancel the jobs of the study in place of submitting it
    """
    from scaling.studies.estimate import choose_scale
    from scaling.studies.plan import enter
    from scaling.studies.scheduler import detach

    plan, _ = choose_scale(study, at, list(overrides), workers)
    name, ledger = plan.question.name, plan.ledger()
    enter(ledger, name, plan)
    if stop:
        line = f"cancelled {plural(cancel_all(ledger.study_folder(name) / 'slurm'), 'job')} of SLURM"
    else:
        line = f"submitted {plural(detach(ledger, name, plan, workers, set), 'run')} to SLURM"
    look = next(watch(name, runs=ledger.root, once=True))
    return replace(look, parts=[line, *look.parts])
