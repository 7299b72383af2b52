"""Numbers and formulas for readers: significant digits alone, Greek letters, raised exponents."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from scaling.reports.markup import Html, join, tag

GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "eta": "η",
}
RAISED = re.compile(r"\^\(([^)]*)\)|\^([-−]?[^\s^)\],;.]+)")
SUPERSCRIPTS = re.compile(r"([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
OF_A_VARIANT = re.compile(r"(.+)\[(.+)\]")
LOWERED = re.compile(r"_([A-Za-z0-9*]+)")


def symbol(name: str) -> Html:
    """A parameter's name as the papers write it; one of a variant, `alpha[GEGLU]`, with the variant after it."""
    if own := OF_A_VARIANT.fullmatch(name):
        return join(symbol(own[1]), f" of {own[2]}")
    stem, _, index = name.partition("_")
    return join(GREEK.get(stem, stem), tag("sub", GREEK.get(index, index)) if index else None)


def formula(text: str) -> Html:
    """`N^-α` and `N_c` with their exponents raised and indices lowered."""
    parts, end = [], 0
    for raised in RAISED.finditer(text):
        parts += [
            _lowered(text[end : raised.start()]),
            tag("sup", _lowered((raised[1] or raised[2]).replace("-", "−"))),
        ]
        end = raised.end()
    return join(*parts, _lowered(text[end:]))


def _lowered(text: str) -> Html:
    pieces = LOWERED.split(text.replace(" - ", " − "))
    return join(*(tag("sub", piece) if place % 2 else piece for place, piece in enumerate(pieces)))


def significant(value: float, low: float | None, high: float | None) -> str:
    """A value with two digits of what its interval leaves open."""
    width = abs(high - low) if low is not None and high is not None else abs(value)
    return rounded(value, width / 10)


def signed_significant(value: float, low: float | None, high: float | None) -> str:
    text = significant(value, low, high)
    return text if text.startswith("−") else f"+{text}"


def ends(interval: Mapping[str, Any]) -> str:
    """`[2.180, 2.213]`; an end that the points do not close is called open."""
    low, high = interval["low"], interval["high"]
    texts = ["open" if end is None else significant(end, low, high) for end in (low, high)]
    return f"[{texts[0]}, {texts[1]}]"


def rounded(value: float, to: float) -> str:
    """To the decimal place of `to`; large and tiny numbers as powers of ten."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, -math.floor(math.log10(to))) if to > 0 else 4
    if abs(value) >= 1e5 or digits > 6:
        return scientific(value)
    return f"{value:,.{digits}f}".replace("-", "−")


def scientific(value: float, digits: int = 2) -> str:
    """`1.3 × 10¹²` in one word of text."""
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa} × 10{raised}".replace("-", "−")


def raised(text: str) -> Html:
    """The same with its raised digits as markup: in large letters few faces have them all."""
    pieces = SUPERSCRIPTS.split(text)
    plain = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "−0123456789")
    return join(*(tag("sup", piece.translate(plain)) if place % 2 else piece for place, piece in enumerate(pieces)))


def percent(share: float) -> str:
    """A fraction in percent with two digits, however small; never `0.00%`."""
    if share == 0:
        return "0%"
    digits = max(0, 1 - math.floor(math.log10(abs(100 * share))))
    return f"{100 * share:.{min(digits, 4)}f}%".replace("-", "−")


def signed(share: float) -> str:
    text = percent(share)
    return text if text.startswith("−") else f"+{text}"
