"""A goal: what a study is to bound, and how narrowly. `E ± 0.01`, `loss at C=1e15 ± 0.5%`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from scaling.errors import ScalingError, nearest
from scaling.law.autodiff import Dual
from scaling.law.forms import Form
from scaling.law.forms.form import Seeds
from scaling.law.joint import VARIANT, Joint
from scaling.law.parse_number import parse_number
from scaling.laws.intervals import Interval
from scaling.laws.optimum import Budget, optimal_loss
from scaling.laws.problem import Quantity, derived, parameter, prediction

WRITTEN = "'E ± 0.01', 'loss at C=1e15 ± 0.5%' or 'loss of B - A at N=1e6 D=2e7 ± 0.01'"
_GOAL = re.compile(r"(?P<what>.+?)\s*(?:±|\+/?-)\s*(?P<width>[^%\s]+)\s*(?P<percent>%?)\s*")
_PREDICTION = re.compile(r"(?P<target>\w+)(?:\s+of\s+(?P<first>.+?)\s+[-−]\s+(?P<second>.+?))?\s+at\s+(?P<place>.+)")

Unit = Literal["absolute", "relative"]


@dataclass(frozen=True)
class Goal:
    """Half the width that the interval of a quantity is to have: in its own unit, or relative to its estimate.

    Without a `place` the quantity is a parameter, or what the law derives from its parameters. `between` are two
    variants, whose difference, the first less the second, is the quantity.
    """

    text: str
    what: str
    half_width: float
    unit: Unit = "absolute"
    place: Mapping[str, float] = field(default_factory=dict)
    between: tuple[str, str] | None = None

    def quantity(self, form: Form) -> Quantity:
        """The quantity under a law; refused where the law does not know it."""
        if not self.place:
            if self.what in form.derived:
                return derived(self.what, form.derived[self.what])
            if self.what not in form.parameter_names:
                raise self._refused(f"{form.name} has no {self.what!r}", nearest(self.what, _names(form)))
            return parameter(form, self.what)
        if self.what != form.target:
            raise self._refused(f"{form.name} predicts no {self.what!r}", f"it predicts {form.target}")
        if self.between is not None:
            return self._difference(form)
        if isinstance(form, Joint):
            raise self._refused("the study compares rows", "name two of them, as in 'loss of B - A at N=1e6 D=2e7'")
        if set(self.place) == {"C"} and "C" not in form.inputs:
            return optimal_loss(form, Budget(self.place["C"]))
        return prediction(form, self._columns(form.inputs, form.name))

    def reached(self, interval: Interval) -> bool:
        """Whether an interval is narrow enough."""
        return self.width_of(interval) <= self.half_width

    def width_of(self, interval: Interval) -> float:
        """Half the width of an interval in the goal's unit; infinite where an end is open."""
        half = 0.5 * (interval.high - interval.low)
        return half if self.unit == "absolute" else half / abs(interval.estimate)

    def spelled(self, half_width: float) -> str:
        """A half-width in the goal's unit, for people: `± 0.012`, `± 0.61%`."""
        if half_width == float("inf"):
            return "an open interval"
        return f"± {half_width:.3g}" if self.unit == "absolute" else f"± {100 * half_width:.3g}%"

    @staticmethod
    def finite(half_width: float) -> float | None:
        """For a document: None where an end is open."""
        return half_width if half_width < float("inf") else None

    def _columns(self, needed: tuple[str, ...], name: str) -> Mapping[str, float]:
        for column in self.place:
            if column not in needed:
                raise self._refused(f"{name} has no column {column!r}", nearest(column, needed))
        if absent := [column for column in needed if column not in self.place]:
            raise self._refused(f"{name} is a law of {', '.join(needed)}", f"add {absent[0]}=…")
        return self.place

    def _difference(self, form: Form) -> Quantity:
        assert self.between is not None
        if not isinstance(form, Joint):
            raise self._refused("the study compares no rows", "leave out 'of …', or study a table")
        for variant in self.between:
            if variant not in form.variants:
                raise self._refused(f"the study has no row {variant!r}", nearest(variant, form.variants))
        columns = self._columns(form.law.inputs, form.law.name)
        one, other = (
            prediction(form, {**columns, VARIANT: float(form.variants.index(variant))}) for variant in self.between
        )

        def formula(law: Form, theta, seeds: Seeds) -> Dual:
            return one.formula(law, theta, seeds) - other.formula(law, theta, seeds)

        return Quantity(self.text.partition("±")[0].strip(), formula, "linear")

    def _refused(self, what: str, fix: str | None) -> ScalingError:
        return ScalingError(what, key="--adaptive", value=self.text, fix=fix)


def parse_goal(text: str) -> Goal:
    """The goal that a person wrote."""

    def refused(what: str) -> ScalingError:
        return ScalingError(what, key="--adaptive", value=text, fix=f"write it as {WRITTEN}")

    match = _GOAL.fullmatch(text.strip())
    if match is None:
        raise refused("expected a quantity, ± and half the width that its interval is to have")
    width = parse_number(match["width"])
    if width is None or not 0 < width < float("inf"):
        raise refused("expected a width above 0")
    unit: Unit = "relative" if match["percent"] else "absolute"
    width = width / 100 if match["percent"] else width
    at = _PREDICTION.fullmatch(match["what"])
    if at is None:
        if not re.fullmatch(r"\w+", match["what"]):
            raise refused("expected one parameter, or a loss at a size")
        return Goal(text, match["what"], width, unit)
    place: dict[str, float] = {}
    for word in at["place"].split():
        name, sign, number = word.rstrip(",").partition("=")
        value = parse_number(number) if sign else None
        if value is None or not 0 < value < float("inf"):
            raise refused(f"expected NAME=NUMBER, not {word!r}")
        place[name] = value
    between = (at["first"].strip(), at["second"].strip()) if at["first"] else None
    if between is not None and unit == "relative":
        raise refused("a difference may be zero, so its width is no percentage")
    return Goal(text, at["target"], width, unit, place, between)


def _names(form: Form) -> list[str]:
    return [*form.parameter_names, *form.derived]
