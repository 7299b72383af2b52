"""Memories: what a decoder's cross-attention reads of its encoder's layers.

Each is made for an encoder of `layers` executions and a decoder of `readers`, is called with the encoder's output alone
or, where it `reads` every layer, with the stream before each block and the output, and returns one tensor for all
readers or one for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scaling.nn.contract import Memory


class Last(nn.Module, Memory):
    """m = h_N: every layer of the decoder reads the encoder's output. (Vaswani et al. 2017)"""

    reads = "the last layer"

    def __init__(self, layers: int, readers: int):
        super().__init__()

    def forward(self, layers: Sequence[Float[Tensor, "b s w"]]) -> tuple[Float[Tensor, "b s w"], ...]:
        return (layers[-1],)


class Transparent(nn.Module, Memory):
    """m_i = Σ_j softmax(W_i)_j h_j, j = 0 … N: layer i of the decoder reads its own mean of the encoder's embedding
    and layers. (Bapna et al. 2018)

    h_N is the encoder's output, behind its last norm; the others are the stream between blocks. W starts at zero: the
    plain mean. Bapna's dropout on W is left out.
    """

    reads = "every layer"

    def __init__(self, layers: int, readers: int):
        super().__init__()
        self.readers = readers
        self.weight = nn.Parameter(
            torch.empty(readers * (layers + 1))
        )  # a vector: set to zero, not drawn as matrices are
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, layers: Sequence[Float[Tensor, "b s w"]]) -> tuple[Float[Tensor, "b s w"], ...]:
        shares = self.weight.view(self.readers, -1).softmax(-1)
        stacked = torch.stack(list(layers))
        return (shares.to(stacked.dtype) @ stacked.flatten(1)).view(-1, *stacked.shape[1:]).unbind()
