"""Counts: what every row of a table weighs and computes, without training or allocating it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log2

from scaling.build import kinds
from scaling.config import Config
from scaling.cost import cost
from scaling.errors import ScalingError
from scaling.model.blank import blank
from scaling.model.parameters import parameters
from scaling.model.tuned import tune
from scaling.tables.dependence import dependence
from scaling.tables.ops import ops
from scaling.tables.table import GROWTH, Row, Table
from scaling.training.values import batch_size
from scaling.training.vocabulary import sized


@dataclass(frozen=True)
class Counted:
    """`ops` by the paper's definition and `flops` as they run are of one training batch, forward; `measured` is what
    the table measures of its layers.
    """

    row: Row
    parameters: int
    by_slot: Mapping[str, int]
    ops: int
    flops: int
    measured: Mapping[str, float] = field(default_factory=dict)


def counts(table: Table, words: Sequence[str] = ()) -> list[Counted]:
    """Every row of the table, counted at the size that `words` set."""
    return [_counted(table, row, table.load(row.name, words)) for row in table.rows]


def _counted(table: Table, row: Row, config: Config) -> Counted:
    try:
        config = sized(config)
        with blank():
            model = config.build("model", config["size"])
            tune(model, config.tree)
        operations = ops(config, model)
        measured = _measured(config, table.measures)
    except ScalingError as error:
        raise ScalingError(f"row {row.name!r}: {error}", code=error.code) from None
    by_slot: Counter[str] = Counter()
    for spec, parameter in parameters(model):
        by_slot[spec.slot] += parameter.numel()
    return Counted(row, by_slot.total(), by_slot, operations.mesh, operations.flops, measured)


def _measured(config: Config, measures: Sequence[str]) -> dict[str, float]:
    """What the table asks for besides size and operations; growth is the power of the length, from half of it on."""
    every: dict[str, float] = {"training": training_flops(config)} if "training" in measures else {}
    if set(measures) - {"training"}:
        every |= dependence(config)
    if any(measure.endswith(GROWTH) for measure in measures):
        shorter = config.varied({"size.length": config["size.length"] // 2})
        before, after = ({"operations": cost(end).flops_forward_by_slot["mixer"]} for end in (shorter, config))
        before, after = before | dependence(shorter), after | every
        every |= {f"{name}{GROWTH}": log2(after[name] / before[name]) for name in before}
    return {measure: every[measure] for measure in measures}


def training_flops(config: Config) -> int:
    """The FLOPs of `train.steps` steps, forward and backward: those of a window's tokens, by the tokens of a batch."""
    steps, size = config["train.steps"], batch_size(config)
    if steps is None:
        raise ScalingError("training FLOPs are those of train.steps", key="train.steps", fix="set it in the table")
    each = cost(config)
    sides = 2 if kinds("model")[config["model.kind"]].family == "encoder_decoder" else 1  # type: ignore[attr-defined]
    tokens = size.before(steps) * each.tokens if size.tokens is None else steps * sides * size.tokens
    return round(each.flops_train_per_token * tokens)
