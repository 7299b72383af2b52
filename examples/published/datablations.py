"""Muennighoff et al. 2023: models trained on repeated data, and the two constants R_D* and R_N* of their law."""

from __future__ import annotations

from math import exp
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from scaling.laws.catalogue import named
from scaling.laws.fit import FittedLaw, fit, predict
from scaling.laws.points import Points, load_points
from scaling.laws.problem import named_objective

CREDIT = (
    "Muennighoff et al. 2023, Scaling Data-Constrained Language Models, arXiv 2305.16264; "
    "points from github.com/huggingface/datablations at 1370131 (Apache-2.0)"
)
ONCE = {"E": exp(0.6254804), "A": exp(6.255414), "B": exp(7.3049974), "alpha": 0.3526596, "beta": 0.3526596}
"""The law for data that are seen once. The paper fits it first and then fixes it (single precision in its code)."""
R_D, R_N, OBJECTIVE, R2 = 15.387756, 5.309743, 0.015825936570763588, 0.7722046084968408
TIGHTER = {"R_D": 15.372, "R_N": 5.315, "objective": 0.0158259321}
"""The optimum; the published optimiser, in single precision, stopped a little before it."""
HUBER = named_objective("log_huber", 1e-3)


def points(subset: str = "fit") -> Points:
    """Return the 182 runs of the published fit, or all 296 (`subset="all"`)."""
    table = {"fit": "datablations_runs_182_fit_subset.csv", "all": "datablations_runs.csv"}[subset]
    return load_points(
        Path(__file__).parent / "tables" / table,
        define={
            "N": "all parameters",
            "D": "tokens, repetitions counted",
            "U": "unique tokens",
            "loss": "validation loss, nats per token",
            "tokenizer": "GPT-2",
        },
        name=f"datablations, {subset}",
    )


def law(table: Points) -> FittedLaw:
    """Fit only R_D* and R_N*, as the paper does: the sum of log-Huber penalties."""
    return fit("data_constrained", table, objective=HUBER, fixed=ONCE)


def nearest_optimum(table: Points, r_d: float, r_n: float) -> dict[str, float]:
    """Return the constants at the optimum nearest to the given constants; it need not be the lowest optimum."""

    def cost(logs: np.ndarray) -> float:
        return objective_at(table, {**ONCE, "R_D": exp(logs[0]), "R_N": exp(logs[1])})

    optimum = minimize(cost, np.log([r_d, r_n]), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-17})
    return {**ONCE, "R_D": exp(optimum.x[0]), "R_N": exp(optimum.x[1])}


def objective_at(table: Points, estimates: dict[str, float]) -> float:
    """Return the sum of log-Huber penalties at these constants."""
    return float(HUBER.penalty(np.log(_predicted(table, estimates)) - np.log(table["loss"])).sum())


def r_squared(table: Points, estimates: dict[str, float]) -> float:
    """Return the fraction of the variance of the loss that these constants explain."""
    loss = table["loss"]
    return float(1 - ((loss - _predicted(table, estimates)) ** 2).sum() / ((loss - loss.mean()) ** 2).sum())


def _predicted(table: Points, estimates: dict[str, float]) -> np.ndarray:
    form = named("data_constrained")
    theta = np.array([estimates[name] for name in form.parameter_names])
    return predict(form, theta, {name: table[name] for name in form.inputs})
