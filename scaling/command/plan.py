"""What a study will cost and what it will identify, before it is run: every run, time, memory, money, the interval.

scaling plan quickstart
scaling plan quickstart --adaptive 'E ± 0.02'
scaling plan chinchilla_isoflop --at paper --on H100 --devices 4096 --sharding fsdp --tensor 8 --price 2.50
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scaling.command.document import numbered
from scaling.errors import plural

if TYPE_CHECKING:
    from scaling.studies.estimate import Elsewhere

MOST_ROWS = 60  # of a table on a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STUDY", help="a shipped study or a path")
    parser.add_argument("words", nargs="*", metavar="key=value", help="overrides that hold for every run")
    parser.add_argument("--at", metavar="SCALE", help="a scale that the study names, as `paper`")
    parser.add_argument(
        "--on", action="append", default=[], metavar="DEVICE", help="a device of configs/devices.yaml; repeats"
    )
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="how many of them train a run")
    parser.add_argument("--sharding", choices=("ddp", "fsdp"), default="ddp", help="what each of them holds")
    parser.add_argument("--tensor", type=int, default=1, metavar="N", help="how many share each matrix")
    parser.add_argument(
        "--utilisation", type=float, default=0.4, metavar="SHARE", help="of the devices' peak; default 0.4"
    )
    parser.add_argument("--price", type=float, metavar="MONEY", help="of one device for an hour")
    parser.add_argument("--adaptive", metavar="GOAL", help="what `scaling study --adaptive GOAL` is expected to choose")
    parser.add_argument("--budget", type=float, metavar="FLOPS", help="of --adaptive; default: what the grid takes")
    parser.add_argument("--json", action="store_true", help="the plan as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.studies import plan

    planned = plan(
        arguments.name,
        *arguments.words,
        at=arguments.at,
        on=arguments.on,
        devices=arguments.devices,
        sharding=arguments.sharding,
        tensor=arguments.tensor,
        utilisation=arguments.utilisation,
        price=arguments.price,
        adaptive=arguments.adaptive,
        budget=arguments.budget,
    )
    if arguments.json:
        print(json.dumps(numbered(planned.document), indent=1))
    else:
        _show(planned.document, planned.places)


def _show(document: Mapping[str, Any], places: Sequence[Elsewhere]) -> None:
    heads = [
        "run",
        "N",
        "D",
        "C",
        "warmup steps",
        "evaluations",
        "time",
        "memory",
        *(head for place in places for head in (place.name, "on each", "")),
    ]
    rows = document["runs"]
    cells = [heads, *(_cells(row, places) for row in rows[:MOST_ROWS])]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(document["question"])
    for name, *numbers in cells:
        aligned = (f"{number:>{width}}" for number, width in zip(numbers, widths[1:], strict=True))
        print(f"{name:<{widths[0]}}", *aligned, sep="  ")
    if len(rows) > MOST_ROWS:
        print(f"… and {len(rows) - MOST_ROWS:,} more (--json lists all)")
    print()
    for line in _lines(document, places):
        print(line)


def _cells(row: dict[str, Any], places: Sequence[Elsewhere]) -> list[str]:
    name = row["name"] + ("  held out" if row["held_out"] else "")
    cells = [
        name,
        f"{row['N']:,}",
        f"{row['D']:.3g}",
        f"{row['C']:.3g}",
        f"{row['warmup']:,} of {row['steps']:,}",
        f"{row['evaluations']}, {row['C_evaluation'] / row['C']:.1%} of C",
        _span(row["seconds"]),
        _bytes(row["bytes"]),
    ]
    for place in places:
        there = row[place.name]
        money = f"{there['price']:,.2f}" if "price" in there else ""
        footprint = _bytes(sum(there["bytes"].values()))
        cells += [_span(there["seconds"]), footprint if there["fits"] else f"{footprint} too much", money]
    return cells


def _lines(document: Mapping[str, Any], places: Sequence[Elsewhere]) -> Iterator[str]:
    total, outlook = document["total"], document["outlook"]
    yield f"{plural(total['runs'], 'run')}, {total['held_out']} of them held out: {total['C']:.3g} FLOPs"
    if total["trunks"]:
        yield (
            f"{total['trunks']} shared trunks save {total['saved']:.0%} of {total['C_without_trunks']:.3g}; "
            "a branch's time is its own"
        )
    evaluation = total["C_evaluation"] / total["C_without_trunks"]
    yield f"evaluations add {evaluation:.1%} to the FLOPs of the runs"
    if "seconds" in total:
        workers = f"{total['workers']} workers" if total["workers"] > 1 else "one worker"
        yield f"on this machine {_span(total['seconds'])} of a worker's time, by a few steps timed here; {workers}"
        if total["busy"]:
            yield "  the machine had other work when they were timed; alone it may be faster"
    else:
        yield "this machine is too small to time a step of these models"
    for place in places:
        there = total[place.name]
        money = f", {there['price']:,.0f} at {place.price:g} an hour" if "price" in there else ""
        fits = "" if there["fits"] else f"; it does not fit: {_bytes(there['bytes'])} on each"
        yield (
            f"on {there['devices']:,} × {place.name} at {place.utilisation:.0%} of the peak: "
            f"{_span(there['seconds'])}, {there['device_hours']:,.1f} device hours{money}{fits}"
        )
    if document["shortfall"] is not None:
        yield document["shortfall"]["sentence"]
    if outlook is not None:
        yield from _expected(outlook)
    if "adaptive" in document:
        yield from _adaptive(document["adaptive"])


def _expected(outlook: dict[str, Any]) -> Iterator[str]:
    if "reason" in outlook:
        yield f"the interval that it will give cannot be predicted: {outlook['reason']}"
        return
    supposed = ", ".join(f"{name} {value:.4g}" for name, value in outlook["supposed"].items())
    yield f"{outlook['target']} is expected as {_interval(outlook)}"
    yield f"  were the law {supposed} and the noise of log loss {outlook['noise']:g}"
    better = outlook.get("better")
    if better is not None:
        grid = "; ".join(
            f"N {size:,}: D {', '.join(f'{count:.2g}' for count in tokens)}"
            for size, tokens in ((line["N"], line["D"]) for line in better["grid"])
        )
        runs = plural(better["runs"], "run")
        yield f"a better grid for no more compute, run apart: {runs}, {_interval(better)}: {grid}"


def _adaptive(simulated: dict[str, Any]) -> Iterator[str]:
    if "reason" in simulated:
        yield f"what an adaptive study will choose cannot be predicted: {simulated['reason']}"
        yield f"  the {simulated['candidates']} runs above are its candidates, of which it trains what it needs"
        return
    yield simulated["sentence"]
    yield "  in this order, each with half the width of the interval that is expected after it:"
    for number, decision in enumerate(simulated["decisions"], start=1):
        width = decision["expected_half_width"]
        yield f"  {number:3}  {'open' if width is None else f'± {width:.3g}':>10}  {decision['name']}"


def _interval(interval: dict[str, Any]) -> str:
    return f"95% interval of the mean [{interval['low']:.4f}, {interval['high']:.4f}]"


def _span(seconds: float | None) -> str:
    """A span of time in a readable unit."""
    if seconds is None:
        return "?"
    for length, unit in ((31557600, "years"), (86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.1f} s"


def _bytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
