"""Attention to fewer keys than there are tokens, which a convolution or a projection along the text makes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scaling.base.errors import ScalingError
from scaling.base.numbers import BelowOne, PositiveInt, Range
from scaling.config.shape import Shape
from scaling.model.context import Context, Mask, Places, State, within
from scaling.model.contract import declare, drawn
from scaling.model.mixer.attention import Attention, check_reach
from scaling.model.patterns import Bidirectional


@dataclass(frozen=True)
class Sections:
    """The section of each token [b s]: `count` sections of `size` tokens for each row.

    `index` [b s] is each token's place among the sections', or None where rows begin with their document and are cut
    as they are. `places` are those of the sections [b or 1, count]: the document, and the place of the last token of
    a full section.
    """

    size: int
    count: int
    places: Places
    index: Tensor | None = None

    @staticmethod
    def of(keys: Places, size: int) -> Sections:
        if keys.documents is None or keys.documents.is_meta:  # the meta device has no values
            count = -(-keys.positions.shape[1] // size)
            ends = torch.arange(1, count + 1, device=keys.positions.device) * size - 1
            return Sections(size, count, Places(keys.positions[:, :1] + ends))
        documents, place = keys.documents, within(keys.documents) % size
        number = (((documents > 0) & (place == 0)).cumsum(1) - 1).clamp(min=0)
        count = int(number.max()) + 1
        index = torch.where(documents > 0, number * size + place, count * size)
        # Padding is written to a last place, which is cut off.
        empty, section = documents.new_zeros(len(documents), count + 1), torch.where(documents > 0, number, count)
        last = empty.scatter(1, section, keys.positions - place + size - 1)
        return Sections(size, count, Places(last[:, :-1], empty.scatter(1, section, documents)[:, :-1]), index)

    def cut(self, x: Tensor) -> Tensor:
        """Tokens [b s …] as sections [b count size …], with zeros where a section has none."""
        if self.index is None:
            return cut(x, self.size)
        index = self.index.view(*self.index.shape, *(1 for _ in x.shape[2:])).expand_as(x)
        placed = x.new_zeros(len(x), self.count * self.size + 1, *x.shape[2:]).scatter(1, index, x)
        return placed[:, :-1].unflatten(1, (self.count, self.size))


def cut(x: Tensor, size: int) -> Tensor:
    """A row's tokens [b s …] as sections [b c size …], with zeros behind the last."""
    count = -(-x.shape[1] // size)
    x = F.pad(x, (0, 0) * (x.ndim - 2) + (0, count * size - x.shape[1]))
    return x.reshape(len(x), count, size, *x.shape[2:])


class MemoryCompressed(Attention):
    """softmax(s Q C(K)ᵀ + position) C(V) W_O, C a convolution whose kernel and stride are `stride` tokens. (Liu et al.
    2018, section 4.2.4, memory-compressed attention)

    A compressed key is at the place of its last token, where it is turned and scored, and seen from there on. Before
    the first whole section nothing is compressed, so that every query sees besides a key and a value of 0. C reads all
    heads of a section together. T-DMCA alternates it with `BlockLocal`: `configs/model/t_dmca.yaml`. The other keys are
    those of `Attention`.
    """

    takes_queries = False

    def __init__(self, shape: Shape, *, stride: Annotated[int, Range(least=2, most=1024)] = 3, **common: Any):
        super().__init__(shape, **common)
        self.stride = stride
        has_bias = self.key.bias is not None
        of_keys, of_values = shape.key_heads * shape.head_width, shape.key_heads * shape.value_width
        self.compress_keys = nn.Linear(stride * of_keys, of_keys, has_bias)
        self.compress_values = nn.Linear(stride * of_values, of_values, has_bias)

    def _mixed(self, x: Tensor, context: Context, queries: Tensor | None) -> Float[Tensor, "b t h e"]:
        q, k, v = self.project(x, queries)
        sections = context.once(("sections", self.stride), lambda: Sections.of(context.keys, self.stride))

        own = Mask(context.mask.pattern, context.places, sections.places)
        mask = context.once(("compressed", self.stride), lambda: own.behind(1))
        k, v = self._compressed(k, v, sections, context.state(self))
        q, k = self._placed(q, k, context, sections.places)
        k, v = (F.pad(part, (0, 0, 0, 0, 1, 0)) for part in (k, v))
        return self._attend(q, k, v, replace(context, mask=mask))

    def _compressed(self, k: Tensor, v: Tensor, sections: Sections, state: State | None) -> tuple[Tensor, Tensor]:
        """The sections' keys and values; a cache keeps those of whole sections, and the tokens of the last one."""
        if state is not None:
            k, v = state.append("token key", k), state.append("token value", v)
        if state is None or sections.index is not None:  # sections of rows that are padded are cut anew
            return self._convolved(sections.cut(k), sections.cut(v))
        covered = k.shape[1] // self.stride * self.stride
        first = self._convolved(cut(k[:, :covered], self.stride), cut(v[:, :covered], self.stride))
        first = state.append("key", first[0]), state.append("value", first[1])
        k, v = state["token key"], state["token value"] = k[:, covered:], v[:, covered:]
        last = self._convolved(cut(k, self.stride), cut(v, self.stride))
        return torch.cat([first[0], last[0]], 1), torch.cat([first[1], last[1]], 1)

    def _convolved(self, k: Float[Tensor, "b c r g d"], v: Float[Tensor, "b c r g e"]) -> tuple[Tensor, Tensor]:
        k, v = (part.flatten(2) for part in (k, v))
        k, v = self.compress_keys(k), self.compress_values(v)
        return k.unflatten(-1, (self.key_heads, -1)), v.unflatten(-1, (self.key_heads, -1))


class Linformer(Attention):
    """softmax(Q (E K)ᵀ / √d) F V W_O: E and F project `length` tokens onto `projected` keys and values. (Wang et al.
    2020, formula 7)

    `sharing` as in the paper's section 4: `none` gives each head its own E and F, `headwise` one pair for a layer's
    heads, `kv` one matrix E = F. A row of E multiplies a place of the text, so that it has a fixed maximum, `length`
    (size.length unless given), and no order to look back by: it takes stacks that see everything. A shorter text reads
    the first columns. Documents that share a row are projected each by itself.
    """

    takes_queries = False

    def __init__(
        self,
        shape: Shape,
        *,
        projected: PositiveInt = 128,
        sharing: Literal["none", "headwise", "kv"] = "headwise",
        length: PositiveInt | None = None,
        bias: bool = False,
        dropout: BelowOne = 0.0,
    ):
        super().__init__(shape, bias=bias, dropout=dropout)
        self.reach = shape.places(length, "mixer", "that are projected")
        if projected > self.reach:
            what, fix = f"{projected} projected keys of {self.reach} tokens", f"take at most {self.reach}, or Attention"
            raise ScalingError(f"{what} are more than the tokens", key="projected", value=projected, fix=fix)
        heads = self.key_heads if sharing == "none" else 1
        self.onto_keys = _Lengthwise(heads, projected, self.reach)
        self.onto_values = self.onto_keys if sharing == "kv" else _Lengthwise(heads, projected, self.reach)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
        pattern, keys, projected = context.mask.pattern, context.keys, self.onto_keys.count
        if not isinstance(pattern, Bidirectional):
            what = "Linformer mixes all tokens before it compares them, and the pattern"
            fix = "take Bidirectional, or another mixer: LinearAttention and Performer look back"
            raise ScalingError(f"{what} {type(pattern).__name__} lets none see all", key="model.pattern", fix=fix)
        self.refuse_scores(context.position)
        check_reach(context, self.reach, "that are projected")

        def documents() -> tuple[Sections, Mask]:
            """Each document as one section, as long as the longest."""
            is_one = keys.documents is None or keys.documents.is_meta
            sections = Sections.of(keys, keys.positions.shape[1] if is_one else int(keys.positions.max()) + 1)
            places = sections.places.map(lambda part: part.repeat_interleave(projected, 1))
            return sections, Mask(pattern, context.places, places)

        sections, mask = context.once(("projected", projected), documents)
        k, v = self.onto_keys(sections.cut(k)), self.onto_values(sections.cut(v))
        return super()._attend(q, k.flatten(1, 2), v.flatten(1, 2), replace(context, mask=mask))


class _Lengthwise(nn.Module):
    """E X: vectors of the places of a text onto fewer ones, [b c n g d] to [b c k g d], for each head or for all."""

    def __init__(self, heads: int, projected: int, length: int):
        super().__init__()
        self.count = projected
        self.weight = drawn(heads, projected, length, std=length**-0.5)
        declare(self, weight="input")

    def forward(self, x: Float[Tensor, "b c n g d"]) -> Float[Tensor, "b c k g d"]:
        weight = self.weight[:, :, : x.shape[2]].to(x.dtype)
        if len(weight) == 1:
            return torch.matmul(weight[0], x.flatten(3)).unflatten(-1, x.shape[3:])
        return torch.einsum("gkn,bcngd->bckgd", weight, x)
