"""Worker: a warm process that trains one cell after the other, as the controller of `local.py` hands them over."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from scaling.errors import DISK, ScalingError
from scaling.ledger import Ledger
from scaling.sweeps.check import experiment
from scaling.sweeps.file import Metric
from scaling.training.point import point
from scaling.training.run import Observers, train_run
from scaling.training.signals import PRUNE

DISK_FULL = "disk_full"  # nothing came of a cell, and nothing will until there is room


@dataclass(frozen=True)
class Report:
    """What came of a cell: the run, how it ended, the metric's values (lower better), and its point."""

    run: str | None
    outcome: str
    loss: float | None = None
    values: list[float] = field(default_factory=list)
    point: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None


def say(pipe: Connection, value: Any) -> None:
    pipe.send_bytes(json.dumps(value).encode())


def heard(pipe: Connection) -> Any:
    return json.loads(pipe.recv_bytes())


def serve(pipe: Connection, metric: Metric | None, stopping: bool) -> None:
    """Train what comes through the pipe until it closes; with `stopping`, ask after each value whether to go on.

    A list of words comes in; the metric's values so far go out, each answered by whether to stop; a report goes out.
    """
    while True:
        try:
            words = heard(pipe)
        except EOFError:
            return
        say(pipe, {"report": asdict(_trained(words, pipe, metric, stopping))})


def _trained(words: list[str], pipe: Connection, metric: Metric | None, stopping: bool) -> Report:
    try:
        assembled = experiment(words)
        ledger = Ledger.create(assembled.config["runs"])
        run = ledger.add(assembled.spec)
    except ScalingError as error:
        return Report(None, DISK_FULL if error.code == DISK else "refused", reason=str(error))
    values: list[float] = []

    def ask(entry: Mapping[str, Any]) -> None:
        if metric is not None and (value := metric.of([entry])):
            values.extend(value)
            # A controller that ends has closed the pipe, and has this run saved by a signal.
            with contextlib.suppress(EOFError, OSError):
                say(pipe, {"values": values})
                if heard(pipe):
                    os.kill(os.getpid(), PRUNE)

    failed = Report(run, "failed", point=point(assembled))
    try:
        result = ledger.result(run) or train_run(assembled, ledger, Observers([ask] if stopping else []))
    except Exception as error:
        # The attempt has recorded the reason; the sweep goes on with the other runs.
        if isinstance(error, ScalingError) and error.code == DISK:
            return Report(run, DISK_FULL, point=failed.point, reason=str(error))
        with contextlib.suppress(OSError):
            traceback.print_exception(error, file=sys.stderr)
        return Report(run, "failed", point=failed.point, reason=" ".join(str(error).split())[:300])
    if result is None:
        return Report(run, "busy", point=failed.point, reason="another worker is at it")
    history = [] if metric is None else metric.of(ledger.history(run))
    return Report(run, result["outcome"], result["loss"], history, failed.point, result.get("reason"))
