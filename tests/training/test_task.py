"""Runs on tasks: every answer in every family that can give it, from assembly to the result; and what does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaling.cli import main
from scaling.config import load
from scaling.errors import BAD_INPUT, ScalingError
from scaling.training.experiment import assemble
from scaling.training.run import train
from tests.objective.test_answer import LINES, ROWS

HEADS = {
    "class": "{kind: Sequence, classes: 2}",
    "pair": "{kind: Sequence, classes: 2, activation: Tanh}",
    "either": "{kind: Number, added: true}",
    "classes": "{kind: Classes, classes: 2}",
    "options": "Options",
    "tags": "{kind: Tokens, classes: 2}",
    "span": "Span",
    "text": "Linear",
}
TINY = "size={width: 16, layers: 1, heads: 2, length: 24, vocabulary: null}"
CASES = [(kind, family) for kind in LINES for family in ("encoder", "decoder") if (kind, family) != ("text", "encoder")]
CASES += [(kind, "encoder_decoder") for kind in LINES]


def flow(line: dict[str, Any]) -> str:
    return json.dumps(line)


@pytest.fixture
def configured(tmp_path: Path):
    def made(kind: str, family: str, *words: str, **keys: Any):
        file = tmp_path / f"{kind}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in ROWS[kind] * 3))
        line = {"kind": "Task", "tokenizer": {"kind": "Byte"}, "files": {"train": str(file), "validation": str(file)}}
        head = "Linear" if family == "encoder_decoder" else HEADS[kind]
        told = [TINY, "trainer.max_steps=4", "train.batch=2", "evaluate.points=1", "evaluate.windows=null"]
        told += ["log.wandb=disabled", f"runs={tmp_path / 'runs'}", "optimizer.lr=1e-2", f"model.head={head}"]
        data = flow({**line, **LINES[kind], **keys})
        return load(family, [*told, f"data={data}", "objective=Answer", *words])

    return made


@pytest.mark.parametrize(("kind", "family"), CASES)
def test_a_run_on_every_answer_finishes_in_every_family(kind, family, configured):
    result = train(configured(kind, family))
    assert result["outcome"] == "finished"
    assert result["loss"] > 0
    assert ("loss_by_position" in result) == (family == "encoder_decoder" or kind == "text")
    if kind in ("class", "pair", "options", "tags", "span") and family != "encoder_decoder":
        assert 0 <= result["accuracy"] <= 1
    elif kind == "either":
        assert family == "encoder_decoder" or "accuracy" not in result


def test_a_decoder_learns_the_next_tokens_beside_the_label(configured):
    words = ["model.language=Linear", "model.tie=[decoder, language]"]
    losses = [
        train(configured("class", "decoder", *words, f"objective.language={weight}"))["loss"] for weight in (0, 1)
    ]
    assert losses[0] != losses[1]


def test_micro_batches_give_the_same_losses(configured):
    whole = train(configured("options", "decoder"))
    parts = train(configured("options", "decoder", "train.micro_batch=1", "train.threads=1"), again=True)
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-5)


def test_balanced_weights_are_those_of_the_training_examples(configured, tmp_path):
    config = configured("class", "encoder", "model.head={kind: Sequence, classes: 2, weights: balanced}")
    (tmp_path / "class.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*ROWS["class"], ROWS["class"][0]]))
    assert assemble(config).config["model.head.weights"] == pytest.approx([1.5, 0.75])


BAD = {
    "a head of another answer": ("tags", "encoder", "model.head={kind: Sequence, classes: 2}", "take {kind: Tokens"),
    "another number of classes": ("class", "encoder", "model.head.classes=3", "2 labels: no, yes; set it to 2"),
    "a head of labels where the model writes": ("text", "decoder", "model.head=Span", "a head of next tokens"),
    "an encoder that would write": ("text", "encoder", "model.head=Linear", "an encoder cannot write"),
    "one order of a pair without any": ("either", "decoder", "model.head.added=false", "set it to true"),
    "weights without their examples": (
        "classes",
        "encoder",
        "model.head={kind: Classes, classes: 2, weights: [1, 2, 3]}",
        "3 weights of 2 classes",
    ),
    "a stack without the places of the options": (
        "options",
        "encoder",
        "model.stack={kind: Funnel, norm: RMSNorm}; size.layers=2",
        "take UpsampledFunnel or Sequential",
    ),
    "another objective": ("class", "encoder", "objective=Masked", "choose Answer"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_one_line_before_training(name, configured):
    kind, family, word, words = BAD[name]
    with pytest.raises(ScalingError) as caught:
        assemble(configured(kind, family, *word.split("; ")))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("head", ["{kind: Tokens, classes: 3}", "Span", "{kind: Sequence, classes: 2}"])
def test_a_head_of_labels_needs_an_objective_that_makes_them(head, tmp_path):
    told = [TINY, "data=synthetic", "trainer.max_steps=2", f"runs={tmp_path / 'runs'}", f"model.head={head}"]
    with pytest.raises(ScalingError, match=r"model.head.kind.*learns from labels, and the objective makes none"):
        assemble(load("encoder", [*told, "objective=Masked"]))


def test_a_head_of_tokens_is_none_of_a_class(configured):
    config = configured("class", "encoder")
    tree = {**config.tree, "model": {**config["model"], "head": {"kind": "Linear"}}}
    with pytest.raises(ScalingError, match=r"of the kind class; take \{kind: Sequence"):
        assemble(replace(config, tree=tree))


def test_a_mistake_in_the_data_is_one_line_of_the_command(tmp_path, capfd):
    (tmp_path / "train.jsonl").write_text('{"text": "a", "label": "HUM"}\n{"text": "b", "label": "WHO"}\n')
    words = ["data=trec", f"data.files={{train: {tmp_path}/train.jsonl}}", f"runs={tmp_path / 'runs'}"]
    head = "model.head={kind: Sequence, classes: 6}"
    assert main(["train", "encoder", TINY, head, *words]) == BAD_INPUT
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "trec.yaml:" in error
    assert "data.label" in error
    assert "train split, train.jsonl, example 2: there is no such label 'WHO'; choose from" in error
