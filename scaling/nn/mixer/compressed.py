from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scaling.nn.context import Context, Mask, Places
from scaling.nn.mixer.attention import Attention, Scale
from scaling.nn.pattern import render
from scaling.nn.sections import Sections, cut
from scaling.schema import BelowOne, Range, Recipe
from scaling.shape import Shape


class MemoryCompressed(Attention):
    """softmax(s Q C(K)ᵀ + position) C(V) W_O, C a convolution whose kernel and stride are `stride` tokens. (Liu et al.
    2018, section 4.2.4, memory-compressed attention)

    A compressed key is at the place of its last token, where it is turned and scored, and seen from there on. Before
    the first whole section nothing is compressed, so that every query sees besides a key and a value of 0. C reads all
    heads of a section together. T-DMCA alternates it with `BlockLocal`: `configs/model/t_dmca.yaml`. The other keys are
    those of `Attention`.
    """

    takes_queries = False

    def __init__(
        self,
        shape: Shape,
        *,
        stride: Annotated[int, Range(least=2, most=1024)] = 3,
        bias: bool | Literal["qkv"] = False,
        scale: Scale = "sqrt",
        norm: Recipe | None = None,
        dropout: BelowOne = 0.0,
    ):
        super().__init__(shape, bias=bias, scale=scale, norm=norm, dropout=dropout)
        self.stride = stride
        of_keys, of_values = shape.key_heads * shape.head_width, shape.key_heads * shape.value_width
        self.compress_keys = nn.Linear(stride * of_keys, of_keys, bool(bias))
        self.compress_values = nn.Linear(stride * of_values, of_values, bool(bias))

    def _mixed(self, x: Tensor, context: Context, queries: Tensor | None) -> Float[Tensor, "b t h e"]:
        q, k, v = self._project(x, queries)
        inside = self._seen(context)
        k, v = self._compressed(k, v, context)
        q, k = self._placed(q, k, inside, inside.keys)
        k, v = (F.pad(part, (0, 0, 0, 0, 1, 0)) for part in (k, v))
        return self._attend(q, k, v, _with_nothing(inside))

    def _seen(self, context: Context) -> Context:
        """The pass whose keys are the sections."""

        def rendered() -> tuple[Places, Mask]:
            pattern = context.mask.pattern
            assert pattern is not None
            places = self._sections(context).places
            return places, replace(render(pattern, context.places, places), pattern=None)

        keys, mask = context.once(("compressed", self.stride, id(context.mask)), rendered)
        return replace(context, keys=keys, mask=mask)

    def _sections(self, context: Context) -> Sections:
        return context.once(("sections", self.stride, id(context.keys)), lambda: Sections.of(context.keys, self.stride))

    def _compressed(self, k: Tensor, v: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """The sections' keys and values; a cache keeps those of whole sections, and the tokens of the last one."""
        state, sections = context.state(self), self._sections(context)
        if state is not None:
            k, v = state.append("token key", k), state.append("token value", v)
        if state is None or sections.index is not None:  # sections of rows that are padded are cut anew
            return self._convolved(sections.cut(k), sections.cut(v))
        whole = k.shape[1] // self.stride * self.stride
        first = self._convolved(cut(k[:, :whole], self.stride), cut(v[:, :whole], self.stride))
        first = state.append("key", first[0]), state.append("value", first[1])
        k, v = state["token key"], state["token value"] = k[:, whole:], v[:, whole:]
        last = self._convolved(cut(k, self.stride), cut(v, self.stride))
        return torch.cat([first[0], last[0]], 1), torch.cat([first[1], last[1]], 1)

    def _convolved(self, k: Float[Tensor, "b c r g d"], v: Float[Tensor, "b c r g e"]) -> tuple[Tensor, Tensor]:
        k, v = (part.flatten(2) for part in (k, v))
        k, v = self.compress_keys(k), self.compress_values(v)
        return k.unflatten(-1, (self.key_heads, -1)), v.unflatten(-1, (self.key_heads, -1))


def _with_nothing(context: Context) -> Context:
    """The pass with a key before all others that every query sees."""

    def padded() -> tuple[Places, Mask]:
        mask, keys = context.mask, context.keys

        def part(start: int, stop: int) -> Tensor | None:
            allowed = mask.rows(start, stop)
            return None if allowed is None else F.pad(allowed, (1, 0), value=True)

        documents = None if keys.documents is None else F.pad(keys.documents, (1, 0))
        whole = context.places.positions.shape[1]
        return Places(F.pad(keys.positions, (1, 0)), documents), Mask(lambda: part(0, whole), part=part)

    keys, mask = context.once(("nothing", id(context.mask)), padded)
    return replace(context, keys=keys, mask=mask)
