"""Operations, steps and paths of each kind of layer against the formulas of Vaswani et al. 2017, Table 1."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log

import pytest

from scaling.model.cost import cost
from scaling.tables.count import dependence
from scaling.tables.table import read

TABLE = read("layer_types")
KERNEL, WINDOW = 3, 64

# Multiply-accumulates of n tokens of width d in one layer. The paper leaves attention's four projections out; an LSTM
# has eight products for its gates and one behind them.
FORMULAS: dict[str, Callable[[int, int], int]] = {
    "Self-Attention": lambda n, d: 2 * n * n * d + 4 * n * d * d,
    "Recurrent": lambda n, d: (8 + 1) * n * d * d,
    "Convolutional": lambda n, d: KERNEL * n * d * d,
    # Down to half of the width, the taps there, and back.
    "Convolutional (dilated)": lambda n, d: 2 * n * d * d // 2 + KERNEL * n * d * d // 4,
    # In blocks of r queries, each of which reads the block's 2 r − 1 keys: under twice what the window holds.
    "Self-Attention (restricted)": lambda n, d: 2 * (2 * WINDOW - 1) * n * d + 4 * n * d * d,
}


@pytest.mark.parametrize("row", FORMULAS)
@pytest.mark.parametrize(("length", "width"), [(128, 32), (256, 64)])
def test_operations_are_the_formula(row, length, width):
    config = TABLE.load(row, [f"size.length={length}", f"size.width={width}", "size.layers=2"])
    found = cost(config)  # two operations a multiply-accumulate, in two layers
    assert found.tokens == length
    assert found.flops_forward_by_slot["mixer"] == 2 * 2 * FORMULAS[row](length, width)


# Products in a row: a projection, queries by keys, weights by values, a projection; a step a token and a projection.
SEQUENTIAL: dict[str, Callable[[int], int]] = {
    "Self-Attention": lambda n: 4,
    "Recurrent": lambda n: n + 1,
    "Convolutional": lambda n: 1,
    "Convolutional (dilated)": lambda n: 3,
    "Self-Attention (restricted)": lambda n: 4,
}
# Layers until the last token has heard of the first. The paper's log_k n is of dilated kernels; plain ones take n/k.
# m layers whose taps are 1, k, k², … apart reach k^m tokens.
LAYERS: dict[str, Callable[[int, int], int]] = {
    "Self-Attention": lambda n, r: 1,
    "Recurrent": lambda n, r: 1,
    "Convolutional": lambda n, r: ceil((n - 1) / (KERNEL - 1)),
    "Convolutional (dilated)": lambda n, r: ceil(log(n, KERNEL)),
    "Self-Attention (restricted)": lambda n, r: ceil((n - 1) / (r - 1)),
}


def narrow(row: str, length: int, window: int, *words: str) -> list[str]:
    layers = 7 if "dilated" in row else 2  # each further apart than the one before
    size = [f"size={{width: 16, layers: {layers}, heads: 2, vocabulary: 8, length: {length}}}", *words]
    return [*size, f"model.pattern.size={window}"] if "restricted" in row else size


@pytest.mark.parametrize("row", SEQUENTIAL)
@pytest.mark.parametrize(("length", "window"), [(16, 4), (40, 6), (300, 64)])  # beyond 256 keys the kernel is another
def test_steps_and_paths_are_the_formula(row, length, window):
    found = dependence(TABLE.load(row, narrow(row, length, window)))
    steps = SEQUENTIAL[row](length)
    assert found == {"sequential": steps, "path": steps * LAYERS[row](length, window)}
