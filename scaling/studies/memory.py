"""Memory: bytes of a training step on one device, when weights, gradients and optimizer states are shared out.

    ddp     every device holds all of them
    fsdp    each of the d devices that split the batch holds one d-th (Rajbhandari et al. 2020, ZeRO stage 3)

Under tensor parallelism over t devices each of these holds one t-th of every matrix and of the activations within a
block (Shoeybi et al. 2019); the devices that split the batch are then devices / t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scaling.cost import Cost
from scaling.errors import ScalingError

Strategy = Literal["ddp", "fsdp"]

# Bytes a parameter by precision: weights, gradients, and Adam's two moments with master weights where they are kept.
BYTES = {"32-true": (4, 4, 8), "bf16-mixed": (4, 4, 8), "bf16-true": (2, 2, 12)}


@dataclass(frozen=True)
class Layout:
    """How many devices train one run, and what each holds."""

    devices: int = 1
    strategy: Strategy = "ddp"
    tensor: int = 1

    def __post_init__(self) -> None:
        if self.devices < 1 or self.tensor < 1 or self.devices % self.tensor:
            raise ScalingError(
                f"{self.tensor} devices do not divide {self.devices}",
                key="tensor",
                value=self.tensor,
                fix="take a divisor",
            )

    @property
    def replicas(self) -> int:
        """How many devices, or groups of them, split the batch."""
        return self.devices // self.tensor


def memory(cost: Cost, precision: str, rows: int, layout: Layout) -> dict[str, float]:
    """Bytes on each device, with `rows` windows of the batch at once."""
    shards = layout.tensor * (layout.replicas if layout.strategy == "fsdp" else 1)
    weights, gradients, states = (each * cost.parameters / shards for each in BYTES[precision])
    # Counted in float32; what bfloat16 computes is kept in half of it.
    activations = cost.activation_bytes * rows / layout.tensor * (1 if precision == "32-true" else 0.5)
    return {"weights": weights, "gradients": gradients, "optimizer": states, "activations": activations}
