"""A paper's ablation table: its rows counted, trained, and set next to the published figures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.words import SHORT, words
from scaling.config import print_remarks
from scaling.errors import DISK, ScalingError

if TYPE_CHECKING:
    import pandas

    from scaling.studies.launch import Unfinished
    from scaling.tables.decision import Decision
    from scaling.tables.downstream import Downstream
    from scaling.tables.lines import Printed
    from scaling.tables.results import Results
    from scaling.tables.table import Table as TableFile

WANDB = "wandb:"


@dataclass(frozen=True)
class Table:
    """A table as it is printed. `missing` lists the requested runs that are not done."""

    printed: Printed
    results: Results | None = None
    missing: Unfinished | None = None

    @property
    def data(self) -> pandas.DataFrame:
        """A row of the DataFrame is a row of the table; the paper's figures are in columns `published_…`."""
        import pandas

        from scaling.tables.form import flat

        return pandas.DataFrame([flat(line) for line in self.printed.lines])

    @property
    def runs(self) -> pandas.DataFrame:
        """A row of the DataFrame is a planned run: its row of the table, seed, status, losses and scores."""
        import pandas

        from scaling.tables.results import Point

        points = () if self.results is None else self.results.points
        columns = [name for name in Point.__dataclass_fields__ if name != "scores"]
        runs = pandas.DataFrame([vars(point) for point in points], columns=columns)
        for column in () if self.results is None else self.results.downstream:
            runs[f"{column.name}_score"] = [point.scores.get(column.name) for point in points]
        return runs

    @property
    def baseline(self) -> str:
        """The row that all others are compared with."""
        return self.printed.table.baseline

    @property
    def notes(self) -> list[str]:
        """What the table's figures rest on, and what is missing."""
        from scaling.tables.lines import notes

        return notes(self.printed)

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling table --json` (docs/json.md)."""
        return self.printed.to_json()

    def to_markdown(self) -> str:
        return self.format("markdown")

    def to_latex(self) -> str:
        return self.format("latex")

    def to_csv(self) -> str:
        return self.format("csv")

    def format(self, name: str) -> str:
        """The table as `terminal`, `markdown`, `latex`, `csv` or `html`."""
        from scaling.tables.form import FORMS

        return FORMS[name](self.printed)

    def keep(self, page: str | Path) -> None:
        """Write the table as a page of Markdown, next to the points to print it from without the ledger."""
        from scaling.report.keep_table import keep_table

        if self.results is not None:
            keep_table(self.printed, self.results, Path(page))

    def _repr_html_(self) -> str:
        return self.format("html")

    def __str__(self) -> str:
        return self.format("terminal").rstrip()

    def __repr__(self) -> str:
        return f"Table({self.printed.table.name}, {len(self.printed.lines)} rows)"


@dataclass(frozen=True)
class Decisions:
    """How often the better of two rows at one scale is the better at a larger one; see `decide`."""

    table: str
    decisions: Sequence[Decision]

    @property
    def data(self) -> pandas.DataFrame:
        """A row of the DataFrame is a pair of scales."""
        import pandas

        return pandas.DataFrame([decision.to_json() for decision in self.decisions])

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling table --decide --json` (docs/json.md)."""
        return {"table": self.table, "decisions": [decision.to_json() for decision in self.decisions]}

    def format(self, name: str) -> str:
        """The decisions as `terminal`, `markdown` or `latex`."""
        from scaling.fit_report.formats import latex_table, markdown_table, markdown_text
        from scaling.tables.decision import shown

        tables = shown(self.decisions)
        if name == "markdown":
            parts = [(text.caption, markdown_table(text), *map(markdown_text, text.notes)) for text in tables]
            return "\n\n".join(part for parts_of_one in parts for part in parts_of_one) + "\n"
        if name == "latex":
            lines = [(f"% {text.caption}", latex_table(text), *(f"% {note}" for note in text.notes)) for text in tables]
            return "\n".join(line for lines_of_one in lines for line in lines_of_one) + "\n"
        if name != "terminal":
            raise ScalingError("decisions are not printed so", key="--format", value=name, fix="take markdown or latex")
        import io

        from rich.console import Console

        from scaling.fit_report.terminal import show_tables

        console = Console(file=io.StringIO(), highlight=False, soft_wrap=True, width=120)
        show_tables(tables, console)
        return console.file.getvalue().lstrip("\n")  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return self.format("terminal").rstrip()

    def __repr__(self) -> str:
        return f"Decisions({self.table}, {len(self.decisions)} pairs of scales)"


def decide(
    name: str,
    *overrides: str,
    rows: Sequence[str] = (),
    source: str | Path | None = None,
    larger: str | Path | None = None,
    study: str | None = None,
    downstream: bool | str | Sequence[str] = False,
    **settings: Any,
) -> Decisions:
    """How often the better of two rows at a small scale is the better at a larger one, with calibrated probabilities.

    The runs of `source` are compared early with their end, and both with the paper's final losses, or with the runs of
    `larger`; where they have scores of tasks (`downstream` as for `table`), losses with scores, and scores with the
    paper's. Where `source` is the points.csv of a study that compares rows, its smaller sizes and budgets are compared
    with the largest.

        scaling.decide("narang2021_cpu", source="docs/results/narang2021/points.csv")
    """
    from scaling.tables.decision import decisions, final_of, is_of_study, of_study
    from scaling.tables.table import read

    file, given = read(name).only(list(rows)), list(words(overrides, settings))
    if source is not None and Path(source).suffix == ".csv" and is_of_study(Path(source)):
        if larger is not None:
            fix = "leave it out: the smaller sizes of a study decide for the largest"
            raise ScalingError("are the points of a study", key="--from", value=str(source), fix=fix)
        kept = {row.name for row in file.rows}
        return _decided(file, of_study(Path(source), kept))
    columns = _columns(file, downstream, train=False)
    results = _read(file, given, source, study, columns, others=downstream is True)
    scale = None
    if larger is not None:
        scale = final_of(_read(file, given, larger, None), str(larger))
    return _decided(file, decisions(file, results, scale))


def _decided(table: TableFile, decisions: Sequence[Decision]) -> Decisions:
    if not decisions:
        what = f"no two rows of {table.name} are finished at two scales"
        raise ScalingError(what, key="--decide", fix="train further rows, or name their runs by --from")
    return Decisions(table.name, tuple(decisions))


def table(
    name: str,
    *overrides: str,
    rows: Sequence[str] = (),
    counts: bool = False,
    train: bool = False,
    source: str | Path | None = None,
    study: str | None = None,
    workers: int | None = None,
    retry_failed: bool = False,
    progress: bool = True,
    downstream: bool | str | Sequence[str] = False,
    **settings: Any,
) -> Table:
    """A table with what a ledger, kept points or W&B (`source`) hold of it; with `train` what is missing is trained.

    `counts` asks for parameters and operations alone. `seeds=3` is how many runs a row has. `downstream` names tasks,
    or with `True` those of the table: with `train` each run is finetuned on them, else the scores that the source holds
    are read.

        table = scaling.table("narang2021_cpu", source="docs/results/narang2021/points.csv")
    """
    from scaling.config import override
    from scaling.tables.count import counts as counted
    from scaling.tables.lines import printed
    from scaling.tables.table import Seeds, read

    file, given = read(name).only(list(rows)), []
    for word in words(overrides, settings):
        key, value = override(word)
        if key == "seeds":
            file = replace(file, seeds=Seeds.of(value))
        else:
            given.append(SHORT.get(key, key) + word[word.index("=") :])
    if counts and source:
        raise ScalingError("counts are of no runs", key="--from", fix="leave it or --counts out")
    if counts and downstream:
        raise ScalingError("counts are of no runs", key="--downstream", fix="leave it or --counts out")
    columns = _columns(file, downstream, train=train)
    results: Results | None = None
    missing: Unfinished | None = None
    if train:
        results, missing = _trained(
            file, given, source, study, columns, workers=workers, retry_failed=retry_failed, progress=progress
        )
    elif not counts:
        results = _read(file, given, source, study, columns, others=downstream is True)
    show = printed(file, counted(file, given or (results.settings if results else ())), results)
    if counts:
        print_remarks(file.load(row.name, given) for row in file.rows)
    return Table(show, results, missing)


def _columns(table: TableFile, requested: bool | str | Sequence[str], *, train: bool) -> tuple[Downstream, ...]:
    """The columns of scores that are requested: the table's own, or those of the tasks that are named."""
    from scaling.tables.downstream import chosen

    if requested is False:
        return ()
    words = [] if requested is True else [requested] if isinstance(requested, str) else requested
    names = [name.strip() for word in words for name in word.split(",") if name.strip()]
    if names:
        return chosen(table.downstream, names, table.published)
    own = tuple(column for column in table.downstream if column.tasks)
    if train and not own:
        fix = "name them, as in --downstream cola,sst2, or under `downstream` of the table"
        raise ScalingError(f"{table.name} names no tasks", key="--downstream", fix=fix)
    return own


def _read(
    table: TableFile,
    given: Sequence[str],
    source: str | Path | None,
    study: str | None,
    columns: Sequence[Downstream] = (),
    *,
    others: bool = False,
) -> Results:
    """What a ledger, kept points or W&B hold of the table, with the scores in these columns and in its own."""
    from scaling.ledger import Ledger
    from scaling.tables import points
    from scaling.tables.results import results
    from scaling.tables.scores import base_of

    if isinstance(source, str) and source.startswith(WANDB):
        source, study = _pulled(table, given, source.removeprefix(WANDB), study)
    folder = Path(source or table.load(table.baseline, given)["runs"])
    if folder.suffix == ".csv":
        return points.read(folder, table).with_columns(columns)
    ledger = Ledger.open(folder)
    held = results(ledger, table, study, columns, others=others)
    if source and not held.points:
        bases = ", ".join(sorted({base_of(ledger.plan(name)) for name in ledger.studies()} - {""}))
        raise ScalingError(
            f"it holds no run of {table.config}" + (f"; its studies are of {bases}" if bases else ""),
            file=ledger.root,
            key="--from",
            fix="name the table that was trained, or the folder of its runs",
        )
    return held


def _pulled(table: TableFile, given: Sequence[str], name: str, study: str | None) -> tuple[str, str]:
    """Where W&B's runs of the table were pulled to, and as which study: a sweep's own, or the table's."""
    from scaling.api.pull import bring
    from scaling.studies.plan import plan
    from scaling.tables.study import question

    if name.count("/") == 2:
        copy, _, _ = bring(name)
        return str(copy.ledger.root), study or name.rpartition("/")[2]
    study_question = question(table, given, study)
    copy, _, _ = bring(name, planned=lambda: (study_question.name, plan(study_question, given)))
    return str(copy.ledger.root), study_question.name


def _trained(
    table: TableFile,
    given: Sequence[str],
    source: str | Path | None,
    study: str | None,
    columns: Sequence[Downstream],
    *,
    workers: int | None,
    retry_failed: bool,
    progress: bool,
) -> tuple[Results, Unfinished | None]:
    """What the table's runs gave, once those that `source` lacks are trained, and each is finetuned on the tasks of the
    columns; and which of them could not be.
    """
    from scaling.api.studies import listener
    from scaling.number import plural
    from scaling.studies.launch import train
    from scaling.studies.plan import plan
    from scaling.studies.record import enter
    from scaling.tables.results import joined, results
    from scaling.tables.study import check, finetunings, lacking, question

    study_question = question(table, given, study)
    planned, kept = plan(study_question, given), None
    if source:
        kept = _read(table, given, source, None, columns)
        planned = lacking(planned, kept, str(source), columns)
        if not planned.runs:
            return kept, None
    check(planned, columns)
    name, ledger = planned.question.name, planned.ledger()
    enter(ledger, name, planned)
    print_remarks(run.experiment.config for run in planned.runs)
    choices: dict[str, Any] = {"workers": workers, "retry_failed": retry_failed}
    if progress:
        print(f"study {name}: {plural(len(planned.runs), 'run')} in {ledger.root}", file=sys.stderr)
    with listener(progress) as heard:
        missing = train(ledger, name, planned, heard, **choices)
    finetuned = finetunings(ledger, planned, columns) if columns and (missing is None or missing.code != DISK) else None
    if finetuned is not None:
        name = finetuned.question.name
        enter(ledger, name, finetuned)
        if progress:
            count = f"{plural(len(finetuned.runs), 'finetuning')} of {plural(len(finetuned.question.tasks), 'task')}"
            print(f"study {name}: {count} in {ledger.root}", file=sys.stderr)
        with listener(progress) as heard:
            lacking_scores = train(ledger, name, finetuned, heard, **choices)
        missing = missing or lacking_scores
    trained = results(ledger, table, planned.question.name, columns)
    return joined(kept, trained) if kept else trained, missing
