from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.context import Context, Mask, Places
from scaling.nn.mixer.attention import Attention
from scaling.nn.pattern import Bidirectional
from scaling.nn.sections import Sections
from scaling.schema import BelowOne, PositiveInt
from scaling.shape import Shape

Sharing = Literal["none", "headwise", "kv", "layerwise"]


class Linformer(Attention):
    """softmax(Q (E K)ᵀ / √d) F V W_O: E and F project `length` tokens onto `projected` keys and values. (Wang et al.
    2020, formula 7)

    `sharing` as in the paper's section 4: `none` gives each head of each layer its own E and F, `headwise` one pair for
    a layer's heads, `kv` one matrix E = F, `layerwise` one matrix for all layers. A row of E multiplies a place of the
    text, so that it has a fixed maximum, `length` (size.length unless given), and no order to look back by: it takes
    stacks that see everything. A shorter text reads the first columns. Documents that share a row are projected each by
    itself.
    """

    takes_queries = False
    reach: int

    def __init__(
        self,
        shape: Shape,
        *,
        projected: PositiveInt = 128,
        sharing: Sharing = "headwise",
        length: PositiveInt | None = None,
        bias: bool = False,
        dropout: BelowOne = 0.0,
    ):
        super().__init__(shape, bias=bias, dropout=dropout)
        self.reach = length or shape.length
        if self.reach < shape.length:
            raise ScalingError(
                f"windows of {shape.length} tokens are longer than the {self.reach} that are projected",
                key="length",
                value=length,
                fix=f"set mixer.length to {shape.length} or size.length to {self.reach}",
            )
        if projected > self.reach:
            raise ScalingError(
                f"{projected} projected keys of {self.reach} tokens are more than the tokens",
                key="projected",
                value=projected,
                fix=f"take at most {self.reach}, or Attention",
            )
        self.sharing: Sharing = sharing
        heads = self.key_heads if sharing == "none" else 1
        self.onto_keys = _Lengthwise(heads, projected, self.reach)
        alike = sharing in ("kv", "layerwise")
        self.onto_values = self.onto_keys if alike else _Lengthwise(heads, projected, self.reach)

    def share_parameters(self, first: Linformer) -> None:
        """Take the projection of the first layer, where all layers have one."""
        if self.sharing == first.sharing == "layerwise" and self.onto_keys.form == first.onto_keys.form:
            self.onto_keys = self.onto_values = first.onto_keys

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
        self._check(context)
        sections: Sections = context.once(("projected", id(context.keys)), lambda: _documents(context.keys))
        projected = self.onto_keys.count

        def seen() -> Context:
            documents, of_keys = context.places.documents, sections.places.documents
            if documents is None or of_keys is None:
                return context.at(context.places, Places(torch.arange(projected, device=q.device)[None]), Mask())
            allowed = (documents[:, :, None] == of_keys[:, None, :]).repeat_interleave(projected, 2)
            keys = Places(of_keys.new_zeros(len(of_keys), sections.count * projected))
            return context.at(context.places, keys, Mask(allowed))

        inside = context.once(("projected keys", projected, id(context.mask)), seen)
        inside = replace(inside, position=context.position, execution=context.execution)
        k, v = self.onto_keys(sections.cut(k)), self.onto_values(sections.cut(v))
        return super()._attend(q, k.flatten(1, 2), v.flatten(1, 2), inside)

    def _check(self, context: Context) -> None:
        pattern, position, keys = context.mask.pattern, context.position, context.keys
        if not isinstance(pattern, Bidirectional):
            raise ScalingError(
                f"Linformer mixes all tokens before it compares them, and the pattern {type(pattern).__name__} lets "
                "none see all",
                key="model.pattern",
                fix="take Bidirectional, or another mixer: LinearAttention and Performer look back",
            )
        if position.adds_score or position.mixes_values:
            raise ScalingError(
                f"{type(position).__name__} adds to logits of pairs of tokens, and Linformer has none",
                key="model.position",
                fix="take Rotary, Sinusoidal, Learned or NoPosition",
            )
        if keys.positions.shape[1] > self.reach and (keys.plain or int(keys.positions.max()) >= self.reach):
            raise ScalingError(
                f"a text of {keys.positions.shape[1]} tokens is longer than the {self.reach} that are projected",
                key="model.block.mixer.length",
                value=self.reach,
                fix="shorten the text, or train with a larger size.length",
            )


class _Lengthwise(nn.Module):
    """E X: vectors of the places of a text onto fewer ones, [b c n g d] to [b c k g d], for each head or for all."""

    def __init__(self, heads: int, projected: int, length: int):
        super().__init__()
        self.count = projected
        self.weight = nn.Parameter(torch.empty(heads, projected, length))
        nn.init.normal_(self.weight, std=length**-0.5)

    @property
    def form(self) -> tuple[int, ...]:
        return tuple(self.weight.shape)

    def forward(self, x: Float[Tensor, "b c n g d"]) -> Float[Tensor, "b c k g d"]:
        weight = self.weight[:, :, : x.shape[2]].to(x.dtype)
        if len(weight) == 1:
            return torch.matmul(weight[0], x.flatten(3)).unflatten(-1, x.shape[3:])
        return torch.einsum("gkn,bcngd->bckgd", weight, x)


def _documents(keys: Places) -> Sections:
    """Each document as one section, as long as the longest."""
    is_whole = keys.documents is None or keys.documents.is_meta
    most = keys.positions.shape[1] if is_whole else int(keys.positions.max()) + 1
    return Sections.of(keys, most)
