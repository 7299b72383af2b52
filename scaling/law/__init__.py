"""Scaling laws: fit them, bound them, predict and design with them. numpy and scipy alone."""

from scaling.law.fit import Fit, fit
from scaling.law.forms import LAWS, Form, Parameter, named
from scaling.law.objective import Absolute, Huber, LogAbsolute, LogHuber, LogSquared, Objective, Squared

__all__ = [
    "LAWS",
    "Absolute",
    "Fit",
    "Form",
    "Huber",
    "LogAbsolute",
    "LogHuber",
    "LogSquared",
    "Objective",
    "Parameter",
    "Squared",
    "fit",
    "named",
]
