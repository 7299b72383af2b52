"""Live: the law of a study while its runs go on, with an interval that holds however often one looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.base.errors import ScalingError, plural
from scaling.base.printing import interval
from scaling.laws.intervals import LEVEL, Interval
from scaling.laws.next_run import Goal, interval_of_all_looks, look, parse_goal
from scaling.ledger import Ledger
from scaling.studies.adaptive import Field
from scaling.studies.decisions import Decision
from scaling.studies.plan import Plan
from scaling.studies.progress import finished_loss


@dataclass(frozen=True)
class LiveLaw:
    """A look at the law: `interval` holds at all looks together, `one_look` had this been the only one.

    Where there is none yet, `reason` states why.
    """

    finished: int
    law: str | None = None
    quantity: str | None = None
    interval: Interval | None = None
    one_look: Interval | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "finished": self.finished,
            "law": self.law,
            "quantity": self.quantity,
            "interval": None if self.interval is None else {**self.interval.to_json(), "level": LEVEL},
            "interval_of_one_look": None if self.one_look is None else self.one_look.to_json(),
            "reason": self.reason,
        }

    def __str__(self) -> str:
        if self.one_look is None:
            return f"no interval yet: {self.reason}"
        estimate = f"{self.quantity} = {self.one_look.estimate:.4g} ({self.law}, {plural(self.finished, 'run')})"
        always = "open" if self.interval is None else interval(self.interval.to_json())
        one_look = interval(self.one_look.to_json())
        return f"{estimate}: 95% interval under repeated looks {always}; of one look {one_look}"


def losses_of(ledger: Ledger, plan: Plan) -> dict[str, float]:
    """The losses of the finished runs that the law is fitted to."""
    losses = {run.run: finished_loss(ledger, run.run) for run in plan.runs if not run.held_out}
    return {run: loss for run, loss in losses.items() if loss is not None}


def live_law(plan: Plan, losses: Mapping[str, float], made: Sequence[Decision] = ()) -> LiveLaw:
    """The law of a study with the runs that have finished, by their losses; `made` are its decisions."""
    if plan.question.law is None:
        return LiveLaw(len(losses), reason="the study asks for no law")
    try:
        field = Field(plan, parse_goal(made[0]["goal"]) if made else _goal(plan))
        rows = [place for place, run in enumerate(field.runs) if run.run in losses]
        values = np.array([losses[field.runs[row].run] for row in rows])
        seen = look(field.goal, field.forms, field.candidates, rows, values)
    except ScalingError as error:
        return LiveLaw(len(losses), reason=error.what)
    law = field.forms[0].name
    if seen.interval is None:
        parameters = len(field.forms[0].parameters)
        return LiveLaw(
            len(losses), law, reason=f"{plural(len(losses), 'run')}, and the law has {parameters} parameters"
        )
    # A study ends with all its runs, an adaptive one where its goal is reached.
    end = None if made else range(len(field.runs))
    interval = interval_of_all_looks(field.goal, field.candidates, rows, seen, end)
    return LiveLaw(len(losses), law, field.goal.name, interval, seen.interval)


def _goal(plan: Plan) -> Goal:
    """What a study that names no goal is watched for: the floor of its law, or else the loss of its target."""
    from scaling.laws import named

    form = named(str(plan.question.law))
    floor = next((each.name for each in form.parameters if each.linear and each.scale == "linear"), None)
    if floor is not None:
        return Goal(floor, floor, float("inf"))
    place = dict(plan.question.target)
    if not place:
        largest = max((run.point for run in plan.runs), key=lambda point: point["C"])
        place = {name: float(largest[name]) for name in form.inputs}
    text = " ".join(f"{name}={value:.3g}" for name, value in place.items())
    return Goal(f"{form.target} at {text}", form.target, float("inf"), "absolute", place)
