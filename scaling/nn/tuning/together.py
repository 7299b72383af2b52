"""Several tuned states of one base in one model, of which each row of a batch uses one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TypeVar

import torch
from torch import nn

from scaling.errors import ScalingError
from scaling.nn.tuning.added import Added

M = TypeVar("M", bound=nn.Module)


@torch.no_grad()
def together(models: Sequence[M]) -> M:
    """One model of several that share a base and were tuned in one way; `Batch.adapters` is the state of each row.

    model = together([first, second])
    model.logits(replace(batch, adapters=torch.tensor([1, 0, 1])))
    """
    if not models:
        raise ScalingError("expected tuned models", key="models", value=[])
    first, *others = models
    whole = deepcopy(first)
    own = {name: part for name, part in whole.named_modules() if isinstance(part, Added)}
    if not own:
        raise ScalingError("the model is not tuned by something that was added to it", key="models")
    for number, other in enumerate(others, 2):
        _check(first, other, number)
    for name, part in own.items():
        if part.states or getattr(part, "merged", False):
            raise ScalingError(f"{name} is merged, or holds several states already", key="models")
        for last in [last for last, _ in part.named_parameters(recurse=False)]:
            states = [model.get_submodule(name).get_parameter(last).detach() for model in models]
            setattr(part, last, nn.Parameter(torch.stack(states)))
        part.states = len(models)
    return whole


def _check(first: nn.Module, other: nn.Module, number: int) -> None:
    """Refuse a model that was tuned otherwise or whose base is another."""
    parameters = dict(other.named_parameters())
    within = {name for name, part in first.named_modules() if isinstance(part, Added)}
    for name, parameter in first.named_parameters():
        theirs = parameters.pop(name, None)
        is_added = name.rpartition(".")[0] in within
        if theirs is None or theirs.shape != parameter.shape:
            raise ScalingError(f"model {number} is tuned in another way: {name} differs", key="models")
        if not is_added and not torch.equal(parameter, theirs):
            raise ScalingError(f"model {number} has another base: {name} differs", key="models")
    if parameters:
        raise ScalingError(f"model {number} is tuned in another way: it has {min(parameters)}", key="models")
    for name in within:
        mine, theirs = (vars(model.get_submodule(name)) for model in (first, other))
        for key in ("scale", "dropout"):
            if mine.get(key) != theirs.get(key):
                raise ScalingError(f"model {number} is tuned in another way: the {key} of {name} differs", key="models")
