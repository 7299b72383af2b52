"""Tasks of a study: each finished run finetuned on each task, as the runs of a study of its own beside it.

A run that begins with another's weights has the hash of these in its id, so its plan is made when the other is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from scaling.errors import ScalingError
from scaling.ledger import Ledger, run_id
from scaling.schema import kinds
from scaling.studies.plan import Plan, Run
from scaling.studies.question import flat, word_of
from scaling.training.finetune import Pretrained, check_task, compose, goal, name_of

if TYPE_CHECKING:
    from scaling.training.experiment import Experiment

BESIDE = "-tasks"
SCORE, EXAMPLES, CHANCE = "_score", "_examples", "_chance"
"""Columns of points.csv, each after the name of its task."""
KEPT = 64


@dataclass(frozen=True)
class TaskRun(Run):
    """A finetuning of a study's run."""

    start: str
    """The run whose weights it begins with."""
    task: str
    labels: int | None
    """Classes of the task's answers, where there are any."""


def beside(study: str) -> str:
    """The study of a study's finetuned runs."""
    return study + BESIDE


def with_tasks(plan: Plan, tasks: Sequence[str]) -> Plan:
    """The plan of the study with further tasks, each checked."""
    for task in tasks:
        check_task(task)
    if not tasks:
        return plan
    question = replace(plan.question, tasks={**plan.question.tasks, **{task: {} for task in tasks}})
    return replace(plan, question=question)


def task_plan(ledger: Ledger, plan: Plan, inherited: Sequence[str] = ()) -> Plan | None:
    """A finetuning of every finished run on every task of the study; None where there are none. The keys `inherited`
    have the values that they have in the run.
    """
    question = plan.question
    runs = [
        _task_run(ledger, run, task, _words(run, task, settings, inherited))
        for run in plan.runs
        for task, settings in question.tasks.items()
        if (result := ledger.result(run.run)) is not None and result["outcome"] == "finished"
    ]
    if not runs:
        return None
    sentence = f"Which scores do the runs of {question.name} reach?"
    own = replace(question, name=beside(question.name), question=sentence, grid={}, held_out={}, laws=(), target={})
    return Plan(own, tuple(runs), {})


def unstarted(run: Run, task: str, settings: Mapping[str, Any], inherited: Sequence[str] = ()) -> Experiment:
    """The finetuning of a run as far as it is known before the run is trained: all but the weights that it starts from.
    What is wrong with it is reported.
    """
    from scaling.training.experiment import assemble

    experiment = run.experiment
    runs = experiment.config["runs"]
    source = Pretrained.of_spec(experiment.spec, runs, runs, {})  # without weights to start from
    config = compose(source, task, _words(run, task, settings, inherited), runs=runs)
    return assemble(replace(config, tree={**config.tree, "start": None}))


def _words(run: Run, task: str, settings: Mapping[str, Any], inherited: Sequence[str]) -> tuple[str, ...]:
    """The overrides of a finetuning of the run."""
    log = [
        word for word in run.overrides if word.startswith("log.") and not word.startswith(("log.group=", "log.name="))
    ]
    given = {word.partition("=")[0] for word in log}
    return (
        f"log.group={_group(run)}{BESIDE}",
        f"log.name={json.dumps(_name(run, task))}",
        *log,
        *(word_of(key, run.experiment.config[key]) for key in inherited if key not in given),
        *(word_of(key, value) for key, value in flat(settings).items()),
    )


def _task_run(ledger: Ledger, run: Run, task: str, words: tuple[str, ...]) -> TaskRun:
    from scaling.training.experiment import assemble

    experiment = assemble(compose(run.run, task, words, runs=ledger.root))
    asked = goal(experiment.config["data"], task)
    return TaskRun(
        run=run_id(experiment.spec),
        steps=experiment.steps,
        flops=experiment.tokens(experiment.steps) * experiment.cost.flops_train_per_token,
        trunk=None,
        assembled=partial(_itself, experiment),
        name=_name(run, task),
        overrides=words,
        held_out=run.held_out,
        start=run.run,
        task=task,
        labels=len(asked.labels) if asked.answer in ("class", "tags") and asked.labels else None,
    )


def _name(run: Run, task: str) -> str:
    return f"{run.name} task={name_of(task)}"


def _group(run: Run) -> str:
    """The study that the run is of, as its words name it."""
    return next(word.partition("=")[2] for word in run.overrides if word.startswith("log.group="))


def _itself(experiment: Experiment) -> Experiment:
    return experiment


@lru_cache(maxsize=KEPT)
def finetuning(start: str, task: str, words: tuple[str, ...], run: str, runs: str) -> Experiment:
    """The experiment of a finetuning that was planned."""
    from scaling.training.experiment import assemble

    experiment = assemble(compose(start, task, words, runs=runs))
    if run_id(experiment.spec) != run:
        raise ScalingError(
            "this is not the finetuning that was planned: the task's data or its files are other ones by now",
            key="run",
            value=run,
            fix="give the study another name",
        )
    return experiment


def scores(ledger: Ledger, plan: Plan) -> dict[str, dict[str, Any]]:
    """For each run of a study the columns of its tasks; without a value where it has not been measured."""
    names = [name_of(task) for task in plan.question.tasks]
    columns: dict[str, dict[str, Any]] = {
        run.run: {name + part: None for name in names for part in (SCORE, EXAMPLES, CHANCE)} for run in plan.runs
    }
    study = beside(plan.question.name)
    if not names or study not in ledger.studies():
        return columns
    for entry in ledger.plan(study)["runs"]:
        result, name = ledger.result(entry["run"]), name_of(entry["task"])
        if entry["start"] in columns and name in names and result is not None and result["outcome"] == "finished":
            measured = score_columns(result, ledger.spec(entry["run"])["data"].get("metric"), entry["labels"])
            columns[entry["start"]] |= {name + part: value for part, value in measured.items()}
    return columns


def score_columns(
    result: Mapping[str, Any], metric: str | Mapping[str, Any] | None, labels: int | None
) -> dict[str, Any]:
    """The score of a finetuned run, its chance level where that is known, and of an accuracy its examples."""
    kind = kinds("metric").get(str(metric["kind"] if isinstance(metric, Mapping) else metric))
    score = result.get("score")
    if result.get("metrics", {}).get("accuracy") != score:
        return {SCORE: score, EXAMPLES: None, CHANCE: getattr(kind, "guessing", None)}
    return {SCORE: score, EXAMPLES: result.get("targets"), CHANCE: 1.0 / labels if labels else None}
