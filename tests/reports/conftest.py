"""Studies whose runs have come to an end without training: each loss lies near a law that the tests know."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from scaling.ledger import Ledger
from scaling.reports.write import PAGE, write
from scaling.studies import findings
from scaling.studies.findings import Findings
from scaling.studies.plan import Plan, enter, plan
from scaling.studies.question import read

SMALL = Path(__file__).parents[1] / "studies" / "small.yaml"
E, A, B, ALPHA, BETA = 2.1, 40.0, 60.0, 0.7, 0.6
CIRCUMSTANCES = {
    "processor": "x86_64",
    "device": "cpu",
    "cores": 2,
    "threads": 1,
    "seconds": 2.5,
    "versions": {"scaling": "0.1.0", "torch": "2.13.0"},
}


def loss_at(size: float, tokens: float, place: int, alpha: float = ALPHA) -> float:
    """Chinchilla's law with a small scatter."""
    return (E + A * size**-alpha + B * tokens**-BETA) * (1 + 1e-4 * math.sin(7 * place))


@pytest.fixture
def no_files_of_figures(monkeypatch):
    """Figures are drawn in the page alone: their files take as long as all the rest."""
    monkeypatch.setattr(findings, "FIGURES", ())


def make_study(
    folder: Path, changes: dict[str, str] | None = None, outcome: Callable[[int], str | None] = lambda _: "finished"
) -> tuple[Ledger, Plan]:
    """A study in a folder: its YAML (the small one, with `changes`), and the outcome of each run, None for not yet."""
    text = SMALL.read_text()
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    (folder / "small.yaml").write_text(text)
    found = plan(read(str(folder / "small.yaml")), [f"runs={folder / 'runs'}"])
    ledger = found.ledger()
    enter(ledger, found)
    for place, one in enumerate(found.runs):
        if (how := outcome(place)) is not None:
            _end(ledger, one, how, place)
    return ledger, found


def _end(ledger: Ledger, one, how: str, place: int) -> None:
    experiment = one.experiment
    tokens = experiment.tokens(experiment.steps)
    loss = loss_at(experiment.cost.parameters_non_embedding, tokens, place)
    with ledger.claim(one.run) as attempt:
        if how == "diverged":
            attempt.finish("diverged", {"loss": None, "step": 3, "reason": "nan", "circumstances": CIRCUMSTANCES})
        elif how == "failed":
            attempt.end("failed", "the worker's disk went away")
        else:
            flops = experiment.cost.flops_train_per_token * tokens
            payload = {"loss": loss, "step": experiment.steps, "tokens": tokens, "C": {"exact": flops}}
            attempt.finish("finished", {**payload, "circumstances": CIRCUMSTANCES})


class Reported(NamedTuple):
    """A study whose report was written and kept: `page` is the ledger's, `kept` the folder of the copy."""

    ledger: Ledger
    plan: Plan
    findings: Findings
    page: Path
    kept: Path


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> Reported:
    """The small study, grown until it is identified, finished and reported."""
    folder = tmp_path_factory.mktemp("study")
    ledger, found = make_study(folder, {"[2k, 4k, 8k]": "[2k, 3k, 4k, 8k, 16k]"})
    findings, kept = write(ledger, found, kept=folder / "kept")
    return Reported(ledger, found, findings, ledger.study_folder("small") / "report" / PAGE, kept.parent)
