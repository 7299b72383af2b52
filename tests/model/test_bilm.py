"""A BiLM is two decoders on one embedding and one head: one reads the rows, the other the rows turned round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.training.experiment import assemble
from tests.model.test_variants import build, tokens

SIZE = "size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"
DOCUMENTS = torch.tensor([[1] * 7 + [2] * 5, [1] * 10 + [0] * 2])
BATCH = Batch(tokens(2, 12), tokens(2, 12, 2), documents=DOCUMENTS, labels=tokens(2, 12, 3))


def decoder(of: Any, tower: str) -> Any:
    """A decoder with the weights of one direction."""
    line = {**load("elmo", [SIZE]).tree["model"], "kind": "Decoder"}
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


def test_a_head_of_labels_reads_the_mixed_layers_of_both_directions_and_no_other_document() -> None:
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


@pytest.mark.parametrize(
    ("name", "overrides", "what"),
    [
        ("elmo", ["objective=Causal"], "predicts the token before each too; take objective=BothWays"),
        ("decoder", ["objective=BothWays"], "looks one way; take model.kind=BiLM"),
        ("elmo", ["model.pattern=Bidirectional", "model.block.mixer=Attention"], "predict what comes next"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, overrides: list[str], what: str) -> None:
    with pytest.raises(ScalingError, match=what):
        assemble(load(name, ["size={width: 16, layers: 1, heads: 1, length: 8}", "data=synthetic", *overrides]))
