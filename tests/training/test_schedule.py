"""Every schedule: its golden shape, and what all have in common."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from scaling import schema
from scaling.errors import ScalingError
from scaling.training.schedule import check

KINDS = sorted(schema.kinds("schedule"))

# Steps 0, 4, 9, 10, 30, 55, 80, 99 of 100, with 10 of warmup.
GOLDEN = {
    "Constant": [0.1, 0.5, 1, 1, 1, 1, 1, 1],
    "Cosine": [0.1, 0.5, 1, 1, 0.8947, 0.55, 0.2053, 0.1003],
    "Linear": [0.1, 0.5, 1, 1, 0.7778, 0.5, 0.2222, 0.0111],
    "InverseSquareRoot": [0.1, 0.5, 1, 0.9535, 0.568, 0.4226, 0.3514, 0.3162],
    "WSD": [0.1, 0.5, 1, 1, 1, 1, 0.9524, 0.0476],
}
AT = [0, 4, 9, 10, 30, 55, 80, 99]


@pytest.mark.parametrize("kind", KINDS)
def test_its_shape_is_the_golden_one(kind):
    schedule = schema.build("schedule", {"kind": kind, "warmup": 10})
    assert [round(schedule.factor(step, 100), 4) for step in AT] == GOLDEN[kind]


@pytest.mark.parametrize("kind", KINDS)
@given(steps=some.integers(2, 10_000), warmup=some.integers(0, 100), share=some.floats(0, 1))
def test_it_rises_to_the_peak_and_never_beyond(kind, steps, warmup, share):
    warmup = min(warmup, steps - 1)
    schedule = schema.build("schedule", {"kind": kind, "warmup": warmup})
    step = min(steps - 1, int(share * steps))
    assert 0 < schedule.factor(step, steps) <= 1
    if 0 < step < warmup:
        assert schedule.factor(step - 1, steps) < schedule.factor(step, steps)
    if step > warmup:
        assert schedule.factor(step, steps) <= schedule.factor(step - 1, steps)


def test_wsd_by_the_square_root_falls_faster():
    line, root = (
        schema.build("schedule", {"kind": "WSD", "warmup": 0, "shape": shape}) for shape in ("linear", "sqrt")
    )
    assert all(root.factor(step, 100) < line.factor(step, 100) for step in range(80, 100))


def test_t5_begins_at_the_peak():
    schedule = schema.build("schedule", {"kind": "InverseSquareRoot", "warmup": 10, "rise": "flat"})
    assert [schedule.factor(step, 100) for step in (0, 9, 39)] == [1, 1, math.sqrt(10 / 40)]


def test_the_trunk_does_not_know_the_end():
    schedule = schema.build("schedule", {"kind": "WSD", "warmup": 5})
    assert [schedule.factor(step, 100) for step in range(40)] == [schedule.factor(step, 50) for step in range(40)]


def test_a_warmup_that_does_not_end_is_refused():
    with pytest.raises(ScalingError, match="warmup"):
        check(schema.build("schedule", {"kind": "Cosine", "warmup": 100}), 100)
