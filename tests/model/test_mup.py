"""The coordinate check of Yang et al. 2022 (appendix D.1): under muP, how far activations move in a few steps of
training does not grow with width; under the standard parametrization it does.
"""

from __future__ import annotations

import numpy as np
import torch

from scaling.base.batch import Batch
from scaling.config.compose import load
from scaling.model.parameters import parameters
from scaling.training.parametrization import MuP, Standard, initialise
from tests.model.test_variants import build

WIDTHS = (64, 128, 256)


def movement(parametrization, width: int) -> dict[str, float]:
    """Mean |change| of each layer's output and of the logits after a few Adam steps on one batch."""
    size = f"size={{width: {width}, layers: 2, heads: 4, vocabulary: 64, length: 16}}"
    config = load("decoder", [size, "model.block.mixer.scale=width", "model.block.residual=Pre"])
    model = initialise(config.build("model", config["size"]), parametrization, seed=1)
    x = torch.randint(0, 64, (8, 17), generator=torch.Generator().manual_seed(0))
    batch = Batch(x[:, :-1], x[:, 1:])
    groups = [{"params": [p], "lr": 0.01 * parametrization.rate(spec)} for spec, p in parameters(model)]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95))

    def activations() -> dict[str, torch.Tensor]:
        with torch.no_grad(), model.watch("decoder.stack.blocks.?") as seen:
            return {"logits": model.logits(batch), **{name: each[0] for name, each in seen.items()}}

    start = activations()
    for _ in range(4):
        optimizer.zero_grad()
        model.loss(batch).total.backward()
        optimizer.step()
    return {name: (end - start[name]).abs().mean().item() for name, end in activations().items()}


def growth(parametrization) -> dict[str, float]:
    """The exponent of width with which the movement of each activation grows."""
    moved = [movement(parametrization, width) for width in WIDTHS]
    return {name: np.polyfit(np.log(WIDTHS), np.log([one[name] for one in moved]), 1)[0] for name in moved[0]}


def test_activations_move_alike_at_every_width_under_mup_and_more_with_width_under_the_standard():
    assert all(abs(slope) < 0.2 for slope in growth(MuP(base=64, head="normal")).values())
    slopes = growth(Standard(head="normal"))
    assert slopes["decoder.stack.blocks.1"] > 0.8
    assert slopes["logits"] > 0.25


def test_a_draw_depends_on_the_name_and_the_seed_alone():
    plain, learned = build("decoder", ""), build("decoder", "model.position=Learned")
    a, b, c = (
        dict(initialise(model, Standard(), seed).named_parameters())
        for model, seed in ((plain, 0), (learned, 0), (build("decoder", ""), 1))
    )
    assert all(torch.equal(parameter, b[name]) for name, parameter in a.items())
    assert not torch.equal(a["decoder.embedding.table"], c["decoder.embedding.table"])
