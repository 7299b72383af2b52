"""Templates: whose parameters are whose, name by name, with what is done to each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from scaling.base.errors import ScalingError, nearest
from scaling.config import schema
from scaling.config.schema import overlay
from scaling.config.shape import Shape


@dataclass(frozen=True)
class Name:
    """One line of a table: our tensors, in the order in which theirs joins them."""

    ours: tuple[str, ...]
    theirs: str
    layout: str = "plain"


PARTS = {
    "decoder": "decoder.stack.blocks.*.branches",
    "encoder": "encoder.stack.blocks.*.branches",
    "maps": "{query,key,value,out}",
}
"""What tables abbreviate: the branches of a block, the maps of attention."""


def table(text: str, **parts: str) -> tuple[Name, ...]:
    """The lines of a table, in which `<part>` stands for one of `parts`, or of `PARTS`."""
    for part, meaning in {**parts, **PARTS}.items():
        text = text.replace(f"<{part}>", meaning)
    return tuple(itertools.chain.from_iterable(_line(*line.split()) for line in text.splitlines() if line.strip()))


def pairs(names: Iterable[Name], ours: Iterable[str]) -> list[Name]:
    """The table's lines for the tensors that we have, layers numbered."""
    present, lines = set(ours), {}
    for name in names:
        pattern = re.compile(re.escape(name.ours[0]).replace(r"\*", r"(\d+)"))
        for first in present:
            if match := pattern.fullmatch(first):
                layer = match[1] if match.groups() else ""
                theirs = name.theirs.replace("*", layer)
                lines[theirs] = Name(tuple(own.replace("*", layer) for own in name.ours), theirs, name.layout)
    return list(lines.values())


def to_theirs(names: Iterable[Name], tensors: Mapping[str, Tensor], heads: int) -> dict[str, Tensor]:
    """Our tensors under their names, laid out as theirs."""
    return {pair.theirs: join(pair, [tensors[o] for o in pair.ours], heads) for pair in pairs(names, tensors)}


def to_ours(names: Iterable[Name], ours: Iterable[str], tensors: Mapping[str, Tensor], heads: int) -> dict[str, Tensor]:
    """Their tensors under the names that we have, laid out as ours."""
    return {
        name: part
        for pair in pairs(names, ours)
        for name, part in zip(pair.ours, split(pair, tensors[pair.theirs], heads), strict=True)
    }


def join(pair: Name, parts: list[Tensor], heads: int, *, is_product: bool = False) -> Tensor:
    """Their tensor of ours; a map's matrix as a product B A is joined by the rows of B, which no format transposes."""
    if pair.layout == "by_head":
        return torch.cat([part.unflatten(0, (heads, -1)) for part in parts], 1).flatten(0, 1)
    joined = torch.cat(parts) if len(parts) > 1 else parts[0]
    if pair.layout == "transposed" and not is_product:
        return joined.T
    return joined[None] if pair.layout == "row" else joined


def split(pair: Name, tensor: Tensor, heads: int, *, is_product: bool = False) -> list[Tensor]:
    """Our tensors of theirs."""
    count = len(pair.ours)
    if pair.layout == "by_head":
        return [part.flatten(0, 1) for part in tensor.unflatten(0, (heads, -1)).chunk(count, 1)]
    if is_product:
        return list(tensor.chunk(count))
    tensor = {"transposed": lambda: tensor.T, "row": lambda: tensor[0]}.get(pair.layout, lambda: tensor)()
    return list(tensor.chunk(count))


def _line(ours: str, theirs: str, layout: str = "plain") -> Iterator[Name]:
    for our, their in zip(_expanded(ours), _expanded(theirs), strict=True):
        joined = re.search(r"\{([^{}]*)\}", our)
        parts = [our] if joined is None else [our.replace(joined[0], part) for part in joined[1].split("+")]
        yield Name(tuple(parts), their, layout)


def _expanded(pattern: str) -> Iterator[str]:
    """The pattern with its `{a,b}` spelled out; `{a+b}` stays."""
    pieces = re.split(r"(\{[^{}+]*\})", pattern)
    choices = [piece[1:-1].split(",") if piece.startswith("{") and "+" not in piece else [piece] for piece in pieces]
    return map("".join, itertools.product(*choices))


NOTHING: Any = object()
Mismatch = tuple[str, Any, Any]  # the key, our value, theirs


class Blank:
    """A value in config.json, under `keys`: the names that versions of the format gave it.

    `values` maps each of theirs to ours, where the two differ; of several that are one for us we write the
    first. `less` is how much more theirs counts than ours, `least` the least that theirs can be. Dots in a key lead
    into nested objects.
    """

    def __init__(
        self,
        *keys: str,
        default: Any = NOTHING,
        values: Mapping[Any, Any] | None = None,
        less: int = 0,
        least: int | None = None,
    ):
        self.keys, self.default, self.values, self.less, self.least = keys, default, values, less, least

    def read(self, config: Mapping[str, Any]) -> Any:
        """Our value, from theirs."""
        entries = [(key, value) for key in self.keys if (value := at(config, key)) is not NOTHING]
        # A key that is null leaves the value to the next one.
        entries = [entry for entry in entries if entry[1] is not None] or entries
        key, value = entries[0] if entries else (self.keys[0], self.default)
        if value is NOTHING:
            raise ScalingError("it is not there", key=key)
        if self.values is not None:
            matching = [ours for theirs, ours in self.values.items() if theirs == value]
            if not matching:
                raise ScalingError(
                    "no piece corresponds to it", key=key, value=value, fix=nearest(str(value), map(str, self.values))
                )
            return matching[0]
        if (self.less or self.least is not None) and not isinstance(value, int):
            raise ScalingError("expected a whole number", key=key, value=value)
        if self.least is not None and value < self.least:
            raise ScalingError(f"transformers has no such model; {self.least} is the least", key=key, value=value)
        return value - self.less if self.less else value

    def write(self, ours: Any) -> Any:
        """Their value for ours, or NOTHING where they have none."""
        if self.values is not None:
            return next((theirs for theirs, value in self.values.items() if value == ours), NOTHING)
        if self.least is not None and ours < self.least:
            return NOTHING
        return ours + self.less if self.less else ours


class Names(Blank):
    """The number of classes, from the map of their names by id that config.json has where they are not two."""

    def read(self, config: Mapping[str, Any]) -> int:
        names, count = at(config, self.keys[0]), at(config, "num_labels")
        if isinstance(names, Mapping) and names:
            return len(names)
        return count if isinstance(count, int) else 2

    def write(self, ours: Any) -> Any:
        return {str(index): f"LABEL_{index}" for index in range(ours)}


def switch(*keys: str, default: bool) -> Blank:
    """A blank for what is there or not."""
    return Blank(*keys, default=default, values={True: True, False: False})


def tied(tower: str, default: bool = True) -> Blank:
    """The blank for a head that predicts by the embedding's table or by its own."""
    return Blank("tie_word_embeddings", default=default, values={True: [tower, "head"], False: []})


def fill(template: Any, config: Mapping[str, Any]) -> Any:
    """The template with every blank filled from config.json."""
    if isinstance(template, Blank):
        return template.read(config)
    if isinstance(template, Mapping):
        return {key: fill(value, config) for key, value in template.items()}
    return template


def matched(
    template: Mapping[str, Any], ours: Mapping[str, Any], fixed: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Mismatch]]:
    """The config.json that the blanks make of our completed config, and where ours differs from the template with that
    in its blanks.

    Of blanks with one key the first writes it, and others differ where they disagree. A blank that cannot be written is
    a mismatch: what one format cannot express must not hide the others.
    """
    config: dict[str, Any] = {}
    filled, unfilled = _filled(spread(template), config, ours)
    try:
        theirs = complete(filled)
    except ScalingError as error:  # sizes that only ours can have: compare the rest
        unfilled = [*unfilled, (str(error.key), error.value, f"none such ({error.what})")]
        theirs = complete({**filled, "size": ours["size"]})
    for key, value in fixed.items():
        put(config, key, value)
    return config, [*unfilled, *differences(ours, theirs)]


def _filled(template: Any, config: dict[str, Any], ours: Any, key: str = "") -> tuple[Any, list[Mismatch]]:
    """The template with what its blanks read of `config` once our values are written there; a blank that cannot be
    written has our value, and is a mismatch. A place that ours lacks is left to the differences.
    """
    if isinstance(template, Blank):
        theirs = NOTHING if ours is NOTHING else template.write(ours)
        for name in template.keys if theirs is not NOTHING else ():
            if at(config, name) is NOTHING:
                put(config, name, theirs)
        try:
            return template.read(config), []
        except ScalingError:
            return (None if ours is NOTHING else ours), [(key, short(ours), f"no such value in {template.keys[0]}")]
    if not isinstance(template, Mapping):
        return template, []
    within = ours if isinstance(ours, Mapping) else {}
    parts = {
        name: _filled(part, config, within.get(name, NOTHING), f"{key}.{name}" if key else name)
        for name, part in template.items()
    }
    filled = {name: part for name, (part, _) in parts.items()}
    if "kind" in filled and filled["kind"] is None:
        return None, parts["kind"][1]
    if filled.get("kind") != within.get("kind"):  # one mismatch, whatever else the line contains
        return filled, []
    return filled, [mismatch for _, unfilled in parts.values() for mismatch in unfilled]


def at(config: Mapping[str, Any], dotted: str) -> Any:
    """The value under a dotted key, or NOTHING; null gives no value."""
    value: Any = config
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return NOTHING if value is None else value


def put(config: dict[str, Any], dotted: str, value: Any) -> None:
    """Set the value under a dotted key."""
    *above, last = dotted.split(".")
    for key in above:
        config = config.setdefault(key, {})
    config[last] = value


TOWERS = ("encoder", "decoder")
_TOWER_SLOTS = ("embedding", "position", "pattern", "block", "stack")
_ABSENT = "nothing"


def spread(tree: Mapping[str, Any]) -> dict[str, Any]:
    """`model` and `size` with what an encoder-decoder's towers share written out for each of them."""
    model, size = dict(tree["model"]), dict(tree["size"])
    if not all(tower in model for tower in TOWERS):
        return {"model": model, "size": size}
    common = {slot: model.pop(slot) for slot in _TOWER_SLOTS if slot in model}
    sizes = {key: value for key, value in size.items() if key not in TOWERS}
    return {
        "model": {**model, **{tower: overlay(common, dict(model[tower] or {})) for tower in TOWERS}},
        "size": {tower: {**sizes, **(size.get(tower) or {})} for tower in TOWERS},
    }


def complete(tree: Mapping[str, Any]) -> dict[str, Any]:
    """`model` and `size` with every default written out, every kind in the long form, and one hidden width."""
    both = spread(tree)
    model, size = both["model"], both["size"]
    parts = [(model[tower], size[tower]) for tower in TOWERS] if TOWERS[0] in size else [(model, size)]
    for part, sizes in parts:
        shape = Shape.of(sizes)
        for slot in _TOWER_SLOTS:
            part[slot] = _spelled(slot, part[slot])
        channel = part["block"].get("channel") or {}
        sizes.clear()
        sizes.update(asdict(shape), hidden=shape.hidden_times(channel.pop("hidden_times", 1.0)))
    for slot in ("head", "sentence", "language"):
        model[slot] = _spelled(slot, model.get(slot))
    if len(parts) > 1:
        model["memory"] = _spelled("memory", model.get("memory", "Last"))
        model["share"] = model.get("share", "nothing")
    model["tie"] = sorted(model["tie"])
    return both


def differences(ours: Any, theirs: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two completed trees differ: the dotted key and both values."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        if ours.get("kind") != theirs.get("kind"):
            yield f"{key}.kind", ours.get("kind", _ABSENT), theirs.get("kind", _ABSENT)
            return
        for name in {**ours, **theirs}:
            path = f"{key}.{name}" if key else name
            yield from differences(ours.get(name, _ABSENT), theirs.get(name, _ABSENT), path)
    elif ours != theirs:
        yield key, short(ours), short(theirs)


def short(value: Any) -> Any:
    """A line by its kind."""
    return value.get("kind", value) if isinstance(value, Mapping) else value


def _spelled(slot: str, line: Any) -> Any:
    """A line in the long form: its kind and every key of it, those of the pieces within it too."""
    if line is None:
        return None
    given = {"kind": line} if isinstance(line, str) else dict(line)
    spelled = {"kind": given["kind"]}
    for key, parameter in schema.keys(schema.kinds(slot)[given["kind"]]).items():
        value = given.get(key, parameter.default)
        spelled[key] = _spelled(key, value) if schema.is_recipe(parameter.annotation) else value
    return spelled


# config.json's word for an activation, and our piece.
ACTIVATIONS = {
    "relu": {"kind": "ReLU"},
    "gelu": {"kind": "GeLU", "approximate": "none"},
    "gelu_new": {"kind": "GeLU", "approximate": "tanh"},
    "gelu_pytorch_tanh": {"kind": "GeLU", "approximate": "tanh"},
    "gelu_fast": {"kind": "GeLU", "approximate": "tanh"},
    "silu": {"kind": "Swish", "beta": 1.0},
    "swish": {"kind": "Swish", "beta": 1.0},
    "relu2": {"kind": "SquaredReLU"},
    "tanh": {"kind": "Tanh"},
    "sigmoid": {"kind": "Sigmoid"},
    "linear": {"kind": "Linear"},
}


class Format:
    """One architecture of transformers: a table of class attributes, read both ways.

    `config` is what its config.json always contains (None: null, or nothing), `model` and `size` are our sections with
    blanks for what it may contain, and `names` what its tensors are called, the embedding first. A weight file may also
    hold `copies` (a tensor under a second name, as a tied head's of the embedding, which need not be listed) and
    `zeros` (a bias that no training moves), which are checked, and `DERIVED` tensors; none of them is written. Of
    copies that our model holds itself, a file may leave out those `omitted`. A file of the bare model leaves out
    `prefix`, the first word of the first name. `absent` are tensors of ours that the format has none for, read as 0;
    `folded` puts their values into others.
    """

    slot: ClassVar[str] = "format"

    architecture: ClassVar[str]
    config: ClassVar[Mapping[str, Any]]
    model: ClassVar[Mapping[str, Any]]
    size: ClassVar[Mapping[str, Any]]
    names: ClassVar[tuple[Name, ...]]
    prefix: ClassVar[str]
    copies: ClassVar[Mapping[str, str]] = {}
    omitted: ClassVar[tuple[str, ...]] = ()
    zeros: ClassVar[tuple[str, ...]] = ()
    absent: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        missing = [name for name in ("architecture", "config", "model", "size", "names") if not hasattr(cls, name)]
        missing += [] if missing or "model_type" in cls.config else ["model_type in config"]
        missing += [] if missing or "kind" in cls.model else ["kind in model"]
        if missing:
            raise TypeError(f"the format {cls.__name__} needs {', '.join(missing)}")
        embedding = cls.names[0].theirs
        cls.prefix = vars(cls).get("prefix", embedding.partition(".")[0] + ".")
        cls.copies = {name.theirs: embedding for name in cls.names if name.ours == ("head.weight",)} | dict(cls.copies)

    @classmethod
    def template(cls) -> dict[str, Any]:
        return {"model": cls.model, "size": cls.size}

    @classmethod
    def folded(cls, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Our tensors as the format holds them."""
        return tensors


DERIVED = (
    "*.attn.bias",
    "*.attn.masked_bias",
    "*.attention.bias",
    "*.attention.masked_bias",
    "*.rotary_emb.inv_freq",
    "*.position_ids",
    "*.embed_positions.weight",
)
"""Masks, places and sinusoids: tensors that follow from the config, where a model does not learn them."""
