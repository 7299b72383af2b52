"""Templates: whose parameters are whose, name by name, with what is done to each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from scaling.errors import ScalingError, nearest
from scaling.interop.weights import complete, differences, short, spread


@dataclass(frozen=True)
class Name:
    """One line of a table: our tensors, in the order in which theirs joins them."""

    ours: tuple[str, ...]
    theirs: str
    layout: str = "plain"


def table(text: str, **parts: str) -> tuple[Name, ...]:
    """The lines of a table."""
    for part, meaning in parts.items():
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


def blanks(template: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """config.json as far as the blanks make it, read off our completed config; where two disagree, by the first."""
    config: dict[str, Any] = {}
    for hole, value in _met(spread(template), ours):
        theirs = hole.write(value)
        for key in hole.keys if theirs is not NOTHING else ():
            if at(config, key) is NOTHING:
                put(config, key, theirs)
    return config


def mismatches(template: Mapping[str, Any], config: Mapping[str, Any], ours: Mapping[str, Any]) -> list[Mismatch]:
    """Where our completed config differs from the template with `config` in its blanks.

    A blank that `config` leaves empty is one of them: what one format cannot express must not hide the others.
    """
    filled, unfilled = _filled(spread(template), config, ours)
    try:
        theirs = complete(filled)
    except ScalingError as error:  # sizes that only ours can have: compare the rest
        unfilled = [*unfilled, (str(error.key), error.value, f"none such ({error.what})")]
        theirs = complete({**filled, "size": ours["size"]})
    return [*unfilled, *differences(ours, theirs)]


def _filled(template: Any, config: Mapping[str, Any], ours: Any, key: str = "") -> tuple[Any, list[Mismatch]]:
    """The template filled as far as `config` goes, our value in any other blank, and those blanks as mismatches."""
    if isinstance(template, Blank):
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


def _met(template: Any, ours: Any) -> Iterator[tuple[Blank, Any]]:
    """Each blank with our value at its place; a place that ours lacks is left to `mismatches`."""
    for key, part in template.items():
        if not isinstance(ours, Mapping) or key not in ours:
            continue
        if isinstance(part, Blank):
            yield part, ours[key]
        elif isinstance(part, Mapping):
            yield from _met(part, ours[key])


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
    blanks for what it may contain, and `names` what its tensors are called. A weight file may also hold `copies` (a
    tied table under a second name), tensors that are `derived` from the config (masks, sinusoids) and `zeros` (a bias
    that no training moves); copies and zeros are checked, and none of them is written. Of copies that our model holds
    itself, a file may leave out those `omitted`. A file of the bare model leaves out `prefix`. `absent` are tensors of
    ours that the format has none for, read as 0; `folded` puts their values into others.
    """

    slot: ClassVar[str] = "format"

    architecture: ClassVar[str]
    config: ClassVar[Mapping[str, Any]]
    model: ClassVar[Mapping[str, Any]]
    size: ClassVar[Mapping[str, Any]]
    names: ClassVar[tuple[Name, ...]]
    prefix: ClassVar[str] = ""
    copies: ClassVar[Mapping[str, str]] = {}
    omitted: ClassVar[tuple[str, ...]] = ()
    derived: ClassVar[tuple[str, ...]] = ()
    zeros: ClassVar[tuple[str, ...]] = ()
    absent: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        missing = [name for name in ("architecture", "config", "model", "size", "names") if not hasattr(cls, name)]
        if missing:
            raise TypeError(f"the format {cls.__name__} needs {', '.join(missing)}")
        for name, table, key in (("config", cls.config, "model_type"), ("model", cls.model, "kind")):
            if key not in table:
                raise TypeError(f"the format {cls.__name__} needs {key} in {name}")

    @classmethod
    def template(cls) -> dict[str, Any]:
        return {"model": cls.model, "size": cls.size}

    @classmethod
    def folded(cls, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Our tensors as the format holds them."""
        return tensors
