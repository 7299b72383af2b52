"""Parameter-efficient tunings: what is put into a built model, and which of its parameters are then trained."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scaling.base.errors import ScalingError, nearest
from scaling.base.numbers import BelowOne, PositiveFloat, PositiveInt
from scaling.config.schema import Recipe, recipe
from scaling.kernels.operations import drop
from scaling.model.context import Context, Position
from scaling.model.contract import Added, Mixer, Residual, Stack, Tuning, declare, map_of, role

PIECES = ("mixer", "cross", "channel")


class Map(NamedTuple):
    """A linear map of a mixer or a channel: its full name, and that piece's slot."""

    name: str
    module: nn.Linear
    slot: str

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def role(self) -> str:
        return role(self.module, "weight")


def pieces(model: nn.Module) -> dict[nn.Module, str]:
    """Every mixer and channel, those within others too, and its slot."""
    slots = ((module, getattr(module, "slot", None)) for module in model.modules())
    return {module: slot for module, slot in slots if slot in PIECES}


def maps(model: nn.Module) -> list[Map]:
    """Every linear map of the mixers and channels, once."""
    slots: dict[nn.Module, str] = {}
    for piece, slot in pieces(model).items():  # one within another comes after it
        slots |= dict.fromkeys(piece.modules(), slot)
    named = model.named_modules()
    return [Map(name, part, slots[part]) for name, part in named if part in slots and isinstance(part, nn.Linear)]


class _Adding(Tuning):
    """A tuning that trains what it added: modules of the name `part`."""

    part: str

    def apply(self, model: nn.Module) -> None:
        if any(isinstance(module, Added) for module in model.modules()):
            raise ScalingError("the model is tuned already", key="kind", fix="merge it first, or begin with its base")
        self.add(model)

    @abstractmethod
    def add(self, model: nn.Module) -> None:
        """Put the modules into a model that has none."""

    def trains(self, name: str) -> bool:
        return self.part in name.split(".")

    def attach(self, module: nn.Module, added: Added, *, before: bool = False) -> None:
        """Let what is added change what a module returns, or what it reads."""
        part = self.part
        module.add_module(part, added)
        if before:
            module.register_forward_pre_hook(lambda module, args: (module.get_submodule(part)(args[0]),))
        else:
            module.register_forward_hook(lambda module, args, y: module.get_submodule(part)(y, *args[:1]))


def _parameter(like: Tensor, *shape: int, at: float = 0.0, std: float = 0.0) -> nn.Parameter:
    """A parameter on the device and of the type of `like`, at a number or drawn around it."""
    tensor = torch.full(shape, at, device=like.device, dtype=like.dtype)
    return nn.Parameter(nn.init.normal_(tensor, at, std) if std else tensor)


class LoRA(_Adding):
    """y = x W + (α/r) x A B at each targeted map, A from a draw and B from 0. (Hu et al. 2021, formula 3)

    A target is the name of a map (`query`, `key`, `value`, `out`, `hidden`, `gate`), a slot (`mixer`, `cross`,
    `channel`), a role (`query`, `output`), a pattern of full names (`decoder.stack.blocks.1.*`), or `all`; each must
    name one. `alpha` is α, `dropout` acts on x before A. Maps that share a matrix share A and B.
    """

    part = "lora"

    def __init__(
        self,
        *,
        rank: PositiveInt = 8,
        alpha: PositiveFloat = 16.0,
        targets: list[str] = ["query", "value"],  # noqa: B006 (read only)
        dropout: BelowOne = 0.0,
    ):
        self.rank, self.alpha, self.targets, self.dropout = rank, alpha, targets, dropout

    def add(self, model: nn.Module) -> None:
        shared: dict[Tensor, _Update] = {}
        for linear in targeted(model, self.targets):
            weight = linear.module.weight
            if weight not in shared:
                shared[weight] = _Update(weight, self.rank, self.alpha / self.rank, self.dropout)
            self.attach(linear.module, shared[weight])

    @torch.no_grad()
    def merge(self, model: nn.Module) -> None:
        """Add the updates to the matrices: the same outputs at the cost of the base."""
        for linear in maps(model):
            update = getattr(linear.module, "lora", None)
            if isinstance(update, _Update) and not update.merged:
                linear.module.weight += (update.scale * (update.up @ update.down)).to(linear.module.weight.dtype)
                update.merged = True


class _Update(Added):
    """y + s A B x."""

    def __init__(self, weight: Tensor, rank: int, scale: float, dropout: float):
        super().__init__()
        self.scale, self.dropout, self.merged = scale, dropout, False
        self.down = _parameter(weight, rank, weight.shape[1], std=weight.shape[1] ** -0.5)
        self.up = _parameter(weight, weight.shape[0], rank)
        self.constants = {"up": 0.0}
        declare(self, up="gain")

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        if self.merged:
            return y
        x = drop(x, self.dropout, self.training)
        return torch.add(y, F.linear(F.linear(x, self.down), self.up), alpha=self.scale)


def targeted(model: nn.Module, targets: list[str]) -> list[Map]:
    """The maps that some target names; each target must name one."""
    linear_maps = maps(model)
    if not targets:
        raise ScalingError("expected the names of maps", key="targets", value=targets, fix="write [query, value]")
    for target in targets:
        if not any(_names(target, linear) for linear in linear_maps):
            fix = nearest(target, sorted({word for linear in linear_maps for word in (linear.last, linear.slot)}))
            raise ScalingError("no linear map has such a name", key="targets", value=target, fix=fix)
        for piece, slot in pieces(model).items():
            # Experts keep their matrices side by side in one tensor: a slot would miss them.
            weights = [getattr(module, "weight", None) for module in piece.modules() if slot == target]
            if any(isinstance(weight, Tensor) and weight.ndim > 2 for weight in weights):
                what = f"{type(piece).__name__} has matrices that are not linear maps"
                fix = "name its maps (gate, query), or take Adapters"
                raise ScalingError(what, key="targets", value=target, fix=fix)
    return [linear for linear in linear_maps if any(_names(target, linear) for target in targets)]


def _names(target: str, linear: Map) -> bool:
    # The role `hidden` is that of every map which has no other, so it selects nothing; the map of that name is meant.
    is_role = target == linear.role != "hidden"
    return is_role or target in ("all", linear.last, linear.slot) or fnmatchcase(linear.name, target)


class Adapters(_Adding):
    """f(x) + φ(f(x) D + d) U + u behind a branch's piece f, within its residual; U and u start at 0. (Houlsby et al.
    2019, section 2.1)

    D is [w, `bottleneck`], φ is GeLU where no `activation` is named. `after` names the slots of the pieces: `mixer`,
    `cross`, `channel`.
    """

    part = "adapter"

    def __init__(
        self,
        *,
        bottleneck: PositiveInt = 64,
        activation: Recipe | None = None,
        after: list[str] = ["mixer", "channel"],  # noqa: B006 (read only)
    ):
        self.bottleneck, self.after = bottleneck, after
        self.activation = recipe("activation", "GeLU") if activation is None else activation

    def add(self, model: nn.Module) -> None:
        branches = [module.piece for module in model.modules() if isinstance(module, Residual)]
        slots = {getattr(piece, "slot", None) for piece in branches}
        for slot in self.after or [""]:
            if slot not in slots:
                fix = nearest(slot, [module for module in PIECES if module in slots])
                raise ScalingError("no block has such a branch", key="after", value=slot or self.after, fix=fix)
        tower: Any = next(module for module in model.modules() if hasattr(module, "prompt"))
        for piece in dict.fromkeys(branches):
            if getattr(piece, "slot", None) in self.after:
                like = next(piece.parameters())
                self.attach(piece, _Adapter(like, tower.shape.width, self.bottleneck, self.activation()))


class _Adapter(Added):
    """y + φ(y D + d) U + u."""

    def __init__(self, like: Tensor, width: int, bottleneck: int, activation: Any):
        super().__init__()
        self.activation = activation
        self.down = _parameter(like, bottleneck, width, std=width**-0.5)
        self.down_bias, self.up = _parameter(like, bottleneck), _parameter(like, width, bottleneck)
        self.up_bias = _parameter(like, width)
        self.constants = {"down_bias": 0.0, "up": 0.0, "up_bias": 0.0}
        declare(self, up="gain")

    def forward(self, y: Tensor, *_: Tensor) -> Tensor:
        return y + F.linear(self.activation(F.linear(y, self.down) + self.down_bias), self.up) + self.up_bias


TARGETS = ("key", "value", "channel")


class IA3(_Adding):
    """softmax(s Q (l_k ⊙ K)ᵀ) (l_v ⊙ V) and (l ⊙ φ(x W₁)) W₂: learned gains that start at 1. (Liu et al. 2022, section
    3.3)

    `targets` are of `key`, `value` and `channel`, the hidden vector that a channel's last map reads. The gain of keys
    acts before their norm and their rotation.
    """

    part = "ia3"

    def __init__(self, *, targets: list[str] = ["key", "value", "channel"]):  # noqa: B006 (read only)
        self.targets = targets

    def add(self, model: nn.Module) -> None:
        if not {*self.targets} <= {*TARGETS} or not self.targets:
            raise ScalingError(f"expected names of {', '.join(TARGETS)}", key="targets", value=self.targets)
        for target in self.targets:
            if target == "channel":
                self._scale_channels(model)
                continue
            own = [linear.module for linear in maps(model) if linear.role == target]
            if not own:
                raise _nothing(f"no mixer has a map {target}", target)
            for linear in own:
                self.attach(linear, _Gain(linear.weight, linear.out_features))

    def _scale_channels(self, model: nn.Module) -> None:
        channels = [piece for piece, slot in pieces(model).items() if slot == "channel"]
        if not channels:
            raise _nothing("no block has a channel", "channel")
        for piece in channels:
            _, out = map_of(piece, "output")
            if out is None:
                raise _nothing(f"{type(piece).__name__} has no hidden vector of its own to scale", "channel")
            self.attach(out, _Gain(out.weight, out.in_features), before=True)


def _nothing(what: str, target: str) -> ScalingError:
    return ScalingError(what, key="targets", value=target, fix="leave it out")


class _Gain(Added):
    """l ⊙ x."""

    def __init__(self, like: Tensor, width: int):
        super().__init__()
        self.gain = _parameter(like, width, at=1.0)
        declare(self, gain="gain")

    def forward(self, y: Tensor, *_: Tensor) -> Tensor:
        return y * self.gain


class BitFit(Tuning):
    """Only the biases are trained. (Ben Zaken et al. 2022)

    It adds nothing. The biases are those of maps and norms, and the shifts that other pieces add alike: what is
    declared a bias.
    """

    def apply(self, model: nn.Module) -> None:
        self.names = {
            f"{prefix}.{name}"
            for prefix, module in model.named_modules()
            for name, _ in module.named_parameters(recurse=False)
            if role(module, name) == "bias"
        }
        if all(name.startswith("head.") for name in self.names):
            what = "the model below its head has no biases to train"
            raise ScalingError(what, key="kind", value="BitFit", fix="take LoRA")

    def trains(self, name: str) -> bool:
        return name in self.names


class Prefix(_Adding):
    """softmax(s Q [P_k, K]ᵀ) [P_v, V]: `length` learned keys and values before those of each mixer. (Li & Liang 2021,
    section 4)

    P_k and P_v are learned themselves, not made by a network (section 4.3). A prefix has no position: positions add
    nothing to its logits, and the text keeps its own. `slots` names the mixers: `mixer`, `cross`.
    """

    part = "prefix"

    def __init__(
        self,
        *,
        length: PositiveInt = 16,
        slots: list[str] = ["mixer"],  # noqa: B006 (read only)
    ):
        self.length, self.slots = length, slots

    def add(self, model: nn.Module) -> None:
        for slot in self.slots or [""]:
            of_slot = [piece for piece, own in pieces(model).items() if own == slot]
            keyed = [(piece, map_of(piece, "key")[1], map_of(piece, "value")[1]) for piece in of_slot]
            taking = [(p, k, v) for p, k, v in keyed if getattr(p, "takes_prefix", False) and k and v]
            if not taking:
                kinds = ", ".join(sorted({type(piece).__name__ for piece in of_slot}))
                what = f"{kinds} has no keys to put a prefix before" if kinds else "no block has such a mixer"
                raise ScalingError(what, key="slots", value=slot or self.slots, fix="take Prompt or LoRA")
            for piece, key, value in taking:
                piece.prefix = _Prefix(key, value, self.length)


class _Prefix(Added):
    """Keys and values of `length` virtual tokens, before those that a mixer made."""

    def __init__(self, key: nn.Linear, value: nn.Linear, length: int):
        super().__init__()
        self.length = length
        self.key, self.value = (_parameter(part.weight, length, part.out_features, std=0.02) for part in (key, value))
        declare(self, key="table", value="table")

    def forward(self, k: Tensor, v: Tensor, context: Context) -> tuple[Tensor, Tensor, Context]:
        """Keys [b n+s g d] and values, and the pass as the mixer then sees it."""

        def join(own: Tensor, text: Tensor) -> Tensor:
            rows = own.to(text.dtype).unflatten(-1, text.shape[2:])
            return torch.cat([rows.expand(len(text), *rows.shape), text], 1)

        k, v, position = join(self.key, k), join(self.value, v), context.position
        # Every query sees these keys, and positions add nothing to them.
        mask = context.once(("behind", self.length), lambda: context.mask.behind(self.length))
        behind = context.once(("behind", self.length, position), lambda: _Behind(position, self.length))
        return k, v, replace(context, mask=mask, position=behind)


class _Behind(Position):
    """The position of the keys behind a prefix."""

    def __init__(self, position: Position, length: int):
        self.position, self.length = position, length
        self.reads_content, self.reads_tree, self.reach = position.reads_content, position.reads_tree, position.reach
        if not position.adds_score:
            self.score = super().score  # which adds nothing
        if not position.mixes_values:
            self.value = super().value

    def score(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return F.pad(self.position.score(q, k[:, self.length :], q_pos, k_pos[:, self.length :]), (self.length, 0))

    def value(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return self.position.value(weights[..., self.length :], q_pos, k_pos[:, self.length :])


class Prompt(_Adding):
    """[P, X]: `length` learned vectors before each text in the stream that enters the first tower. (Lester et al. 2021,
    section 2)

    They are at the positions −length … −1, so that the text keeps its own and a table of positions is not used up,
    and begin every document of a packed row. Heads do not see their hidden vectors; the decoder of an encoder-decoder
    does.
    """

    part = "prompt"

    def __init__(self, *, length: PositiveInt = 16):
        self.length = length

    def add(self, model: nn.Module) -> None:
        tower = next(cast(Any, module) for module in model.modules() if hasattr(module, "prompt"))
        for module in tower.modules():
            pools, counts = isinstance(module, Stack) and module.looks_ahead, getattr(module, "reach", None) is not None
            if pools or (counts and isinstance(module, Mixer)):
                why = "pools tokens with their neighbours" if pools else "has no position before the text's first"
                what = f"{type(module).__name__} {why}"
                raise ScalingError(what, key="kind", value="Prompt", fix="take LoRA or Adapters")
        shown = model.family == "encoder_decoder"
        tower.prompt = _Vectors(next(tower.parameters()), self.length, tower.shape.width, shown=shown)


class _Vectors(Added):
    """The vectors of virtual tokens."""

    def __init__(self, like: Tensor, length: int, width: int, *, shown: bool):
        super().__init__()
        self.length, self.shown = length, shown  # shown: its hidden vectors are for a decoder to read
        self.vectors = _parameter(like, length, width, std=0.02)
        declare(self, vectors="table")

    def forward(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b n w"]:
        """Those of each row of x."""
        return self.vectors.to(x.dtype).expand(len(x), -1, -1)
