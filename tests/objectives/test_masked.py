"""Masks and spans in their places: exact counts, the papers' proportions, and the text that comes back."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.base.batch import IGNORE, Batch
from scaling.objectives import Masked, Spans
from tests.objectives.conftest import BEGINS, SPECIALS, TEXT, VOCABULARY, keys, rows, run


def restored(batch: Batch) -> np.ndarray:
    return torch.where(batch.targets == IGNORE, batch.tokens, batch.targets).numpy()


@settings(max_examples=25)
@given(
    st.integers(8, 200), st.floats(0.02, 0.6), st.sampled_from(["token", "word"]), st.integers(0, 99), st.integers(0, 5)
)
def test_the_text_comes_back_and_the_rate_is_exact(length, rate, unit, seed, specials):
    objective = Masked(VOCABULARY, length, "encoder", rate=rate, unit=unit)
    read = rows(16, objective.reads, seed)
    read.tokens[:, :: objective.reads // (specials + 1) + 1] = SPECIALS["eos"]
    batch = objective(read, keys(16, seed))
    assert (restored(batch)[:, 1:-1] == read.tokens).all()
    chosen = (batch.targets != IGNORE).numpy()
    assert not (chosen[:, 1:-1] & (read.tokens == SPECIALS["eos"])).any()
    wanted = np.maximum(1, np.rint(rate * (read.tokens != SPECIALS["eos"]).sum(1)))
    assert (chosen.sum(1) == wanted).all() if unit == "token" else (chosen.sum(1) <= wanted).all()


def test_eighty_ten_ten_at_any_place():
    objective, _, batch = run("Masked", 514, "encoder", count=400)
    tokens, targets = batch.tokens.numpy(), batch.targets.numpy()
    chosen, text = targets != IGNORE, TEXT - len(SPECIALS)
    assert (chosen.sum(1) == round(0.15 * 512)).all()
    assert (tokens[:, 0] == objective.vocabulary["cls"]).all()
    assert (tokens[:, -1] == objective.vocabulary["sep"]).all()
    shown, true = tokens[chosen], targets[chosen]
    swapped = (shown != true) & (shown < TEXT)
    for share, expected in (
        ((shown == objective.vocabulary["mask"]).mean(), 0.8),
        ((shown == true).mean(), 0.1 + 0.1 / text),
        (swapped.mean(), 0.1 - 0.1 / text),
    ):
        assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / len(shown))
    counts, mean = np.bincount(shown[swapped], minlength=TEXT), swapped.sum() / text
    assert (counts[: len(SPECIALS)] == 0).all()
    assert abs(((counts[len(SPECIALS) :] - mean) ** 2).sum() / mean - text) < 5 * np.sqrt(2 * text)
    _, _, short = run("Masked", 66, "encoder", count=4000)
    chosen, rate = (short.targets != IGNORE).numpy()[:, 1:-1], 10 / 64
    assert np.abs(chosen.mean(0) - rate).max() < 4.5 * np.sqrt(rate * (1 - rate) / 4000)
    assert abs((chosen[:, :-1] & chosen[:, 1:]).mean() - rate * 9 / 63) < 0.003


def test_whole_words_are_masked_whole():
    _, read, batch = run({"kind": "Masked", "unit": "word"}, 258, "encoder", count=200)
    chosen = (batch.targets != IGNORE).numpy()[:, 1:-1]
    assert (chosen[:, 1:] == chosen[:, :-1])[~BEGINS[read.tokens][:, 1:]].all()
    assert abs(chosen.sum(1).mean() - 0.15 * 256) < 3


@settings(max_examples=25)
@given(st.integers(40, 300), st.floats(0.05, 0.48), st.integers(0, 99))
def test_spans_do_not_touch_and_hide_exactly_so_much(length, rate, seed):
    objective = Spans(VOCABULARY, length, "encoder", rate=rate)
    read = rows(8, objective.reads, seed)
    batch = objective(read, keys(8, seed))
    chosen = (batch.targets != IGNORE).numpy()
    assert (restored(batch)[:, 1:-1] == read.tokens).all()
    assert (chosen.sum(1) == max(1, round(rate * objective.reads))).all()
    assert not chosen[:, [0, -1]].any()
    assert lengths(chosen).max() <= 10


def lengths(chosen: np.ndarray) -> np.ndarray:
    edges = np.diff(np.pad(chosen, ((0, 0), (1, 1))).astype(int), axis=1)
    return np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1]


def test_span_lengths_are_geometric_and_a_span_has_one_disguise():
    objective, _, batch = run({"kind": "Spans", "masked": 0.5, "random": 0.0}, 1026, "encoder", count=600)
    chosen = (batch.targets != IGNORE).numpy()
    found, law = lengths(chosen), 0.8 ** np.arange(10)
    assert abs(found.mean() - 3.797) < 0.08  # the last span of a row is cut short, one in about forty: −0.05
    assert np.abs(np.bincount(found, minlength=11)[1:] / len(found) - law / law.sum()).max() < 0.01
    masked = (batch.tokens == objective.vocabulary["mask"]).numpy()
    assert abs(masked[chosen].mean() - 0.5) < 0.02
    assert (masked[:, 1:] == masked[:, :-1])[chosen[:, 1:] & chosen[:, :-1]].all()


def test_half_the_sentences_follow():
    objective, read, batch = run("NextSentence", 67, "encoder", count=2000)
    cls, sep = objective.vocabulary["cls"], objective.vocabulary["sep"]
    assert batch.labels is not None
    assert batch.segments is not None
    own, other, line, labels = read.tokens[:2000], read.tokens[2000:], restored(batch), batch.labels.numpy()
    assert abs(labels.mean() - 0.5) < 4 * 0.5 / np.sqrt(2000)
    assert ((batch.targets != IGNORE).sum(1) == round(0.15 * 64)).all()
    for row in range(0, 2000, 7):
        between = int(np.argmax(line[row] == sep))
        a, b = line[row, 1:between], line[row, between + 1 : -1]
        follows = (other if labels[row] else own)[row, len(a) :]
        assert line[row].tolist() == [cls, *own[row, : len(a)], sep, *follows, sep]
        assert batch.segments[row].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert 1 <= len(a) <= 63
