"""One update and one evaluation: what is minimised, in what precision, over which batches, and what is measured."""

from __future__ import annotations

import math
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scaling.base.batch import IGNORE
from scaling.base.errors import ScalingError
from scaling.ledger import run_id
from scaling.training.evaluation import Evaluation
from tests.training.conftest import PAIRS, STILL, at, experiment, left, losses, tensors, train, words

# Experts drop the same positions however a batch is split; rows of pairs hold different numbers of targets, over all of
# which the loss is the mean.
SPLIT = [
    ("decoder", {"model.block.channel": "{kind: Switch, activation: ReLU, experts: 4, capacity: 0.7}"}),
    ("encoder_decoder", PAIRS),
]


@pytest.mark.parametrize(("name", "changes"), SPLIT)
def test_accumulation_is_the_whole_batch(name, changes, tmp_path):
    train(words(tmp_path / "whole", name, **STILL, **changes))
    train(words(tmp_path / "parts", name, train__micro_batch=1, **STILL, **changes))
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), rel=2e-5)


def test_dropout_differs_between_steps(tmp_path):
    seeds: list[int] = []
    steps = [at("on_train_batch_end", step, lambda: seeds.append(torch.initial_seed())) for step in range(1, 13)]
    train(words(tmp_path), *steps)
    assert len(set(seeds)) == len(seeds) == 12


@pytest.mark.slow
def test_a_compiled_model_learns_the_same(tmp_path):
    """In a process of its own: the tests' checks of shapes cannot be compiled."""
    line = words(tmp_path / "compiled", trainer__max_steps=3, train__compile="true", **STILL)
    subprocess.run([sys.executable, "-m", "scaling", "train", *line], check=True, capture_output=True)
    plain = train(words(tmp_path / "plain", trainer__max_steps=3, **STILL))
    assert left(tmp_path / "compiled").result["loss"] == pytest.approx(plain["loss"], rel=1e-4)


# What is minimised beside the plain loss

TAUGHT = {**STILL, "parametrization": "{kind: Standard, head: normal}"}
EXPERTS = {"model__block__channel": "{kind: Switch, activation: GeLU, experts: 2, balance: 0.5}"}


def test_a_teacher_moves_a_pupil_towards_it_unless_it_is_ignored(tmp_path):
    """The losses that pieces add stay, as the balance of experts."""
    teacher = train(words(tmp_path, trainer__max_steps=20, **TAUGHT))["run"]

    def pupil(weight: float, name: str = teacher, **changes: Any) -> list[float]:
        line = f"{{kind: Distil, objective: Causal, teacher: '{name}', weight: {weight}}}"
        return losses(tmp_path, train(words(tmp_path, objective=line, seed=1, **TAUGHT, **changes))["run"])

    distances = pupil(1.0)  # nothing but KL(teacher ‖ pupil)
    assert all(distance > 0 for distance in distances)
    assert distances[-1] < distances[0]
    alone = train(words(tmp_path, seed=1, **TAUGHT, **EXPERTS))["run"]
    assert pupil(0.0, **EXPERTS) == pytest.approx(losses(tmp_path, alone), rel=1e-5)
    with pytest.raises(ScalingError, match=r"objective\.teacher.*there is no such run"):
        pupil(0.5, "feed")


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


PRECISIONS = [("32-true", "bf16-mixed"), ("bf16-mixed", "bf16-true"), ("bf16-true", "32-true")]


def test_a_precision_of_training_and_one_of_evaluation(tmp_path):
    """A low one is near float32; a checkpoint's float32 weights give the result's loss in the precision asked."""
    still = train(words(tmp_path, **STILL))["loss"]
    for training, evaluation in PRECISIONS:
        line = {"trainer__precision": training, "evaluate__precision": evaluation, **STILL}
        result = train(words(tmp_path, **line))
        assert result["evaluation_precision"] == evaluation
        saved = tensors(tmp_path, result["run"])
        assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
        one = experiment(**line)
        model = one.model().to_empty(device="cpu")
        model.load_state_dict(saved)
        model = model.to(torch.bfloat16) if evaluation == "bf16-true" else model
        batches, count = one.evaluation()
        with torch.autocast("cpu", torch.bfloat16, enabled=evaluation == "bf16-mixed"):
            alone = measure(one, model, [batches.batch(step) for step in range(count)])
        assert result["loss"] == pytest.approx(alone["loss"], rel=1e-9)
        assert still != result["loss"] == pytest.approx(still, rel=5e-3)
        default = "bf16-true" if training == "bf16-true" else "32-true"  # of the time before the key
        assert ("precision" in one.spec["evaluate"]) == (evaluation != default)


def test_an_evaluation_is_the_mean_over_every_target():
    """The excess is paired with the truth, and how the batches are cut does not matter."""
    one = experiment(parametrization__kind="GPT2", data__validation=500)
    validation, count = one.evaluation()
    model, batches, rows = one.initial_model(), [validation.batch(step) for step in range(count)], 500 // 17
    found = measure(one, model, batches)
    assert found["targets"] == rows * 16
    with torch.no_grad():
        logits = model.logits(batches[0]).double()
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batches[0].targets.flatten(), reduction="none")
    assert found["loss_plain"] == pytest.approx(each.mean().item(), rel=1e-6)
    assert found["accuracy"] == pytest.approx((logits.argmax(-1) == batches[0].targets).double().mean().item())
    assert found["loss_by_position"] == pytest.approx(each.reshape(rows, 16).mean(0).tolist(), rel=1e-5)
    truth = torch.cat([batch.truth for batch in batches if batch.truth is not None]).double().mean().item()
    assert found["excess"] == pytest.approx(found["loss_plain"] - truth, rel=1e-6)
    assert found["loss"] == pytest.approx(one.validation.source.entropy + found["excess"])
    cut = [batch.micro(start, start + 3) for batch in batches for start in range(0, batch.rows, 3)]
    again = measure(one, model, cut)
    assert again["loss"] == pytest.approx(found["loss"], rel=1e-7)
    assert again["accuracy"] == found["accuracy"]


@pytest.mark.parametrize("kind", ["encoder_decoder Prefix", "decoder SpanCorruption", "encoder Masked"])
def test_only_losses_that_are_a_code_of_the_text_have_bits_per_byte(kind):
    """The loss of the text leaves out sentinels."""
    name, objective = kind.split()
    one = experiment("/", name, **{"objective": objective, "size.length": 64, "data.validation": 4096})
    source, model, batch = SimpleNamespace(entropy=None, bytes_per_token=2.5), one.initial_model(), one.validation
    found = measure(one, model, [batch := batch.batch(0).micro(0, 4)], source=source)
    bits = found["loss"] / math.log(2) / 2.5 if objective == "Prefix" else None
    assert found.get("bits_per_byte") == pytest.approx(bits)
    if objective == "SpanCorruption":
        with torch.no_grad():
            each = model.losses(batch).double()
        vocabulary: Any = one.batches.objective.vocabulary  # type: ignore[attr-defined]
        text = (batch.targets != IGNORE) & ~torch.isin(batch.targets, torch.tensor([*vocabulary.specials.values()]))
        assert 0 < text.sum() < (batch.targets != IGNORE).sum()
        assert found["loss_text"] == pytest.approx(each[text].mean().item(), rel=1e-6)
    else:
        assert "loss_text" not in found


def test_documents_are_kept_apart():
    """`train.documents=mask` reaches the batches of training and of evaluation, and is part of what a run is."""
    changes = {"size.length": 64, "data.validation": 4096}
    joined, apart = experiment("/", **changes), experiment("/", **changes, train__documents="mask")
    assert joined.batches.batch(0).documents is None
    assert apart.batches.batch(0).documents is not None
    assert apart.validation.batch(0).documents is not None
    assert run_id(apart.spec) != run_id(joined.spec)
    with pytest.raises(ScalingError, match="SpanCorruption does not keep documents apart"):
        experiment("/", "encoder_decoder", **changes, objective="SpanCorruption", train__documents="mask")
