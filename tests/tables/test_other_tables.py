"""Every row of the tables beside Narang et al. 2021: it trains, small."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scaling.config.compose import document, find, names
from scaling.tables.table import Table, read
from scaling.training.experiment import assemble
from scaling.training.parametrization import initialise
from scaling.training.precision import Weights

# Layers, heads and widths that every row's multiples divide.
SMALL = "size={width: 32, layers: 4, heads: 4, head_width: 8, hidden: 64, vocabulary: 256, length: 24}"
WORDS = (SMALL, "train.batch=4", "trainer.max_steps=2", "evaluate.windows=1", "schedule={kind: Constant, warmup: 0}")
TEXT = ("data={kind: Synthetic, symbols: 200, validation: 1024}",)
# What does not fit the small size.
NARROW = {
    "Transformer-DMCA": ("model.block.mixer.size=8",),
    **dict.fromkeys(("seq2seq-attention", "GNMT", "ByteNet", "ConvS2S"), ("size.hidden=null",)),  # no such layer
    "BigBird": ("model.block.mixer.block=4",),
    "Longformer": ("model.block.mixer.window=5",),
    "Block-local": ("model.block.mixer.size=8",),
}
PAIRS = ("data=synthetic_pairs", "data.pairs=100", "data.validation=10", "data.longest=20", "size.vocabulary=null")
OTHERS = [name for name in names("table") if document(find("table", name)).tree["base"] != "table/narang2021"]
CASES = [(table, row.name) for table in map(read, OTHERS) if table.name != "narang2021" for row in table.rows]
EACH = [
    pytest.param(*case, marks=() if place % 3 == 0 else pytest.mark.slow, id=f"{case[0].name}-{case[1]}")
    for place, case in enumerate(CASES)
]


@pytest.mark.parametrize(("table", "row"), EACH)
def test_every_row_trains(table: Table, row: str, tmp_path: Path):
    data = PAIRS if table.load(row)["objective.kind"] == "Sequence" else TEXT
    narrow = NARROW.get(row.split(",")[0], ())
    experiment = assemble(table.load(row, [*WORDS, *narrow, *data, f"runs={tmp_path}"]))
    model = initialise(experiment.model(), experiment.parametrization, experiment.seed)
    weights = Weights(model, "32-true").parameters
    start = {one.spec.name: one.tensor.detach().clone() for one in weights}
    optimizers = experiment.optimizer.make(weights, experiment.rate)
    for step in range(experiment.steps):
        loss = model.loss(experiment.batches.batch(step)).total
        loss.backward()
        assert loss.isfinite()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert [one.spec.name for one in weights if torch.equal(one.tensor, start[one.spec.name])] == []
