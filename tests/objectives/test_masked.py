import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.base.batch import IGNORE
from scaling.base.errors import ScalingError
from scaling.data.source import Rows, Vocabulary
from scaling.objectives import Masked, Spans
from tests.objectives.conftest import BEGINS, SPECIALS, TEXT, keys, rows

VOCABULARY = Vocabulary(TEXT, SPECIALS, TEXT, BEGINS)


def restored(batch) -> np.ndarray:
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
    if unit == "token":
        assert (chosen.sum(1) == wanted).all()
    else:
        assert (chosen.sum(1) <= wanted).all()


def test_eighty_ten_ten():
    objective = Masked(VOCABULARY, 512, "encoder")
    read = rows(400, 510)
    batch = objective(read, keys(400))
    tokens, targets = batch.tokens.numpy(), batch.targets.numpy()
    chosen = targets != IGNORE
    assert (chosen.sum(1) == round(0.15 * 510)).all()
    assert (tokens[~chosen][0], tokens[0, -1]) == (objective.vocabulary["cls"], objective.vocabulary["sep"])
    shown, true = tokens[chosen], targets[chosen]
    count = len(shown)
    text = TEXT - len(SPECIALS)
    for share, expected in (
        ((shown == objective.vocabulary["mask"]).mean(), 0.8),
        ((shown == true).mean(), 0.1 + 0.1 / text),
        (((shown != true) & (shown < TEXT)).mean(), 0.1 - 0.1 / text),
    ):
        assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / count)
    swapped = shown[(shown != true) & (shown < TEXT)]
    counts = np.bincount(swapped, minlength=TEXT)
    assert (counts[:3] == 0).all()
    assert abs(((counts[3:] - len(swapped) / text) ** 2).sum() / (len(swapped) / text) - text) < 5 * np.sqrt(2 * text)


def test_every_place_is_chosen_alike():
    objective = Masked(VOCABULARY, 66, "encoder")
    chosen = (objective(rows(4000, 64), keys(4000)).targets != IGNORE).numpy()[:, 1:-1]
    rate = 10 / 64
    assert np.abs(chosen.mean(0) - rate).max() < 4.5 * np.sqrt(rate * (1 - rate) / 4000)
    both = chosen[:, :-1] & chosen[:, 1:]
    assert abs(both.mean() - rate * 9 / 63) < 0.003


def test_whole_words_are_masked_whole():
    objective = Masked(VOCABULARY, 258, "encoder", unit="word")
    read = rows(200, 256)
    chosen = (objective(read, keys(200)).targets != IGNORE).numpy()[:, 1:-1]
    starts = BEGINS[read.tokens]
    starts[:, 0] = True
    inside = ~starts
    assert (chosen[:, 1:] == chosen[:, :-1])[inside[:, 1:]].all()
    assert abs(chosen.sum(1).mean() - 0.15 * 256) < 3


@settings(max_examples=25)
@given(st.integers(40, 300), st.floats(0.05, 0.48), st.integers(0, 99))
def test_spans_do_not_touch_and_hide_exactly_so_much(length, rate, seed):
    objective = Spans(VOCABULARY, length, "encoder", rate=rate)
    read = rows(8, objective.reads, seed)
    batch = objective(read, keys(8, seed))
    chosen = (batch.targets != IGNORE).numpy()
    assert (restored(batch)[:, 1:-1] == read.tokens).all()
    assert (chosen.sum(1) == objective.hidden).all()
    assert not chosen[:, [0, -1]].any()
    assert all(len(run) <= 10 for line in chosen for run in "".join(".x"[int(c)] for c in line).split(".") if run)


def _span_lengths(chosen: np.ndarray) -> np.ndarray:
    edges = np.diff(np.pad(chosen, ((0, 0), (1, 1))).astype(int), axis=1)
    return np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1]


def test_span_lengths_are_geometric_and_a_span_has_one_disguise():
    objective = Spans(VOCABULARY, 1026, "encoder", masked=0.5, random=0.0)
    batch = objective(rows(600, 1024), keys(600))
    chosen = (batch.targets != IGNORE).numpy()
    lengths = _span_lengths(chosen)
    # The last span of a row is cut short, one in about forty: −0.05.
    assert lengths.mean() == pytest.approx(3.797, abs=0.08)
    shares = np.bincount(lengths, minlength=11)[1:] / len(lengths)
    law = 0.8 ** np.arange(10)
    assert np.abs(shares - law / law.sum()).max() < 0.01
    masked = (batch.tokens == objective.vocabulary["mask"]).numpy()
    assert abs(masked[chosen].mean() - 0.5) < 0.02
    assert (masked[:, 1:] == masked[:, :-1])[chosen[:, 1:] & chosen[:, :-1]].all()


def test_half_the_sentences_follow(run, make):
    read, batch = run("NextSentence", 67, "encoder", count=2000)
    special = make("NextSentence", 67, "encoder").vocabulary
    line = torch.where(batch.targets == IGNORE, batch.tokens, batch.targets).numpy()
    own, other = read.tokens[:2000], read.tokens[2000:]
    labels, segments = batch.labels.numpy(), batch.segments.numpy()
    assert abs(labels.mean() - 0.5) < 4 * 0.5 / np.sqrt(2000)
    assert (line[:, 0] == special["cls"]).all()
    assert (line[:, -1] == special["sep"]).all()
    assert ((line == special["sep"]).sum(1) == 2).all()
    for row in range(0, 2000, 7):
        between = int(np.argmax(line[row] == special["sep"]))
        a, b = line[row, 1:between], line[row, between + 1 : -1]
        assert 1 <= len(a) <= 63
        assert (a == own[row, : len(a)]).all()
        assert (b == (other if labels[row] else own)[row, len(a) :]).all()
        assert segments[row].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert ((batch.targets != IGNORE).sum(1) == round(0.15 * 64)).all()


def test_masked_documents_are_refused(make):
    objective = make("NextSentence", 32, "encoder")
    read = Rows(np.full((4, 29), 5), np.ones((4, 29), int))
    with pytest.raises(ScalingError, match="join documents"):
        objective(read, keys(2))
