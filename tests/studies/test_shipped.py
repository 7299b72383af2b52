"""Every shipped study plans, at each of its scales, and runs when it is shrunk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaling.cli import main
from scaling.config.compose import document, find, shipped
from scaling.laws import named
from scaling.studies.plan import Plan, enter, plan
from scaling.studies.question import read
from tests.serial import work

SHIPPED = sorted(path.stem for path in (shipped() / "study").glob("*.yaml"))
SCALES = [
    pytest.param(name, at, marks=[pytest.mark.slow] if at else [])
    for name in SHIPPED
    for at in (None, *document(find("study", name)).tree.get("at", {}))
]


@pytest.mark.parametrize(("name", "at"), SCALES)
def test_every_shipped_study_plans(name, at, tmp_path):
    question = read(name, at)
    found = plan(question, [f"runs={tmp_path}"], "prepared" if at is None else "stand_in")
    assert len({one.run for one in found.runs}) == len(found.runs) > 1
    assert all(one.flops > 0 and one.steps > 0 for one in found.runs)
    assert all(named(law) for law in question.laws)
    assert not question.laws or any(one.held_out for one in found.runs)


def shrunk(name: str, folder: Path) -> Plan:
    """Two sizes and two budgets of a study, on small windows."""
    question = read(name)
    axes = {**question.grid, **question.grid.get("axes", {})} if isinstance(question.grid, Mapping) else {}
    few: dict[str, Any] = {key: axes[key][:2] for key in ("row", "parametrization", "size") if key in axes}
    small = replace(question, grid={**few, "train.tokens": [128, 256]}, held_out={}, laws=(), name=f"small-{name}")
    words = ["size.length=16", "train.batch=2", "schedule.warmup=1", "evaluate.windows=16", "log.wandb=disabled"]
    return plan(small, [f"runs={folder}", *words])


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_study_runs_at_a_shrunken_size(name, tmp_path):
    found = shrunk(name, tmp_path)
    enter(found.ledger(), found.question.name, found)
    assert found.ledger().plan(found.question.name)["runs"]  # which workers read
    work(found.ledger(), found)
    results = [found.ledger().result(one.run) for one in found.runs]
    assert all(result is not None and result["outcome"] == "finished" for result in results)


def test_a_study_of_175b_plans_on_4096_devices(tmp_path, capsys):
    (tmp_path / "large.yaml").write_text(
        "question: what would it cost?\nbase: decoder\n"
        "set: {data: c4, train.batch: 1536, trainer.precision: bf16-true, "
        "schedule.warmup: 100, evaluate.windows: 512}\n"
        "grid: {kind: TokensPerParameter, multiples: [20], axes: {size: [gpt3/xl, gpt3/13b, gpt3/175b]}}\n"
    )
    told = ["--on", "H100", "--devices", "4096", "--sharding", "fsdp", "--tensor", "8", "--price", "2.5", "--json"]
    assert main(["plan", str(tmp_path / "large.yaml"), f"runs={tmp_path}", *told]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["data"] == "stand_in"
    xl, _, largest = document["runs"]
    assert largest["N_total"] == pytest.approx(175e9, rel=0.01)
    there = largest["H100"]
    # 6 N D over 4,096 devices at 40% of 989 TFLOP/s; attention and the head add to 6 N.
    assert 1.0 < there["seconds"] / (6 * largest["N_total"] * largest["D"] / (4096 * 0.4 * 989e12)) < 1.2
    assert there["device_hours"] == pytest.approx(there["seconds"] * 4096 / 3600)
    assert there["price"] == pytest.approx(2.5 * there["device_hours"])
    # 16 bytes a parameter, shared out over all devices.
    states = sum(there["bytes"][part] for part in ("weights", "gradients", "optimizer"))
    assert states == pytest.approx(16 * largest["N_total"] / 4096)
    assert xl["H100"]["bytes"]["activations"] < there["bytes"]["activations"]
    assert document["total"]["H100"]["price"] == pytest.approx(sum(row["H100"]["price"] for row in document["runs"]))


def test_a_plan_tells_time_trunks_and_the_interval_to_come(tmp_path, capsys):
    study = tmp_path / "small.yaml"
    supposed = "suppose: {E: 1.5, A: 5, B: 30, alpha: 0.5, beta: 0.6}\n"
    study.write_text((Path(__file__).parent / "small.yaml").read_text() + supposed)
    words = [str(study), f"runs={tmp_path}"]
    assert main(["plan", *words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows, total = document["runs"], document["total"]
    assert len(rows) == total["runs"] == 10
    assert all(row["seconds"] > 0 and row["C"] == pytest.approx(row["C_6N"], rel=1.5) for row in rows)
    assert total["trunks"] == 3
    # A stable phase to 3/4 of each budget; the longest of 1, 2 and 4 serves all three.
    assert total["C_without_trunks"] == pytest.approx(sum(row["C"] for row in rows))
    assert 0.2 < total["saved"] < 0.4
    outlook = document["outlook"]
    assert outlook["low"] < outlook["loss"] < outlook["high"]
    assert document["shortfall"]["levels"] == {"N": 5, "D": 3}
    assert main(["plan", *words]) == 0
    out = capsys.readouterr().out
    assert "9 points cannot identify the 5 parameters" in out
    assert "trunks" in out
