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


def test_activations_come_by_name_in_their_order_as_they_were_changed(model: Family, batch: Batch) -> None:
    blocks = range(len(model.decoder.stack.blocks))  # type: ignore[union-attr]
    names = [f"decoder.stack.blocks.{n}.branches.{part}" for n in blocks for part in ("mixer", "channel")]
    given = "decoder.stack.blocks.0.branches.mixer.piece.out.input"
    with torch.no_grad():
        before = model.logits(batch)
        change = {given: lambda x: 2 * x}
        with model.watch("decoder.stack.blocks.*.branches.mixer", "*.branches.channel", given, change=change) as seen:
            changed = model.logits(batch)
        with model.watch(given) as plain:
            assert torch.equal(model.logits(batch), before)  # nothing stays
    assert not torch.allclose(changed, before)
    assert torch.equal(seen.pop(given)[0], 2 * plain[given][0])
    assert list(seen) == names
    assert all(len(each) == 1 and each[0].shape[:2] == (2, 10) for each in seen.values())


def test_an_activation_that_is_not_there_is_refused(model: Family) -> None:
    with pytest.raises(ScalingError, match="no activation"), model.watch("decoder.stak"):
        pass
