"""A planned study as a sweep: `wandb agent` trains its runs, branches off their trunks, as its own workers do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.ledger import Ledger, run_id
from scaling.studies.plan import Plan, enter, plan
from scaling.studies.points import rows
from scaling.studies.question import read
from scaling.sweeps.check import experiment
from scaling.sweeps.study import tree
from tests.serial import work

SMALLEST = """
question: Does the smallest study pass through a sweep?
base: decoder
set:
  data: {kind: Synthetic, symbols: 8, validation: 256}
  size: {width: 8, layers: 1, heads: 1, vocabulary: null, length: 16}
  schedule: {kind: WSD, warmup: 1, decay: 0.5}
  train: {batch: 4}
  evaluate: {points: 1, windows: 4}
grid:
  trainer.max_steps: [2, 4]
"""


def entered(folder: Path) -> tuple[Ledger, Plan]:
    Path("smallest.yaml").write_text(SMALLEST)
    found = plan(read("smallest.yaml"), [f"runs={folder}"])
    ledger = found.ledger()
    enter(ledger, "smallest", found)
    return ledger, found


def test_a_sweep_asks_for_each_run_of_the_plan_the_dearest_first(client, tmp_path, capsys):
    ledger, found = entered(tmp_path / "runs")
    assert main(["sweep", "--study", "smallest", f"runs={ledger.root}", "--dry-run"]) == 0
    assert "2 runs over run" in capsys.readouterr().out
    swept = tree(ledger, "smallest")
    assert swept["parameters"]["run"]["values"] == [one.run for one in sorted(found.runs, key=lambda one: -one.steps)]
    words = [word for word in swept["command"][2:] if "=" in word]
    for one in found.runs:
        assert run_id(experiment([*words, f"run={one.run}"]).spec) == one.run
    assert main(["sweep", "--study", "smallest", f"runs={ledger.root}", "--local"]) == 2
    assert "scaling study smallest" in capsys.readouterr().err
    assert main(["train", "study=smallest", "run=abc", f"runs={ledger.root}"]) == 2
    assert "the study has no such run" in capsys.readouterr().err
    assert main(["train", *words, f"run={found.runs[0].run}", "seed=7"]) == 2
    assert "the plan sets what a run of a study is" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_agents_train_branches_off_the_trunk_and_find_what_its_workers_find(client, tmp_path, monkeypatch):
    ledger, found = entered(Path("runs"))
    assert main(["sweep", "--study", "smallest"]) == 0
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"}
    sweep = "me/scaling/s0000000"
    words = [sys.executable, "-m", "wandb", "agent", sweep]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

    (trunk,) = found.trunks
    assert [record.end and record.end["outcome"] for record in ledger.attempts(trunk)] == ["stopped"]
    for one in found.runs:
        result = ledger.result(one.run)
        assert result is not None
        assert one.trunk is not None
        assert (one.trunk.run, one.trunk.step) == (trunk, result["circumstances"]["from_step"])
    assert str(tmp_path).encode() not in client.sent()
    shown = {run.config["run"]["value"]: run.summary["loss"] for run in client.world.runs.values()}
    assert shown == {one.run: (ledger.result(one.run) or {})["loss"] for one in found.runs}

    # The study's own worker, in a folder where nobody has trained.
    monkeypatch.setenv("WANDB_MODE", "disabled")
    other, again = entered(tmp_path / "other")
    work(other, again)
    assert rows(other, again) == rows(ledger, found)
