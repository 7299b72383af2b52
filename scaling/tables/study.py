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
from scaling.studies.tasks import task_plan, unstarted
from scaling.tables import points
from scaling.tables.downstream import Downstream
from scaling.tables.results import FINISHED, MISSING, Results, base_of, by_key, joined, results
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
    done = {(point.row, point.seed): point.run for point in kept.points if point.status != MISSING}
    if not done:
        return plan
    cells = {cell.run: (words["row"][1], words["seed"][1]) for cell in plan.runs for words in [by_key(cell.overrides)]}
    for run, (row, seed) in cells.items():
        if done.get((row, seed), run) != run:
            raise ScalingError(
                f"its run of {row}, seed {seed}, is another than the one asked for here",
                file=where,
                key="run",
                value=done[row, seed],
                fix="ask for the data and the settings that it was trained with, or train without --from",
            )
    names = {column.name for column in columns}
    unscored = {point.run for point in kept.points if point.status == FINISHED and not names <= point.scores.keys()}
    runs = tuple(cell for cell in plan.runs if cells[cell.run] not in done or cell.run in unscored)
    if not done.keys() & cells.values():
        raise ScalingError(
            "it holds no run that is requested here, so nothing shows that the data and the settings are the same",
            file=where,
            fix="ask for a row and a seed that it holds too, or train without --from",
        )
    name = f"{plan.question.name}-{_digest([cell.run for cell in runs])}"
    return replace(plan, question=replace(plan.question, name=name), runs=runs)


def check(plan: Plan, columns: Sequence[Downstream]) -> None:
    """Refuse what some row cannot be finetuned on, before anything is trained: a task that does not suit its family,
    or whose files are missing.
    """
    for column in columns:
        for task, settings in column.tasks.items():
            try:
                check_task(task)
            except ScalingError as error:
                raise _under(column, name_of(task), error) from None
            for run in _first_of_rows(plan):
                try:
                    unstarted(run, task, settings, INHERITED)
                except ScalingError as error:
                    raise _under(column, f"{name_of(task)}, {run.name}", error) from None


def _first_of_rows(plan: Plan) -> list[Run]:
    """A run of each row: its seeds are alike in all that is checked."""
    rows: dict[str | None, Run] = {}
    for run in plan.runs:
        rows.setdefault(next((word for word in run.overrides if word.startswith("row=")), None), run)
    return list(rows.values())


def _under(column: Downstream, where: str, error: ScalingError) -> ScalingError:
    return ScalingError(f"{where}: {error}", key="downstream", value=column.heading, code=error.code)


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
        return points.read(folder, table).with_columns(columns)
    ledger = Ledger.open(folder)
    found = results(ledger, table, study, columns, others=others)
    if source and not found.points:
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
    found = results(ledger, table, planned.question.name, columns)
    return (joined(kept, found) if kept else found), missing


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
