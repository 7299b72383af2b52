"""What parts of a model do: its loss without a head or a layer, what each layer would predict, and activations of one
text put into another. Each is a few lines on `model.watch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.inside.look import stream, towers
from scaling.model.contract import Block, Mixer, map_of
from scaling.model.family import Family, counted
from scaling.model.watch import INPUT, Change


@torch.no_grad()
def ablate(model: Family, batches: Iterable[Batch]) -> list[dict[str, Any]]:
    """The `loss` in nats per target without each block, then without each head, and the `effect`, how much more that is
    than with it. `name` is the module's, and `head` its head, None where the whole block is left out.

    A block that is left out returns what it is given. A head's output is 0 before the output projection. Blocks and
    heads that several layers share are left out of all of these.
    """
    model.eval()
    device = next(model.parameters()).device
    batches = [batch.to(device) for batch in batches]
    intact = mean_loss(model, batches)
    effects = []
    for name, head, change in _parts(model):
        with model.watch(change=change):
            loss = mean_loss(model, batches)
        effects.append({"name": name, "head": head, "loss": loss, "effect": loss - intact})
    return effects


@torch.no_grad()
def lens(model: Family, batch: Batch) -> list[Tensor]:
    """The logits [b t v] of the stream after each block, in the order in which these run, by the model's last norm and
    head: the last are the model's own. (nostalgebraist 2020) Of an encoder-decoder the blocks are the decoder's.
    """
    model.eval()
    tower = list(towers(model))[-1][0]
    after = stream(model, batch)[1:]
    logits = []
    for x in after:
        with model.watch(change={f"{tower}.stack.norm{INPUT}": lambda _, x=x: x}):
            logits.append(model.logits(batch))
    return logits


@torch.no_grad()
def patch(
    model: Family, batch: Batch, other: Batch, *patterns: str, tokens: Sequence[int] | slice = slice(None)
) -> Tensor:
    """The logits of a batch when the activations of these names are those of another batch, at all tokens or at some.
    (Vig et al. 2020; Meng et al. 2022)
    """
    model.eval()
    with model.watch(*patterns) as seen:
        model(other)
    supply = {name: iter(each) for name, each in seen.items()}

    def put(name: str) -> Change:
        def change(x: Tensor) -> Tensor:
            new, x = next(supply[name]), x.clone()
            if new.shape != x.shape:
                what = f"{name} has activations of {tuple(new.shape)} in one text, and of {tuple(x.shape)} in the other"
                raise ScalingError(what, fix="take texts with the same number of tokens")
            try:
                x[:, tokens] = new[:, tokens]
            except IndexError:
                raise ScalingError(f"there are {x.shape[1]} tokens", key="tokens", value=tokens) from None
            return x

        return change

    with model.watch(change={name: put(name) for name in seen}):
        return model.logits(batch)


def _parts(model: Family) -> Iterator[tuple[str, int | None, dict[str, Change]]]:
    """The name of each block, then of each head's mixer with the head's number, and the change that leaves it out."""
    modules = dict(model.named_modules())
    for name, block in modules.items():
        if isinstance(block, Block):
            yield name, None, _without_block(name)
    for name, mixer in modules.items():
        child, output = map_of(mixer, "output")
        if isinstance(mixer, Mixer) and mixer.heads and output is not None:
            for head in range(mixer.heads):
                yield name, head, {f"{name}.{child}{INPUT}": partial(_without_head, head, mixer.heads)}


def _without_block(name: str) -> dict[str, Change]:
    inputs: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        inputs.append(x)
        return x

    def put_back(x: Tensor) -> Tensor:
        before = inputs.pop()
        if before.shape != x.shape:
            raise ScalingError(f"{name} changes the number of tokens, so it cannot be left out")
        return before

    return {name + INPUT: keep, name: put_back}


def _without_head(head: int, heads: int, x: Tensor) -> Tensor:
    """What the output projection is given, the part of a head made 0."""
    parts = x.unflatten(-1, (heads, -1)).clone()
    parts[..., head, :] = 0
    return parts.flatten(-2)


def mean_loss(model: Family, batches: Sequence[Batch]) -> float:
    """The mean over all targets."""
    count = sum(int(counted(model.head, batch)) for batch in batches)
    if not count:
        raise ScalingError("there is no target", key="batches", fix="take batches of held-out data")
    return sum(float(model.losses(batch).double().sum()) for batch in batches) / count
