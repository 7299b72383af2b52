"""A table's runs as a study: rows times seeds, and their finetunings; planned, trained, and read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.base.errors import DISK, ScalingError, plural, refuse
from scaling.config.compose import SECTIONS, load, override
from scaling.config.document import print_remarks
from scaling.ledger import Ledger
from scaling.studies.plan import Plan, enter, plan
from scaling.studies.question import COMPARED, Question, is_automatic, is_counted
from scaling.studies.question import named as study_name
from scaling.studies.tasks import task_plan, unstarted
from scaling.tables.results import Results, read_ledger, read_points
from scaling.tables.table import Downstream, Table, located
from scaling.training.finetune import name_of, named

if TYPE_CHECKING:
    from scaling.studies.scheduler import Unfinished

INHERITED = ("seed", "log.wandb", "log.project")
"""Keys of a run that its finetunings have too: another seed draws another head and another order of the examples."""


def question(table: Table, words: Sequence[str] = (), name: str | None = None) -> Question:
    """The study whose runs the table needs under these overrides.

    Its name has the table and, by a hash, what is trained: the same command continues it, and a table that has
    gained rows since is another study, which shares the runs that both have.
    """
    base = [row.name for row in table.rows if row.name in table.baselines.values()]
    others = [row.name for row in table.rows if row.name not in base]
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
    first_runs = {run.row: run for run in reversed(plan.runs)}
    for task, (heading, keys) in _tasks(columns).items():
        for run in reversed(first_runs.values()):
            try:
                unstarted(run, task, keys, INHERITED)
            except ScalingError as error:
                what = f"{name_of(task)}, {run.name}: {error}"
                raise ScalingError(what, key="downstream", value=heading, code=error.code) from None


def _tasks(columns: Sequence[Downstream]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """The tasks of columns: the heading and the keys of each."""
    return {task: (column.heading, keys) for column in columns for task, keys in column.tasks.items()}


def finetunings(ledger: Ledger, plan: Plan, columns: Sequence[Downstream]) -> Plan | None:
    """A finetuning of every finished run of the plan on every task of the columns, as a study; None where there are
    none. The study's name has a hash of the tasks, so that other tasks, or other keys, are another study.
    """
    tasks = {task: keys for task, (_, keys) in _tasks(columns).items()}
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
        results = read_points(folder, table, columns)
    else:
        ledger = Ledger.open(folder)
        results = read_ledger(ledger, table, study, columns)
        if source and not results.runs:
            bases = sorted({plan["study"]["base"] for plan in ledger.plans().values()} - {""})
            what = f"it holds no run of {table.config}; its studies are of {', '.join(bases) or 'no table'}"
            fix = "name the table that was trained, or the folder of its runs"
            raise ScalingError(what, fix=fix, file=ledger.root, key="--from")
    settings, given = (dict(map(override, each)) for each in (results.settings, words if results.runs else ()))
    for key, value in given.items():
        differs = is_counted(key) and (key not in settings or settings[key] != value)
        fix = " ".join(["leave it out; they have", *results.settings]) if results.settings else "leave it out"
        refuse(differs, "the runs were trained without it", fix, file=folder, key=key, value=value)
    return results


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
    from scaling.studies.progress import announcer
    from scaling.studies.scheduler import train

    planned, announce = plan(question(table, words, study), words), announcer(progress)
    check(planned, columns)
    ledger = planned.ledger()

    def work(entered: Plan, runs: str) -> Unfinished | None:
        enter(ledger, entered)
        announce(f"study {entered.question.name}: {runs} in {ledger.root}")
        return train(ledger, entered, announce, workers=workers, retry_failed=retry_failed)

    if progress:
        print_remarks(run.experiment.config for run in planned.runs)
    missing = work(planned, plural(len(planned.runs), "run"))
    finetuned = finetunings(ledger, planned, columns) if columns and (missing is None or missing.code != DISK) else None
    if finetuned is not None:
        of_tasks = plural(len(finetuned.question.tasks), "task")
        missing_scores = work(finetuned, f"{plural(len(finetuned.runs), 'finetuning')} of {of_tasks}")
        missing = missing or missing_scores
    if missing is not None:
        announce(f"the table is not done: {missing}")
    return read_ledger(ledger, table, planned.question.name, columns), missing


def _hash(table: Table, words: Sequence[str]) -> str:
    counted, rows = [section for section in SECTIONS if section not in ("log", "runs")], []
    for row in table.rows:
        config = table.load(row.name, words)
        tree = (table.load(row.name, [COMPARED, *words]) if is_automatic(config) else config).tree
        del tree["train"]["threads"]  # no part of what is trained
        # A section that is null means what the config meant before there was such a section.
        rows.append({section: tree[section] for section in counted if tree.get(section) is not None})
    return _digest([dict(table.seeds), rows])


def _digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:8]
