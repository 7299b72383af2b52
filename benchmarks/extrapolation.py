"""How well laws extrapolate on eight published tables of runs: R² of the most expensive runs, predicted from the rest.

    python benchmarks/extrapolation.py FOLDER [TASK …]

FOLDER holds the candidate runs of PlanarG/active-sl (arXiv 2604.22753, CC-BY-4.0). Each task's inner tests leave out
the largest runs by cost or along one column. `choose` chooses a law, which is fitted to the rest, and to those of its
runs that a design affords with a tenth of their cost. One table: R² with all runs, with a tenth of the cost, what the
paper reports on target regions that are not in the folder (another test than these), the law, and seconds of CPU time.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from scaling.base.errors import ScalingError
from scaling.laws import named
from scaling.laws.design import SPREAD, Candidates, Linear, greedy, scaled, surface
from scaling.laws.fit import fit
from scaling.laws.held_out import candidates, choose, cost_of, tolerant_objective
from scaling.laws.law import Columns, Law
from scaling.laws.points import Points
from scaling.laws.problem import OBJECTIVES

Frame = pd.DataFrame
BUDGET = 0.1
PILOT = 0.3
"""The fraction of a budget for runs that are spread before anything is known."""
BATCHES, BATCH_STARTS = 4, 48


@dataclass(frozen=True)
class Task:
    """A table: its columns under the laws' names, the tests, and the paper's R² with 10% of the cost and with all."""

    columns: Mapping[str, str | Callable[[Frame], pd.Series]]
    tests: Mapping[str, str]
    """Which column a test leaves out the largest of."""
    paper: tuple[float, float]
    targets: tuple[str, ...] = ("loss",)
    by: str | None = None
    laws: tuple[str, ...] = ()
    """Laws that the task is known to be of; by default all those whose columns it has."""


TASKS = {
    "lr_bsz": Task(
        {"lr": "lr", "B": "bsz", "N": "non_embedding_param_size", "D": "data_size", "loss": "lm_loss"},
        {"cost": "cost", "N": "N", "D": "D"},
        (0.22, 0.04),
    ),
    "domain_mixture": Task(
        {
            **{f"p_{i}": f"proportion_domain_{i}" for i in range(1, 6)},
            **{f"loss_{i}": f"loss_domain_{i}" for i in range(1, 6)},
            "N": lambda frame: frame.group.str[:-1].astype(float) * 1e6,
        },
        {"cost": "cost"},
        (0.95, 0.81),
        tuple(f"loss_{i}" for i in range(1, 6)),
    ),
    "vocab": Task(
        {"N": "non_vocab_parameters", "V": "vocab_size", "H": "num_characters", "loss_u": "unigram_normalized_loss"},
        {"cost": "cost", "N": "N", "V": "V"},
        (0.98, 0.93),
        ("loss_u",),
    ),
    "parallel": Task(
        {"N": "num_params", "streams": "parallel_size", "loss": "loss"},
        {"cost": "cost", "streams": "streams"},
        (0.99, 0.99),
        by="group",
    ),
    "moe": Task(
        {"N": "dense_parameter_count", "experts": "num_experts", "loss": "loss_validation"},
        {"cost": "cost", "experts": "experts"},
        (0.83, 0.81),
        laws=("routed_experts_floor",),
    ),
    "data_constrained": Task(
        {"N": "params", "D": "tokens", "U": "unique_tokens", "loss": "loss"},
        {"cost": "cost", "N": "N", "D": "D", "U": "U"},
        (0.86, 0.79),
    ),
    "sparsity": Task(
        {
            "N": "N_dense",
            "K": lambda frame: frame.N_active / frame.N_dense,
            "P": "P",
            "D": "D2",
            "loss": "loss",
        },
        {"cost": "cost", "N": "N", "D": "D", "P": "P"},
        (0.53, 0.37),
    ),
    "farseer": Task({"N": "N", "D": "D", "loss": "loss"}, {"cost": "cost", "N": "N"}, (0.93, 0.91), laws=("farseer",)),
}


def main() -> None:
    warnings.simplefilter("ignore")
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(TASKS)
    heads = "| task | held out | runs | R², all | R², 10% of the cost | paper, all | paper, 10% | laws | CPU seconds |"
    print(heads, "|---|---|--:|--:|--:|--:|--:|---|--:|", sep="\n", flush=True)
    for name in names:
        task = TASKS[name]
        frame = pd.read_parquet(folder / f"{name}.parquet")
        groups = [group for _, group in frame.groupby(task.by)] if task.by else [frame]
        for test, column in task.tests.items():
            begin, laws, scores, runs = time.process_time(), [], [], 0
            for group in groups:
                table = {
                    new: np.asarray(group[old] if isinstance(old, str) else old(group), float)
                    for new, old in task.columns.items()
                }
                for target in task.targets:
                    own = {key: value for key, value in table.items() if key not in task.targets} | {
                        "loss" if target.startswith("loss_") and target[5:].isdecimal() else target: table[target]
                    }
                    every, tenth, count, law = judge(Points(own), column, task.laws)
                    scores.append((every, tenth))
                    laws.append(law)
                    runs += count
            every, tenth = np.mean(scores, axis=0)
            kinds = ", ".join(dict.fromkeys(laws))
            print(
                f"| {name} | largest {test} | {runs // len(task.targets)} | {every:.3f} | {tenth:.3f} "
                f"| {task.paper[1]} | {task.paper[0]} | {kinds} | {time.process_time() - begin:.0f} |",
                flush=True,
            )


def choose_runs(
    forms: Sequence[Law],
    table: Columns,
    observe: Callable[[np.ndarray], np.ndarray],
    cost: np.ndarray,
    budget: float,
    targets: Columns,
    *,
    seed: int = 0,
) -> np.ndarray:
    """Rows of `table` to run within `budget`; `observe(rows)` runs them. `targets` are the rows to predict.

    The first runs are spread over the columns for little cost. Then the law is fitted to what is known, and runs are
    added that lower the mean variance of the law at the targets (I-optimality); the law is fitted again after each
    batch. The batches take turns in the laws, so that the runs inform each of them.
    """
    if cost.min() <= 0:
        raise ScalingError("must be positive", key="cost", value=float(cost.min()), fix="give each run its cost")
    candidates = Candidates(
        {name: np.asarray(column, float) for name, column in table.items()},
        np.arange(len(cost)),
        np.zeros(len(cost)),
        cost,
    )
    spread = surface(candidates.columns, candidates.trunks)
    fewest = max(len(form.parameters) for form in forms) + 3
    chosen = greedy(spread, candidates, PILOT * budget, fewest=fewest, most=budget)
    losses = observe(np.array(chosen, int))
    for batch in range(BATCHES):
        form = forms[batch % len(forms)]
        allowed = (budget - float(candidates.own[chosen].sum())) / (BATCHES - batch)
        known = Points({name: candidates.at(chosen)[name] for name in form.inputs} | {form.target: losses})
        try:
            fitted = fit(form, known, objective=tolerant_objective(form), starts=BATCH_STARTS, seed=seed)
            # Of the loss itself, whichever space it is fitted in: what counts is the square error there.
            law = replace(fitted.problem, objective=OBJECTIVES["squared"])
            rows, wanted = (
                law.derivative(fitted.u[None], {name: np.asarray(at[name], float) for name in form.inputs})[0, 1:].T
                for at in (table, targets)
            )
            units = scaled(np.delete(rows, chosen, axis=0))
            linear = Linear(rows, wanted, candidates.trunks, known=SPREAD, basis=units)
        except ScalingError:
            linear = spread
        more = greedy(linear, candidates, allowed, taken=chosen)
        if more:
            losses, chosen = np.concatenate([losses, observe(np.array(more))]), [*chosen, *more]
    return np.array(chosen, int)


def judge(points: Points, column: str, laws: tuple[str, ...]) -> tuple[float, float, int, str]:
    """R² with all the smaller runs and with a tenth of their cost, how many runs are held out, and the law."""
    cost = cost_of(points)
    assert cost is not None
    values = cost if column == "cost" else points.numbers(column)
    mask = values >= np.sort(values)[-max(1, round(0.2 * len(values)))] * (1.0 - 1e-9)
    rest, tested = points.take(np.flatnonzero(~mask)), points.take(np.flatnonzero(mask))
    forms = [named(name) for name in laws] or candidates(rest)
    choice = choose(rest, forms)
    every = score(choice.fit(rest), tested)
    inputs = list(dict.fromkeys(name for form in forms for name in form.inputs))
    target = forms[0].target
    losses = rest.numbers(target)
    rows = choose_runs(
        forms,
        {name: rest.numbers(name) for name in inputs},
        lambda chosen: losses[chosen],
        cost[~mask],
        BUDGET * cost[~mask].sum(),
        {name: tested.numbers(name) for name in inputs},
    )
    few = rest.take(rows)
    assert cost[~mask][rows].sum() <= BUDGET * cost[~mask].sum() * (1 + 1e-9)
    try:
        tenth = score(choose(few, forms).fit(few), tested)
    except ScalingError:
        tenth = float("nan")
    return every, tenth, int(mask.sum()), choice.trials[0].form.name


def score(found, tested: Points) -> float:
    observed = tested.numbers(found.form.target)
    predicted = found.predict(**{name: tested.numbers(name) for name in found.form.inputs})
    return float(1.0 - np.sum((predicted - observed) ** 2) / np.sum((observed - observed.mean()) ** 2))


if __name__ == "__main__":
    main()
