from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data.synthetic import Synthetic

NOWHERE = Path("nowhere")
SMALL = Synthetic(symbols=8, order=2, seed=0)


def test_the_entropy_is_the_stated_one():
    assert Synthetic().entropy == pytest.approx(2.189317628, abs=5e-10)


def test_the_ladder_of_entropies_is_the_stated_one():
    unigram, bigram, trigram = Synthetic().conditional_entropies()
    assert unigram == pytest.approx(3.161, abs=0.003)
    assert bigram == pytest.approx(2.803, abs=0.003)
    assert trigram == Synthetic().entropy


@given(st.integers(2, 10), st.integers(1, 3), st.floats(0, 4), st.floats(0, 2), st.integers(0, 9))
def test_ranks_and_symbols_are_one_to_one_in_every_context(symbols, order, exponent, joint, seed):
    law = Synthetic(symbols=symbols, order=order, exponent=exponent, joint=joint, seed=seed)
    table = law.successors()
    assert table.shape == (symbols**order, symbols)
    assert (np.sort(table, axis=1) == np.arange(symbols)).all()
    assert law.ranks.probabilities.sum() == pytest.approx(1)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_window_follows_the_table_and_its_truth_the_ranks(order):
    law = Synthetic(symbols=8, order=order)
    rows = law.open("train", NOWHERE).read(np.arange(20), 50)
    table, truth = law.successors(), rows.truth
    assert truth is not None
    assert (rows.tokens[:, 0] == 8).all()
    assert (truth[:, 0] == 0).all()
    for tokens, losses in zip(rows.tokens[:, 1:].tolist(), truth[:, 1:]):
        past = [0] * order
        for token, loss in zip(tokens, losses):
            context = int(np.polyval(past, 8))
            rank = table[context].tolist().index(token)
            assert loss == pytest.approx(-np.log(law.ranks.probabilities[rank]), rel=1e-6)
            past = [*past[1:], token]


def test_splits_and_seeds_part():
    rows = np.arange(10)
    train, validation = (Synthetic().open(split, NOWHERE) for split in ("train", "validation"))
    other = Synthetic(seed=1).open("train", NOWHERE)
    assert (train.read(rows, 99).tokens[:, 1:] == validation.read(rows, 99).tokens[:, 1:]).mean() < 0.3
    assert len({train.fingerprint, validation.fingerprint, other.fingerprint}) == 3
    assert train.fingerprint == Synthetic().open("train", NOWHERE).fingerprint


def test_the_same_language_on_every_machine():
    assert Synthetic().successors()[:2, :8].tolist() == [[3, 13, 2, 15, 55, 0, 8, 21], [2, 13, 3, 0, 60, 28, 5, 40]]
    first = Synthetic().open("train", NOWHERE).read(np.array([0]), 12).tokens[0]
    assert " ".join(map(str, first)) == "64 3 2 0 26 14 4 46 2 18 5 5"


def test_the_entropy_agrees_with_a_count() -> None:
    """The entropy of what is drawn, counted in each context, and the mean of the true losses, against H(q)."""
    law, source, windows, length = SMALL, SMALL.open("train", NOWHERE), 4000, 512
    counts, truth, squares, chunk = np.zeros((64, 8)), 0.0, 0.0, 1000
    for start in range(0, windows, chunk):
        rows = source.read(np.arange(start, start + chunk), length + 1)
        tokens = rows.tokens[:, 1:].astype(np.int64)
        assert rows.truth is not None
        truth += rows.truth[:, 1:].sum(dtype=float)
        squares += (rows.truth[:, 1:].astype(float) ** 2).sum()
        context = tokens[:, :-2] * 8 + tokens[:, 1:-1]
        counts += np.bincount((context * 8 + tokens[:, 2:]).ravel(), minlength=512).reshape(64, 8)
    total = windows * length
    error = np.sqrt((squares / total - (truth / total) ** 2) / total)
    assert abs(truth / total - law.entropy) < 3 * error
    share = counts / counts.sum(1, keepdims=True)
    counted = -(counts * np.log(share)).sum() / counts.sum()
    # A plug-in estimate of entropy is low by (cells − contexts) / 2n (Miller 1955).
    assert abs(counted + 64 * 7 / 2 / counts.sum() - law.entropy) < 3 * error


@pytest.mark.parametrize(
    "line", [{"symbols": 1}, {"symbols": 100_000}, {"order": 9}, {"exponent": -1.0}, {"tokens": 0}, {"oder": 2}]
)
def test_what_cannot_be_is_refused_in_one_line(line):
    with pytest.raises(ScalingError) as refused:
        build("data", {"kind": "Synthetic", **line})
    assert "\n" not in str(refused.value)
    assert next(iter(line)) in str(refused.value)
