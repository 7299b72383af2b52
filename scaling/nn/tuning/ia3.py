from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.contract import Tuning
from scaling.nn.role import declare
from scaling.nn.tuning.added import Added, maps, pieces, refuse_tuned, spread

TARGETS = ("key", "value", "channel")


class IA3(Tuning):
    """softmax(s Q (l_k ⊙ K)ᵀ) (l_v ⊙ V) and (l ⊙ φ(x W₁)) W₂: learned gains that start at 1. (Liu et al. 2022, section
    3.3)

    `targets` are of `key`, `value` and `channel`, the hidden vector that a channel's map `out` reads. The gain of keys
    acts before their norm and their rotation.
    """

    def __init__(self, *, targets: list[str] = ["key", "value", "channel"]):  # noqa: B006 (read only)
        self.targets = targets

    def apply(self, model: nn.Module) -> None:
        refuse_tuned(model)
        unknown = [target for target in self.targets if target not in TARGETS]
        if unknown or not self.targets:
            raise ScalingError(
                f"expected names of {', '.join(TARGETS)}", key="targets", value=(unknown or self.targets), fix=None
            )
        every = list(maps(model))
        for target in self.targets:
            if target == "channel":
                self._scale_channels(model)
                continue
            own = [candidate.module for candidate in every if candidate.last == target and candidate.slot != "channel"]
            if not own:
                raise ScalingError(f"no mixer has a map {target}", key="targets", value=target, fix="leave it out")
            for linear in own:
                linear.add_module("ia3", _Gain(linear.weight, linear.out_features))
                linear.register_forward_hook(_scaled_output)

    def trains(self, name: str) -> bool:
        return "ia3" in name.split(".")

    def _scale_channels(self, model: nn.Module) -> None:
        channels = [(name, piece) for name, piece, slot in pieces(model) if slot == "channel"]
        if not channels:
            raise ScalingError("no block has a channel", key="targets", value="channel", fix="leave it out")
        for _, piece in channels:
            out = getattr(piece, "out", None)
            if not isinstance(out, nn.Linear):
                raise ScalingError(
                    f"{type(piece).__name__} has no hidden vector of its own to scale",
                    key="targets",
                    value="channel",
                    fix="leave it out",
                )
            out.add_module("ia3", _Gain(out.weight, out.in_features))
            out.register_forward_pre_hook(_scaled_input)


class _Gain(Added):
    """l ⊙ x."""

    def __init__(self, like: Tensor, width: int):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width, device=like.device, dtype=like.dtype))
        declare(self, gain="gain")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.gain)

    def forward(self, x: Tensor) -> Tensor:
        return x * spread(self.own("gain"), x)


def _scaled_output(module: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return module.ia3(output)


def _scaled_input(module: Any, args: tuple[Tensor, ...]) -> tuple[Tensor]:
    return (module.ia3(args[0]),)
