"""A paper's ablation table: count its rows, train them, read them, and ask what its small runs decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from scaling.base.errors import ScalingError
from scaling.base.printing import Table as PrintedTable
from scaling.base.printing import TableResult, csv_text
from scaling.config.schema import PositiveInt
from scaling.ledger.document import flat
from scaling.verbs.verb import PYTHON, Flag, Result, verb

if TYPE_CHECKING:
    import pandas

    from scaling.studies.scheduler import Unfinished
    from scaling.tables.results import Results
    from scaling.tables.table import Table as File

Rows = Annotated[Sequence[str], Flag("row")]
Source = Annotated[str | Path | None, Flag("from")]


@dataclass(frozen=True, repr=False)
class Table(TableResult, Result):
    """A table with the results of its runs. `missing` lists the requested runs that are not done."""

    formats: ClassVar = ("terminal", "markdown", "latex", "csv", "html")

    file: File = field(kw_only=True)
    results: Results | None = None
    missing: Unfinished | None = None

    @property
    def data(self) -> pandas.DataFrame:
        """A row of the DataFrame is a row of the table; the paper's figures are in columns `published_…`."""
        import pandas

        return pandas.DataFrame(self._flat())

    @property
    def runs(self) -> pandas.DataFrame:
        """A row of the DataFrame is a planned run: its row of the table, seed, status, losses and scores."""
        import pandas

        from scaling.tables.results import SCORE, TYPES

        results = self.results
        scores = () if results is None else (column.name + SCORE for column in results.downstream)
        return pandas.DataFrame(() if results is None else results.runs, columns=[*TYPES, *scores])

    def heading(self) -> Sequence[str]:
        return [self.file.title]

    def tables(self) -> Sequence[PrintedTable]:
        """The table as it is printed."""
        from scaling.tables.document import printed

        return [printed(self.file, self.document)]

    def remarks(self) -> Sequence[str]:
        return self.document.get("said", [])

    notes = property(remarks)
    """The notes below the table: the basis of its figures, and what is missing."""

    def format(self, name: str) -> str:
        """The table as `terminal`, `markdown`, `latex`, `csv` or `html`."""
        if name in ("csv", "html"):
            return csv_text(self._flat()) if name == "csv" else self._repr_html_()
        return super().format(name)

    def _flat(self) -> list[dict[str, Any]]:
        """The numbers and texts of each row under plain names; lists are left out."""
        rows = map(flat, self.document["rows"])
        return [
            {key.replace(".", "_"): value for key, value in row.items() if not isinstance(value, list | dict | None)}
            for row in rows
        ]


@dataclass(frozen=True, repr=False)
class Decisions(TableResult, Result):
    """How often the better of two rows at one scale is the better at a larger one."""

    @property
    def data(self) -> pandas.DataFrame:
        """A row of the DataFrame is a pair of scales."""
        import pandas

        return pandas.DataFrame(self.document["decisions"])

    def tables(self) -> Sequence[PrintedTable]:
        """The decisions as a table."""
        from scaling.tables.decision import shown

        return shown(self.document["decisions"])


@verb
def table(
    name: str,
    *overrides: str,
    rows: Rows = (),
    counts: bool = False,
    train: bool = False,
    source: Source = None,
    study: str | None = None,
    downstream: Sequence[str] = (),
    keep: str | Path | None = None,
    workers: PositiveInt | None = None,
    retry_failed: bool = False,
    progress: PYTHON[bool] = True,
    **settings: Any,
) -> Table:
    """Count, train or read the rows of a paper's ablation table, next to the published figures.

        scaling table narang2021 --counts                        parameters and operations; nothing is trained
        scaling table narang2021_cpu --train                     train what is missing, then print
        scaling table narang2021 --train size=tiny seeds=2 train.tokens=200k
        scaling table narang2021_cpu --from runs --format markdown
        scaling table narang2021_cpu --train --downstream cola,sst2

        table = scaling.table("narang2021_cpu", source="docs/results/narang2021/points.csv")

    Overrides hold for every row. `seeds=3` or `seeds={baseline: 10, others: 3}` is the number of runs of a row. The
    same command continues a training that was stopped.

    Args:
        name: a shipped table or a file
        counts: parameters and operations alone
        train: train first what is missing
        source: runs to read: a ledger's folder, kept points, wandb:PROJECT
        study: the study to read, or the name to train under
        downstream: tasks to show scores of, as cola,sst2, or `all` of the table; with --train each run is finetuned on
            them
        keep: a page of Markdown to write, with its runs in a folder beside it to print the table from; as PAGE.md
    """
    from scaling.config.compose import print_remarks
    from scaling.tables.count import counts as counted
    from scaling.tables.document import document
    from scaling.tables.document import keep as keep_page
    from scaling.tables.study import held, trained
    from scaling.tables.table import read

    of_runs = [("train", train), ("from", source), ("downstream", downstream), ("keep", keep)]
    if counts and (others := [option for option, value in of_runs if value]):
        raise ScalingError("counts are of no runs", key=f"--{others[0]}", fix="leave it or --counts out")
    if train and source is not None:
        fix = "leave one of them out: what a ledger holds is not trained again"
        raise ScalingError("--train reads the runs of its ledger", key="--from", value=str(source), fix=fix)
    file, given = read(name).only(list(rows)).seeded(list(overrides))
    results, missing, scored = None, None, file.chosen(downstream)
    if train and downstream and not scored:
        fix = "name them, as in --downstream cola,sst2, or under `downstream` of the table"
        raise ScalingError(f"{file.name} names no tasks", key="--downstream", fix=fix)
    if train:
        choices: dict[str, Any] = {"workers": workers, "retry_failed": retry_failed, "progress": progress}
        results, missing = trained(file, given, study, scored, **choices)
    elif not counts:
        results = held(file, given, source, study, scored)
    show = document(file, counted(file, given or (results.settings if results else ())), results)
    if counts and progress:
        print_remarks(file.load(row.name, given) for row in file.rows)
    if keep is not None and results is not None:
        keep_page(file, show, results, Path(keep))
    return Table(show, code=0 if missing is None else missing.code, file=file, results=results, missing=missing)


@verb
def decide(
    name: str,
    *overrides: str,
    rows: Rows = (),
    source: Source = None,
    against: str | Path | None = None,
    study: str | None = None,
    downstream: Sequence[str] = (),
    **settings: Any,
) -> Decisions:
    """Show how often the better of two rows at a small scale is the better one at a larger scale.

        scaling decide narang2021_cpu --from docs/results/narang2021/points.csv
        scaling decide narang2021_cpu --from small --against large
        scaling decide narang2021 --from docs/results/architecture_exponents-text/points.csv

    Early losses decide for final losses, and both for the paper's final losses, or for the runs of --against. Where
    runs have scores of tasks, losses decide for scores, and scores for the paper's scores. In the points of a study
    that compares rows, the smaller sizes and budgets decide for the largest.

    Args:
        name: a shipped table or a file
        source: runs to read: a ledger's folder, kept points, wandb:PROJECT
        against: larger runs to decide for: a ledger's folder, kept points, wandb:PROJECT
        study: the study to read
        downstream: tasks to show scores of, as cola,sst2, or `all` of the table
    """
    from scaling.tables.decision import Scale, decisions, of_study
    from scaling.tables.study import held
    from scaling.tables.table import read

    file, given, made = read(name).only(list(rows)), list(overrides), None
    if source is not None and Path(source).suffix == ".csv":
        made = of_study(Path(source), {row.name for row in file.rows})
    if made is None:
        results, larger = held(file, given, source, study, file.chosen(downstream)), None
        if against is not None:
            larger = Scale(str(against), held(file, given, against).final(), file.judged_by == "score")
        made = decisions(file, results, larger)
    elif against is not None:
        fix = "leave it out: the smaller sizes of a study decide for the largest"
        raise ScalingError("the runs of --from are of a study", key="--against", value=str(against), fix=fix)
    if not made:
        fix = "train further rows, or name their runs by --from"
        raise ScalingError(f"no two rows of {file.name} are finished at two scales", fix=fix)
    return Decisions({"table": file.name, "decisions": made})
