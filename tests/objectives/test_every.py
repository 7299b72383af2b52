"""What holds of every objective that takes windows, with every family that it trains; and the loss of a student."""

from dataclasses import fields

import pytest
import torch
import torch.nn.functional as F

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError
from scaling.config.schema import kinds
from scaling.data.source import Rows
from tests.objectives.conftest import SPECIALS, keys, make, run

FAMILIES = ("encoder", "decoder", "encoder_decoder")
KINDS = kinds("objective")
WINDOWS = [name for name, kind in KINDS.items() if getattr(kind, "takes", None) == "windows"]
DRAWING_NOTHING = ("BothWays", "Causal")


def same(one: Batch, other: Batch) -> bool:
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(Batch)]
    return all(a is b is None or (a is not None and b is not None and torch.equal(a, b)) for a, b in pairs)


@pytest.mark.parametrize(("kind", "family"), [(kind, family) for kind in WINDOWS for family in KINDS[kind].families])
def test_a_batch_fits_the_model_and_a_row_is_a_function_of_its_own_tokens_and_key(kind, family):
    objective, read, batch = run(kind, 64, family)
    assert batch.tokens.shape == batch.targets.shape
    assert batch.tokens.shape[0] == 64
    assert (batch.source is not None) == (family == "encoder_decoder")
    sides = [batch.tokens, *([] if batch.source is None else [batch.source])]
    assert 63 <= max(side.shape[1] for side in sides) <= 64
    for field in fields(Batch):
        tensor = getattr(batch, field.name)
        if tensor is not None:
            assert tensor.is_contiguous(), field.name
            assert tensor.dtype == (torch.float32 if field.name == "truth" else torch.int64), field.name
    for ids in (*sides, batch.targets[batch.targets != IGNORE]):
        assert ids.min() >= 0
        assert ids.max() < objective.vocabulary.size
    assert (batch.targets != IGNORE).any(1).all()
    picked = [5, 64 + 5] if objective.others else [5]
    assert same(batch.micro(5, 6), objective(Rows(read.tokens[picked]), keys(64)[5:6]))
    assert same(batch, objective(read, keys(64, seed=1))) == (kind in DRAWING_NOTHING)


def test_what_cannot_be_is_refused_in_one_line():
    for kind, objective in KINDS.items():
        for family in set(FAMILIES) - set(objective.families):
            with pytest.raises(ScalingError, match=f"and this is of the family {family}"):
                make(kind, 64, family)
    for kind in set(WINDOWS) - {*DRAWING_NOTHING, "Prefix"}:
        with pytest.raises(ScalingError, match="a length of 1 is too short"):
            make(kind, 1, KINDS[kind].families[0])
    for line in (
        {"kind": "Masked", "masked": 0.8, "random": 0.3},
        {"kind": "Spans", "rate": 0.6},
        {"kind": "BertStyle", "rate": 1.0},
        {"kind": "Distil", "teacher": "none", "objective": "Causal", "weight": 2.0},
    ):
        with pytest.raises(ScalingError) as refused:
            make(line, 64, "decoder" if line["kind"] == "Distil" else KINDS[line["kind"]].families[0])
        assert "\n" not in str(refused.value)
    read = Rows(run("NextSentence", 32, "encoder", count=2)[1].tokens, torch.ones(4, 29).numpy())
    with pytest.raises(ScalingError, match="join documents"):
        make("NextSentence", 32, "encoder")(read, keys(2))


def test_added_specials_leave_stored_ids_alone():
    vocabulary = make("SpanCorruption", 512, "encoder_decoder").vocabulary
    assert sorted(vocabulary.specials[name] for name in vocabulary.specials.keys() - SPECIALS) == [*range(200, 228)]
    assert (vocabulary.size, vocabulary.rounded(128).size) == (228, 256)
    assert not vocabulary.rounded(128).is_text[200:].any()


def test_the_loss_of_a_distilled_student_is_hintons():
    batch = Batch(torch.zeros(2, 3, dtype=torch.long), torch.tensor([[3, IGNORE, 1], [0, 2, 2]]))
    line = {"kind": "Distil", "teacher": "none", "objective": "Causal", "weight": 0.3, "temperature": 2.0}
    student, taught = torch.randn(2, 3, 5, requires_grad=True), torch.randn(2, 3, 5, requires_grad=True)
    objective = make(line, 8, "decoder")
    loss, counts = objective.loss(student, batch, lambda _: taught), batch.targets != IGNORE
    p, q = (F.softmax(logits[counts] / 2, -1) for logits in (taught, student))
    hard, soft = F.cross_entropy(student[counts], batch.targets[counts]), (p * (p / q).log()).sum(-1).mean()
    assert loss.item() == pytest.approx((0.7 * hard + 0.3 * 4 * soft).item(), rel=1e-5)
    loss.backward()
    assert taught.grad is None
    assert student.grad is not None
    assert (student.grad[~counts] == 0).all()
    with pytest.raises(ScalingError, match="the teacher knows 7 tokens and the student 5"):
        objective.loss(student, batch, lambda _: torch.randn(2, 3, 7))
