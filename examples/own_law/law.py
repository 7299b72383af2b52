"""Your own law as an object: its formula as code over named parameters and columns, and its parameters with units,
bounds and starting ranges. Its derivatives are computed exactly.
"""

from __future__ import annotations

from scaling.laws import Law, Parameter

DELAYED = Law(  # a power of tokens, of which D_0 count as seen before training began
    name="delayed",
    formula="L = E + A (D + D_0)^-β",
    citation="an example",
    inputs=("D",),
    parameters=(
        Parameter("E", "nats per token", "linear", 0.0, 1e6, (0.1, 2.0), linear=True),
        Parameter("A", "nats per token", "log", 1e-100, 1e100, (1.0, 1e10), linear=True),
        Parameter("D_0", "tokens", "log", 1.0, 1e30, "D"),
        Parameter("beta", "1", "linear", 0.0, 5.0, (0.02, 1.0)),
    ),
    curve=lambda p, x: p.E + p.A * (x.D + p.D_0) ** -p.beta,
)
