"""Scaling laws: fit them, bound them, predict and design with them. numpy and scipy alone."""

from scaling.law.bootstrap import refit
from scaling.law.fit import Fit, fit
from scaling.law.forms import LAWS, Form, Parameter, named
from scaling.law.interval import Interval, intervals
from scaling.law.objective import Absolute, Huber, LogAbsolute, LogHuber, LogSquared, Objective, Squared
from scaling.law.points import Points
from scaling.law.quantity import Quantity, derived, parameter, prediction

__all__ = [
    "LAWS",
    "Absolute",
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
    "Quantity",
    "Squared",
    "derived",
    "fit",
    "intervals",
    "named",
    "parameter",
    "prediction",
    "refit",
]
