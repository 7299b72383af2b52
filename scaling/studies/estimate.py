"""Estimate: what each run of a plan costs before it is run: N, D, C, time, memory, money, here and on named devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from scaling.config import print_remarks
from scaling.errors import ScalingError, nearest
from scaling.ledger import Ledger
from scaling.studies.fields import SMALL
from scaling.studies.machine import Layout, Speed, calibrate, memory, sized
from scaling.studies.plan import Plan, Run, plan
from scaling.studies.question import Source, placed, read
from scaling.training.evaluation import FORWARD
from scaling.training.experiment import Experiment
from scaling.training.machine import Device, devices
from scaling.training.schedule import warmup_steps

HOUR = 3600.0


@dataclass(frozen=True)
class Elsewhere:
    """Devices of one name, how many train a run, and the fraction of their peak that they reach."""

    name: str
    device: Device
    layout: Layout
    utilisation: float
    price: float | None = None  # of one device for an hour

    def seconds(self, flops: float, precision: str) -> float:
        return flops / (self.layout.devices * self.device.peak(precision) * self.utilisation)


def elsewhere(name: str, layout: Layout, utilisation: float, price: float | None = None) -> Elsewhere:
    """The devices of a name among configs/devices.yaml."""
    shipped = devices()
    if name not in shipped:
        raise ScalingError("there is no such device", key="--on", value=name, fix=nearest(name, shipped))
    return Elsewhere(name, shipped[name], layout, utilisation, price)


def costs(
    planned: Plan, data: str = "prepared", places: Sequence[Elsewhere] = (), outlook: bool = True
) -> dict[str, Any]:
    """The costs of a plan, and with `outlook` what its runs are expected to identify (docs/json.md)."""
    from scaling.studies.findings import read_fit
    from scaling.studies.identifiability import predicted_interval, shortfall
    from scaling.studies.machine import sized

    question, folder = planned.question, Path(planned.runs[0].experiment.config["runs"])
    workers = sized(planned).workers
    print_remarks(run.experiment.config for run in planned.runs)
    speed = calibrate([run.experiment for run in planned.runs], folder / "calibration")
    rows = estimates(planned, speed, places)
    document = {
        "study": question.name,
        "question": question.question,
        "data": data,
        "runs": rows,
        "total": {**totals(planned, rows, speed, places), "workers": workers},
        "shortfall": None,
        "outlook": None,
    }
    if outlook:
        missing = shortfall(planned)
        # The law is supposed as an earlier fit of the study found it, where the points identified all of it.
        before = read_fit(folder / "studies" / question.name / "report" / "fit.json") or {}
        same = (before.get("law"), before.get("question")) == (question.law, question.question)
        known = dict(before["estimates"]) if same and before.get("not_identified") == [] else {}
        vocabularies = [run.experiment.cost.shape.vocabulary for run in planned.runs]
        document["shortfall"] = None if missing is None else missing.to_json()
        document["outlook"] = predicted_interval(question, rows, known, vocabularies)
    return document


def estimates(plan: Plan, speed: Speed | None, places: Sequence[Elsewhere]) -> list[dict[str, Any]]:
    """One row a run, in the order of the plan. Time and money of a branch are those of its own steps."""
    return [_row(run, speed, places) for run in plan.runs]


def _row(run: Run, speed: Speed | None, places: Sequence[Elsewhere]) -> dict[str, Any]:
    experiment = run.experiment
    evaluation = evaluating(experiment)
    flops = run.flops + evaluation
    precision = experiment.config["trainer.precision"]
    row = {
        "run": run.run,
        "name": run.name,
        "held_out": run.held_out,
        "trunk": None if run.trunk is None else {"run": run.trunk.run, "step": run.trunk.step},
        **run.point,
        "steps": run.steps,
        "warmup": warmup_steps(experiment.schedule, run.steps),
        "evaluations": len(experiment.evaluated),
        "windows": dict(zip(("before_end", "at_end"), experiment.windows)),
        "C_evaluation": evaluation,
        "flops_left": run.flops,
        "seconds": _seconds(speed, experiment, flops),
        "bytes": sum(memory(experiment.cost, precision, experiment.size.size(0), Layout()).values()),
    }
    for place in places:
        row[place.name] = _there(place, experiment, flops)
    return row


def evaluating(experiment: Experiment) -> float:
    """FLOPs of a run's evaluations."""
    tokens = sum(experiment.evaluated.values()) * experiment.row_tokens
    return FORWARD * tokens * experiment.cost.flops_train_per_token


def _seconds(speed: Speed | None, experiment: Experiment, flops: float) -> float | None:
    """Seconds on this machine, of which one worker trains the run."""
    if speed is None:
        return None
    step = experiment.cost.flops_train_per_token * experiment.row_tokens * experiment.size.size(0)
    return speed.seconds(step) * flops / step


def _there(place: Elsewhere, experiment: Experiment, flops: float) -> dict[str, Any]:
    precision = experiment.config["trainer.precision"]
    rows = experiment.config["train.micro_batch"] or max(1, experiment.size.size(0) // place.layout.replicas)
    footprint = memory(experiment.cost, precision, rows, place.layout)
    seconds = place.seconds(flops, precision)
    row: dict[str, Any] = {
        "seconds": seconds,
        "device_hours": seconds * place.layout.devices / HOUR,
        "bytes": footprint,
        "fits": sum(footprint.values()) <= place.device.memory,
    }
    if place.price is not None:
        row["price"] = row["device_hours"] * place.price
    return row


def totals(
    plan: Plan, rows: Sequence[dict[str, Any]], speed: Speed | None, places: Sequence[Elsewhere]
) -> dict[str, Any]:
    """The whole study: its runs and the trunks they share, and what sharing them saves."""
    trunks = [job.experiment for job in plan.trunks.values()]
    growing = sum(job.flops for job in plan.trunks.values())
    apart = sum(row["C"] for row in rows)
    spent = sum(row["flops_left"] for row in rows) + growing
    document: dict[str, Any] = {
        "runs": len(rows),
        "held_out": sum(row["held_out"] for row in rows),
        "trunks": len(trunks),
        "C": spent,
        "C_without_trunks": apart,
        "C_evaluation": sum(row["C_evaluation"] for row in rows),
        "saved": 1 - spent / apart,
        "bytes": max(row["bytes"] for row in rows),
    }
    if speed is not None:
        document["seconds"] = sum(row["seconds"] for row in rows) + sum(
            _seconds(speed, trunk, job.flops) or 0.0 for trunk, job in zip(trunks, plan.trunks.values())
        )
        document["busy"] = speed.busy
    for place in places:
        precision = plan.runs[0].experiment.config["trainer.precision"]
        seconds = sum(row[place.name]["seconds"] for row in rows) + place.seconds(growing, precision)
        document[place.name] = {
            "seconds": seconds,
            "device_hours": seconds * place.layout.devices / HOUR,
            "fits": all(row[place.name]["fits"] for row in rows),
            "bytes": max(sum(row[place.name]["bytes"].values()) for row in rows),
            "devices": place.layout.devices,
            "utilisation": place.utilisation,
            "source": place.device.source,
        }
        if place.price is not None:
            document[place.name]["price"] = document[place.name]["device_hours"] * place.price
    return document


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
    speed = calibrate([run.experiment for run in plan.runs], Path(ledger.root) / "calibration")
    if speed is None:
        return None, False
    total = totals(plan, estimates(plan, speed, ()), speed, ())
    return total["seconds"] / size.workers / 60, speed.busy
