"""A study's report, at any time: fit what is done so far, and write the page.

scaling report quickstart
scaling report quickstart runs=/shared/runs
scaling report quickstart --keep docs/results    a copy to read without the ledger
scaling report docs/results/quickstart           fit the law of such a copy again, to the points it keeps
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.studies import step
from scaling.command.document import numbered
from scaling.command.runs import opened
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.studies.findings import Findings, TaskFindings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="STUDY|FOLDER|runs=FOLDER", help="a study, and where the ledger is")
    parser.add_argument(
        "--keep", type=Path, default=None, metavar="FOLDER", help="copy it to FOLDER/STUDY, with its YAML"
    )
    parser.add_argument("--json", action="store_true", help="the findings as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    kept = _kept(arguments)
    findings, page = kept or _of_ledger(arguments)
    record = None if kept else _on_record(arguments)
    if arguments.json:
        document = findings.to_json(page) | ({} if record is None else {"on_record": record})
        print(json.dumps(numbered(document), indent=1))
    else:
        show(findings, page)
        if record is not None and (record["predictions"] or record["altered"]):
            from scaling.reports.on_record import sentence

            print(f"on record: {sentence(record)}")


def _on_record(arguments: argparse.Namespace) -> dict[str, Any]:
    """The calibration of the ledger's predictions."""
    from scaling.ledger.registered import calibration, registered

    return calibration(registered(opened(arguments.words)[0]))


def _kept(arguments: argparse.Namespace) -> tuple[Findings, Path] | None:
    """A kept report fitted again, where the words name one."""
    if len(arguments.words) != 1 or not Path(arguments.words[0], "index.html").is_file():
        return None
    from scaling.reports.keep import fit_again, is_kept

    folder = Path(arguments.words[0]).resolve()
    if not is_kept(folder):
        raise ScalingError("is no kept report", key="FOLDER", value=str(folder), fix="`--keep` writes one")
    if arguments.keep is not None:
        raise ScalingError("is a kept report already", key="FOLDER", value=str(folder), fix="leave out --keep")
    return fit_again(folder, step)


def _of_ledger(arguments: argparse.Namespace) -> tuple[Findings, Path]:
    ledger, names = opened(arguments.words)
    if len(names) != 1:
        raise ScalingError("name one study", key="STUDY", value=" ".join(names))
    ledger.plan(names[0])  # before what is slow to import

    from scaling.reports.write import write
    from scaling.studies.record import entered

    return write(ledger, entered(ledger, names[0]), step, arguments.keep)


def show(findings: Findings, page: Path) -> None:
    """The findings on the terminal."""
    from rich.console import Console

    from scaling.fit_report.terminal import show as show_law
    from scaling.reports.answer import answer
    from scaling.reports.markup import plain

    console = Console(highlight=False, soft_wrap=True)
    console.print(findings.question.question, style="bold", markup=False)
    if findings.document is None:
        console.print(plain(answer(findings).sentence), markup=False)
    else:
        show_law(findings.document, console)
        if "rows" in findings.document:
            console.print(plain(answer(findings).sentence), markup=False)
    for task in findings.tasks:
        for line in _of_task(task):
            console.print(line, markup=False)
    entropy = (findings.document or {}).get("entropy")
    if entropy is not None:
        inside = {True: "inside", False: "outside", None: "not compared with"}[entropy.get("contained")]
        console.print(f"the language's entropy is {entropy['known']:.4f}: {inside} the interval of E")
        for error in entropy["excess_errors"]:
            console.print(f"prediction error of the held-out excess over the entropy: {error:+.1%}")
    console.print(f"report: {page}", markup=False)


def _of_task(task: TaskFindings) -> Iterator[str]:
    """A task in lines: what was predicted for its held-out runs, and what to doubt."""
    from scaling.fit_report.tables import coverage
    from scaling.law.predictions import percent

    document = task.document
    if document is None:
        yield f"{task.task}: no law of the score: {task.reason}"
        return
    target, tested = document["target"], document["held_out"]
    covered = None if tested is None else coverage(tested)
    yield f"{task.task}: {document['law']}, {document['n']} scores" + (f"; {covered}" if covered else "")
    for point in [] if tested is None else tested["points"]:
        run: Mapping[str, Any] = point["interval_run"] or {"low": None}
        ends = "" if None in run.values() else f", {percent(run['level'])} {run['low']:.4f} to {run['high']:.4f}"
        yield f"  held out: {target} {point[target]:.4f}, predicted {point['predicted']:.4f}{ends}"
    yield from (f"! {task.task}: {doubt}" for doubt in (*document["not_identified"], *document["unreliable"]))
