"""Fit a law to whole training curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scaling.errors import ScalingError, nearest

if TYPE_CHECKING:
    from scaling.law.curves import Curve, CurveFit
    from scaling.law.interval import Interval

LAWS = ("multi_power", "annealed_curve")
KIND = {"train": 0, "evaluate": 1}


@dataclass(frozen=True)
class Curves:
    """A law of whole curves with what it predicts. `fit` has its parameters and errors."""

    fit: CurveFit
    held_out: tuple[Curve, ...] = ()
    unfinished: tuple[Curve, ...] = ()
    targets: tuple[dict[str, float], ...] = ()
    level: float = 0.95

    def intervals(self) -> dict[str, Interval]:
        """Of E and the exponents of N and D."""
        names = [name for name in ("E", "alpha", "beta") if name not in self.fit.problem.fixed]
        return self.fit.intervals(names, self.level)

    def complete(self, begun: Curve, steps: Sequence[int] | None = None) -> list[Interval]:
        """The later losses of a run from those that it has logged."""
        from scaling.law.curves import complete

        return complete(self.fit, begun, steps, self.level)

    def best_schedule(self, N: float, D: float) -> Any:
        """The schedule of the lowest predicted loss for a size and a number of tokens, next to the usual ones."""
        from scaling.law.curves import best_schedule

        return best_schedule(self.fit, N, D, self.fit.curves[0].tokens_per_step)

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling fit --curves --json` (docs/json.md)."""
        from scaling.law.curves.fit import mean_error

        fit, sizes = self.fit, self.fit.sizes
        observed, predicted = np.exp(fit.problem.observed), fit.form.predict(fit.theta, fit.problem.columns)
        return {
            "law": fit.form.name,
            "formula": fit.form.formula,
            "citation": fit.form.citation,
            "curves": len(fit.curves),
            "losses": len(observed),
            "estimates": fit.estimates,
            "intervals": {name: interval.to_json() for name, interval in self.intervals().items()},
            "errors": {
                "trunk": sizes.trunk,
                "run": sizes.run,
                "length": sizes.length,
                "evaluation": sizes.evaluation if fit.has(1) else None,
                "training": sizes.training if fit.has(0) else None,
                "by_size": sizes.by_size,
                "by_tokens": sizes.by_tokens,
            },
            "r_squared": fit.r_squared,
            "mean_error": mean_error(observed, predicted),
            "converged": fit.converged,
            "held_out": [self._judged(curve) for curve in self.held_out],
            "completed": [
                {"run": curve.run, "at": curve.share, **self.complete(curve)[0].to_json()} for curve in self.unfinished
            ],
            "schedules": [self._schedule(target) for target in self.targets],
        }

    def _judged(self, curve: Curve) -> dict[str, Any]:
        last = curve.last_evaluation()
        (interval,) = self.complete(curve.at([]), [int(last.steps[0])])
        loss = float(last.losses[0])
        return {"run": curve.run, "N": curve.N, "loss": loss, "predicted": interval.estimate} | {
            "relative_error": interval.estimate / loss - 1.0,
            "covered": interval.covers(loss),
            "interval_run": interval.to_json(),
        }

    def _schedule(self, target: dict[str, float]) -> dict[str, Any]:
        best = self.best_schedule(target["N"], target["D"])
        places = np.linspace(0, len(best.rates) - 1, 21).round().astype(int)
        return {
            "N": target["N"],
            "D": target["D"],
            "loss": best.loss,
            "usual": dict(best.usual),
            "gain": best.gain,
            "rates": [{"step": int(place) + 1, "lr": float(best.rates[place])} for place in places],
        }


def fit_curves(
    source: Any,
    law: str = "multi_power",
    *,
    after: float | None = None,
    where: Sequence[str] = (),
    targets: Sequence[dict[str, float]] = (),
    level: float = 0.95,
    seed: int = 0,
) -> Curves:
    """Fit a law to every logged loss of many runs: the folder of a study, a table of curves, or `Curve` objects.

    `law` is `multi_power` or `annealed_curve`; losses before `after` tokens are left out. Held-out runs are predicted,
    and unfinished ones completed; for each of `targets`, an N and a D, the best schedule is looked for.

        curves = scaling.fit_curves("runs/studies/quickstart")
        curves.fit.estimates["E"], curves.intervals()["E"]
    """
    from scaling.law.curves import fit_curves as fitted

    if law not in LAWS:
        raise ScalingError("is no law of curves", key="law", value=law, fix=nearest(law, LAWS))
    for target in targets:
        if set(target) != {"N", "D"} or min(target.values()) <= 0:
            raise ScalingError("a schedule is for a size and a number of tokens", key="target", fix="write N=1e6 D=2e7")
    curves = read(source, where)
    used = [curve for curve in curves if not curve.held_out]
    held_out = tuple(curve for curve in curves if curve.held_out and (curve.kinds == 1).any())
    found = fitted(used, law, after=after, seed=seed)
    unfinished = tuple(c for c in used if c.is_unfinished and c.run != c.trunk)
    return Curves(found, held_out, unfinished, tuple(targets), level)


def read(source: Any, where: Sequence[str] = ()) -> list[Curve]:
    """The curves of whatever holds them."""
    from scaling.api.fit import read_points
    from scaling.law.curves import Curve, read_curves

    if isinstance(source, str | Path) and Path(source).is_dir():
        if where:
            raise ScalingError("chooses rows of a table", key="where", fix="name the folder of one study")
        return list(_of_study(Path(source)))
    if isinstance(source, Sequence) and not isinstance(source, str) and all(isinstance(c, Curve) for c in source):
        return list(source)
    return read_curves(read_points(source, where=where))


def _of_study(folder: Path) -> Iterator[Curve]:
    """Every trunk and run of a study that has logged something, its schedule from its spec."""
    from scaling.ledger import Ledger
    from scaling.ledger.layout import NAME
    from scaling.studies.record import entered

    root = folder.parent.parent if folder.parent.name == "studies" else folder
    if not (root / NAME).exists():
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
            yield _logged(job, trunk, held_out, entries)


def _sample(logs: Sequence[Sequence[dict[str, Any]]]) -> Any:
    """The number of targets of most evaluations. Evaluations of another number are of another sample: the one at the
    end of a run under `whole_at_end`, whose loss lies off the others by the same amount in every run.
    """
    targets = Counter(entry.get("targets") for log in logs for entry in log if entry["kind"] == "evaluate")
    return max(targets, key=lambda number: (targets[number], number or 0), default=None)


def _logged(job: Any, trunk: str, held_out: bool, entries: Sequence[dict[str, Any]]) -> Curve:
    from scaling.law.curves import Curve

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
