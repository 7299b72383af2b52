"""Texts that end behind a string, against the whole texts cut at it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scaling.decode import Beam, Greedy, Sample, Until, generate
from tests.decode.test_generate import STOP, model, prompts

STRATEGIES = {"Greedy": Greedy(), "Sample": Sample(temperature=2.0, seed=3), "Beam": Beam(beams=3, penalty=0.0)}


def spelled(tokens: Sequence[int]) -> str:
    return "".join("abcdefghijk"[token] for token in tokens)


@pytest.mark.parametrize("name", ["position Rotary", "t5"])
@pytest.mark.parametrize("kind", ["Greedy", "Sample"])
def test_a_text_ends_behind_the_string(kind: str, name: str) -> None:
    made = model(name)
    batch, _ = prompts(made)
    whole = [spelled(row[0].tokens) for row in generate(made, batch, STRATEGIES[kind], steps=9, stop=STOP)]
    string = max(whole, key=len)[1:3]  # which one text has, and others may have
    assert len(string) == 2
    until = Until(STRATEGIES[kind], [string, "zz"], spelled)
    for text, (row,) in zip(whole, generate(made, batch, until, steps=9, stop=STOP), strict=True):
        before, found, _ = text.partition(string)
        assert spelled(row.tokens) == before + found
        assert row.stopped or not found or len(text) == len(before + found)


def test_beams_end_behind_the_string_too() -> None:
    made = model("position Rotary")
    batch, _ = prompts(made)
    ends = Until(STRATEGIES["Beam"], ["f", "gh"], spelled)
    for row in generate(made, batch, ends, steps=8, stop=STOP):
        for written in row:
            text = spelled(written.tokens)
            assert "f" not in text[:-1]
            assert "gh" not in text[:-1]
