"""Adaptive: a study that chooses its runs, one after another, until the interval of its goal is narrow enough; and the
law of any study while its runs go on.

The candidates are the runs of the study's grid, each with further seeds. With w workers a decision knows the results
of all runs before the w - 1 that were chosen last, whichever of these are done: so it is the same however fast the
workers are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from scaling.base.errors import ScalingError, plural, refuse
from scaling.base.printing import interval
from scaling.config.compose import load
from scaling.laws import Law, named
from scaling.laws.compare import joint
from scaling.laws.design import Candidates
from scaling.laws.intervals import LEVEL
from scaling.laws.law import VARIANT
from scaling.laws.next_run import (
    Belief,
    Choice,
    Goal,
    Look,
    choose,
    confirmed,
    expected_path,
    interval_of_all_looks,
    look,
    parse_goal,
    width_after,
)
from scaling.laws.problem import PRIOR_CORRELATION
from scaling.ledger import Ledger
from scaling.ledger.document import Damaged, publish
from scaling.ledger.document import read as read_document
from scaling.ledger.run import now
from scaling.studies.identifiability import NOISE, supposed_estimates
from scaling.studies.plan import Plan, Run, enter, plan
from scaling.studies.progress import finished_loss, settled
from scaling.studies.question import Question, Source, axes_of, read
from scaling.studies.question import named as name_of
from scaling.studies.tasks import with_tasks

DECISIONS = "decisions"  # the folder of a study's decisions, on record before anything follows from them
SEEDS = 3
"""Of each candidate, where the study does not name its seeds: the best designs repeat few sizes and budgets."""


Decision = Mapping[str, Any]


def decisions(ledger: Ledger, study: str) -> list[Decision]:
    """The recorded decisions of a study, in their order; empty where it is not adaptive."""
    folder, recorded = ledger.study_folder(study) / DECISIONS, list[Decision]()
    numbers = [int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()]
    for number in range(1, max(numbers, default=0) + 1):  # a decision is written after those before it
        path, fix = folder / f"{number:04d}.json", "delete the decisions from this one on; they are then made again"
        try:
            document = read_document(path)
        except Damaged as damage:
            raise ScalingError(f"the decision is damaged: {damage}", file=path, fix=fix) from None
        if document is None:
            raise ScalingError("the decision is missing, and later ones are here", file=path, fix=fix)
        recorded.append(document)
    return recorded


def decide(ledger: Ledger, study: str, number: int, document: Decision) -> None:
    """Put the decision of this number on record; where another command was quicker, its decision stands."""
    publish(ledger.study_folder(study) / DECISIONS / f"{number:04d}.json", document)


def is_open(made: Sequence[Decision]) -> bool:
    """Whether further runs may be chosen."""
    return bool(made) and "concluded" not in made[-1]


def extended(question: Question, goal: Goal, budget: float | None, words: Sequence[str]) -> Question:
    """The study under a name of its own, whose grid has further seeds."""
    if question.law is None:
        raise ScalingError("the study asks for no law", key="--adaptive", value=goal.text, fix="write law: chinchilla")
    first = load(question.base, [f"{key}={value}" for key, value in question.set.items() if key == "seed"])["seed"]
    fixed = "seed" in question.set or any(word.startswith("seed=") for word in words)
    grid = []
    for line in [question.grid] if isinstance(question.grid, Mapping) else question.grid:
        axes = axes_of(line)
        if not fixed and "seed" not in axes:
            axes = {**axes, "seed": [first + offset for offset in range(SEEDS)]}
        grid.append({**line, "axes": axes} if "kind" in line else axes)
    parts = [f"adaptive={goal.text.replace('%', ' percent')}", *([] if budget is None else [f"budget={budget:g}"])]
    name = name_of(question.name, None, parts)
    return replace(question, name=name, grid=grid)


class Expected(NamedTuple):
    """The choices that are expected, their FLOPs, the half-width after them, and whether that is the goal's."""

    path: Sequence[Choice]
    cost: float
    width: str
    reached: bool


@dataclass(frozen=True)
class Field:
    """The candidates of a study's plan, as runs and as what the choice among them reads."""

    plan: Plan
    goal: Goal

    @cached_property
    def runs(self) -> list[Run]:
        return [run for run in self.plan.runs if not run.held_out]

    @cached_property
    def variants(self) -> list[str]:
        """The rows of a table that the study compares."""
        return list(dict.fromkeys(run.row for run in self.runs if run.row is not None))

    @cached_property
    def rows(self) -> list[Mapping[str, Any]]:
        """The columns of each candidate, with the place of its row among those that are compared."""
        codes = [{} if run.row is None else {VARIANT: self.variants.index(run.row)} for run in self.runs]
        return [{**run.point, **code} for run, code in zip(self.runs, codes, strict=True)]

    @cached_property
    def forms(self) -> list[Law]:
        """The laws in competition: those that know the goal."""
        question = self.plan.question
        if len(self.variants) > 1:
            first, *others = [joint(named(str(question.law)), self.variants)]
        else:
            first, *others = map(named, question.laws)
        self.goal.quantity(first)
        for name in first.inputs:
            what = f"{first.name} needs {name}, which the runs of this study do not have"
            refuse(name not in self.rows[0], what, "take another law", key="law")
        forms = [first]
        for form in others:
            with suppress(ScalingError):  # it does not know the goal
                self.goal.quantity(form)
                forms += [form] if all(name in self.rows[0] for name in form.inputs) else []
        return forms

    @cached_property
    def candidates(self) -> Candidates:
        trunks = [run.run if run.trunk is None else run.trunk.run for run in self.runs]
        inputs = dict.fromkeys(name for form in self.forms for name in form.inputs)
        columns = {name: np.array([row[name] for row in self.rows], float) for name in inputs}
        stems = np.array([0.0 if run.trunk is None else run.trunk.flops for run in self.runs])
        flops = np.array([run.flops for run in self.runs])
        return Candidates(columns, np.unique(trunks, return_inverse=True)[1].reshape(-1), stems, flops)

    @cached_property
    def grid_cost(self) -> float:
        """FLOPs of the fixed grid that the candidates extend: its runs of the first seed, with their trunks."""
        first = min(row["seed"] for row in self.rows)
        of_first_seed = [place for place, row in enumerate(self.rows) if row["seed"] == first]
        order = sorted(of_first_seed, key=lambda place: self.candidates.stem[place])
        return sum(float(self.candidates.cost(order[:place])[row]) for place, row in enumerate(order))

    def allowed(self, budget: float | None) -> float:
        """The FLOPs that the choice may spend: those of the grid, unless a budget is given."""
        cheapest = float(self.candidates.cost([]).min())
        fix = f"the cheapest takes {cheapest:.3g} FLOPs"
        refuse(budget and budget < cheapest, "pays for no run of the study", fix, key="--budget", value=budget)
        return budget or self.grid_cost

    def with_tests(self, chosen: Collection[str]) -> Plan:
        """The plan of the chosen runs, the held-out runs, and those beside a chosen run to see whether it is tuned."""
        rungs = {"", None, *(run.name for run in self.runs if run.run in chosen)}
        tests = {run.run for run in self.plan.runs if run.held_out and run.point.get("beside") in rungs}
        return restricted(self.plan, {*chosen, *tests})

    @cached_property
    def supposed(self) -> Look:
        """The laws as the study, or a paper for runs of such sizes, supposes them, and the noise."""
        suppose, beliefs = {"noise": NOISE, **self.plan.question.suppose}, list[Belief]()
        for form in self.forms:
            estimates = supposed_estimates(form, suppose, self.rows)
            if all(name in estimates for name in form.parameter_names):
                beliefs.append(Belief(form, {name: estimates[name] for name in form.parameter_names}))
        beliefs = [replace(belief, weight=1.0 / len(beliefs)) for belief in beliefs]
        return Look(tuple(beliefs), suppose["noise"], PRIOR_CORRELATION)

    def expected(self, budget: float) -> Expected | None:
        """The choices that a budget is expected to pay for; None where nothing is supposed of the laws."""
        if not self.supposed.beliefs:
            return None
        goal = self.goal
        path = expected_path(goal, self.candidates, self.supposed, budget, goal.half_width)
        last = width_after(path[-1])
        return Expected(path, sum(choice.cost for choice in path), goal.spelled(last), last <= goal.half_width)

    def simulated(self, budget: float | None) -> tuple[Plan, dict[str, Any]]:
        """The plan of the runs that are expected to be chosen, and what they are expected to reach."""
        budget = self.allowed(budget)
        document: dict[str, Any] = {"goal": self.goal.text, "budget": budget, "candidates": len(self.runs)}
        expected = self.expected(budget)
        if expected is None:
            reason = "nothing is known of the law's parameters; write suppose: into the study"
            return self.plan, {**document, "reason": reason}
        chosen = [(self.runs[choice.row], choice.expected) for choice in expected.path]
        return self.with_tests({run.run for run, _ in chosen}), {
            **document,
            "reached": expected.reached,
            "half_width": expected.path[-1].expected,
            "C": expected.cost,
            "decisions": [{"name": run.name, "expected_half_width": width} for run, width in chosen],
            "sentence": self.sentence(expected, budget),
        }

    def sentence(self, expected: Expected, budget: float) -> str:
        """A sentence on the expected cost of the goal."""
        goal, count, cost = self.goal.text, len(self.runs), expected.cost
        if expected.reached:
            runs = f"{plural(len(expected.path), 'run')} of {count} candidates, {cost:.3g} FLOPs"
            return f"{goal} is expected of {runs}: {cost / self.grid_cost:.0%} of the grid's"
        longest = self.expected(float("inf")) or expected
        if longest.reached:
            gives = f"a budget of {budget:.3g} gives {expected.width}"
            return f"{goal} is expected to take {longest.cost:.3g} FLOPs; {gives}"
        return f"{goal} is out of reach: all {count} candidates, {longest.cost:.3g} FLOPs, give {longest.width}"


def decider(
    source: Source,
    at: str | None,
    words: Sequence[str],
    goal: Goal,
    budget: float | None,
    workers: int | None,
    tasks: Sequence[str],
) -> Decider:
    """What chooses the runs of an adaptive study; refused where its goal is out of reach."""
    from scaling.studies.machine import sized

    question = extended(read(source, at, words), goal, budget, words)
    candidates = with_tasks(plan(question, words), tasks)
    options = ("--adaptive", goal.text, *([] if budget is None else ["--budget", f"{budget:g}"]))
    field = Field(replace(candidates, command=(*candidates.command, *options)), goal)
    budget, ledger = field.allowed(budget), field.plan.ledger()
    if not decisions(ledger, question.name):
        expected = field.expected(budget)
        if expected is not None and not expected.reached:  # refused, with what can be reached
            fix = "ask for a wider interval, raise --budget, or add sizes and budgets to the grid"
            raise ScalingError(field.sentence(expected, budget), key="--adaptive", value=goal.text, fix=fix)
    return Decider(ledger, field, budget, sized(field.plan, workers).workers)


class Decider:
    """Makes the decisions of a study as its runs come to their end, and enters what they choose into its plan."""

    def __init__(self, ledger: Ledger, field: Field, budget: float, window: int):
        self.ledger, self.field, self.budget = ledger, field, budget
        self.name = field.plan.question.name
        recorded = decisions(ledger, self.name)
        self.window = recorded[0]["workers"] if recorded else window
        self.place = {run.run: place for place, run in enumerate(field.runs)}
        self._look = lru_cache(maxsize=1)(self._look_at)
        self._enter = lru_cache(maxsize=1)(self._entered)

    def __call__(self) -> Plan:
        """The plan by now, after all decisions that can be made."""
        recorded = decisions(self.ledger, self.name)
        while not recorded or is_open(recorded):
            if recorded:
                self._plan(recorded)  # what was decided before a kill is entered after it
            further = self._next(recorded)
            if further is None:
                break
            decide(self.ledger, self.name, len(recorded) + 1, {**further, "decided": now()})
            recorded = decisions(self.ledger, self.name)
        return self._plan(recorded)

    def _plan(self, made: Sequence[Decision]) -> Plan:
        """The plan of the runs that were chosen; those that are held out belong to it once no more are chosen."""
        names = {decision["run"] for decision in made if "run" in decision}
        if self.name in self.ledger.studies():  # another command may have gone further
            names |= set(self.ledger.runs_of(self.name))
        return self._enter(frozenset(names), is_open(made))

    def _entered(self, names: frozenset[str], has_more: bool) -> Plan:
        plan = restricted(self.field.plan, names) if has_more else self.field.with_tests(names)
        enter(self.ledger, plan)
        return plan

    def _next(self, made: Sequence[Decision]) -> dict[str, Any] | None:
        """The next decision; None where it waits for runs. Nothing is concluded before all runs have ended."""
        chosen = [self.place[decision["run"]] for decision in made]
        for known in (chosen[: max(0, len(chosen) - self.window + 1)], chosen):
            if not all(settled(self.ledger, self.field.runs[row].run) for row in known):
                break
            decision = self._decision(made, chosen, known)
            if "run" in decision or known == chosen:
                return decision
        return None

    def _decision(self, made: Sequence[Decision], chosen: Sequence[int], known: Sequence[int]) -> dict[str, Any]:
        """The next run by the results of the runs that are known, or that no further one is chosen."""
        goal, runs, seen = self.field.goal, self.field.runs, self._look(tuple(known))
        spent, width = sum(decision["flops"] for decision in made), goal.width_of(seen.interval)
        before = [float("inf") if one["half_width"] is None else one["half_width"] for one in made[-1:]]
        reached = confirmed([*before, width], goal.half_width)
        failed = [row for row in known if self._loss(row) is None]
        counted = [row for row in chosen if row not in failed]
        left = self.budget - spent
        choice = None if reached else choose(goal, self.field.candidates, counted, seen, left, closed=failed)
        common = {
            "goal": goal.text,
            "workers": self.window,
            "budget": self.budget,
            "known": [runs[row].run for row in known],
            "pending": [runs[row].run for row in chosen[len(known) :]],
            "interval": None if seen.interval is None else seen.interval.to_json(),
            "half_width": width if np.isfinite(width) else None,
            "laws": [{"law": each.form.name, "weight": each.weight} for each in seen.beliefs],
            "noise": seen.noise,
            "correlation": seen.correlation,
        }
        if choice is None:
            why = "reached" if reached else "candidates" if len(set(chosen)) == len(runs) else "budget"
            return {"concluded": why, **common, "spent": spent}
        return {
            "run": runs[choice.row].run,
            "name": runs[choice.row].name,
            "reason": choice.reason,
            **common,
            "expected_half_width": choice.expected,
            "others": [{"name": runs[row].name, "score": score} for row, score in choice.others],
            "flops": choice.cost,
            "spent": spent + choice.cost,
        }

    def _loss(self, row: int) -> float | None:
        return finished_loss(self.ledger, self.field.runs[row].run)

    def _look_at(self, known: tuple[int, ...]) -> Look:
        """The laws as the runs that are known show them."""
        losses = {row: loss for row in known if (loss := self._loss(row)) is not None}
        field, values = self.field, np.array(list(losses.values()))
        beliefs, noise = field.supposed.beliefs, field.supposed.noise
        return look(field.goal, field.forms, field.candidates, list(losses), values, beliefs, noise)


def restricted(plan: Plan, names: Collection[str]) -> Plan:
    """The plan of some of its runs."""
    return replace(plan, runs=tuple(run for run in plan.runs if run.run in names))


# The law of a study while its runs go on


def losses_of(ledger: Ledger, plan: Plan) -> dict[str, float]:
    """The losses of the finished runs that the law is fitted to."""
    losses = {run.run: finished_loss(ledger, run.run) for run in plan.runs if not run.held_out}
    return {run: loss for run, loss in losses.items() if loss is not None}


def live_law(plan: Plan, losses: Mapping[str, float], made: Sequence[Decision] = ()) -> tuple[dict[str, Any], str]:
    """A look at the law with the runs that have finished, by their losses, as `scaling watch --json` has it, and in a
    line; `made` are the decisions of the study. `interval` holds at all looks together, `interval_of_one_look` had this
    been the only one.
    """
    keys = ("law", "quantity", "interval", "interval_of_one_look", "reason")
    document: dict[str, Any] = {"finished": len(losses), **dict.fromkeys(keys)}
    runs = plural(len(losses), "run")
    try:
        refuse(plan.question.law is None, "the study asks for no law")
        field = Field(plan, parse_goal(made[0]["goal"]) if made else _goal(plan))
        rows = [place for place, run in enumerate(field.runs) if run.run in losses]
        values = np.array([losses[field.runs[row].run] for row in rows])
        seen = look(field.goal, field.forms, field.candidates, rows, values)
        document["law"] = field.forms[0].name
        refuse(seen.interval is None, f"{runs}, and the law has {len(field.forms[0].parameters)} parameters")
    except ScalingError as error:
        return document | {"reason": error.what}, f"no interval yet: {error.what}"
    assert seen.interval is not None
    # A study ends with all its runs, an adaptive one where its goal is reached.
    end = None if made else range(len(field.runs))
    always = interval_of_all_looks(field.goal, field.candidates, rows, seen, end)
    one = document["interval_of_one_look"] = seen.interval.to_json()
    document["quantity"] = field.goal.name
    document["interval"] = None if always is None else {**always.to_json(), "level": LEVEL}
    open_or = "open" if always is None else interval(always.to_json())
    estimate = f"{field.goal.name} = {seen.interval.estimate:.4g} ({document['law']}, {runs})"
    return document, f"{estimate}: 95% interval under repeated looks {open_or}; of one look {interval(one)}"


def _goal(plan: Plan) -> Goal:
    """What a study that names no goal is watched for: the floor of its law, or else the loss of its target."""
    form = named(str(plan.question.law))
    floor = next((each.name for each in form.parameters if each.linear and each.scale == "linear"), None)
    if floor is not None:
        return Goal(floor, floor, float("inf"))
    place = dict(plan.question.target)
    if not place:
        largest = max((run.point for run in plan.runs), key=lambda point: point["C"])
        place = {name: float(largest[name]) for name in form.inputs}
    text = " ".join(f"{name}={value:.3g}" for name, value in place.items())
    return Goal(f"{form.target} at {text}", form.target, float("inf"), "absolute", place)
