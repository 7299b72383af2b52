import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.data.plan import ENDLESS, drawn, permute


@settings(max_examples=25)
@given(st.integers(1, 3000), st.integers(0, 2**32), st.integers(0, 100))
def test_a_pass_is_a_permutation(count, seed, turn):
    assert sorted(permute(np.arange(count), count, seed, turn)) == list(range(count))


@settings(max_examples=25)
@given(st.integers(1, 200), st.integers(0, 5), st.integers(1, 700))
def test_every_window_comes_once_a_pass(windows, seed, samples):
    rows = drawn(np.arange(samples), windows, seed)
    for start in range(0, samples, windows):
        part = rows[start : start + windows]
        assert len(set(part.tolist())) == len(part)
        assert part.max() < windows
        assert part.min() >= 0


def test_an_endless_source_never_repeats():
    rows = drawn(np.arange(10_000), None, 0)
    assert len(np.unique(rows)) == 10_000
    assert rows.min() >= 0
    assert rows.max() < ENDLESS


def test_the_same_order_on_every_machine():
    assert permute(np.arange(6), 1_000_003, 0, 0).tolist() == [202118, 837616, 912016, 121815, 423384, 298784]
