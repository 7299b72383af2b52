"""The training curves of a study: every trunk and run that has logged something, its schedule from its spec."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.laws.curves import Curve
from scaling.ledger import Ledger, is_ledger
from scaling.studies.record import entered

KIND = {"train": 0, "evaluate": 1}


def curves_of_study(folder: Path) -> Iterator[Curve]:
    """The curves of the study in this folder, or of the one study of this ledger."""
    root = folder.parent.parent if folder.parent.name == "studies" else folder
    if not is_ledger(root):
        raise ScalingError("is no study's folder", file=folder, fix="name runs/studies/NAME, or a table of curves")
    ledger = Ledger.open(root)
    names = ledger.studies() if root == folder else [folder.name]
    if len(names) != 1:
        what = f"holds {len(names)} studies"
        raise ScalingError(what, file=folder, fix="name the folder of one: runs/studies/NAME")
    plan = entered(ledger, names[0], [f"runs={ledger.root}"])
    jobs = [(job, job.run, False) for job in plan.trunks.values()]
    jobs += [(run, run.run if run.trunk is None else run.trunk[0], run.held_out) for run in plan.runs]
    logs = [
        [e for e in ledger.history(job.run) if e.get("kind") in KIND and e.get("loss") is not None] for job, *_ in jobs
    ]
    sample = _sample(logs)
    for (job, trunk, held_out), log in zip(jobs, logs, strict=True):
        entries = [entry for entry in log if entry["kind"] == "train" or entry.get("targets") == sample]
        if entries:
            yield _curve(job, trunk, held_out, entries)


def _sample(logs: Sequence[Sequence[dict[str, Any]]]) -> Any:
    """The number of targets of most evaluations. Evaluations of another number are of another sample: the one at the
    end of a run under `whole_at_end`, whose loss lies off the others by the same amount in every run.
    """
    targets = Counter(entry.get("targets") for log in logs for entry in log if entry["kind"] == "evaluate")
    return max(targets, key=lambda number: (targets[number], number or 0), default=None)


def _curve(job: Any, trunk: str, held_out: bool, entries: Sequence[dict[str, Any]]) -> Curve:
    experiment = job.experiment
    rates = [experiment.optimizer.lr * experiment.schedule.factor(step, experiment.steps) for step in range(job.steps)]
    return Curve(
        getattr(job, "name", job.run),
        float(experiment.cost.parameters_non_embedding),
        np.array([entry["step"] for entry in entries]),
        np.array([float(entry["loss"]) for entry in entries]),
        np.array([KIND[entry["kind"]] for entry in entries]),
        np.array(rates),
        experiment.tokens(job.steps) / job.steps,
        trunk,
        experiment.held_out.fingerprint,
        held_out=held_out,
    )
