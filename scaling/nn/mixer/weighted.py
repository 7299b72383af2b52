from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.context import Context
from scaling.nn.contract import Mixer
from scaling.nn.mixer.attention import is_plain
from scaling.nn.role import role
from scaling.schema import Recipe
from scaling.shape import Shape


class Weighted(nn.Module, Mixer):
    """Σ_i α_i FFN(κ_i head_i W_i), Σ κ = Σ α = 1: each head of `mixer` goes through `channel` by itself. (Ahmed et al.
    2017, formulas 2 and 3)

    W_i are the rows of the mixer's own last projection. As in Narang et al. 2021 the heads share one FFN of full width,
    where Ahmed's have each their own, narrower by the number of heads; κ and α are softmaxes of what is learned, from
    an equal start.
    """

    def __init__(self, shape: Shape, *, mixer: Recipe, channel: Recipe):
        super().__init__()
        self.mixer, self.channel = mixer(shape), channel(shape)
        name, out = _output(self.mixer)
        if not isinstance(self.mixer, Mixer) or self.mixer.heads is None or out is None or out.bias is not None:
            raise ScalingError(
                "branches are heads, each with its rows of a projection without bias",
                key="mixer.kind",
                value=type(self.mixer).__name__,
                fix="take Attention or CrossAttention with bias: false",
            )
        self.slot, self.takes_queries = self.mixer.slot, self.mixer.takes_queries
        self.out = out
        setattr(self.mixer, name, nn.Identity())  # it now ends with its heads, side by side
        self.kappa, self.alpha = (nn.Parameter(torch.empty(self.mixer.heads)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.kappa)
        nn.init.zeros_(self.alpha)

    def forward(
        self, x: Float[Tensor, "b t w"], context: Context, queries: Float[Tensor, "b q w"] | None = None
    ) -> Float[Tensor, "b q w"]:
        kappa, alpha = self.kappa.softmax(-1).to(x.dtype), self.alpha.softmax(-1).to(x.dtype)
        mixed = self.mixer(x, context) if queries is None else self.mixer(x, context, queries)
        # One after the other: at once they would need the heads' number times the memory.
        outputs = (self.channel(k * head, context) for k, head in zip(kappa, self._projected(mixed), strict=True))
        return torch.stack([a * y for a, y in zip(alpha, outputs, strict=True)]).sum(0)

    def _projected(self, mixed: Float[Tensor, "b t h"]) -> Iterator[Float[Tensor, "b t w"]]:
        """Each head through its rows of the projection."""
        heads = mixed.chunk(len(self.kappa), -1)
        if is_plain(self.out):
            rows = self.out.weight.chunk(len(heads), -1)
            yield from (F.linear(head, row) for head, row in zip(heads, rows, strict=True))
            return
        width = heads[0].shape[-1]
        for number, head in enumerate(heads):
            yield self.out(F.pad(head, (number * width, (len(heads) - 1 - number) * width)))


def _output(mixer: nn.Module) -> tuple[str, nn.Linear | None]:
    """The one matrix by which a mixer ends, and its name."""
    last = [
        (name, child)
        for name, child in mixer.named_children()
        if isinstance(child, nn.Linear) and role(child, "weight") == "output"
    ]
    return last[0] if len(last) == 1 else ("", None)
