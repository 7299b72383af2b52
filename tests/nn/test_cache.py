"""What a cache keeps is the same, however its memory is laid out."""

from __future__ import annotations

import pytest
import torch

from scaling.nn.context import ROOM, Cache, State


def grown(state: State, tokens: int, rows: int = 3) -> torch.Tensor:
    """All tokens after so many were appended one by one, and what they must be."""
    new = torch.randn(rows, tokens, 2)
    for at in range(tokens):
        state.append("key", new[:, at : at + 1])
    return new


@pytest.mark.parametrize("tokens", [1, 2, ROOM, ROOM + 1, 3 * ROOM])
def test_appended_tokens_stand_in_their_order(tokens):
    with torch.inference_mode():
        state = State()
        new = grown(state, tokens)
        assert torch.equal(state["key"], new)
        more = torch.randn(3, ROOM, 2)
        assert torch.equal(state.append("key", more), torch.cat([new, more], 1))


@pytest.mark.parametrize("rows", [[2, 0, 0], [1], [0, 1, 2, 2, 1], [0, 1, 2]])
def test_rows_are_chosen_again_and_again(rows):
    with torch.inference_mode():
        state = State()
        expected = grown(state, 5)
        for _ in range(3):
            chosen = torch.tensor(rows).clamp(max=len(expected) - 1)
            state.select(chosen)
            new = torch.randn(len(rows), 1, 2)
            expected = torch.cat([expected[chosen], new], 1)
            assert torch.equal(state.append("key", new), expected)


def test_copies_go_on_by_themselves():
    with torch.inference_mode():
        cache = Cache()
        new = grown(cache.state("piece"), 5)
        other = cache.copy()
        rows = torch.tensor([2, 1, 0])
        for each in (cache, other, cache, other):
            each.state("piece").append("key", torch.full((3, 1, 2), float(each is other)))
            each.select(rows)
        for each in (cache, other):
            tail = torch.full((3, 2, 2), float(each is other))
            assert torch.equal(each.state("piece")["key"], torch.cat([new, tail], 1))


def test_a_piece_may_keep_something_else_in_its_place():
    with torch.inference_mode():
        state = State()
        grown(state, 4)
        state["key"] = state["key"][:, 2:]
        new = torch.randn(3, 1, 2)
        expected = torch.cat([state["key"], new], 1)
        assert torch.equal(state.append("key", new), expected)


def test_gradients_reach_what_was_kept():
    state, first = State(), torch.randn(3, 2, 2, requires_grad=True)
    state.append("key", first)
    state.append("key", torch.randn(3, 1, 2)).sum().backward()
    assert first.grad is not None
    assert torch.equal(first.grad, torch.ones_like(first))
