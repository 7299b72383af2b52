"""Continuing prompts by a strategy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from scaling.batch import Batch
from scaling.decode.reader import Reader, Together
from scaling.decode.written import Written
from scaling.errors import ScalingError
from scaling.model.family import Family
from scaling.nn.contract import Mixer, Position


def generate(
    model: Family | Sequence[Family], prompt: Batch, strategy: Any, *, steps: int, stop: Collection[int] = ()
) -> list[list[Written]]:
    """For each row of the prompt, up to `steps` tokens that follow it, best first; a token of `stop` ends one. Several
    models of one vocabulary write together, by the mean of their probabilities.
    """
    if steps < 1:
        raise ScalingError("expected a positive number", key="steps", value=steps)
    models = [model] if isinstance(model, Family) else list(model)
    training = [each.training for each in models]
    for each in models:
        each.eval()
    try:
        with torch.inference_mode():
            reader = Reader(models[0], prompt) if len(models) == 1 else Together(models, prompt)
            for each in models:
                _check_room(each, int(reader.position.max()) + 1, steps)
            return strategy.write(reader, steps, frozenset(stop))
    finally:
        for each, was in zip(models, training, strict=True):
            each.train(was)


def _check_room(model: torch.nn.Module, read: int, steps: int) -> None:
    """The last token written is never read, so one more fits than there are positions."""
    counting = [piece.reach for piece in model.modules() if isinstance(piece, Mixer | Position)]
    reach = min((reach for reach in counting if reach is not None), default=None)
    if reach is not None and read + steps - 1 > reach:
        raise ScalingError(
            f"{read} tokens and {steps} more go beyond the {reach} learned positions",
            key="steps",
            value=steps,
            fix=f"write at most {reach - read + 1}" if reach >= read else "shorten the prompt",
        )
