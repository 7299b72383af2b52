"""Heads of tasks: which vectors they read, their losses against plain formulas, and their counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from scaling.batch import IGNORE, Batch
from scaling.config import load
from scaling.cost import cost
from scaling.errors import ScalingError
from scaling.schema import build, kinds
from scaling.shape import Shape
from tests.model.test_variants import TASK_HEADS, batch_for, configured, tokens
from tests.model.test_variants import build as built

SHAPE = Shape.of({"width": 8, "layers": 1, "heads": 1, "vocabulary": 11, "length": 16})
ONES = "{kind: Sequence, classes: 3}"


def head(kind: str, **keys):
    torch.manual_seed(0)
    return build("head", {"kind": kind, **keys}, SHAPE).double()


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_bert_base_with_two_classes_has_as_many_parameters_as_published():
    config = load(
        "bert", ["model.head={kind: Sequence, classes: 2, activation: Tanh}", "model.sentence=null", "model.tie=[]"]
    )
    assert cost(config).parameters == 109_483_778


def test_every_head_of_a_task_declares_its_answer_and_the_shape_of_its_labels():
    answers = {name: kinds("head")[name].answer for name in TASK_HEADS}
    assert set(answers.values()) == {"class", "classes", "number", "options", "tags", "span"}
    for name in TASK_HEADS:
        model = built("encoder", f"model.head={{kind: {name}{KEYS.get(name, '')}}}")
        batch = batch_for(model)
        labels = model.head.labels_like(batch.tokens)
        assert labels.shape == batch.labels.shape
        losses = model.losses(replace(batch, labels=labels))
        assert losses.shape == labels.shape


KEYS = {
    "Sequence": ", classes: 3",
    "NextSentence": ", activation: Tanh",
    "Classes": ", classes: 3",
    "Tokens": ", classes: 5",
}


def test_vectors_of_both_orders_are_added_before_the_matrix():
    made, hidden = head("Sequence", classes=3, added=True), drawn(2, 2, 8)
    torch.testing.assert_close(made(hidden), hidden.sum(1) @ made.out.weight.T + made.out.bias)
    labels = torch.tensor([2, IGNORE])
    torch.testing.assert_close(made.loss(hidden, labels)[0], F.cross_entropy(made(hidden)[:1], labels[:1]))
    assert made.loss(hidden, labels)[1] == 0


def test_several_texts_of_a_row_have_a_label_each():
    made, hidden = head("Sequence", classes=3), drawn(2, 4, 8)
    labels = torch.tensor([[0, 1, 2, IGNORE], [2, IGNORE, 0, 0]])
    losses = made.loss(hidden, labels)
    expected = F.cross_entropy(made(hidden).flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="none")
    torch.testing.assert_close(losses, expected.view(2, 4))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_weights_of_classes_are_those_of_torch(smoothing):
    weights, labels = [0.5, 1.0, 4.0], torch.tensor([0, 2, IGNORE, 1])
    made, hidden = head("Sequence", classes=3, weights=weights), drawn(4, 1, 8)
    expected = F.cross_entropy(
        made(hidden), labels, torch.tensor(weights).double(), reduction="none", label_smoothing=smoothing
    )
    torch.testing.assert_close(made.loss(hidden, labels, smoothing), expected)


def test_weights_of_another_number_of_classes_are_refused():
    with pytest.raises(ScalingError, match="2 weights of 3 classes"):
        head("Sequence", classes=3, weights=[1, 2])


def test_several_classes_hold_each_by_itself():
    made, hidden = head("Classes", classes=3), drawn(2, 1, 8)
    labels = torch.tensor([[1, 0, 1], [0, IGNORE, IGNORE]])
    expected = F.binary_cross_entropy_with_logits(made(hidden), labels.clamp(min=0).double(), reduction="none")
    torch.testing.assert_close(made.loss(hidden, labels), expected.masked_fill(labels == IGNORE, 0))


def test_a_number_has_a_squared_error():
    made, hidden = head("Number"), drawn(3, 1, 8)
    labels = torch.tensor([2.5, IGNORE, -1.0])
    expected = (made(hidden) - labels.double()).square()
    expected[1] = 0
    torch.testing.assert_close(made.loss(hidden, labels), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_an_option_that_a_row_lacks_has_no_chance(smoothing):
    made, hidden = head("Options", activation="Tanh"), drawn(2, 3, 8)
    absent = torch.tensor([[False] * 3, [False, False, True]])
    labels = torch.tensor([2, 0])
    assert made(hidden, absent)[1, 2] == -float("inf")
    assert made(0 * hidden, absent)[0].isfinite().all()  # a vector of zeros that is there is no absent one
    two = F.cross_entropy(made(hidden)[1:, :2], labels[1:], label_smoothing=smoothing)
    torch.testing.assert_close(made.loss(hidden, labels, smoothing, absent)[1], two)
    three = F.cross_entropy(made(hidden)[:1], labels[:1], label_smoothing=smoothing)
    torch.testing.assert_close(made.loss(hidden, labels, smoothing, absent)[0], three)


def test_a_span_has_a_loss_for_its_start_and_its_end():
    made, hidden = head("Span"), drawn(2, 5, 8)
    labels = torch.tensor([[1, 3], [0, IGNORE]])
    losses = made.loss(hidden, labels)
    for side in (0, 1):
        expected = F.cross_entropy(made(hidden)[:, side], labels[:, side], ignore_index=IGNORE, reduction="none")
        torch.testing.assert_close(losses[:, side], expected)


@pytest.mark.parametrize("kind", [kind for kind in TASK_HEADS if kind != "Tokens"])
@pytest.mark.parametrize("family", ["encoder", "decoder"])
@pytest.mark.parametrize("left", [False, True])
def test_padding_changes_no_loss(kind, family, left):
    model = built(family, f"model.head={{kind: {kind}{KEYS.get(kind, '')}}}").double()
    plain = batch_for(model)
    reads = torch.tensor([[11], [5], [7]]) if plain.reads is None else plain.reads
    plain = replace(plain, reads=reads)
    pad = (4, 0) if left else (0, 4)
    shift = 4 if left else 0
    assert plain.labels is not None
    labels = plain.labels + shift if kind == "Span" else plain.labels
    padded = Batch(
        F.pad(plain.tokens, pad, value=3),
        F.pad(plain.targets, pad, value=IGNORE),
        documents=F.pad(torch.ones_like(plain.tokens), pad),
        labels=labels,
        reads=torch.where(reads < 0, -1, reads + shift),
    )
    plain = replace(plain, segments=None)
    torch.testing.assert_close(model.losses(padded), model.losses(plain), rtol=0, atol=1e-9)


def test_texts_packed_into_one_row_are_read_as_if_alone():
    model = built("decoder", f"model.head={ONES}").double()
    a, b = tokens(1, 5, 1), tokens(1, 7, 2)
    alone = [model.logits(Batch(row, row, reads=torch.tensor([[row.shape[1] - 1]]))) for row in (a, b)]
    packed = Batch(
        torch.cat([a, b], 1),
        torch.cat([a, b], 1),
        documents=torch.tensor([[1] * 5 + [2] * 7]),
        reads=torch.tensor([[4, 11]]),
    )
    torch.testing.assert_close(model.logits(packed)[0], torch.cat(alone), rtol=0, atol=1e-10)


def test_the_language_loss_is_added_with_the_weight_of_its_row():
    model = built("decoder", f"model.head={ONES}; model.language=Linear").double()
    batch = batch_for(model)
    alone = {weight: replace(batch, language=torch.full((3,), weight)) for weight in (0.0, 0.5)}
    assert model.loss(alone[0.0]).auxiliary["language"] == 0
    language = model.loss(alone[0.5]).auxiliary["language"]
    plain = model.language.loss(model(batch).hidden, batch.targets).sum() / (batch.targets != IGNORE).sum()
    torch.testing.assert_close(language, 0.5 * plain)
    torch.testing.assert_close(model.loss(replace(batch, language=None)).auxiliary["language"], plain)


def test_the_second_head_can_be_tied_and_the_first_not():
    config = configured("decoder", f"model.head={ONES}; model.language=Linear; model.tie=[decoder, language]")
    model = config.build("model", config["size"])
    assert model.language.weight is model.decoder.embedding.table
    with pytest.raises(ScalingError, match="no table to tie"):
        configured("decoder", f"model.head={ONES}; model.tie=[decoder, head]").build("model", config["size"])
