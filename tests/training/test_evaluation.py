"""Evaluation: means over every target, the excess by the control variate, the curve by position."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from scaling.batch import IGNORE
from scaling.config import load as configured
from scaling.data.batches import evaluation
from scaling.data.module import EvaluationLoader
from scaling.errors import ScalingError
from scaling.ledger import run_id
from scaling.schema import kinds
from scaling.training.evaluation import Evaluation, evaluation_steps
from scaling.training.experiment import assemble, varied
from scaling.training.parametrization import initialise
from scaling.training.point import point
from tests.training.conftest import evaluate, held_out, load, words


@given(steps=some.integers(1, 10**7), points=some.integers(1, 40), evenly=some.booleans())
def test_the_steps_rise_to_the_end(steps, points, evenly):
    found = evaluation_steps(steps, points, evenly)
    assert found[-1] == steps
    assert found == sorted(set(found))
    assert found[0] >= 1
    assert len(found) <= points


@pytest.mark.parametrize(("model", "known"), [("decoder", True), ("encoder", False), ("encoder_decoder", False)])
def test_the_entropy_stands_beside_the_losses_that_it_bounds(model, known):
    told = ("size=tiny", "size.vocabulary=null", "data=synthetic", "trainer.max_steps=2", "schedule.warmup=1")
    experiment = assemble(configured(model, told))
    assert experiment.held_out.entropy is not None
    assert ("entropy" in point(experiment)) == known


@pytest.fixture(scope="module")
def evaluated():
    experiment = assemble(load(words("unused", parametrization__kind="GPT2", data__validation=500)))  # type: ignore[arg-type]
    model = initialise(experiment.model(), experiment.parametrization, 0)
    batches = held_out(experiment)
    return experiment, model, batches, evaluate(model, batches, Evaluation(experiment.held_out))


def test_it_is_the_mean_over_every_target(evaluated):
    _, model, batches, found = evaluated
    rows = 500 // 17
    assert found["targets"] == rows * 16
    with torch.no_grad():
        logits = model.eval().logits(batches[0]).double()
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batches[0].targets.flatten(), reduction="none")
    assert found["loss_plain"] == pytest.approx(losses.mean().item(), rel=1e-6)
    assert found["accuracy"] == pytest.approx((logits.argmax(-1) == batches[0].targets).double().mean().item())
    assert found["loss_by_position"] == pytest.approx(losses.reshape(rows, 16).mean(0).tolist(), rel=1e-5)


@pytest.mark.parametrize("noise", ["spans", "tokens"])
def test_the_loss_of_text_leaves_out_sentinels(noise):
    told = ("size=tiny", "size.vocabulary=null", "data=synthetic", "trainer.max_steps=2", f"objective.noise={noise}")
    experiment = assemble(configured("encoder_decoder", told))
    model = initialise(experiment.model(), experiment.parametrization, 0)
    batch = experiment.validation.batch(0).micro(0, 4)
    found = evaluate(model, [batch], Evaluation(experiment.held_out, text=experiment.evaluator().text))
    with torch.no_grad():
        losses = model.eval().losses(batch).double()
    objective: Any = experiment.batches.objective
    specials = torch.tensor(list(objective.vocabulary.specials.values()))
    text = (batch.targets != IGNORE) & ~torch.isin(batch.targets, specials)
    assert 0 < text.sum() < (batch.targets != IGNORE).sum()
    assert found["loss_text"] == pytest.approx(losses[text].mean().item(), rel=1e-6)


def test_the_excess_is_paired_with_the_truth(evaluated):
    experiment, _, batches, found = evaluated
    truth = torch.cat([batch.truth for batch in batches]).double().mean().item()
    assert found["excess"] == pytest.approx(found["loss_plain"] - truth, rel=1e-6)
    assert found["loss"] == pytest.approx(experiment.held_out.entropy + found["excess"])


def test_how_the_batches_are_cut_does_not_matter(evaluated):
    experiment, model, batches, found = evaluated
    cut = [batch.micro(start, start + 3) for batch in batches for start in range(0, batch.rows, 3)]
    again = evaluate(model, cut, Evaluation(experiment.held_out))
    assert again["loss"] == pytest.approx(found["loss"], rel=1e-7)
    assert again["accuracy"] == found["accuracy"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_ranks_share_every_batch_once(ranks, evaluated):
    experiment, *_ = evaluated
    batches, count = evaluation(experiment.held_out, experiment.batches.objective, 8)
    assert count == 4
    parts = [list(EvaluationLoader(lambda: (batches, count), rank, ranks)) for rank in range(ranks)]
    assert len({len(part) for part in parts}) == 1, "a sharded model needs all ranks at each batch"
    in_turn = [part[turn] for turn in range(len(parts[0])) for part in parts]
    for step in range(count):
        assert torch.equal(in_turn[step].tokens, batches.batch(step).tokens)
        assert torch.equal(in_turn[step].targets, batches.batch(step).targets)
    assert all((spare.targets == IGNORE).all() for spare in in_turn[count:])


def test_bits_a_byte(evaluated):
    from types import SimpleNamespace

    _, model, batches, _ = evaluated
    plain = [batch.micro(0, batch.rows) for batch in batches]
    found = evaluate(model, plain, Evaluation(SimpleNamespace(entropy=None, bytes_per_token=2.5)))  # type: ignore[arg-type]
    assert found["bits_per_byte"] == pytest.approx(found["loss"] / math.log(2) / 2.5)


@pytest.mark.parametrize(
    ("name", "objective", "known"),
    [
        ("decoder", "Causal", True),
        ("decoder", "Prefix", True),
        ("decoder", "SpanCorruption", False),
        ("encoder", "Masked", False),
        ("encoder", "Spans", False),
        ("encoder", "NextSentence", False),
        ("encoder_decoder", "Prefix", True),
        ("encoder_decoder", "BertStyle", False),
    ],
)
def test_bits_a_byte_are_of_code_lengths_alone(name, objective, known):
    """The loss of masked or corrupted tokens, given what is around them, is no code for the text."""
    told = ("size=tiny", "size.vocabulary=null", "data=synthetic", "trainer.max_steps=2", "schedule.warmup=1")
    experiment = assemble(configured(name, [*told, f"objective={objective}"]))
    assert experiment.evaluator().is_code == known


def test_losses_that_are_no_code_have_no_bits_a_byte(evaluated):
    from types import SimpleNamespace

    _, model, batches, _ = evaluated
    source: Any = SimpleNamespace(entropy=None, bytes_per_token=2.5)
    found = evaluate(model, batches, Evaluation(source, is_code=False))
    assert "bits_per_byte" not in found


DOCUMENTS = {"decoder": ("Causal", "Prefix"), "encoder": ("Masked", "Spans")}


@pytest.mark.parametrize("name", ["decoder", "encoder", "encoder_decoder"])
def test_documents_are_kept_apart_where_the_objective_can(name):
    """`train.documents=mask` reaches the batches of training and of evaluation, and is part of what a run is."""
    told = ("size=tiny", "size.vocabulary=null", "data=synthetic", "trainer.max_steps=2", "schedule.warmup=1")
    for objective, kind in kinds("objective").items():
        if name not in kind.families or getattr(kind, "takes", None) != "windows":
            continue
        if getattr(kind, "previous", False):
            continue  # of a model that looks both ways: tests/model/test_bilm.py
        asked = [*told, f"objective={objective}"]
        joined = assemble(configured(name, asked))
        if objective not in DOCUMENTS.get(name, ()):
            with pytest.raises(ScalingError, match=f"{objective} does not keep documents apart"):
                assemble(configured(name, [*asked, "train.documents=mask"]))
            continue
        masked = assemble(configured(name, [*asked, "train.documents=mask"]))
        for batches in (masked.batches, masked.validation, varied(masked, {"seed": 3}).batches):
            assert batches.batch(0).documents is not None
        assert joined.batches.batch(0).documents is None
        assert run_id(masked.spec) != run_id(joined.spec)


def test_a_result_holds_what_a_law_needs(run):
    result = run(trainer__max_steps=6)
    assert result["loss"] == result["entropy"] + result["excess"]
    assert result["N"]["non_embedding"] > 0
    assert result["C"]["exact"] > 0
    assert result["tokens"] == 6 * 4 * 16
    assert result["circumstances"]["versions"]["torch"]
    assert result["circumstances"]["processor"]
    assert result["circumstances"]["tokens_per_second"] > 0
