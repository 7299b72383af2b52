"""Checkpointing: blocks that are computed again give the same gradients to the bit, and are counted."""

from __future__ import annotations

import pytest
import torch

from scaling.base.batch import Batch
from scaling.config.compose import load
from scaling.model.cost import cost
from scaling.model.tuned import blank, build_model
from scaling.training.parametrization import Standard, initialise
from tests.model.test_variants import EVOLVED_DECODER, LINES, NORMLESS, TIES, _flow, awake, batch_for

MOE = _flow("MixtureOfExperts", LINES["channel", "MixtureOfExperts"])
DROPPING = "model.block.mixer.dropout=0.2; model.embedding.dropout=0.1; model.stack.dropout=0.1"
CASES = [
    ("decoder", DROPPING),
    ("decoder", "model.position=RelativeBias; model.block.mixer.dropout=0.2"),
    ("decoder", "model.position=Shaw; model.stack.distinct=1"),
    ("decoder", f"model.block.channel={MOE}; model.block.mixer.dropout=0.2"),
    ("decoder", "model.block.mixer={kind: BlockLocal, size: 4}; model.blocks={every 2: {mixer: MemoryCompressed}}"),
    ("decoder", "model.block.mixer={kind: Performer, features: 6}; model.position=Rotary"),
    ("decoder", "model.stack={kind: Universal, norm: RMSNorm, halting: ACT}"),
    ("decoder", EVOLVED_DECODER),
    ("decoder", f"model.block.residual=Fixup{NORMLESS}; tuning={{kind: LoRA, rank: 2, targets: [all]}}"),
    ("encoder", "model.block.mixer={kind: Linformer, projected: 5, sharing: kv, dropout: 0.1}"),
    ("encoder", "model.stack={kind: UpsampledFunnel, norm: RMSNorm}; model.position=RelativeBias"),
    ("encoder_decoder", "model.encoder.stack={kind: Funnel, norm: RMSNorm}; model.block.mixer.dropout=0.2"),
    ("encoder_decoder", f"model.tie={TIES[2]}; model.memory=Transparent; model.position=RelativeBias"),
]
SIZE = "size={width: 32, layers: 3, heads: 4, vocabulary: 61, length: 24}"


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_gradients_are_the_same_to_the_bit(case):
    config = load(case[0], [SIZE, *case[1].split("; ")])
    with blank():
        model = build_model(config.tree)
    model = awake(initialise(model, Standard(head="normal"), seed=0)).train()
    batch = batch_for(model)

    def gradients() -> dict[str, torch.Tensor | None]:
        model.zero_grad()
        torch.manual_seed(1)
        loss = model.loss(batch).total
        loss.backward()
        after = torch.rand(3)
        return {"loss": loss.detach(), "the next draw": after, **{name: p.grad for name, p in model.named_parameters()}}

    plain = {name: None if value is None else value.clone() for name, value in gradients().items()}
    runs = [0] * len(block_modules(model))
    for number, block in enumerate(block_modules(model)):
        block.register_forward_pre_hook(lambda *_, number=number: runs.__setitem__(number, runs[number] + 1))
    model.checkpoint("blocks")
    again = gradients()
    executions = sum(tower.stack.executions for tower in model.children() if hasattr(tower, "stack"))
    assert sum(runs) >= 2 * executions
    for name, expected in plain.items():
        found = again[name]
        assert (found is None) == (expected is None), name
        if found is not None and expected is not None:
            assert torch.equal(found, expected), name


def block_modules(model) -> list[torch.nn.Module]:
    return [block for tower in model.children() if hasattr(tower, "stack") for block in tower.stack.blocks]


def test_evaluation_computes_nothing_again():
    config = load("decoder", [SIZE])
    model = config.build("model", config["size"])
    model.checkpoint("blocks")
    seen = []
    model.decoder.stack.register_forward_pre_hook(lambda stack, inputs: seen.append(inputs[1].checkpointing))
    batch = Batch(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.long))
    model.loss(batch)
    model.eval().loss(batch)
    assert seen == [True, False]


def test_what_it_costs():
    size = "size={width: 64, layers: 8, heads: 4, vocabulary: 61, length: 128}"
    plain, again = (cost(load("decoder", [size, f"train.checkpointing={what}"])) for what in ("none", "blocks"))
    assert (plain.flops_recomputed, again.flops_train) == (0, plain.flops_train)
    of_blocks = sum(plain.flops_forward_by_slot[slot] for slot in ("mixer", "channel"))
    # A block's last product is read by nobody in the backward pass.
    assert 0.7 * of_blocks < again.flops_recomputed <= of_blocks
    stream = 128 * 64 * 4
    per_block = plain.activation_bytes / 8
    assert 8 * stream < again.activation_bytes < 8 * stream + 2 * per_block
    assert again.activation_bytes < plain.activation_bytes / 3
