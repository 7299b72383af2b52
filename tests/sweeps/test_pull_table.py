"""Tables, studies and fits read what was pulled, and say what the ledger's say, to the digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scaling.cli import main
from scaling.ledger import Ledger
from scaling.studies.plan import Plan, enter, plan
from scaling.studies.question import Question
from scaling.tables.study import question
from scaling.tables.table import read as read_table
from tests.serial import work
from tests.wandb_server.server import Server

SMALL = str(Path(__file__).parents[1] / "studies" / "small.yaml")
ROWS = """
base: decoder
size: {width: 8, layers: 1, heads: 1, head_width: 8, vocabulary: 16, length: 16}
data: {kind: Synthetic, symbols: 8, validation: 512}
train: {batch: 4}
trainer: {max_steps: 24}
evaluate: {points: 6, windows: 8}
schedule: {warmup: 2}
log: {every: 4}
rows:
  SwiGLU: {}
  GeLU: {model.block.channel: {kind: Dense, activation: GeLU}}
table: {baseline: SwiGLU, seeds: 2}
"""


@pytest.fixture
def online(client: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("WANDB_MODE", "online")
    return client


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def trained(asked: Question) -> tuple[Ledger, Plan]:
    """A study worked through in this process, and shown to the server."""
    found = plan(asked)
    ledger = found.ledger()
    enter(ledger, asked.name, found)
    work(ledger, found)
    return ledger, found


def test_a_table_of_what_was_pulled_is_the_ledgers(online, tmp_path, capsys):
    Path("rows.yaml").write_text(ROWS)
    trained(question(read_table("rows.yaml")))
    assert {run.summary["outcome"] for run in online.world.runs.values()} == {"finished"}
    assert main(["pull", "me/scaling", "--table", "rows.yaml", "--to", "pulled"]) == 0
    ours = said(capsys, "table", "rows.yaml", "--from", "runs")
    assert ours["rows"]
    assert said(capsys, "table", "rows.yaml", "--from", "pulled") == ours
    assert main(["table", "rows.yaml", "--from", "wandb:me/scaling"]) == 0
    assert main(["runs", "runs=pulled"]) == 0
    for run in Ledger.open("runs").runs():
        one, two = (Ledger.open(folder).history(run) for folder in ("runs", "pulled"))
        assert [entry for entry in two if entry["kind"] == "evaluate"] == [
            {key: entry[key] for key in entry if entry[key] is not None} for entry in one if entry["kind"] == "evaluate"
        ]
        assert main(["show", run, "runs=pulled"]) == 0
