"""Maps: how much of each token goes into each other one, by every head of every mixer of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from scaling.batch import Batch
from scaling.model.family import Family, Tower
from scaling.nn.context import Context, Notes
from scaling.nn.contract import Mixer, conforms

PROBES = 8  # random directions by which the size of a derivative is estimated
TowerName = Literal["encoder", "decoder"]


@dataclass(frozen=True)
class Map:
    """The weights [heads, queries, keys] of one mixer, each row summing to 1.

    `kind` is `attention` where they are the softmax's. A mixer without one, or with several, has a map of kind
    `gradient`: the size of the derivative of its output at a token by its input at each, a row's sum made 1. `before`
    keys at the front are learned ones (a prefix, a prompt) and no tokens.
    """

    name: str  # of the mixer in the model
    tower: TowerName
    layer: int
    slot: str  # mixer or cross
    kind: Literal["attention", "gradient"]
    weights: np.ndarray
    before: int = 0

    @property
    def heads(self) -> int:
        return len(self.weights)

    @property
    def of_tokens(self) -> np.ndarray:
        """The weights of tokens alone."""
        return self.weights[:, :, self.before :]


def maps(model: Family, batch: Batch) -> list[Map]:
    """The maps of a pass over a batch of one row, in the order in which the mixers run."""
    seen: list[Map] = []
    model.eval()
    with ExitStack() as stack, torch.no_grad():
        for name, tower in towers(model):
            stack.enter_context(_looking(name, tower, seen))
        model(batch)
    return seen


def towers(model: Family) -> Iterator[tuple[TowerName, Tower]]:
    for name in ("encoder", "decoder"):
        tower = getattr(model, name, None)
        if isinstance(tower, Tower):
            yield name, tower


@dataclass
class _Call:
    """One call of a mixer: what it was given, and the weights that it has shown."""

    name: str
    mixer: Any
    given: Sequence[Any]
    weights: list[Tensor] = field(default_factory=list)  # several where it attends in parts
    is_inner: bool = False  # a mixer within it has shown weights, or has a map of its own


@contextmanager
def _looking(name: TowerName, tower: Tower, seen: list[Map]) -> Iterator[None]:
    calls: list[_Call] = []

    def enter(path: str, mixer: nn.Module, given: Sequence[Any]) -> None:
        calls.append(_Call(path, mixer, given))

    def leave() -> None:
        call = calls.pop()
        if not call.is_inner:
            seen.append(_map(name, call))
        for outer in calls:
            outer.is_inner = True

    def show(weights: Tensor) -> None:
        if calls:
            calls[-1].weights.append(weights)

    with ExitStack() as hooks:
        hooks.callback(setattr, tower, "weights", tower.weights)
        tower.weights = show
        for path, mixer in tower.named_modules():
            if not _is_mixer(mixer):
                continue
            before = mixer.register_forward_pre_hook(
                lambda module, given, path=path: enter(f"{name}.{path}", module, given)
            )
            after = mixer.register_forward_hook(lambda *_: leave())
            hooks.callback(before.remove)
            hooks.callback(after.remove)
        yield


def _is_mixer(module: nn.Module) -> bool:
    return conforms(module, Mixer)


def _map(tower: TowerName, call: _Call) -> Map:
    x, context = call.given[:2]
    common = {"name": call.name, "tower": tower, "layer": context.execution, "slot": call.mixer.slot}
    if len(call.weights) != 1:
        return Map(**common, kind="gradient", weights=_derivative(call.mixer, x, context)[None])
    tokens = context.memory.shape[1] if call.mixer.reads_memory else x.shape[1]
    weights = call.weights[0][0].float().cpu().numpy()
    return Map(**common, kind="attention", weights=weights, before=max(0, weights.shape[-1] - tokens))


def _derivative(mixer: Any, x: Tensor, context: Context) -> np.ndarray:
    """[t s]: the root mean square over random directions u of |∂(u · y_t) / ∂x_s|, which is proportional to the
    Frobenius norm of ∂y_t / ∂x_s; each row over its sum.

    A row of the batch stands for each t, so that one backward pass gives the derivatives of all of them. `forward` is
    called as it is, since a call of the mixer would be looked at too.
    """
    t = x.shape[1]
    generator = torch.Generator(x.device).manual_seed(0)
    with torch.enable_grad():
        rows = x.detach().expand(t, -1, -1).clone().requires_grad_()
        y = mixer.forward(rows, replace(context, weights=None, auxiliary=Notes()))
        total = torch.zeros(t, t, dtype=torch.float64, device=x.device)
        for _ in range(PROBES):
            direction = torch.randn(y.shape[-1], generator=generator, device=x.device, dtype=y.dtype)
            each = torch.diag_embed(torch.ones(t, device=x.device, dtype=y.dtype))[..., None] * direction
            (slope,) = torch.autograd.grad(y, rows, each, retain_graph=True)
            total += slope.double().square().sum(-1)
    sizes = total.sqrt()
    return (sizes / sizes.sum(-1, keepdim=True).clamp(min=1e-300)).cpu().numpy()
