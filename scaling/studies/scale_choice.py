"""A study with `minutes` takes its scale `small` on a machine that is too slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from scaling.ledger import Ledger
from scaling.studies.calibration import calibrate
from scaling.studies.estimate import estimates, totals
from scaling.studies.fields import SMALL
from scaling.studies.plan import Plan, plan
from scaling.studies.question import Source, placed, read
from scaling.studies.size import sized


def choose_scale(source: Source, at: str | None, words: Sequence[str], workers: int | None) -> tuple[Plan, str | None]:
    """The plan of a study, and why it is smaller than was asked for, where it is.

    A study keeps the scale that it started with: the machine is timed before the first run alone.
    """
    question = read(source, at, words)
    with placed(source, at, words):
        planned = plan(question, words)
    if question.minutes is None or at is not None or torch.cuda.is_available():
        return planned, None
    ledger = planned.ledger()
    if question.name in ledger.studies():
        scale, why = ledger.plan(question.name)["study"]["at"], "it was started so"
    else:
        minutes, busy = _minutes(planned, ledger, workers)
        scale = None if minutes is None or minutes <= question.minutes else SMALL
        state = ", busy as it is," if busy else ""
        why = (
            f"this machine{state} would take {minutes:.0f} minutes for the whole, and {question.minutes:g} are promised"
        )
    if scale is None:
        return planned, None
    with placed(source, scale, words):
        smaller = plan(replace(read(source, scale, words), name=question.name), words)
    return smaller, f"a smaller grid: {why}"


def _minutes(plan: Plan, ledger: Ledger, workers: int | None) -> tuple[float | None, bool]:
    size = sized(plan, workers)
    speed = calibrate([run.experiment for run in plan.runs], Path(ledger.root) / "calibration", size.workers)
    if speed is None:
        return None, False
    total = totals(plan, estimates(plan, speed, ()), speed, ())
    return total["seconds"] / size.workers / 60, speed.busy
