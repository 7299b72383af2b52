"""Counts: the parameters and operations of every row of a table, without training or allocating it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2

from scaling.config import Config
from scaling.cost import cost
from scaling.errors import ScalingError
from scaling.model.parameters import parameters
from scaling.model.tuned import blank, tune
from scaling.schema import kinds
from scaling.tables.ops import dependence, mixer_flops, ops
from scaling.tables.table import Row, Table
from scaling.training.values import batch_size, sized

GROWTH = "_growth"


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
        measured = _measured(config, table.measures)
    except ScalingError as error:
        raise ScalingError(f"row {row.name!r}: {error}", code=error.code) from None
    by_slot: Counter[str] = Counter()
    for spec, parameter in parameters(model):
        by_slot[spec.slot] += parameter.numel()
    return Counted(row, by_slot.total(), by_slot, operations.mesh, operations.flops, measured)


def _measured(config: Config, names: Sequence[str]) -> dict[str, float]:
    """The measures of these names. A growth is the power of the length, from half of it on."""
    growing = {name.removesuffix(GROWTH) for name in names if name.endswith(GROWTH)}
    values: dict[str, float] = {**_of_mixers(config, {*growing, *names})}
    if growing:
        half = _of_mixers(config.varied({"size.length": config["size.length"] // 2}), growing)
        for name in growing:
            if not half[name]:
                fix = "take a block with such a mixer"
                raise config.error("model.block", "it has no mixer with products", fix)
            values[name + GROWTH] = log2(values[name] / half[name])
    if "training" in names:
        values["training"] = _training_flops(config)
    return {name: values[name] for name in names}


def _of_mixers(config: Config, names: Collection[str]) -> dict[str, int]:
    """The sequential steps and the path, and the operations of the mixers, as far as they are named."""
    values = dependence(config) if {"sequential", "path"}.intersection(names) else {}
    return values | ({"operations": mixer_flops(config)} if "operations" in names else {})


def _training_flops(config: Config) -> int:
    """The FLOPs of `trainer.max_steps` updates, forward and backward: those of a window's tokens times a batch's."""
    steps, size = config["trainer.max_steps"], batch_size(config)
    if steps is None:
        raise ScalingError(
            "training FLOPs are those of trainer.max_steps", key="trainer.max_steps", fix="set it in the table"
        )
    of_window = cost(config)
    sides = 2 if kinds("model")[config["model.kind"]].family == "encoder_decoder" else 1  # type: ignore[attr-defined]
    tokens = size.before(steps) * of_window.tokens if size.tokens is None else steps * sides * size.tokens
    return round(of_window.flops_train_per_token * tokens)
