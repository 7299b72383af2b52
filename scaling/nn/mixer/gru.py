from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from scaling.nn.mixer.recurrent import BothWays, Forwards


class _Recurrence(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.input = nn.Linear(width, 3 * width)
        self.recurrent = nn.Linear(width, 3 * width)

    def forward(
        self, x: Float[Tensor, "b t w"], carried: Bool[Tensor, "#b t"] | None, state: dict[str, Tensor] | None
    ) -> Float[Tensor, "b t w"]:
        """h of every token; `carried` marks those before which the state is kept, not set to zero."""
        kept = {} if state is None else state
        h = kept.get("hidden", torch.zeros_like(x[:, 0]))
        states = []
        for t, read in enumerate(self.input(x).unbind(1)):
            if carried is not None:
                h = h * carried[:, t, None]
            (r, z, n), (r_h, z_h, n_h) = read.chunk(3, -1), self.recurrent(h).chunk(3, -1)
            n = (n + (r + r_h).sigmoid() * n_h).tanh()
            h = n + (z + z_h).sigmoid() * (h - n)
            states.append(h)
        kept["hidden"] = h
        return torch.stack(states, 1)


class GRU(Forwards):
    """h_t W_O + b, h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}, n = tanh(x_t W + r ⊙ (h_{t−1} U)). (Cho et al. 2014, formulas 5 to
    8)

    z and r are sigmoids, affine in x_t and h_{t−1}. r acts on the product, where the paper's acts on h_{t−1}, so that a
    step has one matrix product (as cuDNN's and torch's). Each document starts from zeros. It reads forwards whatever
    the pattern.
    """

    recurrence = _Recurrence


class BidirectionalGRU(BothWays):
    """[h_t, h'_t] W_O + b: one GRU reads forwards, another backwards, as far as the pattern looks ahead. (Bahdanau et
    al. 2014, section 3.2)
    """

    recurrence = _Recurrence
