import math

import pytest

from scaling.config.scalar import quantity, scalar

MEANINGS = {
    "": None,
    "~": None,
    "null": None,
    "None": None,
    "true": True,
    "True": True,
    "FALSE": False,
    "no": "no",
    "yes": "yes",
    "on": "on",
    "off": "off",
    "y": "y",
    "n": "n",
    "NO": "NO",
    "0": 0,
    "-7": -7,
    "+7": 7,
    "007": 7,
    "1_000_000": 1_000_000,
    "0x1F": 31,
    "0o17": 15,
    "1e-4": 1e-4,
    "1E5": 1e5,
    "1.": 1.0,
    ".5": 0.5,
    "-.5e3": -500.0,
    ".inf": math.inf,
    "-.inf": -math.inf,
    ".nan": ".nan",
    "nan": "nan",
    "inf": "inf",
    "1e999": "1e999",
    "1:30": "1:30",
    "190:20:30": "190:20:30",
    "2026-11-20": "2026-11-20",
    "1.2.3": "1.2.3",
    "_1": "_1",
    "1e": "1e",
    "e5": "e5",
    "-": "-",
    ".": ".",
    "٣": "٣",
    "20M": "20M",
    "9" * 5000: "9" * 5000,
}


@pytest.mark.parametrize(("text", "value"), MEANINGS.items(), ids=lambda item: str(item)[:20])
def test_an_unquoted_word_means_what_a_person_means(text, value):
    found = scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("4k", 4000), ("4K", 4000), ("20M", 20_000_000), ("1.5B", 1_500_000_000), ("2T", 2 * 10**12), ("-3k", -3000)],
)
def test_quantities_are_whole(text, value):
    assert quantity(text) == value
    assert type(quantity(text)) is int


def test_a_quantity_may_be_broken():
    assert quantity("0.0005k") == 0.5


@pytest.mark.parametrize("text", ["k", "1", "1.5", "1m", "1 M", "1e3k", "GeLU", "1kk", "٣k", "9" * 80 + "k"])
def test_other_words_are_no_quantities(text):
    assert quantity(text) is None
