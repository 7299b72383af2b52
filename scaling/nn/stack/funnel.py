from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, cast

from jaxtyping import Float
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.kernel.operations import drop
from scaling.nn.context import Context, Places, Position
from scaling.nn.contract import Block, Mixer, Residual, Stack
from scaling.nn.pattern import render
from scaling.nn.pooling import Pooling
from scaling.nn.recompute import through
from scaling.schema import BelowOne, Range, Recipe
from scaling.shape import Shape


class Funnel(nn.Module, Stack):
    """norm(h), h the stream after stages of blocks, each half as long as the one before. (Dai et al. 2020)

        first block of a stage: h ← pool(h) + Attention(query pool(h), key and value h)
        pool(h)_i = (h_2i + h_2i+1) / 2

    The N layers are shared out evenly among `stages`, the first ones taking what is over; two layers are two stages.
    The windows of a document are its own, so that packing changes nothing. A query that is pooled is at the
    position of its first token; in the layers behind, positions count windows, as in Narang et al. 2021, where Dai et
    al. go on counting tokens. No token is kept out of the pooling, as Dai et al. keep [cls].
    """

    looks_ahead, shortens = True, True

    def __init__(
        self,
        shape: Shape,
        block: Callable[[int], nn.Module],
        position: Callable[[], nn.Module],
        *,
        norm: Recipe,
        stages: Annotated[int, Range(least=1, most=64)] = 3,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        self.stages = _shared_out(shape.layers, stages)
        self.blocks = nn.ModuleList(block(index) for index in range(shape.layers))
        first = position()
        more = shape.layers - 1 if first.per == "layer" else 0
        self.positions = nn.ModuleList([first, *(position() for _ in range(more))])
        self.norm, self.dropout = norm(shape.width), dropout
        for stage in self.stages[1:]:
            self.blocks[stage.start] = _Opening(self.blocks[stage.start])

    @property
    def executions(self) -> int:
        return len(self.blocks)

    def position(self, execution: int) -> Position:
        """The position that this execution uses: its block's own, or the one that all share."""
        return cast(Position, self.positions[execution if len(self.positions) > 1 else 0])

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b s w"]:
        inside, x = context, self._run(x, context, self.stages[0])
        for layers in self.stages[1:]:
            x, inside, _ = self._stage(x, inside, layers)
        context.places = inside.places
        return drop(self.norm(x), self.dropout, self.training)

    def _stage(self, x: Tensor, context: Context, layers: range) -> tuple[Tensor, Context, Pooling]:
        """The stream behind a stage that pools, the pass as it goes on from there, and what was pooled."""
        pooling = Pooling.of(context.places, x.shape[1])
        context.execution, context.position = layers.start, self.position(layers.start)
        inside = _at(context, pooling.after, pooling.after)
        x = through(self.blocks[layers.start], x, context, inside, pooling)
        return self._run(x, inside, layers[1:]), inside, pooling

    def _run(self, x: Tensor, context: Context, layers: range) -> Tensor:
        for execution in layers:
            context.execution, context.position = execution, self.position(execution)
            x = through(self.blocks[execution], x, context)
        return x


class UpsampledFunnel(Funnel):
    """A funnel and its decoder: norm(g(h_1 + up(h_M))), up giving each token its window's vector, h_1 the first stage's
    stream and g `decoder` blocks more at full length. (Dai et al. 2020, section 2.3)

    What an encoder needs whose head predicts every token.
    """

    shortens = False

    def __init__(
        self,
        shape: Shape,
        block: Callable[[int], nn.Module],
        position: Callable[[], nn.Module],
        *,
        norm: Recipe,
        stages: Annotated[int, Range(least=1, most=64)] = 3,
        decoder: Annotated[int, Range(least=0, most=512)] = 2,
        dropout: BelowOne = 0.0,
    ):
        super().__init__(shape, block, position, norm=norm, stages=stages, dropout=dropout)
        self.decoder = range(shape.layers, shape.layers + decoder)
        self.blocks.extend(block(index) for index in self.decoder)
        if self.positions[0].per == "layer":
            self.positions.extend(position() for _ in self.decoder)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        inside, first, poolings = context, self._run(x, context, self.stages[0]), []
        x = first
        for layers in self.stages[1:]:
            x, inside, pooling = self._stage(x, inside, layers)
            poolings.append(pooling)
        for pooling in reversed(poolings):
            x = pooling.undo(x)
        x = self._run(first + x if poolings else x, _at(context, context.places, context.places), self.decoder)
        return drop(self.norm(x), self.dropout, self.training)


class _Opening(nn.Module, Block):
    """The block that begins a stage. In its first mixer the pooled tokens ask, and all tokens answer; from then on the
    stream is the pooled tokens'.
    """

    def __init__(self, block: Any):
        super().__init__()
        asking = [] if not isinstance(block, Block) or not block.in_turn else _asking(block)
        if not asking:
            raise ScalingError(
                "the block that begins a stage pools the queries of its attention, and this one cannot",
                key="block.kind",
                value=type(block).__name__,
                fix="take a Serial block with the mixer Attention",
            )
        self.branches, self.asking = block.branches, asking[0]

    def forward(
        self, x: Float[Tensor, "b t w"], context: Context, inside: Context, pooling: Pooling
    ) -> Float[Tensor, "b s w"]:
        """`context` is the pass before the pooling, and `inside` behind it."""
        pooled = _at(context, pooling.among, pooling.before)
        branch: Any
        for name, branch in self.branches.items():
            if name == self.asking:
                x, context = branch(x, pooled, pooling), inside
            else:
                x = branch(x, context)
        return x


def _asking(block: Any) -> list[str]:
    """The branches whose mixer lets other tokens ask than those that it reads."""
    return [
        name
        for name, branch in block.branches.items()
        if isinstance(branch, Residual) and isinstance(branch.piece, Mixer) and branch.piece.takes_queries
    ]


def _at(context: Context, places: Places, keys: Places) -> Context:
    """The same pass where queries and keys are at these places."""
    assert context.mask.pattern is not None
    return context.at(places, keys, render(context.mask.pattern, places, keys))


def _shared_out(layers: int, stages: int) -> list[range]:
    """The layers of each stage."""
    if stages > layers == 1:
        raise ScalingError("one layer is one stage, and pools nothing", key="stages", value=stages, fix="size.layers=2")
    count = min(stages, layers)
    each, over = divmod(layers, count)
    starts = [stage * each + min(stage, over) for stage in range(count + 1)]
    return [range(start, stop) for start, stop in pairwise(starts)]
