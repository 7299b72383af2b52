"""Scaling laws: fit them, bound them, predict and design with them. numpy and scipy alone."""

from scaling.law.bootstrap import refit
from scaling.law.compare import aicc, average, compare
from scaling.law.design import design, expected_interval, simulated_intervals
from scaling.law.exponents import Exponent, exponents
from scaling.law.fit import Fit, fit, predict
from scaling.law.forms import LAWS, Form, Parameter, laws, named
from scaling.law.forms.composed import Composed
from scaling.law.frontier import optimal
from scaling.law.held_out import largest_scale_out, leave_one_scale_out, predict_held_out
from scaling.law.interval import Interval, intervals
from scaling.law.joint import equivalent_compute, fit_joint, how_variants_differ
from scaling.law.objective import Absolute, Huber, LogAbsolute, LogHuber, LogSquared, Objective, Squared
from scaling.law.points import Points
from scaling.law.predictions import Prediction, predict_runs
from scaling.law.quantity import Quantity, derived, parameter, prediction
from scaling.law.two_step import TwoStep, fit_two_steps

__all__ = [
    "LAWS",
    "Absolute",
    "Composed",
    "Exponent",
    "Fit",
    "Form",
    "Huber",
    "Interval",
    "LogAbsolute",
    "LogHuber",
    "LogSquared",
    "Objective",
    "Parameter",
    "Points",
    "Prediction",
    "Quantity",
    "Squared",
    "TwoStep",
    "aicc",
    "average",
    "compare",
    "derived",
    "design",
    "equivalent_compute",
    "expected_interval",
    "exponents",
    "fit",
    "fit_joint",
    "fit_two_steps",
    "how_variants_differ",
    "intervals",
    "largest_scale_out",
    "laws",
    "leave_one_scale_out",
    "named",
    "optimal",
    "parameter",
    "predict",
    "predict_held_out",
    "predict_runs",
    "prediction",
    "refit",
    "simulated_intervals",
]
