"""Tasks of a study: each finished run finetuned on each task, as the runs of a study of its own beside it.

A run's id includes the hash of its starting weights, so the plan is made when the run with these weights is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.base.errors import ScalingError
from scaling.config.schema import kinds
from scaling.data import store
from scaling.interop.pretrained import Pretrained
from scaling.ledger import Ledger, run_id
from scaling.studies.plan import Plan, Run, Words, entered
from scaling.studies.question import flat, word_of
from scaling.training.finetune import check_task, compose, goal, name_of
from scaling.training.point import point

if TYPE_CHECKING:
    from scaling.training.experiment import Experiment

BESIDE = "-tasks"
SCORE, EXAMPLES, CHANCE = "_score", "_examples", "_chance"
"""Columns of points.csv, each after the name of its task."""


def with_tasks(plan: Plan, tasks: Sequence[str]) -> Plan:
    """The plan of the study with further tasks, each checked."""
    for task in tasks:
        check_task(task)
    further = {**plan.question.tasks, **{task: {} for task in tasks}}
    words = tuple(word for task in tasks for word in ("--tasks", task))
    return replace(plan, question=replace(plan.question, tasks=further), command=(*plan.command, *words))


def task_plan(ledger: Ledger, plan: Plan, inherited: Sequence[str] = ()) -> Plan | None:
    """A finetuning of every finished run on every task of the study; None where there are none. The keys `inherited`
    have the values that they have in the run. Finetunings on tasks of earlier commands stay in the plan.
    """
    question, name = plan.question, plan.question.name + BESIDE
    earlier = entered(ledger, name).runs if name in ledger.studies() else ()
    runs = [
        _finetuning(ledger, run, task, _words(run, task, settings, inherited), earlier)
        for run in plan.runs
        for task, settings in question.tasks.items()
        if (result := ledger.result(run.run)) is not None and result["outcome"] == "finished"
    ]
    if not runs:
        return None
    names = set(map(name_of, question.tasks))
    runs += [run for run in earlier if name_of(str(run.task)) not in names]
    sentence = f"Which scores do the runs of {question.name} reach?"
    changes: dict[str, Any] = {"name": name, "question": sentence, "grid": {}, "held_out": {}}
    return Plan(replace(question, **changes, laws=(), target={}), tuple(runs))


def unstarted(run: Run, task: str, settings: Mapping[str, Any], inherited: Sequence[str] = ()) -> Experiment:
    """The finetuning of a run as far as it is known before the run is trained: all but the weights that it starts from.
    What is wrong with it is reported.
    """
    from scaling.training.experiment import assemble

    experiment = run.experiment
    runs = experiment.config["runs"]
    spec = experiment.spec
    source = Pretrained(Path(runs), {}, spec, store.tokenizer(spec["data"], runs))  # without weights to start from
    config = compose(source, task, _words(run, task, settings, inherited), runs=runs)
    return assemble(replace(config, tree={**config.tree, "start": None}))


def _words(run: Run, task: str, settings: Mapping[str, Any], inherited: Sequence[str]) -> Words:
    """The overrides of a finetuning of the run."""
    log = {key: word for word in run.overrides if (key := word.partition("=")[0]).startswith("log.")}
    study = next(word for word in run.overrides if word.startswith("log.group="))
    return (
        study + BESIDE,
        f"log.name={json.dumps(_name(run, task), ensure_ascii=False)}",
        *(word for key, word in log.items() if key not in ("log.group", "log.name")),
        *(word_of(key, run.experiment.config[key]) for key in inherited if key not in log),
        *(word_of(key, value) for key, value in flat(settings).items()),
    )


def _name(run: Run, task: str) -> str:
    return f"{run.name} task={name_of(task)}"


def _finetuning(ledger: Ledger, run: Run, task: str, words: Words, earlier: Sequence[Run]) -> Run:
    from scaling.training.experiment import assemble

    try:
        experiment = assemble(compose(run.run, task, words, runs=ledger.root))
    except ScalingError:  # the weights that it starts from may be freed when it is done
        for done in earlier:
            if (done.start, done.task, done.overrides) == (run.run, task, words) and ledger.result(done.run):
                return done
        raise
    task_goal = goal(experiment.config["data"], task)
    is_one_class = "classes" in task_goal.head_keys and task_goal.chances == "softmax"
    return Run(
        run=run_id(experiment.spec),
        name=_name(run, task),
        base=run.base,
        overrides=words,
        held_out=run.held_out,
        steps=experiment.steps,
        flops=experiment.tokens(experiment.steps) * experiment.cost.flops_train_per_token,
        root=str(ledger.root),
        point=point(experiment),
        start=run.run,
        task=task,
        labels=len(task_goal.labels) if is_one_class else None,
        planned=experiment,
    )


def scores(ledger: Ledger, plan: Plan) -> dict[str, dict[str, Any]]:
    """For each run of a study the columns of its tasks; without a value where it has not been measured."""
    names = [name_of(task) for task in plan.question.tasks]
    columns: dict[str, dict[str, Any]] = {
        run.run: {name + part: None for name in names for part in (SCORE, EXAMPLES, CHANCE)} for run in plan.runs
    }
    study = plan.question.name + BESIDE
    for entry in ledger.plan(study)["runs"] if study in ledger.studies() else ():
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
