"""Blocks: an order over branches, each of them residual(norm, piece)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scaling.errors import ScalingError, nearest, under
from scaling.nn.context import Context
from scaling.nn.contract import Additive, Block, Channel, Mixer, declare
from scaling.nn.window import depthwise, unfold
from scaling.schema import Recipe
from scaling.shape import Shape


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
        super().__init__(shape, _pieces(shape, branches, recipes), norm, residual)
        self._check()

    def _check(self) -> None:
        """Refuse branches that this order cannot run; a serial order runs all."""


def piece_of(slot: str, recipe: Recipe, shape: Shape) -> nn.Module:
    """A slot's piece; an error in it is placed under its key in the block's line."""
    with under(slot):
        return recipe(shape)


def _pieces(shape: Shape, names: Sequence[str], recipes: Mapping[str, Recipe | None]) -> dict[str, nn.Module]:
    """The pieces in order; a name that comes again is numbered."""
    if not names:
        raise ScalingError("a block needs a branch", key="branches", value=names, fix="write [mixer, channel]")
    pieces: dict[str, nn.Module] = {}
    for name in names:
        if name not in recipes:
            raise ScalingError("a block has no such branch", key="branches", value=name, fix=nearest(name, recipes))
        recipe = recipes[name]
        if recipe is None:
            raise ScalingError("the branch has no piece", key=name, value=None, fix=f"write {name}: {{kind: …}}")
        again = sum(key.split("_")[0] == name for key in pieces)
        pieces[f"{name}_{again + 1}" if again else name] = piece_of(name, recipe, shape)
    return pieces


class Parallel(Serial):
    """All branches read the same stream: x + Σ f(norm(x)). (Wang & Komatsuzaki 2021, GPT-J; Chowdhery et al. 2022,
    PaLM)
    """

    in_turn = False

    def _check(self) -> None:
        for branch in self.branches.values():
            if not isinstance(branch, Additive):
                raise ScalingError(
                    "parallel branches must add to the stream",
                    key="residual.kind",
                    value=type(branch).__name__,
                    fix="take Pre or Sandwich, or a Serial block",
                )

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        total = x
        branch: Any
        for branch in self.branches.values():
            total = total + branch.update(x, context)
        return total


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
        reads = {} if cross is None else {"cross": piece_of("cross", cross, shape)}
        sides = [piece_of("mixer", mixer, shape), piece_of("mixer", mixer, shape)]
        if cross is not None:
            sides.append(piece_of("cross", cross, shape))
        pieces = {
            "mixer_wide": _Sum(sides),
            "mixer_convolution": _DecoderConvolution(shape.width, norm),
            "mixer": piece_of("mixer", mixer, shape),
            **reads,
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


class _EncoderConvolution(nn.Module, Mixer):
    def __init__(self, width: int, norm: Recipe):
        super().__init__()
        hidden = 4 * width
        self.left = nn.Linear(width, hidden, bias=False)
        self.right = _Convolution(3, width, width // 2)
        self.norm = norm(hidden)
        self.depthwise = _Depthwise(9, hidden)
        self.out = declare(nn.Linear(hidden, width // 2), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        left = self.left(x).relu()
        right = self.right(x, context).relu()
        both = self.norm(left + _padded(right, left.shape[-1]))
        return _padded(self.out(self.depthwise(both, context)), x.shape[-1])


class _DecoderConvolution(nn.Module, Mixer):
    def __init__(self, width: int, norm: Recipe):
        super().__init__()
        hidden = 2 * width
        self.left_depthwise, self.left = _Depthwise(11, width), nn.Linear(width, hidden)
        self.right_depthwise, self.right = _Depthwise(7, width), nn.Linear(width, width // 2)
        self.norm = norm(hidden)
        self.depthwise = _Depthwise(7, hidden)
        self.out = declare(nn.Linear(hidden, width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        left = self.left(self.left_depthwise(x, context)).relu()
        right = self.right(self.right_depthwise(x, context))
        both = self.norm(left + _padded(right, left.shape[-1]))
        return self.out(self.depthwise(both, context))


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
        self.taps, self.shift = nn.Parameter(torch.empty(kernel, width)), nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.taps, std=len(self.taps) ** -0.5)
        nn.init.zeros_(self.shift)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return depthwise(x, self.taps, context, self) + self.shift


class _Sum(nn.Module, Mixer):
    """Σ f(x): branches side by side under one norm."""

    def __init__(self, pieces: list[nn.Module]):
        super().__init__()
        self.sides = nn.ModuleList(pieces)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return torch.stack([side(x, context) for side in self.sides]).sum(0)


def _padded(x: Tensor, width: int) -> Tensor:
    return F.pad(x, (0, width - x.shape[-1]))
