"""Counts: the parameters and operations of every row of a table, without training or allocating it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scaling.config import Config
from scaling.cost import cost
from scaling.errors import ScalingError
from scaling.model.parameters import parameters
from scaling.model.tuned import blank, tune
from scaling.schema import kinds
from scaling.tables.ops import dependence, ops
from scaling.tables.table import Row, Table
from scaling.training.values import batch_size, sized


@dataclass(frozen=True)
class Counted:
    """`ops` by the paper's definition and `flops` as they run are of one training batch, forward; `measured` has the
    measures that the table names.
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
        measured: dict[str, float] = {**dependence(config)} if {"sequential", "path"} & set(table.measures) else {}
        if "training" in table.measures:
            measured["training"] = _training_flops(config)
    except ScalingError as error:
        raise ScalingError(f"row {row.name!r}: {error}", code=error.code) from None
    by_slot: Counter[str] = Counter()
    for spec, parameter in parameters(model):
        by_slot[spec.slot] += parameter.numel()
    measured = {name: measured[name] for name in table.measures}
    return Counted(row, by_slot.total(), by_slot, operations.mesh, operations.flops, measured)


def _training_flops(config: Config) -> int:
    """The FLOPs of `trainer.max_steps` updates, forward and backward: those of a window's tokens times a batch's."""
    steps, size = config["trainer.max_steps"], batch_size(config)
    if steps is None:
        what, key = "training FLOPs are those of trainer.max_steps", "trainer.max_steps"
        raise ScalingError(what, key=key, fix="set it in the table")
    of_window = cost(config)
    sides = 2 if kinds("model")[config["model.kind"]].family == "encoder_decoder" else 1  # type: ignore[attr-defined]
    tokens = size.before(steps) * of_window.tokens if size.tokens is None else steps * sides * size.tokens
    return round(of_window.flops_train_per_token * tokens)
