"""The account of a fit: one plain document with the estimates and everything a reader needs to doubt them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.fit_report.checklist import checklist, missing
from scaling.law.back_test import back_test
from scaling.law.compare import HeldOut, judge
from scaling.law.envelope import Envelope
from scaling.law.fit import Fit
from scaling.law.frontier import FLOPS, optimal, optimal_size
from scaling.law.interval import Method, intervals
from scaling.law.isoflop import IsoFlop
from scaling.law.points import Points
from scaling.law.power_law_fit import Allometry
from scaling.law.predictions import predict_runs
from scaling.law.row_condition import condition, is_condition


def hold_out(points: Points, wanted: str) -> tuple[Points, Points]:
    """The points to fit and those held out: `N>=1e9`, or `N` alone for the largest N."""
    if is_condition(wanted):
        mask = condition(wanted, "hold-out").mask(points.columns, "hold-out", points.source)
    else:
        column = points.numbers(wanted.strip())
        mask = column == column.max()
    if mask.all() or not mask.any():
        share = "every run" if mask.all() else "no run"
        raise ScalingError(f"holds out {share}", key="hold-out", value=wanted, mend="choose another bound")
    return points.hold_out(mask)


def account(
    found: Fit,
    *,
    method: Method | None = "profile",
    level: float = 0.95,
    held_out: Points | None = None,
    targets: Sequence[Mapping[str, float]] = (),
    stated: Mapping[str, str] | None = None,
    with_back_test: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """The document of a fitted law. `method` is that of the intervals; without a degree of freedom there are none."""
    if found.degrees_of_freedom < 1:
        method = None
    known = {} if method is None else intervals(found, method, level=level, seed=seed)
    along = [target for target in targets if _is_budget(found, target)]
    rows = [_row(found, target) for target in targets if target not in along]
    tested = None if held_out is None else _tested(judge(found, held_out, level, method, seed=seed), held_out)
    answers = checklist(found, intervals=known, held_out=tested, stated=stated)
    document = found.to_json({name: interval.to_json() for name, interval in known.items()}, tested)
    document["points"] = _counted(found.points)
    document["predictions"] = [
        {**one.row, found.form.target: one.estimate, **one.to_json()}
        for one in predict_runs(found, rows, level, method, seed=seed)
    ]
    document["back_test"] = [test.to_json() for test in back_test(found, level)] if with_back_test else []
    document["optima"] = [_optimum(found, target["C"], method, level, seed) for target in along]
    document["checklist"] = {"answers": [asdict(answer) for answer in answers], "missing": list(missing(answers))}
    return _finite(document)


def _is_budget(found: Fit, target: Mapping[str, float]) -> bool:
    """C alone, under a law of N and D, asks for the compute-optimal run."""
    return set(target) == {"C"} and set(found.form.inputs) == {"N", "D"}


def _optimum(found: Fit, compute: float, method: Method | None, level: float, seed: int) -> dict[str, Any]:
    """The best run of a budget. Its loss is of the law's mean; a new run of this size has an interval of its own."""
    if method is not None:
        best = optimal(found, compute, method=method, level=level)
        row = {"N": best.N.estimate, "D": best.D.estimate}
        (new,) = predict_runs(found, [row], level, method, seed=seed)
        return {"C": compute, **{name: getattr(best, name).to_json() for name in ("N", "D", "loss")}, **new.to_json()}
    size = float(optimal_size(found.form, compute).of(found.form, found.theta))
    data = compute / (FLOPS * size)
    (new,) = predict_runs(found, [{"N": size, "D": data}], level, None)
    plain = {"N": size, "D": data, "loss": new.estimate}
    return {"C": compute, **{name: {"estimate": value} for name, value in plain.items()}, **new.to_json()}


def _row(found: Fit, target: Mapping[str, float]) -> dict[str, float]:
    """The columns of a target; what is not a column of the law is refused with the nearest."""
    for name in target:
        if name not in found.form.inputs:
            raise ScalingError(
                f"{found.form.name} has no column {name!r}", key="target", mend=nearest(name, found.form.inputs)
            )
    absent = [name for name in found.form.inputs if name not in target]
    if absent:
        raise ScalingError(
            f"{found.form.name} needs {', '.join(found.form.inputs)}", key="target", mend=f"add {absent[0]}=…"
        )
    return {name: float(target[name]) for name in found.form.inputs}


def _tested(judged: HeldOut, held_out: Points) -> dict[str, Any]:
    """Each held-out run next to its prediction."""
    runs = [str(run) for run in held_out["run"]] if "run" in held_out else [None] * len(held_out)
    target = judged.fit.form.target
    rows = zip(runs, judged.predictions, judged.observed, judged.relative_errors, strict=True)
    return {
        **judged.to_json(),
        "points": [
            {
                "run": run,
                **one.row,
                target: float(loss),
                "predicted": one.estimate,
                "relative_error": float(error),
                **one.to_json(),
                "covered": None if one.run is None else bool(one.run.covers(loss)),
            }
            for run, one, loss, error in rows
        ],
    }


def account_of_minima(points: Points, size: IsoFlop, data: IsoFlop) -> dict[str, Any]:
    """The document of approach 2: the growth of N* and D* with compute, and each budget's minimum or its refusal."""
    pairs = list(zip(size.minima, data.minima, strict=True))
    return _finite(
        {
            **_growth(f"isoflop_{size.kind}", size.law, data.law, size.interval(), data.interval(), "t"),
            "points": _counted(points),
            "minima": [
                {
                    "C": here.C,
                    "N": here.position,
                    "D": there.position,
                    "loss": here.loss,
                    "refused": here.refused or there.refused,
                }
                for here, there in pairs
            ],
        }
    )


def account_of_envelope(points: Points, found: Envelope) -> dict[str, Any]:
    """The document of approach 1."""
    size, data = found.N_law, found.D_law
    return _finite(
        {
            **_growth("envelope", size, data, size.interval(), data.interval(), "jackknife"),
            "points": _counted(points),
            "budgets": {"accepted": len(found.C), "refused": found.refused},
        }
    )


def _growth(
    name: str,
    size: Allometry,
    data: Allometry,
    of_size: tuple[float, float],
    of_data: tuple[float, float],
    method: str,
) -> dict[str, Any]:
    estimates = {
        "a": size.exponent,
        "b": data.exponent,
        "N_coefficient": size.coefficient,
        "D_coefficient": data.coefficient,
    }
    bounds = {"a": of_size, "b": of_data}
    return {
        "law": name,
        "formula": "N* = N_coefficient C^a, D* = D_coefficient C^b",
        "citation": "Hoffmann et al. 2022, arXiv 2203.15556",
        "estimates": estimates,
        "intervals": {
            key: {"estimate": estimates[key], "low": low, "high": high, "level": 0.95, "method": method}
            for key, (low, high) in bounds.items()
        },
        "objective": None,
        "starts_agreeing": None,
        "held_out": None,
    }


def _counted(points: Points) -> dict[str, Any]:
    return {
        "source": points.source,
        "fitted": len(points),
        "held_out": points.held_out,
        "used": points.used,
        "excluded": points.excluded,
        "failed": points.failed,
        "planned": points.planned,
        "count": points.count(),
        "definitions": dict(points.definitions),
        "pooled": points.pooled(),
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity and no nan: what is not finite is null."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.item() if isinstance(value, np.generic) else value
