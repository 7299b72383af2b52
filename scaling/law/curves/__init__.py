"""Whole training curves: a law over the size, the tokens and the schedule, fitted to every logged loss."""

from scaling.law.curves.complete import complete
from scaling.law.curves.curve import Curve
from scaling.law.curves.fit import CurveFit, fit_curves
from scaling.law.curves.optimal_schedule import BestSchedule, best_schedule
from scaling.law.curves.read import read_curves

__all__ = ["BestSchedule", "Curve", "CurveFit", "best_schedule", "complete", "fit_curves", "read_curves"]
