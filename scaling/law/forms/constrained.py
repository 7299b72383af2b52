"""A law with parameters tied to each other or held within stated bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law.autodiff import Dual
from scaling.law.forms.form import Columns, Form, Parameter, Seeds

Bounds: TypeAlias = "tuple[float, float]"

WIDE = 100.0
"""Positive bounds further apart than this factor are searched in logarithms."""


@dataclass(frozen=True)
class Constrained(Form):
    """The law with each parameter of `ties` equal to another, and the parameters of `limits` within those bounds."""

    law: Form
    ties: Mapping[str, str]
    limits: Mapping[str, Bounds]

    @property
    def name(self) -> str:
        return self.law.name

    @property
    def formula(self) -> str:  # type: ignore[override]
        return ", ".join([self.law.formula, *(f"{name} = {other}" for name, other in self.ties.items())])

    @property
    def citation(self) -> str:  # type: ignore[override]
        return self.law.citation

    @property
    def derived(self) -> Mapping[str, Callable[[Any], Dual]]:  # type: ignore[override]
        """Those of the law that its ties leave to be estimated: with α = β, N_opt ∝ C^½ whatever the points are."""
        theta = np.array([[0.3 + 0.1 * index for index in range(len(self.parameters))]])
        seeds = {index: {index: np.ones((1, 1))} for index in range(len(self.parameters))}
        duals = self.named_duals(theta, seeds)
        moves = {name: formula(duals).gradient.values() for name, formula in self.law.derived.items()}
        return {
            name: self.law.derived[name] for name in moves if any(np.abs(part).max() > 1e-9 for part in moves[name])
        }

    @property
    def target(self) -> str:  # type: ignore[override]
        return self.law.target

    @property
    def objective(self) -> str:  # type: ignore[override]
        return self.law.objective

    @property
    def chance(self) -> str | None:  # type: ignore[override]
        return self.law.chance

    @property
    def height(self) -> str | None:  # type: ignore[override]
        return self.law.height

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.law.inputs

    @property
    def axes(self) -> tuple[str, ...]:
        return self.law.axes

    @property
    def parameters(self) -> tuple[Parameter, ...]:  # type: ignore[override]
        free = (parameter for parameter in self.law.parameters if parameter.name not in self.ties)
        return tuple(
            bounded(parameter, self.limits[parameter.name]) if parameter.name in self.limits else parameter
            for parameter in free
        )

    @property
    def tied(self) -> Mapping[str, str]:
        return self.ties

    def named_duals(self, theta: np.ndarray, seeds: Seeds) -> SimpleNamespace:
        values = super().named_duals(theta, seeds)
        for name, other in self.ties.items():
            setattr(values, name, getattr(values, other))
        return values

    def curve(self, p: Any, x: Any) -> Dual:
        return self.law.curve(p, x)

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        return self.law.start(rng, count, inputs, target)[:, self._untied]

    def reference(self, inputs: Columns, parameter: Parameter) -> dict[str, float]:
        return self.law.reference(inputs, parameter)

    def canonical(self, theta: np.ndarray) -> np.ndarray:
        every = [self.parameter_names.index(self.ties.get(name, name)) for name in self.law.parameter_names]
        return self.law.canonical(theta[..., every])[..., self._untied]

    @property
    def _untied(self) -> list[int]:
        return [index for index, name in enumerate(self.law.parameter_names) if name not in self.ties]


def constrained(law: Form, ties: Mapping[str, str], limits: Mapping[str, Bounds]) -> Form:
    """The law under these ties and bounds, checked; the law itself where there are none."""
    kinds = {parameter.name: (parameter.scale, parameter.linear) for parameter in law.parameters}
    for option, names in (("tie", {**ties, **dict.fromkeys(ties.values(), "")}), ("bounds", limits)):
        for name in names:
            if name not in kinds:
                raise ScalingError("is not a parameter of the law", key=f"{option} {name}", fix=nearest(name, kinds))
    roots = {}
    for name in ties:
        root, seen = name, set[str]()
        while root in ties:
            if root in seen:
                raise ScalingError("ties parameters in a circle", key="tie", value=name, fix="leave one of them free")
            seen.add(root)
            root = ties[root]
        if kinds[name] != kinds[root]:
            raise ScalingError(
                f"{name} and {root} are of different kinds",
                key="tie",
                value=f"{name}={root}",
                fix="tie two exponents, for example",
            )
        if name in limits:
            raise ScalingError(f"is tied to {root}", key=f"bounds {name}", fix=f"bound {root}")
        roots[name] = root
    return Constrained(law, roots, limits) if roots or limits else law


def bounded(parameter: Parameter, limits: Bounds) -> Parameter:
    """The parameter within stated bounds, looked for where its own range and the bounds meet."""
    low, high = limits
    if not low < high:
        raise ScalingError(
            "are no bounds",
            key=f"bounds {parameter.name}",
            value=f"{low:g}:{high:g}",
            fix="write low:high, such as 0:2",
        )
    kind = "linear" if low < 0 else parameter.scale
    start = parameter.start
    low = max(low, parameter.lower) if kind == "log" else low
    if not isinstance(start, str):
        inner = max(start[0], low), min(start[1], high)
        ends = min(max(low, -1e100), 1e100), min(high, 1e100)
        start = inner if inner[0] < inner[1] else _range(*ends, start)
    return replace(parameter, scale=kind, lower=low, upper=high, start=start, bounded=True)


def _range(low: float, high: float, usual: tuple[float, float]) -> tuple[float, float]:
    """Where to look within bounds that the usual range misses: near the end towards it, within a factor of `WIDE`."""
    width = max(abs(usual[0]), abs(usual[1]), abs(low) if usual[1] <= low else abs(high), 1e-12) * WIDE
    return (low, min(high, low + width)) if usual[1] <= low else (max(low, high - width), high)
