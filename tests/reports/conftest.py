"""Studies whose runs have come to an end without training: each loss lies near a law that the tests know."""

import math
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from scaling.reports.write import PAGE, write
from scaling.studies import findings
from scaling.studies.plan import enter, plan
from scaling.studies.question import read

SMALL = Path(__file__).parents[1] / "studies" / "small.yaml"
E, A, B, ALPHA, BETA = 2.1, 40.0, 60.0, 0.7, 0.6
CIRCUMSTANCES = {"processor": "x86_64", "device": "cpu", "cores": 2, "threads": 1, "seconds": 2.5}
CIRCUMSTANCES |= {"versions": {"scaling": "0.1.0", "torch": "2.13.0"}}


@pytest.fixture(autouse=True)
def no_files_of_figures(monkeypatch):
    """Figures are drawn in the page alone, but for those of `study`: their files take as long as all the rest."""
    monkeypatch.setattr(findings, "draw", empty_files)


def empty_files(pictures, folder):
    for name in ("figures.pdf", *(f"{name}.png" for name in pictures)):
        (folder / name).touch()


def make_study(folder, changes=None, outcome: Any = lambda _: "finished"):
    """A study in a folder: its YAML (the small one, with `changes`), and the outcome of each run, None for not yet."""
    text = SMALL.read_text()
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    (folder / "small.yaml").write_text(text)
    found = plan(read(str(folder / "small.yaml")), [f"runs={folder / 'runs'}"])
    enter(ledger := found.ledger(), found)
    for place, one in enumerate(found.runs):
        how, cost, tokens = outcome(place), one.experiment.cost, one.experiment.tokens(one.steps)
        if how is None:
            continue
        with ledger.claim(one.run) as attempt:
            if how == "failed":
                attempt.end("failed", "the worker's disk went away")
                continue
            ended = {"loss": None, "step": 3, "reason": "nan"}
            if how == "finished":
                loss = E + A * cost.parameters_non_embedding**-ALPHA + B * tokens**-BETA
                ended = {"loss": loss * (1 + 1e-4 * math.sin(7 * place)), "step": one.steps, "tokens": tokens}
                ended |= {"C": {"exact": cost.flops_train_per_token * tokens}}
            attempt.finish(how, {**ended, "circumstances": CIRCUMSTANCES})
    return ledger, found


# A study whose report was written and kept: `page` is the ledger's, `kept` the folder of the copy.
Reported = namedtuple("Reported", "ledger plan findings page kept")


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> Reported:
    """The small study, grown until it is identified, finished and reported."""
    folder = tmp_path_factory.mktemp("study")
    ledger, found = make_study(folder, {"[2k, 4k, 8k]": "[2k, 3k, 4k, 8k, 16k]"})
    findings, kept = write(ledger, found, kept=folder / "kept")
    return Reported(ledger, found, findings, ledger.study_folder("small") / "report" / PAGE, kept.parent)
