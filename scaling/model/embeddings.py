"""Embeddings: token ids -> the stream; and positions, by which a stack knows order."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.base.errors import ScalingError
from scaling.base.numbers import BelowOne, NonNegativeInt, PositiveFloat, PositiveFraction, PositiveInt, Range, Width
from scaling.config.schema import Recipe
from scaling.config.shape import Shape, counted
from scaling.kernels.operations import drop, rotated
from scaling.model import contract
from scaling.model.context import Context, Pattern, Position, waves
from scaling.model.contract import declare, drawn
from scaling.model.rows import Rows, bounds_of, widths_of


class _Position(nn.Module, Position):
    """Identity in all four hooks; a position overrides the ones it needs."""

    def __init__(self, shape: Shape, pattern: Pattern):
        super().__init__()


class NoPosition(_Position):
    """No position at all: order is known only through the mask. (Haviv et al. 2022; the lectures' control)"""


class Sinusoidal(_Position):
    """x_t + P_t, P_t[2i] = sin(t / base^(2i/w)), P_t[2i+1] = cos(t / base^(2i/w)). (Vaswani et al. 2017, section 3.5)

    `layout: halves` puts all sines before all cosines (transformers' Marian; Marian itself has the powers 2i/(w − 2)).
    """

    def __init__(
        self,
        shape: Shape,
        pattern: Pattern,
        *,
        base: PositiveFloat = 10000.0,
        layout: Literal["interleaved", "halves"] = "interleaved",
    ):
        super().__init__(shape, pattern)
        if shape.width % 2:
            what = f"sines and cosines need an even width, not {shape.width}"
            raise ScalingError(what, key="kind", value="Sinusoidal")
        self.width, self.base, self.layout = shape.width, base, layout

    def embed(self, x: Float[Tensor, "b t w"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t w"]:
        join = torch.stack if self.layout == "interleaved" else torch.cat
        return x + join(waves(positions, self.width, self.base), -1).flatten(2).to(x.dtype)


class Learned(_Position):
    """x_t + P_t with P a learned table of `length` rows. (Gehring et al. 2017; BERT, GPT)

    `offset` rows come before the first (RoBERTa and BART count from 2).
    """

    def __init__(
        self, shape: Shape, pattern: Pattern, *, length: PositiveInt | None = None, offset: NonNegativeInt = 0
    ):
        super().__init__(shape, pattern)
        self.reach, self.offset = shape.places(length, "position", "learned positions"), offset
        self.table = drawn(self.reach + offset, shape.width)
        declare(self, table="table")

    def embed(self, x: Float[Tensor, "b t w"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t w"]:
        # Documents that are packed into a longer row may each be short enough.
        if x.shape[1] > self.reach and (positions.is_meta or int(positions.max()) >= self.reach):
            what = f"a sequence of {x.shape[1]} tokens is longer than the {self.reach} learned positions"
            raise ScalingError(what, key="size.length", value=self.reach, fix="shorten it or learn more positions")
        return x + nn.functional.embedding(positions + self.offset, self.table)


class Rotary(_Position):
    """Turns each pair (x_i, x_{i+d/2}) of q and k by the angle t base^(−2i/d), so that q·k knows only t_q − t_k. (Su
    et al. 2021)

    `part` is the fraction of a head's width that turns (Pythia: 0.25). Pairs are halves apart, as GPT-NeoX and Llama
    store them.
    """

    def __init__(self, shape: Shape, pattern: Pattern, *, base: PositiveFloat = 10000.0, part: PositiveFraction = 1.0):
        super().__init__(shape, pattern)
        self.base, self.turning = base, round(shape.head_width * part)
        self.turned: tuple[Tensor, tuple[Tensor, ...]] | None = None  # the last positions, and their turn
        if self.turning % 2:
            what = f"rotary positions turn pairs, and {self.turning} of the head width {shape.head_width} would turn"
            raise ScalingError(what, key="kind", value="Rotary", fix="make size.head_width even")

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        if k_pos is q_pos:
            return tuple(rotated(*self._turn(q_pos), q, k))  # type: ignore[return-value]
        return rotated(*self._turn(q_pos), q)[0], rotated(*self._turn(k_pos), k)[0]

    def _turn(self, positions: Tensor) -> tuple[Tensor, ...]:
        """Cosine and sine of every angle, [#b t turning/2], in float64: made once for all layers of a pass, which ask
        for the same positions one after another. A compiler does that by itself.
        """
        if torch.compiler.is_compiling():
            return waves(positions, self.turning, self.base)[::-1]
        if self.turned is None or self.turned[0] is not positions:
            with torch.inference_mode(False):  # a pass with gradients may ask for the same positions
                self.turned = positions, waves(positions, self.turning, self.base)[::-1]
        return self.turned[1]


class ALiBi(_Position):
    """Adds −m_h |t_q − t_k| to the logits, with slopes m_h = 2^(−8h/H). (Press et al. 2021)

    For H not a power of two: the slopes of the next smaller power, then every other slope of the next larger one.
    """

    def __init__(self, shape: Shape, pattern: Pattern):
        super().__init__(shape, pattern)
        power = 2 ** math.floor(math.log2(shape.heads))
        self.slopes = [2 ** (-8 * (h + 1) / power) for h in range(power)]
        self.slopes += [2 ** (-4 * (2 * h + 1) / power) for h in range(shape.heads - power)]

    def score(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        slopes = torch.tensor(self.slopes, device=q_pos.device, dtype=q.dtype)
        return -slopes[:, None, None] * (q_pos[:, :, None] - k_pos[:, None, :]).abs().to(q.dtype)[:, None]


class RelativeBias(_Position):
    """Adds B[bucket(t_k − t_q), h] to the logits, B learned. (Raffel et al. 2019, section 2.1)

    Half the buckets hold one distance each, the others grow with its logarithm up to `distance`. Stacks that look
    ahead spend half of all buckets on keys that come later. T5 shares one table among a stack's layers (`per:
    stack`).
    """

    def __init__(
        self,
        shape: Shape,
        pattern: Pattern,
        *,
        buckets: Annotated[int, Range(least=4, most=65_536)] = 32,
        distance: PositiveInt = 128,
        per: Literal["stack", "layer"] = "stack",
    ):
        super().__init__(shape, pattern)
        self.ahead, self.buckets, self.distance, self.per = pattern.ahead, buckets, distance, per
        if buckets % 4 or distance <= buckets // 2:
            raise ScalingError("expected a multiple of 4, less than twice the distance", key="buckets", value=buckets)
        self.table = drawn(buckets, shape.heads)
        declare(self, table="table")

    def score(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        offset = k_pos[:, None, :] - q_pos[:, :, None]
        buckets = self.buckets // 2 if self.ahead else self.buckets
        back, exact = offset.abs() if self.ahead else (-offset).clamp(min=0), buckets // 2
        growth = torch.log(back.clamp(min=1).float() / exact) / math.log(self.distance / exact)
        bucket = back.where(back < exact, (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1))
        if self.ahead:
            bucket = (offset > 0).long() * buckets + bucket
        # Contiguous, because every layer and row reads it again.
        return nn.functional.embedding(bucket, self.table).permute(0, 3, 1, 2).contiguous()


class Shaw(_Position):
    """Logits q·(k + a_{t_k − t_q}) and output Σ weight (v + b_{t_k − t_q}), distances clipped. (Shaw et al. 2018)

    The tables a and b are shared by the heads. `distance` is the paper's k. As in the paper's formula (4), q·a is
    scaled like q·k, by the mixer's `scale`.
    """

    reads_content = True

    def __init__(
        self, shape: Shape, pattern: Pattern, *, distance: NonNegativeInt = 16, per: Literal["stack", "layer"] = "layer"
    ):
        super().__init__(shape, pattern)
        self.distance, self.per = distance, per
        self.key = drawn(2 * distance + 1, shape.head_width)
        self.table = drawn(2 * distance + 1, shape.value_width)
        declare(self, key="table", table="table")

    def score(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return _picked(q, self.key, k_pos[:, None, :] - q_pos[:, :, None])

    def value(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        # Sum the weights that fall on each clipped distance, then mix the table once.
        offset = k_pos[:, None, :] - q_pos[:, :, None]
        clipped = (offset.clamp(-self.distance, self.distance) + self.distance)[:, None].expand_as(weights)
        mass = weights.new_zeros(*weights.shape[:-1], 2 * self.distance + 1).scatter_add(-1, clipped, weights)
        return mass @ self.table.to(mass.dtype)


def _picked(q: Float[Tensor, "b t h d"], table: Tensor, offset: Int[Tensor, "#b t s"]) -> Float[Tensor, "b h t s"]:
    """q·table[offset], offsets clipped: every query meets every row first, which takes memory t × rows instead of
    t × s × d.
    """
    far = len(table) // 2
    index = (offset.clamp(-far, far) + far).expand(q.shape[0], -1, -1)[:, None].expand(-1, q.shape[2], -1, -1)
    return (q @ table.T.to(q.dtype)).transpose(1, 2).gather(-1, index)


class TransformerXL(_Position):
    """Adds u·k + (q + v)·W R_{t_q − t_k} to q·k, scaled alike by the mixer's `scale`; R is
    sinusoidal, W, u and v are each layer's. (Dai et al. 2019)

    The fifth width × width map of Gopher's and Chinchilla's layers.
    """

    per = "layer"
    reads_content = True

    def __init__(self, shape: Shape, pattern: Pattern, *, base: PositiveFloat = 10000.0):
        super().__init__(shape, pattern)
        self.width, self.base, self.ahead = shape.width, base, pattern.ahead
        self.relative = nn.Linear(shape.width, shape.heads * shape.head_width, bias=False)
        self.content = nn.Parameter(torch.zeros(shape.heads, shape.head_width))
        self.distance = nn.Parameter(torch.zeros(shape.heads, shape.head_width))
        declare(self, content="table", distance="table")

    def score(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        if k.shape[1] < q.shape[1]:
            what = "TransformerXL counts on a key for each token, and the mixer has fewer"
            raise ScalingError(what, key="model.position", fix="take RelativeBias, Rotary or Shaw")
        # Positions of s keys lie within 0 … s − 1; what the mask of a causal stack hides needs no row of its own.
        high = k.shape[1] - 1
        low = -high if self.ahead else 0
        offset = (q_pos[:, :, None] - k_pos[:, None, :]).clamp(low, high)
        distances = torch.arange(low, high + 1, device=q.device)
        sinusoids = torch.cat(waves(distances, self.width, self.base), -1)[:, : self.width]
        rows = self.relative(sinusoids.to(self.relative.weight.dtype)).unflatten(-1, q.shape[2:])
        by_distance = torch.einsum("bthd,rhd->bhtr", q + self.distance.to(q.dtype), rows.to(q.dtype))
        picked = (offset - low)[:, None].expand(q.shape[0], q.shape[2], -1, -1)
        k = k.repeat_interleave(q.shape[2] // k.shape[2], 2)
        by_content = torch.einsum("hd,bshd->bhs", self.content.to(k.dtype), k)
        return by_distance.gather(-1, picked) + by_content[:, :, None]


class Syntax(_Position):
    """Places in a parse tree next to those in the sequence. (Wang et al. 2019)

    `absolute`: x_t + P_t + D_{d_t}, where P is sinusoidal and d_t the depth of token t. `relative`: logits
    q·(k + a_{t_k − t_q} + b_{r}), where r = d_k − d_q if one of the two is above the other in the tree, else
    ±(d_k + d_q), positive where the key comes later. Depths beyond `depth` and distances beyond `distance` are clipped.

    The paper combines sinusoids of both places by a layer, and each layer has tables of its own; here D is a learned
    table, both are added, and all layers share the tables. Without a tree each token depends on the one before it, so
    that both distances are those of the sequence.
    """

    reads_tree = True

    def __init__(
        self,
        shape: Shape,
        pattern: Pattern,
        *,
        places: Literal["absolute", "relative", "both"] = "both",
        depth: PositiveInt = 32,
        distance: PositiveInt = 16,
    ):
        super().__init__(shape, pattern)
        self.deepest, self.reads_content = depth, places != "absolute"
        if places == "absolute":
            self.score = super().score  # which adds nothing
        self.sequence = None if places == "relative" else Sinusoidal(shape, pattern)
        self.depth = None if places == "relative" else drawn(depth + 1, shape.width)
        self.before: Any = drawn(2 * distance + 1, shape.head_width) if self.reads_content else None
        self.below: Any = drawn(2 * distance + 1, shape.head_width) if self.reads_content else None
        declare(self, depth="table", before="table", below="table")

    def embed(self, x: Float[Tensor, "b t w"], positions: Int[Tensor, "#b t 4"]) -> Float[Tensor, "b t w"]:
        if self.sequence is None or self.depth is None:
            return x
        depth = nn.functional.embedding(positions[..., 1].clamp(max=self.deepest), self.depth)
        return self.sequence.embed(x, positions[..., 0]) + depth

    def score(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        before = _picked(q, self.before, k_pos[:, None, :, 0] - q_pos[:, :, None, 0])
        return before + _picked(q, self.below, distances(q_pos, k_pos))


def distances(q_pos: Int[Tensor, "#b t 4"], k_pos: Int[Tensor, "#b s 4"]) -> Int[Tensor, "#b t s"]:
    """The signed distance of each query and key in their tree."""
    q_place, q_depth, q_first, q_last = q_pos[:, :, None].unbind(-1)
    k_place, k_depth, k_first, k_last = k_pos[:, None].unbind(-1)
    above = ((q_first <= k_first) & (k_first < q_last)) | ((k_first <= q_first) & (q_first < k_last))
    return torch.where(above, k_depth - q_depth, (k_place - q_place).sign() * (k_depth + q_depth))


class _Embedding(nn.Module, contract.Embedding):
    """x_t = norm(s e(token_t) + position + S[segment_t]), e by a table or by rows in clusters: what the kinds share.

    Either a `table` [v w] or `rows` (model/rows.py): what ties share. (Press & Wolf 2016)
    """

    def __init__(
        self,
        shape: Shape,
        table: nn.Parameter | None = None,
        rows: Any = None,
        *,
        scale: Literal["none", "sqrt_width"] = "none",
        segments: NonNegativeInt = 0,
        norm: Recipe | None = None,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        self.width = shape.width  # of the vectors that positions are added to
        self.scale = shape.width**0.5 if scale == "sqrt_width" else None
        self.dropout = dropout
        self.table, self.rows = table, rows
        self.segments = drawn(segments, shape.width) if segments else None
        declare(self, table="table", segments="table")
        self.norm = norm(shape.width) if norm else None

    @property
    def form(self) -> tuple[tuple[int, ...], ...]:
        return self.rows.form if self.table is None else (tuple(self.table.shape),)

    def tie(self, other: _Embedding) -> None:
        self.table, self.rows = other.table, other.rows

    def forward(
        self, tokens: Int[Tensor, "b t"], context: Context, segments: Int[Tensor, "b t"] | None = None
    ) -> Float[Tensor, "b t w"]:
        x = self.rows(tokens) if self.table is None else nn.functional.embedding(tokens, self.table)
        if self.scale is not None:
            x = x * self.scale
        x = context.position.embed(x, context.places.seen_by(context.position))
        if self.segments is not None:
            # A text without segments is all sentence A.
            x = x + nn.functional.embedding(torch.zeros_like(tokens) if segments is None else segments, self.segments)
        if self.norm is not None:
            x = self.norm(x)
        return drop(x, self.dropout, self.training)


class Token(_Embedding):
    """x_t = norm(s E[token_t] + position + S[segment_t]). (Vaswani et al. 2017, section 3.4; Devlin et al. 2018)

    `scale: sqrt_width` multiplies by √w, as Vaswani and T5's ancestors do; `segments` counts BERT's sentence kinds.
    """

    def __init__(self, shape: Shape, **common: Any):
        super().__init__(shape, drawn(shape.vocabulary, shape.width), **common)


class Factorized(_Embedding):
    """Token's with e(i) = E[i] Pᵀ, E [V r], P [w r]. (Lan et al. 2019, ALBERT, section 3.1)

    Tied, a head's logits are (h P) Eᵀ. A `rank` below 1 is a fraction of the width.
    """

    def __init__(self, shape: Shape, *, rank: PositiveFloat = 128, **common: Any):
        inner = counted("rank", rank, shape.width, shape.width)
        if inner == shape.width:
            what = f"expected less than the width {inner}"
            raise ScalingError(what, key="rank", value=rank, fix="take Token for a full table")
        super().__init__(shape, None, Rows([0, shape.vocabulary], [inner], shape.width, "input"), **common)


class Projected(_Embedding):
    """x_t = norm(s E[token_t] + position + S[segment_t]) Pᵀ + b, all within the norm `width` wide, P [w width]. (Lan et
    al. 2019, ALBERT's code; Clark et al. 2020, ELECTRA)

    Factorized adds positions, segments and norm behind P. A `width` below 1 is a fraction of the stream's; ELECTRA's
    generators have more than the stream's. Tied, a head reads vectors of that width: `Transform` with the same `width`.
    """

    def __init__(self, shape: Shape, *, width: Width = 128, **common: Any):
        inner = shape.fraction("width", width)
        if inner == shape.width:
            what = "expected another width than the stream's"
            raise ScalingError(what, key="width", value=width, fix="take Token for a full table")
        super().__init__(replace(shape, width=inner), drawn(shape.vocabulary, inner), **common)
        self.projection = declare(nn.Linear(inner, shape.width), weight="input")

    def forward(
        self, tokens: Int[Tensor, "b t"], context: Context, segments: Int[Tensor, "b t"] | None = None
    ) -> Float[Tensor, "b t w"]:
        return self.projection(super().forward(tokens, context, segments))


class Adaptive(_Embedding):
    """Token's with e(i) = E_c[i − b_c] P_cᵀ: the rarer a cluster, the narrower its E_c. (Baevski & Auli 2018)

    Clusters begin at token 0 and at each of `cutoffs`, and are `widths` wide; ids must fall in frequency, as those of
    tokenizers that merge or rank do. Numbers below 1 are fractions of the vocabulary and of the width. As in Narang et
    al. 2021, a cluster as wide as the stream has no P_c; the paper projects it too. Tied, a linear head's logits are (h
    P_c) E_cᵀ over all clusters.
    """

    def __init__(self, shape: Shape, *, cutoffs: list[PositiveFloat], widths: list[PositiveFloat], **common: Any):
        bounds = bounds_of(cutoffs, shape.vocabulary)
        rows = Rows(bounds, widths_of(widths, bounds, shape.width), shape.width, "input")
        super().__init__(shape, None, rows, **common)
