"""Numbers as people write them: what is read, and what is refused because it may mean two things."""

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.law.parse_number import parse_column, parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10M", 1e7),
        ("1.1B", 1.1e9),
        ("7b", 7e9),
        ("300 k", 3e5),
        ("2T", 2e12),
        ("1,000", 1e3),
        ("1,234,567.5", 1234567.5),
        ("1_000", 1e3),
        ("1 000 000", 1e6),
        ("1e9", 1e9),
        (" -3.5 ", -3.5),
        (10**400, np.inf),
    ],
)
def test_numbers_as_people_write_them(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize("text", ["", "many", "1.000,5", "1,5", "0,123", "12,34,567", "M", "1e9x", True, None, "r10M"])
def test_what_is_no_number(text):
    assert parse_number(text) is None


@pytest.mark.parametrize(
    "cells", [["1.000,5", "2.000,0"], ["1.000.000", "2.500.000"], ["1,5", "2,75"], ["1,000", "2,5"]]
)
def test_a_decimal_comma_is_refused_with_its_fix(cells):
    with pytest.raises(ScalingError, match="decimal comma; write numbers with a decimal point"):
        parse_column("N", cells)


def test_three_digits_after_a_comma_are_thousands_of_parameters_but_may_be_a_fraction_of_a_loss():
    assert parse_column("N", ["1,000", "500"]).tolist() == [1000, 500]
    with pytest.raises(ScalingError, match="loss='3,125': may have a decimal comma"):
        parse_column("loss", ["3,125", "2,987"])
    assert parse_column("loss", ["3,125.5", "2,987"]).tolist() == [3125.5, 2987]


def test_words_are_no_numbers_and_an_empty_cell_is_missing():
    assert parse_column("corpus", ["c4", "1,5"]) is None
    assert np.isnan(parse_column("N", ["10M", ""])[1])
