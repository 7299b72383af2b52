"""A paper's ablation table: every row counted, trained as a study, and printed beside what the paper printed.

scaling table narang2021 --counts                          parameters and operations; nothing is trained
scaling table narang2021_cpu --train                       train what is missing, then print
scaling table narang2021 --train size=tiny seeds=2 train.tokens=200k
scaling table narang2021_cpu --from runs --format markdown what a ledger holds of it
scaling table narang2021_cpu --from wandb:me/scaling       what W&B does
scaling table narang2021_cpu --from runs --keep docs/results/narang2021.md    a page, and the points to print it from
scaling table narang2021_cpu --train --from docs/results/narang2021/points.csv seeds=5    train what those lack
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scaling.number import plural

if TYPE_CHECKING:
    from scaling.studies.launch import Unfinished
    from scaling.tables.lines import Printed
    from scaling.tables.results import Results
    from scaling.tables.table import Table

WANDB = "wandb:"
SHORT = {"tokens": "train.tokens", "steps": "train.steps"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TABLE", help="a shipped table or a path")
    parser.add_argument(
        "words", nargs="*", metavar="key=value", help="overrides of every row; seeds=3, seeds={baseline: 10, others: 3}"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--counts", action="store_true", help="parameters and operations alone")
    what.add_argument("--train", action="store_true", help="train what is missing first, and go on where it stopped")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        help="runs to read: a ledger's folder, kept points, wandb:PROJECT; with --train they are not trained again",
    )
    parser.add_argument("--row", action="append", default=[], metavar="ROW", help="this row alone; repeats")
    parser.add_argument("--study", metavar="NAME", help="the study to read, or the name to train under")
    parser.add_argument(
        "--workers", type=int, default=None, metavar="N", help="processes; what suits the machine unless said"
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="with --train: try runs again that failed too often"
    )
    parser.add_argument("--format", choices=("terminal", "markdown", "latex", "csv", "html"), default="terminal")
    parser.add_argument(
        "--keep", type=Path, metavar="PAGE.md", help="write it with its runs, to read without the ledger"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    from scaling.config.override import override
    from scaling.errors import ScalingError
    from scaling.tables.count import counts
    from scaling.tables.lines import printed
    from scaling.tables.table import Seeds, read

    table, words = read(arguments.name).only(arguments.row), []
    for word in arguments.words:
        key, node = override(word)
        if key == "seeds":
            table = replace(table, seeds=Seeds.of(node.plain()))
        else:
            words.append(SHORT.get(key, key) + word[word.index("=") :])
    if arguments.counts and (arguments.source or arguments.keep):
        key = "--from" if arguments.source else "--keep"
        raise ScalingError("counts are of no runs", key=key, mend="leave it or --counts out")
    found: Results | None = None
    missing: Unfinished | None = None
    if arguments.train:
        found, missing = _trained(table, words, arguments)
        if missing is not None:
            print(f"scaling: the table is not done: {missing}", file=sys.stderr)
    elif not arguments.counts:
        found = _read(table, words, arguments.source, arguments.study)
    show = printed(table, counts(table, words or (found.settings if found else ())), found)
    if arguments.keep is not None and found is not None:
        from scaling.report.keep_table import keep_table

        keep_table(show, found, arguments.keep)
    _print(show, "json" if arguments.json else arguments.format)
    return 0 if missing is None else missing.code


def count(name: str, words: Sequence[str], as_json: bool) -> None:
    """Print the counts of a table's rows."""
    from scaling.tables.count import counts
    from scaling.tables.lines import printed
    from scaling.tables.table import read

    table = read(name)
    _print(printed(table, counts(table, words)), "json" if as_json else "terminal")


def _read(table: Table, words: Sequence[str], source: str | None, study: str | None) -> Results:
    """What a ledger, kept points or W&B hold of the table."""
    from scaling.ledger import Ledger
    from scaling.tables import points
    from scaling.tables.results import results

    if source and source.startswith(WANDB):
        source, study = _pulled(table, words, source.removeprefix(WANDB), study)
    folder = Path(source or table.load(table.baseline, words)["runs"])
    return points.read(folder, table) if folder.suffix == ".csv" else results(Ledger.open(folder), table, study)


def _pulled(table: Table, words: Sequence[str], name: str, study: str | None) -> tuple[str, str]:
    """Where W&B's runs of the table were pulled to, and as which study: a sweep's own, or the table's."""
    from scaling.command.pull import bring
    from scaling.studies.plan import plan
    from scaling.tables.study import question

    if name.count("/") == 2:
        copy, _, _ = bring(name)
        return str(copy.ledger.root), study or name.rpartition("/")[2]
    asked = question(table, words, study)
    copy, _, _ = bring(name, planned=lambda: (asked.name, plan(asked, words)))
    return str(copy.ledger.root), asked.name


def _trained(table: Table, words: Sequence[str], arguments: argparse.Namespace) -> tuple[Results, Unfinished | None]:
    """What the table's runs found, once those that --from does not hold are trained; and which of them could not be."""
    from scaling.studies.launch import train
    from scaling.studies.plan import plan
    from scaling.studies.record import enter
    from scaling.studies.view import view
    from scaling.tables.results import joined, results
    from scaling.tables.study import lacking, question

    asked = question(table, words, arguments.study)
    found, held = plan(asked, words), None
    if arguments.source:
        held = _read(table, words, arguments.source, None)
        found = lacking(found, held, arguments.source)
        if not found.runs:
            return held, None
    name, ledger = found.question.name, found.ledger()
    enter(ledger, name, found)
    print(f"study {name}: {plural(len(found.runs), 'run')} in {ledger.root}", file=sys.stderr)
    with view() as tell:
        missing = train(ledger, name, found, tell, workers=arguments.workers, retry_failed=arguments.retry_failed)
    trained = results(ledger, table, name)
    return joined(held, trained) if held else trained, missing


def _print(show: Printed, form: str) -> None:
    from scaling.tables.form import FORMS

    print(FORMS[form](show), end="")
