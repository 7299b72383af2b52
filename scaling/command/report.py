"""A study's report, at any time: fit what is done so far, and write the page that says it.

scaling report quickstart
scaling report quickstart runs=/shared/runs
scaling report quickstart --keep docs/results    a copy to read without the ledger
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.command.runs import opened
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.study.findings import Findings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="STUDY|runs=FOLDER", help="a study, and where the ledger is")
    parser.add_argument(
        "--keep", type=Path, default=None, metavar="FOLDER", help="copy it to FOLDER/STUDY, with its YAML"
    )
    parser.add_argument("--json", action="store_true", help="the findings as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    ledger, names = opened(arguments.words)
    if len(names) != 1:
        raise ScalingError("name one study", key="STUDY", value=" ".join(names))
    ledger.plan(names[0])  # before what is slow to import

    from scaling.report.write import write
    from scaling.study.record import entered

    plan = entered(ledger, names[0])
    found, page = write(ledger, plan)
    if arguments.keep is not None:
        from scaling.report.keep import keep

        page = keep(found, page, ledger, plan, arguments.keep) / page.name
    if arguments.json:
        print(json.dumps(document(found, page), indent=1))
    else:
        show(found, page)


def document(found: Findings, page: Path) -> dict[str, Any]:
    """What fit.json holds, or why there is no law; and where the page is."""
    known = found.document or {"law": None, "question": found.question.question, "reason": found.reason}
    return {**known, "page": str(page)}


def show(found: Findings, page: Path) -> None:
    """The findings on the terminal."""
    from rich.console import Console

    from scaling.law.terminal import show as show_law
    from scaling.report.answer import answer
    from scaling.report.markup import plain

    console = Console(highlight=False, soft_wrap=True)
    console.print(found.question.question, style="bold", markup=False)
    if found.document is None:
        console.print(plain(answer(found).sentence), markup=False)
    else:
        show_law(found.document, console)
        if "rows" in found.document:
            console.print(plain(answer(found).sentence), markup=False)
    entropy = (found.document or {}).get("entropy")
    if entropy is not None:
        inside = {True: "inside", False: "outside", None: "not compared with"}[entropy.get("contained")]
        console.print(f"the language's entropy is {entropy['known']:.4f}: {inside} the interval of E")
        for error in entropy["excess_errors"]:
            console.print(f"held-out excess over the entropy foretold to {error:+.1%}")
    console.print(f"report: {page}", markup=False)
