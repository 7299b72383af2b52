"""What parts of a model do: its loss without a head or a layer, what each layer would predict, and activations of one
text put into another, each a few lines on `model.watch`; and the loss around its weights.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scaling.base import atomic
from scaling.base.batch import Batch
from scaling.base.errors import ScalingError, refuse
from scaling.config.document import Config
from scaling.config.schema import build
from scaling.data.batches import evaluation
from scaling.data.source import objective_of
from scaling.data.store import root
from scaling.inside.look import stream, towers
from scaling.interop.pretrained import Pretrained
from scaling.model.contract import Block, Mixer, map_of
from scaling.model.family import Family, counted
from scaling.model.parameters import parameters
from scaling.model.watch import INPUT, Change


@torch.no_grad()
def ablate(model: Family, batches: Iterable[Batch]) -> list[dict[str, Any]]:
    """The `loss` in nats per target without each block, then without each head, and the `effect`, how much more that is
    than with it. `name` is the module's, and `head` its head, None where the whole block is left out.

    A block that is left out returns what it is given. A head's output is 0 before the output projection. Blocks and
    heads that several layers share are left out of all of these.
    """
    model.eval()
    batches = list(batches)
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
    tower = list(towers(model))[-1]
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
    """The logits of a batch with some activations of another batch. (Vig et al. 2020; Meng et al. 2022)"""
    model.eval()
    with model.watch(*patterns) as seen:
        model(other)
    supply = {name: iter(each) for name, each in seen.items()}

    def put(name: str, x: Tensor) -> Tensor:
        new, x = next(supply[name]), x.clone()
        what = f"{name} has activations of {tuple(new.shape)} in one text, and of {tuple(x.shape)} in the other"
        refuse(new.shape != x.shape, what, "take texts with the same number of tokens")
        try:
            x[:, tokens] = new[:, tokens]
        except IndexError:
            raise ScalingError(f"there are {x.shape[1]} tokens", key="tokens", value=tokens) from None
        return x

    with model.watch(change={name: partial(put, name) for name in seen}):
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
        refuse(before.shape != x.shape, f"{name} changes the number of tokens, so it cannot be left out")
        return before

    return {name + INPUT: keep, name: put_back}


def _without_head(head: int, heads: int, x: Tensor) -> Tensor:
    """What the output projection is given, the part of a head made 0."""
    parts = x.unflatten(-1, (heads, -1)).clone()
    parts[..., head, :] = 0
    return parts.flatten(-2)


def mean_loss(model: Family, batches: Sequence[Batch]) -> float:
    """The mean over all targets."""
    device = next(model.parameters()).device
    count = sum(int(counted(model.head, batch)) for batch in batches)
    refuse(not count, "there is no target", "take batches of held-out data", key="batches")
    return sum(float(model.losses(batch.to(device)).double().sum()) for batch in batches) / count


# --- the loss on a plane of two random directions whose filters are as large as the model's (Li et al. 2018) ---


def direction(model: Family, seed: int) -> dict[str, Tensor]:
    """A normal direction by name, each row of each matrix scaled to the norm of the model's; 0 for all else (gains and
    biases), as in the paper. A parameter's direction depends on its name and the seed alone.
    """
    tensors = {}
    for spec, parameter in parameters(model):
        if parameter.ndim < 2:
            tensors[spec.name] = torch.zeros_like(parameter)
            continue
        hashed = blake2b(f"{seed} {spec.name}".encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(hashed, "little") >> 1)
        noise = torch.randn(parameter.shape, generator=generator).to(parameter.device, parameter.dtype)
        rows = parameter.detach().flatten(1)
        scale = rows.norm(dim=1) / noise.flatten(1).norm(dim=1).clamp(min=1e-12)
        tensors[spec.name] = noise * scale.view(-1, *[1] * (noise.ndim - 1))
    return tensors


@torch.no_grad()
def landscape(model: Family, batches: Iterable[Batch], side: int = 21, reach: float = 1.0, seed: int = 0) -> np.ndarray:
    """[side side] the loss in nats per target at θ + a d₁ + b d₂, a (rows) and b from −reach to reach. The model is as
    it was afterwards.
    """
    model.eval()
    batches = list(batches)
    first, second = direction(model, 2 * seed), direction(model, 2 * seed + 1)
    weights = {spec.name: (parameter, parameter.detach().clone()) for spec, parameter in parameters(model)}
    steps = np.linspace(-reach, reach, side)
    steps[side // 2] = 0.0
    loss = np.empty((side, side))
    try:
        for row, a in enumerate(steps):
            for column, b in enumerate(steps):
                for name, (parameter, value) in weights.items():
                    parameter.copy_(value + float(a) * first[name] + float(b) * second[name])
                loss[row, column] = mean_loss(model, batches)
    finally:
        for parameter, value in weights.values():
            parameter.copy_(value)
    return loss


def held_out(source: Pretrained, windows: int) -> list[Batch]:
    """Batches of the validation split of the data that a run was trained on."""
    data = build("data", source.data)
    train, validation = (data.open(split, root(source.runs)) for split in ("train", "validation"))
    objective = objective_of(Config(dict(source.sections), {}), train)
    batches, count = evaluation(validation, objective, min(16, windows), windows)
    return [batches.batch(step) for step in range(count)]


def rises(loss: np.ndarray) -> dict[str, float]:
    """The `loss` in the middle, its mean rise on the `border`, and the `roughness`: the root mean square of its second
    differences, over the range.
    """
    middle, last = len(loss) // 2, len(loss) - 1
    edge = np.zeros(loss.shape, bool)
    edge[[0, last]] = edge[:, [0, last]] = True
    bends = np.concatenate([np.diff(loss, 2, axis=axis).ravel() for axis in (0, 1)])
    span, centre = max(float(np.ptp(loss)), 1e-12), float(loss[middle, middle])
    roughness = float(np.sqrt((bends**2).mean())) / span
    return {"loss": centre, "border": float(loss[edge].mean()) - centre, "roughness": roughness}


def save(landscapes: Mapping[str, np.ndarray], reach: float, path: Path) -> None:
    """Contours of several landscapes on one scale of colours: a PNG, PDF or SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from scaling.laws.figures import FORMATS

    with rc_context({"font.size": 8, "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "scaling"}):
        chart = Figure(figsize=(3.2 * len(landscapes) + 0.7, 3.1), layout="constrained")
        axes = chart.subplots(1, len(landscapes), squeeze=False, sharey=True)[0]
        finite = np.concatenate([loss[np.isfinite(loss)] for loss in landscapes.values()])
        low, high = float(finite.min()), float(np.quantile(finite, 0.95))
        levels = np.linspace(low, max(high, low + 1e-6), 20)
        contours: Any = None
        for ax, (name, loss) in zip(axes, landscapes.items(), strict=True):
            steps = np.linspace(-reach, reach, len(loss))
            shown = np.nan_to_num(np.minimum(loss, levels[-1]), nan=levels[-1], posinf=levels[-1])
            contours = ax.contourf(steps, steps, shown, levels=levels, cmap="viridis", extend="max")
            ax.plot(0, 0, "r+")
            ax.set_title(name, parse_math=False)
            ax.set_aspect("equal")
        chart.colorbar(contours, ax=list(axes), label="nats per target")
        content = io.BytesIO()
        chart.savefig(content, format=path.suffix[1:], dpi=160, metadata=FORMATS[path.suffix])
    atomic.write(path, content.getvalue())
