"""Draw the held-out loss around the weights of one run or of several, on a plane of two random directions whose filters
are as large as the weights'. (Li et al. 2018)

scaling landscape 3f2a                         landscape.png, and how much the loss rises
scaling landscape 3f2a 71c0 --to both.pdf      two runs on one scale of colours, with and without residuals say
scaling landscape 3f2a --side 11 --reach 0.5 --json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from scaling.command.document import numbered

FIGURE = "landscape.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="RUN", help="the beginning of a run's id, or STUDY:ROW; repeats")
    parser.add_argument("--side", type=int, metavar="N", help="points to a side, an odd number (21)")
    parser.add_argument("--reach", type=float, metavar="NUMBER", help="how far: 1 is as large as the weights (1)")
    parser.add_argument("--seed", type=int, metavar="N", help="draws the directions (0)")
    parser.add_argument("--windows", type=int, metavar="N", help="held-out windows (64)")
    parser.add_argument("--to", metavar="FILE", help=f"the figure: .png, .pdf or .svg ({FIGURE})")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, … (cuda where there is one)")
    parser.add_argument("--json", action="store_true", help="the losses as one JSON document; a figure only with --to")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.landscape import _check_ending, landscape
    from scaling.api.runs import RUNS

    path = None if arguments.json and arguments.to is None else Path(arguments.to or FIGURE)
    if path is not None:
        _check_ending(path)
    given = {name: getattr(arguments, name) for name in ("side", "reach", "seed", "windows", "device")}
    given = {name: value for name, value in given.items() if value is not None}
    around = landscape(*arguments.names, runs=arguments.runs or RUNS, **given)
    if path is not None:
        around.save(path)
    if arguments.json:
        print(json.dumps(numbered(around.to_json()), indent=2))
        return
    print("run                  loss  rise at the border  roughness")
    for name, rise in around.rises.items():
        print(f"{name:<17}{rise['loss']:>8.4f}{rise['border']:>20.4f}{rise['roughness']:>11.4f}")
    print(f"\n{path}")
