"""Provenance: what a study took, on what, with which versions, and the words that make it again."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import yaml

from scaling.config import shipped
from scaling.errors import plural
from scaling.ledger import Ledger, Record
from scaling.ledger.run import INTERRUPTIONS, hardware, spans
from scaling.printing import span
from scaling.reports.markup import Html, join, scientific, table, tag
from scaling.studies.decisions import Decision, options
from scaling.studies.findings import Findings
from scaling.studies.question import named

if TYPE_CHECKING:
    from scaling.studies.plan import Plan


@dataclass(frozen=True)
class ComputeSpent:
    """`flops` were spent on finished runs and trunks, `apart` would have been without shared trunks."""

    flops: float
    apart: float
    attempts: int
    interrupted: int
    """Attempts that ended without a result and are no trunk's."""
    worker_seconds: float
    elapsed_seconds: float
    """From the first claim to the last exit."""
    day: str
    """Of the first claim."""
    hardware: Mapping[str, int]
    """How many runs on each."""
    versions: Mapping[str, tuple[str, ...]]


def compute_spent(ledger: Ledger, plan: Plan) -> ComputeSpent:
    """From the results and attempts of a study's runs and trunks."""
    results = {cell.run: result for cell in plan.runs if (result := ledger.result(cell.run)) is not None}
    attempts = {run: ledger.attempts(run) for run in (*(cell.run for cell in plan.runs), *plan.trunks)}
    worked = [span for records in attempts.values() for span in spans(records)]
    where = [result.get("circumstances", {}) for result in results.values()]
    trained = [trunk for name, trunk in plan.trunks.items() if attempts[name]]
    branched = {cell.run: cell.trunk[0] for cell in plan.runs if cell.trunk}
    spent = sum(cell.flops for cell in plan.runs if cell.run in results) + sum(trunk.flops for trunk in trained)
    whole = sum(_whole(result) for result in results.values())
    versions: dict[str, set[str]] = {}
    for circumstances in where:
        for name, version in circumstances.get("versions", {}).items():
            versions.setdefault(name, set()).add(str(version))
    return ComputeSpent(
        flops=spent,
        apart=whole if branched else spent,
        attempts=sum(map(len, attempts.values())),
        interrupted=sum(_interrupted(record) for cell in plan.runs for record in attempts[cell.run]),
        worker_seconds=sum((end - begin).total_seconds() for begin, end in worked),
        elapsed_seconds=(max(e for _, e in worked) - min(b for b, _ in worked)).total_seconds() if worked else 0.0,
        day=str(min(b for b, _ in worked).date()) if worked else "",
        hardware=Counter(map(hardware, where)),
        versions={name: tuple(sorted(values)) for name, values in sorted(versions.items())},
    )


def _whole(result: Mapping[str, Any]) -> float:
    """The FLOPs of the run from its first step on; a run that diverged has no such figure."""
    return result.get("C", {}).get("exact", 0.0)


def _interrupted(record: Record) -> bool:
    return record.end is not None and record.end.get("outcome") in INTERRUPTIONS


def provenance(findings: Findings, plan: Plan, how: ComputeSpent, made: Sequence[Decision] = ()) -> Html:
    pairs = (join(tag("dt", name), tag("dd", value)) for name, value in _circumstances(how))
    return join(
        tag("dl", *pairs, class_="pairs"),
        tag("h3", "Again"),
        tag(
            "p",
            "The same command trains what is missing and comes to the same points; with all runs done it only fits.",
        ),
        tag("pre", tag("code", command(plan, made))),
        tag("details", tag("summary", "The study's question"), tag("pre", tag("code", study_yaml(findings)))),
    )


def _circumstances(how: ComputeSpent) -> Iterator[tuple[str, str]]:
    saved = f"; separate runs would have taken {scientific(how.apart)}" if how.apart > how.flops else ""
    yield "compute", f"{scientific(how.flops)} FLOPs{saved}"
    yield "time", f"{span(how.worker_seconds)} of worker time, {span(how.elapsed_seconds)} from first to last"
    stopped = f", {how.interrupted} interrupted and taken up again" if how.interrupted else ""
    yield "attempts", f"{how.attempts}{stopped}"
    for name, runs in how.hardware.items():
        yield "hardware", f"{name} ({plural(runs, 'run')})"
    yield "versions", ", ".join(f"{name} {' and '.join(versions)}" for name, versions in how.versions.items())


def command(plan: Plan, made: Sequence[Decision] = ()) -> str:
    """The words that reproduce this study: those that every run was given after its own keys, and that its name shows.

    Where the ledger lies changes nothing of what is computed, and is left out.
    """
    question, given = plan.question, []
    name, adaptive = options(question.name, made)
    for words in zip(*(reversed(run.overrides) for run in plan.runs)):
        if len(set(words)) > 1 or not name.endswith(named("", None, [words[0], *given])):
            break
        given.insert(0, words[0])
    study = name.removesuffix(named("", question.at, given))
    if not (shipped() / "study" / f"{study}.yaml").exists():
        study += ".yaml"  # a file of the reader's own, whose text is on the page
    scale = [] if question.at is None else ["--at", question.at]
    words = [word for word in given if not word.startswith("runs=")]
    return shlex.join(["scaling", "study", study, *scale, *words, *adaptive])


def study_yaml(findings: Findings) -> str:
    """The study's YAML, from what the ledger keeps of it, as `scaling study` takes it."""
    fields = {key: value for key, value in asdict(findings.question).items() if key not in ("name", "at") and value}
    renamed = {"law" if key == "laws" else key: value for key, value in fields.items()}
    return yaml.safe_dump(renamed, sort_keys=False, allow_unicode=True, width=110)


HEADS = ("run", "why", "known runs", "half-width known", "half-width expected after", "FLOPs", "FLOPs in all")
WHY = {
    "reached": "the goal is reached: the last two looks were narrow enough",
    "budget": "the budget pays for no further candidate",
    "candidates": "every candidate was chosen",
}


def chosen(decisions: Sequence[Mapping[str, Any]]) -> Html | None:
    """A sentence and a table; none where the study is not adaptive."""
    if not decisions:
        return None
    caption = "Each decision in its order: half the width of the 95% interval, before the run and as expected after it."
    rows = map(_row, decisions)
    return join(tag("p", sentence(decisions)), table(caption, HEADS, rows, (0, 1), label="Table of decisions"))


def sentence(decisions: Sequence[Mapping[str, Any]]) -> str:
    """How far the goal is."""
    last, count = decisions[-1], sum("run" in decision for decision in decisions)
    width = "an open interval" if last["half_width"] is None else _width(last["half_width"], last["goal"])
    spent = f"{plural(count, 'run')} for {last['spent']:.3g} of {last['budget']:.3g} FLOPs"
    state = WHY.get(last.get("concluded", ""), "it goes on")
    return f"The goal is {last['goal']}. {spent} give {width}: {state}."


def _row(decision: Mapping[str, Any]) -> list[Html | str]:
    goal = decision["goal"]
    known = "open" if decision["half_width"] is None else _width(decision["half_width"], goal)
    count = str(len(decision["known"]))
    if "run" not in decision:
        return ["none", WHY[decision["concluded"]], count, known, "", "", scientific(decision["spent"])]
    expected = decision["expected_half_width"]
    after = "open" if expected is None else _width(expected, goal)
    cost, spent = scientific(decision["flops"]), scientific(decision["spent"])
    return [decision["name"], _why(decision), count, known, after, cost, spent]


def _why(decision: Mapping[str, Any]) -> str:
    if decision["reason"] == "spread":
        return "spread over the columns for little cost: no law is known yet"
    weights = [f"{law['law']} {law['weight']:.2f}" for law in decision["laws"]]
    laws = f"; laws: {', '.join(weights)}" if len(weights) > 1 else ""
    others = [f"{other['name']} ({other['score']:.0%} of that)" for other in decision["others"][:1]]
    return f"narrows it most per FLOP{'; next: ' if others else ''}{''.join(others)}{laws}"


def _width(half_width: float, goal: str) -> str:
    return f"± {100 * half_width:.3g}%" if goal.rstrip().endswith("%") else f"± {half_width:.3g}"
