"""The options of a fit: which there are, what each law can use, and which values are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaling.errors import ScalingError, nearest

if TYPE_CHECKING:
    from scaling.law.forms import Form
    from scaling.law.forms.formula import Written

OBJECTIVES = ("log_huber", "log_squared", "squared", "huber", "log_absolute", "absolute")
TWO_STEP = "two_step"
TWO_STEPS = "chinchilla,task_sigmoid"
"""The steps of `two_step`."""
METHODS = ("profile", "t", "bootstrap_case", "bootstrap_run", "bootstrap_residual", "none")
APPROACHES = {
    "isoflop_parabola": "Chinchilla's approach 2, minima by parabola",
    "isoflop_akima": "Chinchilla's approach 2, minima by Akima's interpolation",
    "envelope": "Chinchilla's approach 1, the envelope of training curves",
}
AUTO = "auto"
"""In the place of a law: the one of those whose columns the table has that predicts its largest runs best."""
MOST_STARTS = 100_000

DEFAULTS: Mapping[str, Any] = {
    "intervals": "profile",
    "level": 0.95,
    "starts": 1024,
    "seed": 0,
}
FITTING = (
    "hold_out",
    "target",
    "fix",
    "tie",
    "bounds",
    "objective",
    "delta",
    "over",
    "intervals",
    "level",
    "cluster",
    "share",
    "weight",
)
USED_BY = {
    **dict.fromkeys((*FITTING, "starts"), ("law", AUTO)),
    **dict.fromkeys(("fix", "tie", "bounds", "weight"), ("law",)),  # auto knows no parameters, and weighs by cost
    "noise": ("isoflop",),
    "seed": ("law", "isoflop", AUTO),
}
"""Which kinds of law can use an option; an option that is not listed concerns the table, or every kind."""


def law_of(text: str) -> Form | Written | str:
    """A law of the papers, one that a person wrote, or the name of an approach."""
    from scaling.law.forms import Form, is_mixture, laws, named
    from scaling.law.forms.formula import Written, is_formula, read_law

    if text in APPROACHES or text == AUTO:
        return text
    if text == TWO_STEP:
        return law_of(TWO_STEPS)
    if re.fullmatch(r"\s*\w+\s*,\s*\w+\s*", text):
        from scaling.law.forms.composed import Composed

        loss, task = (law_of(name.strip()) for name in text.split(","))
        if not isinstance(loss, Form) or not isinstance(task, Form):
            raise ScalingError("are no two laws", key="law", value=text, fix=f"write {TWO_STEPS}")
        return Composed(loss, task)
    if text.endswith((".yaml", ".yml")):
        return read_law(text)
    if is_formula(text):
        return Written(text)
    by_name = laws()
    if is_mixture(text):
        return named(text)
    if text not in by_name:
        raise ScalingError(
            "is no law", key="law", value=text, fix=nearest(text, [*by_name, AUTO, TWO_STEP, *APPROACHES])
        )
    return by_name[text]


def check(name: str, law: Form | Written | str, given: Mapping[str, Any]) -> None:
    """Refuse what the law cannot use, and values that no law can, before the table is read."""
    kind = "law" if not isinstance(law, str) else law.partition("_")[0]
    for option, kinds in USED_BY.items():
        if given[option] not in (None, (), [], {}) and kind not in kinds:  # 0 is a seed that was given
            raise ScalingError(
                f"{name} cannot use it",
                key=option.replace("_", "-"),
                value=_spelled(given[option]),
                fix="leave it out",
            )
    objective = given["objective"] or getattr(law, "objective", "log_huber")
    method = given["intervals"] or DEFAULTS["intervals"]
    for option, value, choices in (("objective", objective, OBJECTIVES), ("intervals", method, METHODS)):
        if value not in choices:
            raise ScalingError("is not known", key=option, value=value, fix=nearest(value, choices))
    unused = {
        "delta": objective not in ("log_huber", "huber") and f"the objective {objective} has none",
        "level": method == "none" and "no intervals are asked for",
        "seed": kind == "isoflop" and given["noise"] is None and "nothing is random without --noise",
    }
    for option, reason in unused.items():
        if reason and given[option] is not None:
            raise ScalingError(reason, key=option, value=given[option], fix="leave it out")
    ranges = {
        "starts": (1, MOST_STARTS, f"give 1 to {MOST_STARTS:,}, or leave it out for the default"),
        "seed": (0, 2**63, "give a whole number of 0 or more"),
    }
    for option, (low, high, fix) in ranges.items():
        value = given[option]
        if value is not None and not low <= value <= high:
            what = "must be positive" if low == 1 and value < 1 else f"is not {low} to {high:,}"
            raise ScalingError(what, key=option, value=value, fix=fix)
    if given["over"] not in (None, 1.0) and method in ("profile", "t"):
        raise ScalingError(
            "bounds errors that cost alike on both sides",
            key="intervals",
            value=method,
            fix="add --intervals none, or bootstrap_case",
        )
    for option, fix in (
        ("delta", "the papers use 1e-3"),
        ("over", "3 counts overestimates three times"),
        ("noise", "give the standard deviation between seeds"),
    ):
        value = given[option]
        if value is not None and not 0 < value < float("inf"):
            raise ScalingError("must be positive", key=option, value=value, fix=fix)
    if given["level"] is not None and not 0 < given["level"] < 1:
        raise ScalingError("is not between 0 and 1", key="level", value=given["level"], fix="write 0.95 for 95%")
    both = [name for name in ("cluster", "share") if given[name] not in (None, "none")]
    if len(both) > 1:
        what = "points belong together in one way"
        raise ScalingError(what, key="share", value=given["share"], fix="leave out --cluster or --share")
    if method == "bootstrap_run" and not both:
        raise ScalingError(
            "resamples clusters, and none are named", key="intervals", value=method, fix="add --cluster run"
        )


def _spelled(value: Any) -> Any:
    """An option's value as the command line writes it."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={item}" for name, item in value.items())
    if isinstance(value, str | int | float):
        return value
    return " ".join(_spelled(item) for item in value)
