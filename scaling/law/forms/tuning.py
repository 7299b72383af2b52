"""Optimal batch size and learning rate as power laws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scaling.law.autodiff import Dual
from scaling.law.forms.form import Form, Parameter


@dataclass(frozen=True)
class BatchSize(Form):
    """B_opt = A Π x^b_x over columns such as C, or N and D. Bi et al. 2024 (DeepSeek LLM), arXiv 2401.02954, eq. 1."""

    axes: tuple[str, ...] = ("C",)
    formula = "B_opt = A Π x^b_x"
    citation = "Bi et al. 2024, arXiv 2401.02954; Li et al. 2025, arXiv 2503.04715, for N and D"
    special_cases = ("a plane of log B on the logarithms of the columns",)
    target = "B"
    unit = "tokens"

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.axes

    @property
    def parameters(self) -> tuple[Parameter, ...]:  # type: ignore[override]
        slopes = (Parameter(f"b_{x}", "1", "linear", -5.0, 5.0, (-1.0, 1.0)) for x in self.axes)
        return (Parameter("A", self.unit, "log", 1e-200, 1e200, (1e-3, 1e3), linear=True), *slopes)

    @property
    def name(self) -> str:
        return "_".join((super().name, *(x.lower() for x in self.axes)))

    def curve(self, p: Any, x: Any) -> Dual:
        product = p.A
        for axis in self.axes:
            product = product * getattr(x, axis) ** getattr(p, f"b_{axis}")
        return product


@dataclass(frozen=True)
class LearningRate(BatchSize):
    """η_opt = A Π x^b_x over columns such as C, or N and D. Bi et al. 2024 (DeepSeek LLM), arXiv 2401.02954, eq. 1."""

    formula = "η_opt = A Π x^b_x"
    target = "lr"
    unit = "1"
