from __future__ import annotations

from torch import nn

from scaling.errors import ScalingError
from scaling.nn.contract import Tuning

BIASES = ("bias", "shift", "offset")
"""What the vectors are called that pieces add: biases of maps and norms, the shifts of LSTMs and convolutions."""


class BitFit(Tuning):
    """Of all that is there only the biases are trained. (Ben Zaken et al. 2022)

    It adds nothing. The biases are those of maps and norms, and the shifts that other pieces add alike.
    """

    def apply(self, model: nn.Module) -> None:
        if not any(self.trains(name) for name, _ in model.named_parameters() if not name.startswith("head.")):
            what = "the model below its head has no biases to train"
            raise ScalingError(what, key="kind", value="BitFit", fix="take LoRA")

    def trains(self, name: str) -> bool:
        return name.rpartition(".")[2] in BIASES
