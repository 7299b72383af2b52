"""What a run is made of its config: mistakes in one line before anything starts, ids, threads, lengths, evaluations."""

from typing import Any

import numpy as np
import pytest
import torch

import scaling
from scaling.ledger import run_id
from scaling.training import machine
from scaling.training.evaluation import FORWARD, FREE
from scaling.verbs import command_line as cli
from tests.command_line import printed, refused
from tests.training.conftest import experiment, train, words

# Overrides, and what the one line has to hold. Any value under any key: tests/test_bad_values.py.
BAD = {
    "schedule.warmup=12": "warmup",
    "train.tokens=null trainer.max_steps=null": "train.tokens",
    "train.tokens=10 trainer.max_steps=null": "less than one batch",
    "train.epochs=1 trainer.max_steps=null train.tokens=null": "the data have no end",
    "train.epochs=1": "trainer.max_steps sets the length of training too; set trainer.max_steps to null",
    f"train.batch={{0: 4, 5: {2**40}}}": "more than 4,194,304 rows a step",
    "train.micro_batch=3": "do not divide",
    "train.threads=1000": "take fewer, or auto",
    "trainer.devices=4096": "trainer.devices",
    "trainer.strategy=ddp": "there is one device",
    "size.vocabulary=8": "use 9 ids; set size.vocabulary to 9",
    "data.validation=3": "shorter than one window",
    "objective=Masked": "objective.kind",
    "objective=BothWays": "reads in one direction; take model.kind=BiLM",
    "trainer.devices=2 trainer.strategy=fsdp optimizer.kind=Adafactor": "does not work on shards",
    "objective={kind: Distil, objective: Causal, teacher: feed}": "objective.teacher='feed': there is no such run",
    "objective={kind: Distil, objective: BothWays, teacher: feed}": "objective.objective='BothWays': a teacher has one",
    "start.run=feed": "start.run='feed': there is no such run",
    "start.run=feed start.folder=/tmp": "names weights by run and by folder",
    "start.folder=nowhere": "start.folder='nowhere': there is no such folder",
    "start.run=BASE start.step=5": "no whole checkpoint of step 5; take one of 8, 12",
    "train.parts=[head.wieght]": "no parameter has such a name; did you mean 'head.weight'",
    "train.parts={last: 4}": "the tower has 1 block; write {last: 1}",
    "train.parts=bias": "train.parts='bias': the model below its head has no biases",
    "train.parts=head model.tie=[decoder,head]": "no parameters of its own; take head out of model.tie",
}


@pytest.mark.parametrize("line", BAD)
def test_a_mistake_is_one_line_before_anything_starts(line, base, capsys):
    overrides = line.replace("BASE", base[1]).split(" ") if ": " not in line else [line]
    assert BAD[line] in refused(capsys, "train", *words(base[0], seed=5), *overrides)
    assert [*base[0].glob("store/*/log.jsonl")] == [base[0] / "store" / base[1] / "log.jsonl"]


# A shipped size is a shape; its vocabulary is what data and objective need, rounded up where that is asked.
MANY = {"data.symbols": 1000, "data.order": 1, "size.vocabulary": "absent"}
VOCABULARIES = [({"data.symbols": 16}, 17), ({**MANY, "train.round_vocabulary": 128}, 1024)]
VOCABULARIES += [({"size.vocabulary": "absent"}, 512)]


@pytest.mark.parametrize(("changes", "size"), VOCABULARIES)
def test_a_model_has_the_ids_that_its_data_need(changes, size, tmp_path, capsys):
    one = experiment(tmp_path, **changes)
    assert one.config["size.vocabulary"] == one.spec["size"]["vocabulary"] == size
    assert one.cost.parameters_by_slot["head"] == size * 8
    document = printed(capsys, "inspect", *words(tmp_path, **changes), "--json")
    assert document["parameters"] == one.cost.parameters


def test_a_small_run_trains_with_one_thread_unless_a_person_asks(tmp_path, monkeypatch):
    def threads(**changes: Any) -> int:
        line = words(tmp_path, trainer__max_steps=2, schedule__warmup=0, **changes)
        return train(line)["circumstances"]["threads"]

    before = torch.get_num_threads()
    for variable in machine.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    torch.set_num_threads(2)
    try:
        assert threads() == 1
        assert torch.get_num_threads() == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        assert threads(seed=2) == 2
        assert threads(seed=3, train__threads=1) == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("call", [2, 13])
def test_steps_and_evaluations_count_subnormal_numbers_as_zero_and_what_follows_does_not(call, sabotaged):
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor counts them always")
    torch.set_flush_denormal(False)
    product = "(torch.tensor(1e-39) * 1).item()"
    fault = f"import torch\nif {product} == 0: raise ArithmeticError('it was zero')"
    with pytest.raises(ArithmeticError, match="it was zero"):
        train(sabotaged(fault, call, **{"evaluate.points": 1}))
    assert eval(product) != 0


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A prepared text that ends, as changes of the tiny run."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text("".join(f"the law of {number} and no other\n\n" for number in range(300)))
    data = {"data": "files", "data.corpus.files": folder / "text.txt", "data.tokenizer": "Byte"}
    data |= {"data.symbols": "absent", "data.validation": 0.2, "runs": folder / "runs"}
    line = [word for word in words(folder / "runs", **data) if word.startswith(("data", "runs"))]
    assert cli.main(["data", "prepare", *line]) == 0
    return {**data, "trainer.max_steps": "absent", "schedule.warmup": 0}


@pytest.mark.parametrize("epochs", [0.5, 2.5])
def test_epochs_are_the_fewest_updates_that_see_all_rows_so_often(epochs, text, tmp_path):
    one = experiment(text["runs"], **text, **{"train.epochs": epochs})
    assert one.batches.passes(one.steps) >= epochs > one.batches.passes(one.steps - 1)
    rows = np.concatenate([one.batches.plan.drawn(step)[1] for step in range(one.steps)])
    _, counts = np.unique(rows, return_counts=True)
    if epochs >= 1:
        assert len(counts) == one.batches.source.windows(one.batches.objective.reads)  # type: ignore[attr-defined]
        assert counts.min() >= int(epochs)
    steps = experiment(text["runs"], **{**text, "trainer.max_steps": one.steps})
    one.config.save(tmp_path / "config.yaml")  # which ranks read
    again = scaling.module(str(tmp_path / "config.yaml")).experiment
    assert run_id(one.spec) == run_id(steps.spec) == run_id(again.spec)


@pytest.mark.parametrize(("steps", "batch", "spacing"), [(1, 1, "log"), (2000, 1, "log"), (500, 64, "even")])
def test_evaluations_cost_at_most_a_tenth_of_a_run(steps, batch, spacing):
    """Or no more than reading 16,384 tokens, where a tenth of the run is less; those that are asked for cost more."""
    changes: dict[str, Any] = {"trainer.max_steps": steps, "train.batch": batch, "evaluate.spacing": spacing}
    changes |= {"evaluate.points": 12, "schedule.warmup": "auto", "data.validation": 70_000}
    one = experiment(**changes)
    assert FORWARD * sum(one.evaluated.values()) <= max(0.1 * steps * batch, FORWARD * FREE / one.row_tokens)
    assert [*one.evaluated] == sorted({*one.evaluated})
    assert 1 <= min(one.evaluated) <= max(one.evaluated) == steps
    for windows, count in (("null", 70_000 // 17), ("1e3", 1000)):
        assert {*experiment(**changes, **{"evaluate.windows": windows}).evaluated.values()} == {count}
    whole = experiment(**changes, **{"evaluate.windows": "whole_at_end"})
    assert whole.evaluated[steps] == 70_000 // 17
    assert len({run_id(each.spec) for each in (whole, experiment(**changes, **{"evaluate.windows": "null"}))}) == 1
