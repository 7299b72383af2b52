from pathlib import Path

import numpy as np

from scaling.data.synthetic import SyntheticPairs

LAW = SyntheticPairs(pairs=4000, validation=50)
SOURCE = LAW.open("train", Path("nowhere"))
EVERY = np.arange(4000)


def test_both_sides_end_in_eos_and_are_filled_up():
    rows = SOURCE.read(EVERY, 40)
    eos, pad = SOURCE.specials["eos"], SOURCE.specials["pad"]
    for tokens, documents, lengths in (
        (rows.source, rows.source_documents, SOURCE.lengths[:, 0]),
        (rows.tokens, rows.documents, SOURCE.lengths[:, 1]),
    ):
        assert (documents.sum(1) == lengths).all()
        assert (tokens[EVERY, lengths - 1] == eos).all()
        assert (tokens[documents == 0] == pad).all()
        assert (tokens[documents == 1] != pad).all()
        assert (tokens == eos).sum() == len(EVERY)


def test_the_mean_true_loss_is_the_entropy():
    rows = SOURCE.read(EVERY, 40)
    losses = rows.truth[rows.documents == 1]
    assert abs(losses.mean() - SOURCE.entropy) < 3 * losses.std() / np.sqrt(len(losses))


def test_no_translation_is_likelier_than_the_best():
    best, drawn = SOURCE.best(EVERY, 40), SOURCE.read(EVERY, 40)
    assert (best.source == drawn.source).all()
    gained = drawn.truth.sum(1) - best.truth.sum(1)
    assert gained.min() >= -1e-5
    assert ((best.tokens == drawn.tokens).all(1) == (gained < 1e-5)).all()


def test_each_target_word_goes_with_one_source_word_of_its_block():
    lengths = np.array([8, 9, 10, 31])
    aligned = LAW.aligned(lengths)
    for row, length in zip(aligned, lengths):
        assert sorted(row[:length]) == list(range(length))
        assert (row[:length] // LAW.block == np.arange(length) // LAW.block).all()
    assert aligned[1, :9].tolist() == [3, 2, 1, 0, 7, 6, 5, 4, 8]
