from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scaling.batch import IGNORE
from scaling.kernel.linear_cross_entropy import cross_entropy_over, scores
from scaling.nn.head.linear import Linear
from scaling.nn.head.log_chances import log_softmax, smoothed
from scaling.schema import SmallInt
from scaling.shape import Shape


class MixtureOfSoftmaxes(Linear):
    """p = Σ_k π_k softmax(E tanh(W_k s h)), π = softmax(V s h). (Yang et al. 2017, section 2.4)

    `forward` gives log p. W_k and V have no biases, as in Narang et al. 2021. Training computes each softmax's loss of
    the target twice, forward and again in backward, so that it keeps the logits of one softmax and not of all.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        softmaxes: SmallInt = 15,
        scale: Literal["none", "inverse_sqrt_width"] = "none",
    ):
        super().__init__(shape, scale=scale)
        self.softmaxes = softmaxes
        self.prior = nn.Linear(shape.width, softmaxes, bias=False)
        self.latent = nn.Linear(shape.width, softmaxes * shape.width, bias=False)

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t v"]:
        prior, latents = self._mixed(hidden)
        total: Tensor | None = None
        for k, latent in enumerate(latents):
            weighted = prior[..., k, None] + log_softmax(scores(self.parts(latent), None))
            total = weighted if total is None else torch.logaddexp(total, weighted)
        assert total is not None
        return total

    def loss(
        self, hidden: Float[Tensor, "b t w"], targets: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        if smoothing:  # which needs the chance of every word
            return smoothed(self(hidden), targets, smoothing)
        prior, latents = self._mixed(hidden.flatten(0, 1))
        flat = targets.flatten()
        each = [checkpoint(self._loss, latent, flat, use_reentrant=False) for latent in latents]
        losses = -torch.logsumexp(prior - torch.stack(each, -1), -1)
        return losses.masked_fill(flat == IGNORE, 0).view_as(targets)

    def _mixed(self, hidden: Float[Tensor, "*n w"]) -> tuple[Float[Tensor, "*n k"], tuple[Tensor, ...]]:
        """log π, and tanh(W_k s h) of each softmax."""
        hidden = self.scaled(hidden)
        return log_softmax(self.prior(hidden)), self.latent(hidden).tanh().chunk(self.softmaxes, -1)

    def _loss(self, latent: Float[Tensor, "n w"], targets: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        return cross_entropy_over(self.parts(latent), None, targets)
