"""Templates: a format's config.json and tensors beside ours, read in both directions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from scaling.base.errors import ScalingError, nearest, refuse
from scaling.config import schema
from scaling.config.schema import overlay
from scaling.config.shape import Shape

PARTS = {
    "decoder": "decoder.stack.blocks.*.branches",
    "encoder": "encoder.stack.blocks.*.branches",
    "maps": "{query,key,value,out}",
    "both": "{weight,bias}",
}
"""What tables abbreviate: the branches of a block, the maps of attention, a map's tensors."""


@dataclass(frozen=True)
class Name:
    """One line of a table: our tensors, in the order in which theirs joins them."""

    ours: tuple[str, ...]
    theirs: str
    layout: str = "plain"


def table(text: str, **parts: str) -> tuple[Name, ...]:
    """The lines of a table: `<part>` is one of `parts` or `PARTS`, `{a,b}` a line each, `{a+b}` joins our tensors."""
    for part, meaning in {**parts, **PARTS}.items():
        text = text.replace(f"<{part}>", meaning)
    names = []
    for ours, theirs, *layout in filter(None, map(str.split, text.splitlines())):
        for our, their in zip(_expanded(ours), _expanded(theirs), strict=True):
            joined = re.search(r"\{([^{}]*)\}", our)
            each = [our] if joined is None else [our.replace(joined[0], part) for part in joined[1].split("+")]
            names.append(Name(tuple(each), their, *layout))
    return tuple(names)


def _expanded(pattern: str) -> Iterator[str]:
    pieces = re.split(r"(\{[^{}+]*\})", pattern)
    choices = [piece[1:-1].split(",") if piece.startswith("{") and "+" not in piece else [piece] for piece in pieces]
    return map("".join, itertools.product(*choices))


def pairs(names: Iterable[Name], ours: Iterable[str]) -> list[Name]:
    """The table's lines for the tensors that we have, layers numbered."""
    present, lines = set(ours), {}
    for name in names:
        pattern = re.compile(re.escape(name.ours[0]).replace(r"\*", r"(\d+)"))
        for match in filter(None, map(pattern.fullmatch, present)):
            layer = match[1] if match.groups() else ""
            theirs = name.theirs.replace("*", layer)
            lines[theirs] = Name(tuple(part.replace("*", layer) for part in name.ours), theirs, name.layout)
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
        return joined.t()
    return joined[None] if pair.layout == "row" else joined


def split(pair: Name, tensor: Tensor, heads: int, *, is_product: bool = False) -> list[Tensor]:
    """Our tensors of theirs."""
    count = len(pair.ours)
    if pair.layout == "by_head":
        return [part.flatten(0, 1) for part in tensor.unflatten(0, (heads, -1)).chunk(count, 1)]
    if pair.layout == "transposed" and not is_product:
        tensor = tensor.t()
    return list((tensor[0] if pair.layout == "row" else tensor).chunk(count))


class Blank:
    """A value in config.json, under `keys`: the names that versions of the format gave it, the first that is not null.

    `values` maps each of theirs to ours, where the two differ; of several that are one for us we write the
    first. `less` is how much more theirs counts than ours, `least` the least that theirs can be. Dots in a key lead
    into nested objects. Without a `default` a file needs the key.
    """

    def __init__(
        self,
        *keys: str,
        default: Any = ...,
        values: Mapping[Any, Any] | None = None,
        less: int = 0,
        least: int | None = None,
    ):
        self.keys, self.default, self.values, self.less, self.least = keys, default, values, less, least

    def read(self, config: Mapping[str, Any]) -> Any:
        """Our value, from theirs."""
        entries = ((key, at(config, key)) for key in self.keys)
        key, value = next((entry for entry in entries if entry[1] is not None), (self.keys[0], self.default))
        refuse(value is ..., "it is not there", key=key)
        if self.values is not None:
            for theirs, ours in self.values.items():
                if theirs == value:
                    return ours
            fix = nearest(str(value), map(str, self.values))
            raise ScalingError("no piece corresponds to it", key=key, value=value, fix=fix)
        if not self.less and self.least is None:
            return value
        refuse(not isinstance(value, int), "expected a whole number", key=key, value=value)
        if self.least is not None and value < self.least:
            raise ScalingError(f"transformers has no such model; {self.least} is the least", key=key, value=value)
        return value - self.less

    def write(self, ours: Any) -> Any:
        """Their value for ours, or None where they have none."""
        if self.values is not None:
            return next((theirs for theirs, value in self.values.items() if value == ours), None)
        if self.least is not None and ours < self.least:
            return None
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


def at(config: Mapping[str, Any], dotted: str) -> Any:
    """The value under a dotted key, or None."""
    value: Any = config
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def put(config: dict[str, Any], dotted: str, value: Any) -> None:
    """Set the value under a dotted key."""
    *above, last = dotted.split(".")
    for key in above:
        config = config.setdefault(key, {})
    config[last] = value


def fill(template: Any, config: Mapping[str, Any]) -> Any:
    """The template with every blank filled from config.json."""
    if isinstance(template, Blank):
        return template.read(config)
    if isinstance(template, Mapping):
        return {key: fill(value, config) for key, value in template.items()}
    return template


Mismatch = tuple[str, Any, Any]  # the key, our value, theirs


def matched(form: type[Format], ours: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mismatch]]:
    """The config.json that the blanks of a format make of our completed config, and where ours differs from the
    template with that in its blanks.

    Of blanks with one key the first writes it, and others differ where they disagree.
    """
    config: dict[str, Any] = {}
    filled, unlike = _filled(_spread(form.model, form.size), ours, config), list[Mismatch]()
    try:
        theirs = complete(filled["model"], filled["size"])
    except ScalingError as error:  # sizes that only ours can have: compare the rest
        unlike = [(str(error.key), error.value, f"none such ({error.what})")]
        theirs = complete(filled["model"], ours["size"])
    for key, value in form.config.items():
        put(config, key, value)
    return config, [*unlike, *_differences(ours, theirs)]


def _filled(template: Any, ours: Any, config: dict[str, Any]) -> Any:
    """The template with what its blanks read once our values are in `config`; words where one cannot be written."""
    if isinstance(template, Mapping):
        within = ours if isinstance(ours, Mapping) else {}
        return {key: _filled(part, within.get(key), config) for key, part in template.items()}
    if not isinstance(template, Blank):
        return template
    theirs = None if ours is None else template.write(ours)
    for key in template.keys if theirs is not None else ():
        if at(config, key) is None:
            put(config, key, theirs)
    try:
        return template.read(config)
    except ScalingError:
        return f"no such value in {template.keys[0]}"


TOWERS = ("encoder", "decoder")
_TOWER_SLOTS = ("embedding", "position", "pattern", "block", "stack")
_ABSENT = "nothing"


def _spread(model: Mapping[str, Any], size: Mapping[str, Any]) -> dict[str, Any]:
    """Both sections with what an encoder-decoder's towers share written out for each of them."""
    if not all(tower in model for tower in TOWERS):
        return {"model": dict(model), "size": dict(size)}
    common = {slot: model[slot] for slot in _TOWER_SLOTS if slot in model}
    rest = {key: value for key, value in model.items() if key not in common}
    sizes = {key: value for key, value in size.items() if key not in TOWERS}
    return {
        "model": {**rest, **{tower: overlay(common, dict(model[tower] or {})) for tower in TOWERS}},
        "size": {tower: {**sizes, **(size.get(tower) or {})} for tower in TOWERS},
    }


def complete(model: Mapping[str, Any], size: Mapping[str, Any]) -> dict[str, Any]:
    """Both sections with every default written out, every kind in the long form, and one hidden width."""
    both = _spread(model, size)
    model_line, sizes = both["model"], both["size"]
    towers = [(model_line[tower], sizes[tower]) for tower in TOWERS if tower in sizes]
    for part, tower_line in towers or [(model_line, sizes)]:
        for slot in _TOWER_SLOTS:
            part[slot] = _spelled(slot, part[slot])
        shape, channel = Shape.of(tower_line), part["block"].get("channel") or {}
        tower_line.clear()
        tower_line.update(asdict(shape), hidden=shape.hidden_times(channel.pop("hidden_times", 1.0)))
    for slot in ("head", "sentence", "language"):
        model_line[slot] = _spelled(slot, model_line.get(slot))
    if towers:
        model_line["memory"] = _spelled("memory", model_line.get("memory", "Last"))
        model_line["share"] = model_line.get("share", "nothing")
    model_line["tie"] = sorted(model_line["tie"])
    return both


def _spelled(slot: str, line: Any) -> Any:
    """A line in the long form: its kind and every key of it, those of the pieces within it too."""
    if line is None:
        return None
    line = {"kind": line} if isinstance(line, str) else line
    spelled, kind = {"kind": line["kind"]}, schema.kinds(slot).get(line["kind"])
    for key, parameter in () if kind is None else schema.keys(kind).items():
        value = line.get(key, parameter.default)
        spelled[key] = _spelled(key, value) if schema.is_recipe(parameter.annotation) else value
    return spelled


def _differences(ours: Any, theirs: Any, key: str = "") -> Iterator[Mismatch]:
    """The differences of two completed trees: the dotted key and both values, a piece by its kind."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        if ours.get("kind") != theirs.get("kind"):
            yield f"{key}.kind", ours.get("kind", _ABSENT), theirs.get("kind", _ABSENT)
            return
        for name in {**ours, **theirs}:
            path = f"{key}.{name}" if key else name
            yield from _differences(ours.get(name, _ABSENT), theirs.get(name, _ABSENT), path)
    elif ours != theirs:
        values = (value.get("kind", value) if isinstance(value, Mapping) else value for value in (ours, theirs))
        yield key, *values


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
