"""Rows of the shipped tables: what they weigh and compute; all parts learn."""

import csv
import json
from collections.abc import Callable
from functools import cache
from math import ceil, log
from pathlib import Path

import pytest
import torch

from scaling.config.document import document
from scaling.config.files import find, names
from scaling.model.cost import cost
from scaling.model.tuned import blank
from scaling.tables.count import Counts, counts, dependence
from scaling.tables.table import Table, read
from scaling.training.experiment import assemble
from scaling.training.parametrization import initialise
from scaling.training.precision import Weights

TESTS = Path(__file__).parents[1]


@cache
def counted(name: str) -> dict[str, Counts]:
    return {one["row"]: one for one in counts(read(name))}


def test_the_52_rows_of_narang_weigh_and_compute_what_the_paper_printed():
    found = counted("narang2021")
    with open(TESTS / "published" / "narang2021_row_assumptions.csv", newline="") as file:
        graphs = {line["row"]: line for line in csv.DictReader(file)}
    assert len(found) == 52
    wrong = []
    for name, row in found.items():
        # Families of rows share a line in the counts of the original graph.
        first = "GLU family" if name.endswith("GLU") else name.split(",")[0]
        family = next((one for one in ("Rezero", "Fixup") if name.startswith(one)), "Vanilla Transformer")
        published, graph = row["published"], int((graphs.get(first) or graphs[family])["graph_params_relative"])
        # 1.9T cannot be: the three quarters of it that are decoder and embeddings alone are more.
        ops, near = (4 * published["ops_tera"], 0.03) if name == "Funnel Transformer" else (published["ops_tera"], 0.01)
        as_printed = abs(row["parameters"] / 1e6 - published["params_millions"]) < 1.3
        as_graph = row["parameters"] == pytest.approx(graph, rel=1e-3)
        if not (as_printed and as_graph and row["ops"] / 1e12 == pytest.approx(ops, rel=near)):
            wrong.append((name, row["parameters"], row["ops"]))
    assert wrong == []


# A recipe for a table's training has its rows.
TABLES = [name for name in names("table") if not document(find("table", name)).tree["base"].startswith("table/")]
SLOW = ("layer_types", "vaswani2017_table2", "wikisum2018")  # whose recurrent rows are read token by token


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in TABLES]
)
def test_golden(name, request):
    """A table's truth as a text to review, a line a row; `pytest --golden` writes it anew."""
    path, found = TESTS / "golden" / "table" / f"{name}.json", {}
    for row, one in counted(name).items():
        found[row] = {"parameters": one["parameters"], "ops": one["ops"], "flops": one["flops_forward"]}
        found[row]["by_slot"] = {slot: number for slot, number in sorted(one["by_slot"].items()) if number}
    if request.config.getoption("--golden"):
        lines = (f" {json.dumps(row)}: {json.dumps(line)}" for row, line in found.items())
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert json.loads(path.read_text()) == found


def test_the_architectures_of_raffel_have_the_stated_multiples_of_p_and_m():
    """The parameters of a stack as large as BERT-base, and the FLOPs of a language model of so many layers."""
    stated, stack, table = {"P": 1, "2P": 2, "M": 1, "M/2": 1 / 2}, ("mixer", "channel"), read("raffel2019_table2")
    costs = {row.name: cost(table.load(row.name, ["size=tiny"])) for row in table.rows}
    for row in table.rows:
        both = costs[row.name], costs["Language model, LM"]
        weights, unit = (sum(each.parameters_by_slot[slot] for slot in stack) for each in both)
        assert weights == stated[str(row.published["params"])] * unit, row.name
        flops, unit = (sum(each.flops_forward_by_slot[slot] / each.tokens for slot in stack) for each in both)
        assert flops == stated[str(row.published["cost"])] * unit, row.name
    config = table.load("Enc-dec, shared, Denoising", ["size=tiny"])
    with blank():
        model = config.build("model", config["size"])
    encoder, decoder = (dict(one.stack.named_parameters()) for one in (model.encoder, model.decoder))
    assert all(decoder[name] is parameter for name, parameter in encoder.items())
    assert all(".cross." in name for name in decoder.keys() - encoder.keys())


KERNEL, WINDOW = 3, 64
# Of n tokens of width d and a window of r in one layer: multiply-accumulates; products in a row; and layers until the
# last token has heard of the first: m layers whose taps are 1, k, k², … apart reach k^m tokens. The paper leaves
# attention's four projections out; an LSTM has eight products for its gates and one behind them; restricted attention
# reads blocks of r queries by 2 r − 1 keys; the dilated layers are at half of the width.
FORMULAS: dict[str, tuple[Callable[[int, int], int], Callable[[int], int], Callable[[int, int], int]]] = {
    "Self-Attention": (lambda n, d: 2 * n * n * d + 4 * n * d * d, lambda n: 4, lambda n, r: 1),
    "Recurrent": (lambda n, d: (8 + 1) * n * d * d, lambda n: n + 1, lambda n, r: 1),
    "Convolutional": (lambda n, d: KERNEL * n * d * d, lambda n: 1, lambda n, r: ceil((n - 1) / (KERNEL - 1))),
    "Convolutional (dilated)": (
        lambda n, d: 2 * n * d * d // 2 + KERNEL * n * d * d // 4,
        lambda n: 3,
        lambda n, r: ceil(log(n, KERNEL)),
    ),
    "Self-Attention (restricted)": (
        lambda n, d: 2 * (2 * WINDOW - 1) * n * d + 4 * n * d * d,
        lambda n: 4,
        lambda n, r: ceil((n - 1) / (r - 1)),
    ),
}


@pytest.mark.parametrize("row", FORMULAS)
def test_layers_take_the_operations_steps_and_paths_of_their_formulas(row):
    table, (products, steps, layers) = read("layer_types"), FORMULAS[row]
    found = cost(table.load(row, ["size.length=128", "size.width=32", "size.layers=2"]))
    # Two operations a multiply-accumulate, in two layers.
    assert found.flops_forward_by_slot["mixer"] == 2 * 2 * products(128, 32)
    for length, window in ((16, 4), (300, 64)) if "Self" in row else ((16, 4),):  # beyond 256 keys another kernel
        depth = 7 if "dilated" in row else 2  # each further apart than the one before
        words = [f"size={{width: 16, layers: {depth}, heads: 2, vocabulary: 8, length: {length}}}"]
        words += [f"model.pattern.size={window}"] if "restricted" in row else []
        expected = {"sequential": steps(length), "path": steps(length) * layers(length, window)}
        assert dependence(table.load(row, words)) == expected


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
CASES = [
    pytest.param(table, row.name, marks=() if place % 6 == 0 else pytest.mark.slow, id=f"{table.name}-{row.name}")
    for name in names("table")
    if document(find("table", name)).tree["base"] != "table/narang2021"
    for table in [read(name)]
    for place, row in enumerate(table.rows)
]


@pytest.mark.parametrize(("table", "row"), CASES)
def test_every_part_of_a_row_learns(table: Table, row: str):
    """In four steps: branches of ReZero and Fixup are shut until their gates have moved."""
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
    assert still == set()
