"""A paper's ablation table: count, train and read its rows, and compare its order at two scales."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from scaling.base import printing
from scaling.base.errors import refuse
from scaling.base.json_lines import flat
from scaling.base.numbers import PositiveInt
from scaling.config.document import print_remarks
from scaling.verbs.verb import PYTHON, Flag, Output, Result, frame, verb

if TYPE_CHECKING:
    import pandas

    from scaling.studies.scheduler import Unfinished
    from scaling.tables.results import Results
    from scaling.tables.table import Downstream
    from scaling.tables.table import Table as File

Rows = Annotated[Sequence[str], Flag("row"), "only this row; repeats"]
Source = Annotated[str | Path | None, Flag("from")]


@dataclass(frozen=True, repr=False)
class Table(printing.TableResult, Result):
    """A table with the results of its runs. `missing` lists the requested runs that are not done."""

    formats: ClassVar = ("terminal", "markdown", "latex", "csv", "html")

    file: File = field(kw_only=True)
    results: Results | None = None
    missing: Unfinished | None = None

    @property
    def data(self) -> pandas.DataFrame:
        """A row of the DataFrame is a row of the table; the paper's figures are in columns `published_…`."""
        return frame(self._flat())

    @property
    def runs(self) -> pandas.DataFrame:
        """A row of the DataFrame is a planned run: its row of the table, seed, status, losses and scores."""
        from scaling.tables.results import SCORE, TYPES

        if self.results is None:
            return frame((), [*TYPES])
        return frame(self.results.runs, [*TYPES, *(column.name + SCORE for column in self.results.measured)])

    def heading(self) -> Sequence[str]:
        return [self.file.title]

    def tables(self) -> Sequence[printing.Table]:
        from scaling.tables.document import printed

        return [printed(self.file, self.document)]

    def remarks(self) -> Sequence[str]:
        return self.document.get("said", [])

    notes = property(remarks)
    """The notes below the table: the basis of its figures, and missing runs."""

    def format(self, name: str) -> str:
        """The table as `terminal`, `markdown`, `latex`, `csv` or `html`."""
        others = {"csv": lambda: printing.csv_text(self._flat()), "html": self._repr_html_}
        return others[name]() if name in others else super().format(name)

    def _flat(self) -> list[dict[str, Any]]:
        """The numbers and texts of each row under plain names; lists are left out."""
        rows = map(flat, self.document["rows"])
        return [
            {key.replace(".", "_"): value for key, value in row.items() if not isinstance(value, list | dict | None)}
            for row in rows
        ]


@dataclass(frozen=True, repr=False)
class Decisions(printing.TableResult, Result):
    """The fraction of pairs of rows that have the same better row at two scales."""

    @property
    def data(self) -> pandas.DataFrame:
        """A row of the DataFrame is a pair of scales."""
        return frame(self.document["decisions"])

    def tables(self) -> Iterable[printing.Table]:
        from scaling.tables.decision import shown

        return filter(None, [shown(self.document["decisions"])])


@verb
def table(
    name: Annotated[str, "a shipped table or a file"],
    *overrides: str,
    rows: Rows = (),
    counts: Annotated[bool, "print only parameters and operations"] = False,
    train: Annotated[bool, "first train the missing runs"] = False,
    source: Annotated[Source, "runs to read: a ledger's folder, kept points, wandb:PROJECT"] = None,
    study: Annotated[str | None, "the study to read, or the name to train under"] = None,
    downstream: Annotated[Sequence[str], "show scores of these tasks (cola,sst2, or all); --train finetunes"] = (),
    keep: Annotated[
        str | Path | None, Output((".md",)), "write a Markdown page PAGE.md, and the runs to PAGE/points.csv"
    ] = None,
    workers: PositiveInt | None = None,
    retry_failed: bool = False,
    progress: PYTHON[bool] = True,
    **settings: Any,
) -> Table:
    """Count, train or read the rows of a paper's ablation table, next to the published figures.

        scaling table narang2021 --counts                        parameters and operations; nothing is trained
        scaling table narang2021_cpu --train                     train the missing runs, then print
        scaling table narang2021 --train size=tiny seeds=2 train.tokens=200k
        scaling table narang2021_cpu --from runs --format markdown
        scaling table narang2021_cpu --train --downstream cola,sst2

    Overrides hold for every row. `seeds=3` or `seeds={baseline: 10, others: 3}` is the number of runs of a row. After a
    stop, the same command continues.
    """
    from scaling.tables import count, document
    from scaling.tables.study import trained
    from scaling.tables.table import read

    of_runs = {"train": train, "from": source, "study": study, "downstream": downstream, "keep": keep}
    for option, value in of_runs.items():
        refuse(counts and value, "--counts reads no runs", "leave it or --counts out", key=f"--{option}")
    for option, value in (("workers", workers), ("retry-failed", retry_failed)):
        refuse(value and not train, "is an option of --train", "add --train", key=f"--{option}", value=value)
    if keep is not None:
        Output(is_folder=True).check(Path(keep).with_suffix(""), "keep")
    what = "--train takes its runs from the ledger"
    refuse(train and source is not None, what, "leave it out", key="--from", value=str(source))
    file, words = read(name).only(list(rows)).seeded(list(overrides))
    results, missing, scored = None, None, file.chosen(downstream)
    fix = "name them: --downstream cola,sst2"
    refuse(train and downstream and not scored, f"{file.name} names no tasks", fix, key="--downstream")
    if train:
        results, missing = trained(
            file, words, study, scored, workers=workers, retry_failed=retry_failed, progress=progress
        )
    elif not counts:
        results = _held(file, words, source, study, scored)
    trained_by = () if results is None else results.settings
    shown = document.document(file, count.counts(file, [*trained_by, *words]), results)
    if counts and progress:
        print_remarks(file.load(row.name, words) for row in file.rows)
    if keep is not None and results is not None:
        document.keep(shown, results, Path(keep))
    return Table(shown, code=0 if missing is None else missing.code, file=file, results=results, missing=missing)


@verb
def decide(
    name: Annotated[str, "a shipped table or a file"],
    *overrides: str,
    rows: Rows = (),
    source: Annotated[Source, "runs to read: a ledger's folder, kept points, wandb:PROJECT"] = None,
    against: Annotated[str | Path | None, "the larger runs, as for --from"] = None,
    study: Annotated[str | None, "the study to read"] = None,
    downstream: Annotated[Sequence[str], "show scores of these tasks (cola,sst2, or all)"] = (),
    **settings: Any,
) -> Decisions:
    """Show how often the better of two rows at a small scale is also the better row at a larger scale.

        scaling decide narang2021_cpu --from docs/results/narang2021/points.csv
        scaling decide narang2021_cpu --from small --against large
        scaling decide narang2021 --from docs/results/architecture_exponents-text/points.csv

    Early losses decide for final losses, and both decide for the paper's losses or for those of --against. Losses
    decide for scores, and scores for the paper's scores. For a study, smaller sizes and budgets decide for the largest.
    """
    from scaling.tables.decision import decisions, final_scale, of_study
    from scaling.tables.table import read

    file, words, found = read(name).only(list(rows)), list(overrides), None
    if source is not None and Path(source).suffix == ".csv":
        found = of_study(Path(source), {row.name for row in file.rows})
    for option, value in (("against", against), ("study", study), ("downstream", downstream)):
        is_other, what = found is not None and value, "it does not combine with --from"
        refuse(is_other, what, "leave it out", key=f"--{option}", value=str(value))
    if found is None:
        results, larger = _held(file, words, source, study, file.chosen(downstream)), None
        if against is not None:
            folder = [word for word in words if word.startswith("runs=")]
            larger = final_scale(str(against), _held(file, folder, against, None))
        found = decisions(results, larger)
    refuse(not found, f"no two rows of {file.name} are finished at two scales", "train more, or name --from")
    return Decisions({"table": file.name, "decisions": found})


def _held(
    file: File, words: Sequence[str], source: str | Path | None, study: str | None, columns: Sequence[Downstream] = ()
) -> Results:
    """The runs of a table that a ledger, kept points or a project of W&B (`wandb:PROJECT`) hold."""
    from scaling.sweeps.points import WANDB
    from scaling.tables.results import MISSING
    from scaling.tables.study import held, question

    folder = source
    if str(source).startswith(WANDB):
        from scaling.studies.plan import plan
        from scaling.sweeps.pull import pull

        project, planned = str(source).removeprefix(WANDB), None
        if project.count("/") == 2:  # a sweep, which is a study of its own
            study = study or project.rpartition("/")[2]
        else:
            planned = plan(question(file, words, study), words)
            study = planned.question.name
        folder = pull(project, None, file.load(file.baseline, words)["runs"], planned)["folder"]
    results = held(file, words, folder, study, columns)
    is_empty = folder != source and all(run["status"] == MISSING for run in results.runs)
    refuse(is_empty, f"it has no run of {file.name}", "name the project of its runs", key="--from", value=str(source))
    return results
