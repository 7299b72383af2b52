"""What the tests of formulas share: a pass made by hand, pieces drawn by a seed, and the papers' functions in numpy."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scaling.base.batch import Batch
from scaling.config.schema import build
from scaling.config.shape import Shape
from scaling.model.context import Context, Mask, Notes, Places


def shape(width: int, length: int, heads: int = 1, **sizes: int) -> Shape:
    return Shape.of({"width": width, "layers": 1, "heads": heads, "vocabulary": 8, "length": length, **sizes})


def context(
    of: Shape,
    pattern: Any = "Causal",
    *,
    position: str = "NoPosition",
    rows: int = 1,
    length: int | None = None,
    documents: Tensor | None = None,
    prefix: Tensor | None = None,
    memory: Tensor | None = None,
    memory_documents: Tensor | None = None,
    **given: Any,
) -> Context:
    """A pass over rows of tokens, before a memory [b s w]."""
    sees = build("pattern", pattern)
    tokens = torch.zeros(rows, of.length if length is None else length, dtype=torch.long)
    places = Places.of(Batch(tokens, tokens, documents, prefix=prefix))
    torch.manual_seed(1)
    hooks = build("position", position, of, sees).double()
    now = Context(Mask(sees, places, places), hooks, Notes(), None, **given)
    if memory is not None:
        of_memory = Places.of(Batch(memory[..., 0], memory[..., 0], memory_documents))
        now.memories, now.memory_mask = (memory,), Mask(build("pattern", "Bidirectional"), places, of_memory)
    return now


def draw(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(slot: str, line: str | Mapping[str, Any], of: Any, std: float | None = 1.0) -> Any:
    """A piece in float64, every parameter of which is drawn, its constants too; with None they stay as it made them."""
    torch.manual_seed(0)
    piece = build(slot, line, of).double()
    for parameter in piece.parameters() if std is not None else ():
        nn.init.normal_(parameter, std=std)
    return piece


def array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def affine(layer: Any, x: np.ndarray) -> np.ndarray:
    return x @ array(layer.weight).T + (0 if layer.bias is None else array(layer.bias))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, heads: int, seen: Any, scale: float, bias: Any = 0):
    """Each head's average of the values, side by side, under a mask [t s] or [h t s] and with a bias [h t s]."""
    biases = np.broadcast_to(np.where(seen, bias, -np.inf), (heads, len(q), len(k)))
    parts = zip(*(np.split(x, heads, -1) for x in (q, k, v)), biases, strict=True)
    return np.concatenate([softmax(scale * a @ b.T + added) @ c for a, b, c, added in parts], -1)


def each_document(found: Tensor, x: Tensor, documents: Tensor | None, written: Callable[[np.ndarray], Any]) -> None:
    """Every document of every row is what the formula makes of it alone."""
    numbers = torch.ones(x.shape[:2]) if documents is None else documents
    for row, own in enumerate(numbers.numpy()):
        for document in set(own) - {0}:
            here = own == document
            expected = written(x[row].numpy()[here])
            np.testing.assert_allclose(array(found[row])[here], expected, rtol=1e-10, atol=1e-10)


def with_gradients(mixed: Tensor, learned: Sequence[Tensor], here: Context) -> list[Tensor]:
    """What padding attends to bears no loss, so nothing comes down to it."""
    documents = here.places.documents
    seen = torch.ones(1, dtype=torch.bool) if documents is None else (documents > 0)[:, :, None, None]
    upstream = torch.linspace(-1, 1, mixed.numel(), dtype=torch.float64).view_as(mixed).to(mixed.dtype)
    return [mixed * seen, *torch.autograd.grad(mixed, learned, upstream * seen)]
