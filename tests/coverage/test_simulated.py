"""The 95% intervals hold the truth of simulated studies 95 times in a hundred."""

import pytest

from scaling.coverage.simulated import NAMES, Cell, grid, pooled, simulate, stress
from scaling.law import LogHuber, LogSquared


@pytest.mark.parametrize("objective", [LogSquared(), LogHuber()], ids=lambda o: o.name)
@pytest.mark.parametrize(("law", "points"), [("power_law_floor_c", 9), ("chinchilla", 40)])
def test_intervals_cover_in_a_sample_of_the_grid(objective, law, points):
    """200 studies, so 95% ± 1.5%: outside 90% something is broken. The table is docs/coverage.md."""
    counts = simulate(Cell(law, points, 0.005, 2.0, 0.3, objective=objective), 200)
    assert counts.fitted >= 198
    assert all(counts.share(name) >= 0.90 for name in NAMES)


@pytest.mark.slow
def test_a_study_that_says_little_has_open_intervals_that_cover():
    counts = simulate(Cell("power_law_floor_c", 9, 0.02, 1.0, 0.1), 25)
    assert counts.opened["E"] >= 20
    assert all(counts.covered[name] >= 21 for name in NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [LogSquared(), LogHuber()], ids=lambda o: o.name)
def test_intervals_cover_over_the_grid(objective):
    """Under log-Huber each fit has 200 refits, so a part of the grid is taken; docs/coverage.md has the whole."""
    if objective == LogSquared():
        cells, studies, most = grid(objective, (0.002, 0.005, 0.02)), 300, 0.97
    else:
        # Refits leave the intervals a little wide: 97.2% in docs/coverage.md, and ± 2.2% are 3 errors of 500 studies.
        cells, studies, most = grid(objective, (0.005,))[::8], 100, 0.994
    counts = [simulate(cell, studies) for cell in cells]
    for name in NAMES:
        share = sum(count.covered[name] for count in counts) / sum(count.fitted for count in counts)
        assert 0.93 <= share <= most, pooled(counts)
        # With 300 studies the least of a hundred cells at 95% is expected near 91.5%.
        assert min(count.share(name) for count in counts) >= 0.89, pooled(counts)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [LogSquared(), LogHuber()], ids=lambda o: o.name)
def test_intervals_cover_or_doubt_themselves_under_other_errors(objective):
    # A share of 89% scatters by 1.4% in 500 studies, by 3.1% in 100.
    studies, least = (500, 0.89) if objective == LogSquared() else (100, 0.85)
    for cell in stress(objective):
        counts = simulate(cell, studies)
        if counts.trusted > studies / 2:
            assert all(counts.trusted_covered[name] >= least * counts.trusted for name in NAMES), cell
