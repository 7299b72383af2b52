"""How often 95% intervals hold what they claim to: a section of docs/coverage.md, as a table.

python -m benchmarks.coverage trunks --studies 40
python -m benchmarks.coverage tasks --points examples/published/tables
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.coverage import published, simulated

SIMULATED: dict[str, Callable[[int], Iterator[str]]] = {
    "grid": lambda count: simulated.table(
        ("objective", "law", "n", "noise", "decades", "exponent", "errors"), simulated.grid_cells(), count
    ),
    "trunks": lambda count: simulated.table(("errors", "correlation"), simulated.trunk_cells(), count),
    "curves": lambda count: simulated.table(("errors",), simulated.curve_cells(), count),
    "two-steps": lambda count: simulated.table(("noise of the loss", "examples"), simulated.task_cells(), count),
    "adaptive": simulated.adaptive,
    "looks": simulated.repeated_looks,
    "residuals": simulated.residuals,
}
PUBLISHED = {"published": published.by_form_error, "tasks": published.by_task}


def main(words: Sequence[str] | None = None) -> None:
    """Print the table of one section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=(*SIMULATED, *PUBLISHED))
    parser.add_argument("--studies", type=int, default=100, help="simulated studies a line")
    parser.add_argument("--points", type=Path, help="the folder of published tables (`published` and `tasks`)")
    arguments = parser.parse_args(words)
    if arguments.section in SIMULATED:
        lines = SIMULATED[arguments.section](arguments.studies)
    elif arguments.points is None or not arguments.points.is_dir():
        parser.error(f"{arguments.section} needs --points FOLDER, a folder of CSVs")
    else:
        lines = PUBLISHED[arguments.section](arguments.points)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
