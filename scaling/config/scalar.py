"""What an unquoted word means: the core schema of YAML 1.2, read as a person means it.

    null ~ None (nothing)   no value         true True TRUE false …   a boolean
    12 1_000 0x1F 0o17      a whole number   1.5 .5 1e-4 1E5 .inf     a number
    everything else         text: no, yes, on, off, 1:30, 2026-11-20, 010.1.1

`None` is how W&B's `${args_no_hyphens}` writes null. `20M`, `4k` and `5%` stay text here, because `1M` may be the name
of a size; where a config is resolved they become numbers by `quantity`.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

NULL = {"", "~", "null", "Null", "NULL", "None"}
TRUE = {"true", "True", "TRUE"}
FALSE = {"false", "False", "FALSE"}
INFINITY = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}

# Longer digit strings are identifiers, not quantities, and int() refuses them from 4,300 digits on.
_LONGEST_NUMBER = 64

_WHOLE = re.compile(r"[-+]?[0-9][0-9_]*")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_OCTAL = re.compile(r"0o[0-7]+")
_REAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.?[0-9]*)([eE][-+]?[0-9]+)?")
_QUANTITY = re.compile(r"([-+]?[0-9]+(?:\.[0-9]+)?)([kKMBT%])")
_THOUSANDS = {"k": 3, "K": 3, "M": 6, "B": 9, "T": 12}


def scalar(text: str) -> str | int | float | bool | None:
    """The value of an unquoted word."""
    if text in NULL:
        return None
    if text in TRUE or text in FALSE:
        return text in TRUE
    if text in INFINITY:
        return INFINITY[text]
    if len(text) > _LONGEST_NUMBER:
        return text
    if _WHOLE.fullmatch(text):
        return int(text.replace("_", ""))
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _OCTAL.fullmatch(text):
        return int(text, 8)
    if _REAL.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def quantity(text: str) -> int | float | None:
    """`4k`, `20M`, `1.5B`, `2T` as numbers (whole where they are whole), `5%` as the fraction 0.05; None for other
    text.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    if match is None:
        return None
    if match[2] == "%":
        return float(Decimal(match[1]).scaleb(-2))
    number = Decimal(match[1]).scaleb(_THOUSANDS[match[2]])
    return int(number) if number == number.to_integral_value() else float(number)
