"""Scaling laws: fit them, bound them, predict and design with them, by numpy and scipy; a `Fit` has pandas tables."""

from scaling.laws.catalogue import LAWS, laws, named
from scaling.laws.compare import Exponent, aicc, compare, exponents, fit_joint
from scaling.laws.design import design, expected_interval
from scaling.laws.examine import Fit
from scaling.laws.fit import FittedLaw, fit, intervals, predict
from scaling.laws.intervals import Interval
from scaling.laws.law import Law, Parameter, composed
from scaling.laws.optimum import optimal
from scaling.laws.points import Points
from scaling.laws.predict import Prediction, TwoStep, fit_two_steps, predict_runs
from scaling.laws.problem import Objective, Quantity, derived, named_objective, parameter, prediction

__all__ = [
    "LAWS",
    "Exponent",
    "Fit",
    "FittedLaw",
    "Interval",
    "Law",
    "Objective",
    "Parameter",
    "Points",
    "Prediction",
    "Quantity",
    "TwoStep",
    "aicc",
    "compare",
    "composed",
    "derived",
    "design",
    "expected_interval",
    "exponents",
    "fit",
    "fit_joint",
    "fit_two_steps",
    "intervals",
    "laws",
    "named",
    "named_objective",
    "optimal",
    "parameter",
    "predict",
    "predict_runs",
    "prediction",
]
