"""The unit of a loss: nats per token, or perplexity and bits, which are converted where the unit is stated."""

from __future__ import annotations

import re

import numpy as np

from scaling.errors import ScalingError

NATS = "nats per token"
LARGEST = 14.0
"""Nats per token beyond ln of a vocabulary of a million: the median run is worse than a uniform guess."""

UNITS = {
    "perplexity": re.compile(r"\b(perplexity|ppl)\b"),
    "bits per token": re.compile(r"\b(bits?[ /](per |a )?token|bpt)\b"),
    "bits per byte": re.compile(r"\b(bits?[ /](per |a )?(byte|character)|bpb|bpc)\b"),
}


def loss_unit(text: str) -> str | None:
    """The unit other than nats that a statement or a column's name gives."""
    words = re.sub(r"[_\-./]+", " ", text.casefold())
    if re.search(r"\bnats?\b", words):
        return None
    return next((name for name, pattern in UNITS.items() if pattern.search(words)), None)


def in_nats(loss: np.ndarray, stated: str, source: str = "") -> tuple[np.ndarray, str]:
    """The loss in nats, and how it came about, from the unit that a statement gives."""
    other_unit = loss_unit(stated)
    if other_unit is None:
        return loss, stated
    if other_unit == "perplexity":
        low = loss[np.isfinite(loss)]
        if len(low) and low.min() < 1:
            raise ScalingError(
                "is no perplexity, which is 1 or more",
                file=source or None,
                key="loss",
                value=float(low.min()),
                fix="write --define loss=nats_per_token if it is the logarithm",
            )
        with np.errstate(all="ignore"):
            return np.log(loss), f"{NATS}, the logarithm of the {stated}"
    per = other_unit.removeprefix("bits ")
    return loss * np.log(2.0), f"nats {per}, ln 2 times the {stated.replace('_', ' ')}"


def unit_of_term(unit: str, definition: str) -> str:
    """A parameter's unit where the loss is defined so: per byte and not per token."""
    return unit.replace("per token", "per byte") if definition.startswith("nats per byte") else unit


def refuse_unlikely_nats(loss: np.ndarray, column: str, source: str = "") -> None:
    """Refuse a loss without a stated unit whose column's name or size is not that of nats."""
    finite = loss[np.isfinite(loss)]
    named = loss_unit(column)
    median = float(np.median(finite)) if len(finite) else 0.0
    if named is None and median <= LARGEST:
        return
    what = (
        f"the column {column} is {named} by its name"
        if named
        else f"the median is {median:.4g}: more than nats per token can be"
    )
    likely = (named or "perplexity").replace(" ", "_")
    raise ScalingError(
        what,
        file=source or None,
        key="loss",
        fix=f"write --define loss={likely} to convert it, or --define loss=nats_per_token",
    )
