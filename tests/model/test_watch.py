"""Watching activations, and putting others in their place."""

from __future__ import annotations

import pytest
import torch

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.model.family import Family
from scaling.model.tuned import build_model


@pytest.fixture
def model() -> Family:
    config = load("decoder", ["size=tiny", "size.vocabulary=61", "size.length=16", "data=synthetic"])
    return build_model({"model": config["model"], "size": config["size"]}).eval()


@pytest.fixture
def batch() -> Batch:
    tokens = torch.randint(3, 61, (2, 10), generator=torch.Generator().manual_seed(0))
    return Batch(tokens, tokens)


def test_activations_come_by_name_in_their_order(model: Family, batch: Batch) -> None:
    with model.watch("decoder.stack.blocks.*.branches.mixer", "*.branches.channel") as seen, torch.no_grad():
        model(batch)
    blocks = range(len(model.decoder.stack.blocks))  # type: ignore[union-attr]
    assert list(seen) == [f"decoder.stack.blocks.{n}.branches.{part}" for n in blocks for part in ("mixer", "channel")]
    assert all(len(each) == 1 and each[0].shape[:2] == (2, 10) for each in seen.values())


def test_a_head_is_ablated_at_the_input_of_its_projection(model: Family, batch: Batch) -> None:
    name = "decoder.stack.blocks.0.branches.mixer.piece.out.input"
    width: int = model.decoder.shape.value_width  # type: ignore

    def without_the_second(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[..., :width], torch.zeros_like(x[..., width : 2 * width]), x[..., 2 * width :]], -1)

    with torch.no_grad():
        before = model.logits(batch)
        with model.watch(name, change={name: without_the_second}) as seen:
            without = model.logits(batch)
        assert not seen[name][0][..., width : 2 * width].any()
        assert not torch.allclose(without, before)
        assert torch.equal(model.logits(batch), before)  # and nothing stays


def test_activations_of_one_pass_are_patched_into_another(model: Family, batch: Batch) -> None:
    name = "decoder.stack"
    with torch.no_grad():
        with model.watch(name) as seen:
            first = model.logits(batch)
        other = batch.map(lambda tensor: tensor.flip(0))
        with model.watch(change={name: lambda _: seen[name][0]}):
            assert torch.equal(model.logits(other), first)


def test_an_activation_that_is_not_there_is_refused(model: Family) -> None:
    with pytest.raises(ScalingError, match=r"no activation.*did you mean|no activation"), model.watch("decoder.stak"):
        pass
