"""Heads of attention: their maps, what each attends to, and their temperature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from scaling.batch import IGNORE, Batch
from scaling.errors import ScalingError
from scaling.model.family import Family, Tower
from scaling.model.watch import INPUT
from scaling.nn.context import Context, Notes
from scaling.nn.contract import Block, Mixer


def stream(model: Family, batch: Batch, tower: TowerName | None = None) -> list[Tensor]:
    """[b t w] before the first block and after each, in the order in which they run; of the tower that is named, else
    of the one that the head reads.
    """
    every = dict(towers(model))
    tower = tower or list(every)[-1]
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    inside = every[tower].stack
    names = [f"{tower}.stack.{name}" for name, module in inside.named_modules() if isinstance(module, Block)]  # type: ignore[attr-defined]
    with model.watch(change=dict.fromkeys([f"{tower}.stack{INPUT}", *names], keep)):
        model(batch)
    return kept


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
        for path in [path for path, module in tower.named_modules() if isinstance(module, Mixer)]:
            mixer = tower.get_submodule(path)
            before = mixer.register_forward_pre_hook(
                lambda module, given, path=path: enter(f"{name}.{path}", module, given)
            )
            after = mixer.register_forward_hook(lambda *_: leave())
            hooks.callback(before.remove)
            hooks.callback(after.remove)
        yield


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


REPEATED = 32  # the most tokens of the sequence whose repetition shows induction


@dataclass(frozen=True)
class HeadScores:
    """The means over queries of one head's weights.

    `entropy` is in nats; `distance` is the mean distance in tokens from a query to what it weighs; `previous` the
    weight of the token before; `positional` the weight at the distance where it is highest on average, `offset` that
    distance (−1: the token before); `induction` the weight of the token that followed the last occurrence of the
    query's, over a random sequence that is given twice (Olsson et al. 2022). Distances mean nothing across towers. Of
    a cross-attention, `coverage` is how much of the source is read, the mean over its tokens of the weight that all
    queries give it, at most 1 (1: each is read once; after Tu et al. 2016), and `copied` the weight of the source
    tokens that equal the one that the query writes, over the queries that write a token of the source.
    """

    tower: str
    layer: int
    slot: str
    head: int
    entropy: float
    distance: float | None = None
    previous: float | None = None
    positional: float | None = None
    offset: int | None = None
    induction: float | None = None
    coverage: float | None = None
    copied: float | None = None


def scores(
    seen: Sequence[Map], repeated: Sequence[Map] = (), tokens: Mapping[str, Sequence[int]] | None = None
) -> list[HeadScores]:
    """The scores of every head; `repeated` are the maps of `repetition`, `tokens` those that each tower reads."""
    induction = {
        (each.name, each.layer, head): value
        for each in repeated
        if each.slot == "mixer"
        for head, value in enumerate(_induction(each))
    }
    return [
        _crossing(each, head, tokens or {})
        if each.slot == "cross"
        else replace(_scores(each, head), induction=induction.get((each.name, each.layer, head)))
        for each in seen
        for head in range(each.heads)
    ]


def repetition(model: Family, vocabulary: Sequence[int], length: int, seed: int = 0) -> list[Map]:
    """The maps over a random sequence given twice; none of a model that reads a source."""
    count = min(REPEATED, length // 2, len(vocabulary))
    if model.family == "encoder_decoder" or count < 2:
        return []
    drawn = np.random.default_rng(seed).choice(np.asarray(vocabulary), count, replace=False)
    tokens = torch.from_numpy(np.tile(drawn, 2))[None].to(next(model.parameters()).device)
    return maps(model, Batch(tokens, torch.full_like(tokens, IGNORE)))


def alignment(seen: Sequence[Map], read: int, source: int) -> np.ndarray:
    """[written, source], what each token was written by: the mean weights of the cross-attentions' heads.

    A row is of the token that is written, the one behind the query's; nothing is known of what the last query writes.
    Maps of other numbers of places, which a stack has made, are left out.
    """
    crossing = [each.of_tokens.mean(0) for each in seen if each.slot == "cross"]
    crossing = [weights for weights in crossing if weights.shape == (read, source)]
    if not crossing:
        raise ScalingError("the run has no cross-attention of tokens", key="RUN", fix="take an encoder-decoder")
    return np.mean(crossing, axis=0)[:-1]


def _crossing(each: Map, head: int, tokens: Mapping[str, Sequence[int]]) -> HeadScores:
    plain, weights = _plain(each, head), each.of_tokens[head]
    source, read = (np.array(tokens.get(tower, ())) for tower in ("encoder", each.tower))
    covered = replace(plain, coverage=float(np.minimum(weights.sum(0), 1.0).mean()))
    if weights.shape != (len(read), len(source)):
        return covered  # a stack has made another number of places of them
    equal = read[1:, None] == source
    copying = equal.any(1)
    if not copying.any():
        return covered
    return replace(covered, copied=float((weights[:-1] * equal).sum(1)[copying].mean()))


def _plain(each: Map, head: int) -> HeadScores:
    whole = each.weights[head]
    entropy = float(-(whole * np.log(np.maximum(whole, np.finfo(whole.dtype).tiny))).sum(-1).mean())
    return HeadScores(each.tower, each.layer, each.slot, head, entropy)


def _scores(each: Map, head: int) -> HeadScores:
    plain, weights = _plain(each, head), each.of_tokens[head]
    t, s = weights.shape
    if t != s:
        return plain
    far = np.abs(np.subtract.outer(np.arange(t), np.arange(t)))
    at = {offset: float(np.diagonal(weights, offset).mean()) for offset in range(1 - t, t) if t - abs(offset) >= t / 2}
    offset = max(at, key=lambda offset: at[offset])
    return replace(
        plain,
        distance=float((weights * far).sum(-1).mean()),
        previous=at.get(-1, 0.0),
        positional=at[offset],
        offset=offset,
    )


def _induction(each: Map) -> list[float]:
    half = each.of_tokens.shape[1] // 2
    return [float(np.diagonal(weights[half:], 1).mean()) for weights in each.of_tokens]
