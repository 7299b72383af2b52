"""Tuned: a model with what the section `tuning` of its config puts into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scaling.errors import under
from scaling.model.family import Family
from scaling.nn.contract import Tuning
from scaling.schema import build


def tune(model: Family, tree: Mapping[str, Any]) -> Tuning | None:
    """Put into a model what the section `tuning` names, and return it; None where the config has no such section.

    An error is placed under `tuning`.
    """
    line = tree.get("tuning")
    if line is None:
        return None
    with under("tuning"):
        tuning: Tuning = build("tuning", line)
        tuning.apply(model)
        return tuning


def build_model(tree: Mapping[str, Any]) -> Family:
    """The model of the sections `model`, `size` and, where there is one, `tuning`."""
    model: Family = build("model", tree["model"], tree["size"])
    tune(model, tree)
    return model


def sections(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that describe a model, of a config or a spec."""
    return {name: tree[name] for name in ("model", "size", "tuning") if tree.get(name) is not None}
