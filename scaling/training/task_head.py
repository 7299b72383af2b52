"""The head of a task: whether it fits the task's answers, and the weights that it takes from the examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scaling.config import Config
from scaling.data.source import Source
from scaling.data.task import Examples
from scaling.data.task.task import is_task
from scaling.errors import ScalingError
from scaling.model.encoder import Encoder
from scaling.model.family import Family
from scaling.training.finetune import HEADS


def check(model: Family, objective: Any, source: Source) -> None:
    """Refuse a head that predicts other answers than the task has, or another number of classes."""
    head, kind = model.head, type(model.head).__name__
    if model.learns_previous != getattr(objective, "previous", False):
        learns = "the model predicts the token before each too" if model.learns_previous else "the model looks one way"
        fix = "take objective=BothWays" if model.learns_previous else "take model.kind=BiLM with a head of tokens"
        raise ScalingError(learns, key="objective.kind", value=type(objective).__name__, fix=fix)
    if not is_task(source):
        if head.answer is not None and getattr(objective, "labels", None) != head.answer:
            raise ScalingError(
                f"the head {kind} learns from labels, and the objective makes none",
                key="model.head.kind",
                value=kind,
                fix="choose another objective or another head",
            )
        return
    task = source.task  # type: ignore[attr-defined]
    answer = None if objective.writes else task.answer
    if head.answer != answer:
        what = "tokens of text, which the model writes" if answer is None else f"of the kind {answer}"
        fix = "take a head of next tokens, as Linear" if answer is None else f"take {{kind: {HEADS[answer]}, …}}"
        raise ScalingError(f"the answers of the task are {what}", key="model.head.kind", value=kind, fix=fix)
    if isinstance(model, Encoder) and model.encoder.stack.shortens and (answer == "options" or objective.left):
        stack = type(model.encoder.stack).__name__
        what = f"the head reads other places than the first, and {stack} keeps a vector for few of the tokens"
        raise ScalingError(what, key="model.stack.kind", value=stack, fix="take UpsampledFunnel or Sequential")
    out = getattr(head, "out", None)
    if answer in ("class", "classes", "tags") and out is not None and out.out_features != len(task.labels):
        raise ScalingError(
            f"the task has {len(task.labels)} labels: {', '.join(task.labels[:8])}{', …' * (len(task.labels) > 8)}",
            key="model.head.classes",
            value=out.out_features,
            fix=f"set it to {len(task.labels)}",
        )
    if model.family == "decoder" and task.order == "either" and answer in ("class", "number") and not head.added:  # type: ignore[attr-defined]
        raise ScalingError(
            "a decoder reads these pairs in both orders, whose vectors are added",
            key="model.head.added",
            value=False,
            fix="set it to true",
        )


def balanced(config: Config, source: Source) -> Config:
    """The config with the weights n / (classes · n_c) in the place of `balanced`."""
    head = config["model.head"]
    if not isinstance(head, Mapping) or head.get("weights") != "balanced":
        return config
    if not is_task(source):
        raise config.error("model.head.weights", "there are no labelled examples to balance", "give the weights")
    assert isinstance(source, Examples)
    counts = source.counts
    if not counts.all():
        name = source.task.labels[int(counts.argmin())]
        raise config.error("model.head.weights", f"no training example has the label {name}", "give the weights")
    weights = [float(f"{weight:.6g}") for weight in counts.sum() / (len(counts) * counts)]
    model = {**config["model"], "head": {**head, "weights": weights}}
    return replace(config, tree={**config.tree, "model": model})
