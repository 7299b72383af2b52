"""A study before a run is trained: its grids, rates and seeds as the runs that `train` would make; every shipped study;
mistakes in a file; and what a plan states of time, memory, money, workers, and what the runs will identify.
"""

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import scaling
from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.document import document
from scaling.config.files import find, shipped
from scaling.config.schema import build
from scaling.executors import Resources
from scaling.executors.local import Local
from scaling.laws import LAWS, named
from scaling.ledger import run_id
from scaling.studies import estimate, machine
from scaling.studies.estimate import choose_scale
from scaling.studies.identifiability import lacking, predicted_interval, smallest_grid
from scaling.studies.machine import Size, Speed, resources, sized
from scaling.studies.plan import enter, entered, plan
from scaling.studies.question import read
from scaling.studies.tasks import with_tasks
from scaling.training.experiment import assemble
from tests.command_line import refused, refuses
from tests.serial import work
from tests.studies.test_study import finish

SMALL = str(Path(__file__).parent / "small.yaml")
MODEL = """base: decoder
data: {kind: Synthetic, symbols: 16, order: 1}
size: {width: 16, layers: 1, heads: 2, vocabulary: null, length: 16}
"""
SIZES = "{size: [{width: 16, heads: 1}, {width: 32, heads: 2}]}"
GRID = "grid: {size: [{width: 16, heads: 1}, {width: 32, heads: 2}], train.tokens: [10k]}"


def planned(folder, rest, fixed="{train.batch: 4, schedule.warmup: 0}"):
    (folder / "model.yaml").write_text(MODEL)
    text = f"question: x\nbase: {folder / 'model.yaml'}\nset: {fixed}\n{rest}\n"
    (folder / "asked.yaml").write_text(text)
    return plan(read(str(folder / "asked.yaml")), [f"runs={folder}"])


def test_the_plan_in_the_ledger_is_the_plan(tmp_path, monkeypatch):
    monkeypatch.setattr("scaling.config.schema.extensions", lambda: ["/some/where/own.py"])
    words = ["seed=3", f"runs={tmp_path}"]
    found = with_tasks(plan(read(SMALL, None, words), words), ["cola"])
    enter(ledger := found.ledger(), found)
    again = entered(ledger, found.question.name)
    assert (again.question, again.runs, dict(again.trunks)) == (found.question, found.runs, dict(found.trunks))
    assert again.command == ("study", "small.yaml", "seed=3", "--extend", "own.py", "--tasks", "cola")
    for one, other in ((again.runs, found.runs), (again.trunks.values(), found.trunks.values())):
        assert [each.experiment.spec for each in one] == [each.experiment.spec for each in other]


def test_a_planned_run_is_the_run_that_train_would_make(tmp_path):
    for fixed, grid in (
        ("train.batch: 8, schedule: {kind: WSD, warmup: 2}", "trainer.max_steps: [10, 20], seed: [0, 1]"),
        ("train.batch: 8, evaluate.windows: '${trainer.max_steps}'", "trainer.max_steps: [10, 20]"),
        ("train.batch: {0: 4, 10: 8}", "size: [{width: 8, heads: 1}, {width: 16}], train.tokens: [4k, 8k]"),
    ):
        found = planned(tmp_path, f"grid: {{{grid}}}", f"{{schedule.warmup: 0, {fixed}}}")
        assert len(found.runs) > 1
        for one in found.runs:
            alone = assemble(load(str(tmp_path / "model.yaml"), one.overrides))
            assert one.run == run_id(alone.spec)
            assert one.experiment.config.tree == alone.config.tree
            assert one.experiment.batches.plan == alone.batches.plan
            assert one.experiment.tokens(one.steps) == alone.tokens(alone.steps)
            trunk = alone.trunk()
            assert (one.trunk and one.trunk[:2]) == (None if trunk is None else (run_id(trunk[0].spec), trunk[1]))


def test_a_file_on_an_axis_may_state_the_windows_of_its_evaluations(tmp_path):
    data = "data: {kind: Synthetic, symbols: 16, order: 1}\n"
    (tmp_path / "whole.yaml").write_text(data)
    (tmp_path / "few.yaml").write_text(f"{data}evaluate: {{windows: 64}}\n")
    files = f"[{tmp_path / 'whole.yaml'}, {tmp_path / 'few.yaml'}]"
    found = planned(tmp_path, f"grid: {{data: {files}, train.tokens: [2k]}}")
    assert [run.experiment.config["evaluate.windows"] for run in found.runs] == ["whole_at_end", 64]


def test_budgets_of_a_kind_are_equal_flops_or_tokens_a_parameter_and_a_held_out_run_has_the_largest(tmp_path):
    for definition in ("exact", "kaplan_with_attention"):
        kind = f"kind: IsoFLOP, flops: [1e8, 1e9], definition: {definition}"
        found = planned(tmp_path, f"grid: {{{kind}, axes: {SIZES}}}")
        for one, budget in zip(found.runs, [1e8] * 2 + [1e9] * 2, strict=True):
            cost = one.experiment.cost
            each = {"exact": cost.flops_train_per_token, **cost.approximations}[definition]
            batch = 4 * one.experiment.row_tokens
            assert 0.9999 * budget <= one.experiment.tokens(one.steps) * each < 1.0001 * budget + batch * each
    grid = f"grid: {{kind: TokensPerParameter, multiples: [20, 2], axes: {SIZES}}}"
    *runs, last = planned(tmp_path, f"{grid}\nheld_out: {{seed: [7]}}").runs
    budgets = [one.experiment.tokens(one.steps) for one in (*runs, last)]
    for one, multiple, budget in zip(runs, [20, 2] * 2, budgets[:-1], strict=True):
        tokens = multiple * one.experiment.cost.parameters
        assert tokens <= budget < tokens + 4 * one.experiment.row_tokens
    assert (last.held_out, budgets[-1]) == (True, max(budgets[:-1]))


def test_a_swarm_is_spread_evenly_over_all_mixtures():
    cells = list(build("grid", {"kind": "Simplex", "domains": ["a", "b", "c"], "runs": 64}).cells(dict))
    shares = np.array([[cell[f"data.shares.{name}"] for name in "abc"] for cell in cells])
    assert len(np.unique(shares, axis=0)) == 64
    np.testing.assert_allclose(shares.sum(1), 1.0, atol=2e-4)
    np.testing.assert_allclose(shares.mean(0), 1 / 3, atol=0.02)
    assert shares.min() >= 0.01


def test_points_are_counted_by_the_inputs_of_the_law(tmp_path):
    rates = [0.001 * 2**place for place in range(5)]
    grid = f"grid: {{optimizer.lr: {rates}, train.batch: [1, 2, 4, 8], train.tokens: [2k]}}\nlaw: learning_rate_batch"
    assert len(planned(tmp_path, grid).runs) == 20
    refuses("16 different points to fit 18 parameters", planned, tmp_path, grid.replace(f", {rates[-1]}]", "]"))


def test_rates_by_a_rule_or_by_a_study_that_was_run_before(tmp_path):
    kaplan = planned(tmp_path, f"rate: Kaplan\n{GRID}").runs
    power = planned(tmp_path, f"rate: {{kind: Power, lr: 1e-2, parameters: 1000, exponent: 0.5}}\n{GRID}").runs
    for one, other in zip(kaplan, power, strict=True):
        small = one.experiment.cost.parameters_non_embedding
        assert one.experiment.optimizer.lr == pytest.approx(0.003239 - 0.0001395 * math.log(small), rel=1e-3)
        assert other.experiment.optimizer.lr == pytest.approx(1e-2 * (1000 / small) ** 0.5, rel=1e-3)
    found = planned(tmp_path, GRID.replace("[10k]", "[10k], optimizer.lr: [1e-3, 1e-2, 1e-1]"))
    enter(ledger := found.ledger(), found)
    swept = f"rate: {{kind: Swept, study: {found.question.name}}}\n{GRID}"
    refuses("no finished run", planned, tmp_path, swept)
    for one in found.runs:
        finish(ledger, one.run, abs(math.log(one.experiment.optimizer.lr / 1e-2)))
    assert [one.experiment.optimizer.lr for one in planned(tmp_path, swept).runs] == pytest.approx([1e-2] * 2)


def fitted(folder: Path, law: str, *estimates: float) -> Path:
    """The fit of a law of the best rate or batch, as `scaling fit --json` writes it."""
    path, names = folder / f"{law}.json", named(law).parameter_names
    path.write_text(json.dumps({"law": law, "estimates": dict(zip(names, estimates, strict=True))}))
    return path


def test_rates_and_batches_by_laws_that_were_fitted_before(tmp_path):
    rate = fitted(tmp_path, "learning_rate_d_width_b", 0.5, -0.1, -0.5, 0.3)  # 0.5 D^-0.1 width^-0.5 B^0.3
    batch = fitted(tmp_path, "batch_size_d", 2.0, 0.5)
    grid = GRID.replace("10k", "2000, 10000")
    for one in planned(tmp_path, f"rate: {{kind: Law, file: {rate}, batch: {batch}}}\n{grid}").runs:
        row, width = one.experiment.row_tokens, one.experiment.cost.shape.width
        asked = next(float(word[13:]) for word in one.overrides if word.startswith("train.tokens="))
        assert one.point["B"] == pytest.approx(2.0 * asked**0.5, abs=0.6 * row)
        expected = 0.5 * one.point["D"] ** -0.1 * width**-0.5 * one.point["B"] ** 0.3
        assert one.experiment.optimizer.lr == pytest.approx(expected, rel=5e-3)
    found = refuses("is a fit of B, not of lr", planned, tmp_path, f"rate: {{kind: Law, file: {batch}}}\n{grid}")
    assert found.key == "rate.file"


def test_runs_beside_each_rung_tell_whether_it_is_tuned(tmp_path):
    fixed = "{data: {kind: Synthetic, symbols: 16, order: 2}, train.batch: 8, optimizer.lr: 4e-3, evaluate.windows: 16}"
    rest = "grid: {size.width: [8, 16], train.tokens: [1k, 2k, 4k], seed: [0, 1]}\nlaw: power_law_floor_d\n"
    untuned = planned(tmp_path, rest, fixed)
    enter(untuned.ledger(), untuned)
    found = planned(tmp_path, f"{rest}tune: true", fixed)
    assert len(enter(found.ledger(), found)) == 24
    beside = [run for run in found.runs if run.point["beside"]]
    assert len(beside) == 24
    assert {run.point["lr"] for run in beside} == {2e-3, 4e-3, 8e-3}
    assert {run.point["B"] for run in beside} == {64, 128, 256}
    assert {run.point["beside"] for run in beside} == {run.name for run in found.runs if run.name.endswith("seed=0")}
    assert len(found.fitted) == 12


SHIPPED = sorted(path.stem for path in (shipped() / "study").glob("*.yaml"))
LARGE = ("architecture_exponents", "long_attention")  # of many rows
SCALES = [
    pytest.param(name, at, marks=[pytest.mark.slow] if at or name in LARGE else [])
    for name in SHIPPED
    for at in (None, *document(find("study", name)).tree.get("at", {}))
]


@pytest.mark.parametrize(("name", "at"), SCALES)
def test_every_shipped_study_plans(name, at, tmp_path):
    question = read(name, at)
    found = plan(question, [f"runs={tmp_path}"], "prepared" if at is None else "stand_in")
    assert len({one.run for one in found.runs}) == len(found.runs) > 1
    assert all(one.flops > 0 and one.steps > 0 for one in found.runs)
    assert not question.laws or any(one.held_out for one in found.runs)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_study_runs_at_a_shrunken_size(name, tmp_path):
    question = read(name)
    axes = {**question.grid, **question.grid.get("axes", {})} if isinstance(question.grid, Mapping) else {}
    few: dict[str, Any] = {key: axes[key][:1] for key in ("row", "parametrization", "size") if key in axes}
    small = replace(question, grid={**few, "train.tokens": [128]}, held_out={}, laws=(), name=f"small-{name}")
    words = ["size.length=16", "train.batch=2", "schedule.warmup=1", "evaluate.windows=16", "log.wandb=disabled"]
    found = plan(small, [f"runs={tmp_path}", *words])
    work(found.ledger(), found)
    assert [found.ledger().result(one.run)["outcome"] for one in found.runs] == ["finished"]


STUDY = yaml.safe_load(Path(SMALL).read_text())
AT = {"grid": {"size": [{"width": 8, "heads": 1}], "train.tokens": ["2k"]}, "law": None}


def write(folder: Path, **changes: object) -> Path:
    path = folder / "asked.yaml"
    path.write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))
    return path


# Changes of keys of the runs, the text of the line at fault, and what is reported.
PLACES = [
    ({"grid": {"size": [{"widht": 8}]}}, "widht: 8", "grid.size.widht=8: a size has no such key"),
    ({"held_out": {"train.tokens": [3]}}, "- 3", "held_out.train.tokens=3: less than one batch"),
    ({"grid": {"log.every": [1, 2]}}, "grid:", "grid: two cells are one run"),
    ({"grid": {"seed": [1], "train.tokens": ["8k"]}}, "grid:", "grid: 1 different point to fit 5 parameters"),
    ({"at": {"paper": {"set": {"seed": "a"}}}}, "seed: a", "at.paper.set.seed='a': expected a whole"),
    ({"target": {"N": 1e9}}, "target:", "target: chinchilla is a law of N, D; add D"),
    ({"law": ["chinchilla", "chinchilla"]}, "law:", "law: a law is named twice"),
    ({"minutes": 5}, "minutes: 5", "minutes=5: there is no smaller scale"),
    ({"tasks": ["rank_tagz"]}, "tasks:", "tasks: rank_tagz: there is no such task; did you"),
]


def test_a_mistake_in_a_key_of_the_runs_has_its_line_and_in_a_dict_its_key(tmp_path, capsys):
    for changes, text, expected in PLACES:
        path, at = write(tmp_path, **changes), "paper" if "at" in changes else None
        err = refused(capsys, "study", path, *(["--at", at] if at else []), f"runs={tmp_path / 'runs'}")
        (place,) = re.findall(rf"^scaling: {re.escape(str(path))}:(\d+): {re.escape(expected)}.*$", err)
        assert text in path.read_text().splitlines()[int(place) - 1]
        with pytest.raises(ScalingError, match=f"^the study: {re.escape(expected)}"):
            scaling.plan({**STUDY, **changes}, at=at, runs=str(tmp_path / "runs"))


def test_mistakes_outside_the_file_are_one_line_too(tmp_path, capsys, monkeypatch):
    path, runs = write(tmp_path, at={"small": AT}), f"runs={tmp_path / 'runs'}"
    assert "scaling: command line: optimizer.lr=-1: expected" in refused(capsys, "plan", path, "optimizer.lr=-1", runs)
    assert "did you mean 'cola'" in refused(capsys, "study", path, "--tasks", "col", runs)
    assert "the study has no such scale; choose from small" in refused(capsys, "plan", path, "--at", "paper", runs)
    assert "there is no such study" in refused(capsys, "submit", path, "--stop", f"runs={tmp_path / 'none'}")
    assert not (tmp_path / "none" / "studies").exists()
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "none"))
    path = write(tmp_path, set={"data": "python", "size.vocabulary": None})
    for more in ([], ["--adaptive", "E ± 0.1"]):
        assert "prepare" in refused(capsys, "study", path, *more, runs)
    assert not (tmp_path / "runs" / "store").exists()


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
    for given in set(law.axes) - set(smallest_grid(law)):  # the proportion that is left
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
