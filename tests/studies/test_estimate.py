"""What a plan states before a run is trained: time, memory, money, workers, and what the runs will identify."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import scaling
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.executors import Resources
from scaling.executors.local import Local
from scaling.laws import LAWS, named
from scaling.studies import estimate, machine
from scaling.studies.estimate import choose_scale
from scaling.studies.identifiability import lacking, predicted_interval, smallest_grid
from scaling.studies.machine import Size, Speed, resources, sized
from scaling.studies.plan import enter, plan
from scaling.studies.question import Question, read

SMALL = str(Path(__file__).parent / "small.yaml")
SUPPOSED = {"E": 1.5, "A": 5.0, "B": 30.0, "alpha": 0.5, "beta": 0.6}


def test_a_study_of_175b_plans_on_4096_devices(tmp_path, capsys):
    (tmp_path / "large.yaml").write_text(
        "question: what would it cost?\nbase: decoder\nset: {data: c4, train.batch: 1536, "
        "trainer.precision: bf16-true, schedule.warmup: 100, evaluate.windows: 512}\n"
        "grid: {kind: TokensPerParameter, multiples: [20], axes: {size: [gpt3/175b]}}\n"
    )
    words = ["--on", "H100", "--devices", "4096", "--sharding", "fsdp", "--tensor", "8", "--price", "2.5", "--json"]
    assert main(["plan", str(tmp_path / "large.yaml"), f"runs={tmp_path}", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"] == "stand_in"
    (row,) = found["runs"]
    assert row["N_total"] == pytest.approx(175e9, rel=0.01)
    there = row["H100"]
    # 6 N D over 4,096 devices at 40% of 989 TFLOP/s; attention and the head add to 6 N.
    assert 1.0 < there["seconds"] / (6 * row["N_total"] * row["D"] / (4096 * 0.4 * 989e12)) < 1.2
    assert there["device_hours"] == pytest.approx(there["seconds"] * 4096 / 3600)
    assert there["price"] == found["total"]["H100"]["price"] == pytest.approx(2.5 * there["device_hours"])
    # 16 bytes a parameter, distributed over all devices.
    states = sum(there["bytes"][part] for part in ("weights", "gradients", "optimizer"))
    assert states == pytest.approx(16 * row["N_total"] / 4096)


def test_a_plan_states_time_trunks_what_is_lacking_and_the_interval_to_come(tmp_path):
    study = tmp_path / "small.yaml"
    study.write_text(Path(SMALL).read_text() + f"suppose: {json.dumps(SUPPOSED)}\n")
    found = scaling.plan(study, runs=str(tmp_path)).document
    rows, total = found["runs"], found["total"]
    assert len(rows) == total["runs"] == 10
    assert all(row["seconds"] > 0 and row["C"] == pytest.approx(row["C_6N"], rel=1.5) for row in rows)
    assert total["trunks"] == 3
    # A stable phase to 3/4 of each budget; the longest of 1, 2 and 4 serves all three.
    assert total["C_without_trunks"] == pytest.approx(sum(row["C"] for row in rows))
    assert 0.2 < total["saved"] < 0.4
    assert found["outlook"]["low"] < found["outlook"]["loss"] < found["outlook"]["high"]
    assert found["shortfall"]["levels"] == {"N": 5, "D": 3}
    assert "9 points cannot identify the 5 parameters" in found["shortfall"]["sentence"]


def test_a_slow_machine_gets_a_smaller_quickstart_and_keeps_it(tmp_path, monkeypatch):
    chosen = []
    for seconds in (1e-6, 1e3, 1e-6):  # of a step; faster again since the study was entered
        monkeypatch.setattr(estimate, "calibrate", lambda _, seconds=seconds: Speed(((1e9, seconds),)))
        found, why = choose_scale("quickstart", None, [f"runs={tmp_path}"], None)
        assert (found.question.name, why is None) == ("quickstart", not chosen)
        chosen.append((found.question.at, [one.run for one in found.runs]))
        if len(chosen) == 2:
            enter(found.ledger(), found)
    assert (chosen[0][0], chosen[1][0]) == (None, "small")
    assert chosen[2] == chosen[1]


# What the runs identify


def rows(sizes: list[float], budgets: list[float]) -> list[dict[str, Any]]:
    return [{"N": n, "D": d, "C": 6 * n * d, "held_out": False} for n in sizes for d in budgets]


def levels(first: float, count: int) -> list[float]:
    return [first * 2**index for index in range(count)]


def asked(**supposed: float) -> Question:
    return replace(read(SMALL), suppose=supposed)


def test_too_few_points_for_five_parameters_are_reported_with_the_smallest_grid():
    for sizes, budgets in ((3, 3), (20, 1), (1, 20)):
        # Seeds of a point are one point.
        missing = lacking(named("chinchilla"), 2 * rows(levels(1e4, sizes), levels(1e5, budgets)))
        assert (missing["separable"] < 5) == (min(sizes, budgets) <= 2)
        assert f"{sizes * budgets} points cannot identify the 5 parameters" in missing["sentence"]
        assert "5 sizes × 3 budgets" in missing["sentence"]


@pytest.mark.parametrize("law", [law for law in LAWS if law.axes == law.inputs], ids=lambda law: law.name)
def test_the_smallest_grid_of_a_law_identifies_it(law):
    grid: list[dict[str, float]] = [{}]
    for place, (axis, count) in enumerate(smallest_grid(law).items()):
        values = [(1e4, 3e6, 2e5, 1e3)[place] * 1.7**index for index in range(count)]
        if axis.startswith("p_"):
            values = [0.05 + 0.4 * index / count for index in range(count)]
        grid = [{**row, axis: value} for row in grid for value in values]
    for given in set(law.axes) - set(law.free_axes):  # the proportion that is left
        grid = [{**row, given: 1.0 - sum(row[axis] for axis in row if axis.startswith("p_"))} for row in grid]
    assert lacking(law, grid) is None
    assert lacking(law, grid[: 3 * len(law.parameter_names) - 1]) is not None


def test_a_law_is_supposed_only_where_it_applies(tmp_path, monkeypatch):
    """Published constants within their range; no law that predicts a loss above ln V or below 0."""
    monkeypatch.setattr(estimate, "calibrate", lambda _: None)  # nothing is timed
    small, large = rows(levels(1e4, 5), levels(1e5, 3)), rows(levels(1e8, 5), levels(1e10, 3))
    within = predicted_interval(asked(), large, {}, [32000] * 15)
    assert within["low"] < within["loss"] < within["high"] < math.log(32000)
    far = replace(asked(), target={"N": 1e12, "D": 1e10})
    impossible = {"A": 40.0, "B": 200.0, "alpha": 0.5, "beta": 0.6}
    for question, runs, reason in (
        (asked(), small, "published"),
        (far, large, "1e+12"),
        (asked(E=7.0, **impossible), small, "above ln V"),
        (asked(E=-9.0, **impossible), small, "no loss"),
    ):
        found = predicted_interval(question, runs, {}, [512] * 15) or {}
        assert reason in found["reason"]
        assert "low" not in found
    # An earlier fit of the study, where it identified every parameter.
    file = tmp_path / "studies" / "small" / "report" / "fit.json"
    file.parent.mkdir(parents=True)
    fit = {"law": "chinchilla", "question": read(SMALL).question, "estimates": SUPPOSED}
    for doubts, supposed in (([], SUPPOSED), (["E is not separated from A"], None)):
        file.write_text(json.dumps({**fit, "not_identified": doubts}))
        assert scaling.plan(SMALL, runs=str(tmp_path)).outlook.get("supposed") == supposed


# Workers


def test_cores_and_memory_are_split_between_workers(tmp_path, monkeypatch):
    found = plan(read(SMALL), [f"runs={tmp_path}"])
    for cores, memory, workers, given, expected in (
        (2, 1000, None, {}, (2, 1)),
        (64, 1000, None, {}, (10, 6)),  # of ten runs
        (8, 1000, 3, {}, (3, 2)),
        (16, 4, None, {}, (3, 5)),  # memory bounds them
        (16, 1000, None, {"threads": 4}, (4, 4)),
    ):
        asking = replace(found, question=replace(found.question, resources=given))
        monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _, cores=cores: range(cores))
        monkeypatch.setattr(machine, "machine_memory", lambda memory=memory: memory * 10**9)
        assert sized(asking, workers) == Size(*expected)
        job = resources(found.runs[0], Size(*expected), given)
        assert (job.threads, job.memory) == (given.get("threads", expected[1]), given.get("memory", 2.0))
    with pytest.raises(ScalingError, match="at least one"):
        sized(found, 0)


def test_small_runs_share_gpus_and_a_run_takes_what_its_memory_fills_or_what_it_asks_for(tmp_path, monkeypatch):
    found = plan(read(SMALL), [f"runs={tmp_path}"])
    card = SimpleNamespace(total_memory=80 * 10**9)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: range(16))
    job = found.runs[0]
    assert sized(found) == Size(10, 1, 4)
    assert [resources(job, Size(workers, 2, 4), {}).gpus for workers in (16, 4, 2)] == [0.25, 1.0, 1.0]
    assert resources(job, Size(16, 2, 4), {"gpus": 0.1, "minutes": 5}) == Resources(2, 0.1, None, 5)
    card.total_memory = 10**9  # less than the libraries take: a run takes all
    assert sized(found) == Size(1, 16, 4)
    assert resources(job, Size(16, 2, 4), {}).gpus == 4
    on_two = plan(read(SMALL), [f"runs={job.root}", "trainer.devices=2"]).runs[0]
    assert resources(on_two, Size(16, 2, 4), {}).gpus == 2
    # Large jobs have whole GPUs, and small ones share.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    executor, places = Local(8, tmp_path / "log"), list[Any]()
    for gpus in (2, 0.5, 0.4, 0.3, 1):
        places.append(executor.place(gpus))
        busy: Any = SimpleNamespace(place=places[-1], handle=SimpleNamespace(resources=Resources(1, gpus)))
        executor.workers += [busy] if places[-1] else []
    assert places == [("4", "5"), ("6",), ("6",), None, None]
    executor.workers.pop(0)
    assert executor.place(0.3) == ("4",)
