"""Objectives over windows and pairs: exact counts, the papers' proportions, and the text that comes back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import load
from scaling.config.schema import build, kinds
from scaling.data import hashing
from scaling.data.source import Rows, Vocabulary
from scaling.data.synthetic.language import SyntheticPairs
from scaling.objectives.causal import Sequence
from scaling.training.parametrization import Standard, initialise
from tests.command_line import refuses

TEXT = 200  # ids 3 to 199 are text
SPECIALS = {"bos": 0, "eos": 1, "pad": 2}
BEGINS = np.arange(TEXT) % 3 == 0  # every third token begins a word
VOCABULARY = Vocabulary(TEXT, SPECIALS, TEXT, BEGINS)
SEEDS = st.integers(0, 99)


def rows(count, length, seed=0):
    """Windows of text, any token equally likely."""
    drawn = hashing.below(hashing.bits(hashing.keys(seed, "rows", np.arange(count)), length), TEXT - len(SPECIALS))
    return Rows((drawn + np.uint64(len(SPECIALS))).astype(np.uint16))


def keys(count, seed=0):
    return hashing.keys(seed, "objective", np.arange(count))


def make(line, length, family):
    return build("objective", line, VOCABULARY, length, family)


def run(line, length, family, count=64, seed=0):
    """An objective, the rows that it read, and the batch that it made of them."""
    objective = make(line, length, family)
    read = rows(count * (1 + objective.others), objective.reads, seed)
    return objective, read, objective(read, keys(count, seed))


FAMILIES = ("encoder", "decoder", "encoder_decoder")
KINDS = kinds("objective")
WINDOWS = [name for name, kind in KINDS.items() if getattr(kind, "takes", None) == "windows"]
DRAWING_NOTHING = ("BothWays", "Causal")


@pytest.mark.parametrize(("kind", "family"), [(kind, family) for kind in WINDOWS for family in KINDS[kind].families])
def test_a_batch_fits_the_model_and_a_row_is_a_function_of_its_own_tokens_and_key(kind, family):
    objective, read, batch = run(kind, 64, family)
    assert batch.tokens.shape == batch.targets.shape
    assert batch.tokens.shape[0] == 64
    assert (batch.source is not None) == (family == "encoder_decoder")
    sides = [batch.tokens, *([] if batch.source is None else [batch.source])]
    assert 63 <= max(side.shape[1] for side in sides) <= 64
    for name, tensor in vars(batch).items():
        assert tensor is None or tensor.is_contiguous(), name
        assert tensor is None or tensor.dtype == (torch.float32 if name == "truth" else torch.int64), name
    for ids in (*sides, batch.targets[batch.targets != IGNORE]):
        assert ids.min() >= 0
        assert ids.max() < objective.vocabulary.size
    assert (batch.targets != IGNORE).any(1).all()
    alone = objective(Rows(read.tokens[[5, 64 + 5] if objective.others else [5]]), keys(64)[5:6])
    for name, tensor in vars(batch.micro(5, 6)).items():
        assert tensor is None or torch.equal(tensor, getattr(alone, name)), name
    other = objective(read, keys(64, seed=1))
    held = [tensor is None or torch.equal(tensor, getattr(other, name)) for name, tensor in vars(batch).items()]
    assert all(held) == (kind in DRAWING_NOTHING)


def test_what_cannot_be_is_refused_in_one_line():
    for kind, objective in KINDS.items():
        for family in set(FAMILIES) - set(objective.families):
            refuses(f"and this is of the family {family}", make, kind, 64, family)
    for kind in set(WINDOWS) - {*DRAWING_NOTHING, "Prefix"}:
        refuses("a length of 1 is too short", make, kind, 1, KINDS[kind].families[0])
    for line in ({"kind": "Masked", "masked": 0.8, "random": 0.3}, {"kind": "Spans", "rate": 0.6}):
        refuses(None, make, line, 64, "encoder")
    read = Rows(run("NextSentence", 32, "encoder", count=2)[1].tokens, torch.ones(4, 29).numpy())
    refuses("join documents", make("NextSentence", 32, "encoder"), read, keys(2))


def test_the_loss_of_a_distilled_student_is_hintons():
    batch = Batch(torch.zeros(2, 3, dtype=torch.long), torch.tensor([[3, IGNORE, 1], [0, 2, 2]]))
    line = {"kind": "Distil", "teacher": "none", "objective": "Causal", "weight": 0.3, "temperature": 2.0}
    student, taught = torch.randn(2, 3, 5, requires_grad=True), torch.randn(2, 3, 5)
    objective = make(line, 8, "decoder")
    loss, counts = objective.of_tokens(student, taught, batch), batch.targets != IGNORE
    p, q = (F.softmax(logits[counts] / 2, -1) for logits in (taught, student))
    hard, soft = F.cross_entropy(student[counts], batch.targets[counts]), (p * (p / q).log()).sum(-1).mean()
    assert loss.item() == pytest.approx((0.7 * hard + 0.3 * 4 * soft).item(), rel=1e-5)
    loss.backward()
    assert student.grad is not None
    assert (student.grad[~counts] == 0).all()
    refuses("the teacher knows 7 tokens and the student 5", objective.of_tokens, student, torch.randn(2, 3, 7), batch)


def restored(batch):
    return torch.where(batch.targets == IGNORE, batch.tokens, batch.targets).numpy()


@settings(max_examples=25)
@given(st.integers(8, 200), st.floats(0.02, 0.6), st.sampled_from(["token", "word"]), SEEDS, st.integers(0, 5))
def test_the_text_comes_back_and_the_rate_is_exact(length, rate, unit, seed, specials):
    objective = make({"kind": "Masked", "rate": rate, "unit": unit}, length, "encoder")
    read = rows(16, objective.reads, seed)
    read.tokens[:, :: objective.reads // (specials + 1) + 1] = SPECIALS["eos"]
    batch = objective(read, keys(16, seed))
    assert (restored(batch)[:, 1:-1] == read.tokens).all()
    chosen = (batch.targets != IGNORE).numpy()
    assert not (chosen[:, 1:-1] & (read.tokens == SPECIALS["eos"])).any()
    wanted = np.maximum(1, np.rint(rate * (read.tokens != SPECIALS["eos"]).sum(1)))
    if unit == "token":
        assert (chosen.sum(1) == wanted).all()
    else:  # words are hidden whole
        assert (chosen.sum(1) <= wanted).all()
        inside = ~BEGINS[read.tokens[:, 1:]] & (read.tokens[:, :-1] != SPECIALS["eos"])
        assert (chosen[:, 2:-1] == chosen[:, 1:-2])[inside & (read.tokens[:, 1:] != SPECIALS["eos"])].all()
    rate = min(rate, 0.48)
    objective, read, batch = run({"kind": "Spans", "rate": rate}, max(length, 40), "encoder", count=8, seed=seed)
    chosen = (batch.targets != IGNORE).numpy()
    assert (restored(batch)[:, 1:-1] == read.tokens).all()
    assert (chosen.sum(1) == max(1, round(rate * objective.reads))).all()
    assert not chosen[:, [0, -1]].any()
    assert lengths(chosen).max() <= 10  # so that no two spans touch


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
    assert {*shown[swapped].tolist()} == set(range(len(SPECIALS), TEXT))
    _, _, short = run("Masked", 66, "encoder", count=4000)
    chosen, rate = (short.targets != IGNORE).numpy()[:, 1:-1], 10 / 64
    assert np.abs(chosen.mean(0) - rate).max() < 4.5 * np.sqrt(rate * (1 - rate) / 4000)
    assert abs((chosen[:, :-1] & chosen[:, 1:]).mean() - rate * 9 / 63) < 0.003


def lengths(chosen):
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
    assert (batch.tokens == batch.targets).numpy()[chosen & ~masked].all()
    assert (masked[:, 1:] == masked[:, :-1])[chosen[:, 1:] & chosen[:, :-1]].all()


def test_half_the_sentences_follow():
    objective, read, batch = run("NextSentence", 67, "encoder", count=2000)
    cls, sep = objective.vocabulary["cls"], objective.vocabulary["sep"]
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


def sides(batch):
    """Source and target of each row, filling left out, from either layout."""
    found = []
    for row in range(batch.rows):
        target = batch.targets[row][batch.targets[row] != IGNORE].tolist()
        if batch.source is None:
            source = batch.tokens[row, : int(batch.prefix[row]) - 1]
        else:
            documents = batch.source_documents
            source = batch.source[row] if documents is None else batch.source[row][documents[row] > 0]
        found.append((source.tolist(), target))
    return found


def filled(source, target, vocabulary):
    """The text, from a source with sentinels and a target that says what they stand for."""
    sentinel = {number for name, number in vocabulary.specials.items() if name.startswith("sentinel")}
    assert source.pop() == target.pop() == vocabulary["eos"]
    hidden: dict[int, list[int]] = {}
    for token in target:
        if token in sentinel:
            hidden[token] = current = []
        else:
            current.append(token)
    expected = [vocabulary[f"sentinel_{number}"] for number in range(len(hidden))]
    assert [token for token in source if token in sentinel] == list(hidden) == expected
    assert all(hidden.values())
    return [text for token in source for text in hidden.get(token, [token])]


@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
@settings(max_examples=20)
@given(st.integers(12, 150), st.floats(0.05, 0.8), st.floats(1, 6), st.sampled_from(["spans", "tokens"]), SEEDS)
def test_the_text_comes_back_from_source_and_target(family, length, rate, mean, noise, seed):
    line = {"kind": "SpanCorruption", "rate": rate, "mean": mean, "noise": noise}
    objective, read, batch = run(line, length, family, count=6, seed=seed)
    hidden = max(1, round(rate * objective.reads))
    for (source, target), text in zip(sides(batch), read.tokens.tolist()):
        assert sum(token < TEXT for token in target[:-1]) == hidden
        assert filled(source, target, objective.vocabulary) == text


def test_512_reads_568_and_gives_114_in_28_spans_that_stand_anywhere():
    objective, _, batch = run("SpanCorruption", 512, "encoder_decoder", count=4)
    assert objective.reads == 568
    assert batch.source.shape == (4, 512)
    assert batch.tokens.shape == batch.targets.shape == (4, 114)
    assert (batch.targets != IGNORE).all()
    assert batch.documents is batch.source_documents is None
    assert (batch.tokens[:, 1:] == batch.targets[:, :-1]).all()
    assert (batch.tokens[:, 0] == VOCABULARY["bos"]).all()
    added = {number for name, number in objective.vocabulary.specials.items() if name not in SPECIALS}
    assert added == set(range(TEXT, TEXT + 28))  # stored ids stay as they are
    hidden = objective.chosen(keys(3000), 568)
    assert (hidden.sum(1) == 85).all()
    assert ((hidden & ~np.pad(hidden, ((0, 0), (1, 0)))[:, :-1]).sum(1) == 28).all()
    # The first token is never hidden and the last always, as the text is cut into gap, span, gap, span …
    assert np.abs(hidden[:, 40:-40].mean(0) - 0.15).max() < 5 * np.sqrt(0.15 * 0.85 / 3000)


@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
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
    _, read, batch = run("Deshuffle", 140_000, family, count=1)  # positions beyond 16 bits
    assert sorted(sides(batch)[0][0][:-1]) == sorted(read.tokens[0].tolist())


@settings(max_examples=20)
@given(st.integers(2, 60), st.integers(0, 50))
def test_a_prefix_and_what_follows_it(length, seed):
    _, read, batch = run("Prefix", length, "encoder_decoder", count=8, seed=seed)
    for (source, target), text in zip(sides(batch), read.tokens.tolist()):
        assert source + target == text
        assert min(len(source), len(target)) > 0
    _, read, batch = run("Prefix", length, "decoder", count=8, seed=seed)
    for tokens, targets, prefix, text in zip(batch.tokens, batch.targets, batch.prefix.tolist(), read.tokens.tolist()):
        assert tokens.tolist() == text[:-1]
        assert targets.tolist() == [IGNORE] * (prefix - 1) + text[prefix:]


@torch.no_grad()
def test_no_token_of_a_masked_document_sees_what_it_is_to_predict():
    size = "size={width: 16, layers: 2, heads: 2, vocabulary: 40, length: 23}"
    config = load("decoder", ["model.pattern=Prefix", size])
    model = initialise(config.build("model", config["size"]), Standard(head="normal"), seed=0).eval().double()
    tokens = np.random.default_rng(0).integers(4, 40, (6, 24))
    documents = np.sort(np.random.default_rng(1).integers(1, 4, (6, 24)), axis=1)
    objective = KINDS["Prefix"](Vocabulary(40, {"eos": 0}, 40), 23, "decoder")
    batch = objective(Rows(tokens, documents.astype(np.int32)), keys(6))
    assert (batch.targets != IGNORE).any(1).all()
    before = model.logits(batch)
    for place in range(1, 23):
        changed = batch.tokens.clone()
        changed[:, place] = 4 + (changed[:, place] - 3) % 36
        after = model.logits(replace(batch, tokens=changed))
        seen = (after - before).abs().amax(-1) > 1e-12
        assert not (seen & (batch.targets != IGNORE))[:, :place].any(), place
    starts = np.flatnonzero(np.diff(documents[0], prepend=0))
    assert all((batch.targets[0, start : start + int(batch.prefix[0]) - 1] == IGNORE).all() for start in starts)


@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
def test_pairs_come_through_with_their_truth(family):
    source = SyntheticPairs(pairs=50).open("train", Path("nowhere"))
    objective = Sequence(Vocabulary.of(source), 64, family)
    read = source.read(np.arange(50), objective.reads)
    batch = objective(read, keys(50))
    for row, both in enumerate(sides(batch)):
        count = int(source.lengths[row, 1])
        assert both == (read.source[row, :count].tolist(), read.tokens[row, :count].tolist())
        assert batch.truth[row][batch.targets[row] != IGNORE].tolist() == read.truth[row, :count].tolist()
