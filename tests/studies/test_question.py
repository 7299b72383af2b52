"""What a study's YAML says: axes, rows of a table, seeds, laws."""

from __future__ import annotations

import gc
import json
import math
import subprocess
import sys
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from scaling.config import load
from scaling.errors import ScalingError
from scaling.ledger import run_id
from scaling.studies.plan import KEPT, Plan, enter, entered, plan
from scaling.studies.question import Question, read
from scaling.training.experiment import assemble
from scaling.training.point import point

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


def test_a_row_that_the_table_lacks_is_told(tmp_path):
    text = f"question: x\nbase: {ROWS}\ngrid: {{row: [SwiGLU, Maxuot]}}\n"
    with pytest.raises(ScalingError, match="no such row"):
        plan(read(write(tmp_path, text)), [f"runs={tmp_path}"])


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


def test_the_points_of_a_plan_in_the_ledger_are_those_of_its_runs_and_need_no_torch(tmp_path):
    found = plan(read(SMALL), [f"runs={tmp_path}"])
    enter(found.ledger(), "small", found)
    code = (
        "import json, sys; from scaling.ledger import Ledger; from scaling.studies.plan import entered\n"
        "plan = entered(Ledger.open(sys.argv[1]), 'small')\n"
        "print(json.dumps([[list(run.point.items()) for run in plan.runs], 'torch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    expected = [[list(pair) for pair in point(run.experiment).items()] for run in found.runs]
    assert json.loads(done.stdout) == [expected, False]


def test_a_worker_holds_no_more_experiments_than_it_needs(tmp_path):
    asked = replace(read(SMALL), grid={"seed": list(range(KEPT + 1)), "train.tokens": [2000]}, held_out={}, laws=())
    found = plan(asked, [f"runs={tmp_path}"])
    enter(found.ledger(), "small", found)
    again = entered(found.ledger(), "small")
    first = weakref.ref(again.runs[0].experiment)
    for one in again.runs[:KEPT]:
        assert one.experiment
    assert first() is again.runs[0].experiment
    for one in again.runs[1:]:
        assert one.experiment
    gc.collect()
    assert first() is None


MODEL = """base: decoder
data: {kind: Synthetic, symbols: 16, order: 1}
size: {width: 16, layers: 1, heads: 2, vocabulary: null, length: 16}
"""
GRIDS = {
    "budgets and seeds": ("{train.batch: 8, schedule.warmup: 0}", "{train.tokens: [4k, 8k, 16k], seed: [0, 7]}"),
    "steps": ("{train.batch: 8, schedule.warmup: 0}", "{trainer.max_steps: [10, 20]}"),
    "trunks": ("{train.batch: 8, schedule: {kind: WSD, warmup: 2}}", "{trainer.max_steps: [10, 20, 30], seed: [0, 1]}"),
    "rates": ("{train.batch: 8, schedule.warmup: 0}", "{optimizer.lr: [1e-3, 1e-2], train.tokens: [4k, 8k]}"),
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


def test_one_law_or_several_or_none():
    asked = {"question": "x", "base": "decoder", "set": {}, "grid": {"seed": [0]}}
    assert Question("x", **asked).law is None
    assert Question("x", **asked, laws=["chinchilla", "kaplan"]).law == "chinchilla"


def test_a_list_of_grids_is_their_union(tmp_path):
    text = f"question: q\nbase: {ROWS}\ngrid:\n  - {{row: ['no'], seed: [0, 1, 2]}}\n  - {{row: [SwiGLU], seed: [0]}}\n"
    found = plan(read(write(tmp_path, text)), [f"runs={tmp_path}", "trainer.max_steps=200"])
    assert [one.name for one in found.runs] == ["no seed=0", "no seed=1", "no seed=2", "SwiGLU seed=0"]
    with pytest.raises(ScalingError, match=r"grid\.1\.seed"):
        read(write(tmp_path, "question: q\nbase: decoder\ngrid: [{seed: [0]}, {seed: [1, 1]}]\n"))


def test_quantities_inside_a_piece_are_numbers(tmp_path):
    piece = "{kind: Synthetic, symbols: 16, order: 1, tokens: 8k}"
    told = f"{{data: {piece}, size.vocabulary: null, schedule.warmup: 0}}"
    text = f"question: x\nbase: decoder\nset: {told}\ngrid: {{train.tokens: [100k]}}\n"
    (run,) = plan(read(write(tmp_path, text)), [f"runs={tmp_path}"]).runs
    assert run.experiment.config["data"]["tokens"] == 8000


SIZES = "axes: {size: [{width: 16, heads: 1}, {width: 32, heads: 2}, {width: 48, heads: 3}]}"


def planned(folder: Path, rest: str) -> Plan:
    (folder / "model.yaml").write_text(MODEL)
    text = f"question: x\nbase: {folder / 'model.yaml'}\nset: {{train.batch: 4, schedule.warmup: 0}}\n{rest}\n"
    return plan(read(write(folder, text)), [f"runs={folder}"])


@pytest.mark.parametrize("definition", ["exact", "6N", "kaplan_with_attention"])
def test_an_isoflop_grid_spends_the_same_on_each_size(definition, tmp_path):
    found = planned(tmp_path, f"grid: {{kind: IsoFLOP, flops: [1e8, 1e9], definition: {definition}, {SIZES}}}")
    assert len(found.runs) == 6
    for one, budget in zip(found.runs, [1e8] * 3 + [1e9] * 3):
        cost = one.experiment.cost
        each = {"exact": cost.flops_train_per_token, **cost.approximations}[definition]
        batch = 4 * one.experiment.row_tokens
        assert 0.9999 * budget <= one.experiment.tokens(one.steps) * each < 1.0001 * budget + batch * each


def test_an_isoflop_grid_leaves_out_what_a_parabola_does_not_reach(tmp_path):
    kind = "kind: IsoFLOP, flops: [1e8, 1e9], tokens_per_parameter: [0.5, 5]"
    for one in planned(tmp_path, f"grid: {{{kind}, {SIZES}}}").runs:
        assert 0.5 <= one.experiment.tokens(one.steps) / one.experiment.cost.parameters_non_embedding < 5.5


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


def test_a_study_has_scales(tmp_path):
    text = (
        "question: x\nbase: decoder\ngrid: {seed: [0]}\nat: {paper: {grid: {seed: [0, 1]}, set: {size: ladder/1M}}}\n"
    )
    asked = read(write(tmp_path, text))
    paper = read(write(tmp_path, text), "paper")
    assert (asked.grid, dict(asked.set)) == ({"seed": [0]}, {})
    assert (paper.grid, dict(paper.set), paper.at) == ({"seed": [0, 1]}, {"size": "ladder/1M"}, "paper")
    with pytest.raises(ScalingError, match="'paper'"):
        read(write(tmp_path, text), "papers")
