"""A document that came back is the one that was written; any other is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.ledger.document import Damaged, parse, seal, stamp, unseal, unstamp

_documents = st.dictionaries(
    st.text(),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
).filter(
    lambda document: (
        document.keys() - {"sha256", "crc"} and not any(word in str(document) for word in ("NaN", "Infinity"))
    )
)


@given(_documents)
def test_a_sealed_document_comes_back(document: dict[str, Any]) -> None:
    document.pop("sha256", None)
    assert unseal(seal(document)) == document
    assert json.loads(seal(document)).keys() == {*document, "sha256"}, "and it is plain JSON to others"


@given(_documents)
def test_a_stamped_line_comes_back(entry: dict[str, Any]) -> None:
    entry.pop("crc", None)
    line = stamp(entry)
    assert line.count(b"\n") == 1
    assert unstamp(line.rstrip(b"\n")) == entry
    assert json.loads(line).keys() == {*entry, "crc"}


def test_every_flipped_bit_and_every_truncation_is_found() -> None:
    content = seal({"loss": 2.25, "outcome": "finished"})
    for place in range(len(content)):
        with pytest.raises(Damaged):
            unseal(content[:place])
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            with pytest.raises(Damaged):
                unseal(bytes(flipped))


def test_numbers_that_json_lacks() -> None:
    document = {"loss": math.nan, "norms": [math.inf, {"least": -math.inf}]}
    back = unseal(seal(document))
    assert math.isnan(back["loss"])
    assert back["norms"] == [math.inf, {"least": -math.inf}]
    json.loads(seal(document), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize("content", [b"[" * 100_000, b"1" * 100_000, b"\xff", b"", b"{", b'{"a":1}x'])
def test_malicious_or_broken_json_is_damage(content: bytes) -> None:
    with pytest.raises(Damaged):
        parse(content)
