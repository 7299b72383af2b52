"""What holds of every objective that takes windows, with every family that it trains."""

from dataclasses import fields

import pytest
import torch
import torch.nn.functional as F

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError
from scaling.config.schema import kinds
from scaling.data.source import Rows
from tests.objectives.conftest import keys


def same(one: Batch, other: Batch) -> bool:
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(Batch)]
    return all(a is b is None or (a is not None and b is not None and torch.equal(a, b)) for a, b in pairs)


FAMILIES = ("encoder", "decoder", "encoder_decoder")
WINDOWS = [name for name, kind in kinds("objective").items() if getattr(kind, "takes", None) == "windows"]
DRAWING_NOTHING = ("BothWays", "Causal")
CASES = [(kind, family) for kind in WINDOWS for family in kinds("objective")[kind].families]


@pytest.mark.parametrize(("kind", "family"), CASES)
def test_a_batch_fits_the_model(kind, family, run, make):
    _, batch = run(kind, 64, family)
    size = make(kind, 64, family).vocabulary.size
    assert batch.tokens.shape == batch.targets.shape
    assert batch.tokens.shape[0] == 64
    assert batch.tokens.shape[1] <= 64
    assert (batch.source is not None) == (family == "encoder_decoder")
    longest = batch.tokens.shape[1]
    if batch.source is not None:
        assert batch.source.shape[1] <= 64
        longest = max(longest, batch.source.shape[1])
    assert longest >= 63
    for field in fields(Batch):
        tensor = getattr(batch, field.name)
        if tensor is not None:
            assert tensor.is_contiguous(), field.name
            assert tensor.dtype == (torch.float32 if field.name == "truth" else torch.int64), field.name
    for ids in (batch.tokens, batch.source, batch.targets[batch.targets != IGNORE]):
        assert ids is None or (ids.min() >= 0 and ids.max() < size)
    assert (batch.targets != IGNORE).any(1).all()


@pytest.mark.parametrize(("kind", "family"), CASES)
def test_a_row_is_a_function_of_its_own_tokens_and_key(kind, family, run, make):
    read, batch = run(kind, 48, family, count=8)
    objective = make(kind, 48, family)
    picked = [5, 13] if objective.others else [5]
    assert same(batch.micro(5, 6), objective(Rows(read.tokens[picked]), keys(8)[5:6]))
    assert same(batch, objective(read, keys(8, seed=1))) == (kind in DRAWING_NOTHING)


@pytest.mark.parametrize(
    ("kind", "family"),
    [(k, f) for k in kinds("objective") for f in FAMILIES if f not in kinds("objective")[k].families],
)
def test_a_family_that_cannot_take_it_is_refused(kind, family, make):
    with pytest.raises(ScalingError, match=f"and this is of the family {family}"):
        make(kind, 64, family)


@pytest.mark.parametrize("kind", [kind for kind in WINDOWS if kind not in (*DRAWING_NOTHING, "Prefix")])
def test_a_length_too_short_is_refused(kind, make):
    with pytest.raises(ScalingError, match="a length of 1 is too short"):
        make(kind, 1, kinds("objective")[kind].families[0])


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "Masked", "rate": 0.0},
        {"kind": "Masked", "masked": 0.8, "random": 0.3},
        {"kind": "Masked", "unit": "letter"},
        {"kind": "Spans", "rate": 0.6},
        {"kind": "Spans", "longest": 0},
        {"kind": "SpanCorruption", "mean": 0.5},
        {"kind": "Distil", "teacher": "none", "objective": "Causal", "weight": 2.0},
        {"kind": "Distil", "teacher": "none", "objective": "Causal", "temperature": 0.0},
        {"kind": "BertStyle", "rate": 1.0},
    ],
)
def test_what_cannot_be_is_refused_in_one_line(line, make):
    family = kinds("objective")[line["kind"]].families[0]
    with pytest.raises(ScalingError) as refused:
        make(line, 64, "decoder" if line["kind"] == "Distil" else family)
    assert "\n" not in str(refused.value)


def test_added_specials_leave_stored_ids_alone(make, vocabulary):
    objective = make("SpanCorruption", 512, "encoder_decoder")
    added = {name: number for name, number in objective.vocabulary.specials.items() if name not in vocabulary.specials}
    assert sorted(added.values()) == list(range(200, 228))
    assert objective.vocabulary.size == 228
    assert objective.vocabulary.rounded(128).size == 256
    assert not objective.vocabulary.rounded(128).is_text[200:].any()


BATCH = Batch(torch.zeros(2, 3, dtype=torch.long), torch.tensor([[3, IGNORE, 1], [0, 2, 2]]))


def test_the_loss_of_a_distilled_student_is_hintons(make):
    line = {"kind": "Distil", "teacher": "none", "objective": "Causal", "weight": 0.3, "temperature": 2.0}
    student, taught = torch.randn(2, 3, 5, requires_grad=True), torch.randn(2, 3, 5, requires_grad=True)
    objective = make(line, 8, "decoder")
    loss, counts = objective.loss(student, BATCH, lambda _: taught), BATCH.targets != IGNORE
    p, q = (F.softmax(logits[counts] / 2, -1) for logits in (taught, student))
    hard, soft = F.cross_entropy(student[counts], BATCH.targets[counts]), (p * (p / q).log()).sum(-1).mean()
    assert loss.item() == pytest.approx((0.7 * hard + 0.3 * 4 * soft).item(), rel=1e-5)
    loss.backward()
    assert taught.grad is None
    assert student.grad is not None
    assert (student.grad[~counts] == 0).all()
    perfect = make({**line, "weight": 1.0}, 8, "decoder").loss(student, BATCH, lambda _: student.detach())
    assert perfect.item() == pytest.approx(0, abs=1e-6)
    with pytest.raises(ScalingError, match="the teacher knows 7 tokens and the student 5"):
        objective.loss(student, BATCH, lambda _: torch.randn(2, 3, 7))
