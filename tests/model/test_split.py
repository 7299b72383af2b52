"""What is minimised does not depend on how a batch is split over micro batches and ranks, whatever the pieces."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from scaling.base.batch import IGNORE, Batch
from scaling.model.context import Places
from scaling.model.family import Family, Loss
from tests.model.test_variants import EVERY, batch_for, build, case_name

# What decides about a loss, not a row; and auxiliary losses together with one another and with further heads.
LOSSES = ("head=", "channel=", "halting", "sentence", "language", "boundary")
ACT = "model.stack={kind: Universal, norm: RMSNorm, halting: ACT}"
MORE = [
    ("decoder", f"{ACT}; model.block.channel={{kind: Switch, activation: ReLU, experts: 4, capacity: 0.8}}"),
    (
        "encoder",
        "model.sentence={kind: NextSentence, activation: Tanh}; "
        f"model.boundary={{kind: Boundary, activation: GeLU, norm: LayerNorm}}; {ACT}",
    ),
]
ONCE = {
    change: family  # in the first family that takes it
    for family, change in reversed([*EVERY, *MORE])
    if not change or family == "elmo" or any(part in change for part in LOSSES)
}


def filled(model: Family, how: str) -> Batch:
    """Six rows of unequal length, or of several documents each; targets and labels are unevenly spread."""
    batch = batch_for(model, 6, 12)
    lengths, place = torch.tensor([12, 3, 7, 1, 12, 5]), torch.arange(12)
    inside = place < lengths[:, None]
    documents = inside.long() if how == "padded" else 1 + (~inside).long()
    source_documents = None
    if batch.source is not None:
        cut = torch.arange(batch.source.shape[1]) < (lengths // 2).clamp(min=1)[:, None]
        source_documents = cut.long() if how == "padded" else 1 + (~cut).long()
    labels, targets = batch.labels.clone(), batch.targets.clone()  # type: ignore[union-attr]
    if how == "padded":
        targets = targets.masked_fill(~inside, IGNORE)
    labels[1:3], targets[4, 2:], targets[3] = IGNORE, IGNORE, IGNORE  # a row without any
    return replace(
        batch,
        targets=targets,
        labels=labels,
        documents=documents,
        positions=Places.of(replace(batch, documents=documents)).positions,
        source_documents=source_documents,
    )


def weighed(model: Family, batch: Batch, parts: list[Batch]) -> Loss:
    """The losses of parts put together by their counts, as the trainer does."""
    whole, found = model.counts(batch), Loss(torch.zeros((), dtype=torch.float64), {})
    for part in parts:
        loss, counts = model.loss(part if part.rows else part.spare()), model.counts(part)
        found.tokens = found.tokens + loss.tokens * counts["tokens"] / whole["tokens"]
        for name, auxiliary in loss.auxiliary.items():
            key = name if name in counts else "rows"
            found.auxiliary[name] = found.auxiliary.get(name, 0) + auxiliary * counts[key] / whole[key]
    return found


@pytest.mark.parametrize("case", [(family, change) for change, family in ONCE.items()], ids=case_name)
def test_losses_do_not_depend_on_the_split_and_a_spare_row_reaches_every_parameter_and_changes_none(case):
    model = build(*case).double().eval()  # dropout draws anew for each micro batch
    for how in ("padded", "packed"):
        batch = filled(model, how)
        with torch.no_grad():
            whole = model.loss(batch)
            # By fours, and a part too many: a micro batch, or a rank, without rows.
            found = weighed(model, batch, [batch.micro(start, start + 4) for start in (0, 4, 8)])
        assert found.tokens.item() == pytest.approx(whole.tokens.item(), rel=1e-6)  # some heads compute in float32
        assert found.auxiliary.keys() == whole.auxiliary.keys()
        for name, auxiliary in whole.auxiliary.items():
            assert found.auxiliary[name].item() == pytest.approx(auxiliary.item(), rel=1e-6), name
    # What a rank without rows computes: no gradient is missing that other ranks add theirs to, and none counts.
    (0 * model.loss(filled(model, "padded").micro(0, 0).spare()).total).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None] == []
    assert not any(gradient.any() for gradient in gradients.values() if gradient is not None)
