"""Stacks: an order over blocks; when a position of a recurrent one halts, and what a decoder reads of its encoder's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from scaling.base.errors import ScalingError
from scaling.base.numbers import BelowOne, NonNegativeFloat, NonNegativeInt, OpenFraction, PositiveInt, Range
from scaling.config.schema import Recipe, piece_of
from scaling.config.shape import Shape
from scaling.kernels.operations import at_least_float32, drop
from scaling.model.context import Context, Places, Position, through, tokens_at, waves, within
from scaling.model.contract import Block, Halting, Memory, Stack, declare, drawn


class _Stack(nn.Module, Stack):
    """Blocks, executed in `order`, under one position or a position each, and a norm at the end."""

    def __init__(
        self,
        shape: Shape,
        order: Sequence[int],
        block: Callable[[int], nn.Module],
        position: Callable[[], nn.Module],
        *,
        norm: Recipe,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        self.order = order
        self.blocks = nn.ModuleList(block(index) for index in range(max(order) + 1))
        first = position()
        more = len(self.blocks) - 1 if first.per == "layer" else 0
        self.positions = nn.ModuleList([first, *(position() for _ in range(more))])
        self.norm, self.dropout = norm(shape.width), dropout

    @property
    def executions(self) -> int:
        return len(self.order)

    def position(self, execution: int) -> Position:
        return cast(Position, self.positions[self.order[execution] if len(self.positions) > 1 else 0])

    def run(self, x: Tensor, context: Context, executions: range) -> Tensor:
        """The stream after these executions."""
        for execution in executions:
            context.execution, context.position = execution, self.position(execution)
            if context.layers is not None:
                context.layers.append(x)
            block = self.blocks[self.order[execution]]
            x = through(block, x, context) if context.checkpointing else block(x, context)
        return x

    def last(self, x: Tensor, context: Context) -> Tensor:
        """The stack's output."""
        x = drop(self.norm(x), self.dropout, self.training)
        if context.layers is not None:
            context.layers.append(x)
        return x


class Sequential(_Stack):
    """norm(block_N(… block_1(x))). (Vaswani et al. 2017)

    `distinct` blocks are run in turn until N executions are reached: `distinct: 1` is block sharing (ALBERT, Lan et
    al. 2019). `order` lists the executions instead. `norm` is at the end (NoNorm for post-norm blocks).
    """

    def __init__(
        self,
        shape: Shape,
        *makers: Any,
        distinct: PositiveInt | None = None,
        order: list[NonNegativeInt] | None = None,
        **common: Any,
    ):
        super().__init__(shape, _order(shape.layers, distinct, order), *makers, **common)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.last(self.run(x, context, range(self.executions)), context)


def _order(layers: int, distinct: int | None, order: list[int] | None) -> list[int]:
    if order is None:
        count = layers if distinct is None else distinct
        if count > layers:
            raise ScalingError(f"expected between 1 and {layers} blocks", key="distinct", value=distinct)
        return [execution % count for execution in range(layers)]
    if {*order} != {*range(len(set(order)))}:
        raise ScalingError("an order names blocks 0, 1, 2, … without gaps", key="order", value=order)
    if len(order) != layers:
        what, fix = f"{len(order)} executions for {layers} layers", f"set size.layers={len(order)}"
        raise ScalingError(what, key="order", value=order, fix=fix)
    return order


Time = Literal["sinusoidal", "learned"]
Place = Literal["sinusoidal", "none"]


class _Coordinates(nn.Module):
    """x_i + P_i + P_t at step t: P[2j] = sin(· / 10000^(2j/w)), P[2j+1] = cos(· / 10000^(2j/w)). (Dehghani et al. 2018,
    section 2.1)

    Steps count from 1. `time: learned` takes P_t from a table, `place: none` leaves P_i to the stack's position.
    """

    slot = "position"

    def __init__(self, width: int, steps: int, *, time: Time, place: Place):
        super().__init__()
        self.place, self.table = place, drawn(steps, width) if time == "learned" else None
        declare(self, table="table")

    def forward(self, x: Float[Tensor, "b t w"], positions: Int[Tensor, "#b t"], step: int) -> Float[Tensor, "b t w"]:
        """x with its coordinates at `step`, counted from 0."""

        def sinusoid(at: Tensor) -> Tensor:
            return torch.stack(waves(at, x.shape[-1]), -1).flatten(-2).to(x.dtype)

        if self.place == "sinusoidal":
            x = x + sinusoid(positions)
        if self.table is not None:
            return x + self.table[step].to(x.dtype)
        return x + sinusoid(torch.tensor(step + 1, device=x.device))


class Universal(_Stack):
    """norm(h_N), h_t = block(h_{t−1} + P_i + P_t): one block, a step for each of the N layers. (Dehghani et al. 2018)

    `halting` lets each position stop at a step of its own (`ACT`); the others go on reading its last state. `before`
    and `after` run the block that many more times around the steps, without coordinates (Narang et al. 2021).
    """

    def __init__(
        self,
        shape: Shape,
        *makers: Any,
        halting: Recipe | None = None,
        time: Time = "sinusoidal",
        place: Place = "sinusoidal",
        before: Annotated[int, Range(least=0, most=10_000)] = 0,
        after: Annotated[int, Range(least=0, most=10_000)] = 0,
        **common: Any,
    ):
        if shape.width % 2:
            what = f"sines and cosines need an even width, not {shape.width}"
            raise ScalingError(what, key="kind", value="Universal")
        super().__init__(shape, [0] * (before + shape.layers + after), *makers, **common)
        self.coordinates = _Coordinates(shape.width, shape.layers, time=time, place=place)
        self.halting: Any = piece_of("halting", halting, shape.width)
        self.steps = range(before, before + shape.layers)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        x, pondered = self.run(x, context, range(self.steps.start)), None
        for execution in self.steps:
            placed = self.coordinates(x, context.places.positions, execution - self.steps.start)
            new, old = self.run(placed, context, range(execution, execution + 1)), x
            x = new
            if self.halting is not None:  # what has halted still answers as a key, so that a cache misses nothing
                x, pondered = self.halting(old, new, pondered, last=execution == self.steps[-1])
        x = x if self.halting is None else self.halting.answer(pondered, context)
        return self.last(self.run(x, context, range(self.steps.stop, self.executions)), context)


@dataclass(frozen=True)
class _Pooling:
    """Windows of two tokens, counted from each document's first; a last token that is left over is a window of its own.

    Among tokens (`among`) a window is at the place of its first token; among windows (`after`) they are counted by
    themselves. Rows with fewer windows than others end in padding.
    """

    before: Places
    among: Places
    first: Int[Tensor, "#b s"]
    last: Int[Tensor, "#b s"]
    window: Int[Tensor, "#b t"]  # the window that each token went into

    @cached_property
    def after(self) -> Places:
        return replace(self.among, positions=self.among.positions // 2)

    @staticmethod
    def of(places: Places, length: int) -> _Pooling:
        """The windows of `length` tokens at their places."""
        documents = places.documents
        if documents is None:
            index = torch.arange(length, device=places.positions.device)[None]
            first, pair_places = index[:, ::2], places.map(lambda part: part[:, ::2])
            return _Pooling(places, pair_places, first, (first + 1).clamp(max=length - 1), index // 2)
        opens = (within(documents) % 2 == 0) & (documents > 0)
        count = opens.sum(1, keepdim=True)
        slots = max(1, int(count.max()))
        if slots == length > 1:
            slots += 1  # every document is one token: a slot more, so that pooled and not pooled differ in length
        # Indices of the tokens that open a window, in order, before all others.
        order = pad((~opens).long().argsort(dim=1, stable=True), (0, 1))[:, :slots]
        real = torch.arange(slots, device=documents.device) < count
        first = order.where(real, 0)
        following, pair_documents = (first + 1).clamp(max=length - 1), documents.gather(1, first)
        last = torch.where(documents.gather(1, following) == pair_documents, following, first)
        pair_places = places.map(lambda part: tokens_at(part.expand(len(documents), *part.shape[1:]), first))
        pair_places = replace(pair_places, documents=pair_documents.where(real, 0))
        return _Pooling(places, pair_places, first, last, (opens.cumsum(1) - 1).clamp(min=0))

    def __call__(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b s w"]:
        """The mean of each window."""
        return (tokens_at(x, self.first) + tokens_at(x, self.last)) / 2


class Funnel(_Stack):
    """norm(h), h the stream after stages of blocks, each half as long as the one before. (Dai et al. 2020)

        first block of a stage: h ← pool(h) + Attention(query pool(h), key and value h)
        pool(h)_i = (h_2i + h_2i+1) / 2

    The N layers are shared out evenly among `stages`, the first ones taking what is over; two layers are two stages.
    The windows of a document are its own, so that packing changes nothing. A query that is pooled is at the
    position of its first token; in the layers behind, positions count windows, as in Narang et al. 2021, where Dai et
    al. go on counting tokens. No token is kept out of the pooling, as Dai et al. keep [cls].
    """

    looks_ahead, shortens = True, True
    further = 0  # blocks behind the stages

    def __init__(self, shape: Shape, *makers: Any, stages: Annotated[int, Range(least=1, most=64)] = 3, **common: Any):
        super().__init__(shape, range(shape.layers + self.further), *makers, **common)
        if stages > shape.layers == 1:
            what = "one layer is one stage, and pools nothing"
            raise ScalingError(what, key="stages", value=stages, fix="size.layers=2")
        count = min(stages, shape.layers)
        starts = [stage * (shape.layers // count) + min(stage, shape.layers % count) for stage in range(count + 1)]
        self.stages = [range(start, stop) for start, stop in pairwise(starts)]
        for stage in self.stages[1:]:
            self.blocks[stage.start] = _Opening(self.blocks[stage.start])

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b s w"]:
        *_, (x, inside, _) = self.states(x, context)
        context.mask = inside.mask
        return self.last(x, context)

    def states(self, x: Tensor, context: Context) -> Iterator[tuple[Tensor, Context, Any]]:
        """The stream behind each stage, the pass as it goes on from there, and what was pooled."""
        x = self.run(x, context, self.stages[0])
        yield x, context, None
        for layers in self.stages[1:]:
            pooling = _Pooling.of(context.places, x.shape[1])
            context.execution, context.position = layers.start, self.position(layers.start)
            inside = context.at(pooling.after, pooling.after)
            x = through(self.blocks[layers.start], x, context, inside, pooling)
            x, context = self.run(x, inside, layers[1:]), inside
            yield x, context, pooling


class UpsampledFunnel(Funnel):
    """A funnel and its decoder: norm(g(h_1 + up(h_M))), up giving each token its window's vector, h_1 the first stage's
    stream and g `decoder` blocks more at full length. (Dai et al. 2020, section 2.2)

    What an encoder needs whose head predicts every token.
    """

    shortens = False

    def __init__(
        self, shape: Shape, *makers: Any, decoder: Annotated[int, Range(least=0, most=512)] = 2, **common: Any
    ):
        self.further = decoder
        super().__init__(shape, *makers, **common)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        (first, _, _), *pooled = self.states(x, context)
        x = pooled[-1][0] if pooled else first
        for _, _, pooling in reversed(pooled):
            x = tokens_at(x, pooling.window)
        layers = range(self.executions - self.further, self.executions)
        context = context.at(context.places, context.places)
        return self.last(self.run(first + x if pooled else x, context, layers), context)


class _Opening(nn.Module, Block):
    """The block that begins a stage. In its first mixer the pooled tokens ask, and all tokens answer; from then on the
    stream is the pooled tokens'.
    """

    def __init__(self, block: Any):
        super().__init__()
        branches: Any = block.branches.items() if isinstance(block, Block) and block.in_turn else ()
        asking = [name for name, branch in branches if getattr(branch.piece, "takes_queries", False)]
        if not asking:
            what = "the block that begins a stage pools the queries of its attention, and this one cannot"
            fix = "take a Serial block with the mixer Attention"
            raise ScalingError(what, key="block.kind", value=type(block).__name__, fix=fix)
        self.branches, self.asking = block.branches, asking[0]

    def forward(
        self, x: Float[Tensor, "b t w"], context: Context, inside: Context, pooling: _Pooling
    ) -> Float[Tensor, "b s w"]:
        """`context` is the pass before the pooling, and `inside` behind it."""
        branch: Any
        for name, branch in self.branches.items():
            if name == self.asking:
                x, context = branch(x, context.at(pooling.among, pooling.before), pooling), inside
            else:
                x = branch(x, context)
        return x


class _Pondered(NamedTuple):
    """The state of each position after some steps."""

    mean: Float[Tensor, "b t w"]  # Σ p_n h_n
    spent: Float[Tensor, "b t"]  # Σ p_n
    running: Bool[Tensor, "b t"]
    cost: Float[Tensor, "b t"]  # N + R


class ACT(nn.Module, Halting):
    """Σ_n p_n h_n: p_n = σ(h_n·w + b) until they would sum to 1 − `rest` at step N, where p_N = R = 1 − Σ_{n<N} p_n.
    (Graves 2016, formulas 5 to 13)

    From step N on a position's state is copied (Dehghani et al. 2018, section 2.2). The last step halts all. The loss
    `ponder` is `cost` times the mean of N + R over a row's tokens that are not padding, averaged over rows: the same
    however a batch is split.
    """

    def __init__(self, width: int, *, rest: OpenFraction = 0.01, cost: NonNegativeFloat = 0.01):
        super().__init__()
        self.rest, self.cost = rest, cost
        self.halt = nn.Linear(width, 1)

    def forward(
        self, old: Float[Tensor, "b t w"], new: Float[Tensor, "b t w"], pondered: _Pondered | None, *, last: bool
    ) -> tuple[Float[Tensor, "b t w"], _Pondered]:
        # Many small weights are added up and compared with a bound near 1.
        share = at_least_float32(self.halt(new)[..., 0]).sigmoid()
        if pondered is None:
            zero = torch.zeros_like(share)
            pondered = _Pondered(torch.zeros_like(new), zero, torch.ones_like(share, dtype=torch.bool), zero)
        mean, spent, running, cost = pondered
        stops = running if last else running & (spent + share >= 1 - self.rest)
        weight = torch.where(stops, 1 - spent, share).where(running, 0.0)
        mean, cost = mean + weight[..., None].to(new.dtype) * new, cost + running + (1 - spent).where(stops, 0.0)
        return torch.where(running[..., None], new, old), _Pondered(mean, spent + weight, running & ~stops, cost)

    def answer(self, pondered: _Pondered, context: Context) -> Float[Tensor, "b t w"]:
        """The weighted mean of all states; the pondering's cost is added to the losses."""
        documents = context.places.documents
        real = torch.ones_like(pondered.running) if documents is None else documents > 0
        mean = pondered.cost.where(real, 0.0).sum(1) / real.sum(1).clamp(min=1)
        context.add_loss("ponder", self.cost * mean.mean())
        return pondered.mean


class Last(nn.Module, Memory):
    """m = h_N: every layer of the decoder reads the encoder's output. (Vaswani et al. 2017)"""

    reads = "the last layer"

    def __init__(self, layers: int, readers: int):
        super().__init__()

    def forward(self, layers: Sequence[Float[Tensor, "b s w"]]) -> tuple[Float[Tensor, "b s w"], ...]:
        return (layers[-1],)


class Transparent(nn.Module, Memory):
    """m_i = Σ_j softmax(W_i)_j h_j, j = 0 … N: layer i of the decoder reads its own mean of the encoder's embedding
    and layers. (Bapna et al. 2018)

    h_N is the encoder's output, behind its last norm; the others are the stream between blocks. W starts at zero: the
    plain mean. Bapna's dropout on W is left out.
    """

    reads = "every layer"

    def __init__(self, layers: int, readers: int):
        super().__init__()
        self.readers = readers
        self.weight = nn.Parameter(torch.zeros(readers * (layers + 1)))  # a vector, because matrices are drawn
        self.constants = {"weight": 0.0}

    def forward(self, layers: Sequence[Float[Tensor, "b s w"]]) -> tuple[Float[Tensor, "b s w"], ...]:
        shares, stacked = self.weight.view(self.readers, -1).softmax(-1), torch.stack(list(layers))
        return (shares.to(stacked.dtype) @ stacked.flatten(1)).view(-1, *stacked.shape[1:]).unbind()
