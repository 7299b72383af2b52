"""The loss around a trained model, on a plane of two random directions whose filters are as large as the model's.
(Li et al. 2018)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scaling.base import atomic
from scaling.base.batch import Batch
from scaling.config.schema import build
from scaling.data.batches import evaluation
from scaling.data.source import Vocabulary
from scaling.data.store import root
from scaling.inside.effects import mean_loss
from scaling.laws.figures import FORMATS
from scaling.model.family import Family
from scaling.model.parameters import parameters
from scaling.training.finetune import Pretrained


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
    device = next(model.parameters()).device
    batches = [batch.to(device) for batch in batches]
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


def held_out(source: Pretrained, windows: int, runs: str | Path) -> list[Batch]:
    """Batches of the validation split of the data that a run was trained on."""
    data = build("data", source.data)
    train, validation = (data.open(split, root(runs)) for split in ("train", "validation"))
    line, length = source.sections["objective"], source.size["length"]
    objective = build("objective", line, Vocabulary.of(train), length, source.family)
    batches, count = evaluation(validation, objective, min(16, windows), windows)
    return [batches.batch(step) for step in range(count)]


def rises(loss: np.ndarray) -> dict[str, float]:
    """The `loss` in the middle, its mean rise on the `border`, and the `roughness`: the root mean square of its second
    differences, over the range.
    """
    middle, last = len(loss) // 2, len(loss) - 1
    edge = np.zeros(loss.shape, bool)
    edge[[0, last]] = edge[:, [0, last]] = True
    bends = np.concatenate([np.diff(loss, 2, axis=axis).ravel() for axis in (0, 1)]) if last > 1 else np.zeros(1)
    span, centre = max(float(np.ptp(loss)), 1e-12), float(loss[middle, middle])
    roughness = float(np.sqrt((bends**2).mean())) / span
    return {"loss": centre, "border": float(loss[edge].mean()) - centre, "roughness": roughness}


def save(landscapes: Mapping[str, np.ndarray], reach: float, path: Path) -> None:
    """Contours of several landscapes on one scale of colours: a PNG, PDF or SVG."""
    import io

    from matplotlib import rc_context
    from matplotlib.figure import Figure

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
            if len(loss) > 1:
                contours = ax.contourf(steps, steps, shown, levels=levels, cmap="viridis", extend="max")
            ax.plot(0, 0, "r+")
            ax.set_title(name, parse_math=False)
            ax.set_aspect("equal")
        if contours is not None:
            chart.colorbar(contours, ax=list(axes), label="nats per target")
        content = io.BytesIO()
        chart.savefig(content, format=path.suffix[1:], dpi=160, metadata=FORMATS[path.suffix])
    atomic.write(path, content.getvalue())
