"""A paper's ablation table: every row counted, trained as a study, and printed next to the published figures.

scaling table narang2021 --counts                          parameters and operations; nothing is trained
scaling table narang2021_cpu --train                       train what is missing, then print
scaling table narang2021 --train size=tiny seeds=2 train.tokens=200k
scaling table narang2021_cpu --from runs --format markdown what a ledger holds of it
scaling table narang2021_cpu --from wandb:me/scaling       what W&B does
scaling table narang2021_cpu --from runs --keep docs/results/narang2021.md    a page, and the points to print it from
scaling table narang2021_cpu --from runs --decide          how often the better of two rows early is so at the end
scaling table narang2021_cpu --train --from docs/results/narang2021/points.csv seeds=5    train what those lack
scaling table narang2021_cpu --train --downstream cola,sst2           finetune each run on tasks
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scaling.command.document import numbered
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.api.tables import Table


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
    parser.add_argument(
        "--decide",
        nargs="?",
        const="",
        metavar="SOURCE",
        help="how often the better of two rows early, or at a small size, is the better later, for the paper, or in "
        "the larger runs of SOURCE",
    )
    parser.add_argument(
        "--downstream",
        nargs="*",
        metavar="TASK",
        help="with --train: finetune each run on the tasks of the table, or on these; else read what the source holds",
    )
    parser.add_argument("--row", action="append", default=[], metavar="ROW", help="this row alone; repeats")
    parser.add_argument("--study", metavar="NAME", help="the study to read, or the name to train under")
    parser.add_argument(
        "--workers", type=int, default=None, metavar="N", help="processes; default: what suits the machine"
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
    from scaling.api.tables import table

    arguments.words += [word for word in arguments.downstream or () if "=" in word]  # overrides that follow the flag
    if arguments.counts and arguments.keep:
        raise ScalingError("counts are of no runs", key="--keep", fix="leave it or --counts out")
    if arguments.decide is not None and (arguments.counts or arguments.keep):
        other = "--counts" if arguments.counts else "--keep"
        raise ScalingError("decisions are printed alone", key="--decide", fix=f"leave it or {other} out")
    if arguments.decide is not None and not arguments.train:
        return _decide(arguments)
    shown = table(
        arguments.name,
        *arguments.words,
        rows=arguments.row,
        counts=arguments.counts,
        train=arguments.train,
        source=arguments.source,
        study=arguments.study,
        workers=arguments.workers,
        retry_failed=arguments.retry_failed,
        downstream=_tasks(arguments),
    )
    if shown.missing is not None:
        print(f"scaling: the table is not done: {shown.missing}", file=sys.stderr)
    if arguments.keep is not None:
        shown.keep(arguments.keep)
    if arguments.decide is not None:
        _decide(arguments)
    else:
        _print(shown, arguments.format, arguments.json)
    return 0 if shown.missing is None else shown.missing.code


def count(name: str, words: Sequence[str], as_json: bool) -> None:
    """Print the counts of a table's rows."""
    from scaling.api.tables import table

    _print(table(name, *words, counts=True), "terminal", as_json)


def _tasks(arguments: argparse.Namespace) -> bool | list[str]:
    """The tasks that are named; without a name whether those of the table are requested."""
    return [word for word in arguments.downstream or () if "=" not in word] or arguments.downstream is not None


def _decide(arguments: argparse.Namespace) -> int:
    from scaling.api.tables import decide

    decision = decide(
        arguments.name,
        *(word for word in arguments.words if not word.startswith("seeds=")),
        rows=arguments.row,
        source=arguments.source,
        larger=arguments.decide or None,
        study=arguments.study,
        downstream=_tasks(arguments),
    )
    print(
        json.dumps(numbered(decision.to_json()), indent=1)
        if arguments.json
        else decision.format(arguments.format).rstrip()
    )
    return 0


def _print(table: Table, form: str, as_json: bool) -> None:
    print(json.dumps(numbered(table.to_json()), indent=1) + "\n" if as_json else table.format(form), end="")
