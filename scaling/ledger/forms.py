"""Forms: what each document of the ledger holds. A sealed document of another form is as damaged as a torn one.

A form is a type, a test, a list `[form]` of items of one form, or a mapping by key; `key?` may be missing, and `*` is
every key that the form does not name. What a form does not name is allowed: studies and runs keep more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from scaling.ledger.identity import RUN_ID

Form = Any


def misfit(value: Any, form: Form, place: str = "it") -> str | None:
    """The dotted key of the first part that is of another form, None where there is none."""
    return next(_misfits(value, form, place), None)


def _misfits(value: Any, form: Form, place: str) -> Iterator[str]:
    if isinstance(form, Mapping):
        if not isinstance(value, dict):
            yield place
            return
        below = "" if place == "it" else f"{place}."
        named = {key.removesuffix("?") for key in form}
        for key, inner in form.items():
            name = key.removesuffix("?")
            if key == "*":
                for other in value.keys() - named:
                    yield from _misfits(value[other], inner, below + other)
            elif name in value:
                yield from _misfits(value[name], inner, below + name)
            elif not key.endswith("?"):
                yield below + name
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield place
            return
        for index, item in enumerate(value):
            yield from _misfits(item, form[0], f"{place}.{index}")
    elif not (isinstance(value, form) if isinstance(form, type) else form(value)):
        yield place


def maybe(form: Form) -> Form:
    """The form, or null."""
    return lambda value: value is None or misfit(value, form) is None


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def number(value: Any) -> bool:
    """A number that a float holds; the loss of a run that diverged is none, and is written as NaN or infinity."""
    if isinstance(value, float):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**1000


def finite(value: Any) -> bool:
    return number(value) and math.isfinite(value)


def run(value: Any) -> bool:
    return isinstance(value, str) and RUN_ID.fullmatch(value) is not None


def time(value: Any) -> bool:
    """A time with its zone, as people read it."""
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def line(value: Any) -> bool:
    """The line of a piece: its keys, or its kind alone."""
    return isinstance(value, str | dict)


def lines(value: Any) -> bool:
    """A grid, or several."""
    return isinstance(value, dict) or misfit(value, [dict]) is None


LAYOUT: Form = {"version": lambda value: whole(value) and value > 0, "means": lambda value: value in ("link", "create")}
SPEC: Form = {
    "spec": {
        **{key + "?": dict for key in ("data", "optimizer", "train", "trainer", "size", "versions")},
        "start?": {"run?": run, "step?": whole, "folder?": str},
    }
}
CLAIM: Form = {"claimed?": time, "host?": maybe(str), "pid?": lambda value: whole(value) and value > 0}
EXIT: Form = {"outcome?": str, "reason?": maybe(str), "ended?": time, "differences?": dict, "traceback?": str}
CIRCUMSTANCES: Form = {
    **{f"{key}?": maybe(finite) for key in ("tokens_per_second", "seconds", "mfu")},
    **{f"{key}?": maybe(whole) for key in ("ranks", "threads", "cores", "from_step")},
    **{f"{key}?": maybe(str) for key in ("processor", "instructions", "kernels", "device", "host")},
    "versions?": {"*": maybe(str)},
}
RESULT: Form = {
    "attempt": whole,
    "outcome": str,
    "reason?": maybe(str),
    "circumstances?": CIRCUMSTANCES,
    **{f"{key}?": {"*": maybe(finite)} for key in ("N", "C")},
    **{f"{key}?": maybe(number) for key in ("loss", "loss_plain", "loss_text", "entropy", "excess")},
    **{f"{key}?": maybe(number) for key in ("accuracy", "bits_per_byte")},
    **{f"{key}?": maybe(finite) for key in ("score", "invalid")},
    "metrics?": {"*": finite},
    "losses?": {"*": maybe(number)},
    "intervals?": {"*": [finite]},
    **{f"{key}?": maybe(finite) for key in ("step", "best_step", "steps", "tokens", "targets")},  # W&B's are floats
    "loss_by_position?": maybe([maybe(number)]),
}
# What else a finished run's result holds where our trainer wrote it, whose circumstances name the first step.
TRAINED: Form = {
    "loss": number,
    "step": whole,
    "tokens": whole,
    "N": {"non_embedding": whole, "total": whole},
    "C": {"exact": finite},
}
TRUNK: Form = maybe({"run": run, "step": whole})
RUN: Form = {"name": str, "overrides": [str], "held_out": bool, "steps": whole, "flops": finite, "trunk": TRUNK}
QUESTION: Form = {
    "name": str,
    "question": str,
    "base": str,
    "set": dict,
    "grid": lines,
    "held_out?": lines,
    "laws?": [str],
    **{f"{key}?": {"*": finite} for key in ("target", "suppose")},
    "rate?": maybe(line),
    "define?": dict,
    "minutes?": maybe(finite),
    "at?": maybe(str),
}
TRUNKS: Form = [{"run": run, "steps": whole, "flops": finite}]


def optional(form: Mapping[str, Form]) -> Form:
    """The form with every key of it optional."""
    return {key.removesuffix("?") + "?": inner for key, inner in form.items()}


# Any plan of the ledger's; and a study's own, which has all of it.
PLAN: Form = {"runs": [{"run": run, **optional(RUN)}], "trunks?": TRUNKS, "study?": optional(QUESTION)}
STUDY: Form = {"runs": [{"run": run, **RUN}], "trunks": TRUNKS, "study": QUESTION}

END: Form = maybe(number)
INTERVAL: Form = maybe({"estimate": number, "low": END, "high": END, "level": number})
PREDICTION: Form = {
    "run": run,
    "registered": time,
    "predicted": finite,
    "level": number,
    "law": str,
    "formula": str,
    "interval_mean": INTERVAL,
    "interval_run": INTERVAL,
    "estimates": {"*": number},
    "row": {"*": number},
    "points": {"source": str, "fitted": whole, "sha256": str},
    "version": str,
}


def of_plan(plan: dict[str, Any]) -> str | None:
    """What is wrong with the form of a plan."""
    return misfit(plan, PLAN)


def of_study(plan: dict[str, Any]) -> str | None:
    """What is wrong with the form of a study's plan: also a trunk without a branch, or a branch without its trunk."""
    wrong = misfit(plan, STUDY)
    if wrong is None:
        trunks = {run["run"] for run in plan["trunks"]}
        branches = {run["trunk"]["run"] for run in plan["runs"] if run["trunk"]}
        wrong = "trunks" if trunks != branches else None
    return wrong


def of_run(document: dict[str, Any], form: Form, name: str) -> str | None:
    """What is wrong with the form of a run's document; its key `run`, where it is another run's."""
    return misfit(document, form) or ("run" if document.get("run", name) != name else None)


def of_result(result: dict[str, Any], name: str) -> str | None:
    """What is wrong with the form of a run's result."""
    wrong = of_run(result, RESULT, name)
    if wrong is None and result["outcome"] == "finished" and "from_step" in result.get("circumstances", {}):
        wrong = misfit(result, TRAINED)
    return wrong
