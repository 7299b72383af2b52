"""What a study's YAML says: axes, rows of a table, seeds, laws."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import scaling
from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.schema import build
from scaling.ledger import run_id
from scaling.studies.estimate import costs
from scaling.studies.plan import Plan, enter, entered, plan
from scaling.studies.question import read
from scaling.studies.tasks import with_tasks
from scaling.training.experiment import assemble

ROWS = str(Path(__file__).parent / "rows.yaml")
SMALL = str(Path(__file__).parent / "small.yaml")


def write(folder: Path, text: str) -> str:
    path = folder / "asked.yaml"
    path.write_text(text)
    return str(path)


def test_rows_of_a_table_times_sizes_times_seeds(tmp_path):
    text = (
        f"question: which row?\nbase: {ROWS}\nset: {{train: {{tokens: 4k, batch: 8}}, schedule.warmup: 0}}\n"
        "grid:\n  row: all\n  size: [{width: 16, heads: 2}, {width: 8, heads: 1}]\n  seed: [0, 1]\n"
    )
    found = plan(read(write(tmp_path, text)), [f"runs={tmp_path}"])
    assert len(found.runs) == 12
    assert found.question.law is None
    for one in found.runs:
        row = one.name.split()[0].removeprefix("row=")
        channel = one.experiment.config["model.block.channel"]
        assert channel["kind"] == ("Gated" if row == "SwiGLU" else "Dense")
        assert channel["activation"] == {"SwiGLU": "Swish", "no": "GeLU", "1": "ReLU"}[row]
    assert {one.experiment.seed for one in found.runs} == {0, 1}


def test_the_plan_in_the_ledger_is_the_plan(tmp_path):
    found = plan(read(SMALL), [f"runs={tmp_path}"])
    ledger = found.ledger()
    enter(ledger, "small", found)
    again = entered(ledger, "small")
    assert again.question == found.question
    assert again.runs == found.runs
    assert dict(again.trunks) == dict(found.trunks)
    assert [one.experiment.spec for one in again.runs] == [one.experiment.spec for one in found.runs]
    trunk = next(iter(found.trunks))
    assert again.trunks[trunk].experiment.spec == found.trunks[trunk].experiment.spec
    assert again.trunks[trunk].experiment.steps == found.trunks[trunk].steps


MODEL = """base: decoder
data: {kind: Synthetic, symbols: 16, order: 1}
size: {width: 16, layers: 1, heads: 2, vocabulary: null, length: 16}
"""
GRIDS = {
    "budgets and seeds": ("{train.batch: 8, schedule.warmup: 0}", "{train.tokens: [4k, 8k, 16k], seed: [0, 7]}"),
    "trunks": ("{train.batch: 8, schedule: {kind: WSD, warmup: 2}}", "{trainer.max_steps: [10, 20, 30], seed: [0, 1]}"),
    "a key that refers to the budget": (
        "{train.batch: 8, evaluate.windows: '${trainer.max_steps}', schedule.warmup: 0}",
        "{trainer.max_steps: [10, 20, 30]}",
    ),
    "sizes": (
        "{train.batch: {0: 4, 10: 8}, schedule.warmup: 0}",
        "{size: [{width: 8, heads: 1}, {width: 16}], train.tokens: [4k, 8k]}",
    ),
}


@pytest.mark.parametrize("name", GRIDS)
def test_a_planned_run_is_the_run_that_train_would_make(name, tmp_path):
    fixed, grid = GRIDS[name]
    text = f"question: x\nbase: {tmp_path / 'model.yaml'}\nset: {fixed}\ngrid: {grid}\n"
    (tmp_path / "model.yaml").write_text(MODEL)
    found = plan(read(write(tmp_path, text)), [f"runs={tmp_path}"])
    assert len(found.runs) > 1
    for one in found.runs:
        alone = assemble(load(str(tmp_path / "model.yaml"), one.overrides))
        assert one.run == run_id(alone.spec)
        assert one.experiment.config.tree == alone.config.tree
        assert one.experiment.batches.seed == alone.batches.seed
        assert one.experiment.batches.plan == alone.batches.plan
        assert one.experiment.tokens(one.steps) == alone.tokens(alone.steps)
        trunk = alone.trunk()
        assert (one.trunk and one.trunk[:2]) == (None if trunk is None else (run_id(trunk[0].spec), trunk[1]))


SIZES = "axes: {size: [{width: 16, heads: 1}, {width: 32, heads: 2}, {width: 48, heads: 3}]}"


def planned(folder: Path, rest: str) -> Plan:
    (folder / "model.yaml").write_text(MODEL)
    text = f"question: x\nbase: {folder / 'model.yaml'}\nset: {{train.batch: 4, schedule.warmup: 0}}\n{rest}\n"
    return plan(read(write(folder, text)), [f"runs={folder}"])


@pytest.mark.parametrize("definition", ["exact", "kaplan_with_attention"])
def test_an_isoflop_grid_spends_the_same_on_each_size(definition, tmp_path):
    found = planned(tmp_path, f"grid: {{kind: IsoFLOP, flops: [1e8, 1e9], definition: {definition}, {SIZES}}}")
    assert len(found.runs) == 6
    for one, budget in zip(found.runs, [1e8] * 3 + [1e9] * 3):
        cost = one.experiment.cost
        each = {"exact": cost.flops_train_per_token, **cost.approximations}[definition]
        batch = 4 * one.experiment.row_tokens
        assert 0.9999 * budget <= one.experiment.tokens(one.steps) * each < 1.0001 * budget + batch * each


def test_tokens_are_a_multiple_of_the_parameters(tmp_path):
    found = planned(tmp_path, f"grid: {{kind: TokensPerParameter, multiples: [2, 20], {SIZES}}}")
    for one, multiple in zip(found.runs, [2, 20] * 3):
        tokens = multiple * one.experiment.cost.parameters
        assert tokens <= one.experiment.tokens(one.steps) < tokens + 4 * one.experiment.row_tokens


GRID = "grid: {size: [{width: 16, heads: 1}, {width: 32, heads: 2}], train.tokens: [10k]}"


def test_rates_by_a_rule(tmp_path):
    for one in planned(tmp_path, f"rate: {{kind: Power, lr: 1e-2, parameters: 1000, exponent: 0.5}}\n{GRID}").runs:
        small = one.experiment.cost.parameters_non_embedding
        assert one.experiment.optimizer.lr == pytest.approx(1e-2 * (1000 / small) ** 0.5, rel=1e-3)
    for one in planned(tmp_path, f"rate: Kaplan\n{GRID}").runs:
        small = one.experiment.cost.parameters_non_embedding
        assert one.experiment.optimizer.lr == pytest.approx(0.003239 - 0.0001395 * math.log(small), rel=1e-3)


def test_rates_from_a_sweep_that_was_run_before(tmp_path):
    swept = planned(tmp_path, GRID + "\n").question
    assert isinstance(swept.grid, Mapping)
    swept = replace(swept, name="rates", grid={**swept.grid, "optimizer.lr": [1e-3, 1e-2, 1e-1]})
    found = plan(swept, [f"runs={tmp_path}"])
    ledger = found.ledger()
    enter(ledger, "rates", found)
    with pytest.raises(ScalingError, match="no finished run"):
        planned(tmp_path, f"rate: {{kind: Swept, study: rates}}\n{GRID}")
    for one in found.runs:
        attempt = ledger.claim(one.run)
        assert attempt is not None
        loss = abs(math.log(one.experiment.optimizer.lr / 1e-2))
        attempt.finish("finished", {"loss": loss, "N": {"non_embedding": one.experiment.cost.parameters_non_embedding}})
        attempt.close()
    for one in planned(tmp_path, f"rate: {{kind: Swept, study: rates}}\n{GRID}").runs:
        assert one.experiment.optimizer.lr == pytest.approx(1e-2)


def fitted(folder: Path, law: str, target: str, height: float, powers: dict[str, float]) -> Path:
    """The fit of a law of the best rate or batch to points of it, as `scaling fit --json` writes it."""
    rng = np.random.default_rng(0)
    columns = {name: np.exp(rng.uniform(2, 6, 12)) for name in powers}
    columns[target] = height * np.prod([columns[name] ** power for name, power in powers.items()], axis=0)
    path = folder / f"{law}.json"
    path.write_text(json.dumps(scaling.fit(columns, law=law, intervals="none", starts=64).document))
    return path


def test_rates_and_batches_by_laws_that_were_fitted_before(tmp_path):
    rate = fitted(tmp_path, "learning_rate_d_width_b", "lr", 0.5, {"D": -0.1, "width": -0.5, "B": 0.3})
    batch = fitted(tmp_path, "batch_size_d", "B", 2.0, {"D": 0.5})
    grid = "grid: {size: [{width: 16, heads: 1}, {width: 32, heads: 2}], train.tokens: [2000, 10000]}"
    for one in planned(tmp_path, f"rate: {{kind: Law, file: {rate}, batch: {batch}}}\n{grid}").runs:
        row, width = one.experiment.row_tokens, one.experiment.cost.shape.width
        asked = next(float(word[13:]) for word in one.overrides if word.startswith("train.tokens="))
        assert one.point["B"] == pytest.approx(2.0 * asked**0.5, abs=0.6 * row)
        expected = 0.5 * one.point["D"] ** -0.1 * width**-0.5 * one.point["B"] ** 0.3
        assert one.experiment.optimizer.lr == pytest.approx(expected, rel=5e-3)
    for file, message in (
        ("none.json", "cannot read it"),
        (tmp_path / "model.yaml", "is no fit of a named law"),
        (batch, "is a fit of B, not of lr"),
    ):
        with pytest.raises(ScalingError, match=message) as found:
            planned(tmp_path, f"rate: {{kind: Law, file: {file}}}\n{grid}")
        assert found.value.key == "rate.file"


@pytest.mark.parametrize(
    ("grid", "held_out", "expected"),
    [
        ("{train.tokens: [1k, 10k, 2k]}", "{seed: [7]}", 10_000),
        ("{train.tokens: [1k, 10k]}", "{train.tokens: [4k], seed: [7]}", 4_000),
        ("{kind: TokensPerParameter, multiples: [2, 1], axes: {size.layers: [1]}}", "{seed: [7]}", "the grid's"),
    ],
)
def test_a_held_out_run_without_a_budget_has_the_largest_of_the_grid(grid, held_out, expected, tmp_path):
    *runs, last = planned(tmp_path, f"grid: {grid}\nheld_out: {held_out}").runs
    assert last.held_out
    if expected == "the grid's":
        expected = max(one.experiment.tokens(one.steps) for one in runs)
    assert 0 <= last.experiment.tokens(last.steps) - expected < 4 * last.experiment.row_tokens


def test_a_plan_keeps_the_command_that_made_it(tmp_path, monkeypatch):
    monkeypatch.setattr("scaling.config.schema.extensions", lambda: ["/some/where/own.py"])
    words = ["seed=3", f"runs={tmp_path}"]
    found = with_tasks(plan(read(SMALL, None, words), words), ["cola"])
    enter(found.ledger(), found.question.name, found)
    command = entered(found.ledger(), found.question.name).command
    assert command == ("study", "small.yaml", "seed=3", "--extend", "own.py", "--tasks", "cola")


def test_a_swarm_is_spread_evenly_over_all_mixtures():
    cells = list(build("grid", {"kind": "Simplex", "domains": ["a", "b", "c"], "runs": 64}).cells(dict))
    shares = np.array([[cell[f"data.shares.{name}"] for name in "abc"] for cell in cells])
    assert len(cells) == 64
    assert len({tuple(row) for row in shares.tolist()}) == 64
    np.testing.assert_allclose(shares.sum(1), 1.0, atol=2e-4)
    np.testing.assert_allclose(shares.mean(0), 1 / 3, atol=0.02)
    assert shares.min() >= 0.01
    for line in ({"domains": ["a"], "runs": 4}, {"domains": ["a", "b"], "runs": 4, "least": 0.5}):
        with pytest.raises(ScalingError):
            build("grid", {"kind": "Simplex", **line})


def test_runs_beside_each_rung_tell_whether_it_is_tuned(tmp_path):
    text = """
question: Is each rung tuned?
base: decoder
set:
  data: {kind: Synthetic, symbols: 16, order: 2}
  size: {layers: 1, heads: 1, head_width: 8, vocabulary: null, length: 16}
  train.batch: 8
  optimizer.lr: 4e-3
  evaluate: {points: 1, windows: 16}
grid: {size.width: [8, 16], train.tokens: [1k, 2k, 4k], seed: [0, 1]}
tune: true
law: power_law_floor_d
"""
    untuned = plan(read(write(tmp_path, text.replace("tune: true\n", ""))), [f"runs={tmp_path / 'runs'}"])
    enter(untuned.ledger(), "asked", untuned)
    found = plan(read(write(tmp_path, text)), [f"runs={tmp_path / 'runs'}"])
    assert len(enter(found.ledger(), "asked", found)) == 24
    beside = [run for run in found.runs if run.point["beside"]]
    assert len(found.runs) == 12 + 6 * 4
    assert {run.point["lr"] for run in beside} == {2e-3, 4e-3, 8e-3}
    assert {run.point["B"] for run in beside} == {64, 128, 256}
    assert {run.point["seed"] for run in beside} == {0}
    assert {run.point["beside"] for run in beside} == {run.name for run in found.runs if run.name.endswith("seed=0")}
    assert len(found.fitted) == 12
    assert costs(found)["total"]["beside"] == 24
