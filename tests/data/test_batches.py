"""Batches: a pure function of source, seed, schedule, objective and step, for any number of ranks."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.data import hashing
from scaling.data.batches import evaluation, training
from scaling.data.plan import ENDLESS, BatchSize, Buckets, drawn, permute
from scaling.data.source import Vocabulary
from scaling.data.synthetic.language import Synthetic, SyntheticPairs
from scaling.objectives.causal import Causal, Sequence
from scaling.objectives.masked import Masked, NextSentence
from tests.command_line import refuses

NOWHERE = Path("nowhere")
LANGUAGE = Synthetic(symbols=16, order=1, tokens=5000, validation=2000).open("train", NOWHERE)
PAIRS = SyntheticPairs(pairs=300, symbols=16, order=1).open("train", NOWHERE)


def test_words_are_those_of_splitmix64_on_every_machine():
    # The first outputs of SplitMix64 seeded with 1234567, as published with Vigna's reference code.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert hashing.bits(np.array([1234567], np.uint64), 4)[0].tolist() == expected
    assert permute(np.arange(6), 1_000_003, 0, 0).tolist() == [202118, 837616, 912016, 121815, 423384, 298784]


@settings(max_examples=25)
@given(st.integers(1, 1000), st.integers(0, 2**32))
def test_every_window_comes_once_a_pass_and_each_pass_has_its_own_order(count, seed):
    rows = drawn(np.arange(3 * count), count, seed).reshape(3, count)
    assert (np.sort(rows) == np.arange(count)).all()
    if count > 20:
        assert len({row.tobytes() for row in (*rows, drawn(np.arange(count), count, seed + 1))}) == 4
    endless = drawn(np.arange(1000), None, seed)
    assert len({*endless.tolist()}) == 1000
    assert 0 <= endless.min() < endless.max() < ENDLESS


def made(kind, family, size: Any = 13, seed=0):
    source = PAIRS if kind is Sequence else LANGUAGE
    return training(source, kind(Vocabulary.of(source), 32, family), BatchSize.of(size), seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "family"), [(Causal, "decoder"), (Masked, "encoder"), (NextSentence, "encoder"), (Sequence, "decoder")]
)
@settings(max_examples=6)
@given(step=st.integers(0, 10**6), seed=st.integers(0, 10**6), size=st.integers(1, 20))
def test_the_global_batch_is_the_same_for_any_number_of_ranks(kind, family, step, seed, size):
    batches = made(kind, family, size, seed)
    whole = batches.batch(step)
    for ranks in (1, 3, 8):
        parts = [part for part in (batches.batch(step, rank, ranks) for rank in range(ranks)) if part.rows]
        for name, value in vars(whole).items():
            assert value is None or torch.equal(torch.cat([getattr(part, name) for part in parts]), value), name


def test_a_pass_of_pairs_has_every_pair_once_in_batches_of_about_one_size():
    plan = Buckets(PAIRS.lengths.max(axis=1), 64, tokens=320, seed=0)
    count = next(step for step in itertools.count(1) if plan.passes(step) >= 1)
    passed = [plan.drawn(step)[1:] for step in range(count)]
    assert plan.passes(count) == 1
    assert sorted(np.concatenate([rows for rows, _ in passed])) == list(range(300))
    assert all(len(rows) * length <= 320 for rows, length in passed)
    assert all(PAIRS.lengths[rows].max() <= length for rows, length in passed)
    assert np.mean([len(rows) * length for rows, length in passed]) > 200
    again = [plan.drawn(count + step)[1].tolist() for step in range(count)]
    assert again != [rows.tolist() for rows, _ in passed]


def test_masks_are_new_in_each_pass():
    batches = made(Masked, "encoder", size=LANGUAGE.windows(30))
    first, second = batches.batch(0), batches.batch(1)
    texts = [{tuple(row) for row in torch.where(b.targets >= 0, b.targets, b.tokens).tolist()} for b in (first, second)]
    assert texts[0] == texts[1]
    assert not {tuple(row) for row in first.tokens.tolist()} & {tuple(row) for row in second.tokens.tolist()}


@given(st.dictionaries(st.integers(1, 50), st.integers(1, 9), max_size=4), st.integers(1, 9), st.integers(0, 80))
def test_a_schedule_counts_its_rows_and_a_ramp_grows_evenly(later, first, step):
    size = BatchSize.of({0: first, **later})
    assert size.before(step) == sum(size.size(earlier) for earlier in range(step))
    ramp = BatchSize.of({"from": 2, "to": 8, "over": 100})
    assert [ramp.size(step) for step in (0, 24, 25, 50, 75, 99, 100, 10**6)] == [2, 2, 4, 6, 8, 8, 8, 8]
    for value in ({5: 8}, {"from": 3, "to": 8, "over": 9}):
        refuses(r"train\.batch", BatchSize.of, value)


def test_an_evaluation_is_one_pass_and_the_same_for_every_seed():
    objective = Causal(Vocabulary.of(LANGUAGE), 32, "decoder")
    batches, count = evaluation(LANGUAGE, objective, size=20)
    rows = torch.cat([batches.batch(step).tokens for step in range(count)])
    assert len({tuple(row) for row in rows.tolist()}) == len(rows) == LANGUAGE.windows(33)
    limited, few = evaluation(LANGUAGE, objective, size=20, rows=50)
    assert few == 3
    assert torch.equal(torch.cat([limited.batch(step).tokens for step in range(few)]), rows[:50])
