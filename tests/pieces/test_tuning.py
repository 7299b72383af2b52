"""Tunings: what they add, what they leave as it was, and several of them in one model."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.schema import build, kinds
from scaling.model.contract import Added
from scaling.model.cost import cost
from scaling.model.tuned import blank, tune
from scaling.model.tuning import LoRA
from scaling.training.parametrization import Standard, initialise
from tests.model.test_variants import FAMILIES, TUNINGS, batch_for

SIZE = "size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"
SWITCH = "model.block.channel={kind: Switch, activation: GeLU, experts: 4}"


def base_of(family: str) -> Any:
    config = load(family, [SIZE])
    with blank():
        model = config.build("model", config["size"])
    return initialise(model, Standard(head="normal"), seed=0).eval().double()


@torch.no_grad()
def tuned_of(family: str, line: str, *changes: str, std: float | None = None) -> tuple[Any, Any]:
    """A tuned model, what it adds drawn where a deviation is given, and the tuning.

    In float64: updates as large as those drawn here amplify what float32 rounds to 1e-4, by other amounts on each
    processor.
    """
    config = load(family, [SIZE, *changes, f"tuning={line}"])
    with blank():
        model = config.build("model", config["size"])
        tuning = tune(model, config.tree)
    initialise(model, Standard(head="normal"), seed=0)
    draw = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if std is not None and tuning.trains(name):  # type: ignore[union-attr]
            parameter.add_(torch.randn(parameter.shape, generator=draw) * std)
    return model.eval().double(), tuning


@pytest.mark.parametrize("line", ["{kind: LoRA, targets: [all], dropout: 0.1}", "Adapters", "IA3"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_tuning_starts_at_the_base_and_keeps_its_names_and_draws(family, line):
    base, (model, tuning) = base_of(family), tuned_of(family, line)
    own = dict(model.named_parameters())
    for name, parameter in base.named_parameters():
        assert torch.equal(own.pop(name), parameter)
    assert own
    assert all(tuning.trains(name) for name in own)
    batch = batch_for(base)
    torch.testing.assert_close(model.logits(batch), base.logits(batch), rtol=0, atol=1e-12)


def test_lora_of_rank_8_on_the_queries_and_values_of_gpt2_trains_294912_parameters():
    config = load("gpt2", ["tuning={kind: LoRA, rank: 8, targets: [query, value]}"])
    counted, base = cost(config), cost(load("gpt2"))
    assert counted.parameters_trained == 294_912 == counted.parameters_by_slot["tuning"]
    assert counted.parameters == base.parameters + 294_912
    assert base.parameters_trained == base.parameters
    # Two FLOPs for each number of A and B and token, forwards; the base's matrices get no gradient.
    assert counted.flops_forward - base.flops_forward == 2 * 294_912 * counted.tokens
    assert counted.flops_train < 0.75 * base.flops_train


@pytest.mark.parametrize("line", [*TUNINGS, "BitFit"])
def test_gradients_are_only_where_the_tuning_trains(line):
    changes = ["model.block.norm=LayerNorm"] if line == "BitFit" else []
    model, tuning = tuned_of("encoder_decoder", line, *changes, std=0.3)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(tuning.trains(name))
    model.train().loss(batch_for(model)).total.backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None and bool(parameter.grad.any())) is tuning.trains(name), name


@pytest.mark.parametrize(("family", "share"), [*((family, "nothing") for family in FAMILIES), (FAMILIES[2], "stacks")])
def test_merged_equals_unmerged_once_also_where_towers_share_their_matrices(family, share):
    changes = [f"model.share={share}"] if share == "stacks" else []
    model, _ = tuned_of(family, "{kind: LoRA, rank: 4, targets: [all]}", *changes, std=0.05)
    tuning, batch = LoRA(rank=4, targets=["all"]), batch_for(model)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    expected = model.logits(batch)
    for _ in range(2):
        tuning.merge(model)
        torch.testing.assert_close(model.logits(batch), expected, rtol=1e-10, atol=1e-10)
    query = next(name for name in before if name.endswith("query.weight"))
    assert not torch.equal(model.get_parameter(query), before[query])


@pytest.mark.parametrize(
    ("line", "change", "words"),
    [
        ("{kind: LoRA, targets: [qery]}", "", "tuning.targets='qery': no linear map has such a name"),
        ("{kind: LoRA, targets: [channel]}", SWITCH, "Switch has matrices that are no linear maps; name its maps"),
        ("Prefix", "model.block.mixer=LSTM", "LSTM has no keys to put a prefix before; take Prompt or LoRA"),
        ("{kind: Prefix, slots: [cross]}", "", "no block has such a mixer"),
        ("Prompt", "model.block.mixer=RandomSynthesizer", "RandomSynthesizer has no position before the text's"),
        ("IA3", SWITCH, "Switch has no hidden"),
        ("{kind: IA3, targets: [query]}", "", "expected names of key, value, channel"),
        ("{kind: Adapters, activation: ReLU, after: [cross]}", "", "no block has such a branch"),
        ("BitFit", "model.head={kind: Linear, bias: true}", "the model below its head has no biases to train"),
    ],
)
def test_a_tuning_that_does_not_suit_the_model_is_refused_in_one_line(line, change, words):
    with pytest.raises(ScalingError) as refused:
        tuned_of("decoder", line, *([change] if change else []))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_model_with_weights_is_tuned_as_one_without_and_once():
    model = base_of("decoder")
    batch = batch_for(model)
    expected = model.logits(batch)
    for kind in set(kinds("tuning")) - {"BitFit"}:
        tuned = deepcopy(model)
        build("tuning", kind).apply(tuned)
        assert all(bool(parameter.isfinite().all()) for parameter in tuned.parameters())
        if kind not in ("Prefix", "Prompt"):
            torch.testing.assert_close(tuned.logits(batch), expected, rtol=0, atol=1e-12)
            with pytest.raises(ScalingError, match="tuned already"):
                build("tuning", "IA3").apply(tuned)


def test_targets_are_names_slots_roles_and_patterns():
    def rows(targets: str) -> set[str]:
        model, _ = tuned_of("encoder_decoder", f"{{kind: LoRA, targets: {targets}}}")
        names = [name for name, part in model.named_modules() if isinstance(part, Added)]
        return {name.replace(".stack.blocks.", " ").removesuffix(".lora").replace("branches.", "") for name in names}

    assert rows("[cross]") == {
        f"decoder {block}.cross.piece.{name}" for block in (0, 1) for name in ("query", "key", "value", "out")
    }
    assert len(rows("[output]")) == 2 * (2 + 3)
    assert rows('["encoder.stack.blocks.1.*.hidden"]') == {"encoder 1.channel.piece.hidden"}
    assert rows("[query]") | rows("[value]") == rows("[query, value]")
    assert len(rows("[all]")) == 2 * (4 + 2) + 2 * (4 + 4 + 2)
