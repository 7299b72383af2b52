"""Watch a study while its runs go on: the law, an interval that holds however often one looks, and the time left.

scaling watch quickstart
scaling watch quickstart --once
scaling watch quickstart runs=/shared/runs --every 60
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scaling.command.document import numbered
from scaling.command.runs import opened
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.api.studies import StudyLook

EVERY = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="STUDY|runs=FOLDER", help="a study that was started, and where")
    parser.add_argument("--every", type=float, default=EVERY, metavar="SECONDS", help="between looks (%(default)g)")
    parser.add_argument("--once", action="store_true", help="look once")
    parser.add_argument("--json", action="store_true", help="look once; one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.studies import watch

    if not arguments.every > 0:
        raise ScalingError("expected seconds above 0", key="--every", value=arguments.every)
    ledger, names = opened(arguments.words)
    if len(names) != 1:
        raise ScalingError("name one study", fix="as in scaling watch quickstart")
    once = arguments.once or arguments.json
    seen = watch(names[0], str(ledger.root), every=arguments.every, wandb=not once)
    if arguments.json:
        print(json.dumps(numbered(next(seen).to_json()), indent=1))
        return
    if once:
        print(next(seen))
        return
    with _shown() as show:
        for look in seen:
            show(look)


@contextmanager
def _shown() -> Iterator[Callable[[StudyLook], None]]:
    """One live picture on a terminal, elsewhere lines where something is new."""
    if not sys.stdout.isatty():
        printed: list[str] = []

        def line(look: StudyLook) -> None:
            if str(look) not in printed[-1:]:
                printed.append(str(look))
                print(look, flush=True)

        yield line
        return
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from scaling.studies.view import Clock, picture

    clock = Clock()
    with Live(refresh_per_second=4) as live:
        yield lambda look: live.update(Group(Text(str(look.law)), picture(look.progress, clock)))
