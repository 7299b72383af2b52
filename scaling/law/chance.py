"""The score of guessing, where the table of points states it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scaling.errors import ScalingError
from scaling.law.forms import Form
from scaling.law.forms.composed import PREFIX, Composed
from scaling.law.forms.constrained import Bounds
from scaling.law.points import Points

CHANCE, OPTIONS = "chance", "options"
SMALLEST = 1e-6
"""The least distance from chance to the upper level of a score."""


def known_chance(form: Form, points: Points) -> dict[str, float]:
    """The law's parameter of chance at the value of the column `chance`, or at one over that of `options`.

    Nothing where the law has no such parameter or the table no such column.
    """
    task, prefix = (form.task, PREFIX) if isinstance(form, Composed) else (form, "")
    name = next((name for name in (CHANCE, OPTIONS) if name in points), None)
    if task.chance is None or name is None:
        return {}
    values = np.unique(points.numbers(name))
    if len(values) > 1:
        raise ScalingError(
            f"has {len(values)} values, and a law of a task has one chance level",
            file=points.source or None,
            key=name,
            fix=f"choose one task by --where '{name}={values[0]:g}'",
        )
    chance = float(values[0]) if name == CHANCE else 1.0 / float(values[0])
    if not 0.0 <= chance < 1.0:
        raise ScalingError(
            "is not 0 or more and below 1", file=points.source or None, key=name, value=chance, fix="write 0.25 for 25%"
        )
    return {prefix + task.chance: 1.0 - chance if task.target == "error" else chance}


def upper_level(form: Form, fixed: Mapping[str, float]) -> dict[str, Bounds]:
    """Bounds that keep the upper level of a score at 1 or below, where its chance level is held and its height free."""
    task, prefix = (form.task, PREFIX) if isinstance(form, Composed) else (form, "")
    if task.height is None or task.chance is None:
        return {}
    chance, height = prefix + task.chance, prefix + task.height
    return {} if chance not in fixed or height in fixed else {height: (SMALLEST, 1.0 - fixed[chance])}
