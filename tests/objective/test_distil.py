import pytest
import torch
import torch.nn.functional as F

from scaling.batch import IGNORE, Batch
from scaling.errors import ScalingError


def test_it_makes_the_batches_of_its_objective(run):
    _, plain = run("Masked", 32, "encoder")
    _, distilled = run({"kind": "Distil", "teacher": "none", "objective": {"kind": "Masked"}}, 32, "encoder")
    assert torch.equal(plain.tokens, distilled.tokens)
    assert torch.equal(plain.targets, distilled.targets)


@pytest.fixture
def batch() -> Batch:
    targets = torch.tensor([[3, IGNORE, 1], [0, 2, 2]])
    return Batch(torch.zeros(2, 3, dtype=torch.long), targets)


def test_the_loss_is_hinton_s(make, batch):
    torch.manual_seed(0)
    student, taught = torch.randn(2, 3, 5, requires_grad=True), torch.randn(2, 3, 5, requires_grad=True)
    objective = make(
        {"kind": "Distil", "teacher": "none", "objective": "Causal", "weight": 0.3, "temperature": 2.0}, 8, "decoder"
    )
    loss = objective.loss(student, batch, lambda _: taught)
    counts = batch.targets != IGNORE
    p, q = (F.softmax(logits[counts] / 2, -1) for logits in (taught, student))
    expected = 0.7 * F.cross_entropy(student[counts], batch.targets[counts]) + 0.3 * 4 * (
        (p * (p / q).log()).sum(-1).mean()
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    assert taught.grad is None
    assert student.grad is not None
    assert (student.grad[~counts] == 0).all()


def test_a_perfect_student_has_only_the_hard_loss(make, batch):
    logits = torch.randn(2, 3, 5)
    objective = make({"kind": "Distil", "teacher": "none", "objective": "Causal", "weight": 1.0}, 8, "decoder")
    assert objective.loss(logits, batch, lambda _: logits).item() == pytest.approx(0, abs=1e-6)


def test_a_teacher_of_another_vocabulary_is_refused(make, batch):
    objective = make({"kind": "Distil", "teacher": "none", "objective": "Causal"}, 8, "decoder")
    with pytest.raises(ScalingError, match="the teacher knows 7 tokens and the student 5"):
        objective.loss(torch.randn(2, 3, 5), batch, lambda _: torch.randn(2, 3, 7))
