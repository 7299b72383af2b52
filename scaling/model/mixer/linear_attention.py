"""Attention by a kernel: φ(q)·φ(k) in the place of exp(s q·k), so that sums over keys are made once and not for each
query.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scaling.base.errors import ScalingError
from scaling.base.numbers import PositiveInt, Seed
from scaling.config.shape import Shape
from scaling.kernels.operations import at_least_float32
from scaling.model.context import Context
from scaling.model.mixer.attention import Projected
from scaling.model.mixer.bands import in_order
from scaling.model.patterns import Bidirectional, Causal

CHUNK = 64  # tokens that are compared pair by pair; those before them are summed


class _Kernel(Projected, ABC):
    """y_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) over the tokens that i sees: all, or those up to its own."""

    @abstractmethod
    def features(
        self, q: Float[Tensor, "b t h d"], k: Float[Tensor, "b t g d"], context: Context
    ) -> tuple[Float[Tensor, "b t h f"], Float[Tensor, "b t g f"]]:
        """φ of queries and of keys; a query's may be multiplied by a positive number of its own, which cancels."""

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        pattern, position = context.mask.pattern, context.position
        if not isinstance(pattern, Causal | Bidirectional):
            neither = f"and the pattern {type(pattern).__name__} is neither"
            what = f"{type(self).__name__} sums over all keys or over those before, {neither}"
            raise ScalingError(what, key="model.pattern", fix="take Causal or Bidirectional, or an Attention")
        self.refuse_scores(position)
        q, k, v = self.project(x, queries=x)
        places = context.places.seen_by(position)
        q, k = position.rotate(q, k, places, places)
        available = torch.amp.is_autocast_available(x.device.type)
        with torch.autocast(x.device.type, enabled=False) if available else nullcontext():
            q, k, wide = map(at_least_float32, (q, k, v))
            q, k = self.features(q, k, context)
            k, wide = (part.repeat_interleave(self.heads // self.key_heads, 2) for part in (k, wide))
            # A further value of 1: the sum of the weights comes with that of the values.
            summed = self._summed(q, k, F.pad(wide, (0, 1), value=1.0), context)
            mixed = summed[..., :-1] / summed[..., -1:].clamp(min=torch.finfo(summed.dtype).tiny)
        return self.out(mixed.to(v.dtype).flatten(2))

    def _summed(self, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Float[Tensor, "b t h e"]:
        """Σ_j φ(q_i)·φ(k_j) v_j."""
        documents, key_documents = context.places.documents, context.keys.documents
        if documents is not None:
            k = k * (documents > 0)[..., None, None]
        if not isinstance(context.mask.pattern, Causal):
            if documents is None or in_order(context):
                return torch.einsum("bthf,bhfe->bthe", q, torch.einsum("bthf,bthe->bhfe", k, v))
            after, _ = _up_to_each(*(part.flip(1) for part in (q, k, v, documents)), own=False)
            return _up_to_each(q, k, v, documents)[0] + after.flip(1)
        past, state = context.keys.positions.shape[1] - q.shape[1], context.state(self)
        state = {} if state is None else state
        before = None if key_documents is None or not past else key_documents[:, past - 1]
        summed, state["sums"] = _up_to_each(q, k, v, documents, state.get("sums"), before)
        return summed


class LinearAttention(_Kernel):
    """y_i = φ(q_i) Σ_j φ(k_j)ᵀ v_j / φ(q_i)·Σ_j φ(k_j), φ(x) = elu(x) + 1, then W_O. (Katharopoulos et al. 2020,
    formulas 5 to 7)

    In a causal stack the sums are over the tokens up to i: they are computed in chunks, and generation keeps them
    alone, whatever the length. Documents that share a row have sums of their own. `Rotary` turns q and k before φ, so
    that weights stay positive and know more than distances; Su et al. 2021 (formula 19) turn φ(q) and φ(k).
    """

    def features(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return F.elu(q) + 1, F.elu(k) + 1


class Performer(_Kernel):
    """softmax(Q Kᵀ / √d) V W_O estimated by `features` positive orthogonal random features: φ(x) = m^(−1/2)
    exp(w_i·x − |x|²/2), x = q d^(−1/4). (Choromanski et al. 2021, FAVOR+, formulas 5 to 7)

    The rows w_i are normal, and orthogonal in groups of d. They are a function of `seed`, of the layer's place and of
    the number of times that they were drawn: in training again every `redraw` steps, so that a resumed run draws what
    the whole one did; elsewhere the first draw is used. Queries are divided by their greatest feature, which cancels.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        features: PositiveInt = 256,
        redraw: PositiveInt | None = 1000,
        seed: Seed = 0,
        **common: Any,
    ):
        super().__init__(shape, **common)
        self.width, self.count, self.interval, self.seed = shape.head_width, features, redraw, seed
        self.draw = 0

    def at_step(self, step: int) -> None:
        self.draw = 0 if self.interval is None else step // self.interval

    def features(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        draw = self.draw if self.training else 0
        rows = _orthogonal(self.count, self.width, self.seed, context.execution, draw).to(q)
        q, k = (part * self.width**-0.25 for part in (q, k))
        q, k = (part @ rows.T - part.square().sum(-1, keepdim=True) / 2 for part in (q, k))
        return (q - q.detach().amax(-1, keepdim=True)).exp(), k.exp() / self.count


def _up_to_each(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    documents: Tensor | None,
    sums: Tensor | None = None,
    before: Tensor | None = None,
    own: bool = True,
) -> tuple[Tensor, Tensor]:
    """Σ_j φ(q_i)·φ(k_j) v_j over the tokens of the document of i up to its own (or without it), and the last sums
    Σ_j φ(k_j)ᵀ v_j.

    `sums` are those over the tokens before the first, of the document `before`. Within a chunk each pair is compared;
    what is before a chunk comes as a sum.
    """
    t = q.shape[1]
    size = min(CHUNK, t)
    q, k, v = (F.pad(part, (0, 0, 0, 0, 0, -t % size)).unflatten(1, (-1, size)) for part in (q, k, v))
    lower = torch.ones(size, size, dtype=torch.bool, device=q.device).tril(0 if own else -1)
    weights = torch.einsum("bnchf,bndhf->bnhcd", q, k)
    if documents is None:
        weights = weights * lower
        added = torch.einsum("bnchf,bnche->bnhfe", k, v)
        first = torch.zeros_like(added[:, :1]) if sums is None else sums[:, None]
        carried = torch.cat([first, added], 1).cumsum(1)
        summed = torch.einsum("bnchf,bnhfe->bnche", q, carried[:, :-1])
        last = carried[:, -1]
    else:
        chunks = torch.cat([documents, documents[:, -1:].expand(-1, -t % size)], 1).unflatten(1, (-1, size))
        weights = weights * (lower & (chunks[..., None] == chunks[..., None, :]))[:, :, None]
        final = chunks[..., -1]  # a chunk hands on the sums of its last document
        first = final[:, 0] * 0 - 1 if before is None else before
        handed = torch.cat([first[:, None], final[:, :-1]], 1)
        added = torch.einsum("bnchf,bnche->bnhfe", k * (chunks == final[..., None])[..., None, None], v)
        last = torch.zeros_like(added[:, 0]) if sums is None else sums
        carried = []
        for chunk, goes_on in zip(added.unbind(1), (handed == final).unbind(1), strict=True):
            carried.append(last)
            last = last * goes_on[:, None, None, None] + chunk
        seen = q * (chunks == handed[..., None])[..., None, None]
        summed = torch.einsum("bnchf,bnhfe->bnche", seen, torch.stack(carried, 1))
    summed = summed + torch.einsum("bnhcd,bndhe->bnche", weights, v)
    return summed.flatten(1, 2)[:, :t], last


@lru_cache(256)
def _orthogonal(count: int, width: int, *key: int) -> Tensor:
    """Rows [count width] as long as normal ones, each `width` of them orthogonal, drawn by `key`."""
    digest = hashlib.blake2b(" ".join(map(str, key)).encode(), digest_size=8).digest()
    draw = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    shape = (-(-count // width), width, width)
    normal = [torch.randn(shape, generator=draw, dtype=torch.float64, device="cpu") for _ in range(2)]
    q, r = torch.linalg.qr(normal[0])
    signs = r.diagonal(dim1=-2, dim2=-1).sign()[:, None]  # without which some directions are likelier than others
    return ((q * signs).mT * normal[1].norm(dim=-1, keepdim=True)).flatten(0, 1)[:count]
