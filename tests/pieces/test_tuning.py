"""Tunings: what they add, what they leave as it was, and several of them in one model."""

from copy import deepcopy
from typing import Any

import pytest
import torch

from scaling.base.batch import Batch
from scaling.config.compose import load
from scaling.config.schema import build, kinds
from scaling.model.cost import cost
from scaling.model.tuned import blank, tune
from scaling.model.tuning import LoRA
from scaling.training.parametrization import Standard, initialise
from tests.command_line import refuses
from tests.model.test_variants import FAMILIES, SIZE, batch_for

BLOCKS = "{kind: BlockLocal, size: 4, dropout: 0}", "{kind: BigBird, seed: 0, block: 2, dropout: 0}", "MemoryCompressed"


@torch.no_grad()
def tuned_of(family: str, line: str, *changes: str, std: float = 0.0) -> Any:
    """A tuned model, and to what it adds numbers of this deviation.

    In float64: updates as large as those drawn here amplify what float32 rounds to 1e-4, by other amounts on each
    processor.
    """
    config = load(family, [SIZE, *changes, f"tuning={line}"])
    with blank():
        model = config.build("model", config["size"])
        tuning: Any = tune(model, config.tree)
    initialise(model, Standard(head="normal"), seed=0).double()
    draw = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if tuning is not None and tuning.trains(name):
            parameter.add_(torch.randn(parameter.shape, generator=draw) * std)
    return model.eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tuning_starts_at_the_base_with_weights_or_without_and_keeps_its_names_and_draws(family):
    base = tuned_of(family, "null")
    batch = batch_for(base)
    for kind in set(kinds("tuning")) - {"BitFit"}:
        tuning, later = build("tuning", kind), deepcopy(base)
        tuning.apply(later)
        for model in (tuned_of(family, kind), later):
            own = dict(model.named_parameters())
            assert all(torch.equal(own.pop(name), parameter) for name, parameter in base.named_parameters())
            assert own
            assert all(tuning.trains(name) and bool(parameter.isfinite().all()) for name, parameter in own.items())
            if kind not in ("Prefix", "Prompt"):
                torch.testing.assert_close(model.logits(batch), base.logits(batch), rtol=0, atol=1e-12)
                refuses("tuned already", build("tuning", "IA3").apply, model)


def test_lora_of_rank_8_on_the_queries_and_values_of_gpt2_trains_294912_parameters():
    config = load("gpt2", ["tuning={kind: LoRA, rank: 8, targets: [query, value]}"])
    counted, base = cost(config), cost(load("gpt2"))
    assert counted.parameters_trained == 294_912 == counted.parameters_by_slot["tuning"]
    assert counted.parameters == base.parameters + 294_912
    assert base.parameters_trained == base.parameters
    # Two FLOPs for each number of A and B and token, forwards; the base's matrices get no gradient.
    assert counted.flops_forward - base.flops_forward == 2 * 294_912 * counted.tokens
    assert counted.flops_train < 0.75 * base.flops_train


@pytest.mark.parametrize("changes", [[], ["model.share=stacks"]])
def test_merged_equals_unmerged_once_also_where_towers_share_their_matrices(changes):
    model = tuned_of("encoder_decoder", "{kind: LoRA, rank: 4, targets: [all]}", *changes, std=0.05)
    tuning, batch = LoRA(rank=4, targets=["all"]), batch_for(model)
    query = next(p for name, p in model.named_parameters() if name.endswith("query.weight"))
    before, expected = query.clone(), model.logits(batch)
    for _ in range(2):
        tuning.merge(model)
        torch.testing.assert_close(model.logits(batch), expected, rtol=1e-10, atol=1e-10)
    assert not torch.equal(query, before)


@torch.no_grad()
@pytest.mark.parametrize("tuning", ["Prompt", "Prefix"])
@pytest.mark.parametrize("mixer", BLOCKS)
def test_virtual_tokens_move_the_blocks_of_a_pattern_alike_in_packed_and_plain_rows(mixer, tuning):
    model = tuned_of("decoder", f"{{kind: {tuning}, length: 5}}", f"model.block.mixer={mixer}", std=0.5)
    tokens = torch.randint(0, 61, (2, 24), generator=torch.Generator().manual_seed(3))
    plain, packed = (model.logits(Batch(tokens, tokens, documents=each)) for each in (None, torch.ones_like(tokens)))
    torch.testing.assert_close(plain, packed)


def test_a_prompt_trains_a_model_of_two_directions():
    model = tuned_of("elmo", "{kind: Prompt, length: 3}", std=0.1).float()
    tokens = torch.randint(0, 61, (2, 12))
    model.loss(Batch(tokens, tokens, labels=tokens)).total.backward()
