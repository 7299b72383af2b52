"""Models trained on repeated data: the data-constrained law's two constants, R_D* and R_N*."""

from __future__ import annotations

from math import exp
from typing import Any

import numpy as np

from scaling.law.columns import from_rows
from scaling.law.fit import Fit, fit, predict
from scaling.law.forms import named
from scaling.law.objective import LogHuber
from scaling.law.points import Points
from scaling.published.credit import Credit, Reproduction, rows

CREDIT = Credit(
    "Muennighoff et al. 2023, Scaling Data-Constrained Language Models",
    "2305.16264",
    "github.com/huggingface/datablations",
    "1370131",
    "Apache-2.0",
)

ONCE = {"E": exp(0.6254804), "A": exp(6.255414), "B": exp(7.3049974), "alpha": 0.3526596, "beta": 0.3526596}
"""The law of data seen once, which the paper fits first and then holds (single precision in its code)."""

R_D, R_N, OBJECTIVE, R2 = 15.387756, 5.309743, 0.015825936570763588, 0.7722046084968408
TIGHTER = {"R_D": 15.372, "R_N": 5.315, "objective": 0.0158259321}
"""The optimum that the published optimiser, in single precision, stopped a little short of."""


def points(subset: str = "fit") -> Points:
    """The 182 runs of the published fit, or all 296 (`subset="all"`)."""
    table = {"fit": "datablations_runs_182_fit_subset.csv", "all": "datablations_runs.csv"}[subset]
    return from_rows(
        rows(table),
        define={
            "N": "all parameters",
            "D": "tokens, repetitions counted",
            "U": "unique tokens",
            "loss": "validation loss, nats per token",
            "tokenizer": "GPT-2",
        },
        source=f"datablations, {subset}",
    )


def law(table: Points) -> Fit:
    """The paper's fit: log-Huber, summed, of R_D* and R_N* alone."""
    return fit("data_constrained", table, objective=LogHuber(1e-3), fixed=ONCE)


def reproduce() -> list[Reproduction]:
    table = points()
    theirs = {**ONCE, "R_D": R_D, "R_N": R_N}
    near = nearest_optimum(table, R_D, R_N)
    fitted = law(table)
    lower = f"a lower optimum, at R_D* {fitted.estimates['R_D']:.1f} and R_N* {fitted.estimates['R_N']:.2f}"
    at, local, best = "at the published constants", "of the nearest optimum", "of the lowest optimum"

    def compared(quantity: str, published: float, ours: float, tolerance: float, **options: Any) -> Reproduction:
        return Reproduction(fitted.form.name, "datablations", quantity, published, ours, tolerance, **options)

    return [
        compared(f"objective {at}", OBJECTIVE, objective_at(table, theirs), 1e-8),
        compared(f"R² {at}", R2, r_squared(table, theirs), 1e-6),
        compared(f"R_D* {local}", TIGHTER["R_D"], near["R_D"], 5e-4),
        compared(f"R_N* {local}", TIGHTER["R_N"], near["R_N"], 5e-4),
        compared(f"objective {local}", TIGHTER["objective"], objective_at(table, near), 5e-11),
        compared(f"objective {best}", OBJECTIVE, fitted.objective, 0.0, relation="at most", remark=lower),
        compared(f"1 - R² {best}", 1 - R2, 1 - r_squared(table, fitted.estimates), 0.0, relation="at most"),
    ]


def nearest_optimum(table: Points, r_d: float, r_n: float) -> dict[str, float]:
    """Downhill from given constants to the nearest optimum, which need not be the lowest."""
    from scipy.optimize import minimize

    def cost(logs: np.ndarray) -> float:
        return objective_at(table, {**ONCE, "R_D": exp(logs[0]), "R_N": exp(logs[1])})

    optimum = minimize(cost, np.log([r_d, r_n]), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-17})
    return {**ONCE, "R_D": exp(optimum.x[0]), "R_N": exp(optimum.x[1])}


def objective_at(table: Points, estimates: dict[str, float]) -> float:
    """The summed log-Huber penalty of given constants, without a fit."""
    return float(LogHuber(1e-3).penalty(np.log(_predicted(table, estimates)) - np.log(table["loss"])).sum())


def r_squared(table: Points, estimates: dict[str, float]) -> float:
    """The fraction of the variance of the loss that given constants explain."""
    loss = table["loss"]
    return float(1 - ((loss - _predicted(table, estimates)) ** 2).sum() / ((loss - loss.mean()) ** 2).sum())


def _predicted(table: Points, estimates: dict[str, float]) -> np.ndarray:
    form = named("data_constrained")
    theta = np.array([estimates[name] for name in form.parameter_names])
    return predict(form, theta, {name: table[name] for name in form.inputs})
