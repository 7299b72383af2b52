"""Format: what there is to know of one of transformers' models, as a table that is read both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

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


class Format:
    """One architecture of transformers: a table of class attributes, read both ways.

    `config` is what its config.json always contains (None: null, or nothing), `model` and `size` are our sections with
    blanks for what it may contain, and `names` what its tensors are called. A weight file may also hold `copies` (a
    tied table under a second name), tensors that are `derived` from the config (masks, sinusoids) and `zeros` (a bias
    that no training moves); copies and zeros are checked, and none of them is written. Of copies that our model holds
    itself, a file may leave out those `omitted`. A file of the bare model leaves out `prefix`.
    """

    slot: ClassVar[str] = "format"

    architecture: ClassVar[str]
    config: ClassVar[Mapping[str, Any]]
    model: ClassVar[Mapping[str, Any]]
    size: ClassVar[Mapping[str, Any]]
    names: ClassVar[tuple[Name, ...]]
    prefix: ClassVar[str] = ""
    copies: ClassVar[Mapping[str, str]] = {}
    omitted: ClassVar[tuple[str, ...]] = ()
    derived: ClassVar[tuple[str, ...]] = ()
    zeros: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        missing = [name for name in ("architecture", "config", "model", "size", "names") if not hasattr(cls, name)]
        if missing:
            raise TypeError(f"the format {cls.__name__} needs {', '.join(missing)}")
        for name, table, key in (("config", cls.config, "model_type"), ("model", cls.model, "kind")):
            if key not in table:
                raise TypeError(f"the format {cls.__name__} needs {key} in {name}")

    @classmethod
    def template(cls) -> dict[str, Any]:
        return {"model": cls.model, "size": cls.size}
