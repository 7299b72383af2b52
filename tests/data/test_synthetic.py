"""Languages, translations and tasks whose best loss or score is known: against counts, and read in a second way."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.schema import build
from scaling.data.synthetic.language import Ranks, Synthetic, SyntheticPairs
from scaling.data.synthetic.list_ops import ListOps
from scaling.data.synthetic.tasks import Copy, LanguageSwitch, Recall, WhichLanguage

NOWHERE = Path("nowhere")


def test_the_entropies_and_the_text_are_the_stated_ones_on_every_machine():
    law = Synthetic()
    unigram, bigram, trigram = law.conditional_entropies()
    assert (trigram, law.entropy) == pytest.approx((2.189317628, 2.189317628), abs=5e-10)
    assert (unigram, bigram) == pytest.approx((3.1627, 2.8008), abs=5e-5)
    assert law.successors()[:2, :8].tolist() == [[3, 13, 2, 15, 55, 0, 8, 21], [2, 13, 3, 0, 60, 28, 5, 40]]
    train, validation = (law.open(split, NOWHERE) for split in ("train", "validation"))
    first = train.read(np.array([0]), 12).tokens[0]
    assert " ".join(map(str, first)) == "64 3 2 0 26 14 4 46 2 18 5 5"
    rows, other = np.arange(10), Synthetic(seed=1).open("train", NOWHERE)
    assert (train.read(rows, 99).tokens[:, 1:] == validation.read(rows, 99).tokens[:, 1:]).mean() < 0.3
    assert len({train.fingerprint, validation.fingerprint, other.fingerprint}) == 3


@settings(max_examples=40)
@given(st.integers(2, 10), st.integers(1, 3), st.floats(0, 4), st.floats(0, 2), st.integers(0, 9))
def test_a_window_follows_the_table_of_ranks_one_to_one_and_its_truth_the_ranks(symbols, order, exponent, joint, seed):
    law = Synthetic(symbols=symbols, order=order, exponent=exponent, joint=joint, seed=seed)
    table, rows = law.successors(), law.open("train", NOWHERE).read(np.arange(3), 20)
    assert (np.sort(table, axis=1) == np.arange(symbols)).all()
    assert law.ranks.probabilities.sum() == pytest.approx(1)
    assert (rows.tokens[:, 0] == symbols).all()
    assert (rows.truth[:, 0] == 0).all()
    for tokens, losses in zip(rows.tokens[:, 1:].tolist(), rows.truth[:, 1:]):
        past = [0] * order
        for token, loss in zip(tokens, losses):
            rank = table[int(np.polyval(past, symbols))].tolist().index(token)
            assert loss == pytest.approx(-np.log(law.ranks.probabilities[rank]), rel=1e-6, abs=1e-9)
            past = [*past[1:], token]


def test_pairs_end_in_eos_cost_their_entropy_and_no_translation_is_likelier_than_the_best():
    law, every = SyntheticPairs(pairs=4000, validation=50), np.arange(4000)
    source = law.open("train", NOWHERE)
    rows, best = source.read(every, 40), source.best(every, 40)
    eos, pad = source.specials["eos"], source.specials["pad"]
    for tokens, documents, lengths in (
        (rows.source, rows.source_documents, source.lengths[:, 0]),
        (rows.tokens, rows.documents, source.lengths[:, 1]),
    ):
        assert (documents.sum(1) == lengths).all()
        assert (tokens[every, lengths - 1] == eos).all()
        assert ((tokens == pad) == (documents == 0)).all()
        assert (tokens == eos).sum() == len(every)
    losses = rows.truth[rows.documents == 1]
    assert abs(losses.mean() - source.entropy) < 3 * losses.std() / np.sqrt(len(losses))
    assert (best.source == rows.source).all()
    gained = rows.truth.sum(1) - best.truth.sum(1)
    assert gained.min() >= -1e-5
    assert ((best.tokens == rows.tokens).all(1) == (gained < 1e-5)).all()
    aligned = law.aligned(np.array([9, 31]))  # each target word goes with one source word of its block
    assert aligned[0, :9].tolist() == [3, 2, 1, 0, 7, 6, 5, 4, 8]
    assert sorted(aligned[1]) == list(range(31))


@pytest.mark.parametrize("kind", [WhichLanguage, LanguageSwitch])
def test_the_best_score_is_that_of_every_text_weighed_and_of_who_takes_the_likeliest_label(kind, tmp_path):
    task = kind(symbols=3, length=5, order=1, examples=20_000, held_out=20_000)
    texts = np.array(list(itertools.product(range(3), repeat=5)), np.int64)
    first, second = np.exp(task.log_chances(texts))
    cuts = [0, 5] if kind is WhichLanguage else range(1, 5)
    joint = np.array([first[:, :at].prod(1) * second[:, at:].prod(1) for at in cuts])
    assert joint.sum(1) == pytest.approx(1)
    assert 1 / len(cuts) < task.best < 0.99
    assert task.best == pytest.approx(joint.max(0).sum() / len(cuts), abs=0.01)
    source = task.open("validation", tmp_path)
    likeliest = task.chances(source.items.arrays["tokens"].reshape(-1, 5)).argmax(1)
    found = likeliest.tolist() if kind is WhichLanguage else [str(1 + at) for at in likeliest]
    score = source.task.metric.score(found, [example.answer for example in source.examples])
    assert next(iter(score.values())) == pytest.approx(task.best, abs=0.015)


def test_splits_differ_and_the_fingerprint_names_the_law(tmp_path):
    for kind in ("WhichLanguage", "LanguageSwitch", "RankTags", "ListOps", "Copy", "Recall"):
        line = {"kind": kind, "examples": 64, "held_out": 64}
        one, other, test = (build("data", line).open(split, tmp_path) for split in ("train", "validation", "test"))
        assert len({source.items.arrays["tokens"].tobytes() for source in (one, other, test)}) == 3
        another = build("data", {**line, "seed": 7}).open("train", tmp_path)
        assert another.fingerprint != one.fingerprint == test.fingerprint


OPERATORS: dict[str, Any] = {"[MIN": min, "[MAX": max}
OPERATORS |= {"[MED": lambda values: int(np.median(values)), "[SM": lambda values: sum(values) % 10}


def evaluated(words, task, depth=2):
    """The value of a text, read from left to right; None of the end of a list."""
    word = next(words)
    if word not in OPERATORS:
        return None if word == "]" else int(word)
    assert depth <= task.depth
    values = [*iter(lambda: evaluated(words, task, depth + 1), None)]
    assert 2 <= len(values) <= task.arguments
    return OPERATORS[word](values)


def test_list_ops_are_labelled_by_their_value(tmp_path):
    task = ListOps(examples=800, held_out=100, shortest=20, longest=120, depth=5, arguments=6)
    texts = set()
    for example in (one for split in ("train", "validation", "test") for one in task.open(split, tmp_path).examples):
        words = example.texts[0].split()
        assert task.shortest < len(words) < task.longest
        left = iter(words)
        assert (evaluated(left, task), [*left]) == (example.answer, [])
        texts.add(example.texts)
    assert len(texts) == 1000  # none comes twice


@pytest.mark.parametrize("length", [9, 500])
def test_recall_is_the_symbol_behind_the_key_and_copy_the_symbol_of_before(length, tmp_path):
    for example in Recall(length=length, pairs=4, symbols=5, examples=50, held_out=5).open("train", tmp_path).examples:
        *text, key = map(int, example.texts[0].split())
        assert [text.count(5 + pair) for pair in range(4)] == [1] * 4
        assert key >= 5
        assert text[text.index(key) + 1] == example.answer
        assert len(text) == length - 1
    for example in Copy(length=length, distance=7, symbols=5, examples=50, held_out=5).open("test", tmp_path).examples:
        assert example.answer == [example.texts[max(0, place - 7)] for place in range(length)]


def test_what_would_fill_the_memory_or_never_end_is_refused():
    assert Ranks(3, 57.5).drawn(np.array([0, 2**64 - 1], np.uint64))[0] == 0  # a sum of probabilities rounds to one
    for data, key, value in (("synthetic", "order", 9), ("list_ops", "longest", 501), ("copy", "distance", 64)):
        with pytest.raises(ScalingError, match=rf"data\.{key}={value}: "):
            load("encoder", [f"data={data}", f"data.{key}={value}", "size=tiny"]).build("data")
