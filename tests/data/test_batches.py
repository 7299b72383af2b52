import itertools
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data.batches import Batches, ahead, evaluation, training
from scaling.data.module import TrainingLoader
from scaling.data.plan import BatchSize, Buckets
from scaling.data.source import Rows, Source, Vocabulary
from scaling.data.synthetic import Synthetic, SyntheticPairs
from scaling.objectives import Causal, Masked, NextSentence, Sequence

NOWHERE = Path("nowhere")
LANGUAGE = Synthetic(symbols=16, order=1, tokens=5000, validation=2000).open("train", NOWHERE)
PAIRS = SyntheticPairs(pairs=300, symbols=16, order=1).open("train", NOWHERE)


def same(one: Batch, other: Batch) -> bool:
    for field in fields(Batch):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if (left is None) != (right is None) or (left is not None and not torch.equal(left, right)):
            return False
    return True


def together(batches: Batches, step: int, ranks: int) -> Batch:
    shares = [batches.batch(step, rank, ranks) for rank in range(ranks)]

    def joined(name: str) -> torch.Tensor | None:
        parts = [getattr(share, name) for share in shares if share.rows]
        return None if parts[0] is None else torch.cat(parts)

    return Batch(**{field.name: joined(field.name) for field in fields(Batch)})  # type: ignore[arg-type]


def made(kind: type, family: str, size: object = 13, seed: int = 0) -> Batches:
    source = PAIRS if kind is Sequence else LANGUAGE
    return training(source, kind(Vocabulary.of(source), 32, family), BatchSize.of(size), seed)  # type: ignore[arg-type]


KINDS = [(Causal, "decoder"), (Masked, "encoder"), (NextSentence, "encoder"), (Sequence, "decoder")]


@pytest.mark.parametrize(("kind", "family"), KINDS)
@settings(max_examples=6)
@given(step=st.integers(0, 10**6), seed=st.integers(0, 10**6), size=st.integers(1, 20))
def test_the_global_batch_is_the_same_for_any_number_of_ranks(kind, family, step, seed, size):
    batches = made(kind, family, size, seed)
    whole = batches.batch(step)
    assert same(whole, batches.batch(step))
    for ranks in (1, 2, 3, 4, 8):
        assert same(whole, together(batches, step, ranks))


def test_a_pass_of_pairs_has_every_pair_once_in_batches_of_about_one_size():
    assert PAIRS.lengths is not None
    plan = Buckets(PAIRS.lengths.max(axis=1), 64, tokens=320, seed=0)
    passed = [plan.drawn(step) for step in range(len(plan._batches))]
    assert sorted(np.concatenate([drawn.rows for drawn in passed])) == list(range(300))
    assert all(len(drawn.rows) * drawn.length <= 320 for drawn in passed)
    assert all(PAIRS.lengths[drawn.rows].max() <= drawn.length for drawn in passed)
    assert np.mean([len(drawn.rows) * drawn.length for drawn in passed]) > 200
    assert plan.passes(len(passed)) == 1
    again = [plan.drawn(len(passed) + step).rows.tolist() for step in range(len(passed))]
    assert again != [drawn.rows.tolist() for drawn in passed]


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


@pytest.mark.parametrize("value", [0, -3, "64", {5: 8}, {0: 0}, {"from": 3, "to": 8, "over": 9}, {0: 1.5}, None, {}])
def test_no_schedule_is_refused(value):
    with pytest.raises(ScalingError, match=r"train\.batch"):
        BatchSize.of(value)


def test_an_evaluation_is_one_pass_and_the_same_for_every_seed():
    source = LANGUAGE
    objective = Causal(Vocabulary.of(source), 32, "decoder")
    batches, count = evaluation(source, objective, size=20)
    rows = torch.cat([batches.batch(step).tokens for step in range(count)])
    assert len(rows) == source.windows(33)
    assert len({tuple(row) for row in rows.tolist()}) == len(rows)
    limited, few = evaluation(source, objective, size=20, rows=50)
    assert few == 3
    assert torch.equal(torch.cat([limited.batch(step).tokens for step in range(few)]), rows[:50])


class Documents(Source):
    """Two documents a window, the second from its middle on."""

    vocabulary, specials, tokens = 50, {"eos": 0}, 4000

    def windows(self, length: int) -> int:
        return 4000 // length

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        tokens = 1 + (rows[:, None] * length + np.arange(length)) % 49
        numbered = np.broadcast_to(1 + (np.arange(length) >= length // 2), tokens.shape)
        return Rows(tokens.astype(np.uint16), numbered if documents else None)


def test_masked_documents_part_and_joined_ones_do_not():
    source = Documents()
    objective = Causal(Vocabulary(50, {"eos": 0}, 50), 16, "decoder")
    joined = training(source, objective, BatchSize.of(4), 0).batch(0)
    masked = training(source, objective, BatchSize.of(4), 0, documents="mask").batch(0)
    assert joined.documents is None
    assert (joined.targets >= 0).all()
    assert masked.documents is not None
    assert masked.documents[0].tolist() == [1] * 8 + [2] * 8
    assert masked.targets[0, 7] == -100  # the first token of the second document
    assert (masked.targets >= 0).sum() == 4 * 15


def test_data_shorter_than_a_window_are_refused():
    source = Synthetic(symbols=16, order=1, tokens=20).open("train", NOWHERE)
    with pytest.raises(ScalingError, match="shorter than one window of 33"):
        training(source, Causal(Vocabulary.of(source), 32, "decoder"), BatchSize.of(2), 0)


def test_pairs_and_one_text_are_not_mixed_up():
    with pytest.raises(ScalingError, match="learns from pairs, and the data are windows"):
        training(LANGUAGE, Sequence(Vocabulary.of(LANGUAGE), 32, "decoder"), BatchSize.of(2), 0)
    with pytest.raises(ScalingError, match="learns from windows, and the data are pairs"):
        training(PAIRS, Causal(Vocabulary.of(PAIRS), 32, "decoder"), BatchSize.of(2), 0)
    with pytest.raises(ScalingError, match="batches of one size"):
        training(PAIRS, Sequence(Vocabulary.of(PAIRS), 32, "decoder"), BatchSize.of({0: 2, 5: 4}), 0)


def test_ahead_keeps_the_order_and_stops_at_once():
    assert list(ahead(lambda item: item * item, range(50), 3)) == [item * item for item in range(50)]
    asked = []
    endless = ahead(lambda item: asked.append(item) or item, iter(int, 1), 2)
    assert next(endless) == 0
    endless.close()
    assert len(asked) <= 3


def test_a_loader_reads_every_epoch_whole_and_goes_on_where_it_stopped():
    batches = made(Causal, "decoder")
    loader = TrainingLoader(batches, 3)
    for _ in range(2):  # Lightning does not ask for the end
        epoch = itertools.islice(loader, len(loader))
        assert all(torch.equal(batch.tokens, batches.batch(step).tokens) for step, batch in enumerate(epoch))
        assert loader.state_dict() == {"next": 3}
    loader, other = TrainingLoader(batches, 5, 1, 2), TrainingLoader(batches, 5, 1, 2)
    list(itertools.islice(loader, 3))
    other.load_state_dict(loader.state_dict())
    for each in (loader, other):
        assert [batch.tokens.tolist() for batch in each] == [batches.batch(n, 1, 2).tokens.tolist() for n in (3, 4)]


def test_options_of_any_length_come_in_batches_of_about_as_many_tokens(tmp_path):
    rows = [{"text": "a" * number, "options": ["b" * number, "c"], "label": 0} for number in range(1, 25)]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    line = {"kind": "Task", "answer": "options", "text": "{text}", "options": ["{options}"], "metric": "Accuracy"}
    files = {split: str(tmp_path / "a.jsonl") for split in ("train", "validation")}
    source = build("data", {**line, "files": files, "tokenizer": "Byte"}).open("train", tmp_path)
    objective = build("objective", "Answer", Vocabulary.of(source), 32, "encoder")
    batches = training(source, objective, BatchSize.of({"tokens": 200}), 0)
    seen = [batches.batch(step) for step in range(round(1 / batches.passes(1)))]
    assert sorted(example for batch in seen for example in batch.examples.tolist()) == list(range(24))
    assert max(batch.tokens.shape[1] for batch in seen) > 32  # both options in one row
    assert all(batch.tokens.numel() <= 200 for batch in seen)
