from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, cast

from jaxtyping import Float
from torch import Tensor, nn

from scaling.errors import ScalingError, under
from scaling.kernel.operations import drop
from scaling.nn.context import Context, Position
from scaling.nn.contract import Stack
from scaling.nn.recompute import through
from scaling.nn.stack.coordinates import Coordinates, Place, Time
from scaling.schema import BelowOne, Range, Recipe
from scaling.shape import Shape


class Universal(nn.Module, Stack):
    """norm(h_N), h_t = block(h_{t−1} + P_i + P_t): one block, a step for each of the N layers. (Dehghani et al. 2018)

    `halting` lets each position stop at a step of its own (`ACT`); the others go on reading its last state. `before`
    and `after` run the block that many more times around the steps, without coordinates (Narang et al. 2021).
    """

    def __init__(
        self,
        shape: Shape,
        block: Callable[[int], nn.Module],
        position: Callable[[], nn.Module],
        *,
        norm: Recipe,
        halting: Recipe | None = None,
        time: Time = "sinusoidal",
        place: Place = "sinusoidal",
        before: Annotated[int, Range(least=0, most=10_000)] = 0,
        after: Annotated[int, Range(least=0, most=10_000)] = 0,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        if shape.width % 2:
            raise ScalingError(
                f"sines and cosines need an even width, not {shape.width}", key="kind", value="Universal"
            )
        self.before, self.steps, self.after = before, shape.layers, after
        self.blocks, self.positions = nn.ModuleList([block(0)]), nn.ModuleList([position()])
        self.coordinates = Coordinates(shape.width, shape.layers, time=time, place=place)
        with under("halting"):
            self.halting = halting(shape.width) if halting else None
        self.norm, self.dropout = norm(shape.width), dropout

    @property
    def executions(self) -> int:
        return self.before + self.steps + self.after

    def position(self, execution: int) -> Position:
        """The one position that all executions share."""
        return cast(Position, self.positions[0])

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        for execution in range(self.before):
            x = self._run(x, context, execution)
        x = self._recur(x, context) if self.halting is None else self._ponder(x, context, self.halting)
        for execution in range(self.before + self.steps, self.executions):
            x = self._run(x, context, execution)
        x = drop(self.norm(x), self.dropout, self.training)
        context.keep(x)
        return x

    def _recur(self, x: Tensor, context: Context) -> Tensor:
        for step in range(self.steps):
            x = self._step(x, context, step)
        return x

    def _ponder(self, x: Tensor, context: Context, halting: nn.Module) -> Tensor:
        """Every step is computed for every position: one that has halted still answers as a key, from its last state,
        which incremental decoding would miss if the steps ended early.
        """
        pondered = None
        for step in range(self.steps):
            x, pondered = halting(x, self._step(x, context, step), pondered, last=step == self.steps - 1)
        return halting.answer(pondered, context)  # type: ignore[operator]

    def _step(self, x: Tensor, context: Context, step: int) -> Tensor:
        return self._run(self.coordinates(x, context.places.positions, step), context, self.before + step)

    def _run(self, x: Tensor, context: Context, execution: int) -> Tensor:
        context.execution, context.position = execution, self.position(execution)
        context.keep(x)
        return through(self.blocks[0], x, context)
