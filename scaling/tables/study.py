"""A table's runs as a study: rows times seeds, and their finetunings; planned, trained, and read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.config import SECTIONS, load, print_remarks
from scaling.errors import DISK, ScalingError, plural
from scaling.ledger import Ledger
from scaling.studies.plan import Plan, Run, enter, plan
from scaling.studies.question import Question, compared
from scaling.studies.tasks import SCORE, task_plan, unstarted
from scaling.tables.downstream import Downstream
from scaling.tables.results import FINISHED, MISSING, Results, base_of, by_key, join, read_ledger, read_points
from scaling.tables.table import Table, located
from scaling.training.finetune import check_task, name_of, named

if TYPE_CHECKING:
    from scaling.studies.scheduler import Unfinished

INHERITED = ("seed", "log.wandb", "log.project")
"""Keys of a run that its finetunings have too: another seed draws another head and another order of the examples."""


def question(table: Table, words: Sequence[str] = (), name: str | None = None) -> Question:
    """The study whose runs the table needs under these overrides.

    Its name has the table and, by a hash, what is trained: the same command continues it, and a table that has
    gained rows since is another study, which shares the runs that both have.
    """
    base, others = ([row.name for row in table.rows if table.is_baseline(row.name) == first] for first in (True, False))
    axes = [(base, table.seeds.baseline), (others, table.seeds.others)]
    return Question(
        name=name or f"{table.name}-{_hash(table, words)}",
        question=f"Which rows of {table.title} differ from {' and '.join(base)}?",
        base=located(table.config),
        set={},
        grid=[{"row": rows, "seed": list(range(seeds))} for rows, seeds in axes if rows],
    )


def lacking(plan: Plan, kept: Results, where: str, columns: Collection[Downstream] = ()) -> Plan:
    """The plan without the runs that have ended in `kept`, as a study of its own; all of it where none has. A finished
    run without the score of one of the columns is among them: its weights are needed, and points have none.

    A run that both have shows that data and settings are alike, so one at least is required.
    """
    done = {(run["row"], run["seed"]): run for run in kept.runs if run["status"] != MISSING}
    if not done:
        return plan
    scores = {column.name + SCORE for column in columns}
    runs: list[Run] = []
    shared = False
    for planned in plan.runs:
        words = by_key(planned.overrides)
        row, seed = words["row"][1], words["seed"][1]
        ended = done.get((row, seed))
        if ended is not None and ended["run"] != planned.run:
            what = f"its run of {row}, seed {seed}, is another than the one asked for here"
            fix = "ask for the data and the settings that it was trained with, or train without --from"
            raise ScalingError(what, file=where, key="run", value=ended["run"], fix=fix)
        shared = shared or ended is not None
        if ended is None or (ended["status"] == FINISHED and not scores <= ended.keys()):
            runs.append(planned)
    if not shared:
        what = "it holds no run that is requested here, so nothing shows that the data and the settings are the same"
        raise ScalingError(what, file=where, fix="ask for a row and a seed that it holds too, or train without --from")
    name = f"{plan.question.name}-{_digest([run.run for run in runs])}"
    return replace(plan, question=replace(plan.question, name=name), runs=tuple(runs))


def check(plan: Plan, columns: Sequence[Downstream]) -> None:
    """Refuse what some row cannot be finetuned on, before anything is trained: a task that does not suit its family,
    or whose files are missing. The seeds of a row are alike in all that is checked.
    """
    first_runs: dict[Any, Run] = {}
    for run in plan.runs:
        first_runs.setdefault(by_key(run.overrides).get("row"), run)
    headings = {task: column.heading for column in reversed(columns) for task in column.tasks}
    settings = {task: keys for column in columns for task, keys in column.tasks.items()}
    for task, keys in settings.items():
        where = name_of(task)
        try:
            check_task(task)
            for run in first_runs.values():
                where = f"{name_of(task)}, {run.name}"
                unstarted(run, task, keys, INHERITED)
        except ScalingError as error:
            what = f"{where}: {error}"
            raise ScalingError(what, key="downstream", value=headings[task], code=error.code) from None


def finetunings(ledger: Ledger, plan: Plan, columns: Sequence[Downstream]) -> Plan | None:
    """A finetuning of every finished run of the plan on every task of the columns, as a study; None where there are
    none. The study's name has a hash of the tasks, so that other tasks, or other keys, are another study.
    """
    tasks = {task: settings for column in columns for task, settings in column.tasks.items()}
    data = {task: load("decoder", [f"data={named(task)}"]).tree["data"] for task in tasks}
    name = f"{plan.question.name}-{_digest([[name_of(task), tasks[task], data[task]] for task in sorted(tasks)])}"
    return task_plan(ledger, replace(plan, question=replace(plan.question, name=name, tasks=tasks)), INHERITED)


def held(
    table: Table,
    words: Sequence[str],
    source: str | Path | None,
    study: str | None = None,
    columns: Sequence[Downstream] = (),
    *,
    others: bool = False,
) -> Results:
    """The runs of the table that a ledger, kept points or W&B hold, with the scores in these columns and in its own;
    `others`: of each further task that a ledger holds.
    """
    runs = table.load(table.baseline, words)["runs"]
    if isinstance(source, str) and source.startswith("wandb:"):
        from scaling.sweeps.pull import pull

        project = source.removeprefix("wandb:")
        if project.count("/") == 2:  # a sweep, which is a study of its own
            asked, study = None, study or project.rpartition("/")[2]
        else:
            asked = plan(question(table, words, study), words)
            study = asked.question.name
        source = pull(project, None, runs, asked)["folder"]
    folder = Path(source or runs)
    if folder.suffix == ".csv":
        return read_points(folder, table).with_columns(columns)
    ledger = Ledger.open(folder)
    found = read_ledger(ledger, table, study, columns, others=others)
    if source and not found.runs:
        bases = ", ".join(sorted({base_of(ledger.plan(name)) for name in ledger.studies()} - {""}))
        raise ScalingError(
            f"it holds no run of {table.config}" + (f"; its studies are of {bases}" if bases else ""),
            file=ledger.root,
            key="--from",
            fix="name the table that was trained, or the folder of its runs",
        )
    return found


def trained(
    table: Table,
    words: Sequence[str],
    source: str | Path | None = None,
    study: str | None = None,
    columns: Sequence[Downstream] = (),
    *,
    workers: int | None = None,
    retry_failed: bool = False,
    progress: bool = True,
) -> tuple[Results, Unfinished | None]:
    """The results of the table's runs, and which runs have none: those that `source` lacks are trained, and each is
    finetuned on the tasks of the columns.
    """
    from scaling.standard_error import say
    from scaling.studies.progress import listener
    from scaling.studies.scheduler import train

    planned, kept = plan(question(table, words, study), words), None
    if source:
        kept = held(table, words, source, None, columns)
        planned = lacking(planned, kept, str(source), columns)
        if not planned.runs:
            return kept, None
    check(planned, columns)
    ledger = planned.ledger()

    def work(entered: Plan, runs: str) -> Unfinished | None:
        name = entered.question.name
        enter(ledger, name, entered)
        if progress:
            say(f"study {name}: {runs} in {ledger.root}")
        with listener(progress) as heard:
            return train(ledger, name, entered, heard, workers=workers, retry_failed=retry_failed)

    if progress:
        print_remarks(run.experiment.config for run in planned.runs)
    missing = work(planned, plural(len(planned.runs), "run"))
    finetuned = finetunings(ledger, planned, columns) if columns and (missing is None or missing.code != DISK) else None
    if finetuned is not None:
        of_tasks = plural(len(finetuned.question.tasks), "task")
        missing_scores = work(finetuned, f"{plural(len(finetuned.runs), 'finetuning')} of {of_tasks}")
        missing = missing or missing_scores
    if missing is not None and progress:
        say(f"the table is not done: {missing}")
    found = read_ledger(ledger, table, planned.question.name, columns)
    return (join(kept, found) if kept else found), missing


def _hash(table: Table, words: Sequence[str]) -> str:
    counted = [section for section in SECTIONS if section not in ("log", "runs")]
    own = [compared(table.config, (f"row={row.name}", *words)) for row in table.rows]
    trees = [load(table.config, each).tree for each in own]
    for tree in trees:
        del tree["train"]["threads"]  # no part of what is trained
    # A section that is null means what the config meant before there was such a section.
    sections = [{section: tree[section] for section in counted if tree.get(section) is not None} for tree in trees]
    return _digest([asdict(table.seeds), sections])


def _digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:8]
