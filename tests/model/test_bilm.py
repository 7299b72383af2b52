"""A BiLM is two decoders on one embedding and one head: one reads the rows, the other the rows turned round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.data.source import Rows, Vocabulary
from scaling.model.two_towers import BiLM
from scaling.objectives.causal import BothWays
from scaling.training.experiment import assemble
from tests.model.test_variants import build, tokens

SIZE = "size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"
DOCUMENTS = torch.tensor([[1] * 7 + [2] * 5, [1] * 10 + [0] * 2])


def model(change: str = "") -> BiLM:
    built = build("elmo", change).double()
    assert isinstance(built, BiLM)
    return built


def decoder(of: BiLM, backwards: bool = False) -> Any:
    """A decoder with the weights of one direction."""
    line = load("elmo", [SIZE]).tree["model"]
    plain = build("decoder", f"model={ {**line, 'kind': 'Decoder'} }".replace("'", "")).double()
    weights = of.state_dict()
    tower = "backwards" if backwards else "decoder"
    own = {f"decoder{name.removeprefix(tower)}": part for name, part in weights.items() if name.startswith(tower)}
    plain.load_state_dict({**own, **{name: part for name, part in weights.items() if name.startswith("head")}})
    return plain.requires_grad_(False)


def batch(documents: torch.Tensor | None = DOCUMENTS) -> Batch:
    return Batch(tokens(2, 12), tokens(2, 12, 2), documents=documents, labels=tokens(2, 12, 3))


@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["plain", "packed and padded"])
def test_each_direction_is_a_decoder(documents) -> None:
    both, own = model().eval().requires_grad_(False), batch(documents)
    loss, ahead, back = both.loss(own), decoder(both).eval(), decoder(both, backwards=True).eval()
    turned = Batch(own.tokens.flip(1), own.labels.flip(1), documents=None if documents is None else documents.flip(1))
    assert loss.tokens == pytest.approx(float(ahead.loss(own).tokens), abs=1e-12)
    assert loss.auxiliary["backwards"] == pytest.approx(float(back.loss(turned).tokens), abs=1e-12)
    assert loss.total == loss.tokens + loss.auxiliary["backwards"]
    torch.testing.assert_close(both.losses(own), ahead.losses(own), rtol=0, atol=1e-12)


def test_a_head_of_labels_reads_the_mixed_layers_of_both_directions_and_no_other_document() -> None:
    mixed, own = model("model.head={kind: Tokens, classes: 61}"), batch()
    mixed.loss(own).total.backward()
    assert [name for name, p in mixed.named_parameters() if p.grad is None or not p.grad.any()] == []
    weights = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    with torch.no_grad():
        mixed.eval().mix.weight.copy_(weights)
    ahead, back = [], []
    mixed.decoder(own, layers=ahead)
    mixed.backwards(replace(own, tokens=own.tokens.flip(1), documents=own.documents.flip(1)), layers=back)
    both = [torch.cat([one, other.flip(1)], -1) for one, other in zip(ahead, back, strict=True)]
    hidden = mixed(own).hidden
    torch.testing.assert_close(hidden, sum(s * x for s, x in zip(weights.softmax(0), both, strict=True)))
    changed = own.tokens.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 61
    moved = (hidden - mixed(replace(own, tokens=changed)).hidden).abs().amax(2)
    assert (moved[0, :7] == 0).all()
    assert (moved[0, 7:] > 0).all()
    assert (moved[1, :10] > 0).all()


def test_the_objective_gives_both_neighbours_within_a_document() -> None:
    objective = BothWays(Vocabulary(20, {}, 20), 4, "decoder")
    assert objective.reads == 6
    row = np.array([[3, 4, 5, 6, 7, 8]], np.uint16)
    plain = objective(Rows(row), np.zeros(1, np.uint64))
    assert (plain.tokens.tolist(), plain.targets.tolist()) == ([[4, 5, 6, 7]], [[5, 6, 7, 8]])
    assert plain.labels is not None
    assert plain.labels.tolist() == [[3, 4, 5, 6]]
    apart = objective(Rows(row, np.array([[1, 1, 1, 2, 2, 2]])), np.zeros(1, np.uint64))
    assert apart.labels is not None
    assert apart.targets.tolist() == [[5, IGNORE, 7, 8]]
    assert apart.labels.tolist() == [[3, 4, IGNORE, 6]]


@pytest.mark.parametrize(
    ("name", "overrides", "what"),
    [
        ("elmo", ["objective=Causal"], "predicts the token before each too; take objective=BothWays"),
        ("decoder", ["objective=BothWays"], "looks one way; take model.kind=BiLM"),
        ("elmo", ["model.pattern=Bidirectional", "model.block.mixer=Attention"], "predict what comes next"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, overrides: list[str], what: str) -> None:
    config = load(name, ["size={width: 16, layers: 1, heads: 1, length: 8}", "data=synthetic", *overrides])
    with pytest.raises(ScalingError) as caught:
        assemble(config)
    assert what in str(caught.value)
