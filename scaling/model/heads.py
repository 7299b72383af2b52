"""Heads: hidden vectors -> predictions. A head owns its loss, because what is cheap or exact differs from head to head.

The logits of a batch are the largest tensor of a small model. `cross_entropy` takes rows in chunks that stay in cache,
and forms ∂loss/∂logits = softmax − target while a chunk is there; backward is two matrix products.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from scaling.base.batch import IGNORE
from scaling.base.errors import ScalingError
from scaling.base.numbers import BelowOne, PositiveFloat, PositiveInt, SmallInt, Width
from scaling.config.schema import Recipe
from scaling.config.shape import Shape
from scaling.kernels import operations
from scaling.kernels.operations import at_least_float32, drop
from scaling.model.contract import Head, declare, drawn
from scaling.model.rows import Rows, bounds_of, widths_of

CPU_CHUNK = 2**19  # logits at a time: two megabytes of float32, about what the cores keep near (docs/performance.md)
CHUNK = 2**26  # elsewhere a launch costs more than a pass over memory

Parts = list[tuple[Tensor, Tensor]]  # (h_c [n r_c], E_c [v_c r_c]): logits are the h_c E_cᵀ side by side


def cross_entropy(
    parts: Parts, bias: Float[Tensor, " v"] | None, targets: Int[Tensor, " n"], smoothing: float = 0.0
) -> Float[Tensor, " n"]:
    """The loss of each row in nats, 0 where the target is IGNORE, in float32 or better.

    With smoothing ε the target is 1 − ε on one class and ε/v on all. (Szegedy et al. 2015, section 7)
    """
    tensors = [bias, *(tensor for part in parts for tensor in part)]
    device = targets.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        tensors = [None if tensor is None else tensor.to(dtype) for tensor in tensors]
    return _CrossEntropy.apply(targets, smoothing, torch.is_grad_enabled(), *tensors)


def scores(parts: Parts, bias: Float[Tensor, " v"] | None) -> Float[Tensor, "*n v"]:
    """The logits themselves."""
    if len(parts) == 1:
        return F.linear(*parts[0], bias)
    logits = torch.cat([F.linear(hidden, weight) for hidden, weight in parts], -1)
    return logits if bias is None else logits + bias


class _CrossEntropy(torch.autograd.Function):
    """The losses, chunk by chunk, and ∂loss/∂logits where something learns."""

    @staticmethod
    def forward(ctx: Any, targets: Tensor, smoothing: float, learns: bool, bias: Any, *tensors: Tensor) -> Tensor:
        parts, first = list(zip(tensors[::2], tensors[1::2], strict=True)), tensors[0]
        classes = sum(map(len, tensors[1::2]))
        losses = first.new_empty(len(targets), dtype=torch.promote_types(first.dtype, torch.float32))
        gradient = first.new_empty(len(targets), classes) if learns and any(ctx.needs_input_grad) else None
        room = {"cpu": CPU_CHUNK, "meta": classes * len(targets)}  # on the meta device logits take no memory
        step = max(1, room.get(first.device.type, CHUNK) // classes)
        for rows in (slice(start, start + step) for start in range(0, len(targets), step)):
            logits = scores([(hidden[rows], weight) for hidden, weight in parts], bias)
            slopes = None if gradient is None else gradient[rows]
            operations.cross_entropy(logits, targets[rows], losses[rows], slopes, smoothing)
        ctx.save_for_backward(targets, gradient, *tensors)
        return losses.masked_fill_(targets == IGNORE, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Each row's gradient times what came from above, which is multiplied to the side that is w wide, not v."""
        targets, gradient, *tensors = ctx.saved_tensors
        upstream = torch.where(targets == IGNORE, 0, upstream).to(gradient.dtype)[:, None]
        *_, needs_bias = ctx.needs_input_grad[:4]
        gradients: list[Tensor | None] = [None, None, None, gradient.T @ upstream[:, 0] if needs_bias else None]
        needs, hiddens, weights = ctx.needs_input_grad[4:], tensors[::2], tensors[1::2]
        parts = gradient.split([len(weight) for weight in weights], -1)
        for part, hidden, weight, needs_hidden, needs_weight in zip(parts, hiddens, weights, needs[::2], needs[1::2]):
            gradients.append((part @ weight).mul_(upstream) if needs_hidden else None)
            gradients.append(part.T @ (hidden * upstream) if needs_weight else None)
        return tuple(gradients)


def log_softmax(logits: Float[Tensor, "*n v"]) -> Float[Tensor, "*n v"]:
    return at_least_float32(logits).log_softmax(-1)


def label_loss(
    log_chances: Float[Tensor, "*n c"], labels: Int[Tensor, "*m"], smoothing: float, weights: list[float] | None = None
) -> Float[Tensor, "*m"]:
    """−(1 − ε) w_y log p_y − ε mean w log p over the classes that have a chance, 0 where the label y is IGNORE.
    (Szegedy et al. 2015, section 7)
    """
    costs = -log_chances if weights is None else -log_chances * log_chances.new_tensor(weights)
    of_label = labels.view(costs.shape[:-1])
    losses = costs.gather(-1, of_label.clamp(min=0)[..., None])[..., 0]
    if smoothing:
        present = log_chances != -math.inf
        mean = costs.masked_fill(~present, 0).sum(-1) / present.sum(-1)
        losses = (1 - smoothing) * losses + smoothing * mean
    return losses.masked_fill(of_label == IGNORE, 0).view_as(labels)


Weights = list[PositiveFloat] | Literal["balanced"] | None  # `balanced`: a run takes them from its training examples


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
        self.weight: Any = drawn(shape.vocabulary, shape.width)
        self.rows: Any = None
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary)) if bias else None
        declare(self, weight="table", bias="bias")

    def tie(self, embedding: Any) -> None:
        """Predict by the vectors of an embedding, its table or its rows in clusters."""
        if embedding.width != self.width:
            what = f"the head predicts by vectors of {self.width}, and the embedding's have {embedding.width}"
            fix = f"take {{kind: Transform, width: {embedding.width}, …}} as head, or leave head out of tie"
            raise ScalingError(what, key="tie", fix=fix)
        self.weight, self.rows = embedding.table, embedding.rows

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t v"]:
        return scores(self.parts(self.scaled(hidden)), self.bias)

    def loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        parts = self.parts(self.scaled(hidden).flatten(0, 1))
        return cross_entropy(parts, self.bias, targets.flatten(), smoothing).view_as(targets)

    def parts(self, hidden: Float[Tensor, "*n w"]) -> Parts:
        """The two factors of the logits."""
        if self.rows is None:
            return [(hidden, self.weight)]
        return [self.rows.part(c, hidden) for c in range(len(self.rows.tables))]

    def scaled(self, hidden: Float[Tensor, "*n w"]) -> Float[Tensor, "*n r"]:
        """The hidden vectors that are multiplied with those of the vocabulary."""
        return hidden if self.scale is None else hidden * self.scale


class Transform(Linear):
    """logits = norm(φ(h U + c)) Wᵀ + b: BERT's masked-language-model head. (Devlin et al. 2018)

    `width` is that of W's vectors where it is not the stream's; below 1 it is a fraction of it (ALBERT, ELECTRA).
    """

    def __init__(
        self, shape: Shape, *, activation: Recipe, norm: Recipe, bias: bool = True, width: Width | None = None
    ):
        inner = shape.width if width is None else shape.fraction("width", width)
        super().__init__(replace(shape, width=inner), bias=bias)
        self.dense = nn.Linear(shape.width, inner)
        self.activation, self.norm = activation(), norm(inner)

    def scaled(self, hidden: Float[Tensor, "*n w"]) -> Float[Tensor, "*n r"]:
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
        first = log_softmax(scores(self._cluster(0, hidden), None))
        words, *gates = first.split([self.bounds[1], *[1] * self.gates.out_features], -1)
        rest = [gate + log_softmax(scores(self._cluster(c, hidden), None)) for c, gate in enumerate(gates, 1)]
        return torch.cat([words, *rest], -1)

    def loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        if smoothing:  # which needs the chance of every word
            return label_loss(self(hidden), targets, smoothing)
        flat, target = self.scaled(hidden).flatten(0, 1), targets.flatten()
        cluster = torch.stack([target >= bound for bound in self.bounds[1:-1]]).sum(0)
        gated = torch.where(cluster == 0, target, self.bounds[1] - 1 + cluster)
        losses = cross_entropy(self._cluster(0, flat), None, gated)
        for c in range(1, len(self.bounds) - 1):
            rows = self._lying(cluster, c)
            within = target.index_select(0, rows) - self.bounds[c]
            losses = losses.index_add(
                0, rows, cross_entropy(self._cluster(c, flat.index_select(0, rows)), None, within)
            )
        return losses.view_as(targets)

    def _cluster(self, c: int, hidden: Float[Tensor, "*n w"]) -> Parts:
        """The words of a cluster; the first has a gate to each of the others too."""
        if self.rows is None:
            words = hidden, self.weight[self.bounds[c] : self.bounds[c + 1]]
        else:
            words = self.rows.part(c, hidden)
        return [words] if c else [words, (hidden, self.gates.weight)]

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
        self, shape: Shape, *, softmaxes: SmallInt = 15, scale: Literal["none", "inverse_sqrt_width"] = "none"
    ):
        super().__init__(shape, scale=scale)
        self.softmaxes = softmaxes
        self.prior = nn.Linear(shape.width, softmaxes, bias=False)
        self.latent = nn.Linear(shape.width, softmaxes * shape.width, bias=False)

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t v"]:
        prior, latents = self._mixed(hidden)
        each = ((prior[..., k, None], scores(self.parts(latent), None)) for k, latent in enumerate(latents))
        return reduce(torch.logaddexp, (weight + log_softmax(logits) for weight, logits in each))

    def loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        if smoothing:  # which needs the chance of every word
            return label_loss(self(hidden), targets, smoothing)
        prior, latents = self._mixed(hidden.flatten(0, 1))
        flat = targets.flatten()
        each = [
            checkpoint(lambda latent: cross_entropy(self.parts(latent), None, flat), latent, use_reentrant=False)
            for latent in latents
        ]
        return (-torch.logsumexp(prior - torch.stack(each, -1), -1)).masked_fill(flat == IGNORE, 0).view_as(targets)

    def _mixed(self, hidden: Float[Tensor, "*n w"]) -> tuple[Float[Tensor, "*n k"], tuple[Tensor, ...]]:
        """log π, and tanh(W_k s h) of each softmax."""
        hidden = self.scaled(hidden)
        return log_softmax(self.prior(hidden)), self.latent(hidden).tanh().chunk(self.softmaxes, -1)


class _Labels(nn.Module, Head):
    """y = φ(h U + c) A + b of every vector that a head reads (BERT's pooler, Devlin et al. 2018), or y = h A + b
    without φ (Radford et al. 2018). `added` adds the vectors of a row up first. The loss of a label counts as often as
    the weight of its class.
    """

    target = "labels"

    def __init__(
        self,
        shape: Shape,
        outputs: int,
        added: bool = False,
        weights: Weights = None,
        *,
        activation: Recipe | None = None,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        if isinstance(weights, list) and len(weights) != outputs:
            raise ScalingError(f"{len(weights)} weights of {outputs} classes", key="weights", value=weights)
        self.added, self.weights, self.dropout = added, weights if isinstance(weights, list) else None, dropout
        self.activation: Any = None
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

    def loss(self, hidden: Tensor, labels: Tensor, smoothing: float = 0.0, **absent: Tensor) -> Tensor:
        return label_loss(log_softmax(self(hidden, **absent)), labels, smoothing, self.weights)


class Sequence(_Labels):
    """logits = φ(h U + c) W + b, h the vector that is read, by default the first token's: a class for the whole text.
    (Devlin et al. 2018) Without `activation`, logits = h W + b. (Radford et al. 2018)

    `added` adds up the vectors read of a row, as of a pair in both orders. The loss of a class counts `weights` times;
    `balanced` weights are n / (classes · n_c) of the training examples.
    """

    answer, reads = "class", "text"

    def __init__(
        self, shape: Shape, *, classes: PositiveInt, added: bool = False, weights: Weights = None, **common: Any
    ):
        super().__init__(shape, classes, added, weights, **common)

    def forward(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b ... c"]:
        return self.scores(hidden).squeeze(1)  # of one vector, one prediction


class NextSentence(Sequence):
    """Does sentence B follow sentence A? Two classes over the pooled first token. (Devlin et al. 2018)"""

    def __init__(self, shape: Shape, *, activation: Recipe, dropout: BelowOne = 0.0):
        super().__init__(shape, classes=2, activation=activation, dropout=dropout)


class Classes(_Labels):
    """p = σ(φ(h U + c) W + b): which of several classes hold, each by itself. Labels are 0 or 1 for each class.

    The vectors read of a row are added up. The loss of a class counts `weights` times.
    """

    answer, reads = "classes", "text"

    def __init__(self, shape: Shape, *, classes: PositiveInt, weights: Weights = None, **common: Any):
        super().__init__(shape, classes, True, weights, **common)
        self.classes = classes

    def forward(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b c"]:
        return self.scores(hidden)[:, 0]

    def loss(self, hidden: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        logits = at_least_float32(self(hidden))
        targets = labels.clamp(min=0).to(logits.dtype) * (1 - smoothing) + smoothing / 2
        weights = None if self.weights is None else logits.new_tensor(self.weights)
        losses = F.binary_cross_entropy_with_logits(logits, targets, weights, reduction="none")
        return losses.masked_fill(labels == IGNORE, 0)

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(len(tokens), self.classes)


class Number(_Labels):
    """y = φ(h U + c) a + b, whose loss is (y − label)²: a number for the whole text. (Devlin et al. 2018, STS-B)

    `added` adds up the vectors read of a row, as of a pair in both orders. (Radford et al. 2018, section 3.3)
    """

    answer, reads = "number", "text"

    def __init__(self, shape: Shape, *, added: bool = False, **common: Any):
        super().__init__(shape, 1, added, **common)

    def forward(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b ..."]:
        return self.scores(hidden)[..., 0].squeeze(1)

    def loss(self, hidden: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        numbers = at_least_float32(self(hidden)).view_as(labels)
        return (numbers - labels.to(numbers.dtype)).square().masked_fill(labels == IGNORE, 0)

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(len(tokens)).float()


class Options(_Labels):
    """p = softmax over a row's options of φ(h U + c) a + b, h the vector read of each. (Radford et al. 2018, section
    3.3; Devlin et al. 2018, section 4.4)

    Rows may have fewer options than others: one that is absent has no chance.
    """

    answer, reads, takes_absent = "options", "text", True

    def __init__(self, shape: Shape, **common: Any):
        super().__init__(shape, 1, **common)

    def forward(
        self, hidden: Float[Tensor, "b k w"], absent: Bool[Tensor, "b k"] | None = None
    ) -> Float[Tensor, "b k"]:
        return without(absent, self.scores(hidden)[..., 0])


def without(absent: Tensor | None, logits: Tensor) -> Tensor:
    """−∞ in the place of the logits that are absent, but for rows that have nothing else, whose loss is no matter."""
    return logits if absent is None else logits.masked_fill(absent & ~absent.all(-1, keepdim=True), -math.inf)


class Tokens(_Labels):
    """logits = h W + b: a class for each token, as in named-entity recognition. (Devlin et al. 2018)

    The loss of a class counts `weights` times; `balanced` weights are n / (classes · n_c) of the training examples.
    """

    answer = "tags"

    def __init__(self, shape: Shape, *, classes: PositiveInt, dropout: BelowOne = 0.0, weights: Weights = None):
        super().__init__(shape, classes, weights=weights, dropout=dropout)

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t c"]:
        return self.scores(hidden)

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(tokens.shape)


class Span(_Labels):
    """Where an answer starts and ends: softmax over positions of h·s and of h·e. (Devlin et al. 2018, SQuAD)

    Padding is absent and has no chance, so that a loss does not depend on how far a batch is filled.
    """

    answer, takes_absent = "span", True

    def __init__(self, shape: Shape):
        super().__init__(shape, 2)

    def forward(
        self, hidden: Float[Tensor, "b t w"], absent: Bool[Tensor, "b t"] | None = None
    ) -> Float[Tensor, "b 2 t"]:
        return without(None if absent is None else absent[:, None], self.scores(hidden).transpose(1, 2))

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(len(tokens), 2)


class Boundary(Linear):
    """logits = g([h_left; h_right; p_i]) Wᵀ, g two layers φ under norms. (Joshi et al. 2019, SpanBERT, section 3.2)

    A run of targets is a span, as the objective `Spans` makes them; p_i is the place i in it, of at most `longest`.
    """

    slot = "boundary"

    def __init__(self, shape: Shape, *, activation: Recipe, norm: Recipe, longest: SmallInt = 10):
        super().__init__(shape)
        self.places = drawn(longest, shape.width)
        declare(self, places="table")
        self.first, self.second = nn.Linear(3 * shape.width, shape.width), nn.Linear(shape.width, shape.width)
        self.activation, self.norms = activation(), nn.ModuleList([norm(shape.width), norm(shape.width)])

    def loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        # Every position is computed and most are ignored: shapes that do not depend on data run anywhere.
        chosen, last = targets != IGNORE, targets.shape[1] - 1
        index = torch.arange(last + 1, device=targets.device).expand(targets.shape)
        # The nearest position at or before each, and at or after each, that is not chosen; the row's end without any.
        left = torch.where(chosen, 0, index).cummax(1).values
        right = torch.where(chosen, last, index).flip(1).cummin(1).values.flip(1)
        place = index - left - 1
        beside = [hidden.gather(1, edge[..., None].expand_as(hidden)) for edge in (left, right)]
        x = torch.cat([*beside, self.places[place.clamp(0, len(self.places) - 1)].to(hidden.dtype)], -1)
        for layer, norm in zip((self.first, self.second), self.norms, strict=True):
            x = norm(self.activation(layer(x)))
        return cross_entropy(self.parts(x.flatten(0, 1)), None, targets.flatten(), smoothing).view_as(targets)
