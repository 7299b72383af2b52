"""The coordinate check of Yang et al. 2022 (appendix D.1).

Under muP, how far activations move in a few steps of training does
not grow with width; under the standard parametrization it does."""

from __future__ import annotations

import torch

from scaling.base.batch import Batch
from scaling.config.compose import load
from scaling.model.parameters import parameters
from scaling.training.parametrization import MuP, Standard, initialise

WIDTHS = (64, 128, 256)
STEPS = 4


def movement(parametrization, width: int) -> dict[str, float]:
    """Mean |change| of each layer's output and of the logits after a few Adam steps on one batch."""
    config = load(
        "decoder",
        [
            f"size={{width: {width}, layers: 2, heads: 4, vocabulary: 64, length: 32}}",
            "model.block.mixer.scale=width",
            "model.block.residual=Pre",
        ],
    )
    model = initialise(config.build("model", config["size"]), parametrization, seed=1)
    source = torch.Generator().manual_seed(0)
    x = torch.randint(0, 64, (8, 33), generator=source)
    batch = Batch(x[:, :-1], x[:, 1:])
    groups = [{"params": [p], "lr": 0.01 * parametrization.rate(spec)} for spec, p in parameters(model)]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95))

    def activations() -> dict[str, torch.Tensor]:
        with torch.no_grad(), model.watch("decoder.stack.blocks.?") as seen:
            return {"logits": model.logits(batch), **{name: each[0] for name, each in seen.items()}}

    start = activations()
    for _ in range(STEPS):
        optimizer.zero_grad()
        model.loss(batch).total.backward()
        optimizer.step()
    return {name: (end - start[name]).abs().mean().item() for name, end in activations().items()}


def growth(parametrization) -> dict[str, float]:
    """The exponent of width with which the movement of each activation grows."""
    moved = [movement(parametrization, width) for width in WIDTHS]
    x = torch.tensor(WIDTHS).double().log()
    slopes = {}
    for name in moved[0]:
        y = torch.tensor([one[name] for one in moved]).double().log()
        slopes[name] = (((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()).item()
    return slopes


def test_activations_move_alike_at_every_width_under_mup():
    assert all(abs(slope) < 0.2 for slope in growth(MuP(base=64, head="normal")).values())


def test_activations_move_more_with_width_under_the_standard():
    slopes = growth(Standard(head="normal"))
    assert slopes["decoder.stack.blocks.1"] > 0.8
    assert slopes["logits"] > 0.25


def test_a_draw_depends_on_the_name_and_the_seed_alone():
    size = "size={width: 32, layers: 2, heads: 4, vocabulary: 64, length: 32}"
    plain = load("decoder", [size])
    changed = load("decoder", [size, "model.position=Learned"])
    a = dict(initialise(plain.build("model", plain["size"]), Standard(), seed=0).named_parameters())
    b = dict(initialise(changed.build("model", changed["size"]), Standard(), seed=0).named_parameters())
    for name, parameter in a.items():
        assert torch.equal(parameter, b[name]), name
    c = dict(initialise(plain.build("model", plain["size"]), Standard(), seed=1).named_parameters())
    assert not torch.equal(a["decoder.embedding.table"], c["decoder.embedding.table"])
