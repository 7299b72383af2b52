"""Parametrizations: from what law each parameter is drawn, and by what factor its learning rate differs.

Draws are keyed by the parameter's name and the seed, so that adding a piece changes no other parameter's start. Biases
start at 0, gains at 1 or at the constants of their pieces; only tables and matrices are drawn.
"""

from __future__ import annotations

import hashlib
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from scaling.base.errors import refuse
from scaling.base.numbers import PositiveFloat, PositiveInt
from scaling.model.contract import CONSTANT, role, start
from scaling.model.family import Family
from scaling.model.parameters import ParameterSpec, parameters

Draw = tuple[float, Literal["normal", "truncated", "uniform"]]


class Parametrization(Protocol):
    def draw(self, spec: ParameterSpec) -> Draw:
        """The standard deviation of a parameter, and its law: normal, normal cut at two deviations, or uniform."""
        ...

    def rate(self, spec: ParameterSpec) -> float:
        """The factor of a parameter's learning rate."""
        return 1.0


class GPT2(Parametrization):
    """N(0, 0.02²), learned positions N(0, 0.01²), projections into the stream over √(2N). (Radford et al. 2019)"""

    def __init__(self, *, std: PositiveFloat = 0.02):
        self.std = std

    def draw(self, spec: ParameterSpec) -> Draw:
        if spec.role == "output":
            return self.std / (2 * spec.layers) ** 0.5, "normal"
        return self.std / 2 if spec.looks_up and spec.slot == "position" else self.std, "normal"


class BERT(Parametrization):
    """N(0, 0.02²) cut at two standard deviations, for every table and matrix. (Devlin et al. 2018)"""

    def __init__(self, *, std: PositiveFloat = 0.02):
        self.std = std

    def draw(self, spec: ParameterSpec) -> Draw:
        return self.std, "truncated"


class T5(Parametrization):
    """Tables N(0, 1); matrices N(0, 1/fan_in), queries N(0, 1/(fan_in d_k)) in place of the 1/√d_k of attention.

    (Raffel et al. 2019; Shazeer & Stern 2018. An untied head is N(0, 1/w), a relative bias N(0, 0.02²).)
    """

    def draw(self, spec: ParameterSpec) -> Draw:
        if spec.looks_up:
            return 1.0 if spec.slot == "embedding" else 0.02, "normal"
        scale = spec.head_width if spec.role == "query" else 1
        return (spec.fan_in * scale) ** -0.5, "normal"


class Glorot(Parametrization):
    """Matrices uniform with variance 2/(fan_in + fan_out), tables N(0, 1/w). (Glorot & Bengio 2010; Vaswani et al.
    2017)
    """

    def draw(self, spec: ParameterSpec) -> Draw:
        if spec.looks_up or spec.predicts:
            return spec.shape[-1] ** -0.5, "normal"
        return (2 / (spec.fan_in + spec.fan_out)) ** 0.5, "uniform"


class Standard(Parametrization):
    """Tables N(0, std²), matrices N(0, 1/fan_in), the head zero, projections into the stream divided by √(2N).

    The usual parametrization (LeCun et al. 1998; Radford et al. 2019), under which the best learning rate falls with
    width.
    """

    def __init__(self, *, std: PositiveFloat = 0.02, head: Literal["zero", "normal"] = "zero"):
        self.std, self.head = std, head

    def draw(self, spec: ParameterSpec) -> Draw:
        if spec.looks_up:
            return self.std, "normal"
        if spec.predicts and self.head == "zero":
            return 0.0, "normal"
        return (spec.fan_in * (2 * spec.layers if spec.role == "output" else 1)) ** -0.5, "normal"


class MuP(Standard):
    """Maximal update: matrices N(0, 1/fan_in) learn at η·base/w, tables and vectors at η. (Yang et al. 2022, Table 3)

    The head starts at zero, or N(0, base/fan_in²). Attention must score by 1/d_k (`mixer.scale: width`), and the head
    may not be tied. At width `base` it equals the standard parametrization with such scores, so learning rates found
    there transfer to any width.
    """

    def __init__(self, *, base: PositiveInt = 64, std: PositiveFloat = 0.02, head: Literal["zero", "normal"] = "zero"):
        super().__init__(std=std, head=head)
        self.base = base

    def draw(self, spec: ParameterSpec) -> Draw:
        std, law = super().draw(spec)
        return std * ((self.base / spec.fan_in) ** 0.5 if spec.predicts else 1), law

    def rate(self, spec: ParameterSpec) -> float:
        # A fan-in that is not finite is a multiple of the width, so this is fan-in at the base width over fan-in here.
        return 1.0 if spec.looks_up or spec.finite or spec.role in CONSTANT else self.base / spec.width


@torch.no_grad()
def initialise(
    model: Family, parametrization: Parametrization, seed: int, device: torch.device | str = "cpu"
) -> Family:
    """Give every parameter its start, on `device`; a model built on the meta device is materialised there first."""
    tables = {id(parameter) for spec, parameter in parameters(model) if spec.looks_up}
    heads = (part for name, part in model.named_children() if name not in model.towers)
    is_shared = any(id(parameter) in tables for head in heads for parameter in head.parameters())
    is_tied = isinstance(parametrization, MuP) and is_shared
    what, fix = "maximal update needs a head of its own", "take head out of model.tie"
    refuse(is_tied, what, fix, key="model.tie", value=["head"])
    if any(parameter.is_meta for parameter in model.parameters()):
        before = torch.__future__.get_swap_module_params_on_conversion()
        try:  # under this setting all the names of a tied table keep one memory
            torch.__future__.set_swap_module_params_on_conversion(True)
            model.to_empty(device=device)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before)
    for module in model.modules():
        own_parameters = module.named_parameters(recurse=False)
        constants = [(name, parameter) for name, parameter in own_parameters if role(module, name) in CONSTANT]
        if constants and hasattr(module, "reset_parameters") and not isinstance(module, nn.Linear):
            module.reset_parameters()  # type: ignore[operator]
            continue
        for name, parameter in constants:
            nn.init.constant_(parameter, start(module, name))
    for spec, parameter in parameters(model):
        if spec.role not in CONSTANT:
            std, law = parametrization.draw(spec)
            _fill(parameter, std * spec.start, law, seed, spec.name)
    return model


def _fill(parameter: Tensor, std: float, law: str, seed: int, name: str) -> None:
    key = int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "little") >> 1
    source = torch.Generator(parameter.device).manual_seed(key)
    if std == 0:
        parameter.zero_()
    elif law == "normal":
        parameter.normal_(0, std, generator=source)
    elif law == "uniform":
        bound = 3**0.5 * std
        parameter.uniform_(-bound, bound, generator=source)
    else:
        nn.init.trunc_normal_(parameter, 0, std, -2 * std, 2 * std, generator=source)
