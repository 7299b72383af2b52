from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.context import Context, Mask, Notes, Position
from scaling.nn.contract import Tuning
from scaling.nn.role import declare
from scaling.nn.tuning.added import Added, pieces, product, refuse_tuned, spread
from scaling.schema import PositiveInt

Slot = Literal["mixer", "cross"]


class Prefix(Tuning):
    """softmax(s Q [P_k, K]ᵀ) [P_v, V]: `length` learned keys and values before those of each mixer. (Li & Liang 2021,
    section 4)

    `mlp` is the width m of tanh(E M + b) N + c, which makes P_k and P_v of vectors E, as in section 4.3; null: they are
    learned themselves. Each layer has an MLP of its own, where the paper's layers share all but N. A prefix has no
    position: positions add nothing to its logits, and the text keeps its own. `slots` names the mixers: `mixer`,
    `cross`.
    """

    def __init__(
        self,
        *,
        length: PositiveInt = 16,
        mlp: PositiveInt | None = None,
        slots: list[str] = ["mixer"],  # noqa: B006 (read only)
    ):
        self.length, self.mlp, self.slots = length, mlp, slots

    def apply(self, model: nn.Module) -> None:
        refuse_tuned(model)
        every = list(pieces(model))
        for slot in self.slots or [""]:
            of_slot = [piece for _, piece, own in every if own == slot]
            with_keys = [
                piece for piece in of_slot if hasattr(piece, "prefix") and getattr(piece, "key", None) is not None
            ]
            if not with_keys:
                kinds = sorted({type(piece).__name__ for piece in of_slot})
                what = (
                    f"{', '.join(kinds)} has no keys to put a prefix before" if kinds else "no block has such a mixer"
                )
                raise ScalingError(what, key="slots", value=slot or self.slots, fix="take Prompt or LoRA")
            for piece in with_keys:
                piece.prefix = _Prefix(piece, self.length, self.mlp)  # type: ignore[assignment]

    def trains(self, name: str) -> bool:
        return "prefix" in name.split(".")


class _Prefix(Added):
    """Keys and values of `length` virtual tokens, before those that a mixer made."""

    def __init__(self, mixer: Any, length: int, mlp: int | None):
        super().__init__()
        self.length, self.widths = length, (mixer.key.out_features, mixer.value.out_features)
        like = mixer.key.weight
        of: Any = {"device": like.device, "dtype": like.dtype}
        self.has_mlp = mlp is not None
        if mlp is None:
            self.key, self.value = (nn.Parameter(torch.empty(length, width, **of)) for width in self.widths)
            declare(self, key="table", value="table")
        else:
            wide, out = mixer.key.in_features, sum(self.widths)
            self.table = nn.Parameter(torch.empty(length, wide, **of))
            self.hidden, self.hidden_bias = (nn.Parameter(torch.empty(*of_, **of)) for of_ in ((mlp, wide), (mlp,)))
            self.out, self.out_bias = (nn.Parameter(torch.empty(*of_, **of)) for of_ in ((out, mlp), (out,)))
            declare(self, table="table")
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.has_mlp:
            nn.init.zeros_(self.hidden_bias)
            nn.init.zeros_(self.out_bias)

    def forward(self, k: Tensor, v: Tensor, context: Context) -> tuple[Tensor, Tensor, Context]:
        """Keys [b n+s g d] and values, and the pass as the mixer then sees it."""
        before = (_rows(part, like) for part, like in zip(self._vectors(), (k, v), strict=True))
        k, v = (torch.cat([rows.to(text.dtype), text], 1) for rows, text in zip(before, (k, v), strict=True))
        key = ("prefix", self.length, id(context.mask), id(context.position))
        return k, v, context.once(key, lambda: _seen(context, self.length))

    def _vectors(self) -> tuple[Tensor, Tensor]:
        """Keys and values, [n …] or [b n …]."""
        if not self.has_mlp:
            return self.own("key"), self.own("value")
        table = self.own("table")
        hidden = torch.tanh(product(table, self.own("hidden")) + spread(self.own("hidden_bias"), table))
        both = product(hidden, self.own("out")) + spread(self.own("out_bias"), hidden)
        k, v = both.split(self.widths, -1)
        return k, v


def _rows(vectors: Tensor, like: Tensor) -> Tensor:
    """Vectors [n w], or [b n w], in the heads of `like` [b s g d], for each of its rows."""
    vectors = vectors if vectors.ndim == 3 else vectors.expand(len(like), -1, -1)
    return vectors.unflatten(-1, like.shape[2:])


def _seen(context: Context, length: int) -> Context:
    """The pass with keys that every query sees before all others, and to which positions add nothing."""

    def allowed() -> Tensor | None:
        whole = context.mask.allowed
        return None if whole is None else F.pad(whole, (length, 0), value=True)

    return replace(context, mask=Mask(allowed), position=_Behind(context.position, length), _kept=Notes())


class _Behind(Position):
    """The position of the keys behind a prefix."""

    def __init__(self, position: Position, length: int):
        self.position, self.length = position, length
        self.adds_score, self.reads_content = position.adds_score, position.reads_content
        self.mixes_values, self.reach = position.mixes_values, position.reach
        self.reads_tree = position.reads_tree

    def score(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return F.pad(self.position.score(q, k[:, self.length :], q_pos, k_pos), (self.length, 0))

    def value(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return self.position.value(weights[..., self.length :], q_pos, k_pos)
