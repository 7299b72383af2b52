"""Tables of names, and the layouts they speak of."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from scaling.interop.template import Name, table, to_ours, to_theirs


def test_a_table_is_read_line_by_line() -> None:
    lines = table(
        """
        a.table                          wte

        <block>.{gain,bias}              h.*.ln.{weight,bias}
        <block>.{q+k+v}.{weight,bias}    h.*.attn.{weight,bias}   transposed
        """,
        block="blocks.*",
    )
    assert lines == (
        Name(("a.table",), "wte"),
        Name(("blocks.*.gain",), "h.*.ln.weight"),
        Name(("blocks.*.bias",), "h.*.ln.bias"),
        Name(("blocks.*.q.weight", "blocks.*.k.weight", "blocks.*.v.weight"), "h.*.attn.weight", "transposed"),
        Name(("blocks.*.q.bias", "blocks.*.k.bias", "blocks.*.v.bias"), "h.*.attn.bias", "transposed"),
    )


@given(
    layout=st.sampled_from(["plain", "transposed", "row", "by_head"]),
    parts=st.integers(1, 3),
    heads=st.integers(1, 3),
    width=st.integers(1, 4),
    columns=st.integers(1, 4),
)
def test_there_and_back_is_the_same(layout: str, parts: int, heads: int, width: int, columns: int) -> None:
    ours = tuple(f"part{index}" for index in range(parts))
    names = (Name(ours, "joined", layout),)
    tensors = {name: torch.randn(heads * width, columns) for name in ours}
    theirs = to_theirs(names, tensors, heads)
    again = to_ours(names, tensors, theirs, heads)
    assert set(theirs) == {"joined"}
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())
