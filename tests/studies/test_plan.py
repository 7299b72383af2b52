"""Grids, rates and seeds of a study as its runs, which `train` would make; every shipped study; mistakes in a file."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import scaling
from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.document import document
from scaling.config.files import find, shipped
from scaling.config.schema import build
from scaling.laws import named
from scaling.ledger import run_id
from scaling.studies.plan import Plan, enter, entered, plan
from scaling.studies.question import read
from scaling.studies.tasks import with_tasks
from scaling.training.experiment import assemble
from tests.command_line import refused
from tests.serial import work

SMALL = str(Path(__file__).parent / "small.yaml")
MODEL = """base: decoder
data: {kind: Synthetic, symbols: 16, order: 1}
size: {width: 16, layers: 1, heads: 2, vocabulary: null, length: 16}
"""
SIZES = "{size: [{width: 16, heads: 1}, {width: 32, heads: 2}]}"
GRID = "grid: {size: [{width: 16, heads: 1}, {width: 32, heads: 2}], train.tokens: [10k]}"


def planned(
    folder: Path, rest: str, fixed: str = "{train.batch: 4, schedule.warmup: 0}", base: str = "model.yaml"
) -> Plan:
    (folder / "model.yaml").write_text(MODEL)
    text = f"question: x\nbase: {folder / base}\nset: {fixed}\n{rest}\n"
    (folder / "asked.yaml").write_text(text)
    return plan(read(str(folder / "asked.yaml")), [f"runs={folder}"])


def test_rows_of_a_table_times_sizes_times_seeds(tmp_path):
    rows = MODEL + "rows: {1: {model.block.channel.activation: ReLU}, no: {}}\n"
    (tmp_path / "rows.yaml").write_text(rows)
    grid = "grid: {row: all, size: [{width: 16, heads: 2}, {width: 8, heads: 1}], seed: [0, 1]}"
    found = planned(tmp_path, grid, "{train: {tokens: 4k, batch: 8}, schedule.warmup: 0}", "rows.yaml")
    chosen = [(one.name.split()[0], one.experiment.config["model.block.channel"]["activation"]) for one in found.runs]
    assert sorted(chosen) == [("1", "ReLU")] * 4 + [("no", "Swish")] * 4


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


def test_budgets_of_a_kind_are_equal_flops_or_tokens_a_parameter(tmp_path):
    for definition in ("exact", "kaplan_with_attention"):
        kind = f"kind: IsoFLOP, flops: [1e8, 1e9], definition: {definition}"
        found = planned(tmp_path, f"grid: {{{kind}, axes: {SIZES}}}")
        for one, budget in zip(found.runs, [1e8] * 2 + [1e9] * 2, strict=True):
            cost = one.experiment.cost
            each = {"exact": cost.flops_train_per_token, **cost.approximations}[definition]
            batch = 4 * one.experiment.row_tokens
            assert 0.9999 * budget <= one.experiment.tokens(one.steps) * each < 1.0001 * budget + batch * each
    found = planned(tmp_path, f"grid: {{kind: TokensPerParameter, multiples: [2, 20], axes: {SIZES}}}")
    for one, multiple in zip(found.runs, [2, 20] * 2, strict=True):
        tokens = multiple * one.experiment.cost.parameters
        assert tokens <= one.experiment.tokens(one.steps) < tokens + 4 * one.experiment.row_tokens


def test_a_held_out_run_without_a_budget_has_the_largest_of_the_grid(tmp_path):
    grid = "grid: {kind: TokensPerParameter, multiples: [2, 1], axes: {size.layers: [1]}}"
    largest, _, last = planned(tmp_path, f"{grid}\nheld_out: {{seed: [7]}}").runs
    assert last.held_out
    assert last.experiment.tokens(last.steps) == largest.experiment.tokens(largest.steps)


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
    with pytest.raises(ScalingError, match="16 different points to fit 18 parameters"):
        planned(tmp_path, grid.replace(f", {rates[-1]}]", "]"))


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
    with pytest.raises(ScalingError, match="no finished run"):
        planned(tmp_path, swept)
    for one in found.runs:
        with ledger.claim(one.run) as attempt:
            attempt.finish("finished", {"loss": abs(math.log(one.experiment.optimizer.lr / 1e-2))})
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
    with pytest.raises(ScalingError, match="is a fit of B, not of lr") as found:
        planned(tmp_path, f"rate: {{kind: Law, file: {batch}}}\n{grid}")
    assert found.value.key == "rate.file"


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
    enter(found.ledger(), found)
    work(found.ledger(), entered(found.ledger(), small.name))
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
