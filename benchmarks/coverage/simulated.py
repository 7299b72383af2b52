"""Coverage over simulated studies: cells of studies × methods, and how many intervals hold the truth."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from benchmarks.coverage import studies
from benchmarks.coverage.published import head, row
from benchmarks.coverage.studies import CHINCHILLA, TRUTH, Draw
from scaling.base.errors import ScalingError
from scaling.laws.catalogue import named
from scaling.laws.curves import Curve, Sizes, fit_curves
from scaling.laws.design import Candidates
from scaling.laws.fit import fit, intervals
from scaling.laws.intervals import Interval
from scaling.laws.law import composed
from scaling.laws.next_run import Belief, Goal, choose, confirmed, interval_of_all_looks, look
from scaling.laws.predict import fit_two_steps, predict_runs
from scaling.laws.problem import prediction

Method = Callable[[Any], Mapping[str, Interval]]
"""Bounds quantities of one study; a `ScalingError` counts as no fit."""
CURVE_NAMES = ("E", "alpha", "beta")


@dataclass(frozen=True)
class Cell:
    """One kind of study and the methods that bound it. `labels` are its columns in a table."""

    labels: tuple[str, ...]
    draw: Draw
    methods: Mapping[str, Method]


@dataclass(frozen=True)
class Tally:
    """Counts over the studies that were fitted: intervals that hold the truth, open ones, and their widths."""

    fitted: int
    covered: Mapping[str, int]
    opened: Mapping[str, int]
    widths: Mapping[str, float]

    def coverage(self, name: str) -> float:
        """Return the fraction of intervals that hold the truth."""
        return self.covered[name] / self.fitted if self.fitted else np.nan


def simulate(draw: Draw, methods: Mapping[str, Method], count: int, seed: int = 0) -> dict[str, Tally]:
    """Draw `count` studies and bound each by every method."""
    results: dict[str, list[tuple[Mapping[str, Interval], Mapping[str, float]]]] = {name: [] for name in methods}
    for study in range(count):
        data, truth = draw(np.random.Generator(np.random.Philox([seed, study])))
        for name, bounds in methods.items():
            try:
                with np.errstate(all="ignore"):
                    results[name].append((bounds(data), truth))
            except ScalingError:
                continue
    return {name: _tally(each) for name, each in results.items()}


def _tally(results: Sequence[tuple[Mapping[str, Interval], Mapping[str, float]]]) -> Tally:
    names = results[0][0] if results else {}
    covered = {name: sum(bounds[name].covers(truth[name]) for bounds, truth in results) for name in names}
    widths = {name: np.array([bounds[name].high - bounds[name].low for bounds, _ in results]) for name in names}
    opened = {name: int(np.isinf(width).sum()) for name, width in widths.items()}
    return Tally(len(results), covered, opened, {name: float(np.median(width)) for name, width in widths.items()})


def table(heads: Sequence[str], cells: Iterable[Cell], count: int) -> Iterator[str]:
    """Yield a line a cell and method: the percentage that holds the truth, and the median width of each quantity."""
    tallies: dict[str, list[Tally]] = {}
    for cell in cells:
        for method, tally in simulate(cell.draw, cell.methods, count).items():
            if not tallies:
                yield from head((*heads, "method"), ("fitted", *tally.covered))
            tallies.setdefault(method, []).append(tally)
            parts = [
                f"{100 * tally.coverage(name):.1f} ({tally.widths[name]:.3g})"
                + (f", {100 * tally.opened[name] / tally.fitted:.0f}% open" if tally.opened[name] else "")
                for name in tally.covered
            ]
            line = row(*cell.labels, method, tally.fitted, *parts)
            print(line, file=sys.stderr, flush=True)
            yield line
    yield ""
    for method, each in tallies.items():
        each = [tally for tally in each if tally.fitted]
        fitted = sum(tally.fitted for tally in each)
        parts = []
        for name in each[0].covered if each else ():
            share = sum(tally.covered[name] for tally in each) / fitted
            parts.append(f"{name} {share:.1%} (lowest {min(tally.coverage(name) for tally in each):.1%})")
        yield f"Pooled, {method}: {', '.join(parts)}."


def _bounded(data: Mapping[str, Any], law: str, quantities: Mapping[str, Any], **choices: Any) -> dict[str, Interval]:
    """Return the profile intervals of the quantities."""
    columns = {name: column for name, column in data.items() if name != "group"}
    found = fit(law, columns, **choices)
    return dict(zip(quantities, intervals(found, quantities=list(quantities.values())).values(), strict=True))


def grid_cell(*setting: Any, objective: str = "log_squared") -> Cell:
    """Return a cell of the grid."""
    draw, law = studies.grid(*setting), setting[0]
    (_, truth), form = draw(np.random.default_rng(0)), named(law)
    far = prediction(form, {name: truth[name] for name in form.inputs})
    quantities = {"exponent": "alpha", "E": "E", "10 × compute": far}

    def method(data: Mapping[str, Any]) -> Mapping[str, Interval]:
        return _bounded(data, law, quantities, objective=objective, group=data.get("group"), starts=128)

    labels = (objective, *(f"{part:g}" if isinstance(part, float) else str(part) for part in setting))
    return Cell(labels, draw, {"profile": method})


def grid_cells() -> Iterator[Cell]:
    """Yield two laws with few and 40 points, over noises, decades and exponents; then with other errors."""
    sizes = (("power_law_floor_c", 9), ("power_law_floor_c", 40), ("chinchilla", 15), ("chinchilla", 40))
    for objective, noises in (("log_squared", (0.002, 0.005, 0.02)), ("log_huber", (0.005,))):
        for (law, points), noise, decades, exponent in product(sizes, noises, (1.0, 2.0, 3.0), (0.1, 0.3, 0.5)):
            yield grid_cell(law, points, noise, decades, exponent, "normal", objective=objective)
        for errors, (law, points) in product(("heavy", "unequal", "pairs", "missing"), sizes[1::2]):
            yield grid_cell(law, points, 0.005, 2.0, 0.3, errors, objective=objective)


def trunk_cells() -> Iterator[Cell]:
    """Yield studies of trunks, treated as independent runs and as runs that share an error."""
    far = prediction(CHINCHILLA, studies.LARGEST, "held-out mean")
    quantities = {"E": "E", "alpha": "alpha", "beta": "beta", "held-out mean": far}
    how: dict[str, Any] = {"objective": "log_squared", "starts": 64}
    methods: dict[str, Method] = {
        "independent": lambda data: _bounded(data, "chinchilla", quantities, **how),
        "shared": lambda data: _bounded(data, "chinchilla", quantities, group=data["group"], **how),
    }
    kinds: list[tuple[Any, float]] = [("equal", 0.0), *product(("equal", "measured"), (0.68, 0.9, 0.97))]
    for errors, correlation in kinds:
        yield Cell((errors, f"{correlation:g}"), studies.trunks(errors, correlation), methods)


def curve_cells() -> Iterator[Cell]:
    """Yield studies of whole curves, fitted to the final losses of their branches and to all evaluations."""
    curves = studies.curve_design()

    def final_losses(study: Sequence[Curve]) -> Mapping[str, Interval]:
        runs = [curve for curve in study if "-" in curve.run]
        data = {
            "N": np.array([run.N for run in runs]),
            "D": np.array([len(run.rates) * run.tokens_per_step for run in runs]),
        }
        data["loss"] = np.array([run.losses[-1] for run in runs])
        choices: dict[str, Any] = {"group": np.array([run.trunk for run in runs]), "objective": "log_squared"}
        return _bounded(data, "chinchilla", {name: name for name in CURVE_NAMES}, starts=64, **choices)

    def whole_curves(study: Sequence[Curve]) -> Mapping[str, Interval]:
        return fit_curves(study, "multi_power", starts=96).intervals(CURVE_NAMES)

    def draw(sizes: Sizes) -> Draw:
        return lambda rng: (studies.draw_curves(curves, sizes, rng), studies.CURVE_TRUTH)

    for kind, sizes in studies.KINDS.items():
        yield Cell((kind,), draw(sizes), {"final losses": final_losses, "whole curves": whole_curves})


def task_cells() -> Iterator[Cell]:
    """Yield studies of two steps, whose chance level is known or fitted."""
    law = composed(CHINCHILLA, named("task_sigmoid"))

    def method(fixed: Mapping[str, float]) -> Method:
        def bounds(data: Mapping[str, Any]) -> Mapping[str, Interval]:
            (predicted,) = predict_runs(fit_two_steps(law, data, fixed=fixed, starts=128), [studies.TARGET])
            assert predicted.mean is not None
            assert predicted.run is not None
            return {"mean": predicted.mean, "new run": predicted.run}

        return bounds

    methods = {"chance known": method({"task_b": studies.SCORE["b"]}), "chance fitted": method({})}
    for noise, examples in product((0.002, 0.01), (500, 5000)):
        yield Cell((f"{noise:g}", str(examples)), studies.two_steps(noise, examples), methods)


GOAL = Goal("E", "E", 1.0)


def adaptive(count: int) -> Iterator[str]:
    """Yield a line a kind of adaptive study: its cost next to the fixed grid's, and how often its interval holds E."""
    field = studies.candidates()
    grid = sorted(range(len(field) // studies.SEEDS), key=lambda row: field.stem[row])
    price = sum(float(field.cost(grid[:place])[row]) for place, row in enumerate(grid))
    draws = [studies.draw_candidates(field, np.random.Generator(np.random.Philox([0, each]))) for each in range(count)]
    fixed = [look(GOAL, [CHINCHILLA], field, grid, losses[grid]).interval for losses in draws]
    goal = Goal("E", "E", float(np.median([GOAL.width_of(interval) for interval in fixed])))
    heads = ("studies", "reached", "FLOPs over the grid's, median", "middle half", "runs", "half-width", "E inside")
    yield from head(("study",), heads)
    yield _adaptive_line("the fixed grid", [(1.0, len(grid), interval, True) for interval in fixed])
    other = {"E": 1.9, "A": 8.0, "B": 3000.0, "alpha": 0.4, "beta": 0.7}
    for name, supposed in {"the truth is supposed": TRUTH, "other constants are": other, "nothing is": None}.items():
        beliefs = () if supposed is None else (Belief(CHINCHILLA, supposed),)
        outcomes = []
        for losses in draws:
            try:
                spent, *rest = _one_adaptive(goal, field, losses, 2.0 * price, beliefs)
            except ScalingError:
                continue
            outcomes.append((spent / price, *rest))
        yield _adaptive_line(name, outcomes)


def _one_adaptive(
    goal: Goal, field: Candidates, losses: np.ndarray, budget: float, beliefs: Sequence[Belief]
) -> tuple[float, int, Interval | None, bool]:
    """Choose runs as `scaling study --adaptive` does with one worker: the cost, the runs, the interval, the end."""
    rows: list[int] = []
    widths: list[float] = []
    spent = 0.0
    while True:
        seen = look(goal, [CHINCHILLA], field, rows, losses[rows], beliefs)
        widths.append(goal.width_of(seen.interval))
        choice = None if confirmed(widths, goal.half_width) else choose(goal, field, rows, seen, budget - spent)
        if choice is None:
            return spent, len(rows), seen.interval, confirmed(widths, goal.half_width)
        rows.append(choice.row)
        spent += choice.cost


def _adaptive_line(name: str, outcomes: Sequence[tuple[float, int, Interval | None, bool]]) -> str:
    costs, runs, bounds, reached = zip(*outcomes, strict=True)
    low, middle, high = np.quantile(costs, (0.25, 0.5, 0.75))
    half = np.median([GOAL.width_of(interval) for interval in bounds])
    inside = np.mean([interval is not None and interval.covers(TRUTH["E"]) for interval in bounds])
    cost = (f"{middle:.2f}", f"{low:.2f} to {high:.2f}", f"{np.median(runs):.0f}")
    return row(name, len(outcomes), sum(reached), *cost, f"{half:.4f}", f"{inside:.0%}")


def looks(field: Candidates, losses: np.ndarray, order: np.ndarray) -> Iterator[tuple[Interval, Interval | None]]:
    """Yield the interval of one look and that of all looks, after each run that leaves two degrees of freedom."""
    runs = [int(row) for row in order]
    for count in range(len(CHINCHILLA.parameters) + 2, len(runs) + 1):
        seen = look(GOAL, [CHINCHILLA], field, runs[:count], losses[runs[:count]])
        if seen.interval is not None:
            yield seen.interval, interval_of_all_looks(GOAL, field, runs[:count], seen, sorted(runs))


def repeated_looks(count: int) -> Iterator[str]:
    """Yield how often the interval of E misses at any look, where runs end in a random order."""
    field, missed, last, widths, opened = studies.candidates(), np.zeros(2), np.zeros(2), [], []
    for study in range(count):
        rng = np.random.Generator(np.random.Philox([1, study]))
        losses, order = studies.draw_candidates(field, rng), rng.permutation(len(field) // studies.SEEDS)
        seen = list(looks(field, losses, order))
        misses = [[not (each is None or each.covers(TRUTH["E"])) for each in pair] for pair in seen]
        missed, last = missed + np.any(misses, axis=0), last + misses[-1]
        opened += [pair[1] is None for pair in seen]
        one, every = seen[-1]
        widths += [] if every is None else [(every.high - every.low) / (one.high - one.low)]
    yield from head(("interval",), ("studies", "missed E at some look", "at the last look"))
    for name, some, end in zip(("of one look", "under repeated looks"), missed, last, strict=True):
        yield row(name, count, f"{some / count:.1%}", f"{end / count:.1%}")
    yield ""
    yield f"{np.mean(opened):.0%} of the looks had no interval under repeated looks yet."
    yield f"At the last look it is {np.median(widths):.2f} times as wide as that of one look, in the median."


def residuals(count: int) -> Iterator[str]:
    """Yield how often a fit names a size that does not fit: on independent noise, and where one size is off."""
    theta = dict(zip(CHINCHILLA.parameter_names, (1.8172, 482.01, 2085.43, 0.3478, 0.3658), strict=True))
    yield from head(("grid",), ("studies", "a size named, independent noise", "one size off by 3 standard deviations"))
    for sizes, budgets in ((6, 4), (5, 5), (10, 8)):
        axes = np.meshgrid(np.geomspace(1e7, 1e9, sizes), np.geomspace(1e9, 1e11, budgets))
        columns = {"N": axes[0].ravel(), "D": axes[1].ravel()}
        mean, off = studies.value(CHINCHILLA, theta, columns), columns["N"] == np.unique(columns["N"])[1]
        rates = []
        for shift in (0.0, 3.0):
            rng, found = np.random.default_rng(0), []
            while len(found) < count:
                loss = mean * np.exp(0.002 * (rng.standard_normal(len(mean)) + shift * off))
                try:
                    reasons = fit("chinchilla", {**columns, "loss": loss}, starts=64).unreliable
                except ScalingError:  # it did not converge
                    continue
                found.append(any("does not fit this size" in reason for reason in reasons))
            rates.append(f"{np.mean(found):.1%}")
        yield row(f"{sizes} sizes × {budgets} budgets", count, *rates)
