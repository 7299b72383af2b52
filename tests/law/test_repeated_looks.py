"""Intervals under repeated looks: Student's t at a level that all looks together keep."""

import numpy as np
import pytest

from scaling.law.noise import student
from scaling.law.repeated_looks import level_at_a_look


def test_a_mean_is_missed_at_no_look_by_more_than_one_study_in_twenty():
    """Of 2,000 studies of 40 normal values with unknown mean and scale, looked at after each value."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2000, 40))
    missed = np.zeros((2, len(values)), bool)
    for count in range(3, 41):
        mean, error = values[:, :count].mean(1), values[:, :count].std(1, ddof=1) / np.sqrt(count)
        levels = 0.95, level_at_a_look(0.95, count - 1, count / 40)
        for kind, level in enumerate(levels):
            if level is not None:
                missed[kind] |= np.abs(mean) > student(level, count - 1) * error
    one, every = missed.mean(1)
    assert one > 0.2
    assert 0.01 < every < 0.05


def test_it_is_open_at_first_and_nearest_to_one_look_at_the_end():
    assert level_at_a_look(0.95, 0, 0.5) is None
    assert level_at_a_look(0.95, 2, 0.05) is None
    levels = [level_at_a_look(0.95, 30, part) for part in (0.1, 0.3, 1.0)]
    widths = [student(level, 30) for level in levels if level is not None]
    assert len(widths) == 3
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == pytest.approx(1.6 * student(0.95, 30), rel=0.05)
