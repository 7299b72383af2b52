import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.data.plan import ENDLESS, drawn, permute


@settings(max_examples=25)
@given(st.integers(1, 3000), st.integers(0, 2**32), st.integers(0, 100))
def test_a_pass_is_a_permutation(count, seed, turn):
    assert sorted(permute(np.arange(count), count, seed, turn)) == list(range(count))


def test_an_endless_source_never_repeats():
    rows = drawn(np.arange(10_000), None, 0)
    assert len(np.unique(rows)) == 10_000
    assert rows.min() >= 0
    assert rows.max() < ENDLESS


def test_the_same_order_on_every_machine():
    assert permute(np.arange(6), 1_000_003, 0, 0).tolist() == [202118, 837616, 912016, 121815, 423384, 298784]


def test_every_window_comes_once_a_pass_and_each_pass_has_its_own_order():
    rows = drawn(np.arange(369), 123, 7)
    passes = [rows[start : start + 123].tolist() for start in (0, 123, 246)]
    assert [sorted(each) for each in passes] == [list(range(123))] * 3
    assert passes[0] != passes[1] != passes[2] != drawn(np.arange(123), 123, 8).tolist()
