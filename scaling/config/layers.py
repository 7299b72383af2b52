"""A run's config, layer by layer:

    defaults.yaml ← NAME with its bases ← --overlay FILEs ← size=NAME data=NAME ← its row ← key=value

A layer's `size: gpt2/small` and `data: python` name files of their own. They take the place of what the section held
before, and the layer's other keys are laid over them; names on the command line come before all its other keys. A row
is a difference from whatever model and size are in force, so it comes after those that replace them whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaling.config import pairs
from scaling.config.lookup import find, find_size, names, own_data, shipped
from scaling.config.node import COMMAND_LINE, Node, Origin
from scaling.config.overlay import gather, overlay, undotted
from scaling.config.override import override
from scaling.config.override import overrides as parse_overrides
from scaling.config.reader import read, shown
from scaling.config.resolve import interpolate, quantities, typed
from scaling.config.resolved import Config
from scaling.errors import ScalingError, nearest
from scaling.schema import kinds, parts

# Sections whose keys defaults.yaml fixes; the others hold pieces and sizes, whose classes define their keys.
FIXED = ("start", "train", "evaluate", "log", "seed", "runs")
SECTIONS = ("model", "size", "data", "objective", "optimizer", "schedule", "parametrization", "tuning", *FIXED)
# What a file may hold besides sections: `base` and `rows` are read here, `table` by the command that prints tables.
BESIDE_SECTIONS = ("base", "rows", "table")
# Sections that a bare word names a file for; a bare word for any other is a kind.
NAMED = ("size", "data")
KINDED = ("objective", "optimizer", "schedule", "parametrization", "tuning")


def load(
    name: str | None = None,
    overrides: Iterable[str] = (),
    *,
    overlays: Sequence[str | Path] = (),
    filled: Mapping[str, Any] | None = None,
    filler: str = COMMAND_LINE.file,
) -> Config:
    """The resolved config of a model, a table's row (`row=`) or a file, with what is laid over it.

    `model=NAME` among the overrides means NAME.
    `filled` are values by dotted key that the command `filler` gives, laid over the files and under the overrides; a
    section that is given whole takes the place of the files'.
    """
    given, words = parse_overrides(overrides, ("model", "row", *NAMED))
    model, row = given.pop("model", None), given.pop("row", None)
    name = name if model is None else _name(model, "model")
    defaults = read(shipped() / "defaults.yaml")
    chain = _model(name, row)
    layers = [defaults, *chain]
    for path in overlays:
        layers += follow("model", find("model", str(path)))
    difference = [] if row is None else [_row(chain, row, str(name))]
    if filled:
        layers = [*(_without(layer, filled) for layer in layers), Node.of(filled, Origin(filler))]
    layers.append(Node(given, COMMAND_LINE))
    sections = _Sections()
    for layer in layers:
        sections.lay(layer)
    before = sections.laid.get("model")
    for layer in (*difference, words):
        sections.lay(layer)
    if "model" not in sections.laid:
        raise ScalingError("no model is named", fix=nearest("", names("model")))
    config = Config.of(_finished(Node(sections.laid, defaults.origin), defaults))
    return replace(config, remarks=tuple(pairs.remarks(before, config)))


def _without(layer: Node, sections: Mapping[str, Any]) -> Node:
    """A layer without these sections."""
    return Node({key: node for key, node in (layer.mapping or {}).items() if key not in sections}, layer.origin)


def setting(word: str) -> tuple[str, Any]:
    """The key and the value of an override of a section with fixed keys, checked as `load` checks it."""
    key, node = override(word)
    section = key.partition(".")[0]
    schema = (read(shipped() / "defaults.yaml").mapping or {})[section]
    laid = quantities(gather([(key, node)], COMMAND_LINE)).mapping or {}
    return key, Config.of(Node({section: typed(section, laid[section], schema)}, COMMAND_LINE))[key]


def follow(group: str, path: Path, trail: tuple[Path, ...] = ()) -> list[Node]:
    """A file of a group after the files it is based on, the deepest first."""
    resolved = path.resolve()
    if resolved in trail:
        chain = " → ".join(shown(seen) for seen in (*trail[trail.index(resolved) :], resolved))
        raise ScalingError(f"the config includes itself: {chain}", fix="break the circle")
    root = read(path)
    if root.mapping is None:
        raise ScalingError("expected sections", file=shown(path), fix="write one of " + ", ".join(SECTIONS))
    base = root.mapping.get("base")
    if base is None:
        return [root]
    try:
        below = follow(group, find(group, _name(base, "base"), beside=path.parent), (*trail, resolved))
    except ScalingError as error:
        raise _placed(base, "base", error) from None
    return [*below, root]


class _Sections:
    """The layers so far, merged."""

    def __init__(self) -> None:
        self.laid: dict[str, Node] = {}
        self._tie = pairs.Tie()

    def lay(self, layer: Node) -> None:
        sections = {key: node for key, node in (layer.mapping or {}).items() if key not in BESIDE_SECTIONS}
        # Names first: `size: gpt2/small` with `size.length: 128` is that size with another length.
        for section in NAMED:
            if section in sections and sections[section].mapping is None:
                self.name(section, sections.pop(section))
        for section, node in (undotted(Node(sections, layer.origin)).mapping or {}).items():
            if section not in SECTIONS:
                raise node.error("there is no such section", key=section, fix=nearest(section, SECTIONS))
            if section == "model" and node.mapping is None:
                raise node.error("expected the model's keys", key=section, fix="name another model's file as `base`")
            if section in KINDED and node.name is not None:
                node = Node({"kind": node}, node.origin)
            if section == "data":
                node = _with_parts(node)
            below = self.laid.get(section)
            if section == "model":
                self.laid[section] = self._tie.follow(below, node, overlay(below, pairs.spelled_out(below, node)))
            else:
                self.laid[section] = overlay(below, node)

    def name(self, section: str, node: Node) -> None:
        """Put the file that a named section means in the place of what the section held."""
        name = _name(node, section)
        beside = Path(node.origin.file).parent if node.origin.line is not None else None
        try:
            layers = _named(section, name, beside, node.origin)
        except ScalingError as error:
            raise _placed(node, section, error) from None
        self.laid.pop(section, None)
        for layer in layers:
            self.lay(layer)


def _named(section: str, name: str, beside: Path | None, origin: Origin) -> list[Node]:
    if section == "size":
        entry = find_size(name, beside=beside)
        if entry.mapping is None:
            raise entry.error("expected the size's keys", key=name, fix="write {width: …, layers: …}")
        return [Node({section: entry}, entry.origin)]
    try:
        file = find(section, name, beside=beside)
    except ScalingError:
        own = own_data(name) if section == "data" else None
        if own is None:
            raise
        return [*follow(section, find(section, own[0])), gather([(own[1], Node(name, origin))], origin)]
    layers = follow(section, file)
    for layer in layers:
        for inner in NAMED:
            word = (layer.mapping or {}).get(inner)
            if word is not None and word.mapping is None:
                raise word.error("expected its keys here, not a name", key=inner, fix="name that file as `base`")
    return layers


def _with_parts(data: Node) -> Node:
    """The section with each of its parts (the domains of a mixture) that is a name as the file of that name has it."""
    if data.mapping is None:
        return data
    keys = dict(data.mapping)
    for key, node in data.mapping.items():
        if node.mapping is not None and key in parts("data"):
            named = {name: _part(f"data.{key}.{name}", line) for name, line in node.mapping.items()}
            keys[key] = Node(named, node.origin)
    return Node(keys, data.origin)


def _part(place: str, line: Node) -> Node:
    """A part's line; its kind, or all of it, may be the name of a file, over which its other keys are laid."""
    keys = dict(line.mapping or {"kind": line})
    kind = keys.get("kind")
    if kind is None or kind.name is None or kind.name in kinds("data"):
        return line
    whole: Node | None = None
    try:
        for layer in _named("data", kind.name, None, kind.origin):
            whole = overlay(whole, undotted(layer).mapping["data"])  # type: ignore[index]
    except ScalingError as error:
        raise _placed(kind, place, error) from None
    return overlay(whole, Node({key: node for key, node in keys.items() if key != "kind"}, line.origin))


def _model(name: str | None, row: Node | None) -> list[Node]:
    """The layers of a model's or a table's file."""
    if name is None:
        if row is not None:
            raise row.error("a row needs its table", key="row", fix="name it, as in table/narang2021 row=GeLU")
        return []
    return follow("model", find("model", name))


def entries(chain: Sequence[Node], key: str) -> dict[str, Node]:
    """What the files of a chain hold under `rows` or `table`, each entry of a later file laid over the earlier one."""
    merged: dict[str, Node] = {}
    for layer in chain:
        section = (layer.mapping or {}).get(key)
        for name, node in ((section.mapping if section is not None else None) or {}).items():
            if name not in merged:
                merged[name] = node
            elif key == "table":  # whose names, as headings, may have dots
                merged[name] = overlay(merged[name], node)
            else:
                merged[name] = overlay(undotted(merged[name]), undotted(node))
    return merged


def _row(chain: Sequence[Node], row: Node, table: str) -> Node:
    rows = entries(chain, "rows")
    name = _name(row, "row")
    if not rows:
        raise row.error(f"{table} has no rows", key="row", fix="name a table, as in table/narang2021 row=GeLU")
    if name not in rows:
        raise row.error(f"{table} has no such row", key="row", fix=nearest(name, rows))
    difference = rows[name]
    if difference.mapping is None:
        raise difference.error("expected sections under a row", key=name, fix="write {} where it changes nothing")
    if "base" in difference.mapping:
        raise difference.mapping["base"].error("a row has no base", key=f"{name}.base", fix="write what it changes")
    return difference


def _placed(node: Node, key: str, error: ScalingError) -> ScalingError:
    """An error that has no place yet, at the node whose name led to it."""
    if error.file is not None:
        return error
    return error.at(file=node.origin.file, line=node.origin.line, key=key, value=node.name)


def _name(node: Node, key: str) -> str:
    if node.name is None:
        raise node.error("expected a name", key=key, fix="write the name of a config, as one word")
    return node.name


def _finished(root: Node, defaults: Node) -> Node:
    root, schema = quantities(interpolate(root)), defaults.mapping or {}
    laid = root.mapping or {}
    ordered = {key: laid[key] for key in SECTIONS if key in laid}
    checked = {key: typed(key, node, schema[key]) if key in FIXED else node for key, node in ordered.items()}
    return Node(checked, root.origin)
