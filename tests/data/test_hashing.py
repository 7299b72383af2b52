import numpy as np
import pytest

from scaling.data import hashing


def test_words_are_those_of_splitmix64():
    # The first outputs of SplitMix64 seeded with 1234567, as published with Vigna's reference code.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert hashing.bits(np.array([1234567], np.uint64), 4)[0].tolist() == expected


def test_the_same_bits_on_every_machine():
    keys = hashing.keys(3, "objective", np.array([0, 1, 10**12]))
    assert keys.tolist() == [5879158657018724929, 5321158867361352147, 5152847082034366963]
    assert hashing.bits(keys, 2)[2].tolist() == [11628541281527990891, 1149479567816672150]


def test_a_position_alone_is_the_same_as_in_its_row():
    keys = hashing.keys(0, "x", np.arange(5))
    row, place = np.array([0, 4, 2]), np.array([7, 0, 3])
    assert (hashing.bits_at(keys[row], place) == hashing.bits(keys, 9)[row, place]).all()


@pytest.mark.parametrize("bound", [2, 3, 64, 1000])
def test_integers_below_a_bound_are_uniform(bound):
    drawn = hashing.below(hashing.bits(hashing.keys(1, "below", np.arange(200)), 1000).ravel(), bound)
    counts = np.bincount(drawn.astype(np.int64), minlength=bound)
    expected = drawn.size / bound
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert len(counts) == bound
    assert abs(chi2 - (bound - 1)) < 5 * np.sqrt(2 * (bound - 1))
