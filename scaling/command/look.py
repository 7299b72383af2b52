"""Show what each attention head of a run weighs, over one text: a page with every head of every layer.

scaling look 3f2a --text "the law of the land"                       the scores of each head, and a page: look.html
scaling look 3f2a --text "the law of the land" --head 1.0 --to head.pdf
scaling look bert --text "the [MASK] of the land" --json             a folder with a model; scores alone
scaling look marian --text "the law" --target "das Gesetz"           an encoder-decoder, with what it is to write
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scaling.command.document import numbered
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.inside.heads import HeadScores

PAGE = "look.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the beginning of a run's id, or a folder")
    parser.add_argument("words", nargs="*", metavar="runs=FOLDER", help="where the ledger is")
    parser.add_argument(
        "--text", required=True, metavar="TEXT", help="what the model reads; token ids without a tokenizer"
    )
    parser.add_argument("--target", metavar="TEXT", help="what an encoder-decoder writes (what it would write)")
    parser.add_argument("--head", metavar="LAYER.HEAD", help="the head to show large, as 3.5 or cross.3.5, from 0")
    parser.add_argument("--to", metavar="FILE", help=f"a page (.html) or a figure (.png, .pdf, .svg) ({PAGE})")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, … (cuda where there is one)")
    parser.add_argument("--json", action="store_true", help="the scores as one JSON document; a file only with --to")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.look import FIGURES, look
    from scaling.api.runs import RUNS

    for word in arguments.words:
        if not word.startswith("runs="):
            raise ScalingError("it is not an option", key=word, fix="put the text behind --text, in quotes")
    path = None if arguments.json and arguments.to is None else Path(arguments.to or PAGE)
    if path is not None and path.suffix not in (".html", *FIGURES):
        endings = ", ".join((".html", *FIGURES))
        raise ScalingError("there is no such kind of file", key="--to", value=str(path), fix=f"take {endings}")
    seen = look(
        arguments.run,
        arguments.text,
        target=arguments.target,
        runs=arguments.runs or RUNS,
        device=arguments.device,
    )
    if arguments.head is not None:
        seen.seen.at(arguments.head)
    if path is not None:
        seen.save(path, arguments.head)
    if arguments.json:
        print(json.dumps(numbered(seen.to_json()), indent=2, ensure_ascii=False))
        return
    print(_table(seen.seen.heads, [name for name, each in zip(seen.seen.names, seen.maps) for _ in range(each.heads)]))
    if path is not None:
        print(f"\n{path}")


SCORES = ("head", "entropy", "distance", "previous", "positional", "offset", "induction", "coverage", "copied")


def _table(heads: Sequence[HeadScores], names: Sequence[str]) -> str:
    """The scores that any head has."""
    shown = [score for score in SCORES if any(getattr(head, score) is not None for head in heads)]
    rows = [(name, *(_cell(getattr(head, score)) for score in shown)) for name, head in zip(names, heads, strict=True)]
    columns = ("layer", *shown)
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in (columns, *rows)
    )


def _cell(value: float | None) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.3f}"
