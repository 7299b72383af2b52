"""The four places where a position may act. Each hook is given positions, so that packing, padding and caches are
exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.build import nodes


def scaled(config: Any) -> int:
    """The version of a position that reads content: 2 where a mixer's `scale` is not `sqrt`.

    Version 1 scaled its products by d^(−1/2) whatever that key said, so elsewhere both compute the same.
    """
    mixers = [node["mixer"] for node in nodes(config) if isinstance(node.get("mixer"), Mapping)]
    return 2 if any(mixer.get("scale", "sqrt") != "sqrt" for mixer in mixers) else 1


class Hooks(nn.Module):
    """Identity in all four; a position overrides the ones it needs.

    `per` says whether a stack's layers share one position or each has its own. `adds_score` and `mixes_values` say
    that those hooks do something, so that kernels may go without; `reads_content`, that the score depends on q and k:
    the mixer then scales it with q·k. One that does not is made once a pass and added in every layer. `reach` is how
    many positions there are, where they are counted.
    """

    per: Literal["stack", "layer"] = "stack"
    adds_score = False
    reads_content = False
    mixes_values = False
    reach: int | None = None

    def embed(self, x: Float[Tensor, "b t w"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t w"]:
        """What the stack's input becomes."""
        return x

    def rotate(
        self,
        q: Float[Tensor, "b t h d"],
        k: Float[Tensor, "b s g d"],
        q_pos: Int[Tensor, "#b t"],
        k_pos: Int[Tensor, "#b s"],
    ) -> tuple[Tensor, Tensor]:
        """What queries and keys become before they meet."""
        return q, k

    def score(
        self,
        q: Float[Tensor, "b t h d"],
        k: Float[Tensor, "b s g d"],
        q_pos: Int[Tensor, "#b t"],
        k_pos: Int[Tensor, "#b s"],
    ) -> Float[Tensor, "#b h t s"] | None:
        """What is added to the logits after they are scaled; before, to q·k, where it reads content."""
        return None

    def value(
        self, weights: Float[Tensor, "b h t s"], q_pos: Int[Tensor, "#b t"], k_pos: Int[Tensor, "#b s"]
    ) -> Float[Tensor, "b h t d"] | None:
        """What is added to each head's output."""
        return None
