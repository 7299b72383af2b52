"""Format: what there is to know of one of transformers' models, as a table that is read both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scaling.interop.names import Name

# config.json's word for an activation, and our piece.
ACTIVATIONS = {
    "relu": {"kind": "ReLU"},
    "gelu": {"kind": "GeLU", "approximate": "none"},
    "gelu_new": {"kind": "GeLU", "approximate": "tanh"},
    "gelu_pytorch_tanh": {"kind": "GeLU", "approximate": "tanh"},
    "gelu_fast": {"kind": "GeLU", "approximate": "tanh"},
    "silu": {"kind": "Swish", "beta": 1.0},
    "swish": {"kind": "Swish", "beta": 1.0},
    "relu2": {"kind": "SquaredReLU"},
    "tanh": {"kind": "Tanh"},
    "sigmoid": {"kind": "Sigmoid"},
    "linear": {"kind": "Linear"},
}


@dataclass(frozen=True)
class Format:
    """One architecture of transformers.

    `config` is what its config.json always says (None: nothing), `model` and `size` are our sections with blanks for
    what it may say. A weight file may also hold `copies` (a tied table under a second name), tensors that are `derived`
    from the config (masks, sinusoids) and `zeros` (a bias that no training moves); copies and zeros are checked, and
    none of them is written. A file of the bare model leaves out `prefix`.
    """

    architecture: str
    config: Mapping[str, Any]
    model: Mapping[str, Any]
    size: Mapping[str, Any]
    names: tuple[Name, ...]
    prefix: str = ""
    copies: Mapping[str, str] = field(default_factory=dict)
    derived: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """config.json's `model_type`."""
        return self.config["model_type"]

    @property
    def template(self) -> dict[str, Any]:
        return {"model": self.model, "size": self.size}
