"""Blocks: an order over branches, each of them residual(norm, piece); and norms and residuals."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scaling.base.errors import ScalingError, nearest
from scaling.base.numbers import BelowOne, NonNegativeFloat
from scaling.config.schema import Recipe, piece_of
from scaling.config.shape import Shape
from scaling.kernels.operations import drop, layer_norm, rms_norm
from scaling.model.context import Context
from scaling.model.contract import CONSTANT, Block, Channel, Mixer, Norm, Residual, declare, drawn, role
from scaling.model.window import depthwise, unfold


class _Gained(nn.Module, Norm):
    """The gain g of a norm: a parameter from 1, w of g = 1 + w from 0, or none."""

    def __init__(self, width: int, gain: bool | Literal["zero_centered"]):
        super().__init__()
        self.around = 1.0 if gain == "zero_centered" else 0.0
        self.constants = {"gain": 1 - self.around}
        self.gain = nn.Parameter(torch.full((width,), 1 - self.around)) if gain else None

    def _whole(self) -> Tensor | None:
        return self.gain if self.gain is None or not self.around else self.gain + self.around


class LayerNorm(_Gained):
    """y = g ⊙ (x − mean x) / √(var x + ε) + b. (Ba et al. 2016)

    `bias: false` leaves b out (PaLM), `gain: false` leaves g out, and `gain: zero_centered` is g = 1 + w with w from 0,
    as in RMSNorm.
    """

    def __init__(
        self,
        width: int,
        *,
        eps: NonNegativeFloat = 1e-5,
        gain: bool | Literal["zero_centered"] = True,
        bias: bool = True,
    ):
        super().__init__(width, gain)
        self.eps = eps
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        declare(self, bias="bias")

    def forward(self, x: Float[Tensor, "*b w"]) -> Float[Tensor, "*b w"]:
        return layer_norm(x, self._whole(), self.bias, self.eps)


class RMSNorm(_Gained):
    """y = g ⊙ x / √(mean x² + ε). (Zhang & Sennrich 2019)

    `gain: zero_centered` is g = 1 + w with w from 0 (Gemma), which weight decay pulls towards g = 1 and not 0.
    """

    def __init__(self, width: int, *, eps: NonNegativeFloat = 1e-6, gain: bool | Literal["zero_centered"] = True):
        super().__init__(width, gain)
        self.eps = eps

    def forward(self, x: Float[Tensor, "*b w"]) -> Float[Tensor, "*b w"]:
        return rms_norm(x, self._whole(), self.eps)


class NoNorm(nn.Identity, Norm):
    """y = x: the control."""


class _Branch(nn.Module, Residual):
    """join(x, f(norm(x))), f the piece under dropout."""

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__()
        self.norm, self.piece, self.dropout = norm(), piece, dropout

    def forward(
        self, x: Float[Tensor, "b t w"], context: Context, asking: Callable[[Tensor], Tensor] | None = None
    ) -> Float[Tensor, "b q w"]:
        h = self.before(x)
        y = self.piece(h, context) if asking is None else self.piece(h, context, asking(h))
        x = x if asking is None else asking(x)
        return self.join(x, self.made(x, y))

    def before(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        """The input of the piece, from the stream."""
        return self.norm(x)

    def made(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        """The piece's output y, with dropout in training."""
        return drop(y, self.dropout, self.training)

    @abstractmethod
    def join(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        """The stream after the branch, which made y."""


class Pre(_Branch):
    """x + f(norm(x)). (Xiong et al. 2020; GPT-2, T5)"""

    def update(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.made(x, self.piece(self.before(x), context))

    def join(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return x + y


class Post(_Branch):
    """norm(x + f(x)). (Vaswani et al. 2017; BERT)"""

    def before(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        return x

    def join(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return self.norm(x + y)


class Sandwich(Pre):
    """x + norm₂(f(norm₁(x))). (Ding et al. 2021, CogView)"""

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, **common: Any):
        super().__init__(shape, norm, piece, **common)
        self.outer = norm()

    def made(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return super().made(x, self.outer(y))


class NoResidual(_Branch):
    """f(norm(x)): the lectures' control, a stack without a residual stream."""

    def join(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return y


class ReZero(Pre):
    """x + α f(norm(x)), α one number a branch that starts at 0. (Bachlechner et al. 2020, formula 1)

    The paper's has NoNorm.
    """

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, **common: Any):
        super().__init__(shape, norm, piece, **common)
        self.alpha, self.constants = nn.Parameter(torch.zeros(1)), {"alpha": 0.0}

    def made(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return self.alpha * super().made(x, y)


class Fixup(Pre):
    """x + s f(norm(x) + b) + c, numbers s from 1, b and c from 0, and f from near 0. (Zhang et al. 2019, section 3.3)

    The paper's has NoNorm. The last of a branch's m matrices starts at 0, as does a head that is not tied, and each
    other at L^(−1/(2m−2)) of its usual start, L the branches of the model, a shared block's once a run. The paper
    shifts before every linear layer and activation inside f too; here those are the piece's biases.
    """

    rescales, head_start = True, 0.0

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, **common: Any):
        super().__init__(shape, norm, piece, **common)
        self.shift, self.scale, self.offset = (nn.Parameter(torch.full((1,), at)) for at in (0.0, 1.0, 0.0))
        declare(self, shift="bias", offset="bias")

    def starts(self, branches: int) -> Iterator[tuple[nn.Parameter, float]]:
        matrices = [
            (parameter, role(module, name))
            for module in self.piece.modules()
            if getattr(module, "slot", None) != "tuning"  # what tuning adds sets its own start
            for name, parameter in module.named_parameters(recurse=False)
            if role(module, name) not in CONSTANT
        ]
        for parameter, own in matrices:
            yield parameter, 0.0 if own == "output" else branches ** (-1 / max(2, 2 * len(matrices) - 2))

    def before(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        return self.norm(x) + self.shift

    def made(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return self.scale * super().made(x, y) + self.offset


class GRU(Pre):
    """x + (1 − u) ⊙ y + u ⊙ c, y = f(norm(x)): a gated recurrent unit between what a branch makes and the stream.
    (Mesh TensorFlow's gated Transformer, after the code of Dehghani et al. 2018; Narang et al. 2021)

    u = σ([x̂, ŷ] U), r = σ([x̂, ŷ] R), c = σ([norm'(r ⊙ x), ŷ] C), with biases, x̂ = norm'(x), ŷ = norm'(y). The unit of
    Cho et al. 2014 has tanh for the last σ and no norms, and is not added to x.
    """

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, **common: Any):
        super().__init__(shape, norm, piece, **common)
        self.gate = _Gate(shape.width, norm())

    def made(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return super().made(x, self.gate(x, y))


class _Gate(nn.Module):
    def __init__(self, width: int, norm: nn.Module):
        super().__init__()
        self.norm = norm
        self.update, self.reset, self.candidate = (nn.Linear(2 * width, width) for _ in range(3))

    def forward(self, x: Float[Tensor, "b t w"], y: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        normed = self.norm(y)
        both = torch.cat([self.norm(x), normed], -1)
        update, reset = self.update(both).sigmoid(), self.reset(both).sigmoid()
        candidate = self.candidate(torch.cat([self.norm(reset * x), normed], -1)).sigmoid()
        return (1 - update) * y + update * candidate


class _Branches(nn.Module, Block):
    """x ← branch(x), one after another, each branch residual(norm, piece)."""

    def __init__(self, shape: Shape, pieces: Mapping[str, nn.Module], norm: Recipe, residual: Recipe):
        super().__init__()
        self.branches = nn.ModuleDict(
            {name: residual(shape, lambda: norm(shape.width), piece) for name, piece in pieces.items()}
        )

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        for branch in self.branches.values():
            x = branch(x, context)
        return x


class Serial(_Branches):
    """One branch after another: x ← branch(x). (Vaswani et al. 2017)

    `branches` is the order; [channel, mixer, channel] is a Macaron, and a decoder with an encoder adds `cross`.
    """

    in_turn = True

    def __init__(
        self,
        shape: Shape,
        *,
        branches: list[str],
        norm: Recipe,
        residual: Recipe,
        mixer: Recipe,
        channel: Recipe,
        cross: Recipe | None = None,
    ):
        recipes = {"mixer": mixer, "cross": cross, "channel": channel}
        if not branches:
            raise ScalingError("a block needs a branch", key="branches", value=branches, fix="write [mixer, channel]")
        pieces: dict[str, nn.Module] = {}
        for place, name in enumerate(branches):
            if name not in recipes:
                raise ScalingError("a block has no such branch", key="branches", value=name, fix=nearest(name, recipes))
            recipe = recipes[name]
            if recipe is None:
                raise ScalingError("the branch has no piece", key=name, value=None, fix=f"write {name}: {{kind: …}}")
            again = branches[:place].count(name)
            pieces[f"{name}_{again + 1}" if again else name] = piece_of(name, recipe, shape)
        super().__init__(shape, pieces, norm, residual)


class Parallel(Serial):
    """All branches read the same stream: x + Σ f(norm(x)), each with its own norm. (Black et al. 2022, GPT-NeoX; Wang &
    Komatsuzaki 2021, GPT-J, and Chowdhery et al. 2022, PaLM, have one norm for all)
    """

    in_turn = False

    def __init__(self, shape: Shape, **common: Any):
        super().__init__(shape, **common)
        for branch in self.branches.values():
            if not hasattr(branch, "update"):
                what, fix = "parallel branches must add to the stream", "take Pre or Sandwich, or a Serial block"
                raise ScalingError(what, key="residual.kind", value=type(branch).__name__, fix=fix)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        branches: Any = self.branches.values()
        return sum((branch.update(x, context) for branch in branches), x)


class EvolvedEncoder(_Branches):
    """x ← x + f(norm(x)) for f a gated linear unit, two convolutions side by side under a third, `mixer`, `channel`.
    (So et al. 2019)

        x W ⊙ σ(x V)
        [separable 9 (norm(ReLU(x U) + [ReLU(convolution 3 (x)), 0])), 0]     widths 4w, w/2 and w/2, zeros behind

    One block replaces two of Vaswani et al. 2017. Windows are centred, and end at their token in a causal stack.
    """

    def __init__(self, shape: Shape, *, norm: Recipe, residual: Recipe, mixer: Recipe, channel: Recipe):
        pieces = {
            "channel_gate": _GatedLinearUnit(shape.width),
            "mixer_convolution": _EncoderConvolution(shape.width, norm),
            "mixer": piece_of("mixer", mixer, shape),
            "channel": piece_of("channel", channel, shape),
        }
        super().__init__(shape, pieces, norm, residual)


class EvolvedDecoder(_Branches):
    """x ← x + f(norm(x)) for f two attentions side by side, two convolutions under a third, `mixer`, `cross`,
    `channel`. (So et al. 2019)

        mixer of twice the heads (x) + cross(x)
        separable 7 (norm(ReLU(separable 11 (x)) + [separable 7 (x), 0]))     widths 2w, w/2 and w, zeros behind

    A mixer of twice the heads is the sum of two. `channel` is the paper's with the activation Swish; without `cross`
    the block is a language model's.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        norm: Recipe,
        residual: Recipe,
        mixer: Recipe,
        channel: Recipe,
        cross: Recipe | None = None,
    ):
        sides = {"mixer": mixer, "cross": cross} if cross else {"mixer": mixer}
        pieces = {
            "mixer_wide": _Sum(*(piece_of(slot, recipe, shape) for slot, recipe in (("mixer", mixer), *sides.items()))),
            "mixer_convolution": _DecoderConvolution(shape.width, norm),
            **{slot: piece_of(slot, recipe, shape) for slot, recipe in sides.items()},
            "channel": piece_of("channel", channel, shape),
        }
        super().__init__(shape, pieces, norm, residual)


class _GatedLinearUnit(nn.Module, Channel):
    """(x W + b) ⊙ σ(x V + c). (Dauphin et al. 2016)"""

    has_hidden = False

    def __init__(self, width: int):
        super().__init__()
        self.out = declare(nn.Linear(width, width), weight="output")
        self.gate = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.out(x) * self.gate(x).sigmoid()


class _Convolutions(nn.Module, Mixer):
    """[separable (norm(left + [right, 0])), 0]: two convolutions side by side under a third."""

    def add_last(self, hidden: int, out: int, norm: Recipe, kernel: int) -> None:
        """Add the third convolution."""
        self.norm, self.depthwise = norm(hidden), _Depthwise(kernel, hidden)
        self.out = declare(nn.Linear(hidden, out), weight="output")

    @abstractmethod
    def sides(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """The two convolutions."""

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        left, right = self.sides(x, context)
        both = self.norm(left + _padded(right, left.shape[-1]))
        return _padded(self.out(self.depthwise(both, context)), x.shape[-1])


class _EncoderConvolution(_Convolutions):
    def __init__(self, width: int, norm: Recipe):
        super().__init__()
        self.left = nn.Linear(width, 4 * width, bias=False)
        self.right = _Convolution(3, width, width // 2)
        self.add_last(4 * width, width // 2, norm, 9)

    def sides(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.left(x).relu(), self.right(x, context).relu()


class _DecoderConvolution(_Convolutions):
    def __init__(self, width: int, norm: Recipe):
        super().__init__()
        self.left_depthwise, self.left = _Depthwise(11, width), nn.Linear(width, 2 * width)
        self.right_depthwise, self.right = _Depthwise(7, width), nn.Linear(width, width // 2)
        self.add_last(2 * width, width, norm, 7)

    def sides(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.left(self.left_depthwise(x, context)).relu(), self.right(self.right_depthwise(x, context))


class _Convolution(nn.Module):
    """y_t = Σ_j x_{t+j} W_j."""

    def __init__(self, kernel: int, width: int, onto: int):
        super().__init__()
        self.kernel, self.taps = kernel, nn.Linear(kernel * width, onto, bias=False)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t o"]:
        return self.taps(unfold(x, self.kernel, context, self))

    def mesh_operations(self, tokens: int) -> int:
        """None: Narang et al. 2021 count products of matrices, and theirs is a convolution's kernel."""
        return 0


class _Depthwise(nn.Module):
    """y_t = Σ_j K_j ⊙ x_{t+j} + b; a matrix after it makes a separable convolution. (Chollet 2016)"""

    def __init__(self, kernel: int, width: int):
        super().__init__()
        self.taps, self.shift = drawn(kernel, width, std=kernel**-0.5), nn.Parameter(torch.zeros(width))
        declare(self, taps="input", shift="bias")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return depthwise(x, self.taps, context, self) + self.shift


class _Sum(nn.Module, Mixer):
    """Σ f(x): branches side by side under one norm."""

    def __init__(self, *pieces: nn.Module):
        super().__init__()
        self.sides = nn.ModuleList(pieces)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return torch.stack([side(x, context) for side in self.sides]).sum(0)


def _padded(x: Tensor, width: int) -> Tensor:
    return F.pad(x, (0, width - x.shape[-1]))
