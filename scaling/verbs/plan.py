"""Estimate what a study will cost and which interval it will give, before it is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scaling.base.errors import ScalingError
from scaling.base.printing import byte_size, interval, span
from scaling.base.standard_error import say
from scaling.config.schema import NonNegativeFloat, PositiveFloat, PositiveFraction, PositiveInt
from scaling.studies.question import placed, read
from scaling.verbs.verb import Result, Table, verb

if TYPE_CHECKING:
    import pandas

StudySource = str | Path | Mapping[str, Any]
"""A shipped study's name, a path, or the fields of a study with a `name`."""
MOST_ROWS = 60  # of a table on a terminal
MUCH = 0.25  # of the FLOPs of the runs, which evaluations add


class StudyPlan(Result):
    """The costs of a study and the interval that it is expected to give. Printed, it is `scaling plan`.

    The keys of its document (docs/json.md) are attributes: `total` has runs, FLOPs and time of the whole, `outlook` the
    interval that the target is expected to get, or the reason why it cannot be predicted.
    """

    @property
    def runs(self) -> pandas.DataFrame:
        """A row a run: N, D, C, seconds and bytes on this machine."""
        import pandas

        return pandas.DataFrame(self.document["runs"])


def _printed(document: Mapping[str, Any]) -> Iterator[str | Table]:
    """What is printed of a plan: its question, a row a run, the costs of the whole, and what it will identify."""
    total, outlook, adaptive = document["total"], document["outlook"], document.get("adaptive")
    places = {name: there for name, there in total.items() if isinstance(there, Mapping)}  # the devices of `on`
    titles, rows = ["run", "N", "D", "C", "warmup steps", "evaluations", "time", "memory"], []
    for row in document["runs"][:MOST_ROWS]:
        cells = [
            row["name"] + ("  beside" if row["beside"] else "  held out" if row["held_out"] else ""),
            row["N"],
            f"{row['D']:.3g}",
            f"{row['C']:.3g}",
            f"{row['warmup']:,} of {row['steps']:,}",
            f"{row['evaluations']}, {row['C_evaluation'] / row['C']:.1%} of C",
            span(row["seconds"]),
            byte_size(row["bytes"]),
        ]
        for there in map(row.get, places):
            footprint = byte_size(sum(there["bytes"].values())) + ("" if there["fits"] else " too much")
            cells += [span(there["seconds"]), footprint]
        rows.append(cells)
    yield document["question"]
    yield [*titles, *(title for name in places for title in (name, "on each"))], rows
    if (hidden := len(document["runs"]) - MOST_ROWS) > 0:
        yield f"… and {hidden:,} more (--json lists all)"
    evaluation = total["C_evaluation"] / total["C_without_trunks"]
    fewer = "; set evaluate.windows, as to 256, where that is too much" if evaluation > MUCH else ""
    time = span(total["seconds"]) if "seconds" in total else "too small to time these models"
    costs = [
        ["runs", total["runs"]],
        ["  held out", total["held_out"]],
        ["  beside them, to see whether they are tuned", total["beside"] or None],
        ["FLOPs", f"{total['C']:.3g}"],
        ["  saved by shared trunks", f"{total['saved']:.0%}" if total["trunks"] else None],
        ["  added by evaluations", f"{evaluation:.1%}{fewer}"],
        ["time of a worker on this machine", time],
        ["  it had other work when it was timed", "alone it may be faster" if total.get("busy") else None],
        ["  workers", total["workers"]],
    ]
    for name, there in places.items():
        costs += [
            [f"time on {there['devices']:,} × {name}", span(there["seconds"])],
            ["  fraction of the peak", f"{there['utilisation']:.0%}"],
            ["  device hours", f"{there['device_hours']:,.1f}"],
            ["  price", f"{there['price']:,.0f}" if "price" in there else None],
            ["  memory of each", byte_size(there["bytes"]) + ("" if there["fits"] else ", too much")],
        ]
    yield ["", "in all"], [row for row in costs if row[1] is not None]
    if document["shortfall"] is not None:
        yield document["shortfall"]["sentence"]
    if outlook is not None and "reason" in outlook:
        yield f"the interval that it will give cannot be predicted: {outlook['reason']}"
    elif outlook is not None:
        supposed = ", ".join(f"{name} {value:.4g}" for name, value in outlook["supposed"].items())
        yield f"{outlook['target']} is expected as 95% interval of the mean {interval(outlook)}"
        yield f"  were the law {supposed} and the noise of log loss {outlook['noise']:g}"
    if adaptive is not None and "reason" in adaptive:
        yield f"what an adaptive study will choose cannot be predicted: {adaptive['reason']}"
        yield f"  the {adaptive['candidates']} runs above are its candidates, of which it trains what it needs"
    elif adaptive is not None:
        widths = {decision["name"]: decision["expected_half_width"] for decision in adaptive["decisions"]}
        yield adaptive["sentence"]
        rows = [[name, "open" if width is None else f"± {width:.3g}"] for name, width in widths.items()]
        yield ["runs in the order of choice", "expected after it"], rows


@verb
def plan(
    study: StudySource,
    *overrides: str,
    at: str | None = None,
    on: Sequence[str] = (),
    devices: PositiveInt = 1,
    sharding: Literal["ddp", "fsdp"] = "ddp",
    tensor: PositiveInt = 1,
    utilisation: PositiveFraction = 0.4,
    price: NonNegativeFloat | None = None,
    adaptive: str | None = None,
    budget: PositiveFloat | None = None,
    **settings: Any,
) -> StudyPlan:
    """Estimate what a study will cost and what it will identify: every run, time, memory, money, the interval.

        scaling plan quickstart
        scaling plan quickstart --adaptive 'E ± 0.02'
        scaling plan chinchilla_isoflop --at paper --on H100 --devices 4096 --sharding fsdp --tensor 8 --price 2.50

    Overrides hold for every run. Nothing is trained; a few steps are timed. Where the data are not prepared, a
    synthetic language takes their place.

    Args:
        study: a shipped study, a path, or in Python the fields of a study as a dict
        on: a device of configs/devices.yaml; repeats
        devices: how many of them train a run
        sharding: what each of them holds
        tensor: how many share each matrix
        utilisation: of the devices' peak
        price: of one device for an hour
        adaptive: the goal of `scaling study --adaptive`; the runs that it is expected to choose
    """
    from scaling.laws.next_run import parse_goal
    from scaling.studies.adaptive import Field, extended
    from scaling.studies.estimate import costs, elsewhere
    from scaling.studies.machine import Layout
    from scaling.studies.plan import plan as plan_runs

    refuse_budget(adaptive, budget)
    given, goal, data = list(overrides), None if adaptive is None else parse_goal(adaptive), "prepared"
    question = read(study, at, given)
    places = [elsewhere(device, Layout(devices, sharding, tensor), utilisation, price) for device in on]
    if goal is not None:
        question = extended(question, goal, budget, given)
    with placed(study, at, given):
        try:
            planned = plan_runs(question, given)
        except ScalingError as error:
            if error.key != "data":
                raise
            say("; ".join(filter(None, (error.what, error.fix, "the costs are estimated without them"))))
            planned, data = plan_runs(question, given, "stand_in"), "stand_in"
    if goal is None:
        document = costs(planned, data, places)
    else:
        planned, simulated = Field(planned, goal).simulated(budget)
        document = {**costs(planned, data, places, outlook=False), "adaptive": simulated}
    return StudyPlan(document, list(_printed(document)))


def refuse_budget(adaptive: str | None, budget: float | None) -> None:
    """Refuse a budget where nothing is chosen within it."""
    if budget is not None and adaptive is None:
        raise ScalingError("is of an adaptive study", key="--budget", value=budget, fix="add --adaptive 'E ± 0.01'")
