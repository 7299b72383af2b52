"""Measured operations of each kind of layer against the formulas of Vaswani et al. 2017, Table 1, constants and all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scaling.cost import cost
from scaling.table.table import read

TABLE = read("layer_types")
KERNEL, WINDOW = 3, 64

# Multiply-accumulates of n tokens of width d in one layer. The paper leaves attention's four projections out; an LSTM
# has eight products for its gates and one behind them.
FORMULAS: dict[str, Callable[[int, int], int]] = {
    "Self-Attention": lambda n, d: 2 * n * n * d + 4 * n * d * d,
    "Recurrent": lambda n, d: (8 + 1) * n * d * d,
    "Convolutional": lambda n, d: KERNEL * n * d * d,
    # In blocks of r queries, each of which reads the block's 2 r − 1 keys: under twice what the window holds.
    "Self-Attention (restricted)": lambda n, d: 2 * (2 * WINDOW - 1) * n * d + 4 * n * d * d,
}


def test_every_kind_has_its_formula():
    assert list(FORMULAS) == [row.name for row in TABLE.rows]


@pytest.mark.parametrize("row", FORMULAS)
@pytest.mark.parametrize(("length", "width"), [(256, 64), (512, 64), (256, 128)])
def test_operations_are_the_formula(row, length, width):
    config = TABLE.load(row, [f"size.length={length}", f"size.width={width}", "size.layers=2"])
    found = cost(config)  # two operations a multiply-accumulate, in two layers
    assert found.tokens == length
    assert found.flops_forward_by_slot["mixer"] == 2 * 2 * FORMULAS[row](length, width)
