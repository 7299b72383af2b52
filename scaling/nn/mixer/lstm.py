from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from scaling.nn.mixer.recurrent import BothWays, Forwards


class _Recurrence(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.input = nn.Linear(width, 4 * width, bias=False)
        self.recurrent = nn.Linear(width, 4 * width, bias=False)
        self.shift = nn.Parameter(torch.empty(4 * width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.shift)
        with torch.no_grad():
            self.shift.chunk(4)[1].fill_(1)

    def forward(
        self, x: Float[Tensor, "b t w"], carried: Bool[Tensor, "#b t"] | None, state: dict[str, Tensor] | None
    ) -> Float[Tensor, "b t w"]:
        """h of every token; `carried` marks those before which the state is kept, not set to zero."""
        kept = {} if state is None else state
        h, c = (kept.get(name, torch.zeros_like(x[:, 0])) for name in ("hidden", "cell"))
        states = []
        for t, gates in enumerate((self.input(x) + self.shift).unbind(1)):
            if carried is not None:
                h, c = h * carried[:, t, None], c * carried[:, t, None]
            i, f, o, g = (gates + self.recurrent(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            states.append(h)
        kept["hidden"], kept["cell"] = h, c
        return torch.stack(states, 1)


class LSTM(Forwards):
    """h_t W_O + b, h_t = o ⊙ tanh c_t, c_t = f ⊙ c_{t−1} + i ⊙ tanh g. (Hochreiter & Schmidhuber 1997; Gers et al.
    2000)

    i, f and o are sigmoids, and all four gates affine in x_t and h_{t−1}; f's bias starts at 1 (Jozefowicz et al.
    2015). Each document starts from zeros. It reads forwards whatever the pattern.
    """

    recurrence = _Recurrence


class BidirectionalLSTM(BothWays):
    """[h_t, h'_t] W_O + b: one LSTM reads forwards, another backwards, as far as the pattern looks ahead. (Schuster &
    Paliwal 1997; Graves & Schmidhuber 2005)
    """

    recurrence = _Recurrence
