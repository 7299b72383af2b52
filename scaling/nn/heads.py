"""Heads: hidden vectors -> predictions. A head owns its loss, because what is cheap or exact differs from head to
head.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scaling.batch import IGNORE
from scaling.errors import ScalingError
from scaling.kernel.operations import drop
from scaling.nn.contract import Head, declare
from scaling.nn.losses import (
    Parts,
    Weights,
    at_least_float32,
    check_weights,
    choice_loss,
    class_loss,
    cross_entropy_over,
    log_softmax,
    scores,
    smoothed,
)
from scaling.nn.rows import Rows, bounds_of, widths_of
from scaling.schema import BelowOne, PositiveFloat, PositiveInt, Recipe, SmallInt, Width
from scaling.shape import Shape


class Linear(nn.Module, Head):
    """logits = s h Wᵀ + b. (Vaswani et al. 2017, section 3.4)

    Tied, W is an embedding's (Press & Wolf 2016), in two factors where the embedding has two. `scale:
    inverse_sqrt_width` is T5's s = w^(−1/2) for tied tables.
    """

    target = "targets"

    def __init__(self, shape: Shape, *, bias: bool = False, scale: Literal["none", "inverse_sqrt_width"] = "none"):
        super().__init__()
        self.width = shape.width
        self.scale = shape.width**-0.5 if scale == "inverse_sqrt_width" else None
        self.weight: Any = nn.Parameter(torch.empty(shape.vocabulary, shape.width))
        declare(self, weight="table")
        self.rows: Any = None
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.normal_(self.weight, std=0.02)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def tie(self, embedding: Any) -> None:
        """Predict by the vectors of an embedding, its table or its rows in clusters."""
        if embedding.width != self.width:
            raise ScalingError(
                f"the head predicts by vectors of {self.width}, and the embedding's have {embedding.width}",
                key="tie",
                fix=f"take {{kind: Transform, width: {embedding.width}, …}} as head, or leave head out of tie",
            )
        self.weight, self.rows = embedding.table, embedding.rows

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t v"]:
        return scores(self.parts(self.scaled(hidden)), self.bias)

    def loss(
        self, hidden: Float[Tensor, "b t w"], targets: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        """The loss of each target in nats, 0 where it is IGNORE."""
        parts = self.parts(self.scaled(hidden).flatten(0, 1))
        return cross_entropy_over(parts, self.bias, targets.flatten(), smoothing).view_as(targets)

    def parts(self, hidden: Float[Tensor, "*n w"]) -> Parts:
        """What is multiplied for the logits."""
        return [(hidden, self.weight)] if self.rows is None else self.rows.parts(hidden)

    def scaled(self, hidden: Float[Tensor, "*n w"]) -> Float[Tensor, "*n w"]:
        return hidden if self.scale is None else hidden * self.scale


class Transform(Linear):
    """logits = norm(φ(h U + c)) Wᵀ + b: BERT's masked-language-model head. (Devlin et al. 2018)

    `width` is that of W's vectors where it is not the stream's; below 1 it is a fraction of it (ALBERT, ELECTRA).
    """

    def __init__(
        self, shape: Shape, *, activation: Recipe, norm: Recipe, bias: bool = True, width: Width | None = None
    ):
        own = shape.width if width is None else shape.fraction("width", width)
        super().__init__(replace(shape, width=own), bias=bias)
        self.dense = nn.Linear(shape.width, own)
        self.activation, self.norm = activation(), norm(own)

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t v"]:
        return super().forward(self._transformed(hidden))

    def loss(
        self, hidden: Float[Tensor, "b t w"], targets: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        return super().loss(self._transformed(hidden), targets, smoothing)

    def _transformed(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))


class AdaptiveSoftmax(Linear):
    """p(i) = p₀(i) in the first cluster, p₀(gate c) p_c(i) in cluster c, p₀ = softmax(s h [E₀ᵀ, G]), p_c = softmax(s h
    P_c E_cᵀ). (Grave et al. 2017)

    `forward` gives log p. A cluster is computed where the target lies in it, so ids must fall in frequency. Clusters
    begin at token 0 and at each of `cutoffs`; numbers below 1 are fractions. Without `widths` there are no P_c; tied,
    E_c and P_c are the embedding's.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        cutoffs: list[PositiveFloat],
        widths: list[PositiveFloat] | None = None,
        scale: Literal["none", "inverse_sqrt_width"] = "none",
    ):
        super().__init__(shape, scale=scale)
        self.bounds = bounds_of(cutoffs, shape.vocabulary)
        if widths is not None:
            self.weight = None
            self.rows = Rows(self.bounds, widths_of(widths, self.bounds, shape.width), shape.width, "hidden")
        self.gates = nn.Linear(shape.width, len(self.bounds) - 2, bias=False)

    def tie(self, embedding: Any) -> None:
        if self.rows is not None:
            raise ScalingError("a tied head's widths are the embedding's", key="head.widths", fix="leave them out")
        if embedding.rows is not None and embedding.rows.bounds != self.bounds:
            raise ScalingError(
                "a tied head has the clusters of the embedding",
                key="head.cutoffs",
                value=list(self.bounds[1:-1]),
                fix=f"take {list(embedding.rows.bounds[1:-1])}",
            )
        super().tie(embedding)

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t v"]:
        hidden = self.scaled(hidden)
        first = log_softmax(scores(self._first(hidden), None))
        words, *gates = first.split([self.bounds[1], *[1] * self.gates.out_features], -1)
        rest = [gate + log_softmax(scores([self._cluster(c, hidden)], None)) for c, gate in enumerate(gates, 1)]
        return torch.cat([words, *rest], -1)

    def loss(
        self, hidden: Float[Tensor, "b t w"], targets: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        if smoothing:  # which needs the chance of every word
            return smoothed(self(hidden), targets, smoothing)
        flat, target = self.scaled(hidden).flatten(0, 1), targets.flatten()
        cluster = torch.stack([target >= bound for bound in self.bounds[1:-1]]).sum(0)
        gated = torch.where(cluster == 0, target, self.bounds[1] - 1 + cluster)
        losses = cross_entropy_over(self._first(flat), None, gated)
        for c in range(1, len(self.bounds) - 1):
            rows = self._lying(cluster, c)
            own = self._cluster(c, flat.index_select(0, rows))
            within = target.index_select(0, rows) - self.bounds[c]
            losses = losses.index_add(0, rows, cross_entropy_over([own], None, within))
        return losses.view_as(targets)

    def _first(self, hidden: Float[Tensor, "*n w"]) -> Parts:
        """The words of the first cluster, and a gate to each of the others."""
        return [self._cluster(0, hidden), (hidden, self.gates.weight)]

    def _cluster(self, c: int, hidden: Float[Tensor, "*n w"]) -> tuple[Tensor, Tensor]:
        if self.rows is None:
            return hidden, self.weight[self.bounds[c] : self.bounds[c + 1]]
        return self.rows.narrow(c, hidden), self.rows.tables[c]

    def _lying(self, cluster: Int[Tensor, " n"], c: int) -> Int[Tensor, " m"]:
        """The rows whose target is in cluster c. On the meta device there are no targets, and the number that
        Zipf's law, p(i) ~ 1/i, lets lie there stand for them: a model is counted as on a text.
        """
        if not cluster.is_meta:
            return (cluster == c).nonzero()[:, 0]
        start, stop = self.bounds[c], self.bounds[c + 1]
        share = math.log(stop / start) / (math.log(self.bounds[-1]) + 0.5772)
        return cluster.new_empty(math.ceil(share * len(cluster)))


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


class _Pooled(nn.Module, Head):
    """y = φ(h U + c) A + b of every vector that a head of the whole text reads (BERT's pooler, Devlin et al. 2018), or
    y = h A + b without φ (Radford et al. 2018). `added` adds the vectors of a row up first.
    """

    target, reads = "labels", "text"

    def __init__(
        self,
        shape: Shape,
        outputs: int,
        added: bool = False,
        *,
        activation: Recipe | None = None,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        self.added, self.dropout = added, dropout
        self.activation: Callable[..., Any] | None = None
        if activation is not None:
            self.pool, self.activation = nn.Linear(shape.width, shape.width), activation()
        self.out = declare(nn.Linear(shape.width, outputs), weight="output")

    def scores(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b j c"]:
        """[b k c], or [b 1 c] where the vectors are added up."""
        if self.added:
            hidden = hidden.sum(1, keepdim=True)
        if self.activation is not None:
            hidden = self.activation(self.pool(hidden))
        return self.out(drop(hidden, self.dropout, self.training))


def alone(scores: Tensor) -> Tensor:
    """[b …] of [b 1 …]: where one vector is read, a row has one prediction and not a list of one."""
    return scores.squeeze(1)


class Sequence(_Pooled):
    """logits = φ(h U + c) W + b, h the vector that is read, by default the first token's: a class for the whole text.
    (Devlin et al. 2018) Without `activation`, logits = h W + b. (Radford et al. 2018)

    `added` adds up the vectors read of a row, as of a pair in both orders. The loss of a class counts `weights` times;
    `balanced` weights are n / (classes · n_c) of the training examples.
    """

    answer = "class"

    def __init__(
        self,
        shape: Shape,
        *,
        classes: PositiveInt,
        added: bool = False,
        weights: Weights = None,
        **common: Any,
    ):
        super().__init__(shape, classes, added, **common)
        self.weights = check_weights(weights, classes)

    def forward(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b ... c"]:
        return alone(self.scores(hidden))

    def loss(
        self, hidden: Float[Tensor, "b k w"], labels: Int[Tensor, "b ..."], smoothing: float = 0.0
    ) -> Float[Tensor, "b ..."]:
        return class_loss(self.scores(hidden), labels, self.weights, smoothing)


class NextSentence(Sequence):
    """Does sentence B follow sentence A? Two classes over the pooled first token. (Devlin et al. 2018)"""

    def __init__(self, shape: Shape, *, activation: Recipe, dropout: BelowOne = 0.0):
        super().__init__(shape, classes=2, activation=activation, dropout=dropout)


class Classes(_Pooled):
    """p = σ(φ(h U + c) W + b): which of several classes hold, each by itself. Labels are 0 or 1 for each class.

    The vectors read of a row are added up. The loss of a class counts `weights` times.
    """

    answer = "classes"

    def __init__(self, shape: Shape, *, classes: PositiveInt, weights: Weights = None, **common: Any):
        super().__init__(shape, classes, True, **common)
        self.classes, self.weights = classes, check_weights(weights, classes)

    def forward(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b c"]:
        return self.scores(hidden)[:, 0]

    def loss(
        self, hidden: Float[Tensor, "b k w"], labels: Shaped[Tensor, "b c"], smoothing: float = 0.0
    ) -> Float[Tensor, "b c"]:
        logits = at_least_float32(self(hidden))
        targets = labels.clamp(min=0).to(logits.dtype) * (1 - smoothing) + smoothing / 2
        weights = None if self.weights is None else logits.new_tensor(self.weights)
        losses = F.binary_cross_entropy_with_logits(logits, targets, weights, reduction="none")
        return losses.masked_fill(labels == IGNORE, 0)

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(len(tokens), self.classes)


class Number(_Pooled):
    """y = φ(h U + c) a + b, whose loss is (y − label)²: a number for the whole text. (Devlin et al. 2018, STS-B)

    `added` adds up the vectors read of a row, as of a pair in both orders. (Radford et al. 2018, section 3.3)
    """

    answer = "number"

    def __init__(self, shape: Shape, *, added: bool = False, **common: Any):
        super().__init__(shape, 1, added, **common)

    def forward(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b ..."]:
        return alone(self.scores(hidden)[..., 0])

    def loss(
        self, hidden: Float[Tensor, "b k w"], labels: Shaped[Tensor, "b ..."], smoothing: float = 0.0
    ) -> Float[Tensor, "b ..."]:
        numbers = at_least_float32(self.scores(hidden)[..., 0]).view_as(labels)
        return (numbers - labels.to(numbers.dtype)).square().masked_fill(labels == IGNORE, 0)

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(len(tokens)).float()


class Options(_Pooled):
    """p = softmax over a row's options of φ(h U + c) a + b, h the vector read of each. (Radford et al. 2018, section
    3.3; Devlin et al. 2018, section 4.4)

    Rows may have fewer options than others: where none is read the vector is 0, and it has no chance.
    """

    answer = "options"

    def __init__(self, shape: Shape, **common: Any):
        super().__init__(shape, 1, **common)

    def forward(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b k"]:
        absent = (hidden == 0).all(-1)
        absent = absent & ~absent.all(-1, keepdim=True)  # a row without options has a loss of no consequence
        return self.scores(hidden)[..., 0].masked_fill(absent, -float("inf"))

    def loss(
        self, hidden: Float[Tensor, "b k w"], labels: Int[Tensor, " b"], smoothing: float = 0.0
    ) -> Float[Tensor, " b"]:
        return choice_loss(self(hidden), labels, smoothing)


class Tokens(nn.Module, Head):
    """logits = h W + b: a class for each token, as in named-entity recognition. (Devlin et al. 2018)

    The loss of a class counts `weights` times; `balanced` weights are n / (classes · n_c) of the training examples.
    """

    target, answer = "labels", "tags"

    def __init__(self, shape: Shape, *, classes: PositiveInt, dropout: BelowOne = 0.0, weights: Weights = None):
        super().__init__()
        self.out, self.dropout = declare(nn.Linear(shape.width, classes), weight="output"), dropout
        self.weights = check_weights(weights, classes)

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t c"]:
        return self.out(drop(hidden, self.dropout, self.training))

    def loss(
        self, hidden: Float[Tensor, "b t w"], labels: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        return class_loss(self(hidden), labels, self.weights, smoothing)

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(tokens.shape)


class Span(nn.Module, Head):
    """Where an answer starts and ends: softmax over positions of h·s and of h·e. (Devlin et al. 2018, SQuAD)

    Padding, whose vectors arrive as 0, has no chance, so that a loss does not depend on how far a batch is filled.
    """

    target, answer, omits_padding = "labels", "span", True

    def __init__(self, shape: Shape):
        super().__init__()
        self.out = declare(nn.Linear(shape.width, 2), weight="output")

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b 2 t"]:
        absent = (hidden == 0).all(-1)
        absent = absent & ~absent.all(-1, keepdim=True)
        return self.out(hidden).transpose(1, 2).masked_fill(absent[:, None], -float("inf"))

    def loss(
        self, hidden: Float[Tensor, "b t w"], labels: Int[Tensor, "b 2"], smoothing: float = 0.0
    ) -> Float[Tensor, "b 2"]:
        return choice_loss(self(hidden), labels, smoothing)

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(len(tokens), 2)
