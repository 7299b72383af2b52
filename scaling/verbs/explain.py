"""Explain the names of a config, and count the costs of its models without allocating any."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from inspect import getdoc
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scaling.base.errors import ScalingError, nearest
from scaling.base.printing import byte_size, tabulate
from scaling.config import schema
from scaling.config.compose import FIXED, SECTIONS, load
from scaling.config.document import document, print_remarks
from scaling.config.files import shipped
from scaling.config.shape import SIZES
from scaling.verbs.train import Overlays
from scaling.verbs.verb import VERBS, Result, verb

if TYPE_CHECKING:
    from scaling.model.cost import Cost

WIDTH = 100
FILES = ("size", "study", "sweep", "table")
_CITED = re.compile(r"(?P<formula>.*\S)\s*\((?P<citation>[^()]*(?:\([^()]*\)[^()]*)*\d{4}[^()]*)\)\.?", re.DOTALL)


@verb
def explain(name: Annotated[str | None, "a slot, kind, section, key, law, file or command"] = None) -> Result:
    """Explain a name of a config: a slot, a kind, a section, a key, a law, a shipped file, or a command.

        scaling explain                      every slot with its kinds
        scaling explain block.channel        the kinds of one slot
        scaling explain Rotary               one kind; also your own, with --extend my.py
        scaling explain train                the keys of a section without pieces; also size
        scaling explain law                  every scaling law; also one name, such as chinchilla
        scaling explain study                the keys of a study's file; also sweep, table, or one key, such as held_out
        scaling explain quickstart           a shipped study, table, model, size or data set, or a command

    Kinds and laws have their formulas, keys and citations.
    """
    about = {slot: sorted(schema.kinds(slot)) for slot in schema.SLOTS} if name is None else _about(name)
    return Result(about, ["\n".join(_lines(about)).strip("\n")])


def _about(name: str) -> dict[str, Any]:
    from scaling.laws import composed, laws, named
    from scaling.laws.written import STEPS, TWO_STEP

    section, last = name.partition(".")[0], name.rpartition(".")[2]
    files, kinds = _files(), {slot: schema.kinds(slot) for slot in schema.SLOTS}
    every_law: dict[str, Any] = {**laws(), TWO_STEP: composed(*map(named, STEPS))}
    if section in FIXED and (keys := _keys(name)):
        return {"section": section, "keys": keys}
    if name in files:
        return files[name]
    if name == "law":
        return {"laws": [_law(law) for law in laws().values()]}
    if last in kinds:
        return {"slot": last, "kinds": [_kind(piece) for piece in kinds[last].values()]}
    pieces = [(slot, kind, piece) for slot in kinds for kind, piece in kinds[slot].items()]
    if named := dict.fromkeys(piece for _, kind, piece in pieces if kind.lower() == last.lower()):
        slots = {piece: [slot for slot, _, each in pieces if each is piece] for piece in named}
        return {"kinds": [{"slots": slots[piece], **_kind(piece)} for piece in named]}
    for law in every_law:
        if law.lower() == name.lower():
            return _law(every_law[law])
    rows = {
        file: row
        for file in FILES
        for key, row in files[file]["keys"].items()
        if name in (key, key.rpartition(".")[2], f"{file}.{key}")
    }
    if rows:
        return {"key": name, "files": rows}
    paths = {path: path.parent.name for path in sorted(shipped().glob("*/*.yaml"))}
    if about := [
        {"group": group, "file": f"configs/{group}/{path.name}", "comment": comment(path)}
        for path, group in paths.items()
        if name in (path.stem, f"{group}/{path.stem}")
    ]:
        return {"name": name, "shipped": about}
    if name in VERBS:
        return {"command": name, "help": f"scaling {name} --help"}
    what = "slot" if last != name else "slot, kind, section or law"  # a dotted key ends in a slot
    fix = nearest(last, [*kinds, *FIXED, "law", *files, *every_law, *(kind for _, kind, _ in pieces)])
    raise ScalingError(f"there is no {what} {last!r}", fix=fix)


def _keys(name: str) -> dict[str, Any]:
    """The keys of a section, or the key of this name, each with its default and its comment in defaults.yaml."""
    path = shipped() / "defaults.yaml"
    lines, defaults = path.read_text(encoding="utf-8").splitlines(), document(path)
    return {
        key: {"default": defaults[key], "meaning": lines[int(place.rpartition(":")[2]) - 1].partition(" # ")[2].strip()}
        for key, place in defaults.origin.items()
        if key.startswith(f"{name}.") or (key == name and not isinstance(defaults[key], dict))
    }


def _files() -> dict[str, dict[str, Any]]:
    """The keys of a size, and of the files of a study, a sweep and a table."""
    from scaling.studies import question
    from scaling.sweeps import file
    from scaling.tables import table

    size = {key: {"type": schema.describe(kind), "meaning": kind.__metadata__[-1]} for key, kind in SIZES.items()}
    named = {path.stem: list(document(path).tree) for path in sorted((shipped() / "size").glob("*.yaml"))}
    study = {
        key: {"needed": key in question.NEEDED, "meaning": kind.__metadata__[-1]} for key, kind in question.KEYS.items()
    }
    sweep = {
        key: {"type": schema.describe(kind), "needed": key in file.NEEDED, "meaning": file.NEEDED.get(key)}
        for key, kind in sorted(file.KEYS.items())
    }
    base = "a model, or a table; each row is merged over its row of the same name"
    rows = "the changes of each row, by its name: {GeLU: {…}, base: {}}"
    columns = {"base": {"type": "text", "meaning": base}, "rows": {"type": "keys with values", "meaning": rows}}
    for key, kind in table.KEYS.items():
        columns[f"table.{key}"] = {"type": schema.describe(kind), "meaning": kind.__metadata__[-1]}
    meaning = "a size is named FAMILY/SIZE; a size of the ladder needs only its name"
    return {
        "size": {"section": "size", "meaning": meaning, "keys": size, "named": named},
        "study": {"file": "study", "keys": study},
        "sweep": {"file": "sweep", "keys": sweep},
        "table": {"file": "table", "keys": columns, "sections": list(SECTIONS)},
    }


def _law(law: Any) -> dict[str, Any]:
    bounds = {each.name: {key: getattr(each, key) for key in ("unit", "lower", "upper")} for each in law.parameters}
    about = {"law": law.name, "formula": law.formula, "citation": law.citation}
    return about | {"columns": list(law.inputs), "target": law.target, "parameters": bounds}


def _kind(piece: type) -> dict[str, Any]:
    """A class: the docstring's formula and citation, and the keyword arguments as keys."""
    first, _, rest = (getdoc(piece) or "").partition("\n\n")
    cited, keys = _CITED.fullmatch(first), {}
    for key, parameter in schema.keys(piece).items():
        needed, kind = parameter.default is parameter.empty, schema.describe(parameter.annotation)
        keys[key] = {"type": kind, "needed": needed, "default": None if needed else parameter.default}
    return {
        "kind": piece.__name__,
        "formula": " ".join((cited["formula"] if cited else first).split()),
        "citation": " ".join(cited["citation"].split()) if cited else None,
        "notes": rest or None,
        "module": piece.__module__,
        "keys": keys,
    }


def comment(path: Path) -> str:
    """The comment at the head of a file, as one paragraph."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))


def _lines(about: Mapping[str, Any]) -> Iterator[str]:
    """A document as text: texts under their names, keys as tables, kinds one after another."""
    width = max(map(len, about)) + 2
    for name, value in about.items():
        if name == "laws":
            value = {law["law"]: {key: law[key] for key in ("formula", "citation")} for law in value}
        if isinstance(value, list) and isinstance(value[0], Mapping):
            for each in value:
                yield from ("", *_lines(each))
        elif isinstance(value, Mapping) and all(isinstance(row, Mapping) for row in value.values()):
            titles = list(dict.fromkeys(title for row in value.values() for title in row))
            rows = [[key, *(_cell(row, title) for title in titles)] for key, row in value.items()]
            yield from ["", tabulate([name.rstrip("s"), *titles], rows).text(), ""] if rows else ()
        elif isinstance(value, Mapping):
            yield from _lines(value)
        elif value is not None:
            text = ", ".join(value) if isinstance(value, list) else value
            paragraphs = text.splitlines() if name == "notes" else textwrap.wrap(text, WIDTH - width)
            yield textwrap.indent("\n".join(paragraphs), " " * width).replace(" " * width, f"{name:<{width}}", 1)


def _cell(row: Mapping[str, Any], title: str) -> str:
    value = row.get(title)
    if title == "default":
        return "" if row.get("needed") else json.dumps(value, default=str)
    return str(value or "") if title != "needed" else "needed" * bool(value)


@dataclass(frozen=True, repr=False)
class Costs(Result):
    """The costs of models, in `costs` by name. The figures of a single model are attributes (docs/json.md)."""

    costs: Mapping[str, Cost] = field(default_factory=dict)


@verb
def inspect(
    *words: Annotated[str, "models, rows of tables or files; key=value holds for all of them"],
    lengths: Annotated[tuple[int, ...], "lengths of windows, for the fraction of the FLOPs of attention in each"] = (),
    overlays: Overlays = (),
    **settings: Any,
) -> Costs:
    """Count parameters, FLOPs and memory of one or more models, without training or allocating any.

        scaling inspect gpt2                       the shipped model at its size
        scaling inspect gpt2 size=gpt2/xl          another size of this model
        scaling inspect gpt2 llama size=ladder/1M  two models at one size
        scaling inspect gpt2 --lengths 512 8192    the fraction of the FLOPs between tokens, at each length

    `scaling table TABLE --counts` counts every row of a table.
    """
    names, overrides = ([word for word in words if ("=" in word) == is_override] for is_override in (False, True))
    each = dict.fromkeys((name, length) for name in names or [None] for length in lengths or [None])
    checked = {}
    for name, length in each:
        title, of_length = ("", []) if length is None else (f", {length:,} tokens", [f"size.length={length}"])
        checked[(name or "model") + title] = load(name, [*overrides, *of_length], overlays=overlays).check()

    from scaling.training.experiment import counted  # torch is imported once the configs are known to be right

    costs, documents = {title: counted(one) for title, one in checked.items()}, []
    for (name, length), cost in zip(each, costs.values(), strict=True):
        figures = cost.to_json()
        if length is not None:
            figures = {"length": length, "flops_forward_per_token": cost.flops_forward_per_token, **cost.attention}
        documents.append({"model": name or "model", **figures})
    is_tuned = any(cost.parameters_trained != cost.parameters for cost in costs.values())
    rows = []
    for lines in zip(*(_figures(cost, is_tuned) for cost in costs.values())):
        if any(number for _, number, _ in lines):  # what is 0 of all models is left out
            cells = (f"{number:{digits}}" if digits else byte_size(number) for _, number, digits in lines)
            rows.append([lines[0][0], *(cells if lines[0][0] else [""] * len(lines))])
    for device, title in (("cpu", "attention on a CPU, float32"), ("cuda", "attention on CUDA, bfloat16")):
        if any(cost.attention_by.get(device) for cost in costs.values()):
            rows.append([title, *(", ".join(cost.attention_by.get(device, ())) for cost in costs.values())])
    print_remarks(checked.values())
    is_one = len(documents) == 1 and not lengths
    return Costs(documents[0] if is_one else documents, [tabulate(["", *costs], rows)], costs=costs)


def _figures(cost: Cost, is_tuned: bool) -> list[tuple[str, float, str]]:
    """The figures of a model, each with its title and its format; the format of bytes is empty."""
    from scaling.model.cost import SLOTS

    by_slot, flops = cost.parameters_by_slot, cost.flops_forward_by_slot
    feed_forward, memory, blank = cost.feed_forward_share, cost.memory(), ("", 1, "")
    count, share, each, others = ",.0f", ".1%", cost.flops_train_per_token, cost.approximations
    return [
        ("parameters", cost.parameters, count),
        ("  trained", cost.parameters_trained if is_tuned else 0, count),
        ("  without embeddings", cost.parameters_non_embedding, count),
        *((f"  {slot}", by_slot[slot], count) for slot in SLOTS),
        blank,
        ("FLOPs forward, per token", cost.flops_forward_per_token, count),
        *((f"  {slot}", flops[slot] / cost.tokens, count) for slot in SLOTS),
        ("FLOPs training, per token", each, count),
        ("  shared by the rows of a batch", (cost.flops_train_shared or 0) / cost.flops_train, share),
        *((f"  by {name.replace('_', ' ')}, relative to it", value / each, ".3f") for name, value in others.items()),
        ("  checkpointing adds", cost.flops_recomputed / cost.flops_train, share),
        blank,
        ("attention, of forward FLOPs", cost.attention["share_of_flops"], share),
        ("  projections", cost.attention["projections_share_of_flops"], share),
        ("  between tokens", cost.attention["between_tokens_share_of_flops"], share),
        blank,
        ("feed-forward, of parameters", feed_forward["parameters"], share),
        ("feed-forward, of parameters without embeddings", feed_forward["parameters_non_embedding"], share),
        ("feed-forward, of forward FLOPs", feed_forward["flops"], share),
        blank,
        ("memory of a window, float32, Adam", sum(memory.values()), ""),
        *((f"  {part}", size, "") for part, size in memory.items()),
        ("tokens a window", cost.tokens, count),
    ]
