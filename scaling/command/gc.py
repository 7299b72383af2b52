"""Free disk space: list what can go, and with --free remove it. Specs, logs and results always stay.

What can go: checkpoints of runs that are done and of trunks whose branches all are, and what killed workers left.
The final weights of finished runs stay, since export and generate need them; --weights frees them too. Weights that
another run starts from stay as long as that run has no result, or its checkpoints hold only what it trained.

scaling gc                        what it would free
scaling gc --free                 free it
scaling gc --free --weights       and the final weights of every finished run
"""

from __future__ import annotations

import argparse

from scaling.command.document import numbered
from scaling.command.runs import opened
from scaling.errors import ScalingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="runs=FOLDER", help="where the ledger is")
    parser.add_argument("--free", action="store_true", help="do it, instead of saying what would be done")
    parser.add_argument("--weights", action="store_true", help="also the final weights of finished runs")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.ledger import collect
    from scaling.ledger.document import text

    ledger, names = opened(arguments.words)
    if names:
        raise ScalingError("it takes no names", fix="it frees what no run needs any more, in the whole folder")
    waste, kept = collect.sorted_out(ledger, arguments.weights)
    total = collect.free(waste) if arguments.free else sum(item.bytes for item in waste)
    if arguments.json:
        items, needed = ([{**vars(item), "path": str(item.path)} for item in some] for some in (waste, kept))
        print(text(numbered({"freed": arguments.free, "bytes": total, "items": items, "kept": needed})))
        return
    for item in waste:
        print(f"{item.run or '':16}  {size(item.bytes):>9}  {item.kind:<13}  {item.path.relative_to(ledger.root)}")
    for item in kept:
        print(f"{item.run or '':16}  {size(item.bytes):>9}  kept: other runs start from these weights")
    what = "freed" if arguments.free else "can be freed; --free does it" if waste else "to free"
    print(f"{size(total)} in {len(waste)} places {what}")


def size(count: float) -> str:
    """Bytes in a readable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
