"""Losses do not depend on how a batch is split, nor gradients on what is computed again; and the losses of a BiLM."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import load
from scaling.model.context import Places
from scaling.model.cost import cost
from scaling.model.family import Family, Loss
from tests.model.test_variants import EVERY, NORMLESS, batch_for, build, case_name, configured, flow, tokens

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
    batch = replace(batch, targets=targets, labels=labels, documents=documents, source_documents=source_documents)
    return replace(batch, positions=Places.of(batch).positions)


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


# For a BiLM: two decoders on one embedding and one head, of which one reads the rows turned round.
DOCUMENTS = torch.tensor([[1] * 7 + [2] * 5, [1] * 10 + [0] * 2])
BATCH = Batch(tokens(2, 12), tokens(2, 12, 2), documents=DOCUMENTS, labels=tokens(2, 12, 3))


def decoder(of: Any, tower: str) -> Any:
    """A decoder with the weights of one direction."""
    line = {**configured("elmo", "").tree["model"], "kind": "Decoder"}
    plain = build("decoder", f"model={line}".replace("'", "")).double()
    own = {f"decoder{k.removeprefix(tower)}": v for k, v in of.state_dict().items() if k.startswith(tower)}
    plain.load_state_dict({**own, **{k: v for k, v in of.state_dict().items() if k.startswith("head")}})
    return plain.eval()


@torch.no_grad()
def test_each_direction_is_a_decoder() -> None:
    both: Any = build("elmo", "").double().eval()
    loss, ahead, back = both.loss(BATCH), decoder(both, "decoder"), decoder(both, "backwards")
    turned = Batch(BATCH.tokens.flip(1), BATCH.labels.flip(1), documents=DOCUMENTS.flip(1))
    assert loss.tokens == pytest.approx(float(ahead.loss(BATCH).tokens), abs=1e-12)
    assert loss.auxiliary["backwards"] == pytest.approx(float(back.loss(turned).tokens), abs=1e-12)
    assert loss.total == loss.tokens + loss.auxiliary["backwards"]
    torch.testing.assert_close(both.losses(BATCH), ahead.losses(BATCH), rtol=0, atol=1e-12)


def test_labels_read_the_mixed_layers_of_both_directions_and_no_other_document() -> None:
    mixed: Any = build("elmo", "model.head={kind: Tokens, classes: 61}").double()
    mixed.loss(BATCH).total.backward()
    assert [name for name, p in mixed.named_parameters() if p.grad is None or not p.grad.any()] == []
    weights, ahead, back = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64), [], []
    with torch.no_grad():
        mixed.eval().mix.weight.copy_(weights)
        mixed.decoder(BATCH, layers=ahead)
        mixed.backwards(replace(BATCH, tokens=BATCH.tokens.flip(1), documents=DOCUMENTS.flip(1)), layers=back)
        hidden = mixed(BATCH).hidden
        changed = BATCH.tokens.clone()
        changed[:, 9] = (changed[:, 9] + 1) % 61
        moved = (hidden - mixed(replace(BATCH, tokens=changed)).hidden).abs().amax(2)
    both = [torch.cat([one, other.flip(1)], -1) for one, other in zip(ahead, back, strict=True)]
    torch.testing.assert_close(hidden, sum(s * x for s, x in zip(weights.softmax(0), both, strict=True)))
    assert (moved[0] > 0).tolist() == [False] * 7 + [True] * 5
    assert (moved[1, :10] > 0).all()


# Models whose blocks are computed again in the backward pass.
AGAIN = [
    ("decoder", "model.block.mixer.dropout=0.2; model.embedding.dropout=0.1; model.position=Shaw"),
    ("decoder", f"model.block.channel={flow('channel', 'MixtureOfExperts')}; model.stack.distinct=1"),
    ("decoder", "model.block.mixer={kind: BlockLocal, size: 4}; model.blocks={every 2: {mixer: MemoryCompressed}}"),
    ("decoder", "model.block.mixer={kind: Performer, features: 6}; model.position=Rotary"),
    ("decoder", "model.stack={kind: Universal, norm: RMSNorm, halting: ACT}"),
    ("decoder", f"model.block.residual=Fixup{NORMLESS}; tuning={{kind: LoRA, rank: 2, targets: [all]}}"),
    ("encoder_decoder", "model.encoder.stack={kind: Funnel, norm: RMSNorm}; model.block.mixer.dropout=0.2"),
    ("encoder_decoder", "model.tie=[encoder, decoder, head]; model.memory=Transparent; model.position=RelativeBias"),
]


@pytest.mark.parametrize("case", AGAIN, ids=case_name)
def test_checkpointed_blocks_give_the_same_gradients_to_the_bit(case):
    model, ran = build(*case).train(), []
    batch = batch_for(model)

    def gradients() -> dict[str, Any]:
        model.zero_grad()
        torch.manual_seed(1)
        loss = model.loss(batch).total
        loss.backward()
        of_parameters = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        return {"loss": loss.detach(), "the next draw": torch.rand(3), **of_parameters}

    plain = gradients()
    for tower in model.towers.values():
        for block in tower.stack.blocks:
            block.register_forward_pre_hook(lambda *_: ran.append(1))
    model.checkpoint("blocks")
    again = gradients()
    assert len(ran) >= 2 * sum(tower.stack.executions for tower in model.towers.values())
    assert again.keys() == plain.keys()
    assert all(torch.equal(again[name], expected) for name, expected in plain.items())


def test_what_checkpointing_costs():
    size = "size={width: 64, layers: 8, heads: 4, vocabulary: 61, length: 128}"
    plain, again = (cost(load("decoder", [size, f"train.checkpointing={what}"])) for what in ("none", "blocks"))
    assert (plain.flops_recomputed, again.flops_train) == (0, plain.flops_train)
    of_blocks = sum(plain.flops_forward_by_slot[slot] for slot in ("mixer", "channel"))
    # A block's last product is read by nobody in the backward pass.
    assert 0.7 * of_blocks < again.flops_recomputed <= of_blocks
    stream, per_block = 128 * 64 * 4, plain.activation_bytes / 8
    assert 8 * stream + 0.8 * per_block < again.activation_bytes < 8 * stream + 2 * per_block
    assert again.activation_bytes < plain.activation_bytes / 3
