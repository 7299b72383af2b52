"""A law is data: a formula over named parameters and columns, with units, bounds and the range of starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike

from scaling.base.errors import nearest, refuse

Columns = Mapping[str, np.ndarray]
Seeds = dict[int, dict[int, np.ndarray]]
Bounds: TypeAlias = "tuple[float, float]"
Rng: TypeAlias = np.random.Generator

# The columns a law may ask for, in the papers' letters.
MEANINGS = MappingProxyType(
    {
        "N": "parameters",
        "D": "training tokens",
        "C": "training compute",
        "loss": "validation loss, nats per token",
        "U": "unique training tokens",
        "S": "optimizer steps",
        "B": "batch, tokens per step",
        "lr": "learning rate",
        "M": "training tokens per parameter",
        "width": "model width",
        "depth": "layers",
        "seed": "seed",
        "run": "name of the run",
        "trunk": "the run whose beginning it shares with others",
        "S_min": "optimizer steps at a batch far above the critical one",
        "C_min": "training compute at a batch far below the critical one",
        "B_crit": "critical batch, tokens per step",
        "S1": "area under the learning rate",
        "S2": "annealing area",
        "error": "error of a task",
        "accuracy": "accuracy of a task",
        "bits_per_byte": "bits per byte of a task's right answers",
        "loss_a": "validation loss on the set that is predicted from, nats per token",
        "loss_b": "validation loss on the set that is predicted, nats per token",
        "loss_u": "validation loss less that of the tokens' frequencies, nats per token",
        "V": "vocabulary",
        "H": "training characters",
        "experts": "experts",
        "granularity": "width of a dense hidden layer over that of one expert",
        "K": "parameters that a token uses over those of the dense model",
        "P": "all parameters over those that a token uses",
        "density": "fraction of the weights that are not zero",
        "streams": "parallel streams",
        "bits": "bits of a weight in training",
        "p": "proportion of the loss's own domain in the training data",
        "chance": "accuracy of guessing",
        "options": "answers that an example of the task offers",
        "examples": "examples that the score of a task is the mean of",
    }
)

POSITIVE = MEANINGS.keys() - {"seed", "run", "trunk", "S2", "error", "accuracy", "loss_u", "chance"}

# A law in one of these columns measures distances by the size that the column falls with: L ∝ N^-0.1.
SIZE_EXPONENTS = MappingProxyType({"loss": 0.1, "loss_a": 0.1, "bits_per_byte": 0.1})

SIGNED = frozenset({"loss_u"})  # Targets that may be negative: differences of losses

PROPORTIONS = frozenset({"accuracy", "error"})  # Columns that are means over examples which count as 0 or 1

EXAMPLES = "examples"

VARIANT = "variant_code"  # The column that tells the variants of a joint law apart

PREFIX = "task_"  # Before the parameters of the second of two steps: `task_b` is b of task_sigmoid


FLOPS = 6.0  # C = 6 N D: FLOPs per parameter and token of training (Kaplan et al. 2020, arXiv 2001.08361).


def with_compute(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns, with the compute C where it follows from N and D."""
    follows = {"N", "D"} <= columns.keys() and "C" not in columns
    return {**columns, "C": FLOPS * columns["N"] * columns["D"]} if follows else dict(columns)


@dataclass(frozen=True)
class Parameter:
    """One unknown of a law.

    `scale` is the solver's coordinate: "log" for quantities that are positive and span decades.
    `start` is the range of random starts, or the name of the column that has this range.
    `linear`: the prediction is a sum in which this parameter multiplies one term (variable projection).
    `bounded`: the user stated its bounds; they hold for the parameter itself, even if its term is the coordinate.
    `at` are columns at which the size of its term is measured; the others are in the middle of the points.
    """

    name: str
    unit: str
    scale: Literal["linear", "log"]
    lower: float
    upper: float
    start: tuple[float, float] | str
    linear: bool = False
    bounded: bool = False
    at: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_exponent(self) -> bool:
        """Whether it is an exponent that cannot be negative: how fast a term falls."""
        return self.unit == "1" and self.scale == "linear" and self.lower >= 0.0


def floor(name: str = "E", unit: str = "nats per token") -> Parameter:
    """The irreducible loss."""
    return Parameter(name, unit, "linear", 0.0, 1e6, (0.1, 2.0), linear=True)


def coefficient(name: str, unit: str = "nats per token × unit of the column ^ exponent", **others: Any) -> Parameter:
    """The height of a power-law term."""
    return Parameter(name, unit, "log", 1e-100, 1e100, (1.0, 1e10), linear=True, **others)


def exponent(name: str, lower: float = 0.0, upper: float = 5.0, start: tuple[float, float] = (0.02, 1.0)) -> Parameter:
    """The parameter of an exponent, by which a term falls, or another number without a unit."""
    return Parameter(name, "1", "linear", lower, upper, start)


def place(name: str, column: str, unit: str) -> Parameter:
    """A place on a column's axis, such as a break or Kaplan's N_c."""
    return Parameter(name, unit, "log", 1e-200, 1e200, column)


@dataclass(frozen=True, eq=False)
class Law:
    """A scaling law: its formula as text and as code, its parameters, and the columns that it reads.

    - `curve(p, x)` is the formula in numpy, with the parameters in `p` and the columns in `x`, each under its name.
    - `derived` are quantities that the literature quotes and that are formulas of the parameters, by name.
    - `objective` is what a fit minimises by default.
    - `chance` is the parameter for the score of guessing, if there is one; `height` is the parameter for the distance
      from it to the score at a loss of zero.
    - `adjust` moves uniform random starts `[count, p]`, in place, by the columns and the target.
    - `canonical` puts parameters that can be exchanged into a fixed order.
    - `tied` maps names of parameters to the parameters that they equal in this fit.
    - `variants` are the variants of a joint law, in the order of their codes in the column `VARIANT`.
    - `steps` are the law of the loss and the law of a score given the loss, where the law has two steps.
    """

    slot: ClassVar[str] = "law"
    name: str
    inputs: tuple[str, ...]
    formula: str
    citation: str
    parameters: tuple[Parameter, ...]
    curve: Callable[[Any, Any], Any]
    target: str = "loss"
    derived: Mapping[str, Callable[[Any], Dual]] = field(default_factory=dict)
    objective: str = "log_huber"
    chance: str | None = None
    height: str | None = None
    adjust: Callable[[np.ndarray, Rng, Columns, np.ndarray], None] | None = None
    canonical: Callable[[np.ndarray], np.ndarray] = lambda theta: theta
    tied: Mapping[str, str] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    steps: tuple[Law, ...] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """The columns of a run's size: all inputs but the code of its variant."""
        return tuple(name for name in self.inputs if name != VARIANT)

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def linear(self) -> list[int]:
        """The places of the parameters that multiply one term of a sum."""
        return [index for index, parameter in enumerate(self.parameters) if parameter.linear]

    def predict(self, theta: np.ndarray, inputs: Mapping[str, ArrayLike]) -> np.ndarray:
        """The law at parameters `theta[..., p]` for n rows of columns: `[..., n]`."""
        n = np.size(inputs[self.inputs[0]])
        return np.broadcast_to(self.evaluate(theta, inputs, {}).value, (*np.shape(theta)[:-1], n))

    def jacobian(self, theta: np.ndarray, inputs: Mapping[str, ArrayLike]) -> np.ndarray:
        """The exact derivative of `predict` with respect to each parameter: `[..., n, p]`."""
        theta = np.asarray(theta, float)
        ones = {index: {index: np.ones_like(theta[..., :1])} for index in range(len(self.parameters))}
        gradient = self.evaluate(theta, inputs, ones).gradient
        jacobian = np.zeros((*theta.shape[:-1], np.size(inputs[self.inputs[0]]), len(self.parameters)))
        for index, part in gradient.items():
            jacobian[..., index] = part
        return jacobian

    @np.errstate(all="ignore")  # a start may overflow, and loses by it
    def evaluate(self, theta: np.ndarray, inputs: Mapping[str, ArrayLike], seeds: Seeds) -> Dual:
        """The formula on dual numbers; `seeds` hold dθ/du, by parameter and then by coordinate u."""
        columns = {name: np.asarray(inputs[name], float) for name in self.inputs}
        return self.curve(self.named_duals(theta, seeds), SimpleNamespace(**columns))

    def named_duals(self, theta: np.ndarray, seeds: Seeds) -> SimpleNamespace:
        """The parameters as dual numbers `[..., 1]` under their names."""
        theta = np.asarray(theta, float)
        duals = {
            name: Dual(theta[..., index : index + 1], seeds.get(index, {}))
            for index, name in enumerate(self.parameter_names)
        }
        return SimpleNamespace(**duals, **{name: duals[other] for name, other in self.tied.items()})

    def start(self, rng: Rng, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """`count` random starts `[count, p]`: uniform in each parameter's own scale and range, then adjusted."""
        refuse(self.steps, f"{self.name} is fitted in two steps", "use scaling.laws.fit_two_steps")
        ranges = (inputs[each.start] if isinstance(each.start, str) else each.start for each in self.parameters)
        low, high = np.array([(np.min(ends), np.max(ends)) for ends in ranges]).T
        uniform, in_log = rng.random((len(low), count)).T, np.array([each.scale == "log" for each in self.parameters])
        with np.errstate(divide="ignore", invalid="ignore"):
            theta = np.where(in_log, np.exp(np.log(low) + uniform * np.log(high / low)), low + uniform * (high - low))
        if self.linear:  # each linear term is a random fraction of the middle loss: starts do not depend on units
            theta[:, self.linear] = 1.0
            terms = np.mean(np.abs(self.jacobian(theta, inputs)[:, :, self.linear]), axis=1)
            shares = rng.dirichlet(np.ones(len(self.linear)), size=len(theta))
            middle = abs(np.median(target)) or np.abs(target).max()
            theta[:, self.linear] = shares * middle / np.maximum(terms, 1e-280)
        if self.adjust is not None:
            self.adjust(theta, rng, inputs, target)
        return theta


def composed(loss: Law, task: Law) -> Law:
    """score(N, D, …) = task(loss(N, D, …)). Bhagia et al. 2024, arXiv 2412.04403, section 3."""
    what = f"{task.name} is not a law of a task given loss"
    refuse(task.inputs != ("loss",), what, "take task_sigmoid, task_power, …")
    is_of_loss = loss.target == "loss" and "loss" not in loss.inputs
    refuse(not is_of_loss, f"{loss.name} is not a law of the loss", "take chinchilla, power_law_floor_c, …")

    def curve(p: Any, x: Any) -> Dual:
        names = (*task.parameter_names, *task.tied)
        later = SimpleNamespace(**{name: getattr(p, PREFIX + name) for name in names})
        return task.curve(later, SimpleNamespace(loss=loss.curve(p, x)))

    return Law(
        name=f"{loss.name},{task.name}",
        formula=f"{loss.formula}, {task.formula}",
        citation="; ".join(dict.fromkeys((loss.citation, task.citation))),
        inputs=loss.inputs,
        parameters=(*loss.parameters, *(replace(p, name=PREFIX + p.name, linear=False) for p in task.parameters)),
        curve=curve,
        target=task.target,
        objective=task.objective,
        tied={**loss.tied, **{PREFIX + name: PREFIX + other for name, other in task.tied.items()}},
        chance=task.chance and PREFIX + task.chance,
        height=task.height and PREFIX + task.height,
        steps=(loss, task),
    )


def by_step(stated: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is stated of the parameters of each of two steps, under its own names: those of the second have a prefix."""
    first = {name: value for name, value in stated.items() if not name.startswith(PREFIX)}
    second = {name.removeprefix(PREFIX): value for name, value in stated.items() if name not in first}
    return first, second


def constrained(law: Law, ties: Mapping[str, str], limits: Mapping[str, Bounds]) -> Law:
    """The law with each parameter of `ties` equal to another and the parameters of `limits` within those bounds."""
    kinds = {parameter.name: (parameter.scale, parameter.linear) for parameter in law.parameters}
    for key in [*(f"tie {name}" for tie in ties.items() for name in tie), *(f"bounds {name}" for name in limits)]:
        name = key.partition(" ")[2]
        refuse(name not in kinds, "is not a parameter of the law", nearest(name, kinds), key=key)
    if law.steps:
        ties = {name: other.removeprefix(PREFIX) for name, other in ties.items()}
        return composed(*map(constrained, law.steps, by_step(ties), by_step(limits)))
    roots: dict[str, str] = {}  # for each tied parameter the one that stays free
    for name, other in ties.items():
        root = roots.get(other, other)
        refuse(root == name, "ties parameters in a circle", "leave one of them free", key="tie", value=name)
        what, value = f"{name} and {root} are of different kinds", f"{name}={root}"
        refuse(kinds[name] != kinds[root], what, "tie two exponents, for example", key="tie", value=value)
        refuse(name in limits, f"is tied to {root}", f"bound {root}", key=f"bounds {name}")
        roots = {each: root if of == name else of for each, of in roots.items()} | {name: root}
    names = law.parameter_names
    free = [index for index, name in enumerate(names) if name not in roots]
    indices = [free.index(names.index(roots.get(name, name))) for name in names]
    parameters = (law.parameters[index] for index in free)
    tied = replace(
        law,
        formula=", ".join([law.formula, *(f"{name} = {other}" for name, other in roots.items())]),
        parameters=tuple(bounded(each, limits[each.name]) if each.name in limits else each for each in parameters),
        adjust=None if roots else law.adjust,
        canonical=lambda theta: law.canonical(theta[..., indices])[..., free],
        tied=roots,
    )
    # With α = β, N_opt ∝ C^½ whatever the points are: a derived quantity that no parameter moves goes.
    duals = tied.named_duals(np.array([0.3, 0.4])[:, None] ** np.arange(1.0, len(free) + 1), {})
    moved = {name: of for name, of in law.derived.items() if np.ptp(of(duals).value) > 1e-9}
    return replace(tied, derived=moved)


def bounded(parameter: Parameter, limits: Bounds) -> Parameter:
    """The parameter within stated bounds, looked for where its own range and the bounds meet."""
    own = parameter.lower, parameter.upper
    low, high = (end if np.isfinite(end) else bound for end, bound in zip(limits, own))
    what, value = "are no bounds", f"{low:g}:{high:g}"
    refuse(not low < high, what, "write low:high, such as 0:2", key=f"bounds {parameter.name}", value=value)
    scale, start = ("linear" if low < 0 else parameter.scale), parameter.start
    low = max(low, parameter.lower) if scale == "log" else low
    if not isinstance(start, str):
        inside = max(start[0], low), min(start[1], high)
        start = inside if inside[0] < inside[1] else (low, high)
    return replace(parameter, scale=scale, lower=low, upper=high, start=start, bounded=True)


# Dual numbers


class Dual(NDArrayOperatorsMixin):
    """A value and its exact gradient, both broadcast over (starts, points). numpy's operators and functions accept it.

    A law is written once, as its formula; evaluated on `Dual` parameters it returns the loss and the exact derivative
    by each parameter (Wengert 1964, Communications of the ACM 7(8)). The gradient is sparse, a dict from the
    parameter's index to an array, because a term of a law knows only its own two or three parameters.
    """

    __slots__ = ("gradient", "value")

    def __init__(self, value: np.ndarray, gradient: dict[int, np.ndarray]):
        self.value, self.gradient = value, gradient

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Dual:
        if method != "__call__" or options or ufunc not in SLOPES:
            return NotImplemented
        values = [operand.value if isinstance(operand, Dual) else operand for operand in operands]
        if ufunc is np.power and isinstance(operands[1], Dual):  # faster by logarithms; x may be negative elsewhere
            return np.exp(operands[1] * np.log(operands[0]))
        value, gradient = ufunc(*values), {}
        for operand, slope_of in zip(operands, SLOPES[ufunc], strict=False):
            if isinstance(operand, Dual):
                slope = slope_of(*values, value)
                for index, part in operand.gradient.items():
                    part = part if slope is None else slope * part
                    gradient[index] = gradient[index] + part if index in gradient else part
        return Dual(value, gradient)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


# The derivative of each function by each of its arguments, from the arguments and the function's value f; None is 1.
SLOPES: dict[Any, tuple[Callable[..., Any], ...]] = {
    np.negative: (lambda x, f: -1.0,),
    np.reciprocal: (lambda x, f: -f * f,),
    np.exp: (lambda x, f: f,),
    np.expm1: (lambda x, f: np.exp(x),),
    np.log: (lambda x, f: 1.0 / x,),
    np.log2: (lambda x, f: 1.0 / (x * np.log(2.0)),),
    np.log10: (lambda x, f: 1.0 / (x * np.log(10.0)),),
    np.log1p: (lambda x, f: 1.0 / (1.0 + x),),
    np.sqrt: (lambda x, f: 0.5 / f,),
    np.tanh: (lambda x, f: 1.0 - f * f,),
    np.absolute: (lambda x, f: np.sign(x),),
    np.add: (lambda x, y, f: None, lambda x, y, f: None),
    np.subtract: (lambda x, y, f: None, lambda x, y, f: -1.0),
    np.multiply: (lambda x, y, f: y, lambda x, y, f: x),
    np.divide: (lambda x, y, f: 1.0 / np.asarray(y), lambda x, y, f: -f / y),
    np.power: (lambda x, y, f: y * x ** (np.asarray(y, float) - 1.0),),
    np.minimum: (lambda x, y, f: x < y, lambda x, y, f: ~(x < y)),
    np.maximum: (lambda x, y, f: x > y, lambda x, y, f: ~(x > y)),
    np.logaddexp: (lambda x, y, f: sigmoid(x - y), lambda x, y, f: sigmoid(y - x)),
}
