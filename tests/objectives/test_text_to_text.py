"""Source to target: the text comes back from both sides, and the counts are the papers'."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.base.batch import IGNORE, Batch
from scaling.data.source import Vocabulary
from scaling.data.synthetic import SyntheticPairs
from scaling.objectives import Sequence, SpanCorruption
from tests.objectives.conftest import TEXT, VOCABULARY, keys, run

BOTH = pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])


def sides(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """Source and target of each row, filling left out, from either layout."""
    found = []
    for row in range(batch.rows):
        target = batch.targets[row][batch.targets[row] != IGNORE].tolist()
        if batch.source is None:
            assert batch.prefix is not None
            source = batch.tokens[row, : int(batch.prefix[row]) - 1]
        else:
            documents = batch.source_documents
            source = batch.source[row] if documents is None else batch.source[row][documents[row] > 0]
        found.append((source.tolist(), target))
    return found


def filled(source: list[int], target: list[int], vocabulary: Vocabulary) -> list[int]:
    """The text, from a source with sentinels and a target that says what they stand for."""
    sentinel = {number for name, number in vocabulary.specials.items() if name.startswith("sentinel")}
    assert source.pop() == target.pop() == vocabulary["eos"]
    hidden: dict[int, list[int]] = {}
    for token in target:
        if token in sentinel:
            hidden[token] = []
        else:
            hidden[list(hidden)[-1]].append(token)
    expected = [vocabulary[f"sentinel_{number}"] for number in range(len(hidden))]
    assert [token for token in source if token in sentinel] == list(hidden) == expected
    assert all(hidden.values())
    return [text for token in source for text in hidden.get(token, [token])]


@settings(max_examples=40)
@given(
    st.integers(12, 150),
    st.floats(0.05, 0.8),
    st.floats(1, 6),
    st.sampled_from(["spans", "tokens"]),
    st.sampled_from(["encoder_decoder", "decoder"]),
    st.integers(0, 99),
)
def test_the_text_comes_back_from_source_and_target(length, rate, mean, noise, family, seed):
    line = {"kind": "SpanCorruption", "rate": rate, "mean": mean, "noise": noise}
    objective, read, batch = run(line, length, family, count=6, seed=seed)
    hidden = max(1, round(rate * objective.reads))
    for (source, target), text in zip(sides(batch), read.tokens.tolist()):
        assert sum(token < TEXT for token in target[:-1]) == hidden
        assert filled(source, target, objective.vocabulary) == text


def test_512_reads_568_and_gives_114_in_28_spans_that_stand_anywhere():
    objective, _, batch = run("SpanCorruption", 512, "encoder_decoder", count=4)
    assert objective.reads == 568
    assert batch.source is not None
    assert batch.source.shape == (4, 512)
    assert batch.tokens.shape == batch.targets.shape == (4, 114)
    assert (batch.targets != IGNORE).all()
    assert batch.documents is batch.source_documents is None
    assert (batch.tokens[:, 1:] == batch.targets[:, :-1]).all()
    assert (batch.tokens[:, 0] == VOCABULARY["bos"]).all()
    hidden = SpanCorruption(VOCABULARY, 512, "encoder_decoder").chosen(keys(3000), 568)
    assert (hidden.sum(1) == 85).all()
    assert ((hidden & ~np.pad(hidden, ((0, 0), (1, 0)))[:, :-1]).sum(1) == 28).all()
    # The first token is never hidden and the last always, as the text is cut into gap, span, gap, span …
    assert np.abs(hidden[:, 40:-40].mean(0) - 0.15).max() < 5 * np.sqrt(0.15 * 0.85 / 3000)


@BOTH
def test_what_the_denoising_objectives_of_the_table_make(family):
    for kind in ("BertStyle", "MassStyle", "DropTokens", "Deshuffle"):
        objective, read, batch = run(kind, 64, family)
        corrupted = max(1, round(0.15 * read.tokens.shape[1]))
        for (source, target), text in zip(sides(batch), read.tokens.tolist()):
            assert source.pop() == target.pop() == objective.vocabulary["eos"]
            changed = sum(s != t for s, t in zip(source, text))
            if kind == "DropTokens":
                assert sorted(source + target) == sorted(text)
                assert len(target) == corrupted
                continue
            assert target == text
            if kind == "Deshuffle":
                assert sorted(source) == sorted(text)
                assert source != text
            elif kind == "MassStyle":
                assert source.count(objective.vocabulary["mask"]) == changed == corrupted
            else:
                assert 0 < changed <= corrupted


@settings(max_examples=20)
@given(st.integers(2, 60), st.integers(0, 50))
def test_a_prefix_and_what_follows_it(length, seed):
    _, read, batch = run("Prefix", length, "encoder_decoder", count=8, seed=seed)
    for (source, target), text in zip(sides(batch), read.tokens.tolist()):
        assert source + target == text
        assert source
        assert target
    _, read, batch = run("Prefix", length, "decoder", count=8, seed=seed)
    assert batch.prefix is not None
    for tokens, targets, prefix, text in zip(batch.tokens, batch.targets, batch.prefix.tolist(), read.tokens.tolist()):
        assert tokens.tolist() == text[:-1]
        assert targets.tolist() == [IGNORE] * (prefix - 1) + text[prefix:]


@BOTH
def test_pairs_come_through_with_their_truth(family):
    source = SyntheticPairs(pairs=50).open("train", Path("nowhere"))
    objective = Sequence(Vocabulary.of(source), 64, family)
    read = source.read(np.arange(50), objective.reads)
    batch = objective(read, keys(50))
    assert batch.truth is not None
    assert read.source is not None
    assert read.truth is not None
    for row, both in enumerate(sides(batch)):
        count = int(source.lengths[row, 1])
        assert both == (read.source[row, :count].tolist(), read.tokens[row, :count].tolist())
        assert batch.truth[row][batch.targets[row] != IGNORE].tolist() == read.truth[row, :count].tolist()
