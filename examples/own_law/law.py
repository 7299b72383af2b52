"""A law of one's own as a class: its formula once, as code over named parameters and columns, and its parameters with
units, bounds and where to start looking. Its derivatives are exact without being written down.
"""

from __future__ import annotations

from typing import Any

from scaling.law import Form, Parameter


class Delayed(Form):
    """L = E + A (D + D_0)^-β: a power of tokens, of which D_0 count as seen before training began."""

    slot = "law"  # its name on the command line is the class in snake case: delayed

    formula = "L = E + A (D + D_0)^-β"
    citation = "an example"
    inputs = ("D",)
    parameters = (
        Parameter("E", "nats per token", "linear", 0.0, 1e6, (0.1, 2.0), linear=True),
        Parameter("A", "nats per token", "log", 1e-100, 1e100, (1.0, 1e10), linear=True),
        Parameter("D_0", "tokens", "log", 1.0, 1e30, "D"),
        Parameter("beta", "1", "linear", 0.0, 5.0, (0.02, 1.0)),
    )

    def curve(self, p: Any, x: Any) -> Any:
        return p.E + p.A * (x.D + p.D_0) ** -p.beta
