"""Optimizers: each line makes torch optimizers over groups of parameters, which differ by muP and by weight decay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Protocol

from torch import Tensor, optim

from scaling.base.errors import refuse
from scaling.base.numbers import BelowOne, NonNegativeFloat, PositiveFloat, Range
from scaling.model.contract import CONSTANT
from scaling.model.parameters import Parameter, ParameterSpec

Rate = Callable[[ParameterSpec], float]  # by which a parameter's learning rate is multiplied


class Optimizer(Protocol):
    lr: float
    shardable: ClassVar[bool]  # whether torch has it for weights that are shared out over ranks

    def make(self, parameters: Sequence[Parameter], rate: Rate) -> list[optim.Optimizer]:
        """Torch optimizers that together hold every parameter once; `peak` in a group is its peak learning rate."""
        ...


class AdamW:
    """θ ← θ − η (m̂/(√v̂ + ε) + λθ). (Kingma & Ba 2014; Loshchilov & Hutter 2017)

    Weight decay spares vectors: norms and biases.
    """

    shardable = True

    def __init__(
        self,
        *,
        lr: PositiveFloat = 3e-3,
        betas: list[BelowOne] = [0.9, 0.95],  # noqa: B006 (read only)
        eps: PositiveFloat = 1e-8,
        weight_decay: NonNegativeFloat = 0.1,
    ):
        refuse(len(betas) != 2, "expected two numbers", "write [0.9, 0.95]", key="betas", value=betas)
        self.lr, self.betas, self.eps, self.weight_decay = lr, (betas[0], betas[1]), eps, weight_decay

    def make(self, parameters: Sequence[Parameter], rate: Rate) -> list[optim.Optimizer]:
        return [optim.AdamW(_groups(self, parameters, rate), lr=self.lr, betas=self.betas, eps=self.eps, fused=True)]


class Adam(AdamW):
    """θ ← θ − η m̂/(√v̂ + ε). (Kingma & Ba 2014; Vaswani et al. 2017 with β₂ = 0.98, ε = 10⁻⁹)"""

    def __init__(
        self,
        *,
        lr: PositiveFloat = 3e-3,
        betas: list[BelowOne] = [0.9, 0.999],  # noqa: B006 (read only)
        eps: PositiveFloat = 1e-8,
    ):
        super().__init__(lr=lr, betas=betas, eps=eps, weight_decay=0.0)


class SGD:
    """θ ← θ − η v, v ← μv + g + λθ. (Polyak 1964; η multiplies v, where Sutskever et al. 2013 have it in v)"""

    shardable = True

    def __init__(self, *, lr: PositiveFloat = 0.1, momentum: BelowOne = 0.9, weight_decay: NonNegativeFloat = 0.0):
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay

    def make(self, parameters: Sequence[Parameter], rate: Rate) -> list[optim.Optimizer]:
        return [optim.SGD(_groups(self, parameters, rate), lr=self.lr, momentum=self.momentum, fused=True)]


class Adafactor:
    """Adam's second moment as an outer product of row and column means, steps relative to the parameter's own scale.
    (Shazeer & Stern 2018; Raffel et al. 2019)

    At update t the relative step is min(η, 1/√t). T5's, 1/√max(t, 10⁴), is lr 0.01 under `InverseSquareRoot` with
    `warmup: 10000` and `rise: flat`.
    """

    shardable = False

    def __init__(
        self,
        *,
        lr: PositiveFloat = 0.01,
        beta2_decay: Annotated[float, Range(least=-16, most=0)] = -0.8,
        clip: PositiveFloat = 1.0,
        weight_decay: NonNegativeFloat = 0.0,
    ):
        self.lr, self.beta2_decay, self.clip, self.weight_decay = lr, beta2_decay, clip, weight_decay

    def make(self, parameters: Sequence[Parameter], rate: Rate) -> list[optim.Optimizer]:
        groups = _groups(self, parameters, rate)
        return [optim.Adafactor(groups, lr=self.lr, beta2_decay=self.beta2_decay, d=self.clip)]


class Muon:
    """Hidden matrices move by their momentum made orthogonal (five Newton–Schulz steps); all else by AdamW. (Jordan
    et al. 2024)

    `lr` is Muon's, with updates scaled to AdamW's root mean square (Liu et al. 2025), so that one rate serves both.
    """

    shardable = True

    def __init__(
        self,
        *,
        lr: PositiveFloat = 3e-3,
        momentum: BelowOne = 0.95,
        betas: list[BelowOne] = [0.9, 0.95],  # noqa: B006 (read only)
        weight_decay: NonNegativeFloat = 0.1,
    ):
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.rest = AdamW(lr=lr, betas=betas, weight_decay=weight_decay)

    def make(self, parameters: Sequence[Parameter], rate: Rate) -> list[optim.Optimizer]:
        hidden = [each for each in parameters if each.spec.is_inner_matrix and each.tensor.ndim == 2]
        rest = [parameter for parameter in parameters if parameter not in hidden]
        optimizers: list[optim.Optimizer] = []
        if hidden:  # where only some parameters are trained, there may be none of either
            groups = _groups(self, hidden, rate)
            optimizers += [optim.Muon(groups, lr=self.lr, momentum=self.momentum, adjust_lr_fn="match_rms_adamw")]
        return [*optimizers, *self.rest.make(rest, rate)] if rest else optimizers


def _groups(line: Any, parameters: Sequence[Parameter], rate: Rate) -> list[dict[str, Any]]:
    """Parameters of one rate and one weight decay together, in the model's order, by the keys of an optimizer."""
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for parameter in parameters:
        settings = (line.lr * rate(parameter.spec), 0.0 if parameter.spec.role in CONSTANT else line.weight_decay)
        groups.setdefault(settings, []).append(parameter.tensor)
    return [
        {"params": tensors, "lr": peak, "peak": peak, "weight_decay": weight_decay}
        for (peak, weight_decay), tensors in groups.items()
    ]
