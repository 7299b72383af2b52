"""The cost of a model: parameters, FLOPs and memory, counted on the meta device: 175B parameters take no memory.

FLOPs are those of the matrix products that run (two for a multiply and add), forward and backward, as
`torch.utils.flop_counter` sees them: attention counts the full square that its kernel computes, look-ups count nothing.
They are those of one window; what the rows of a batch share counts for each (`shared_flops`).
The approximations that papers use are counted too, so that a point carries every definition of N and C.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from scaling.base.batch import Batch
from scaling.config.document import Config
from scaling.config.shape import Shape
from scaling.model.family import Family
from scaling.model.flops import counted
from scaling.model.parameters import parameters
from scaling.model.tuned import blank_model

# What attention is computed with in training, by device: the kernel is ours.
TRAINING_ON: Mapping[str, Any] = {
    "cpu": {"dtype": torch.float32, "kernel": True},
    "cuda": {"dtype": torch.bfloat16, "kernel": False, "flex": True},
}
SLOTS = ("embedding", "position", "mixer", "cross", "channel", "norm", "stack", "head", "tuning")


@dataclass(frozen=True)
class Cost:
    """Parameters, FLOPs and memory of one model for a window of `tokens` tokens: source and target, where it has both.

    `parameters_trained` leaves out the frozen ones, of which no gradient is in `flops_train` and `memory`.
    `flops_train` is the forward and the backward pass, without what checkpointing computes again (`flops_recomputed`);
    `…_by_slot` splits a figure over the slots. N without embeddings leaves out token, segment and position tables and
    the matrix onto the vocabulary (Kaplan et al. 2020). `flops_between_tokens` are, of the forward pass, the products
    between tokens: all but the matrices that each token goes through. A batch of B windows takes B times `flops_train`,
    less B − 1 times what its rows share, as tables of relative positions (`flops_train_shared`; None: not counted).
    `attention_by` has the ways by which softmax attention is computed in training, by device.
    """

    parameters: int
    parameters_trained: int
    parameters_non_embedding: int
    parameters_by_slot: Mapping[str, int]
    tokens: int
    flops_forward: int
    flops_train: int
    flops_forward_by_slot: Mapping[str, int]
    flops_train_by_slot: Mapping[str, int]
    activation_bytes: int
    shape: Shape  # of the tower that predicts
    flops_recomputed: int = 0
    flops_between_tokens: Mapping[str, int] = field(default_factory=dict)
    flops_train_shared: int | None = None
    attention_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def flops_forward_per_token(self) -> float:
        return self.flops_forward / self.tokens

    @property
    def flops_train_per_token(self) -> float:
        return self.flops_train / self.tokens

    @property
    def attention(self) -> dict[str, float]:
        """Forward FLOPs per token of the token mixers, cross-attention among them: of their projections, which are the
        same at every length, and of products between tokens (q·k and the average of the values); and the fraction of
        all that the mixers and these products are.
        """
        slots, total = ("mixer", "cross"), max(1, self.flops_forward)
        mixers = sum(self.flops_forward_by_slot[slot] for slot in slots)
        between = sum(self.flops_between_tokens.get(slot, 0) for slot in slots)
        return {
            "projections_flops_per_token": (mixers - between) / self.tokens,
            "between_tokens_flops_per_token": between / self.tokens,
            "share_of_flops": mixers / total,
            "projections_share_of_flops": (mixers - between) / total,
            "between_tokens_share_of_flops": between / total,
        }

    @property
    def feed_forward_share(self) -> dict[str, float]:
        """The fraction of the parameters and of the forward FLOPs that is in the feed-forward layers."""
        return {
            "parameters": self.parameters_by_slot["channel"] / self.parameters,
            "parameters_non_embedding": self.parameters_by_slot["channel"] / max(1, self.parameters_non_embedding),
            "flops": self.flops_forward_by_slot["channel"] / max(1, self.flops_forward),
        }

    @property
    def approximations(self) -> dict[str, float]:
        """Training FLOPs per token by the formulas in use, each under its name in the literature."""
        shape, small, last = self.shape, self.parameters_non_embedding, self.shape.vocabulary * self.shape.width
        attention = 6 * shape.layers * shape.length * shape.heads * shape.head_width
        return {
            "6N": 6 * self.parameters,
            "6N_non_embedding": 6 * small,
            "kaplan_with_attention": 6 * small + attention,
            "with_last_layer": 6 * (small + last),
            "with_attention_and_last_layer": 6 * (small + last) + 2 * attention,
        }

    def memory(self, rows: int = 1, parameter_bytes: int = 4, optimizer_bytes: int = 8) -> dict[str, int]:
        """Bytes of a training step on one device: weights, gradients, optimizer state (Adam's two moments),
        activations.
        """
        return {
            "parameters": self.parameters * parameter_bytes,
            "gradients": self.parameters_trained * parameter_bytes,
            "optimizer": self.parameters_trained * optimizer_bytes,
            "activations": self.activation_bytes * rows,
        }

    def to_json(self) -> dict[str, Any]:
        shared, again = self.flops_train_shared, self.flops_recomputed
        return {
            "parameters": self.parameters,
            "parameters_trained": self.parameters_trained,
            "parameters_non_embedding": self.parameters_non_embedding,
            "by_slot": {
                slot: {
                    "parameters": self.parameters_by_slot[slot],
                    "flops_forward_per_token": self.flops_forward_by_slot[slot] / self.tokens,
                    "flops_train_per_token": self.flops_train_by_slot[slot] / self.tokens,
                }
                for slot in SLOTS
                if self.parameters_by_slot[slot] or self.flops_forward_by_slot[slot]
            },
            "flops_forward_per_token": self.flops_forward_per_token,
            "flops_train_per_token": self.flops_train_per_token,
            **({} if shared is None else {"flops_train_shared_per_token": shared / self.tokens}),
            **({} if not again else {"flops_recomputed_per_token": again / self.tokens}),
            "tokens_per_window": self.tokens,
            "approximations_flops_train_per_token": self.approximations,
            "feed_forward_share": self.feed_forward_share,
            "attention": self.attention,
            "attention_by": {device: list(ways) for device, ways in self.attention_by.items()},
            "memory_bytes_one_window_float32_adam": self.memory(),
        }

    def __repr__(self) -> str:
        return f"Cost({self.parameters:,} parameters, {self.flops_train_per_token:.4g} training FLOPs per token)"


_counted: dict[str, Cost] = {}  # a study asks for the same few models many times


def cost(config: Config, rows: int = 1, trained: Collection[str] | None = None) -> Cost:
    """The cost of the model that a config describes on one window of its length, or more, without allocating it.

    `trained` names the parameters that are trained; None: those that the config's tuning trains, or all.
    """
    checkpointing = (config.tree.get("train") or {}).get("checkpointing", "none")
    names = None if trained is None else sorted(trained)
    line = [config["model"], config["size"], config.tree.get("tuning"), checkpointing, rows, names]
    key = json.dumps(line, sort_keys=True)
    if key in _counted:
        return _counted[key]
    model, tuning = blank_model(config)
    if tuning is not None or names is not None:
        trains = tuning.trains if names is None and tuning is not None else (names or []).__contains__
        for spec, parameter in parameters(model):
            parameter.requires_grad_(trains(spec.name))
    with torch.device("meta"):
        _counted[key] = count(model, windows(model, rows), checkpointing)
    return _counted[key]


def inspected(config: Config, trained: Collection[str] | None = None) -> Cost:
    """The cost of a checked config's model, with what the rows of a batch share. For `trained` see `cost`."""
    single, double = cost(config, trained=trained), cost(config, 2, trained)
    return replace(single, flops_train_shared=2 * single.flops_train - double.flops_train)


def count(model: Family, batch: Batch, checkpointing: Literal["none", "blocks"] = "none") -> Cost:
    """The cost of a model on one batch, on whatever device both are; `tokens` and FLOPs are the batch's."""
    each = [(spec, parameter, parameter.numel()) for spec, parameter in parameters(model)]
    by_slot: Counter[str] = Counter()
    for spec, _, number in each:
        by_slot[spec.slot] += number
    ways: dict[str, set[str]] = {device: set() for device in TRAINING_ON}

    def attends(choice: Callable[..., str]) -> None:
        for device, training in TRAINING_ON.items():
            ways[device].add(choice(device=device, **training))

    for tower in model.towers.values():
        tower.attends = attends
    with torch.no_grad():
        run = counted(model, lambda: model.losses(batch))
    for tower in model.towers.values():
        tower.attends = None
    model.checkpoint("none")
    blocks = (block for tower in model.towers.values() for block in tower.stack.blocks)
    plain = counted(model, lambda: model.loss(batch).total.backward(), blocks)
    train, memory, again = plain.by_slot, plain.bytes, 0
    if checkpointing != "none":
        model.checkpoint(checkpointing)
        without = counted(model, lambda: model.loss(batch).total.backward())
        again = sum(without.by_slot.values()) - sum(train.values())
        memory = without.bytes + plain.most  # while the backward pass is in a block, all that it made is there
    return Cost(
        parameters=sum(by_slot.values()),
        parameters_trained=sum(number for _, parameter, number in each if parameter.requires_grad),
        parameters_non_embedding=sum(number for spec, _, number in each if not (spec.looks_up or spec.predicts)),
        parameters_by_slot=by_slot,
        tokens=batch.tokens.numel() + (0 if batch.source is None else batch.source.numel()),
        flops_forward=sum(run.by_slot.values()),
        flops_train=sum(train.values()),
        flops_forward_by_slot=run.by_slot,
        flops_train_by_slot=train,
        activation_bytes=memory,
        shape=list(model.towers.values())[-1].shape,
        flops_recomputed=again,
        flops_between_tokens=run.between_tokens,
        attention_by={device: tuple(sorted(names)) for device, names in ways.items()},
    )


def windows(model: Family, rows: int) -> Batch:
    """Windows of the model's own lengths; every token a target, and a label where a head wants one."""
    *others, tower = model.towers.values()
    tokens = torch.zeros(rows, tower.shape.length, dtype=torch.long)
    source = torch.zeros(rows, others[0].shape.length, dtype=torch.long) if hasattr(model, "memory") else None
    return Batch(tokens, tokens, labels=model.labels_like(tokens), language=torch.ones(rows), source=source)
