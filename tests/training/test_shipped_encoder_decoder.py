"""The shipped encoder-decoders train well as they are: their optimizer moves the tables that their parametrization
draws.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import scaling
from scaling.config import load
from scaling.training.experiment import assemble

SMALL = (
    "size={width: 16, layers: 1, heads: 2, head_width: 8, length: 32, vocabulary: null}",
    "data={kind: Synthetic, symbols: 8, order: 1}",
    "trainer.max_steps=150",
    "train.batch=32",
    "evaluate={points: 1, windows: 256}",
)


def test_it_learns_more_of_the_spans_than_a_bigram_of_its_targets(tmp_path: Path):
    run = scaling.train("encoder_decoder", *SMALL, f"runs={tmp_path}", "log.wandb=disabled", progress=False)
    experiment = assemble(load("encoder_decoder", SMALL))
    batch = experiment.validation.batch(0)
    assert experiment.evaluation()[1] == 1
    objective: Any = experiment.batches.objective
    size = objective.vocabulary.size
    counts = torch.zeros(size, size, dtype=torch.float64)
    counts.index_put_((batch.tokens, batch.targets), torch.ones((), dtype=torch.float64), accumulate=True)
    chances = (counts / counts.sum(1, keepdim=True))[batch.tokens, batch.targets]  # of the very targets that are judged
    is_text = experiment.evaluator().text
    assert is_text is not None
    text = torch.from_numpy(is_text)[batch.targets]
    assert run.result["loss_text"] < -chances[text].log().mean().item()
    assert run.result["loss"] < -chances.log().mean().item()


@pytest.mark.parametrize("name", ["encoder_decoder", "t5", "t5_v1_1", "bart", "vaswani", "marian", "bytenet", "gnmt"])
def test_tables_of_unit_scale_come_with_relative_steps(name: str):
    config = load(name)
    assert (config["parametrization.kind"] == "T5") == (config["optimizer.kind"] == "Adafactor")


def test_one_line_warns_of_the_scale_of_a_tied_head_on_one_that_is_not():
    def remarks(*words: str) -> tuple[str, ...]:
        return assemble(load("encoder_decoder", (*SMALL, *words))).config.remarks

    (told,) = remarks("model.tie=[encoder, decoder]")
    assert "model.head=Linear has none" in told
    assert not remarks("model.tie=[encoder, decoder]", "model.head=Linear")
    assert not remarks("model.tie=[decoder, head]")


@pytest.mark.parametrize(("words", "count"), [((), 0), (("optimizer=AdamW",), 1), (("parametrization=Glorot",), 0)])
def test_one_line_warns_of_tables_that_do_not_move(words: tuple[str, ...], count: int):
    remarks = assemble(load("encoder_decoder", (*SMALL, *words))).config.remarks
    assert len(remarks) == count
    assert all("Adafactor" in remark for remark in remarks)
