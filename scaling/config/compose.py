"""Configs: strict YAML in layers, with the file and the line of every value.

    defaults.yaml ← NAME with its bases ← --overlay FILEs ← size=NAME data=NAME ← its row ← key=value

`load` resolves a run's config; `document` reads any other YAML (a study, a sweep, a table) with the same strictness.

A layer is a `Config` whose scalars are as written. A node that names a `kind` replaces the node below it, one that does
not is laid over it key by key, and a bare word is short for a kind: no key of an old kind is left on a new one.
`size: gpt2/small` and `data: python` name files, which replace the section. OmegaConf resolves `${size.width}` last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, reduce
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from scaling.base.errors import ScalingError, nearest, refuse, under
from scaling.base.numbers import (
    BelowOne,
    Long,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Range,
    Rows,
    Seed,
    SmallInt,
)
from scaling.config import schema, strict_yaml
from scaling.config.document import Config, file_and_line, of_values, read_layer
from scaling.config.files import SUFFIXES, data_at, find, find_size, names, shipped
from scaling.config.strict_yaml import COMMAND_LINE, DEEPEST, MOST_VALUES, Unquoted, parse, shown

Precision = Literal["32-true", "bf16-mixed", "bf16-true"]
Budget = Long | None
Epochs = Annotated[float, Range(above=0, most=10**6)] | None
Patience = PositiveInt | None
MicroBatch = Rows | None
Clip = PositiveFloat | None

# The sections with fixed keys and the type of each key; defaults.yaml has their values and meanings.
FIXED: dict[str, Any] = {
    "start": {
        **dict.fromkeys(("run", "folder", "vectors"), str | None),
        "new": list[str],
        "unused": list[str],
        "step": Budget,
    },
    "trainer": {
        "max_steps": Budget,
        "precision": Precision,
        "devices": PositiveInt | Literal["auto"],
        "strategy": Literal["auto", "ddp", "fsdp"],
        "gradient_clip_val": Clip,
    },
    "train": {
        "tokens": Budget,
        "epochs": Epochs,
        "patience": Patience,
        "parts": Literal["all", "head", "bias"] | list[str] | dict[str, Any],
        "layer_decay": PositiveFraction,
        "batch": int | dict[str, Any],
        "micro_batch": MicroBatch,
        "documents": Literal["join", "mask"],
        "threads": Annotated[int, Range(least=1, most=1024)] | Literal["auto"],
        "checkpointing": Literal["none", "blocks"],
        "compile": bool,
        "round_vocabulary": PositiveInt,
        "smoothing": BelowOne,
        "checkpoint_every": Long,
        "keep": Annotated[int, Range(least=2, most=10**9)],
    },
    "evaluate": {
        "points": SmallInt,
        "spacing": Literal["log", "even"],
        "windows": Budget | Literal["auto", "whole_at_end"],
        "precision": Precision,
    },
    "log": {
        "every": Long,
        "loggers": list[Literal["csv", "tensorboard"]],
        "wandb": Literal["auto", "online", "offline", "disabled"],
        **dict.fromkeys(("project", "group", "name"), str | None),
        "tags": list[Any],
    },
    "seed": Seed,
    "runs": str,
}
KINDED = ("objective", "optimizer", "schedule", "parametrization", "tuning")  # sections that are one piece
NAMED = ("size", "data")  # sections whose bare word names a file; the bare word of any other is a kind
SECTIONS = ("model", *NAMED, *KINDED, *FIXED)
RENAMED = {"steps": "max_steps", "clip": "gradient_clip_val"}  # names under `train` for settings of Lightning's Trainer

_KEY = r"([A-Za-z_][\w-]*(?:\.[\w-]+)*)"
_OVERRIDE = re.compile(rf"(?:--)?{_KEY}=(.*)", re.DOTALL)
_REFERENCE = re.compile(rf"\$\{{{_KEY}\}}", re.ASCII)


class TableFile(NamedTuple):
    """`name` is what `load` takes; `rows` are its rows, `config` the section `table`, bases included."""

    name: str
    rows: tuple[str, ...]
    config: Config

    def path(self, key: str) -> Path:
        """A file next to the one that names it."""
        return Path(file_and_line(self.config.origin[key])[0]).parent / str(self.config[key])


def load(
    name: str | None = None,
    overrides: Iterable[str] = (),
    *,
    overlays: Sequence[str | Path] = (),
    filled: Config | None = None,
) -> Config:
    """The resolved config of a model, a table's row (`row=`) or a file, with what is laid over it.

    `model=NAME` among the overrides means NAME. `filled` are values by dotted key that a command gives, laid over the
    files and under the overrides; a section that is given whole takes the place of the files'.
    """
    words = list(map(_override, overrides))
    named = {key: value for key, value in words if key in ("model", "row", *NAMED) and not isinstance(value, dict)}
    command = _of_words(named.items())
    name = _name(command, "model") if "model" in named else name
    if name is None and "row" in named:
        raise command.error("row", "a row needs its table", "name it, as in table/narang2021 row=GeLU")
    chain = [] if name is None else _follow("model", find("model", name))
    layers = [read_layer(shipped() / "defaults.yaml"), *chain]
    layers += [layer for file in overlays for layer in _follow("model", find("model", str(file)))]
    if filled is not None:
        layers = [*(replace(layer, tree=_without(layer.tree, *filled.tree)) for layer in layers), filled]
    last = _rows(chain, command, str(name)) if "row" in named else []
    last.append(_of_words((key, value) for key, value in words if key not in named or isinstance(value, dict)))
    layers += [replace(command, tree=_without(named, "model", "row")), *last]
    laid = reduce(_lay, layers, Config({}, {}))
    if "model" not in laid.tree:
        raise ScalingError("no model is named", fix=nearest("", names("model")))
    defined = any(key.startswith("model.norm") for layer in last for key in layer.origin)
    if defined and "norm" in laid.tree["model"] and "${model.norm" not in str(laid.tree["model"]):
        raise laid.error("model.norm", "nothing in this model refers to it", "set model.block.norm, model.stack.norm")
    config = _resolved(_with_parts(replace(laid, tree={key: laid.tree[key] for key in SECTIONS if key in laid.tree})))
    # `model.norm` is a definition, which other keys refer to and no class takes.
    tree = strict_yaml.values({**config.tree, "model": _without(config.tree["model"], "norm")}, quantities=True)
    tree |= {key: _checked(config, key) for key in FIXED if key in config.tree}
    return Config(tree, {key: config.origin[key] for key, _ in schema.walk(tree) if key in config.origin})


def varied(config: Config, words: Iterable[str]) -> Config:
    """A config with other values in sections with fixed keys, which `key=value` words give."""
    layer = _of_words(map(_override, words))
    given = replace(config, tree=layer.tree, origin={**config.origin, **layer.origin})
    return replace(given, tree=schema.overlay(config.tree, {key: _checked(given, key) for key in layer.tree}))


def table_file(name: str) -> TableFile:
    """The table of a name among the shipped ones (`narang2021` or `table/narang2021`), or of a path."""
    path = find("table", name if name.endswith(SUFFIXES) else name.removeprefix("table/"))
    chain = _follow("model", path)
    for layer in chain:
        for key in ("rows", "table"):
            is_other = not isinstance(layer.tree.get(key) or {}, dict)
            layer.refuse(is_other, key, "expected keys with values", f"write {key}: {{KEY: VALUE}}")
    rows = tuple(dict.fromkeys(row for layer in chain for row in _mapping(layer, "rows")))
    refuse(not rows, "it has no rows", "write rows: {NAME: {what it changes}}", file=path, key="rows")
    parts = [layer.part("table") for layer in chain if _mapping(layer, "table")]
    tree: dict[str, Any] = reduce(schema.overlay, (part.tree for part in parts), {})
    origin = {key: place for part in parts for key, place in part.origin.items()}
    name = name if name.endswith(SUFFIXES) else f"table/{path.stem}"
    return TableFile(name, rows, Config(strict_yaml.values(tree), origin))


def override(word: str) -> tuple[str, Any]:
    """The dotted key and the value of one `key=value`."""
    key, value = _override(word)
    return key, strict_yaml.values(value)


def assignments(words: Iterable[str]) -> dict[str, Any]:
    """The tree that words `key=value` make; the later of two equal keys counts."""
    return strict_yaml.values(_of_words(map(_override, words)).tree)


def _follow(group: str, path: Path, trail: tuple[Path, ...] = ()) -> list[Config]:
    """A file of a group after the files it is based on, the deepest first."""
    layer, trail = read_layer(path), (*trail, path.resolve())
    if "base" not in layer.tree:
        return [layer]
    name = _name(layer, "base")
    with layer.placing("base"):
        base = find(group, name, beside=path.parent)
        if (resolved := base.resolve()) in trail:
            chain = " → ".join(shown(seen) for seen in (*trail[trail.index(resolved) :], resolved))
            raise ScalingError(f"the config includes itself: {chain}", fix="break the circle")
    return [*_follow(group, base, trail), layer]


def _lay(laid: Config, layer: Config) -> Config:
    """The sections so far with those of a layer laid over them."""
    # Names first: `size: gpt2/small` with `size.length: 128` is that size with another length.
    files = [section for section in NAMED if not isinstance(layer.tree.get(section, {}), dict)]
    for section in files:
        laid = reduce(_lay, _named(layer, section, section), replace(laid, tree=_without(laid.tree, section)))
    layer = Config(_without(layer.tree, "base", "rows", "table", *files), _without(layer.origin, *files))
    # Where keys are laid over a word, the word is their kind.
    kinds = {f"{key}.kind": layer.origin[key] for key, value in schema.walk(layer.tree) if isinstance(value, str)}
    with layer.placing():
        layer = replace(layer, tree=_nested(layer.tree.items()))
    tree = dict(laid.tree)
    for section, value in layer.tree.items():
        if section not in SECTIONS:
            raise layer.error(section, "there is no such section", nearest(section, SECTIONS))
        if section == "model" and not isinstance(value, dict):
            raise layer.error(section, "expected the model's keys", "name another model's file as `base`")
        line = {"kind": value} if section in KINDED and isinstance(value, str) else value
        tree[section] = schema.overlay(tree.get(section), line)
    return Config(tree, {**laid.origin, **kinds, **layer.origin})


def _named(layer: Config, key: str, section: str) -> list[Config]:
    """The layers of the file that the word at a key names for a section."""
    name, (file, line) = _name(layer, key), file_and_line(layer.origin[key])
    beside = None if line is None else Path(file).parent
    data: list[Config] = []
    with layer.placing(key):
        if section == "size":
            return [find_size(name, beside=beside)]
        try:
            path = find(section, name, beside=beside)
        except ScalingError:
            if (data_file := data_at(name)) is None:
                raise
            path, data = find(section, data_file[0]), [Config({data_file[1]: name}, {data_file[1]: layer.origin[key]})]
    layers = [*_follow(section, path), *data]
    for each in layers:
        for inner in NAMED:
            if not isinstance(each.tree.get(inner, {}), dict):
                raise each.error(inner, "expected its keys here, not a name", "name that file as `base`")
    return layers


def _with_parts(laid: Config, trail: tuple[tuple[str, Path], ...] = ()) -> Config:
    """The sections with the file that a part of the data (a domain of a mixture) names, and its keys laid over it."""
    data, origin = _mapping(laid, "data"), laid.origin
    for key in schema.parts("data") & data.keys():
        for part, line in data[key].items() if isinstance(data[key], dict) else ():
            place, keys = f"data.{key}.{part}", line if isinstance(line, dict) else {"kind": line}
            if isinstance(keys.get("kind"), str) and keys["kind"] not in schema.kinds("data"):
                at = f"{place}.kind" if isinstance(line, dict) else place
                named = str(keys["kind"]), Path(file_and_line(origin.get(at, ""))[0]).parent
                chain = " → ".join(name for name, _ in (*trail, named))
                laid.refuse(named in trail, place, f"the config includes itself: {chain}", "break the circle")
                part_config = _with_parts(reduce(_lay, _named(laid, at, "data"), Config({}, {})), (*trail, named))
                parts = {**data[key], part: schema.overlay(part_config.tree.get("data"), _without(keys, "kind"))}
                data = {**data, key: parts}
                theirs = {place + at.removeprefix("data"): where for at, where in part_config.origin.items()}
                origin = {**theirs, **_without(origin, place, f"{place}.kind")}
    return replace(laid, tree={**laid.tree, "data": data}, origin=origin) if data else laid


def _rows(chain: Sequence[Config], command: Config, table: str) -> list[Config]:
    """The changes of a row: a table's after those of its base."""
    name, rows = _name(command, "row"), {row for layer in chain for row in _mapping(layer, "rows")}
    if not rows:
        raise command.error("row", f"{table} has no rows", "name a table, as in table/narang2021 row=GeLU")
    if name not in rows:
        raise command.error("row", f"{table} has no such row", nearest(name, rows))
    chain = [layer for layer in chain if name in _mapping(layer, "rows")]
    for layer in chain:
        row = layer.tree["rows"][name]
        if not isinstance(row, dict):
            raise layer.error(f"rows.{name}", "expected sections under a row", "write {} where it changes nothing")
        if "base" in row:
            raise layer.error(f"rows.{name}.base", "a row has no base", "write what it changes")
    return [layer.part(f"rows.{name}") for layer in chain]


def _checked(config: Config, section: str) -> Any:
    """The value of a section with fixed keys, every key of its type."""
    types, value = FIXED[section], config.tree[section]
    with config.placing():
        if not isinstance(types, dict):
            return schema.check(section, _plain(value, types), types)
        if value is None and section == "start":
            return None
        if not isinstance(value, dict):
            fix = f"write {section}.KEY, with KEY of {', '.join(types)}"
            raise ScalingError("expected keys under it", key=section, fix=fix)
        for key in value if section == "train" else ():
            if (name := RENAMED.get(key, key)) in FIXED["trainer"]:
                raise ScalingError("train has no such key", key=f"train.{key}", fix=f"write trainer.{name}")
        with under(section):
            values = {key: _plain(inner, types.get(key)) for key, inner in value.items()}
            return schema.check_keys(values, types, section)


def _plain(value: Any, annotation: Any) -> Any:
    """The value as it was written, for a type; a word that keys were laid over became a kind, which is undone."""
    if isinstance(value, Unquoted) and annotation in (str, str | None):
        return str(value)
    return strict_yaml.values(_without(value, "kind") if isinstance(value, dict) else value, quantities=True)


def _nested(items: Iterable[tuple[str, Any]], above: str = "", *, later_wins: bool = False) -> dict[str, Any]:
    """The tree with every dotted key spelled out: `block.channel: X` as `block: {channel: X}`. Nothing in a layer
    replaces: `optimizer.lr: 1` and `optimizer.kind: SGD` hold together. A key is there once, unless the later wins.
    """
    nested: dict[str, Any] = {}
    for key, value in items:
        parts = key.split(".")
        refuse("" in parts, "a dotted key has an empty part", "write it as section.key", key=above + key)
        if isinstance(value, dict):
            value = _nested(value.items(), f"{above}{key}.")
        for part in reversed(parts):
            value = {part: value}
        nested = _union(nested, value, above + key, later_wins)
    return nested


def _union(first: Any, second: Any, key: str, later_wins: bool) -> Any:
    if isinstance(first, dict) and isinstance(second, dict | str):
        second = {"kind": second} if isinstance(second, str) else second
        both = {part: _union(first[part], second[part], key, later_wins) for part in second if part in first}
        return {**first, **second, **both}
    if isinstance(first, str) and isinstance(second, dict):
        return _union({"kind": first}, second, key, later_wins)
    if later_wins:
        return second
    raise ScalingError("the key appears twice", key=key, fix="keep one of them")


def _without(tree: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key not in keys}


def _mapping(layer: Config, key: str) -> dict[str, Any]:
    return value if isinstance(value := layer.tree.get(key), dict) else {}


def _resolved(config: Config) -> Config:
    """The config with the value at `a.b`, and its origin, in the place of every `${a.b}`.

    A line whose kind is a reference to a line is that line, with its other keys laid over it.
    """
    written = dict(schema.walk(config.tree))
    texts = {key: value for key, value in written.items() if isinstance(value, str) and "${" in value}
    if not texts:
        return config
    if wrong := next((key for key, text in texts.items() if "${" in _REFERENCE.sub("", text)), None):
        raise config.error(wrong, "it is not a reference", "write ${section.key}")

    from omegaconf import OmegaConf  # a tenth of a second, for the configs that refer
    from omegaconf.errors import OmegaConfBaseException

    root = OmegaConf.create(strict_yaml.values(config.tree, quantities=True))
    origin: dict[str, str] = {}

    @cache
    def target(text: str) -> Any:
        """The value that a text refers to, with further references as written."""
        names = _REFERENCE.findall(text)
        try:
            value = OmegaConf.create({"value": text}, parent=root).value
            lines = [name for name in names if OmegaConf.is_config(OmegaConf.select(root, name))]
        except OmegaConfBaseException as error:
            for absent in (name for name in names if name not in written):
                raise ScalingError(f"there is no key {absent!r} to refer to", fix=nearest(absent, written)) from None
            raise ScalingError(str(error).splitlines()[0]) from None
        if lines and not _REFERENCE.fullmatch(text):
            raise ScalingError(f"{lines[0]} is not a single value", fix="refer to a key that holds one")
        return OmegaConf.to_container(value, resolve=False) if lines else value

    def read(key: str, value: Any, source: str, links: int = 0) -> Any:
        """The value of a key, which is written at `source` and was reached over so many references."""
        if len(origin) > MOST_VALUES or max(links, key.count(".")) > DEEPEST:
            raise config.error(key, f"references beyond {DEEPEST} levels or {MOST_VALUES:,} values", "write the values")
        if isinstance(value, str) and "${" in value:
            with config.placing(key):
                resolved = target(value)
            while reference := _REFERENCE.fullmatch(str(written.get(source))):
                source = reference[1]
            return read(key, resolved, source, links + 1)
        origin[key] = config.origin.get(source, "")
        if isinstance(value, list):
            return [read(f"{key}.{place}", item, f"{source}.{place}", links) for place, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        kind = value.get("kind")
        line = read(key, kind, f"{source}.kind", links) if isinstance(kind, str) and "${" in kind else None
        keys = _without(value, "kind") if isinstance(line, dict) else value
        inner = {name: read(f"{key}.{name}", child, f"{source}.{name}", links) for name, child in keys.items()}
        return schema.overlay(line, inner) if isinstance(line, dict) else inner

    tree = {key: read(key, value, key) for key, value in config.tree.items()}
    return Config(tree, {key: place for key, place in origin.items() if place})


def _of_words(words: Iterable[tuple[str, Any]]) -> Config:
    """The layer of a command line."""
    try:
        return of_values(COMMAND_LINE, _nested(words, later_wins=True))
    except ScalingError as error:
        raise error.at(file=COMMAND_LINE) from None


def _override(word: str) -> tuple[str, Any]:
    """`key=value` and `--key=value`, as people and W&B agents type them; the value as it was written."""
    match = _OVERRIDE.fullmatch(word)
    if match is None:
        raise ScalingError("expected key=value", file=COMMAND_LINE, key="override", value=word, fix="as in seed=1")
    key, text = match[1], match[2].strip()
    try:
        text.encode()
        return key, parse(text, COMMAND_LINE)[0] if strict_yaml.is_yaml(text) else strict_yaml.word(text)
    except UnicodeEncodeError:  # half characters: bytes of a command line that are not UTF-8 arrive as such
        raise ScalingError("not UTF-8", file=COMMAND_LINE, key=key, value=text, fix="type it as UTF-8") from None
    except ScalingError as error:
        raise error.at(key=key, value=text) from None


def _name(layer: Config, key: str) -> str:
    """The value at a key, which is a name."""
    if not isinstance(value := layer[key], str):
        raise layer.error(key, "expected a name", "write the name of a config, as one word")
    return str(value)
