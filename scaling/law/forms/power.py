"""Power laws in one variable, with and without a floor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scaling.law.autodiff import Dual
from scaling.law.forms.form import Form, coefficient, exponent, floor


@dataclass(frozen=True)
class PowerLaw(Form):
    """L(x) = A x^-α. Hestness et al. 2017, arXiv 1712.00409, eq. 1."""

    x: str = "C"
    formula = "L(x) = A x^-α"
    citation = "Hestness et al. 2017, arXiv 1712.00409"
    special_cases = ("a straight line of log L on log x",)
    parameters = (coefficient("A"), exponent("alpha"))

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.x,)

    @property
    def name(self) -> str:
        return f"{super().name}_{self.x.lower()}"

    def curve(self, p: Any, x: Any) -> Dual:
        return p.A * getattr(x, self.x) ** -p.alpha


@dataclass(frozen=True)
class PowerLawFloor(PowerLaw):
    """L(x) = E + A x^-α. Henighan et al. 2020, arXiv 2010.14701, eq. 1.1."""

    formula = "L(x) = E + A x^-α"
    citation = "Henighan et al. 2020, arXiv 2010.14701"
    special_cases = ("PowerLaw at E = 0",)
    parameters = (floor(), coefficient("A"), exponent("alpha"))

    def curve(self, p: Any, x: Any) -> Dual:
        return p.E + p.A * getattr(x, self.x) ** -p.alpha
