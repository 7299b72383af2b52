from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.base.batch import IGNORE
from scaling.data.source import Vocabulary
from scaling.data.synthetic import SyntheticPairs
from scaling.objectives import Prefix, Sequence, SpanCorruption
from tests.objectives.conftest import BEGINS, SPECIALS, TEXT, keys, rows

VOCABULARY = Vocabulary(TEXT, SPECIALS, TEXT, BEGINS)


def sides(batch) -> list[tuple[list[int], list[int]]]:
    """Source and target of each row, filling left out, from either layout."""
    found = []
    for row in range(batch.rows):
        bears = batch.targets[row] != IGNORE
        target = batch.targets[row][bears].tolist()
        if batch.source is not None:
            documents = batch.source_documents
            inside = torch.ones_like(batch.source[row], dtype=torch.bool) if documents is None else documents[row] > 0
            found.append((batch.source[row][inside].tolist(), target))
        else:
            found.append((batch.tokens[row, : int(batch.prefix[row]) - 1].tolist(), target))
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
    assert [token for token in source if token in sentinel] == list(hidden)
    assert list(hidden) == [vocabulary[f"sentinel_{number}"] for number in range(len(hidden))]
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
    objective = SpanCorruption(VOCABULARY, length, family, rate=rate, mean=mean, noise=noise)
    read = rows(6, objective.reads, seed)
    batch = objective(read, keys(6, seed))
    hidden = max(1, round(rate * objective.reads))
    for (source, target), text in zip(sides(batch), read.tokens.tolist()):
        assert sum(token < TEXT for token in target[:-1]) == hidden
        assert filled(source, target, objective.vocabulary) == text


def test_512_reads_568_and_gives_114():
    objective = SpanCorruption(VOCABULARY, 512, "encoder_decoder")
    assert objective.reads == 568
    batch = objective(rows(4, 568), keys(4))
    assert batch.source is not None
    assert batch.source.shape == (4, 512)
    assert batch.tokens.shape == batch.targets.shape == (4, 114)
    assert (batch.targets != IGNORE).all()
    assert batch.documents is batch.source_documents is None
    assert (batch.tokens[:, 1:] == batch.targets[:, :-1]).all()
    assert (batch.tokens[:, 0] == VOCABULARY["bos"]).all()


def test_spans_have_the_mean_length_and_stand_anywhere():
    objective = SpanCorruption(VOCABULARY, 512, "encoder_decoder")
    hidden = objective.chosen(keys(3000), 568)
    starts = hidden & ~np.pad(hidden, ((0, 0), (1, 0)))[:, :-1]
    assert (hidden.sum(1) == 85).all()
    assert (starts.sum(1) == 28).all()
    # The first token is never hidden and the last always, as the text is cut into gap, span, gap, span …
    middle = hidden[:, 40:-40].mean(0)
    assert np.abs(middle - 0.15).max() < 5 * np.sqrt(0.15 * 0.85 / 3000)


@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
def test_what_the_denoising_objectives_of_the_table_make(family, run, make):
    for kind in ("BertStyle", "MassStyle", "DropTokens", "Deshuffle"):
        read, batch = run(kind, 64, family)
        special = make(kind, 64, family).vocabulary
        corrupted = max(1, round(0.15 * read.tokens.shape[1]))
        for (source, target), text in zip(sides(batch), read.tokens.tolist()):
            assert source.pop() == target.pop() == special["eos"]
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
                assert source.count(special["mask"]) == changed == corrupted
            else:
                assert changed <= corrupted


@settings(max_examples=20)
@given(st.integers(2, 60), st.integers(0, 50))
def test_a_prefix_and_what_follows_it(length, seed):
    pair = Prefix(VOCABULARY, length, "encoder_decoder")
    line = Prefix(VOCABULARY, length, "decoder")
    read = rows(8, pair.reads, seed)
    for (source, target), text in zip(sides(pair(read, keys(8, seed))), read.tokens.tolist()):
        assert source + target == text
        assert len(source) >= 1
        assert len(target) >= 1
    read = rows(8, line.reads, seed)
    batch = line(read, keys(8, seed))
    assert batch.prefix is not None
    for tokens, targets, prefix, text in zip(batch.tokens, batch.targets, batch.prefix.tolist(), read.tokens.tolist()):
        assert tokens.tolist() == text[:-1]
        assert targets.tolist() == [IGNORE] * (prefix - 1) + text[prefix:]


@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
def test_pairs_come_through_with_their_truth(family):
    source = SyntheticPairs(pairs=50).open("train", Path("nowhere"))
    objective = Sequence(Vocabulary.of(source), 64, family)
    read = source.read(np.arange(50), objective.reads)
    batch = objective(read, keys(50))
    assert batch.truth is not None
    for row, (given_, target) in enumerate(sides(batch)):
        count = int(source.lengths[row, 1])
        assert given_ == read.source[row, :count].tolist()
        assert target == read.tokens[row, :count].tolist()
        bears = batch.targets[row] != IGNORE
        assert batch.truth[row][bears].tolist() == read.truth[row, :count].tolist()
