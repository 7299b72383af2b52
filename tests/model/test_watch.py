"""Watching activations, and putting others in their place."""

from __future__ import annotations

import pytest
import torch

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from tests.model.test_variants import build, tokens


@torch.no_grad()
def test_activations_come_by_name_in_their_order_as_they_were_changed_and_nothing_stays() -> None:
    model, batch = build("decoder", ""), Batch(tokens(2, 10), tokens(2, 10))
    given = "decoder.stack.blocks.0.branches.mixer.piece.out.input"
    before = model.logits(batch)
    patterns = ("decoder.stack.blocks.*.branches.mixer", "*.branches.channel", given)
    with model.watch(*patterns, change={given: lambda x: 2 * x}) as seen:
        changed = model.logits(batch)
    with model.watch(given) as plain:
        assert torch.equal(model.logits(batch), before)
    assert not torch.allclose(changed, before)
    assert torch.equal(seen.pop(given)[0], 2 * plain[given][0])
    assert list(seen) == [f"decoder.stack.blocks.{n}.branches.{part}" for n in (0, 1) for part in ("mixer", "channel")]
    assert all(len(each) == 1 and each[0].shape[:2] == (2, 10) for each in seen.values())
    with pytest.raises(ScalingError, match="no such activation"), model.watch("decoder.stak"):
        pass
