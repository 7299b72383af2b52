"""The mixture of softmaxes against the formula of Yang et al. 2017 in float64 numpy; its gradients, memory, counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from scaling.batch import IGNORE
from scaling.nn.heads import MixtureOfSoftmaxes
from scaling.shape import Shape

V, W, K = 61, 32, 3
SHAPE = Shape.of({"width": W, "layers": 1, "heads": 4, "vocabulary": V, "length": 24})


def made(scale: Any = "none", softmaxes: int = K, shape: Shape = SHAPE) -> Any:
    head = MixtureOfSoftmaxes(shape, softmaxes=softmaxes, scale=scale)
    draw = torch.Generator().manual_seed(0)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=draw)
    return head.double()


def sample() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    targets = torch.randint(0, V, (4, 9), generator=draw)
    targets[0, :2] = IGNORE
    return torch.randn(4, 9, W, generator=draw, dtype=torch.float64), targets


@pytest.mark.parametrize("scale", ["none", "inverse_sqrt_width"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_equals_the_formula(scale, smoothing):
    head, (hidden, targets) = made(scale), sample()
    h = hidden.numpy() * (W**-0.5 if scale != "none" else 1)

    def softmax(z):
        return np.exp(z) / np.exp(z).sum(-1, keepdims=True)

    prior = softmax(h @ head.prior.weight.detach().numpy().T)
    maps = head.latent.weight.detach().numpy().reshape(K, W, W)
    table = head.weight.detach().numpy()
    p = np.asarray(sum(prior[..., k, None] * softmax(np.tanh(h @ maps[k].T) @ table.T) for k in range(K)))
    np.testing.assert_allclose(head(hidden).detach().numpy(), np.log(p), atol=1e-12)
    chosen = np.log(np.take_along_axis(p, targets.clamp(min=0).numpy()[..., None], -1)[..., 0])
    expected = np.where(targets == IGNORE, 0, -(1 - smoothing) * chosen - smoothing * np.log(p).mean(-1))
    np.testing.assert_allclose(head.loss(hidden, targets, smoothing).detach().numpy(), expected, atol=1e-12)


def test_gradients_are_those_of_the_plain_formula():
    head, (hidden, targets) = made(), sample()
    hidden.requires_grad_()
    inputs = [hidden, *head.parameters()]
    found = torch.autograd.grad(head.loss(hidden, targets).sum(), inputs)
    counted = targets != IGNORE
    plain = -head(hidden)[counted].gather(-1, targets[counted][:, None]).sum()
    for ours, expected in zip(found, torch.autograd.grad(plain, inputs), strict=True):
        torch.testing.assert_close(ours, expected)


def test_what_is_kept_does_not_grow_by_the_vocabulary_with_each_softmax():
    hidden, targets = sample()

    def kept(softmaxes: int) -> int:
        head, sizes = made(softmaxes=softmaxes, shape=replace(SHAPE, vocabulary=997)), []
        held = {parameter.data_ptr() for parameter in head.parameters()}
        pack = lambda x: sizes.append(0 if x.data_ptr() in held else x.numel()) or x  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            head.loss(hidden.requires_grad_(), targets)
        return sum(sizes)

    assert kept(6) - kept(5) < targets.numel() * 997 / 4
