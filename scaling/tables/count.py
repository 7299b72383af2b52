"""Counts: what every row of a table weighs and computes, without training or allocating it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scaling.config import Config
from scaling.errors import ScalingError
from scaling.model.parameters import parameters
from scaling.model.tuned import blank, tune
from scaling.tables.measure import MEASURES, Setting
from scaling.tables.ops import ops
from scaling.tables.table import Row, Table
from scaling.training.values import sized


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
        setting = Setting(config)
        measured = {name: MEASURES[name].of(setting) for name in table.measures}
    except ScalingError as error:
        raise ScalingError(f"row {row.name!r}: {error}", code=error.code) from None
    by_slot: Counter[str] = Counter()
    for spec, parameter in parameters(model):
        by_slot[spec.slot] += parameter.numel()
    return Counted(row, by_slot.total(), by_slot, operations.mesh, operations.flops, measured)
