"""Provenance: what the ledger alone knows of a study, and the words that repeat it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import yaml

from scaling.base.errors import plural
from scaling.base.json_lines import flat
from scaling.base.markup import Block
from scaling.base.printing import scientific, span, titled
from scaling.config.compose import override
from scaling.ledger import RESULTS, Ledger
from scaling.ledger.document import text
from scaling.ledger.run import hardware, spans
from scaling.studies.adaptive import Decision, decisions
from scaling.studies.findings import Findings
from scaling.studies.predictions import calibration, registered, track_record

if TYPE_CHECKING:
    from scaling.studies.plan import Plan

Record = Mapping[str, Any]
"""What the ledger alone knows of a study, in words; record.json of a kept report.

`compute` is the FLOPs of the finished runs and trunks, `runs` has the state of each run, its time and its address in
W&B, `decisions` are those of an adaptive study.
"""


def record(findings: Findings, ledger: Ledger, plan: Plan) -> Record:
    """The record of a study, from the results and attempts of its runs and trunks."""
    results = {run.run: result for run in plan.runs if (result := ledger.result(run.run)) is not None}
    attempts = {run: ledger.attempts(run) for run in (*(run.run for run in plan.runs), *plan.trunks)}
    worked = [each for records in attempts.values() for each in spans(records)]
    trunks = [trunk for name, trunk in plan.trunks.items() if attempts[name]]
    flops = sum(run.flops for run in plan.runs if run.run in results) + sum(trunk.flops for trunk in trunks)
    # A result has the FLOPs of its run from the first step on; one that diverged has no such figure.
    alone = sum(result.get("C", {}).get("exact", 0.0) for result in results.values())
    saved = f"; separate runs would have taken {scientific(alone)}" if trunks and alone > flops else ""
    seconds = sum((end - begin).total_seconds() for begin, end in worked)
    first, last = min((begin for begin, _ in worked), default=None), max((end for _, end in worked), default=None)
    elapsed = 0.0 if first is None or last is None else (last - first).total_seconds()
    where = [result.get("circumstances", {}) for result in results.values()]
    versions = {f"{name} {version}" for each in where for name, version in each.get("versions", {}).items()}
    machines = Counter(map(hardware, where))
    track = calibration(registered(ledger))
    return {
        "day": "" if first is None else str(first.date()),
        "compute": scientific(flops),
        "effort": f"FLOPs in {plural(len(results), 'run')}, {span(seconds)} of worker time",
        "circumstances": {
            "compute": f"{scientific(flops)} FLOPs{saved}",
            "time": f"{span(seconds)} of worker time, {span(elapsed)} from first to last",
            "attempts": f"{sum(map(len, attempts.values()))}",
            "hardware": "; ".join(f"{machine} ({plural(count, 'run')})" for machine, count in machines.items()),
            "versions": ", ".join(sorted(versions)),
            **({"predictions on record": track_record(track)} if track["predictions"] or track["altered"] else {}),
        },
        # That reproduces this study, as its plan has it.
        "command": shlex.join(["scaling", *(plan.command or ("report", plan.question.name))]),
        "runs": {row["run"]: _run(ledger, row, results.get(row["run"])) for row in findings.rows},
        "decisions": decisions(ledger, plan.question.name),
    }


def _run(ledger: Ledger, row: Mapping[str, Any], result: Mapping[str, Any] | None) -> dict[str, str | None]:
    """The state of a run, the time of the attempt that ended in its result, and where W&B shows it."""
    status = ledger.status(row["run"])
    state, is_open = status.state.replace("_", " "), status.state not in RESULTS
    if status.step and (is_open or status.state == "diverged"):
        state += f" at step {status.step:,}" + (f" of {status.steps:,}" if status.steps and is_open else "")
    seconds, address = (result or {}).get("circumstances", {}).get("seconds"), None
    with suppress(OSError, UnicodeDecodeError):
        address = (ledger.folder(row["run"]) / "wandb" / "address").read_text(encoding="utf-8").strip()
    return {
        "state": f"{state}, held out" if row["held_out"] else state,
        "time": None if seconds is None else span(seconds),
        "address": address or None,
    }


_OVERRIDE = re.compile(r"[A-Za-z_][\w.-]*=.*")
LEFT_OUT = ("name", "at", "minutes", "source")  # fields of a study


def study_yaml(findings: Findings, command: str) -> str:
    """The study's YAML, from what the ledger keeps of it, as `scaling study` takes it: with the overrides of its
    command, and for the scale that was trained.
    """
    fields = {key: value for key, value in findings.question.stored.items() if key not in LEFT_OUT and value}
    with suppress(ValueError):  # of a record that was altered
        words = dict(override(word) for word in shlex.split(command) if _OVERRIDE.fullmatch(word))
        words.pop("runs", None)
        fields |= {"set": {**fields.get("set", {}), **words}} if words else {}
    renamed = {"law" if key == "laws" else key: value for key, value in fields.items()}
    return yaml.safe_dump(renamed, sort_keys=False, allow_unicode=True, width=110)


# Decisions of an adaptive study

WHY = {
    "reached": "the goal is reached: the last two looks were narrow enough",
    "budget": "the budget pays for no further candidate",
    "candidates": "every candidate was chosen",
}


def chosen(decisions: Sequence[Decision]) -> list[Block]:
    """The decisions of an adaptive study, as a sentence and a table; empty where the study is not adaptive."""
    rows = [
        [
            ("run", decision.get("name", "none")),
            ("why", _why(decision)),
            ("known runs", str(len(decision["known"]))),
            ("half-width known", _width(decision["half_width"], decision["goal"])),
            (
                "half-width expected after",
                _width(decision["expected_half_width"], decision["goal"]) if "run" in decision else "",
            ),
            ("FLOPs", scientific(decision["flops"]) if "run" in decision else ""),
            ("FLOPs in all", scientific(decision["spent"])),
        ]
        for decision in decisions
    ]
    caption = "Each decision in its order: half the width of the 95% interval, before the run and as expected after it."
    table = titled(caption, rows, (0, 1))
    return [] if table is None else [sentence(decisions), table]


def sentence(decisions: Sequence[Decision]) -> str:
    """A sentence on the goal, the runs so far, and the width that they give."""
    last, count = decisions[-1], sum("run" in decision for decision in decisions)
    spent = f"{plural(count, 'run')} for {last['spent']:.3g} of {last['budget']:.3g} FLOPs"
    state = WHY.get(last.get("concluded", ""), "it goes on")
    width = _width(last["half_width"], last["goal"]).replace("open", "an open interval")
    return f"The goal is {last['goal']}. {spent} give {width}: {state}."


def _why(decision: Decision) -> str:
    """Why a run was chosen, or why none was."""
    if "run" not in decision:
        return WHY[decision["concluded"]]
    if decision["reason"] == "spread":
        return "spread over the columns for little cost: no law is known yet"
    weights = ", ".join(f"{law['law']} {law['weight']:.2f}" for law in decision["laws"])
    others = [f"; next: {other['name']} ({other['score']:.0%} of that)" for other in decision["others"][:1]]
    laws = f"; laws: {weights}" if len(decision["laws"]) > 1 else ""
    return f"narrows it most per FLOP{''.join(others)}{laws}"


def _width(half_width: float | None, goal: str) -> str:
    if half_width is None:
        return "open"
    return f"± {100 * half_width:.3g}%" if goal.rstrip().endswith("%") else f"± {half_width:.3g}"


# How the runs were trained

MOST = 4  # different values that are stated one by one


def setup(specs: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any] | None] = ()) -> dict[str, str]:
    """How the runs were trained, as their specs state it, by the names of `scaling.laws.points.SETUP`. Where the runs
    differ it is each value, or the range of numbers; `results` state how often data are repeated.
    """

    lines = list(map(flat, specs))

    def state(*sections: str, without: tuple[str, ...] = ()) -> str:
        """The keys of these sections of the specs, or these single keys, with their values over the runs."""
        entries = []
        for key in dict.fromkeys(key for line in lines for key in line):
            if key.startswith(sections) and not key.startswith(without):
                name = ".".join(key.split(".")[1:]).removesuffix("kind").strip(".")
                entries.append(f"{name} {_values([line.get(key, 'its default') for line in lines])}".strip())
        return "; ".join(entries)

    synthetic = all(spec.get("data", {}).get("kind") == "Synthetic" for spec in specs)
    passes = [result["passes"] for result in results if result is not None and result.get("passes") is not None]
    repeated = "" if not passes or len(passes) < len(results) else "nothing is repeated"
    repeated = f"repeated up to {max(passes):.3g} times" if repeated and max(passes) > 1 else repeated
    parts = {
        "architecture": (state("model.", "size.", without=("size.vocabulary", "size.length")),),
        "optimizer": (state("optimizer.", "trainer.gradient_clip_val", without=("optimizer.lr",)),),
        "lr": (state("optimizer.lr", "parametrization"),),
        "schedule": (state("schedule.", "trainer.max_steps"),),
        "batch": (state("train.batch", "size.length"),),
        "tokenizer": ("none: the data are symbols" if synthetic else state("data.tokenizer"), state("size.vocabulary")),
        "data": (state("data.", without=("data.fingerprint", "data.tokenizer")), repeated),
        "validation": (state("evaluate."),),
    }
    sentences = {name: "; ".join(filter(None, part)) for name, part in parts.items()}
    return {name: sentence for name, sentence in sentences.items() if sentence}


def _values(values: Sequence[Any]) -> str:
    """One value, the range of different numbers, or different values one by one."""
    different = list({text(value): value for value in values}.values())
    if len(different) > 1 and all(isinstance(value, int | float) for value in different):
        return f"{min(different):,} to {max(different):,}, {len(different)} values"
    more = f" and {len(different) - MOST} more" if len(different) > MOST else ""
    return " or ".join(value if isinstance(value, str) else text(value) for value in different[:MOST]) + more
