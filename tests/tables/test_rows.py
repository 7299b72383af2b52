"""Rows of the shipped tables, tiny: all their parts learn; those of Narang keep rows, padding and the future apart."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import document, find, names
from scaling.model.two_towers import EncoderDecoder
from scaling.tables.table import Table, read
from scaling.training.experiment import Experiment, assemble
from scaling.training.parametrization import initialise
from scaling.training.precision import Weights

# Layers, heads and widths that every row's multiples divide.
SMALL = "size={width: 32, layers: 4, heads: 4, head_width: 8, hidden: 64, vocabulary: 256, length: 24}"
BUDGET = ("train.batch=4", "trainer.max_steps=4", "evaluate.windows=1", "schedule={kind: Constant, warmup: 0}")
TEXT = ("data={kind: Synthetic, symbols: 200, validation: 1024}",)
PAIRS = ("data=synthetic_pairs", "data.pairs=100", "data.validation=10", "data.longest=20", "size.vocabulary=null")
# Six layers, so that each row of Narang has all its parts, in numbers of their own; 251 symbols, so that the last
# sentinel is the last of 256 tokens, which is all that the last cluster of an adaptive softmax holds.
NARANG = (
    "size={width: 24, layers: 6, heads: 6, head_width: 4, hidden: 48, vocabulary: 256, length: 40}",
    *("data=synthetic", "data.symbols=251", "data.validation=1024"),
)
# What does not fit the small size.
NARROW = {
    "Product key memory": ("model.decoder.blocks.-2.channel={keys: 8, key_width: 8, nearest: 4}",),
    "Transformer-DMCA": ("model.block.mixer.size=8",),
    **dict.fromkeys(("seq2seq-attention", "GNMT", "ByteNet", "ConvS2S"), ("size.hidden=null",)),  # no such layer
    "BigBird": ("model.block.mixer.block=4",),
    "Longformer": ("model.block.mixer.window=5",),
    "Block-local": ("model.block.mixer.size=8",),
}
OWN = [name for name in names("table") if document(find("table", name)).tree["base"] != "table/narang2021"]
CASES = [
    pytest.param(table, row.name, marks=() if place % 3 == 0 else pytest.mark.slow, id=f"{table.name}-{row.name}")
    for table in map(read, OWN)
    for place, row in enumerate(table.rows)
]


def trained(table: Table, row: str) -> tuple[Experiment, torch.nn.Module, set[str]]:
    """A row after four steps, and the parameters that none of them has moved: branches of ReZero and Fixup are shut
    until their gates have moved.
    """
    pairs = table.load(row)["objective.kind"] == "Sequence"
    small = NARANG if table.name == "narang2021" else (SMALL, *(PAIRS if pairs else TEXT))
    experiment = assemble(table.load(row, [*small, *BUDGET, *NARROW.get(row.split(",")[0], ())]))
    model = initialise(experiment.model(), experiment.parametrization, experiment.seed)
    weights = Weights(model, "32-true").parameters
    start = {one.spec.name: one.tensor.detach().clone() for one in weights}
    still, optimizers = set(start), experiment.optimizer.make(weights, experiment.rate)
    for step in range(experiment.steps):
        loss = model.loss(experiment.batches.batch(step)).total
        loss.backward()
        assert loss.isfinite()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        # A number that moves by its rate's whole length may be back at the end.
        still -= {one.spec.name for one in weights if not torch.equal(one.tensor, start[one.spec.name])}
    return experiment, model, still


@pytest.mark.parametrize(("table", "row"), CASES)
def test_every_part_of_a_row_learns_and_rows_padding_and_future_stay_apart(table: Table, row: str):
    experiment, model, still = trained(table, row)
    assert still == set()
    if table.name == "narang2021":
        assert isinstance(model, EncoderDecoder)
        batch, precise = experiment.batches.batch(experiment.steps), copy.deepcopy(model).double()
        check_order_and_causality(precise, batch)
        for side in ("left", "right"):
            check_padding(precise.eval(), batch, side)


def check_order_and_causality(model: EncoderDecoder, batch: Batch) -> None:
    """In training, where capacities drop positions: each row has its own."""
    order = torch.tensor([2, 0, 3, 1])
    other, states = batch.map(lambda tensor: tensor[order]), model(batch).hidden
    torch.testing.assert_close(model(other).hidden, states[order], rtol=0, atol=1e-10)
    torch.testing.assert_close(model.losses(other), model.losses(batch)[order], rtol=0, atol=1e-10)
    place, tokens = batch.tokens.shape[1] // 2, batch.tokens.clone()
    tokens[:, place] = (tokens[:, place] + 1) % 251
    difference = (states - model(replace(batch, tokens=tokens)).hidden).abs().amax((0, 2))
    assert difference[:place].max() == 0
    assert difference[place] > 0


def check_padding(model: EncoderDecoder, plain: Any, side: str) -> None:
    """In evaluation: in training a longer row has more seats at its experts."""

    def pad(tensor: Tensor, width: int, fill: int) -> Tensor:
        return F.pad(tensor, (width, 0) if side == "left" else (0, width), value=fill)

    padded = Batch(
        pad(plain.tokens, 3, 7),
        pad(plain.targets, 3, IGNORE),
        documents=pad(torch.ones_like(plain.tokens), 3, 0),
        source=pad(plain.source, 4, 7),
        source_documents=pad(torch.ones_like(plain.tokens[:, :1]).expand_as(plain.source), 4, 0),
    )
    kept = slice(3, None) if side == "left" else slice(plain.tokens.shape[1])
    torch.testing.assert_close(model(padded).hidden[:, kept], model(plain).hidden, rtol=0, atol=1e-10)
    torch.testing.assert_close(model.loss(padded).tokens, model.loss(plain).tokens, rtol=0, atol=1e-10)
