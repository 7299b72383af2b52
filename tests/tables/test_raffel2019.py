"""Raffel et al. 2019, Table 2: the sizes and costs that the paper states in P and M, and what shared stacks share."""

from __future__ import annotations

import pytest

from scaling.model.cost import Cost, cost
from scaling.model.tuned import blank
from scaling.tables.table import read

TABLE = read("raffel2019_table2")
# "The number of parameters in a BERT-base-sized layer stack", and the FLOPs of a language model of so many layers; the
# paper leaves the encoder-decoders' cross-attention out of both.
STATED = {"P": 1, "2P": 2, "M": 1, "M/2": 1 / 2}
STACK = ("mixer", "channel")


@pytest.fixture(scope="module")
def costs() -> dict[str, Cost]:
    return {row.name: cost(TABLE.load(row.name)) for row in TABLE.rows}


def test_the_rows_are_five_architectures_by_two_objectives():
    rows = [row.name.rpartition(", ") for row in TABLE.rows]
    architectures = ["Encoder-decoder", "Enc-dec, shared", "Enc-dec, 6 layers", "Language model", "Prefix LM"]
    assert [(one, objective) for one, _, objective in rows] == [
        (one, objective) for objective in ("Denoising", "LM") for one in architectures
    ]


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.name)
def test_parameters_and_cost_are_as_stated(row, costs):
    own, one = costs[row.name], costs["Language model, LM"]
    weights, unit = (sum(each.parameters_by_slot[slot] for slot in STACK) for each in (own, one))
    assert weights == STATED[row.published["params"]] * unit
    flops, unit = (sum(each.flops_forward_by_slot[slot] / each.tokens for slot in STACK) for each in (own, one))
    assert flops == STATED[row.published["cost"]] * unit


def test_cross_attention_is_about_a_tenth(costs):
    """ "About 10% of the total parameter count", which the paper rounds away."""
    whole = costs["Encoder-decoder, Denoising"]
    assert 0.10 < whole.parameters_by_slot["cross"] / whole.parameters < 0.15


def test_shared_stacks_are_one_but_for_cross_attention():
    config = TABLE.load("Enc-dec, shared, Denoising", ["size=tiny"])
    with blank():
        model = config.build("model", config["size"])
    encoder, decoder = (dict(one.stack.named_parameters()) for one in (model.encoder, model.decoder))
    assert encoder
    assert all(decoder[name] is parameter for name, parameter in encoder.items())
    own = decoder.keys() - encoder.keys()
    assert own
    assert all(".cross." in name for name in own)
