"""What is known of one parameter: the tensor that the optimizer moves, and the law that its start is drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from scaling.model.parameters import ParameterSpec


@dataclass(frozen=True)
class Parameter:
    """A tensor to learn (a parameter, or its float32 master), with what the model declares of it."""

    spec: ParameterSpec
    tensor: Tensor


@dataclass(frozen=True)
class Draw:
    """Normal with standard deviation `std`, cut at two of them (`truncated`), or uniform with that deviation."""

    std: float
    law: Literal["normal", "truncated", "uniform"] = "normal"
