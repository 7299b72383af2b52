"""Configs: strict YAML, laid over one another, with the file and line of every value.

    defaults.yaml ← NAME with its bases ← --overlay FILEs ← size=NAME data=NAME ← its row ← key=value

`load` resolves a run's config; `document` reads any other YAML (a study, a sweep, a table) with the same strictness.

A layer is a `Config` whose scalars are as written. A node that names a `kind` replaces the node below it, one that does
not is laid over it key by key, and a bare word is short for a kind: no key of an old kind is left on a new one.
`size: gpt2/small` and `data: python` name files, which replace the section. `${size.width}` and `${model.norm}` are
resolved last.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, lru_cache, reduce
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from scaling import atomic, schema
from scaling.errors import ScalingError, from_os, nearest
from scaling.schema import BelowOne, Long, PositiveFloat, PositiveFraction, PositiveInt, Range, Rows, Seed, SmallInt
from scaling.shape import Shape

# Sections whose keys defaults.yaml fixes; the others hold pieces and sizes, whose classes define their keys.
FIXED = ("start", "trainer", "train", "evaluate", "log", "seed", "runs")
SECTIONS = ("model", "size", "data", "objective", "optimizer", "schedule", "parametrization", "tuning", *FIXED)
BESIDE_SECTIONS = ("base", "rows", "table")  # other keys of a file; `scaling table` reads `table`
NAMED = ("size", "data")  # sections whose bare word names a file; the bare word of any other is a kind
KINDED = ("objective", "optimizer", "schedule", "parametrization", "tuning")
NULLABLE = ("start",)  # sections of fixed keys that are null by default

Budget = Long | None
Passes = Annotated[float, Range(above=0, most=10**6)]
Epochs = Passes | None
Patience = PositiveInt | None
MicroBatch = Rows | None
Threads = Annotated[int, Range(least=1, most=1024)]
Clip = PositiveFloat | None
Precision = Literal["32-true", "bf16-mixed", "bf16-true"]

# The types of keys whose default does not show them.
TYPES: dict[str, Any] = {
    "seed": Seed,
    **dict.fromkeys(("start.run", "start.folder", "start.vectors", "start.study", "start.row"), str | None),
    **dict.fromkeys(("start.new", "start.unused"), list[str]),
    "start.step": Budget,
    "trainer.max_steps": Budget,
    "trainer.precision": Precision,
    "trainer.devices": int | str,
    "trainer.strategy": Literal["auto", "ddp", "fsdp"],
    "trainer.gradient_clip_val": Clip,
    "train.batch": int | dict[str, Any],
    "train.tokens": Budget,
    "train.epochs": Epochs,
    "train.patience": Patience,
    "train.parts": Literal["all", "head", "bias"] | list[str] | dict[str, Any],
    "train.layer_decay": PositiveFraction,
    "train.micro_batch": MicroBatch,
    "train.documents": Literal["join", "mask"],
    "train.checkpointing": Literal["none", "blocks"],
    "train.threads": Threads | Literal["auto"],
    "train.round_vocabulary": PositiveInt,
    "train.smoothing": BelowOne,
    "train.checkpoint_every": Long,
    "train.keep": PositiveInt,
    "evaluate.points": SmallInt,
    "evaluate.precision": Precision,
    "evaluate.spacing": Literal["log", "even"],
    "evaluate.windows": Budget | Literal["auto", "whole_at_end"],
    "log.every": Long,
    "log.wandb": Literal["auto", "online", "offline", "disabled"],
    **dict.fromkeys(("log.project", "log.group", "log.name"), str | None),
}

# Keys that a Lightning user knows by another name.
RENAMED = {
    "train.steps": "trainer.max_steps",
    "train.precision": "trainer.precision",
    "train.devices": "trainer.devices",
    "train.strategy": "trainer.strategy",
    "train.clip": "trainer.gradient_clip_val",
}

COMMAND_LINE = "command line"  # an origin
SUFFIXES = (".yaml", ".yml")
TOKENS = (".npy", ".bin")  # endings of arrays of token ids
SAVED = ("dataset_dict.json", "state.json")  # one of them is in every folder that `save_to_disk` of `datasets` wrote
MOST_BYTES, MOST_VALUES, DEEPEST = 1 << 20, 50_000, 32

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAB = re.compile(r"^ *\t", re.MULTILINE)
_GOES_ON = re.compile(r"[:-]\s+[\[{][^\]}]*[\]}]\s*[^\s\]},#]")  # a value whose bracket closes before its end
_STRING = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')"""
_QUOTED = re.compile(rf"(?<=[\[{{,:\s]){_STRING}", re.DOTALL)
_OVERRIDE = re.compile(r"(?:--)?([A-Za-z_][\w-]*(?:\.[\w-]+)*)=(.*)", re.DOTALL)
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w-]*(?:\.[\w-]+)*)\}", re.ASCII)

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL", "None")),  # W&B's ${args_no_hyphens} writes None
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf"), math.inf),
    "-.inf": -math.inf,
}
_LONGEST_NUMBER = 64  # longer digit strings are identifiers, and int() refuses them from 4,300 digits on
_WHOLE = re.compile(r"[-+]?[0-9][0-9_]*")
_BASED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_REAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.?[0-9]*)([eE][-+]?[0-9]+)?")
_QUANTITY = re.compile(r"([-+]?[0-9]+(?:\.[0-9]+)?)([kKMBT%])")
_EXPONENTS = {"k": 3, "K": 3, "M": 6, "B": 9, "T": 12, "%": -2}
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
# JSON leaves these as they are; YAML needs them escaped.
_UNPRINTABLE = re.compile("[\x7f-\xa0\ud800-\udfff\u2028\u2029\ufeff\ufffe\uffff]")


class Unquoted(str):
    """A scalar without quotes, as written: a value (`1e-4`, `no`), or a name (`1M`, `007`) where a name is expected."""


@dataclass(frozen=True)
class Config:
    """A document as plain dicts, lists and scalars; `origin` holds `file:line` or `command line` by dotted key.

    `remarks` are lines for a person to read: the values that a command filled in.
    """

    tree: dict[str, Any]
    origin: dict[str, str]
    remarks: tuple[str, ...] = ()

    def __getitem__(self, key: str) -> Any:
        """The value at a dotted key."""
        value: Any = self.tree
        for part in key.split("."):
            if part not in value if isinstance(value, dict) else not isinstance(value, list):
                return dict(_walk(self.tree))[key]  # a sweep's file has dots inside its keys
            value = value[int(part)] if isinstance(value, list) else value[part]
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """The keys under a key of the document; none where it has none."""
        return value if isinstance(value := self.tree.get(key), dict) else {}

    def part(self, *keys: str) -> Config:
        """What is below these keys, as a document."""
        above = ".".join(keys) + "."
        origin = {key.removeprefix(above): place for key, place in self.origin.items() if key.startswith(above)}
        return Config(reduce(getitem, keys, self.tree), origin)

    def varied(self, values: Mapping[str, Any]) -> Config:
        """The document with other values at dotted keys that it has, as `setting` checks them."""
        tree = overlay(self.tree, _nested(values.items()))
        return replace(self, tree=tree, origin={**self.origin, **dict.fromkeys(values, COMMAND_LINE)})

    def error(self, key: str, what: str, fix: str | None = None) -> ScalingError:
        """A mistake at a dotted key, placed where its value, or the nearest node around it, was set."""
        return self.place(ScalingError(what, fix=fix, key=key))

    def place(self, error: ScalingError) -> ScalingError:
        """An error that knows its dotted key, with the file, the line and the value filled in from it."""
        if error.key is None or error.file is not None:
            return error
        below = (key for key in self.origin if key.startswith(f"{error.key}."))
        around = error.key if error.key in self.origin else next(below, error.key)
        while around and around not in self.origin:
            around = around.rpartition(".")[0]
        if not around:
            return error
        file, line = _file_and_line(self.origin[around])
        place: dict[str, Any] = {"file": file, "line": line}
        if around == error.key and not isinstance(value := self[around], dict | list):
            place["value"] = _value(value)
        return error.at(**place)

    @contextmanager
    def naming(self, key: str) -> Iterator[None]:
        """Place mistakes that have no file yet at the name that led to them."""
        try:
            yield
        except ScalingError as error:
            raise (self.place(error.at(key=key)) if error.file is None else error) from None

    @contextmanager
    def building(self, section: str) -> Iterator[None]:
        """Place the mistakes of a section's line."""
        try:
            yield
        except ScalingError as error:
            # A piece names a key of its own line; a shape names one of its section.
            whole = error.key is not None and error.key.partition(".")[0] in self.tree
            raise self.place(error if whole else error.under(section)) from None
        except OSError as error:  # of a file that the section names
            reason = from_os(error, "cannot be read")
            raise self.place(ScalingError(reason.what, fix=reason.fix, key=section, code=reason.code)) from None

    def build(self, section: str, *shared: Any) -> Any:
        """The piece that a section describes; a mistake in it is reported with its file and line."""
        with self.building(section):
            return schema.build(section, self.tree[section], *shared)

    def check(self) -> Config:
        """This config, or the mistake in it that the signatures of its classes and its sizes show."""
        for section in self.tree:
            if section in schema.SLOTS and not (self.tree[section] is None and section in schema.OPTIONAL):
                with self.building(section):
                    schema.recipe(section, self.tree[section])
        size = self.tree.get("size", {})
        if not {"encoder", "decoder"} & size.keys():
            with self.building("size"):
                needed = {"vocabulary": 1} if size.get("vocabulary") is None else {}  # that of the data
                Shape.of({**size, **needed})
        return self

    def save(self, path: str | Path) -> None:
        """Write the document as YAML, each value followed by its origin; the file is whole or not there."""
        head = [f"# with --extend {json.dumps(file)}" for file in schema.extensions()]
        try:
            atomic.write(Path(path), "".join(f"{line}\n" for line in [*head, *self._lines(self.tree, "", 0)]))
        except OSError as error:
            raise from_os(error, f"{path} cannot be written") from None

    def _lines(self, tree: Mapping[str, Any], above: str, depth: int) -> Iterator[str]:
        for key, value in tree.items():
            dotted, head = f"{above}{key}", "  " * depth + flow(key)
            if isinstance(value, dict) and value:
                yield f"{head}:"
                yield from self._lines(value, f"{dotted}.", depth + 1)
            else:
                origin = self.origin.get(dotted, "")
                yield f"{head}: {flow(value)}  # {origin if origin.isprintable() else flow(origin)}"


@dataclass(frozen=True)
class TableFile:
    """`name` is what `load` takes; `rows` are its rows, `config` the section `table`, bases included."""

    name: str
    rows: tuple[str, ...]
    config: Config

    def path(self, key: str) -> Path:
        """A file next to the one that names it."""
        return Path(_file_and_line(self.config.origin[key])[0]).parent / str(self.config[key])


def load(
    name: str | None = None,
    overrides: Iterable[str] = (),
    *,
    overlays: Sequence[str | Path] = (),
    filled: Mapping[str, Any] | None = None,
    filler: str = COMMAND_LINE,
) -> Config:
    """The resolved config of a model, a table's row (`row=`) or a file, with what is laid over it.

    `model=NAME` among the overrides means NAME.
    `filled` are values by dotted key that the command `filler` gives, laid over the files and under the overrides; a
    section that is given whole takes the place of the files'.
    """
    pairs = [_override(word) for word in overrides]
    named = {key: value for key, value in pairs if key in ("model", "row", *NAMED) and not isinstance(value, dict)}
    command = _from(COMMAND_LINE, named)
    words = _of_words((key, value) for key, value in pairs if key not in named or isinstance(value, dict))
    name = _name(command, "model") if "model" in named else name
    if name is None and "row" in named:
        raise command.error("row", "a row needs its table", "name it, as in table/narang2021 row=GeLU")
    chain = [] if name is None else _follow("model", find("model", name))
    layers = [
        _defaults(),
        *chain,
        *(layer for file in overlays for layer in _follow("model", find("model", str(file)))),
    ]
    if filled:
        layers = [replace(layer, tree=_without(layer.tree, *filled)) for layer in layers]
        layers.append(_from(filler, dict(filled)))
    layers.append(replace(command, tree=_without(named, "model", "row")))
    last = [*_rows(chain, command, str(name)), words] if "row" in named else [words]
    laid = reduce(_lay, [*layers, *last], Config({}, {}))
    if "model" not in laid.tree:
        raise ScalingError("no model is named", fix=nearest("", names("model")))
    defined = any(key.startswith("model.norm") for layer in last for key in layer.origin)
    if defined and "norm" in laid.tree["model"] and "${model.norm" not in str(laid.tree["model"]):
        raise laid.error("model.norm", "nothing in this model refers to it", "set model.block.norm, model.stack.norm")
    config = _resolved(_pruned(replace(laid, tree={key: laid.tree[key] for key in SECTIONS if key in laid.tree})))
    # `model.norm` is a definition, which other keys refer to and no class takes.
    tree = _values({**config.tree, "model": _without(config.tree["model"], "norm")}, quantities=True)
    defaults = _values(_defaults().tree, quantities=True)
    fixed = {key: _checked(config, key, value, defaults[key]) for key, value in config.tree.items() if key in FIXED}
    return _pruned(Config({**tree, **fixed}, config.origin))


def document(path: str | Path) -> Config:
    """A YAML file as written: plain values and their lines, nothing followed, laid over or checked."""
    layer = _read(path)
    return _pruned(replace(layer, tree=_values(layer.tree)))


def table_file(name: str) -> TableFile:
    """The table of a name among the shipped ones (`narang2021` or `table/narang2021`), or of a path."""
    path = find("table", name if name.endswith(SUFFIXES) else name.removeprefix("table/"))
    chain = _follow("model", path)
    rows = tuple(dict.fromkeys(row for layer in chain for row in layer.mapping("rows")))
    if not rows:
        raise ScalingError("it has no rows", file=path, key="rows", fix="write rows: {NAME: {what it changes}}")
    fields = reduce(_over, (layer.part("table") for layer in chain if layer.mapping("table")), Config({}, {}))
    fields = _pruned(replace(fields, tree=_values(fields.tree)))
    return TableFile(name if name.endswith(SUFFIXES) else f"table/{path.stem}", rows, fields)


def setting(word: str) -> tuple[str, Any]:
    """The key and the value of an override of a section with fixed keys, checked as `load` checks it."""
    key, value = _override(word)
    layer, section = _of_words([(key, value)]), key.partition(".")[0]
    default = _values(_defaults().tree[section], quantities=True)
    return key, Config({section: _checked(layer, section, layer.tree[section], default)}, {})[key]


def override(word: str) -> tuple[str, Any]:
    """The dotted key and the value of one `key=value`."""
    key, value = _override(word)
    return key, _values(value)


def assignments(words: Iterable[str]) -> dict[str, Any]:
    """The tree that words `key=value` make; the later of two equal keys counts."""
    return _values(_of_words(map(_override, words)).tree)


# Layers


def _defaults() -> Config:
    return _read(shipped() / "defaults.yaml")


def _follow(group: str, path: Path, trail: tuple[Path, ...] = ()) -> list[Config]:
    """A file of a group after the files it is based on, the deepest first."""
    resolved = path.resolve()
    if resolved in trail:
        chain = " → ".join(shown(seen) for seen in (*trail[trail.index(resolved) :], resolved))
        raise ScalingError(f"the config includes itself: {chain}", fix="break the circle")
    layer = _read(path)
    if not isinstance(layer.tree, dict):
        raise ScalingError("expected sections", file=shown(path), fix="write one of " + ", ".join(SECTIONS))
    if "base" not in layer.tree:
        return [layer]
    name = _name(layer, "base")
    with layer.naming("base"):
        return [*_follow(group, find(group, name, beside=path.parent), (*trail, resolved)), layer]


def _lay(laid: Config, layer: Config) -> Config:
    """The sections so far with those of a layer laid over them."""
    sections = _without(layer.tree, *BESIDE_SECTIONS)
    for section in NAMED:  # names first: `size: gpt2/small` with `size.length: 128` is that size with another length
        if section in sections and not isinstance(sections[section], dict):
            del sections[section]
            laid = reduce(_lay, _named(layer, section, section), replace(laid, tree=_without(laid.tree, section)))
            layer = replace(layer, origin=_without(layer.origin, section, f"{section}.kind"))
    layer = _with_parts(_undotted(replace(layer, tree=sections)))
    tree = dict(laid.tree)
    for section, value in layer.tree.items():
        if section not in SECTIONS:
            raise layer.error(section, "there is no such section", nearest(section, SECTIONS))
        if section == "model" and not isinstance(value, dict):
            raise layer.error(section, "expected the model's keys", "name another model's file as `base`")
        line = {"kind": value} if section in KINDED and _is_name(value) else value
        tree[section] = overlay(tree.get(section), line)
    return Config(tree, {**laid.origin, **layer.origin})


def _named(layer: Config, key: str, section: str) -> list[Config]:
    """The layers of the file that the word at a key names for a section."""
    name, (file, line) = _name(layer, key), _file_and_line(layer.origin[key])
    beside = None if line is None else Path(file).parent
    with layer.naming(key):
        if section == "size":
            return [find_size(name, beside=beside)]
        try:
            layers = _follow(section, find(section, name, beside=beside))
        except ScalingError as error:
            if error.file is not None or (own := _own_data(name)) is None:
                raise
            source, key_of_name = own
            layers = [
                *_follow(section, find(section, source)),
                Config({key_of_name: name}, {key_of_name: layer.origin[key]}),
            ]
    for each in layers:
        for inner in NAMED:
            if inner in each.tree and not isinstance(each.tree[inner], dict):
                raise each.error(inner, "expected its keys here, not a name", "name that file as `base`")
    return layers


def _with_parts(layer: Config) -> Config:
    """The layer with each part of its data (the domains of a mixture) that is a name as the file of that name has it;
    a part's other keys are laid over the file.
    """
    data, origin = dict(layer.mapping("data")), layer.origin
    for key in schema.parts("data") & data.keys():
        for part, line in (data[key] if isinstance(data[key], dict) else {}).items():
            place = f"data.{key}.{part}"
            kind, keys = (line.get("kind"), _without(line, "kind")) if isinstance(line, dict) else (line, {})
            if _is_name(kind) and kind not in schema.kinds("data"):
                named = _named(layer, f"{place}.kind" if isinstance(line, dict) else place, "data")
                whole = reduce(_lay, named, Config({}, {}))
                data[key] = {**data[key], part: overlay(whole.tree.get("data"), keys)}
                theirs = {place + at.removeprefix("data"): where for at, where in whole.origin.items()}
                origin = {**origin, **theirs, **{at: origin[at] for at, _ in _walk(keys, place) if at in origin}}
    return replace(layer, tree={**layer.tree, "data": data}, origin=origin) if data else layer


def _rows(chain: Sequence[Config], command: Config, table: str) -> list[Config]:
    """The changes of a row: a table's after those of its base."""
    name, rows = _name(command, "row"), {row for layer in chain for row in layer.mapping("rows")}
    if not rows:
        raise command.error("row", f"{table} has no rows", "name a table, as in table/narang2021 row=GeLU")
    if name not in rows:
        raise command.error("row", f"{table} has no such row", nearest(name, rows))
    chain = [layer for layer in chain if name in layer.mapping("rows")]
    for layer in chain:
        row = layer.tree["rows"][name]
        if not isinstance(row, dict):
            raise layer.error(f"rows.{name}", "expected sections under a row", "write {} where it changes nothing")
        if "base" in row:
            raise layer.error(f"rows.{name}.base", "a row has no base", "write what it changes")
    return [layer.part("rows", name) for layer in chain]


def _checked(config: Config, key: str, value: Any, default: Any) -> Any:
    """A value of a section of fixed keys, with its keys and types checked against the defaults."""
    if isinstance(default, str) and isinstance(value, dict) and "kind" in value:
        # Keys laid over a word were laid over that word as a kind; here it is none, and the keys take its place.
        value = _without(value, "kind") or value["kind"]
    if key in NULLABLE and _value(value) is not None:
        default = {inner.partition(".")[2]: None for inner in TYPES if inner.startswith(f"{key}.")}
    if isinstance(default, dict):
        if not isinstance(value, dict):
            raise config.error(key, "expected keys under it", f"write {key}.KEY, with KEY of {', '.join(default)}")
        for inner in value:
            if inner not in default:
                dotted = f"{key}.{inner}"
                fix = f"write {RENAMED[dotted]}" if dotted in RENAMED else nearest(inner, default)
                raise config.error(dotted, f"{key} has no such key", fix)
        return {inner: _checked(config, f"{key}.{inner}", value[inner], default[inner]) for inner in value}
    annotation = TYPES.get(key, list[Any] if isinstance(default, list) else type(default))
    checked = str(value) if annotation in (str, str | None) and _is_name(value) else _values(value, quantities=True)
    try:
        return schema.check(key, checked, annotation)
    except ScalingError as error:
        if isinstance(checked, float) and checked.is_integer():  # 1e6 of a key that takes whole numbers
            return _checked(config, key, int(checked), default)
        raise config.place(error) from None


# Trees


def overlay(below: Any, above: Any) -> Any:
    """`above` laid over `below`."""
    if _value(below) is None:
        return above
    if not isinstance(above, dict):
        return {"kind": above} if _is_text(above) and isinstance(below, dict) and "kind" in below else above
    below = {"kind": below} if _is_text(below) else below
    if "kind" in above or not isinstance(below, dict):
        return above
    return {**below, **{key: overlay(below.get(key), value) for key, value in above.items()}}


def of_values(place: str, tree: Mapping[str, Any]) -> Config:
    """The document of plain values that are all of one origin."""
    return _pruned(_from(place, dict(tree)))


def _from(place: str, tree: dict[str, Any]) -> Config:
    """A layer of one origin."""
    values = dict(_walk(tree))
    words = (f"{key}.kind" for key, value in values.items() if _is_text(value))  # the kind of keys laid over the word
    return Config(tree, dict.fromkeys([*values, *words], place))


def _over(below: Config, above: Config) -> Config:
    return Config(overlay(below.tree, above.tree), {**below.origin, **above.origin})


def _undotted(layer: Config) -> Config:
    """The layer with every dotted key spelled out: `block.channel: X` as `block: {channel: X}`."""
    try:
        return replace(layer, tree=_nested(layer.tree.items()))
    except ScalingError as error:
        raise layer.place(error) from None


def _nested(items: Iterable[tuple[str, Any]], above: str = "", *, later_wins: bool = False) -> dict[str, Any]:
    """One tree out of dotted keys. It is one layer, so nothing in it replaces: `optimizer.lr=1 optimizer.kind=SGD`
    means both, in either order. A key given twice is refused, unless the later wins.
    """
    tree: dict[str, Any] = {}
    for key, value in items:
        parts = key.split(".")
        if "" in parts:
            raise ScalingError("a dotted key has an empty part", key=above + key, fix="write it as section.key")
        if isinstance(value, dict):
            value = _nested(value.items(), f"{above}{key}.")
        for part in reversed(parts):
            value = {part: value}
        tree = _union(tree, value, above + key, later_wins)
    return tree


def _union(first: Any, second: Any, key: str, later_wins: bool) -> Any:
    if isinstance(first, dict) and _is_text(second):
        second = {"kind": second}
    if isinstance(second, dict) and _is_text(first):
        first = {"kind": first}
    if isinstance(first, dict) and isinstance(second, dict):
        both = {part: _union(first[part], second[part], key, later_wins) for part in second if part in first}
        return {**first, **second, **both}
    if later_wins:
        return second
    raise ScalingError("the key is there twice", key=key, fix="keep one of them")


def _walk(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every value below a tree with its dotted key, parents first."""
    children = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    for part, child in children:
        key = f"{above}.{part}" if above else str(part)
        yield key, child
        yield from _walk(child, key)


def _pruned(config: Config) -> Config:
    """The config without the origins of values that were replaced."""
    return replace(config, origin={key: config.origin[key] for key, _ in _walk(config.tree) if key in config.origin})


def _without(tree: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key not in keys}


def _file_and_line(origin: str) -> tuple[str, int | None]:
    file, _, line = origin.rpartition(":")
    return (file, int(line)) if line.isdigit() else (origin, None)


# References


def _resolved(config: Config) -> Config:
    """The config with the value at `a.b` in the place of every `${a.b}`, as OmegaConf resolves it, and its origin.

    A line whose kind is a reference to a line is that line, with its other keys laid over it.
    """
    written = dict(_walk(config.tree))
    asking = {key: str(value) for key, value in written.items() if _refers(value)}
    for key, text in asking.items():
        if _refers(_REFERENCE.sub("", text)):
            raise config.error(key, "it is no reference", "write ${section.key}")
    if not asking:
        return config

    from omegaconf import OmegaConf  # a tenth of a second, for the configs that refer
    from omegaconf.errors import OmegaConfBaseException

    root = OmegaConf.create(_values(config.tree, quantities=True))
    origin: dict[str, str] = {}
    count = 0

    @cache
    def target(text: str) -> Any:
        """The value that a text refers to, with further references as written."""
        names = _REFERENCE.findall(text)
        try:
            found = OmegaConf.create({"value": text}, parent=root).value
            lines = [name for name in names if OmegaConf.is_config(OmegaConf.select(root, name))]
        except OmegaConfBaseException as error:
            absent = [name for name in names if name not in written]
            what = f"there is no key {absent[0]!r} to refer to" if absent else str(error).splitlines()[0]
            raise ScalingError(what, fix=nearest(absent[0], written) if absent else None) from None
        if lines and not _REFERENCE.fullmatch(text):
            raise ScalingError(f"{lines[0]} is not a single value", fix="refer to a key that holds one")
        return OmegaConf.to_container(found, resolve=False) if lines else found

    def read(key: str, value: Any, source: str, depth: int) -> Any:
        """The value of a key; what is written at `source` has the origin of that place."""
        nonlocal count
        count += 1
        if count > MOST_VALUES or depth > DEEPEST:
            raise config.error(key, f"references beyond {DEEPEST} levels or {MOST_VALUES:,} values", "write the values")
        if source in config.origin:
            origin[key] = config.origin[source]
        if _refers(value):
            return refer(key, str(value), depth)
        if isinstance(value, list):
            return [read(f"{key}.{index}", item, f"{source}.{index}", depth + 1) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        kind = read(key, value["kind"], f"{source}.kind", depth + 1) if _refers(value.get("kind")) else None
        keys = _without(value, "kind") if isinstance(kind, dict) else value
        above, below = f"{key}." if key else "", f"{source}." if source else ""
        inner = {name: read(above + name, child, below + name, depth + 1) for name, child in keys.items()}
        return overlay(kind, inner) if isinstance(kind, dict) else inner

    def refer(key: str, text: str, depth: int) -> Any:
        """The value of a key that is a reference."""
        with config.naming(key):
            found = target(text)
        source, whole = key, _REFERENCE.fullmatch(text)
        while whole:  # a reference to a reference
            source = whole[1]
            whole = _REFERENCE.fullmatch(str(written.get(source)))
        if source in config.origin:
            origin[key] = config.origin[source]
        return read(key, found, source, depth + 1) if isinstance(found, dict | list) else found

    return Config(read("", config.tree, "", 0), origin)


def _refers(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


# Words of a command line


def _of_words(pairs: Iterable[tuple[str, Any]]) -> Config:
    """The layer of a command line."""
    try:
        tree = _nested(pairs, later_wins=True)
    except ScalingError as error:
        raise error.at(file=COMMAND_LINE) from None
    return _from(COMMAND_LINE, tree)


def _override(word: str) -> tuple[str, Any]:
    """`key=value` and `--key=value`, as people and W&B agents type them; the value as it was written."""
    match = _OVERRIDE.fullmatch(word)
    if match is None:
        fix = "as in trainer.max_steps=100"
        raise ScalingError("expected key=value", file=COMMAND_LINE, key="override", value=word, fix=fix)
    key, text = match[1], match[2].strip()
    try:
        text.encode()
        is_yaml = text.startswith(("[", "{", '"', "'")) and not _is_template(text)
        return key, _parse(text, COMMAND_LINE, None).tree if is_yaml else Unquoted(text)
    except UnicodeEncodeError:  # half characters: bytes of a command line that are no UTF-8 arrive as such
        raise ScalingError("not UTF-8", file=COMMAND_LINE, key=key, value=text, fix="type it as UTF-8") from None
    except ScalingError as error:
        raise error.at(key=key, value=text) from None


def _is_template(text: str) -> bool:
    """Whether a value that begins with a bracket or a quote is text: a bracket closes before the end, as in
    `{title}: {body}` and `[ab].txt`, and the quotes are not around all of it.
    """
    if re.fullmatch(_STRING, text, re.DOTALL):
        return False
    depth = 0
    for place, letter in enumerate(_QUOTED.sub(lambda quoted: "_" * len(quoted[0]), text)):
        depth += (letter in "[{") - (letter in "]}")
        if letter in "]}" and depth == 0:
            rest = text[place + 1 :].lstrip()
            return rest != "" and not rest.startswith("#")
    return False


# Names


def shipped() -> Path:
    """The folder of the shipped configs: inside the package once installed, next to it in a checkout."""
    inside = Path(__file__).parent / "_configs"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "configs"


def _folders(group: str) -> tuple[Path, ...]:
    return tuple(shipped() / folder for folder in (("data", "task") if group == "data" else (group,)))


def names(group: str) -> list[str]:
    """The shipped names of a group."""
    return sorted(path.stem for folder in _folders(group) for path in folder.glob("*.yaml"))


def find(group: str, name: str, *, beside: Path | None = None) -> Path:
    """The file that `name` means for a group (`model`, `size`, `data`, `table`, `study`): next to the file that holds
    the name, in the group's folder of the shipped configs, or from their root. What ends in .yaml or .yml is a path.
    """
    if name.endswith(SUFFIXES):
        path = Path(name).expanduser()
        path = path if beside is None else beside / path
        if not os.path.exists(path):
            near = path.parent.glob("*.y*ml") if path.parent.is_dir() else ()
            raise ScalingError(f"there is no file {str(path)!r}", fix=nearest(path.name, (file.name for file in near)))
        return path
    if beside is not None and beside.name != group and beside.resolve().parent == shipped().resolve():
        beside = None  # another group's folder: model/t5.yaml says size: t5/small and does not mean itself
    for folder in (beside, *_folders(group), shipped()):
        if folder is not None and os.path.exists(candidate := folder / f"{name}.yaml"):
            return candidate
    folder, slash, _ = name.partition("/")
    choices = [f"{folder}/{choice}" for choice in names(folder)] if slash else []
    raise ScalingError(f"there is no {group} {name!r}", fix=nearest(name, choices or names(group)))


def find_size(name: str, *, beside: Path | None = None) -> Config:
    """The section `size` that `gpt2/small` or `tiny` means: an entry of a family's file; without a family, an entry of
    the ladder, or of the one family that has it.
    """
    family, slash, entry = name.rpartition("/")
    if not slash:
        families = ["ladder"] if entry in _sizes("ladder").tree else names("size")
        holders = [each for each in families if entry in _sizes(each).tree]
        if len(holders) > 1:
            choices = ", ".join(f"{each}/{entry}" for each in holders)
            raise ScalingError(f"several families have a size {name!r}", fix=f"name one of {choices}")
        family = holders[0] if holders else ""
    sizes = _sizes(family, beside) if family else Config({}, {})
    if entry not in sizes.tree:
        families = [family] if slash else names("size")
        choices = [
            f"{each}/{size}" if slash or each != "ladder" else size
            for each in families
            for size in _sizes(each, beside).tree
        ]
        raise ScalingError(f"there is no size {name!r}", fix=nearest(name, choices))
    if not isinstance(sizes.tree[entry], dict):
        raise sizes.error(entry, "expected the size's keys", "write {width: …, layers: …}")
    size = sizes.part(entry)
    origin = {f"size.{key}": place for key, place in size.origin.items()}
    return Config({"size": size.tree}, {"size": sizes.origin[entry], **origin})


def _sizes(family: str, beside: Path | None = None) -> Config:
    path = find("size", family, beside=beside)
    sizes = _read(path)
    if not isinstance(sizes.tree, dict):
        raise ScalingError("expected sizes by name", file=path, fix="write `name: {width: …, layers: …}`")
    return sizes


def _own_data(name: str) -> tuple[str, str] | None:
    """The shipped data config for a file or a folder of one's own, and its key that names the file; None of no file."""
    if not os.path.exists(path := Path(name).expanduser()):
        if path.suffix:
            raise ScalingError(f"there is no file {name!r}", fix="give the path of a file or a folder with data")
        return None
    if any((path / file).is_file() for file in SAVED):
        return "saved", "data.corpus.path"
    files = [file for file in path.glob("[!.]*") if file.is_file()] if path.is_dir() else [path]
    if files and all(file.suffix in TOKENS for file in files):
        return "tokens", "data.files"
    return "files", "data.corpus.files"


def _name(layer: Config, key: str) -> str:
    """The value at a key, which is a name."""
    if not _is_name(value := layer[key]):
        raise layer.error(key, "expected a name", "write the name of a config, as one word")
    return str(value)


# Scalars: the core schema of YAML 1.2, read as a person means it


def scalar(text: str) -> str | int | float | bool | None:
    """The value of an unquoted word. `no`, `1:30` and `2026-11-20` are text; so are `20M` and `5%`, which may be names,
    until a config is resolved.
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= _LONGEST_NUMBER:
        if _WHOLE.fullmatch(text):
            return int(text.replace("_", ""))
        if _BASED.fullmatch(text):
            return int(text, 0)
        if _REAL.fullmatch(text) and math.isfinite(number := float(text)):
            return number
    return str(text)


def quantity(text: str) -> int | float | None:
    """`4k`, `20M`, `1.5B`, `2T` as numbers (whole where they are whole), `5%` as the fraction 0.05; None for other
    text.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    if match is None:
        return None
    number = Decimal(match[1]).scaleb(_EXPONENTS[match[2]])
    return int(number) if match[2] != "%" and number == number.to_integral_value() else float(number)


def flow(value: Any) -> str:
    """A value on one line, as it is read back."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and scalar(value) == value and quantity(value) is None:
            return value
        return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))
    if isinstance(value, float) and math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    return json.dumps(value)


def _value(value: Any) -> Any:
    return scalar(value) if isinstance(value, Unquoted) else value


def _values(tree: Any, *, quantities: bool = False) -> Any:
    """The tree with the values of its unquoted scalars; `4k` and `20M` are numbers where `quantities` are meant."""
    if isinstance(tree, dict):
        return {key: _values(value, quantities=quantities) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_values(item, quantities=quantities) for item in tree]
    number = quantity(tree) if quantities and isinstance(tree, Unquoted) else None
    return _value(tree) if number is None else number


def _is_text(value: Any) -> bool:
    return isinstance(_value(value), str)


def _is_name(value: Any) -> bool:
    """Whether a value can be a name: text, or an unquoted number."""
    return isinstance(value, str) and not isinstance(_value(value), bool | None)


# YAML: what a person may have meant otherwise is refused with its file and line, not guessed at


def _read(path: str | Path) -> Config:
    """The layer that is a YAML file; an empty file is an empty mapping."""
    return _parse(read_text(Path(path)), shown(path), 1)


@lru_cache(maxsize=256)
def _parse(text: str, file: str, first: int | None) -> Config:
    """The one document of `text`, its scalars as written; `first` None: it has no lines (a command line)."""

    def refuse(mark: Any, what: str, fix: str | None, key: str | None = None) -> ScalingError:
        return ScalingError(what, fix=fix, file=file, line=None if first is None else first + mark.line, key=key)

    def bound(depth: int, mark: Any) -> None:
        if depth > DEEPEST:
            raise refuse(mark, f"nested more than {DEEPEST} deep", "flatten it")

    tab = _TAB.search(text)
    if tab and first is not None:
        line = first + text.count("\n", 0, tab.start())
        raise ScalingError("a tab in the indentation", file=file, line=line, fix="indent with spaces")
    try:
        depth = -1
        for event in yaml.parse(text, Loader=_LOADER):  # before nodes are made, which takes a call a level
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            bound(depth, event.start_mark)
            if getattr(event, "tag", None) is not None:
                raise refuse(event.start_mark, f"the tag {event.tag!r} is not read", "write the plain value")
        root: Any = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        problem, context = (getattr(error, name, None) for name in ("problem", "context"))
        what = "not YAML: " + (" ".join(filter(None, (problem, context))) or str(getattr(error, "reason", error)))
        mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        if mark is None:
            raise ScalingError(what, file=file) from None
        written = "".join(text.splitlines()[mark.line : mark.line + 1])
        fix = "quote a text that begins with a bracket" if _GOES_ON.search(written) else None
        raise refuse(mark, what, fix) from None
    origin: dict[str, str] = {}
    count = 0

    def read(node: Any, key: str, mark: Any, depth: int) -> Any:
        """The value of a node; its place is its key's where it has one."""
        nonlocal count
        count += 1
        bound(depth, mark)
        if count > MOST_VALUES:
            raise refuse(mark, f"more than {MOST_VALUES:,} values, aliases written out", "write less")
        origin[key] = file if first is None else f"{file}:{first + mark.line}"
        if isinstance(node, yaml.ScalarNode):
            origin[f"{key}.kind"] = origin[key]  # where keys are laid over a word, the word is their kind
            return node.value if node.style else Unquoted(node.value)
        above = f"{key}." if key else ""
        if isinstance(node, yaml.SequenceNode):
            return [read(item, f"{above}{i}", item.start_mark, depth + 1) for i, item in enumerate(node.value)]
        values: dict[str, Any] = {}
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode):
                raise refuse(name.start_mark, "a key must be a single word", "quote it if it is meant as text")
            if name.value == "<<" and not name.style:
                raise refuse(name.start_mark, "merge keys are not read", "name the other file as `base`")
            if name.value in values:
                raise refuse(name.start_mark, "the key is there twice", "keep one of them", name.value)
            values[name.value] = read(value, above + name.value, name.start_mark, depth + 1)
        if node.flow_style and len(node.value) == 1:
            name, value = node.value[0]
            if not name.style and value.start_mark.index == name.end_mark.index:
                return f"{{{name.value}}}"  # braces around a name without a colon mean a field of a row
        return values

    if root is None or (isinstance(root, yaml.ScalarNode) and not root.value and not root.style):
        return Config({}, origin)
    return Config(read(root, "", root.start_mark, 0), origin)


def read_text(path: Path) -> str:
    """The text of a file that a person wrote; what has no end, as a device has none, is not read."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ScalingError("not a file", file=shown(path), fix="give the path of a YAML file")
        if status.st_size > MOST_BYTES:
            what = f"{status.st_size:,} bytes are too many for a config"
            raise ScalingError(what, file=shown(path), fix=f"{MOST_BYTES:,} are the most")
        raw = path.read_bytes()
    except OSError as error:
        reason = from_os(error, "cannot be read")
        raise ScalingError(reason.what, file=shown(path), fix=reason.fix, code=reason.code) from None
    except ValueError:
        raise ScalingError("no file can have this name", value=str(path), key="path") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ScalingError("not UTF-8", file=shown(path), line=line, fix="save it as UTF-8") from None


def shown(path: str | Path) -> str:
    """A path as errors and saved configs print it: relative below the working folder, whole elsewhere."""
    path, folder = Path(path), Path.cwd()
    return str(path.relative_to(folder)) if path.is_absolute() and path.is_relative_to(folder) else str(path)


def print_remarks(configs: Iterable[Config]) -> None:
    """Print each remark of the configs once, on standard error."""
    for remark in dict.fromkeys(remark for config in configs for remark in config.remarks):
        print(f"scaling: {remark}", file=sys.stderr, flush=True)
