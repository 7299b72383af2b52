"""Provenance: what a study took, on what, with which versions, and the words that make it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import yaml

from scaling.config import shipped
from scaling.errors import plural
from scaling.printing import span
from scaling.reports.compute_spent import ComputeSpent
from scaling.reports.markup import Html, join, tag
from scaling.reports.numbers import scientific
from scaling.studies.findings import Findings
from scaling.studies.question import named
from scaling.studies.record import Decision, options

if TYPE_CHECKING:
    from scaling.studies.plan import Plan


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
