"""One update and one evaluation: what is minimised, in what precision, over which batches, and what is measured."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

import scaling
from scaling.base.batch import IGNORE
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.ledger import Ledger, run_id
from scaling.training.evaluation import FORWARD, FREE, Evaluation, evaluation_steps
from tests.training.conftest import STILL, at, experiment, left, load, losses, tensors, train, words

PAIRS: dict[str, Any] = {"data": "synthetic_pairs", "data.symbols": "absent", "objective": "Sequence"}
PAIRS |= {"size.length": 32, "data.validation": 64, "data.pairs": 500}

# Experts drop the same positions however a batch is split; rows of pairs hold different numbers of targets, over all of
# which the loss is the mean.
SPLIT = [
    ("decoder", 1, {"model.block.channel": "{kind: Switch, activation: ReLU, experts: 4, capacity: 0.7}"}),
    ("encoder", 1, {"size.length": 32}),
    ("encoder_decoder", 1, PAIRS),
]


@pytest.mark.parametrize(("name", "rows", "changes"), SPLIT)
def test_accumulation_is_the_whole_batch(name, rows, changes, tmp_path, run):
    run(name, runs=tmp_path / "whole", **STILL, **changes)
    run(name, runs=tmp_path / "parts", train__micro_batch=rows, **STILL, **changes)
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), rel=2e-5)


def test_dropout_repeats_by_step_and_differs_between_steps(tmp_path, unbroken, still):
    plain, none = ([loss for (_, kind), loss in one.losses.items() if kind == "train"] for one in (unbroken, still))
    seeds: list[int] = []
    steps = [at("on_train_batch_end", step, lambda: seeds.append(torch.initial_seed())) for step in range(1, 13)]
    train(words(tmp_path / "again", train__threads=1), *steps)
    assert losses(tmp_path / "again") == plain != none
    assert len(set(seeds)) == len(seeds) == 12


@pytest.mark.slow
def test_a_compiled_model_learns_the_same(tmp_path, run):
    """In a process of its own: the tests' checks of shapes cannot be compiled."""
    plain = run(runs=tmp_path / "plain", trainer__max_steps=3, **STILL)
    line = words(tmp_path / "compiled", trainer__max_steps=3, train__compile="true", **STILL)
    subprocess.run([sys.executable, "-m", "scaling", "train", *line], check=True, capture_output=True)
    assert left(tmp_path / "compiled").result["loss"] == pytest.approx(plain["loss"], rel=1e-4)


# What is minimised beside the plain loss

TAUGHT = {**STILL, "parametrization": "{kind: Standard, head: normal}"}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    runs = tmp_path_factory.mktemp("teacher") / "runs"
    return runs, train(words(runs, trainer__max_steps=20, **TAUGHT))["run"]


def pupil(teacher: tuple[Path, str], weight: float, name: str | None = None, **changes: Any) -> list[float]:
    """The training losses of a pupil."""
    line = f"{{kind: Distil, objective: Causal, teacher: '{name or teacher[1]}', weight: {weight}}}"
    run = train(words(teacher[0], objective=line, seed=1, **TAUGHT, **changes))["run"]
    return [entry["loss"] for entry in Ledger.open(teacher[0]).history(run) if entry["kind"] == "train"]


EXPERTS = {"model__block__channel": "{kind: Switch, activation: GeLU, experts: 2, balance: 0.5}"}


@pytest.mark.parametrize("changes", [{}, EXPERTS])
def test_a_pupil_that_ignores_its_teacher_learns_as_one_without(changes, teacher, tmp_path, run):
    """The losses that pieces add stay, as the balance of experts."""
    run(runs=tmp_path / "plain", seed=1, **TAUGHT, **changes)
    assert pupil(teacher, 0.0, **changes) == pytest.approx(losses(tmp_path / "plain"), rel=1e-5)


def test_a_teacher_moves_a_pupil_towards_it(teacher):
    distances = pupil(teacher, 1.0)  # nothing but KL(teacher ‖ pupil)
    assert all(distance > 0 for distance in distances)
    assert distances[-1] < distances[0]
    with pytest.raises(ScalingError, match=r"objective\.teacher.*there is no such run"):
        pupil(teacher, 0.5, "feed")


def test_smoothing_changes_training_and_not_how_it_is_judged(tmp_path, run):
    plain, smooth = (run(runs=tmp_path / str(value), train__smoothing=value, **TAUGHT) for value in (0, 0.1))
    assert smooth["run"] != plain["run"]
    assert losses(tmp_path / "0.1")[0] != losses(tmp_path / "0")[0]
    assert abs(smooth["loss"] - plain["loss"]) < 0.1


# Precisions


PRECISIONS = [
    ("32-true", "bf16-mixed"),
    ("bf16-mixed", "bf16-true"),
    ("bf16-true", "32-true"),
]


@pytest.mark.parametrize(("training", "evaluation"), PRECISIONS)
def test_a_precision_of_training_and_one_of_evaluation(training, evaluation, tmp_path, run, still):
    """A low one is near float32; a checkpoint's float32 weights give the result's loss in the precision asked."""
    line = {"trainer__precision": training, "evaluate__precision": evaluation, **STILL}
    result = run(**line)
    assert result["evaluation_precision"] == evaluation
    saved = tensors(tmp_path / "runs", result["run"])
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
    one = experiment(**line)
    model = one.model().to_empty(device="cpu")
    model.load_state_dict(saved)
    model = model.to(torch.bfloat16) if evaluation == "bf16-true" else model
    batches, count = one.evaluation()
    with torch.autocast("cpu", torch.bfloat16, enabled=evaluation == "bf16-mixed"):
        alone = measure(one, model, [batches.batch(step) for step in range(count)])
    assert result["loss"] == pytest.approx(alone["loss"], rel=1e-9)
    assert still.result["loss"] != result["loss"] == pytest.approx(still.result["loss"], rel=5e-3)
    default = "bf16-true" if training == "bf16-true" else "32-true"  # of the time before the key
    assert ("precision" in one.spec["evaluate"]) == (evaluation != default)


# Evaluations


def measure(one: Any, model: Any, batches: list[Any], **changes: Any) -> dict[str, Any]:
    """What a model loses on batches, outside of a Trainer."""
    evaluation = Evaluation(*one.evaluation())
    for name, value in changes.items():
        setattr(evaluation, name, value)
    model.eval()
    for batch in batches:
        evaluation.add(model, batch)
    return evaluation.measured()


@given(steps=some.integers(1, 10**7), points=some.integers(1, 40), evenly=some.booleans())
def test_the_steps_of_evaluations_rise_to_the_end(steps, points, evenly):
    found = evaluation_steps(steps, points, evenly)
    assert found[-1] == steps
    assert found == sorted(set(found))
    assert found[0] >= 1
    assert len(found) <= points


@pytest.fixture(scope="module")
def evaluated() -> tuple[Any, Any, list[Any], dict[str, Any]]:
    one = experiment(parametrization__kind="GPT2", data__validation=500)
    batches, count = one.evaluation()
    model, read = one.initial_model(), [batches.batch(step) for step in range(count)]
    return one, model, read, measure(one, model, read)


def test_an_evaluation_is_the_mean_over_every_target(evaluated):
    """The excess is paired with the truth, and how the batches are cut does not matter."""
    one, model, batches, found = evaluated
    rows = 500 // 17
    assert found["targets"] == rows * 16
    with torch.no_grad():
        logits = model.eval().logits(batches[0]).double()
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batches[0].targets.flatten(), reduction="none")
    assert found["loss_plain"] == pytest.approx(each.mean().item(), rel=1e-6)
    assert found["accuracy"] == pytest.approx((logits.argmax(-1) == batches[0].targets).double().mean().item())
    assert found["loss_by_position"] == pytest.approx(each.reshape(rows, 16).mean(0).tolist(), rel=1e-5)
    truth = torch.cat([batch.truth for batch in batches]).double().mean().item()
    assert found["excess"] == pytest.approx(found["loss_plain"] - truth, rel=1e-6)
    assert found["loss"] == pytest.approx(one.validation.source.entropy + found["excess"])
    cut = [batch.micro(start, start + 3) for batch in batches for start in range(0, batch.rows, 3)]
    again = measure(one, model, cut)
    assert again["loss"] == pytest.approx(found["loss"], rel=1e-7)
    assert again["accuracy"] == found["accuracy"]


@pytest.mark.parametrize("kind", ["encoder_decoder Prefix", "decoder SpanCorruption", "encoder Masked"])
def test_only_losses_that_are_a_code_of_the_text_have_bits_per_byte(kind):
    name, objective = kind.split()
    one = experiment("/", name, **{"objective": objective, "size.length": 64, "data.validation": 4096})
    source = SimpleNamespace(entropy=None, bytes_per_token=2.5)
    found = measure(one, one.initial_model(), [one.validation.batch(0)], source=source)
    bits = found["loss"] / math.log(2) / 2.5 if objective in ("Causal", "Prefix") else None
    assert found.get("bits_per_byte") == pytest.approx(bits)


@pytest.mark.parametrize("noise", ["spans", "tokens"])
def test_the_loss_of_text_leaves_out_sentinels(noise):
    one = experiment("/", "encoder_decoder", **{"objective.noise": noise, "size.length": 64, "data.validation": 4096})
    model, batch = one.initial_model().eval(), one.validation.batch(0).micro(0, 4)
    found = measure(one, model, [batch])
    with torch.no_grad():
        each = model.losses(batch).double()
    vocabulary: Any = one.batches.objective.vocabulary  # type: ignore[attr-defined]
    text = (batch.targets != IGNORE) & ~torch.isin(batch.targets, torch.tensor([*vocabulary.specials.values()]))
    assert 0 < text.sum() < (batch.targets != IGNORE).sum()
    assert found["loss_text"] == pytest.approx(each[text].mean().item(), rel=1e-6)


@pytest.mark.parametrize(("name", "objective"), [("decoder", "Causal"), ("encoder", "Masked")])
def test_documents_are_kept_apart(name, objective):
    """`train.documents=mask` reaches the batches of training and of evaluation, and is part of what a run is."""
    changes = {"objective": objective, "size.length": 64, "data.validation": 4096}
    joined, apart = experiment("/", name, **changes), experiment("/", name, **changes, train__documents="mask")
    assert joined.batches.batch(0).documents is None
    assert apart.batches.batch(0).documents is not None
    assert apart.validation.batch(0).documents is not None
    assert run_id(apart.spec) != run_id(joined.spec)
    with pytest.raises(ScalingError, match="SpanCorruption does not keep documents apart"):
        experiment("/", "encoder_decoder", **{**changes, "objective": "SpanCorruption"}, train__documents="mask")


# What an evaluation costs


@pytest.mark.parametrize(
    ("steps", "batch", "spacing"), [(1, 1, "log"), (20, 64, "log"), (2000, 1, "log"), (500, 64, "even")]
)
def test_evaluations_cost_at_most_a_tenth_of_a_run(steps, batch, spacing):
    """Or no more than reading 16,384 tokens, where a tenth of the run is less."""
    changes = {"trainer.max_steps": steps, "train.batch": batch, "evaluate.spacing": spacing, "evaluate.points": 12}
    one = experiment(**changes, **{"schedule.warmup": "auto", "data.validation": 70_000})
    assert FORWARD * sum(one.evaluated.values()) <= max(0.1 * steps * batch, FORWARD * FREE / one.row_tokens)
    assert max(one.evaluated) == steps


def test_windows_that_are_asked_for_are_evaluated_however_short_the_run():
    for windows, count in (("null", 70_000 // 17), ("1e3", 1000)):
        one = experiment(**{"evaluate.windows": windows, "data.validation": 70_000})
        assert set(one.evaluated.values()) == {count}
    long = {"trainer.max_steps": 20_000}
    assert run_id(experiment(**long).spec) == run_id(experiment(**long, **{"evaluate.windows": "null"}).spec)


# Epochs


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A prepared text that ends, as changes of the tiny run."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text("".join(f"the law of {number} and no other\n\n" for number in range(300)))
    data = {"data": "files", "data.corpus.files": folder / "text.txt", "data.tokenizer": "Byte"}
    data |= {"data.symbols": "absent", "data.validation": 0.2, "runs": folder / "runs"}
    line = [word for word in words(folder / "runs", **data) if word.startswith(("data", "runs"))]
    assert main(["data", "prepare", *line]) == 0
    return {**data, "trainer.max_steps": "absent", "schedule.warmup": 0}


@pytest.mark.parametrize("epochs", [0.5, 1, 2.5])
def test_epochs_are_the_fewest_updates_that_see_all_rows_so_often(epochs, text):
    one = experiment(text["runs"], **text, **{"train.epochs": epochs})
    assert one.batches.passes(one.steps) >= epochs > one.batches.passes(one.steps - 1)
    rows = np.concatenate([one.batches.plan.drawn(step).rows for step in range(one.steps)])
    _, counts = np.unique(rows, return_counts=True)
    if epochs >= 1:
        assert len(counts) == one.batches.source.windows(one.batches.objective.reads)  # type: ignore[attr-defined]
        assert counts.min() >= int(epochs)
    steps = experiment(text["runs"], **{**text, "trainer.max_steps": one.steps})
    assert run_id(one.spec) == run_id(steps.spec)


@pytest.mark.parametrize("key", ["trainer.max_steps", "train.tokens"])
def test_a_run_has_one_length(key, text, tmp_path):
    message = rf"train\.epochs=2.*{key} sets the length of training too; set {key} to null"
    with pytest.raises(ScalingError, match=message):
        experiment(text["runs"], **{**text, "train.epochs": 2, key: 100})
    config = load(words(text["runs"], **{**text, "train.epochs": 2, key: "null"}))
    config.save(tmp_path / "config.yaml")  # which ranks read
    again = scaling.module(str(tmp_path / "config.yaml")).experiment
    assert run_id(again.spec) == run_id(experiment(text["runs"], **{**text, "train.epochs": 2}).spec)
