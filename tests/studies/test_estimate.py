"""What a plan states before a run is trained: time, memory, money, workers, and what the runs will identify."""

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

import scaling
from scaling.base.errors import ScalingError
from scaling.executors import Resources
from scaling.executors.local import Local
from scaling.laws import LAWS
from scaling.studies import estimate, machine
from scaling.studies.estimate import choose_scale
from scaling.studies.identifiability import lacking, predicted_interval, smallest_grid
from scaling.studies.machine import Size, Speed, resources, sized
from scaling.studies.plan import enter, plan
from scaling.studies.question import read

SMALL = str(Path(__file__).parent / "small.yaml")
SUPPOSED = {"E": 1.5, "A": 5.0, "B": 30.0, "alpha": 0.5, "beta": 0.6}


def test_a_study_of_175b_plans_on_4096_devices(tmp_path):
    (tmp_path / "large.yaml").write_text(
        "question: what would it cost?\nbase: decoder\nset: {data: c4, train.batch: 1536, "
        "trainer.precision: bf16-true, schedule.warmup: 100, evaluate.windows: 512}\n"
        "grid: {kind: TokensPerParameter, multiples: [20], axes: {size: [gpt3/175b]}}\n"
    )
    cluster: Any = {"on": ["H100"], "devices": 4096, "sharding": "fsdp", "tensor": 8, "price": 2.5}
    found = scaling.plan(tmp_path / "large.yaml", runs=str(tmp_path), **cluster).to_json()
    (row,) = found["runs"]
    assert row["N_total"] == pytest.approx(175e9, rel=0.01)
    there = row["H100"]
    # 6 N D over 4,096 devices at 40% of 989 TFLOP/s; attention and the head add to 6 N.
    assert 1.0 < there["seconds"] / (6 * row["N_total"] * row["D"] / (4096 * 0.4 * 989e12)) < 1.2
    assert there["price"] == found["total"]["H100"]["price"] == pytest.approx(2.5 * there["seconds"] * 4096 / 3600)
    # 16 bytes a parameter, distributed over all devices.
    states = sum(there["bytes"][part] for part in ("weights", "gradients", "optimizer"))
    assert states == pytest.approx(16 * row["N_total"] / 4096)


def test_a_plan_states_time_trunks_what_is_lacking_and_the_interval_to_come(tmp_path):
    study = {"name": "small", **yaml.safe_load(Path(SMALL).read_text()), "suppose": SUPPOSED}
    found, of_file = (scaling.plan(source, runs=str(tmp_path)).document for source in (study, SMALL))
    assert [row["run"] for row in found["runs"]] == [row["run"] for row in of_file["runs"]]
    rows, total = found["runs"], found["total"]
    assert (len(rows), total["runs"], total["trunks"]) == (10, 10, 3)
    assert all(row["seconds"] > 0 and row["C"] == pytest.approx(row["C_6N"], rel=1.5) for row in rows)
    # A stable phase to 3/4 of each budget; the longest of 1, 2 and 4 serves all three.
    assert total["C_without_trunks"] == pytest.approx(sum(row["C"] for row in rows))
    assert 0.2 < total["saved"] < 0.4
    assert found["outlook"]["low"] < found["outlook"]["loss"] < found["outlook"]["high"]
    assert found["shortfall"]["levels"] == {"N": 5, "D": 3}
    assert "9 points cannot identify the 5 parameters" in found["shortfall"]["sentence"]


def test_what_a_first_step_makes_counts_for_no_speed(monkeypatch, tmp_path):
    """The kernels of a new environment, half a minute: a quickstart was to take eleven hours."""
    steps = []

    def step() -> None:
        steps.append(None)
        time.sleep(1.1 * machine.PATIENCE if len(steps) == 1 else 0)

    monkeypatch.setattr(machine, "_step", lambda _: step)
    (run, *_) = plan(read(SMALL), [f"runs={tmp_path}"]).runs
    speed = machine.calibrate([run.experiment])
    assert speed is not None
    assert all(seconds < 0.5 for _, seconds in speed.timed)


def test_a_slow_machine_gets_a_smaller_quickstart_and_keeps_it(tmp_path, monkeypatch):
    chosen = []
    for seconds in (1e-6, 1e3, 1e-6):  # of a step; faster again since the study was entered
        monkeypatch.setattr(estimate, "calibrate", lambda _, seconds=seconds: Speed(((1e9, seconds),)))
        found, why = choose_scale("quickstart", None, [f"runs={tmp_path}"], None)
        assert (why is None) == (not chosen)
        chosen.append(found.question.at)
        if len(chosen) == 2:
            enter(found.ledger(), found)
    assert chosen == [None, "small", "small"]


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
    assert lacking(law, 2 * grid[: 3 * len(law.parameter_names) - 1]) is not None, "seeds of a point are one point"


def test_a_law_is_supposed_only_where_it_applies(tmp_path, monkeypatch):
    """Published constants within their range; no law that predicts a loss above ln V or below 0."""
    asked, scales = read(SMALL), [2**n for n in range(5)]
    small, large = (
        [{"N": n * N, "D": d * D, "C": 6 * n * N * d * D, "held_out": False} for N in scales for D in scales[:3]]
        for n, d in ((1e4, 1e5), (1e8, 1e10))
    )
    within = predicted_interval(asked, large, {}, [32000] * 15)
    assert within["low"] < within["loss"] < within["high"] < math.log(32000)
    for changes, runs, reason in (
        ({}, small, "published"),
        ({"target": {"N": 1e12, "D": 1e10}}, large, "1e+12"),
        ({"suppose": {**SUPPOSED, "E": 7.0}}, small, "above ln V"),
        ({"suppose": {**SUPPOSED, "E": -9.0}}, small, "no loss"),
    ):
        found = predicted_interval(replace(asked, **changes), runs, {}, [512] * 15) or {}
        assert reason in found["reason"]
        assert "low" not in found
    # An earlier fit of the study, where it identified every parameter.
    monkeypatch.setattr(estimate, "calibrate", lambda _: None)  # nothing is timed
    file = tmp_path / "studies" / "small" / "report" / "fit.json"
    file.parent.mkdir(parents=True)
    fit = {"law": "chinchilla", "question": asked.question, "estimates": SUPPOSED}
    for doubts, supposed in (([], SUPPOSED), (["E is not separated from A"], None)):
        file.write_text(json.dumps({**fit, "not_identified": doubts}))
        assert scaling.plan(SMALL, runs=str(tmp_path)).outlook.get("supposed") == supposed


def test_an_adaptive_plan_has_the_runs_beside_those_that_it_chooses(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "calibrate", lambda _: None)  # nothing is timed
    study = {**yaml.safe_load(Path(SMALL).read_text()), "suppose": SUPPOSED, "tune": True}
    assert scaling.plan(study, runs=str(tmp_path)).outlook["low"] > 0
    found = scaling.plan(study, adaptive="E ± 0.5", runs=str(tmp_path))
    chosen = {one["name"] for one in found.adaptive["decisions"]}
    assert {row["beside"] for row in found.document["runs"]} == {"", *(name for name in chosen if "seed=0" in name)}
    with pytest.raises(ScalingError, match="pays for no run of the study; the cheapest takes"):
        scaling.plan(study, adaptive="E ± 0.5", budget=1.0, runs=str(tmp_path))


def test_cores_and_memory_are_split_between_workers(tmp_path, monkeypatch):
    found = plan(read(SMALL), [f"runs={tmp_path}"])
    for cores, memory, workers, given, expected in (
        (64, 1000, None, {}, (10, 6)),  # of ten runs
        (8, 1000, 3, {}, (3, 2)),
        (16, 4, None, {}, (3, 5)),  # memory bounds them
        (16, 1000, None, {"threads": 4}, (4, 4)),
    ):
        asking = replace(found, question=replace(found.question, resources=given))
        monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _, cores=cores: range(cores))
        monkeypatch.setattr(machine, "machine_memory", lambda memory=memory: memory * 10**9)
        assert sized(asking, workers) == Size(*expected)
        assert resources(found.runs[0], Size(*expected), given).threads == expected[1]


def test_small_runs_share_gpus_and_a_run_takes_what_its_memory_fills_or_what_it_asks_for(tmp_path, monkeypatch):
    found = plan(read(SMALL), [f"runs={tmp_path}"])
    card, job = SimpleNamespace(total_memory=80 * 10**9), found.runs[0]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: range(16))
    assert sized(found) == Size(10, 1, 4)
    assert [resources(job, Size(workers, 2, 4), {}).gpus for workers in (16, 4, 2)] == [0.25, 1.0, 1.0]
    assert resources(job, Size(16, 2, 4), {"gpus": 0.1, "minutes": 5}) == Resources(2, 0.1, None, 5)
    on_two = plan(read(SMALL), [f"runs={job.root}", "trainer.devices=2"]).runs[0]
    assert resources(on_two, Size(16, 2, 4), {}).gpus == 2
    card.total_memory = 10**9  # less than the libraries take: a run takes all
    assert (sized(found), resources(job, Size(16, 2, 4), {}).gpus) == (Size(1, 16, 4), 4)


def test_large_jobs_have_whole_gpus_and_small_ones_share(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    executor, places = Local(8, tmp_path / "log"), list[Any]()
    for gpus in (2, 0.5, 0.4, 0.3, 1):
        places.append(executor.place(gpus))
        busy: Any = SimpleNamespace(devices=places[-1], handle=SimpleNamespace(resources=Resources(1, gpus)))
        executor.workers += [busy] if places[-1] else []
    assert places == [("4", "5"), ("6",), ("6",), None, None]
