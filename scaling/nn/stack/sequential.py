from __future__ import annotations

from collections.abc import Callable
from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.kernel.operations import drop
from scaling.nn.context import Context, Position
from scaling.nn.contract import Stack
from scaling.nn.recompute import through
from scaling.schema import BelowOne, NonNegativeInt, PositiveInt, Recipe
from scaling.shape import Shape


class Sequential(nn.Module, Stack):
    """norm(block_N(… block_1(x))). (Vaswani et al. 2017)

    `distinct` blocks are run in turn until N executions are reached: `distinct: 1` is block sharing (ALBERT, Lan et
    al. 2019). `order` lists the executions instead. `norm` is at the end (NoNorm for post-norm blocks).
    """

    def __init__(
        self,
        shape: Shape,
        block: Callable[[int], nn.Module],
        position: Callable[[], nn.Module],
        *,
        norm: Recipe,
        distinct: PositiveInt | None = None,
        order: list[NonNegativeInt] | None = None,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        self.order = _order(shape.layers, distinct, order)
        self.blocks = nn.ModuleList(block(index) for index in range(max(self.order) + 1))
        first = position()
        more = len(self.blocks) - 1 if first.per == "layer" else 0
        self.positions = nn.ModuleList([first, *(position() for _ in range(more))])
        self.norm, self.dropout = norm(shape.width), dropout

    @property
    def executions(self) -> int:
        return len(self.order)

    def position(self, execution: int) -> Position:
        """The position that this execution uses: its block's own, or the one that all share."""
        return cast(Position, self.positions[self.order[execution] if len(self.positions) > 1 else 0])

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        for execution, index in enumerate(self.order):
            context.execution, context.position = execution, self.position(execution)
            context.keep(x)
            block = self.blocks[index]
            x = through(block, x, context) if context.checkpointing else block(x, context)
        x = drop(self.norm(x), self.dropout, self.training)
        context.keep(x)
        return x


def _order(layers: int, distinct: int | None, order: list[int] | None) -> list[int]:
    if order is None:
        count = layers if distinct is None else distinct
        if not 1 <= count <= layers:
            raise ScalingError(f"expected between 1 and {layers} blocks", key="distinct", value=distinct)
        return [execution % count for execution in range(layers)]
    if sorted(set(order)) != list(range(len(set(order)))):
        raise ScalingError("an order names blocks 0, 1, 2, … without gaps", key="order", value=order)
    if len(order) != layers:
        raise ScalingError(
            f"{len(order)} executions for {layers} layers",
            key="order",
            value=order,
            fix=f"set size.layers={len(order)}",
        )
    return list(order)
