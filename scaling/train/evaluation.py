"""Evaluation: the fixed held-out batches, whole, at log-spaced steps and at the end."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from scaling.batch import IGNORE, Batch
from scaling.data.source import Source
from scaling.model.family import Family


def evaluation_steps(steps: int, points: int) -> list[int]:
    """`points` steps spaced evenly on a logarithmic scale, the last of them the end."""
    if points == 1:
        return [steps]
    return sorted({max(1, round(steps ** (index / (points - 1)))) for index in range(points)} | {steps})


@torch.no_grad()
def evaluate(model: Family, batches: Iterable[Batch], source: Source) -> dict[str, Any]:
    """Losses of a model on held-out batches, every target counted once, summed in float64.

    Where the source knows the true loss of each target, `loss` is its entropy plus the model's mean excess over the
    truth on the same targets: the same expectation, with the noise of the sample taken out. `loss_plain` is the plain
    mean.
    """
    training = model.training
    model.eval()
    total = excess = correct = torch.zeros((), dtype=torch.float64)
    counted, by_position = 0, None
    known = False
    for batch in batches:
        targets = getattr(batch, model.head.target)
        hidden = model(batch).hidden
        losses = model.head.loss(hidden, targets).double()
        bears = targets != IGNORE
        counted += int(bears.sum())
        total = total + losses.sum().cpu()
        if batch.truth is not None:
            known = True
            excess = excess + (losses - batch.truth.double())[bears].sum().cpu()
        predictions = model.head(hidden)
        if predictions.shape[:-1] == targets.shape:
            correct = correct + (predictions.argmax(-1) == targets)[bears].sum().cpu()
        if targets.ndim == 2:
            sums = torch.stack([losses.sum(0), bears.sum(0).double()]).cpu()
            by_position = sums if by_position is None else _longer(by_position, sums)
    model.train(training)
    plain = total.item() / counted
    found: dict[str, Any] = {"loss": plain, "loss_plain": plain, "targets": counted}
    if known and source.entropy is not None:
        found["excess"] = excess.item() / counted
        found["loss"] = source.entropy + found["excess"]
        found["entropy"] = source.entropy
    if source.bytes_per_token:
        found["bits_per_byte"] = found["loss"] / math.log(2) / source.bytes_per_token
    if by_position is not None:
        found["accuracy"] = correct.item() / counted
        sums, counts = by_position.tolist()
        found["loss_by_position"] = [
            value / count if count else None for value, count in zip(sums, counts, strict=True)
        ]
    return found


def _longer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The sum of two tables by position, of which one may be shorter."""
    width = max(a.shape[1], b.shape[1])
    pad = torch.nn.functional.pad
    return pad(a, (0, width - a.shape[1])) + pad(b, (0, width - b.shape[1]))
