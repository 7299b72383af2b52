"""Decoding from the cache, in padded batches, against its definition (tests/evaluation/slow_decode.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.schema import build, kinds, overlay
from scaling.evaluation.generate import Written, aligned, generate, prompt
from scaling.evaluation.strategy import Beam, Greedy, Sample
from scaling.model.family import Family
from scaling.model.patterns import Prefix
from tests.evaluation import slow_decode as slow

SIZE = {"width": 16, "layers": 2, "heads": 2, "vocabulary": 11, "length": 24}
STOP, STOPS = frozenset({3}), frozenset({3, 5})
TEXTS = ([5, 7, 9, 4, 8], [6, 4], [10, 5, 7])

# Every kind of position, the tied and the parallel, grouped keys, a prefix, halting, and an encoder behind.
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    **{f"position {kind}": ("decoder", {"position": kind}, {}) for kind in kinds("position")},
    "grouped keys": ("decoder", {}, {"key_heads": 1}),
    "shared block": ("decoder", {"stack": {"distinct": 1}}, {}),
    "gpt2": ("gpt2", {}, {}),
    "pythia": ("pythia", {}, {}),
    "prefix": ("decoder", {"pattern": "Prefix"}, {}),
    "t5": ("t5", {}, {}),
    "bart": ("bart", {}, {}),
    "universal": ("decoder", {"stack": {"kind": "Universal", "norm": "RMSNorm", "halting": "ACT"}}, {}),
    "transparent": ("encoder_decoder", {"memory": "Transparent"}, {}),
    "large vocabulary": ("decoder", {}, {"vocabulary": 1234}),  # is searched block by block
    "funnel": ("encoder_decoder", {"encoder": {"stack": {"kind": "Funnel", "norm": "RMSNorm"}}}, {}),
}


def model(name: str) -> Family:
    base, lines, sizes = MODELS[name]
    torch.manual_seed(1)
    made = build("model", overlay(load(base)["model"], lines), {**SIZE, **sizes}).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made.eval()


def prompts(made: Family) -> tuple[Batch, list[Batch]]:
    """One padded batch, and its rows by themselves."""
    tokens, documents = aligned(TEXTS)
    assert documents is not None
    if made.family == "encoder_decoder":
        start = torch.ones(len(TEXTS), 1, dtype=torch.long)
        whole = prompt(start, source=tokens, source_documents=documents)
        return whole, [prompt(start[:1], source=torch.tensor([text])) for text in TEXTS]
    decoder: Any = made.decoder
    ahead = isinstance(decoder.pattern, Prefix)
    lengths = torch.tensor([len(text) for text in TEXTS])
    whole = prompt(tokens, documents, prefix=lengths if ahead else None)
    alone = [prompt(torch.tensor([text]), prefix=torch.tensor([len(text)]) if ahead else None) for text in TEXTS]
    return whole, alone


def same(found: Written, expected: Written) -> None:
    assert (found.tokens, found.stopped) == (expected.tokens, expected.stopped)
    assert found.score == pytest.approx(expected.score, abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_greedy_is_its_definition(name: str) -> None:
    made = model(name)
    whole, alone = prompts(made)
    found = generate(made, whole, Greedy(), steps=6, stop=STOP)
    for row, single in zip(found, alone, strict=True):
        same(row[0], slow.one_by_one(made, single, lambda logits, step: int(logits.argmax()), 6, STOP))


@pytest.mark.parametrize(
    ("name", "penalty"),
    [
        *[("gpt2", 0.0), ("prefix", 1.0), ("t5", 2.0)],
        *[("transparent", 2.0), ("funnel", 1.0), ("large vocabulary", 1.0)],
    ],
)
def test_beam_search_is_its_definition(name: str, penalty: float) -> None:
    made = model(name)
    whole, alone = prompts(made)
    found = generate(made, whole, Beam(beams=4, penalty=penalty), steps=6, stop=STOPS)
    for row, single in zip(found, alone, strict=True):
        for one, other in zip(row, slow.beam(made, single, 4, penalty, 6, STOPS), strict=True):
            same(one, other)


def test_a_longer_text_may_overtake_one_that_ended() -> None:
    class Reader:
        next = torch.tensor([[0.6, 0.4, 1e-9]]).log()  # the first token ends a text

        def select(self, rows: Tensor, *, within: bool) -> None: ...

        def read(self, tokens: Tensor) -> None:
            self.next = torch.tensor([[0.999, 5e-4, 5e-4]]).log()

    reader: Any = Reader()
    assert Beam(beams=1, penalty=4.0).write(reader, 8, frozenset({0}))[0][0].tokens == [1]
    reader = Reader()
    assert Beam(beams=1, penalty=0.0).write(reader, 8, frozenset({0}))[0][0].tokens == []


def test_sampling_is_its_definition() -> None:
    made = model("position Rotary")
    whole, alone = prompts(made)
    strategy = Sample(temperature=0.7, top_k=6, top_p=0.9, seed=3)
    found = generate(made, whole, strategy, steps=8, stop=STOP)
    for index, (row, single) in enumerate(zip(found, alone, strict=True)):

        def choose(logits: Tensor, step: int, index: int = index) -> int:
            padded = logits.expand(len(TEXTS), -1)  # a draw belongs to its row's number
            return int(strategy.draw(padded, step)[index])

        same(row[0], slow.one_by_one(made, single, choose, 8, STOP))


def test_sampling_cuts_off_what_it_should() -> None:
    chances = [0.5, 0.2, 0.15, 0.1, 0.05]
    squares = [chance**2 / sum(chance**2 for chance in chances) for chance in chances]
    for strategy, expected in (
        (Sample(top_k=3), [0.5 / 0.85, 0.2 / 0.85, 0.15 / 0.85, 0, 0]),
        (Sample(top_p=0.7), [0.5, 0.2, 0, 0, 0]),
        (Sample(top_p=0.71), [0.5, 0.2, 0.15, 0, 0]),
        (Sample(temperature=0.5), squares),
    ):
        probability, token = strategy.kept(torch.tensor([chances]).log())
        assert token[0].tolist() == [0, 1, 2, 3, 4]
        assert probability[0].tolist() == pytest.approx(expected)


def test_samples_follow_the_model() -> None:
    rows = 40_000
    wanted = torch.tensor([0.4, 0.3, 0.2, 0.1])
    drawn = Sample(seed=5).draw(wanted.log().expand(rows, -1), step=2)
    for token, share in enumerate(wanted.tolist()):
        assert abs(int((drawn == token).sum()) - rows * share) < 5 * math.sqrt(rows * share * (1 - share))
    assert not torch.equal(drawn, Sample(seed=6).draw(wanted.log().expand(rows, -1), step=2))
    assert not torch.equal(drawn, Sample(seed=5).draw(wanted.log().expand(rows, -1), step=3))


def test_the_stop_token_ends_a_row_and_is_left_out() -> None:
    made = model("gpt2").train()
    whole, _ = prompts(made)
    first = generate(made, whole, Greedy(), steps=6)[0][0].tokens
    assert made.training  # as it was
    again = generate(made, whole, Greedy(), steps=6, stop={first[2]})[0][0]
    assert again.stopped
    assert again.tokens == first[: first.index(first[2])]


def test_writing_beyond_learned_positions_is_refused() -> None:
    made = model("gpt2")
    batch = prompt(torch.full((1, 20), 4))
    assert len(generate(made, batch, Greedy(), steps=5)[0][0].tokens) == 5
    with pytest.raises(ScalingError, match="at most 5"):
        generate(made, batch, Greedy(), steps=6)
    with pytest.raises(ScalingError, match="cannot write"):
        generate(build("model", load("bert")["model"], SIZE), batch, Greedy(), steps=1)


def spelled(tokens: Sequence[int]) -> str:
    return "".join("abcdefghijk"[token] for token in tokens)


@pytest.mark.parametrize("name", ["position Rotary", "t5"])
def test_a_text_ends_behind_a_string(name: str) -> None:
    made = model(name)
    batch, _ = prompts(made)
    for strategy in (Greedy(), Sample(temperature=2.0, seed=3)):
        whole = [spelled(row[0].tokens) for row in generate(made, batch, strategy, steps=9, stop=STOP)]
        string = max(whole, key=len)[1:3]  # which one text has, and others may have
        rows = generate(made, batch, strategy, steps=9, stop=STOP, ended=lambda text, s=string: s in spelled(text))
        for text, (row,) in zip(whole, rows, strict=True):
            before, found, _ = text.partition(string)
            assert spelled(row.tokens) == before + found
            assert row.stopped or not found
