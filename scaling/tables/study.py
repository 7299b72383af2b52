"""A table's runs as a study: rows times seeds, and their finetunings; planned, trained, and read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.base.errors import DISK, ScalingError, plural, refuse
from scaling.config.compose import SECTIONS, load
from scaling.config.document import print_remarks
from scaling.ledger import Ledger
from scaling.studies.plan import Plan, Run, enter, plan
from scaling.studies.question import Question, compared, is_counted
from scaling.studies.question import named as study_name
from scaling.studies.tasks import task_plan, unstarted
from scaling.tables.results import Results, by_key, read_ledger, read_points
from scaling.tables.table import Downstream, Table, located
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
    axes = [(base, table.seeds["baseline"]), (others, table.seeds["others"])]
    return Question(
        name=name or f"{study_name(table.name, None, ())}-{_hash(table, words)}",
        question=f"Which rows of {table.title} differ from {' and '.join(base or [table.baseline])}?",
        base=located(table.config),
        set={},
        grid=[{"row": rows, "seed": list(range(seeds))} for rows, seeds in axes if rows],
    )


def check(plan: Plan, columns: Sequence[Downstream]) -> None:
    """Refuse what some row cannot be finetuned on, before anything is trained: a task that does not suit its family,
    or whose files are missing. The seeds of a row are alike in all that is checked.
    """
    first_runs: dict[Any, Run] = {}
    for run in plan.runs:
        first_runs.setdefault(run.row, run)
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
) -> Results:
    """The runs of the table that a ledger or kept points hold, with the scores in these columns and in its own. Other
    settings than theirs are refused.
    """
    folder = Path(source or table.load(table.baseline, words)["runs"])
    if folder.suffix == ".csv":
        refuse(study, "kept points are of one table's studies", "leave it out", key="--study", value=study)
        points = read_points(folder, table)
    else:
        ledger = Ledger.open(folder)
        points = read_ledger(ledger, table, study, columns)
        if source and not points.runs:
            bases = ", ".join(sorted({ledger.plan(name)["study"]["base"] for name in ledger.studies()} - {""}))
            what = f"it holds no run of {table.config}" + (f"; its studies are of {bases}" if bases else "")
            fix = "name the table that was trained, or the folder of its runs"
            raise ScalingError(what, file=ledger.root, key="--from", fix=fix)
    settings = by_key(points.settings)
    for key, (_, value) in by_key(words).items():
        differs = points.runs and is_counted(key) and (key not in settings or settings[key][1] != value)
        what, fix = "the runs were trained without it", " ".join(["leave it out; they have", *points.settings])
        refuse(differs, what, fix if points.settings else "leave it out", file=folder, key=key, value=value)
    return points.with_columns(columns)


def trained(
    table: Table,
    words: Sequence[str],
    study: str | None = None,
    columns: Sequence[Downstream] = (),
    *,
    workers: int | None = None,
    retry_failed: bool = False,
    progress: bool = True,
) -> tuple[Results, Unfinished | None]:
    """The results of the table's runs, which are trained and finetuned on the tasks of the columns; and which runs have
    none.
    """
    from scaling.base.standard_error import say
    from scaling.studies.progress import announcer
    from scaling.studies.scheduler import train

    planned = plan(question(table, words, study), words)
    check(planned, columns)
    ledger = planned.ledger()

    def work(entered: Plan, runs: str) -> Unfinished | None:
        name = entered.question.name
        enter(ledger, entered)
        if progress:
            say(f"study {name}: {runs} in {ledger.root}")
        return train(ledger, entered, announcer(progress), workers=workers, retry_failed=retry_failed)

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
    return read_ledger(ledger, table, planned.question.name, columns).with_columns(columns), missing


def _hash(table: Table, words: Sequence[str]) -> str:
    counted = [section for section in SECTIONS if section not in ("log", "runs")]
    specs = [compared(table.config, (f"row={json.dumps(row.name, ensure_ascii=False)}", *words)) for row in table.rows]
    trees = [load(table.config, each).tree for each in specs]
    for tree in trees:
        del tree["train"]["threads"]  # no part of what is trained
    # A section that is null means what the config meant before there was such a section.
    sections = [{section: tree[section] for section in counted if tree.get(section) is not None} for tree in trees]
    return _digest([dict(table.seeds), sections])


def _digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:8]
