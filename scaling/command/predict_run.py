"""Put a prediction of a run's loss on record before the run begins. It is scored when the run has ended.

scaling predict-run decoder size=ladder/1M train.tokens=20M --points runs/studies/quickstart
scaling predict-run study=quickstart run=0123456789abcdef --points small.csv --law auto
scaling predict-run --list                       every prediction of the ledger, and how many held
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from scaling import config
from scaling.command.document import numbered
from scaling.errors import ScalingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    config.add_arguments(parser)
    pairs: dict[str, Any] = {"nargs": "+", "action": "extend", "default": [], "metavar": "NAME=VALUE"}
    parser.add_argument("--points", metavar="POINTS", help="the runs that the law is fitted to, as of `scaling fit`")
    parser.add_argument("--law", default="chinchilla", help="as of `scaling fit` (default chinchilla)")
    parser.add_argument("--map", **pairs, help="as of `scaling fit`")
    parser.add_argument("--level", type=float, help="of the intervals (default 0.95)")
    parser.add_argument("--list", action="store_true", help="list the predictions on record with their scores")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.predict_run import predict_run, track_record
    from scaling.api.runs import RUNS

    if arguments.list:
        document = track_record(arguments.runs or RUNS)
        lines = listed(document)
    else:
        document = predict_run(
            _config(arguments), arguments.points, arguments.law, rename=_pairs(arguments.map), level=arguments.level
        )
        lines = iter([stated(document)])
    if arguments.json:
        print(json.dumps(numbered(document), indent=2, allow_nan=False, ensure_ascii=False))
        return
    for line in lines:
        print(line)


def _config(arguments: argparse.Namespace) -> config.Config:
    if arguments.points is None:
        raise ScalingError(
            "is missing", key="points", fix="add --points TABLE, or --list for the predictions on record"
        )
    if any(word.startswith("study=") for word in arguments.words):
        from scaling.sweeps.study import planned

        return planned(arguments.words)
    configs = config.configs(arguments)
    if len(configs) > 1:
        raise ScalingError("one run at a time", key="NAME", value=" ".join(configs), fix="name one")
    return next(iter(configs.values()))


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    for name, _, value in pairs:
        if not name or not value:
            raise ScalingError("is not NAME=VALUE", key="map", value=name, fix="write --map NAME=COLUMN …")
    return {name: value for name, _, value in pairs}


def stated(document: Mapping[str, Any]) -> str:
    already = " (on record already)" if document["already"] else ""
    return (
        f"run {document['run']}: loss {document['predicted']:.4f}{_ends(document)} by {document['law']} "
        f"of {document['points']['fitted']} runs; on record as {document['prediction']}{already}"
    )


def _ends(document: Mapping[str, Any]) -> str:
    interval = document["interval_run"]
    if interval is None:
        return ""
    low, high = ("open" if interval[end] is None else f"{interval[end]:.4f}" for end in ("low", "high"))
    return f", {100 * interval['level']:g}% interval of a new run {low} to {high}"


def listed(document: Mapping[str, Any]) -> Iterator[str]:
    """A line a prediction, then the calibration over all."""
    from scaling.reports.on_record import sentence

    for entry in document["entries"]:
        if entry["standing"] in ("damaged", "altered"):
            yield f"{entry['prediction']}: {entry['standing']}"
            continue
        outcome = entry["standing"]
        if entry["loss"] is not None:
            inside = {True: ", inside", False: ", outside", None: ""}[entry["covered"]]
            outcome = f"came out as {entry['loss']:.4f}, error {entry['relative_error']:+.2%}{inside}"
        made = f"{entry['registered']}, {entry['law']}, {entry['predicted']:.4f}{_ends(entry)}"
        yield f"{entry['prediction']}: {made}: {outcome}"
    yield sentence(document)
