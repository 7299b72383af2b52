"""A line is read by the signature of its kind, and numbers have the range that is declared."""

import math
import typing

import pytest
import torch
from jaxtyping import TypeCheckError

from scaling.base import numbers
from scaling.base.numbers import Range
from scaling.config import schema
from scaling.model.blocks import RMSNorm
from tests.command_line import refuses

# The numbers that may be any finite one, by the kind that has them.
ANY = {("Swish", "beta"), ("ELU", "alpha")}


def has_bare_number(annotation: typing.Any) -> bool:
    """Whether an annotation holds a number without a range."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return not any(isinstance(bounds, Range) for bounds in inner[1:]) and has_bare_number(inner[0])
    return annotation in (int, float) or any(map(has_bare_number, inner))


def test_every_number_says_its_range():
    for slot in schema.SLOTS:
        for name, kind in schema.kinds(slot).items():
            for key, parameter in schema.keys(kind).items():
                is_plain = not schema.is_recipe(parameter.annotation) and (kind.__name__, key) not in ANY
                assert not (is_plain and has_bare_number(parameter.annotation)), f"{slot}.{name}.{key} needs a Range"


CHECKS = {
    numbers.PositiveInt: ({7: 7, 1e3: 1000}, [0, -1, 1.5, True, "1", None, [1], math.nan, math.inf, 1e300, 10**400]),
    numbers.PositiveFloat: ({7: 7.0, 1e-300: 1e-300}, [0, -1e300, True, math.nan, math.inf, 10**400]),
    numbers.BelowOne: ({0: 0.0, 0.5: 0.5}, [1, -0.1, True, -math.inf]),
    typing.Union[numbers.NonNegativeInt, numbers.Fraction]: ({1.0: 1.0, 0: 0, 5.0: 5}, [1.5, -1, "1"]),  # noqa: UP007
    typing.Literal["auto", 3] | None: ({"auto": "auto", None: None, 3: 3}, ["atuo", 3.5, True, {}]),
    tuple[numbers.Fraction, ...]: ({(0, 1): (0.0, 1.0)}, [[2], 0.5, "ab", [[0]]]),
}


def test_a_value_is_of_its_type_and_inside_its_range_or_refused_in_one_line():
    for annotation, (accepted, excluded) in CHECKS.items():
        for value, checked in accepted.items():
            assert repr(schema.check("key", value, annotation)) == repr(checked)
        for value in excluded:
            refuses("^key=.*: expected .*$", schema.check, "key", value, annotation)


def test_a_forward_refuses_what_its_shapes_exclude():
    with pytest.raises(TypeCheckError):
        RMSNorm(8)(torch.ones(2, 3, 8).long())
