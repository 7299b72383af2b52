"""Estimate: what each run of a plan costs before it is run: N, D, C, time, memory, money, here and on named devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from scaling.base.errors import nearest, refuse
from scaling.config.document import print_remarks
from scaling.studies.machine import calibrate, footprint, memory, sized, step_flops
from scaling.studies.plan import Plan, Run, plan
from scaling.studies.progress import Speed
from scaling.studies.question import SMALL, Source, read
from scaling.training.evaluation import FORWARD
from scaling.training.experiment import Experiment
from scaling.training.machine import Device, devices
from scaling.training.schedule import warmup_steps

HOUR = 3600.0


@dataclass(frozen=True)
class Elsewhere:
    """Devices of configs/devices.yaml, how many train a run, and the fraction of their peak that they reach."""

    name: str
    devices: int
    sharding: Literal["ddp", "fsdp"]
    tensor: int  # devices that share each matrix
    utilisation: float
    price: float | None  # of one device for an hour

    def __post_init__(self) -> None:
        fix = nearest(self.name, devices())
        refuse(self.name not in devices(), "there is no such device", fix, key="--on", value=self.name)
        what = f"{self.tensor} devices do not divide {self.devices}"
        refuse(self.devices % self.tensor, what, "take a divisor", key="tensor", value=self.tensor)

    @property
    def device(self) -> Device:
        return devices()[self.name]

    def memory(self, experiment: Experiment) -> dict[str, float]:
        """Bytes of a run on each device; groups of `tensor` devices split the batch."""
        config, groups = experiment.config, self.devices // self.tensor
        rows = config["train.micro_batch"] or max(1, experiment.size.size(0) // groups)
        shards = self.devices if self.sharding == "fsdp" else self.tensor
        return memory(experiment.cost, config["trainer.precision"], rows, shards, self.tensor)

    def seconds(self, flops: float, precision: str) -> float:
        return flops / (self.devices * self.device.peak(precision) * self.utilisation)

    def costs(self, seconds: float) -> dict[str, Any]:
        """The price of the devices for so many seconds."""
        hours = seconds * self.devices / HOUR
        price = {} if self.price is None else {"price": hours * self.price}
        return {"seconds": seconds, "device_hours": hours, **price}


def costs(
    planned: Plan, data: str = "prepared", places: Sequence[Elsewhere] = (), outlook: bool = True
) -> dict[str, Any]:
    """The costs of a plan, and with `outlook` what its runs are expected to identify (docs/json.md)."""
    from scaling.studies.findings import read_fit
    from scaling.studies.identifiability import predicted_interval, shortfall

    question, folder = planned.question, Path(planned.runs[0].root)
    print_remarks(run.experiment.config for run in planned.runs)
    speed = calibrate([run.experiment for run in planned.runs])
    rows = [_row(run, speed, places) for run in planned.runs]
    document = {
        "study": question.name,
        "question": question.question,
        "data": data,
        "runs": rows,
        "total": {**_total(planned, rows, speed, places), "workers": sized(planned).workers},
        "shortfall": None,
        "outlook": None,
    }
    if outlook:
        # The law is supposed as an earlier fit of the study found it, where the points identified all of it.
        before = read_fit(folder / "studies" / question.name / "report" / "fit.json") or {}
        same = (before.get("law"), before.get("question")) == (question.law, question.question)
        estimates = dict(before["estimates"]) if same and before.get("not_identified") == [] else {}
        own = [(row, run.experiment.cost.shape.vocabulary) for row, run in zip(rows, planned.runs) if not row["beside"]]
        of_ladder, vocabularies = zip(*own)
        document["shortfall"] = shortfall(question, planned.fitted)
        document["outlook"] = predicted_interval(question, of_ladder, estimates, vocabularies)
    return document


def _row(run: Run, speed: Speed | None, places: Sequence[Elsewhere]) -> dict[str, Any]:
    """The costs of a run. Time and money of a branch are those of its own steps."""
    experiment = run.experiment
    evaluation, precision, there = evaluating(experiment), experiment.config["trainer.precision"], {}
    flops = run.flops + evaluation
    for place in places:
        parts = place.memory(experiment)
        fits = sum(parts.values()) <= place.device.memory
        there[place.name] = {**place.costs(place.seconds(flops, precision)), "bytes": parts, "fits": fits}
    return {
        "run": run.run,
        "name": run.name,
        "held_out": run.held_out and not run.point.get("beside"),
        "beside": bool(run.point.get("beside")),
        "trunk": None if run.trunk is None else {"run": run.trunk.run, "step": run.trunk.step},
        **run.point,
        "steps": run.steps,
        "warmup": warmup_steps(experiment.schedule, run.steps),
        "evaluations": len(experiment.evaluated),
        "windows": dict(zip(("before_end", "at_end"), experiment.windows)),
        "C_evaluation": evaluation,
        "flops_left": run.flops,
        "seconds": None if speed is None else _seconds(speed, experiment, flops),
        "bytes": footprint(run),
        **there,
    }


def evaluating(experiment: Experiment) -> float:
    """FLOPs of a run's evaluations."""
    tokens = sum(experiment.evaluated.values()) * experiment.row_tokens
    return FORWARD * tokens * experiment.cost.flops_train_per_token


def _seconds(speed: Speed, experiment: Experiment, flops: float) -> float:
    """Seconds on this machine, of which one worker trains the run."""
    step = step_flops(experiment)
    return speed.seconds(step) * flops / step


def _total(
    plan: Plan, rows: Sequence[dict[str, Any]], speed: Speed | None, places: Sequence[Elsewhere]
) -> dict[str, Any]:
    """The whole study: its runs and the trunks they share, and what sharing them saves."""
    trunks = list(plan.trunks.values())
    shared = sum(trunk.flops for trunk in trunks)
    flops = sum(row["C"] for row in rows)
    spent = sum(row["flops_left"] for row in rows) + shared
    document: dict[str, Any] = {
        "runs": len(rows),
        "held_out": sum(row["held_out"] for row in rows),
        "beside": sum(bool(row["beside"]) for row in rows),
        "trunks": len(trunks),
        "C": spent,
        "C_without_trunks": flops,
        "C_evaluation": sum(row["C_evaluation"] for row in rows),
        "saved": 1 - spent / flops,
        "bytes": max(row["bytes"] for row in rows),
    }
    if speed is not None:
        of_trunks = sum(_seconds(speed, trunk.experiment, trunk.flops) for trunk in trunks)
        document |= {"seconds": sum(row["seconds"] for row in rows) + of_trunks, "busy": speed.busy}
    for place in places:
        there = [row[place.name] for row in rows]
        precision = plan.runs[0].experiment.config["trainer.precision"]
        document[place.name] = {
            **place.costs(sum(row["seconds"] for row in there) + place.seconds(shared, precision)),
            "fits": all(row["fits"] for row in there),
            "bytes": max(sum(row["bytes"].values()) for row in there),
            "devices": place.devices,
            "utilisation": place.utilisation,
            "source": place.device.source,
        }
    return document


def choose_scale(source: Source, at: str | None, words: Sequence[str], workers: int | None) -> tuple[Plan, str | None]:
    """The plan of a study, and why it is smaller than was asked for, where it is.

    A study keeps the scale with which it started: the machine is timed only before the first run.
    """
    question = read(source, at, words)
    planned = plan(question, words)
    if question.minutes is None or at is not None or torch.cuda.is_available():
        return planned, None
    ledger = planned.ledger()
    if question.name in ledger.studies():
        is_small, why = ledger.plan(question.name)["study"]["at"] == SMALL, "it was started so"
    else:
        speed = calibrate([run.experiment for run in planned.runs])
        if speed is None:
            return planned, None
        rows = [_row(run, speed, ()) for run in planned.runs]
        minutes = _total(planned, rows, speed, ())["seconds"] / sized(planned, workers).workers / 60
        is_small, busy = minutes > question.minutes, ", busy as it is," if speed.busy else ""
        why = (
            f"this machine{busy} would take {minutes:.0f} minutes for the whole, and {question.minutes:g} are promised"
        )
    if not is_small:
        return planned, None
    smaller = plan(replace(read(source, SMALL, words), name=question.name), words)
    return smaller, f"a smaller grid: {why}"
