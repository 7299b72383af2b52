"""Checkpointing: blocks that are computed again give the same gradients to the bit, and are counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scaling.config.compose import load
from scaling.model.cost import cost
from scaling.model.tuned import blank, build_model
from scaling.training.parametrization import Standard, initialise
from tests.model.test_variants import NORMLESS, awake, batch_for, flow

CASES = [
    ("decoder", "model.block.mixer.dropout=0.2; model.embedding.dropout=0.1; model.stack.dropout=0.1"),
    ("decoder", "model.position=Shaw; model.stack.distinct=1"),
    ("decoder", f"model.block.channel={flow('channel', 'MixtureOfExperts')}; model.block.mixer.dropout=0.2"),
    ("decoder", "model.block.mixer={kind: BlockLocal, size: 4}; model.blocks={every 2: {mixer: MemoryCompressed}}"),
    ("decoder", "model.block.mixer={kind: Performer, features: 6}; model.position=Rotary"),
    ("decoder", "model.stack={kind: Universal, norm: RMSNorm, halting: ACT}"),
    ("decoder", f"model.block.residual=Fixup{NORMLESS}; tuning={{kind: LoRA, rank: 2, targets: [all]}}"),
    ("encoder", "model.stack={kind: UpsampledFunnel, norm: RMSNorm}; model.position=RelativeBias"),
    ("encoder_decoder", "model.encoder.stack={kind: Funnel, norm: RMSNorm}; model.block.mixer.dropout=0.2"),
    ("encoder_decoder", "model.tie=[encoder, decoder, head]; model.memory=Transparent; model.position=RelativeBias"),
]
SIZE = "size={width: 32, layers: 3, heads: 4, vocabulary: 61, length: 24}"


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_gradients_are_the_same_to_the_bit(case):
    config = load(case[0], [SIZE, *case[1].split("; ")])
    with blank():
        model = build_model(config.tree)
    model = awake(initialise(model, Standard(head="normal"), seed=0)).train()
    batch, ran = batch_for(model), []

    def gradients() -> dict[str, Any]:
        model.zero_grad()
        torch.manual_seed(1)
        loss = model.loss(batch).total
        loss.backward()
        of_parameters = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
        return {"loss": loss.detach(), "the next draw": torch.rand(3), **of_parameters}

    plain = gradients()
    for tower in model.towers.values():
        for block in tower.stack.blocks:
            block.register_forward_pre_hook(lambda *_: ran.append(1))
    model.checkpoint("blocks")
    again = gradients()
    assert len(ran) >= 2 * sum(tower.stack.executions for tower in model.towers.values())
    for name, expected in plain.items():
        found = again[name]
        assert found is expected is None or torch.equal(found, expected), name


def test_what_it_costs():
    size = "size={width: 64, layers: 8, heads: 4, vocabulary: 61, length: 128}"
    plain, again = (cost(load("decoder", [size, f"train.checkpointing={what}"])) for what in ("none", "blocks"))
    assert (plain.flops_recomputed, again.flops_train) == (0, plain.flops_train)
    of_blocks = sum(plain.flops_forward_by_slot[slot] for slot in ("mixer", "channel"))
    # A block's last product is read by nobody in the backward pass.
    assert 0.7 * of_blocks < again.flops_recomputed <= of_blocks
    stream, per_block = 128 * 64 * 4, plain.activation_bytes / 8
    assert 8 * stream + 0.8 * per_block < again.activation_bytes < 8 * stream + 2 * per_block
    assert again.activation_bytes < plain.activation_bytes / 3
