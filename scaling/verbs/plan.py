"""Estimate what a study will cost and which interval it will give, before it is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scaling.base.errors import ScalingError, plural
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
    """What is printed of a plan: its question, a row a run, and the sentences of the whole."""
    total, outlook, adaptive = document["total"], document["outlook"], document.get("adaptive")
    places = {name: there for name, there in total.items() if isinstance(there, Mapping)}  # the devices of `on`
    titles, rows = ["run", "N", "D", "C", "warmup steps", "evaluations", "time", "memory"], []
    for name, whole in places.items():
        titles += [name, "on each", *(["price"] if "price" in whole else [])]
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
            cells += [span(there["seconds"]), footprint, *([f"{there['price']:,.2f}"] if "price" in there else [])]
        rows.append(cells)
    yield document["question"]
    yield titles, rows
    if (hidden := len(document["runs"]) - MOST_ROWS) > 0:
        yield f"… and {hidden:,} more (--json lists all)"
    yield ""
    beside = f", {total['beside']} beside them to see whether they are tuned" if total["beside"] else ""
    yield f"{plural(total['runs'], 'run')}, {total['held_out']} of them held out{beside}: {total['C']:.3g} FLOPs"
    if total["trunks"]:
        saved = f"{total['saved']:.0%} of {total['C_without_trunks']:.3g} FLOPs is saved"
        yield f"{plural(total['trunks'], 'trunk')} shared: {saved}; a branch's time is its own"
    evaluation = total["C_evaluation"] / total["C_without_trunks"]
    fewer = "; set evaluate.windows, as to 256, where that is too much" if evaluation > MUCH else ""
    yield f"evaluations add {evaluation:.1%} to the FLOPs of the runs{fewer}"
    if "seconds" in total:
        time = f"{span(total['seconds'])} of a worker's time, by a few steps timed here"
        yield f"on this machine {time}; {plural(total['workers'], 'worker')}"
        if total["busy"]:
            yield "  the machine had other work when they were timed; alone it may be faster"
    else:
        yield "this machine is too small to time a step of these models"
    for name, there in places.items():
        hours, price = there["device_hours"], there.get("price")
        money = "" if price is None else f", {price:,.0f} at {price / hours:g} an hour"
        fits = "" if there["fits"] else f"; it does not fit: {byte_size(there['bytes'])} on each"
        devices = f"on {there['devices']:,} × {name} at {there['utilisation']:.0%} of the peak"
        yield f"{devices}: {span(there['seconds'])}, {hours:,.1f} device hours{money}{fits}"
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
        yield adaptive["sentence"]
        yield "  in this order, each with half the width of the interval that is expected after it:"
        for number, decision in enumerate(adaptive["decisions"], start=1):
            width = decision["expected_half_width"]
            yield f"  {number:3}  {'open' if width is None else f'± {width:.3g}':>10}  {decision['name']}"


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

        scaling.plan("chinchilla_isoflop", at="paper", on=["H100"], devices=4096, sharding="fsdp").total

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
    given, goal = list(overrides), None if adaptive is None else parse_goal(adaptive)
    question = read(study, at, given)
    places = [elsewhere(device, Layout(devices, sharding, tensor), utilisation, price) for device in on]
    if goal is not None:
        question = extended(question, goal, budget, given)
    data = "prepared"
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
    heading, table, *lines = _printed(document)
    return StudyPlan(document, [heading, table, "\n".join(map(str, lines))])


def refuse_budget(adaptive: str | None, budget: float | None) -> None:
    """Refuse a budget where nothing is chosen within it."""
    if budget is not None and adaptive is None:
        raise ScalingError("is of an adaptive study", key="--budget", value=budget, fix="add --adaptive 'E ± 0.01'")
