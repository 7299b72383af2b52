"""Long rows: attention that is computed in parts equals the whole, and makes nothing as large as the square."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from scaling.nn.context import Context, Places, render
from scaling.nn.mixer import attention as softmax
from scaling.schema import build
from scaling.shape import Shape

WIDTH, HEADS = 24, 4
PACKED = torch.tensor([[1] * 9 + [2] * 2 + [3] * 12 + [4] * 17, [0] * 3 + [1] * 30 + [0] * 7])


def run(length: int, *, position: str, pattern: str, documents: Any, dropout: float, line: Any = "Attention") -> Any:
    """The output, and the gradients of all that bears on it."""
    torch.manual_seed(0)
    shape = Shape.of({"width": WIDTH, "layers": 1, "heads": HEADS, "vocabulary": 8, "length": length})
    sees = build("pattern", pattern)
    line = {"kind": line, "dropout": dropout}
    mixer, placed = build("mixer", line, shape).double(), build("position", position, shape, sees).double()
    x = torch.randn(2, length, WIDTH, dtype=torch.float64, requires_grad=True)
    places = Places.of(x, documents=documents)
    context = Context(places, places, render(sees, places, places), placed)
    y = mixer(x, context)
    wanted = torch.randn(2, length, WIDTH, dtype=torch.float64)
    ((y * wanted) if documents is None else (y * wanted)[documents > 0]).sum().backward()
    learned = [p.grad for p in (*mixer.parameters(), *placed.parameters())]
    return y if documents is None else y[documents > 0], x.grad, *learned


@pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
@pytest.mark.parametrize(
    ("position", "pattern", "line"),
    [
        ("NoPosition", "Causal", "Attention"),
        ("NoPosition", "Bidirectional", "Attention"),
        ("ALiBi", "Causal", "Attention"),
        ("RelativeBias", "Bidirectional", "Attention"),
        ("Shaw", "Causal", "Attention"),
        ("TransformerXL", "Causal", "Attention"),
        ("ALiBi", "Causal", "MemoryCompressed"),
    ],
)
def test_parts_are_the_whole(position, pattern, line, documents, monkeypatch):
    given: Any = {"position": position, "pattern": pattern, "documents": documents, "dropout": 0.0, "line": line}
    whole = run(40, **given)
    monkeypatch.setattr(softmax, "NEAR_KEYS", 0)
    monkeypatch.setattr(softmax, "SQUARE", 7 * 40)
    monkeypatch.setattr(softmax, "PART", 7 * 40)
    parts = run(40, **given)
    for found, expected in zip(parts, whole, strict=True):
        assert (found is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_dropout_draws_the_same_in_both_passes(monkeypatch):
    """Where it did not, the gradient by the values would not be that of the output, which is linear in them."""
    monkeypatch.setattr(softmax, "SQUARE", 7 * 40)
    monkeypatch.setattr(softmax, "PART", 7 * 40)
    monkeypatch.setattr(softmax, "NEAR_KEYS", 0)
    q, k, v = (torch.randn(1, 40, 2, 8, dtype=torch.float64) for _ in range(3))
    sees = build("pattern", "Causal")
    places = Places.of(torch.zeros(1, 40))
    shape = Shape.of({"width": 16, "layers": 1, "heads": 2, "vocabulary": 8, "length": 40})
    context = Context(places, places, render(sees, places, places), build("position", "NoPosition", shape, sees))
    v.requires_grad_()
    torch.manual_seed(3)
    y = softmax.attend(q, k, v, context, scale=0.3, dropout=0.4)
    y.sum().backward()
    assert v.grad is not None
    assert (v.grad * v).sum().item() == pytest.approx(y.sum().item(), rel=1e-9)


class _Largest(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return made


@pytest.mark.parametrize(("position", "dropout"), [("RelativeBias", 0.0), ("ALiBi", 0.1)])
def test_no_tensor_grows_with_the_square(position, dropout, monkeypatch):
    monkeypatch.setattr(softmax, "SQUARE", 1 << 13)
    monkeypatch.setattr(softmax, "PART", 1 << 13)

    def largest(length: int) -> int:
        documents = torch.ones(2, length, dtype=torch.long)
        with _Largest() as seen:
            run(length, position=position, pattern="Causal", documents=documents, dropout=dropout)
        return seen.numbers

    assert largest(512) <= 2.1 * largest(256)
