"""A study from its YAML to its law, with real workers; what is killed or changed on the way."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.config import shipped
from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.study.findings import rows
from scaling.study.plan import enter, plan
from scaling.study.question import read
from scaling.study.work import work
from scaling.train.run import train_run

SMALL = str(Path(__file__).parent / "small.yaml")
SHIPPED = sorted(path.stem for path in (shipped() / "study").glob("*.yaml"))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The small study, worked through in this process."""
    folder = tmp_path_factory.mktemp("runs")
    found = plan(read(SMALL), [f"runs={folder}"])
    ledger = found.ledger()
    enter(ledger, "small", found)
    work(ledger, found)
    return ledger, found


def test_every_run_is_finished_once(done):
    ledger, found = done
    assert len(found.runs) == 10
    assert sum(one.held_out for one in found.runs) == 1
    for one in found.runs:
        assert ledger.result(one.run)["outcome"] == "finished"
        assert len(ledger.attempts(one.run)) == 1


def test_branches_share_a_trunk_and_land_where_full_runs_land(done, tmp_path):
    ledger, found = done
    assert len(found.trunks) == 3
    assert sum(one.trunk is not None for one in found.runs) == 9
    branch = next(one for one in found.runs if one.trunk)
    assert ledger.result(branch.run)["circumstances"]["from_step"] == branch.trunk[1]
    alone = Ledger.create(tmp_path)
    whole = train_run(branch.experiment, alone)
    assert whole["circumstances"]["from_step"] == 0
    assert whole["loss"] == ledger.result(branch.run)["loss"]


def test_points_carry_every_definition(done):
    ledger, found = done
    table = rows(ledger, found)
    first = table[0]
    assert first["N"] < first["N_total"]
    assert first["C"] == pytest.approx(first["C_with_attention_and_last_layer"], rel=0.5)
    assert first["D"] == 16 * 8 * first["S"]
    assert {row["status"] for row in table} == {"finished"}
    assert all(row["loss"] > row["entropy"] for row in table)


def test_a_changed_study_under_the_same_name_is_refused(done):
    ledger, _ = done
    other = plan(read(SMALL), [f"runs={ledger.root}", "optimizer.lr=1e-2"])
    with pytest.raises(ScalingError, match="has another plan"):
        enter(ledger, "small", other)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_study_plans(name, tmp_path):
    found = plan(read(name), [f"runs={tmp_path}"])
    assert len({one.run for one in found.runs}) == len(found.runs)
    assert any(one.held_out for one in found.runs)


def study(folder: Path) -> list[str]:
    return [sys.executable, "-m", "scaling", "study", SMALL, f"runs={folder}", "--workers", "2", "--json"]


def scientific(folder: Path) -> list[dict[str, str]]:
    with open(folder / "studies" / "small" / "report" / "points.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_and_resumed_it_ends_in_the_same_points(done, tmp_path, kills):
    chance = random.Random(kills)
    for _ in range(kills):
        process = subprocess.Popen(
            study(tmp_path), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(chance.uniform(5, 12))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finished = subprocess.run(study(tmp_path), capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    assert document["law"] == "chinchilla"
    assert document["points"]["used"] == 10
    assert document["entropy"]["known"] > 0
    ledger, found = done
    expected = [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows(ledger, found)]
    assert scientific(tmp_path) == expected
    report = tmp_path / "studies" / "small" / "report"
    assert json.loads((report / "fit.json").read_text())["law"] == "chinchilla"
    assert list(report.glob("*.png"))


BAD = {
    "an unknown key": ("question: x\nbase: decoder\nlaw: chinchilla\ngird: {}\ngrid: {seed: [1]}\n", "'grid'"),
    "no grid": ("question: x\nbase: decoder\nlaw: chinchilla\n", "grid"),
    "an empty grid": ("question: x\nbase: decoder\nlaw: chinchilla\ngrid: {}\n", "empty"),
    "an empty axis": ("question: x\nbase: decoder\nlaw: chinchilla\ngrid: {seed: []}\n", "list of values"),
    "a value twice": ("question: x\nbase: decoder\nlaw: chinchilla\ngrid: {seed: [1, 1]}\n", "twice"),
    "a million runs": (
        "question: x\nbase: decoder\nlaw: chinchilla\n"
        f"grid: {{seed: {list(range(1000))}, train.batch: {list(range(1, 1001))}}}\n",
        "1,000,000 runs",
    ),
    "an axis that changes nothing": (
        "question: x\nbase: decoder\nlaw: chinchilla\ngrid: {log.every: [1, 2]}\n",
        "two cells are one run",
    ),
    "a budget below one batch": (
        "question: x\nbase: decoder\nlaw: chinchilla\nset: {schedule.warmup: 0}\ngrid: {train.tokens: [10]}\n",
        "less than one batch",
    ),
    "an unknown base": ("question: x\nbase: decodr\nlaw: chinchilla\ngrid: {seed: [1]}\n", "'decoder'"),
    "data that cannot be had": (
        "question: x\nbase: decoder\nlaw: chinchilla\nset: {data: python, size.vocabulary: null}\ngrid: {seed: [1]}\n",
        "prepare",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_study_is_one_line(name, tmp_path, capsys, monkeypatch):
    text, said = BAD[name]
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "none"))
    (tmp_path / "bad.yaml").write_text(text)
    assert main(["study", str(tmp_path / "bad.yaml"), f"runs={tmp_path / 'runs'}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err
