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
from scaling.base.json_lines import mapped, put
from scaling.config import schema
from scaling.config.schema import overlay, walk
from scaling.config.shape import Shape
from scaling.ledger.document import differences
from scaling.model.two_towers import TOWER

# Tensors

PARTS = {
    "decoder": "decoder.stack.blocks.*.branches",
    "encoder": "encoder.stack.blocks.*.branches",
    "maps": "{query,key,value,out}",
    "both": "{weight,bias}",
}
"""What tables abbreviate: the branches of a block, the maps of attention, a map's tensors."""


@dataclass(frozen=True)
class Name:
    """One line of a table: our tensors, in the order in which theirs joins them, and its layout: `plain`, `transposed`,
    `row` (a vector as a matrix of one row) or `by_head` (joined head by head).
    """

    ours: tuple[str, ...]
    theirs: str
    layout: str = "plain"

    def join(self, parts: list[Tensor], heads: int) -> Tensor:
        """Their tensor of ours."""
        if self.layout == "by_head":
            return torch.cat([part.unflatten(0, (heads, -1)) for part in parts], 1).flatten(0, 1)
        joined = torch.cat(parts) if len(parts) > 1 else parts[0]
        if self.layout == "transposed":
            return joined.t()
        return joined[None] if self.layout == "row" else joined

    def split(self, tensor: Tensor, heads: int) -> list[Tensor]:
        """Our tensors of theirs."""
        if self.layout == "by_head":
            return [part.flatten(0, 1) for part in tensor.unflatten(0, (heads, -1)).chunk(len(self.ours), 1)]
        if self.layout == "transposed":
            tensor = tensor.t()
        return list((tensor[0] if self.layout == "row" else tensor).chunk(len(self.ours)))


def table(text: str, **parts: str) -> tuple[Name, ...]:
    """The lines of a table: `<part>` is one of `parts` or `PARTS`, `{a,b}` a line each, `{a+b}` joins our tensors."""
    for part, meaning in {**parts, **PARTS}.items():
        text = text.replace(f"<{part}>", meaning)
    names = []
    for ours, theirs, *layout in filter(None, map(str.split, text.splitlines())):
        for our, their in zip(_expanded(ours, ","), _expanded(theirs, ","), strict=True):
            names.append(Name(tuple(_expanded(our, "+")), their, *layout))
    return tuple(names)


def _expanded(pattern: str, mark: str) -> Iterator[str]:
    """The names that a pattern stands for: one for each part of its braces, which the mark separates."""
    pieces = re.split(rf"\{{([^{{}}]*\{mark}[^{{}}]*)\}}", pattern)  # what is in braces is at the odd places
    choices = [piece.split(mark) if number % 2 else [piece] for number, piece in enumerate(pieces)]
    return map("".join, itertools.product(*choices))


def pairs(names: Iterable[Name], ours: Iterable[str]) -> list[Name]:
    """The table's lines for the tensors that we have, layers numbered."""
    present = set(ours)
    numbers = sorted({part for name in present for part in name.split(".") if part.isdecimal()}, key=int)
    numbered = (
        Name(tuple(part.replace("*", number) for part in name.ours), name.theirs.replace("*", number), name.layout)
        for name in names
        for number in (numbers if "*" in name.theirs else [""])
    )
    return [name for name in numbered if name.ours[0] in present]


def to_theirs(names: Iterable[Name], tensors: Mapping[str, Tensor], heads: int) -> dict[str, Tensor]:
    """Our tensors under their names, laid out as theirs."""
    return {pair.theirs: pair.join([tensors[name] for name in pair.ours], heads) for pair in pairs(names, tensors)}


def to_ours(names: Iterable[Name], ours: Iterable[str], tensors: Mapping[str, Tensor], heads: int) -> dict[str, Tensor]:
    """Their tensors under the names that we have, laid out as ours."""
    return {
        name: part
        for pair in pairs(names, ours)
        for name, part in zip(pair.ours, pair.split(tensors[pair.theirs], heads), strict=True)
    }


# Values of config.json


class Blank:
    """A value in config.json, under `keys`: the names that versions of the format gave it, the first that is not null.

    `values` maps each of theirs to ours, where the two differ; of several that are one for us we write the
    first. `less` is how much more theirs counts than ours. Dots in a key lead into nested objects. Without a `default`
    a file needs the key.
    """

    def __init__(self, *keys: str, default: Any = ..., values: Mapping[Any, Any] | None = None, less: int = 0):
        self.keys, self.default, self.values, self.less = keys, default, values, less

    def read(self, config: Mapping[str, Any]) -> Any:
        """Our value, from config.json."""
        entries = ((key, at(config, key)) for key in self.keys)
        key, value = next((entry for entry in entries if entry[1] is not None), (self.keys[0], self.default))
        refuse(value is ..., "it is not there", key=key)
        if self.values is not None:
            ours = [ours for theirs, ours in self.values.items() if theirs == value]
            fix = nearest(str(value), map(str, self.values))
            refuse(not ours, "no piece corresponds to it", fix, key=key, value=value)
            return ours[0]
        refuse(self.less and not isinstance(value, int), "expected a whole number", key=key, value=value)
        return value - self.less if self.less else value

    def theirs(self, ours: Any) -> Any:
        """Their value for ours, or None where they have none."""
        if self.values is not None:
            return next((theirs for theirs, value in self.values.items() if value == ours), None)
        return ours + self.less if self.less else ours


class Segments(Blank):
    """The number of kinds of sentences, which is not 0 in transformers."""

    def theirs(self, ours: Any) -> Any:
        return ours or None


class Names(Blank):
    """The number of classes, from the map of their names by id that config.json has where they are not two."""

    def read(self, config: Mapping[str, Any]) -> int:
        names = at(config, self.keys[0])
        count = at(config, "num_labels")
        return len(names) if isinstance(names, Mapping) and names else count if isinstance(count, int) else 2

    def theirs(self, ours: Any) -> Any:
        return {str(index): f"LABEL_{index}" for index in range(ours)}


def switch(*keys: str, default: bool) -> Blank:
    """A blank for what is there or not."""
    return Blank(*keys, default=default, values={True: True, False: False})


def tied(tower: str, default: bool = True) -> Blank:
    """The blank for a head that predicts by the embedding's table or by its own."""
    return Blank("tie_word_embeddings", default=default, values={True: [tower, "head"], False: []})


def at(config: Mapping[str, Any], dotted: str) -> Any:
    """The value under a dotted key, or None."""
    return dict(walk(config)).get(dotted)


# Our sections beside a format's

TOWERS = ("encoder", "decoder")
Mismatch = tuple[str, Any, Any]  # the key, our value, theirs


def matched(form: type[Format], ours: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mismatch]]:
    """The config.json that the blanks of a format make of our completed sections, and where ours differ from the
    template with that in its blanks.

    Of blanks with one key the first writes it, and others differ where they disagree.
    """
    template, values, config = _spread(form.model, form.size), dict(walk(ours)), dict[str, Any]()
    for key, blank in walk(template):
        theirs = blank.theirs(values[key]) if isinstance(blank, Blank) and values.get(key) is not None else None
        for name in () if theirs is None else blank.keys:
            if at(config, name) is None:
                put(config, name, theirs)

    def read(leaf: Any) -> Any:
        try:
            return leaf.read(config) if isinstance(leaf, Blank) else leaf
        except ScalingError:
            return f"no such value in {leaf.keys[0]}"

    filled, unlike = mapped(template, read), list[Mismatch]()
    try:
        theirs = complete(filled["model"], filled["size"])
    except ScalingError as error:  # sizes that only ours can have: compare the rest
        unlike = [(str(error.key), error.value, f"none such ({error.what})")]
        theirs = complete(filled["model"], ours["size"])
    for key, value in form.config.items():
        put(config, key, value)
    unlike += [(key, *values) for key, values in differences(ours, theirs).items() if values[0] != values[1]]
    others = [key.removesuffix("kind") for key, *_ in unlike if key.endswith(".kind")]  # a piece differs by its kind
    of_others = {key for key, *_ in unlike for other in others if key.startswith(other) and key != f"{other}kind"}
    return config, [each for each in unlike if each[0] not in of_others]


def complete(model: Mapping[str, Any], size: Mapping[str, Any]) -> dict[str, Any]:
    """Both sections with every default written out, every kind in the long form, and one hidden width."""

    def shaped(part: Mapping[str, Any], size: Mapping[str, Any]) -> dict[str, Any]:
        shape, channel = Shape.of(size), part["block"].get("channel") or {}
        return {**asdict(shape), "hidden": shape.hidden_times(channel.pop("hidden_times", 1.0))}

    model, size = _spread(model, size).values()
    model = _spelled("model", model)
    towers = [tower for tower in TOWERS if tower in size]
    sizes = {tower: shaped(model[tower], size[tower]) for tower in towers} if towers else shaped(model, size)
    return {"model": {**model, "tie": sorted(model["tie"])}, "size": sizes}


def _spread(model: Mapping[str, Any], size: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Both sections with what an encoder-decoder's towers share written out for each of them."""
    if not all(tower in model for tower in TOWERS):
        return {"model": dict(model), "size": dict(size)}
    common = {slot: model[slot] for slot in TOWER if slot in model}
    sizes = {key: value for key, value in size.items() if key not in TOWERS}
    towers = {tower: overlay(common, model[tower]) for tower in TOWERS}
    return {
        "model": {key: value for key, value in model.items() if key not in common} | towers,
        "size": {tower: {**sizes, **size.get(tower, {})} for tower in TOWERS},
    }


def _spelled(key: str, value: Any) -> Any:
    """A value of a config with every default written out: a line of a slot has its kind and every key of that."""
    kinds = schema.kinds(key) if key in schema.SLOTS else {}
    line = {"kind": value} if isinstance(value, str) and value in kinds else value
    if not isinstance(line, Mapping):
        return line
    kind = kinds.get(line.get("kind", ""))
    keys = {} if kind is None else schema.keys(kind)
    defaults = {
        name: each.default for name, each in keys.items() if name not in line and each.default is not each.empty
    }
    return {name: _spelled(name, part) for name, part in {**line, **defaults}.items()}


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
    hold `copies` (a tensor under a second name, as a tied head's of the embedding, which need not be listed; None: a
    bias that no training moves from 0), which are checked, and `DERIVED` tensors; none of them is written. Of copies
    that our model holds itself, a file may leave out those `omitted`. A file of the bare model leaves out `prefix`, the
    first word of the first name. `absent` are tensors of ours that the format has none for, read as 0; `folded` puts
    their values into others.
    """

    slot: ClassVar[str] = "format"

    architecture: ClassVar[str]
    config: ClassVar[Mapping[str, Any]]
    model: ClassVar[Mapping[str, Any]]
    size: ClassVar[Mapping[str, Any]]
    names: ClassVar[tuple[Name, ...]]
    prefix: ClassVar[str]
    copies: ClassVar[Mapping[str, str | None]] = {}
    omitted: ClassVar[tuple[str, ...]] = ()
    absent: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        has_all = all(hasattr(cls, name) for name in ("architecture", "config", "model", "size", "names"))
        if not has_all or "model_type" not in cls.config or "kind" not in cls.model:
            needed = "architecture, config with a model_type, model with a kind, size and names"
            raise TypeError(f"the format {cls.__name__} needs {needed}")
        embedding = cls.names[0].theirs
        cls.prefix = vars(cls).get("prefix", embedding.partition(".")[0] + ".")
        cls.copies = {name.theirs: embedding for name in cls.names if name.ours == ("head.weight",)} | dict(cls.copies)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Our sections `model` and `size`, from config.json."""
        for key, value in cls.config.items():
            theirs = at(config, key)
            refuse(theirs not in (None, value), "there is no piece for it", key=key, value=theirs)
        template = {"model": cls.model, "size": cls.size}
        filled = mapped(template, lambda leaf: leaf.read(config) if isinstance(leaf, Blank) else leaf)
        return {**filled, "size": {key: value for key, value in filled["size"].items() if value is not None}}

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
